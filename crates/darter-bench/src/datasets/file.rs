//! `file:PATH`: any keys, one a line, taken as bytes without the newline.
//!
//! The file is held in memory with one index per line. Lines may come in any order; they are
//! shuffled by the seed, so that the keys left for inserts are a fair sample. Blank lines are
//! skipped and repeated keys dropped, both counted in the note.

use super::{Dataset, RECORDS_MAX};
use crate::BenchError;
use crate::permutation::{Permutation, derive_seed};
use darter::KEY_BYTES_MAX;
use darter_fabric::counted;
use std::path::Path;

/// The lines of a file.
#[derive(Debug)]
pub struct KeyFile {
    text: Vec<u8>,
    /// Start and length of each distinct key, in byte order of the keys.
    lines: Vec<(u64, u32)>,
    shuffle: Permutation,
    key: u64,
    bytes: u64,
    blank: u64,
    repeated: u64,
}

impl KeyFile {
    /// Reads the keys of `path`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a regular file, holds no key, or has a line above
    /// [`KEY_BYTES_MAX`] bytes.
    pub fn read(path: &Path, seed: u64) -> Result<Self, BenchError> {
        let failed = |source| BenchError::KeyFile { path: path.to_owned(), source };
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(BenchError::Usage(format!("{}: not a regular file of keys", path.display())));
        }
        Self::parse(std::fs::read(path).map_err(failed)?, seed)
            .map_err(|what| BenchError::Usage(format!("{}: {what}", path.display())))
    }

    fn parse(text: Vec<u8>, seed: u64) -> Result<Self, String> {
        let (mut lines, mut blank, mut at) = (Vec::new(), 0, 0);
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            match line.len() {
                // The empty rest after the last newline is not a line.
                0 if at < text.len() => blank += 1,
                0 => {}
                bytes if bytes > KEY_BYTES_MAX => {
                    return Err(format!(
                        "line {}: key of {bytes} bytes; the limit is {KEY_BYTES_MAX}",
                        number + 1
                    ));
                }
                bytes => lines.push((at as u64, bytes as u32)),
            }
            at += line.len() + 1;
        }
        let found = lines.len();
        lines.sort_unstable_by_key(|&line| slice(&text, line));
        lines.dedup_by_key(|line| slice(&text, *line));
        if lines.is_empty() {
            return Err("no keys; write one key per line".to_owned());
        }
        if lines.len() as u64 > RECORDS_MAX {
            return Err(format!("{} keys; the limit is {RECORDS_MAX}", lines.len()));
        }
        let bytes = lines.iter().map(|line| u64::from(line.1)).sum();
        let repeated = (found - lines.len()) as u64;
        let shuffle = Permutation::new(lines.len() as u64);
        Ok(Self { text, lines, shuffle, key: derive_seed(seed, 0x4669_6c65), bytes, blank, repeated })
    }

    /// Returns the key at `place` in byte order.
    fn at(&self, place: u64) -> &[u8] {
        slice(&self.text, self.lines[place as usize])
    }

    fn place(&self, record: u64) -> u64 {
        self.shuffle.apply(record, self.key)
    }
}

fn slice(text: &[u8], (at, bytes): (u64, u32)) -> &[u8] {
    &text[at as usize..][..bytes as usize]
}

impl Dataset for KeyFile {
    fn capacity(&self) -> u64 {
        self.lines.len() as u64
    }

    fn key(&self, record: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.at(self.place(record)));
    }

    fn sorted(&self, records: u64) -> Box<dyn Iterator<Item = Vec<u8>> + Send + '_> {
        let mut chosen = vec![false; self.lines.len()];
        for record in 0..records {
            chosen[self.place(record) as usize] = true;
        }
        Box::new(
            chosen
                .into_iter()
                .enumerate()
                .filter(|(_, chosen)| *chosen)
                .map(|(place, _)| self.at(place as u64).to_vec()),
        )
    }

    fn has_integer_keys(&self) -> bool {
        false
    }

    fn key_bytes_mean(&self) -> u64 {
        self.bytes.div_ceil(self.capacity())
    }

    fn note(&self) -> String {
        format!(
            "{} of a file ({} repeated, {} left out)",
            counted(self.lines.len() as u64, "distinct key"),
            self.repeated,
            counted(self.blank, "blank line")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_keys() {
        let set = KeyFile::parse(b"pear\napple\n\nfig\napple\n\xff\x00\nlast".to_vec(), 1).unwrap();
        assert_eq!((set.capacity(), set.blank, set.repeated), (5, 1, 1));
        let expected: Vec<&[u8]> = vec![b"apple", b"fig", b"last", b"pear", b"\xff\x00"];
        assert!(set.sorted(5).eq(expected));
        super::super::tests::assert_is_a_dataset(&set, 5);
        super::super::tests::assert_is_a_dataset(&set, 3);
    }

    #[test]
    fn bad_files_are_refused_with_their_line() {
        assert!(KeyFile::parse(b"\n\n".to_vec(), 1).unwrap_err().contains("no key"));
        assert!(KeyFile::parse(Vec::new(), 1).unwrap_err().contains("no key"));
        let mut long = b"ok\n".to_vec();
        long.resize(3 + KEY_BYTES_MAX + 1, b'x');
        assert!(KeyFile::parse(long, 1).unwrap_err().contains("line 2"));
        let missing = KeyFile::read(Path::new("/nonexistent/keys"), 1).unwrap_err();
        assert!(missing.is_usage() && missing.to_string().contains("/nonexistent/keys"));
        assert!(KeyFile::read(Path::new("/dev/zero"), 1).unwrap_err().is_usage());
    }
}
