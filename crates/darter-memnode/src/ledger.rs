//! The file in which a memory node with a mapped region records its identity and the sessions that
//! it has fenced.
//!
//! The region's file alone is not enough: a fenced session may resume after the node was restarted
//! and must still be refused. So a fenced session is on stable storage before any client can learn
//! that it is fenced. The file is text, has one fact per line, and only grows. If a crash truncates
//! the last line, no client has learned of it.
//!
//! ```text
//! darter memory node 1
//! boot 9f3c58e1d2b4a607
//! serving 0000000000013a2f 183c5d1f2b7a9e40
//! fenced 03b1c9d27e5f8a64
//! ended
//! ```
//!
//! `serving` is followed by the numbers of the region's file
//! ([`darter_fabric::Local::file_numbers`]), or zeros. If no `ended` follows it, and the file has
//! other numbers, the region is a copy that may mix two states: it was made while a node wrote to
//! it, or after the node was killed.

use crate::error::MemNodeError;
use darter_fabric::files::{Sharing, open_own};
use darter_fabric::random_word;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The numbers of a file that has none.
const NUMBERLESS: [u64; 2] = [0; 2];
/// Number of bytes of `serving` and the first number.
const SERVING_BYTES: usize = 24;
const ENDED: &[u8] = b"ended\n";
const TITLE: &str = "darter memory node 1";
/// Number of bytes of the longest line.
const LINE_BYTES_MAX: u64 = 64;

/// The open file.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    path: PathBuf,
    is_serving: bool,
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if self.is_serving && !std::thread::panicking() {
            // Without the line, only a copy of the region is refused.
            let _ = self.note("ended\n");
        }
    }
}

/// The contents of the file.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    pub boot_id: u64,
    /// Fenced sessions, the oldest first.
    pub fenced: Vec<u64>,
    /// Sessions that were admitted, the oldest first. Only a log has them.
    pub known: Vec<u64>,
    /// Sessions ended by a crash, which are fenced as well. Only a log has them.
    pub forgotten: Vec<u64>,
    /// The numbers of the region's file if a node began to serve it and did not end in order. Only
    /// this file has them.
    pub serving: Option<[u64; 2]>,
}

impl Remembered {
    /// Returns whether a node was serving another file when the files of a region were copied.
    pub(crate) fn is_copy(&self, numbers: Option<[u64; 2]>) -> bool {
        let serving = self.serving.filter(|&serving| serving != NUMBERLESS);
        serving.zip(numbers).is_some_and(|(serving, own)| serving != own)
    }
}

impl Ledger {
    /// Opens the ledger of a region's file, or creates it if the region is new.
    pub(crate) fn open(
        region: &Path,
        is_new: bool,
        sharing: &Sharing,
    ) -> Result<(Self, Remembered), MemNodeError> {
        let mut path = region.as_os_str().to_owned();
        path.push(".node");
        let path = PathBuf::from(path);
        let refused = |action| {
            let path = path.clone();
            move |source| MemNodeError::Ledger { path, action, source }
        };
        if is_new {
            // An existing ledger belongs to a region that was removed.
            let begun = Remembered { boot_id: random_word(), ..Remembered::default() };
            let (file, _) = sharing.open_or_create(&path).map_err(refused("create it"))?;
            file.set_len(0).map_err(refused("empty it"))?;
            let mut ledger = Self { file, path, is_serving: false };
            ledger.note(&format!("{TITLE}\nboot {:016x}\n", begun.boot_id))?;
            return Ok((ledger, begun));
        }
        let mut file = open_own(&path).map_err(refused("open it"))?;
        let remembered = read(&file).map_err(refused("read it"))?;
        file.seek(SeekFrom::End(0)).map_err(refused("find its end"))?;
        let mut ledger = Self { file, path, is_serving: false };
        // Ends a truncated line, which readers skip.
        ledger.note("\n")?;
        Ok((ledger, remembered))
    }

    /// Records on stable storage that a session is fenced.
    pub(crate) fn fenced(&mut self, session: u64) -> Result<(), MemNodeError> {
        self.note(&format!("fenced {session:016x}\n"))
    }

    /// Records that a node begins to serve the region's file, which has these numbers. Dropping the
    /// ledger records the end.
    pub(crate) fn serving(&mut self, numbers: Option<[u64; 2]>) -> Result<(), MemNodeError> {
        self.is_serving = true;
        let [inode, born] = numbers.unwrap_or(NUMBERLESS);
        self.note(&format!("serving {inode:016x} {born:016x}\n"))
    }

    fn note(&mut self, text: &str) -> Result<(), MemNodeError> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| MemNodeError::Ledger { path: self.path.clone(), action: "write it", source })
    }
}

fn read(file: &File) -> io::Result<Remembered> {
    let foreign = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut next = |line: &mut Vec<u8>| -> io::Result<bool> {
        line.clear();
        Ok(reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)? > 0)
    };
    let number = |line: &[u8], what: &str| {
        // The line is complete if all its digits are there; the line feed does not matter.
        let digits = line.strip_suffix(b"\n").unwrap_or(line).strip_prefix(what.as_bytes())?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 16)?;
        u64::from_str_radix(digits, 16).ok()
    };
    next(&mut line)?;
    if line.strip_suffix(b"\n") != Some(TITLE.as_bytes()) {
        return Err(foreign("it was not written by this release's memory node"));
    }
    next(&mut line)?;
    let boot_id =
        number(&line, "boot ").ok_or_else(|| foreign("it does not say which memory it belongs to"))?;
    let (mut fenced, mut serving) = (Vec::new(), None);
    while next(&mut line)? {
        if let Some((inode, born)) = line.split_at_checked(SERVING_BYTES) {
            let numbers = number(inode, "serving ").zip(number(born, " "));
            serving = numbers.map(|(inode, born)| [inode, born]).or(serving);
        }
        if line == ENDED {
            serving = None;
        }
        let session = number(&line, "fenced ");
        fenced.extend(session);
    }
    Ok(Remembered { boot_id, fenced, serving, ..Remembered::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_facts_are_read_again_after_any_truncation() {
        let dir = tempfile::tempdir().unwrap();
        let region = dir.path().join("region");
        let open = |is_new| Ledger::open(&region, is_new, &Sharing::default());
        let (mut ledger, begun) = open(true).unwrap();
        ledger.fenced(7).unwrap();
        ledger.fenced(u64::MAX).unwrap();
        drop(ledger);
        let path = dir.path().join("region.node");
        let whole = std::fs::read(&path).unwrap();
        for keep in 0..=whole.len() {
            std::fs::write(&path, &whole[..keep]).unwrap();
            match open(false) {
                Ok((mut ledger, remembered)) => {
                    assert_eq!(remembered.boot_id, begun.boot_id);
                    assert!([&[7, u64::MAX][..], &[7], &[]].contains(&&remembered.fenced[..]));
                    ledger.fenced(9).unwrap();
                    drop(ledger);
                    let (_, again) = open(false).unwrap();
                    assert_eq!(again.fenced, [&remembered.fenced[..], &[9]].concat());
                }
                Err(error) => assert!(error.to_string().contains("region.node"), "{error}"),
            }
        }
        std::fs::write(&path, [&whole[..], &[0xff; 1000]].concat()).unwrap();
        assert_eq!(open(false).unwrap().1.fenced, [7, u64::MAX]);
        // A new region gets a new file.
        assert_ne!(open(true).unwrap().1.boot_id, begun.boot_id);
    }
}
