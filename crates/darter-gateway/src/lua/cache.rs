//! The scripts that `EVALSHA` finds, and the line before a script that names its engine and flags.

use crate::fault::Fault;
use sha1::{Digest, Sha1};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Most bytes of scripts that are kept.
const BYTES_MAX: usize = 64 << 20;
/// Bytes that a script takes besides its text.
const BYTES_EACH: usize = 256;

/// Returns the SHA-1 digest of bytes, in lower-case hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = Sha1::digest(bytes);
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The flags of a script or a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// It has a line with flags, so that one without `no-writes` counts as one that writes.
    pub(crate) are_declared: bool,
    /// It calls no commands that write.
    pub(crate) no_writes: bool,
}

/// All flags, in Redis's words.
pub(crate) const FLAGS: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// A script.
#[derive(Debug)]
pub(crate) struct Script {
    /// The digest of its whole text.
    pub(crate) digest: String,
    /// The text without a line that names the engine, but with the end of that line.
    pub(crate) body: Arc<Vec<u8>>,
    pub(crate) flags: Flags,
}

impl Script {
    /// Parses the line with the engine and the flags, if there is one.
    ///
    /// # Errors
    /// Fails if that line is invalid.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Fault> {
        let (mut flags, mut start) = (Flags::default(), 0);
        if text.starts_with(b"#!") {
            let end = text.iter().position(|&byte| byte == b'\n');
            start = end.ok_or(Fault::said("ERR Invalid script shebang"))?;
            let line = String::from_utf8_lossy(&text[..start]);
            let mut words = line.split_whitespace();
            let engine = words.next().unwrap_or_default();
            if engine != "#!lua" {
                return Err(Fault::said(format!("ERR Unexpected engine in script shebang: {engine}")));
            }
            flags.are_declared = true;
            for word in words {
                let Some(names) = word.strip_prefix("flags=") else {
                    return Err(Fault::said(format!("ERR Unknown lua shebang option: {word}")));
                };
                for name in names.split(',') {
                    if !FLAGS.contains(&name) {
                        let text = format!("ERR Unexpected flag in script shebang: {name}");
                        return Err(Fault::said(text));
                    }
                    flags.no_writes |= name == "no-writes";
                }
            }
        }
        Ok(Self { digest: digest(text), body: Arc::new(text[start..].to_vec()), flags })
    }
}

/// The scripts of a gateway. If there is no room, the oldest that was not used since the last
/// search for room is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// With whether the script was used.
    scripts: HashMap<String, (Arc<Script>, bool)>,
    order: VecDeque<String>,
    bytes: usize,
}

impl Cache {
    /// Returns the script with a digest, in upper or lower case.
    pub(crate) fn find(&mut self, digest: &[u8]) -> Option<Arc<Script>> {
        let digest = std::str::from_utf8(digest).ok()?.to_ascii_lowercase();
        let (script, is_used) = self.scripts.get_mut(&digest)?;
        *is_used = true;
        Some(Arc::clone(script))
    }

    /// Adds a script.
    pub(crate) fn add(&mut self, script: &Arc<Script>) {
        if self.scripts.contains_key(&script.digest) {
            return;
        }
        let bytes = script.body.len() + BYTES_EACH;
        while self.bytes + bytes > BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            let is_used = self.scripts.get_mut(&oldest).is_some_and(|(_, is_used)| std::mem::take(is_used));
            if is_used {
                self.order.push_back(oldest);
            } else if let Some((forgotten, _)) = self.scripts.remove(&oldest) {
                self.bytes -= forgotten.body.len() + BYTES_EACH;
            }
        }
        self.scripts.insert(script.digest.clone(), (Arc::clone(script), false));
        self.order.push_back(script.digest.clone());
        self.bytes += bytes;
    }

    /// Returns the number of scripts, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.scripts.len(), self.bytes)
    }

    /// Forgets all scripts.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_forgets_the_oldest_unused_scripts() {
        let mut cache = Cache::default();
        let script = |number: u8| {
            let mut text = vec![b' '; 1 << 20];
            text[0] = number;
            Arc::new(Script::parse(&text).unwrap())
        };
        let first = script(0);
        cache.add(&first);
        for number in 1..200 {
            cache.add(&script(number));
            assert!(cache.find(first.digest.to_ascii_uppercase().as_bytes()).is_some(), "{number}");
            assert!(cache.bytes <= BYTES_MAX && cache.scripts.len() == cache.order.len());
        }
        assert!(cache.find(script(1).digest.as_bytes()).is_none());
        assert_eq!(cache.size().0, 63);
        cache.add(&first);
        assert_eq!(cache.size().0, 63);
    }

    #[test]
    fn the_line_with_flags_is_parsed_as_redis_does() {
        let parsed = |text: &str| Script::parse(text.as_bytes()).map(|script| script.flags);
        assert_eq!(parsed("return 1").unwrap(), Flags::default());
        let flags = parsed("#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert!(flags.are_declared && flags.no_writes);
        for (text, error) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!ruby\n", "ERR Unexpected engine in script shebang: #!ruby"),
            ("#!lua name=x\n", "ERR Unknown lua shebang option: name=x"),
            ("#!lua flags=x\n", "ERR Unexpected flag in script shebang: x"),
        ] {
            assert_eq!(parsed(text).unwrap_err().text(), error);
        }
        let script = Script::parse(b"#!lua\nreturn 1").unwrap();
        assert_eq!(script.body[..], *b"\nreturn 1");
        assert_eq!(digest(b"return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
