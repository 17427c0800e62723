//! The corpus of hostile requests: the bytes that a new client sends, line by line, and the
//! complete response.
//!
//! ```text
//! # a remark
//! *1\r\n$4\r\nPING\r\n          bytes, escaped as in Rust
//! 100000 x *1\r\n              the same bytes, repeatedly
//! => +PONG\r\n                the response, cut if it is long
//! ```

use std::path::PathBuf;

/// Most characters of an outcome in a file.
const SHOWN: usize = 400;

/// A file of the corpus.
pub struct Case {
    pub path: PathBuf,
    text: String,
}

/// Returns all files, by name.
pub fn read() -> Vec<Case> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/to-gateway");
    let mut paths: Vec<PathBuf> = dir.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "{}", dir.display());
    paths.into_iter().map(|path| Case { text: std::fs::read_to_string(&path).unwrap(), path }).collect()
}

/// Formats an outcome as in the files.
pub fn shown(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    text.get(..SHOWN).map_or(text.clone(), |beginning| format!("{beginning}…"))
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escaped, behind) = rest.split_first().unwrap();
        rest = behind;
        bytes.push(match escaped {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'x' => {
                let byte = u8::from_str_radix(std::str::from_utf8(&rest[..2]).unwrap(), 16).unwrap();
                rest = &rest[2..];
                byte
            }
            other => other,
        });
    }
    bytes
}

impl Case {
    /// Returns the pieces that the client sends, with a pause after each.
    pub fn pieces(&self) -> Vec<Vec<u8>> {
        let lines = self
            .text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("=>"));
        let piece =
            |line: &str| match line.split_once(" x ").map(|(count, text)| (count.parse::<usize>(), text)) {
                Some((Ok(count), text)) => unescape(text).repeat(count),
                _ => unescape(line),
            };
        lines.map(piece).collect()
    }

    /// Returns the expected outcome.
    pub fn outcome(&self) -> &str {
        self.text.lines().find_map(|line| line.strip_prefix("=> ")).unwrap_or_default()
    }

    /// Writes another outcome to the file.
    pub fn keep(&self, outcome: &[u8]) {
        let kept: Vec<&str> = self.text.lines().filter(|line| !line.starts_with("=>")).collect();
        std::fs::write(&self.path, format!("{}\n=> {}\n", kept.join("\n"), shown(outcome))).unwrap();
    }
}
