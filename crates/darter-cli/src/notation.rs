//! Notations of keys and values, which are any bytes, as text.
//!
//! Escaped text, the default: printable UTF-8 is written as it is, a backslash as `\\`, line feed,
//! tab and carriage return as `\n`, `\t` and `\r`, and any other byte as `\xNN`. Hexadecimal: two
//! digits per byte. Both restore the exact bytes.

use darter_fabric::counted;
use std::fmt::Write;

/// A notation of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Notation {
    /// Text with escapes.
    #[default]
    Escaped,
    /// Hexadecimal digits.
    Hex,
    /// The bytes themselves; only for reading files.
    Raw,
}

/// Returns a message with its control characters escaped, except line ends: they may come from a
/// file, and a terminal would execute them.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) || matches!(c, '\n' | '\t' | '\\') {
            shown.push(c);
        } else {
            shown.push_str(&write_escaped(c.encode_utf8(&mut [0; 4]).as_bytes()));
        }
    }
    shown
}

impl Notation {
    /// Returns the bytes that `text` denotes.
    pub(crate) fn read(self, text: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Raw => Ok(text.to_vec()),
            Self::Hex => read_hex(text),
            Self::Escaped => read_escaped(text),
        }
    }

    /// Returns the text for `bytes`. `Raw` has no text, so it uses escapes.
    pub(crate) fn write(self, bytes: &[u8]) -> String {
        if self == Self::Hex { write_hex(bytes) } else { write_escaped(bytes) }
    }
}

fn write_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn digit(text: u8) -> Option<u8> {
    char::from(text).to_digit(16).map(|digit| digit as u8)
}

fn read_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    if !text.len().is_multiple_of(2) {
        return Err(format!("{}; each byte needs two", counted(text.len() as u64, "hexadecimal digit")));
    }
    let byte = |(at, pair): (usize, &[u8])| match (digit(pair[0]), digit(pair[1])) {
        (Some(high), Some(low)) => Ok(high << 4 | low),
        _ => Err(format!("not two hexadecimal digits at position {}", at * 2 + 1)),
    };
    text.chunks_exact(2).enumerate().map(byte).collect()
}

/// Returns whether a character is printed as it is on a terminal and in a line of a file.
fn is_plain(c: char) -> bool {
    matches!(c, ' '..='~' if c != '\\') || (!c.is_ascii() && c.escape_debug().count() == 1)
}

fn write_escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escape = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let _ = write!(text, "\\x{byte:02x}");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                c if is_plain(c) => text.push(c),
                c => escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn read_escaped(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let (byte, used) = match &text[at..] {
            [b'\\', b'\\', ..] => (b'\\', 2),
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', b't', ..] => (b'\t', 2),
            [b'\\', b'r', ..] => (b'\r', 2),
            [b'\\', b'0', ..] => (0, 2),
            [b'\\', b'x', high, low, ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => return Err(format!("not two hexadecimal digits after `\\x` at position {}", at + 1)),
            },
            [b'\\', ..] => {
                return Err(format!(
                    "unknown escape at position {}; known escapes: \\\\ \\n \\t \\r \\0 \\xNN",
                    at + 1
                ));
            }
            [byte, ..] => (*byte, 1),
            [] => break,
        };
        bytes.push(byte);
        at += used;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_either_notation() {
        let mut samples: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        samples.push((0..=255).collect());
        samples.push("grün\\x41 \u{feff}\u{202e}é\u{301}💾".into());
        samples.push(b"\xf0\x9f\x92 cut short".to_vec());
        samples.push(Vec::new());
        for bytes in samples {
            for notation in [Notation::Escaped, Notation::Hex] {
                let text = notation.write(&bytes);
                assert!(!text.contains(['\n', '\t', '\r', '\0', '\u{202e}']));
                assert_eq!(notation.read(text.as_bytes()).unwrap(), bytes, "{text}");
            }
        }
    }

    #[test]
    fn printable_text_stands_for_itself() {
        assert_eq!(Notation::Escaped.write("a 'b' \"c\" grün 💾".as_bytes()), "a 'b' \"c\" grün 💾");
        assert_eq!(Notation::Escaped.write(b"a\\b\0\xff\n"), "a\\\\b\\x00\\xff\\n");
        assert_eq!(Notation::Hex.write(b"\0\xff"), "00ff");
    }

    #[test]
    fn messages_keep_their_lines_and_lose_their_controls() {
        assert_eq!(printable("a\\b\n\tgrün \u{1b}[31m\u{202e}"), "a\\b\n\tgrün \\x1b[31m\\xe2\\x80\\xae");
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        for text in ["\\", "ab\\q", "\\x", "\\x1", "\\xg0"] {
            assert!(Notation::Escaped.read(text.as_bytes()).unwrap_err().contains("position"), "{text}");
        }
        assert!(Notation::Hex.read(b"abc").unwrap_err().contains("needs two"));
        assert!(Notation::Hex.read(b"ab0g").unwrap_err().contains("position 3"));
    }
}
