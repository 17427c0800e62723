//! JSON lines: an object a line, of which one field is the key and one the value.
//!
//! A string stands for its characters, in UTF-8 or in the notation chosen. Any other value stands
//! for its JSON text.

use super::delimited::unreadable;
use super::lines::{Line, Lines};
use super::{Pair, Record, Records};
use crate::failure::Failure;
use crate::notation::Notation;
use serde_json::{Map, Value};
use std::io::BufRead;

/// Reads pairs from JSON objects.
pub(super) struct JsonLines<R> {
    lines: Lines<R>,
    key: String,
    value: String,
    notation: Notation,
}

impl<R: BufRead> JsonLines<R> {
    pub(super) fn new(lines: Lines<R>, key: &str, value: &str, notation: Notation) -> Self {
        Self { lines, key: key.to_owned(), value: value.to_owned(), notation }
    }

    fn pair(&self, line: u64, bytes: &[u8]) -> Result<Pair, String> {
        let object: Map<String, Value> =
            serde_json::from_slice(bytes).map_err(|error| format!("no JSON object: {error}"))?;
        let field = |name: &str| match object.get(name) {
            None => Err(format!("no field `{name}`")),
            Some(Value::String(text)) => {
                self.notation.read(text.as_bytes()).map_err(|why| format!("field `{name}`: {why}"))
            }
            Some(other) => Ok(other.to_string().into_bytes()),
        };
        Ok(Pair { line, key: field(&self.key)?, value: field(&self.value)? })
    }
}

impl<R: BufRead> Records for JsonLines<R> {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        loop {
            let Some(Line { number, bytes }) = self.lines.next().map_err(unreadable)? else {
                return Ok(None);
            };
            let Some(bytes) = bytes else {
                return Ok(Some(Record::Bad(number, "too long a line".to_owned())));
            };
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            return Ok(Some(match self.pair(number, &bytes) {
                Ok(pair) => Record::Pair(pair),
                Err(why) => Record::Bad(number, why),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn fields_of_any_kind_are_read_and_bad_lines_reported() {
        let text = r#"
{"k": "a", "v": "grün\n", "w": 1}
{"k": 17, "v": {"x": [1, null]}}
["k", "v"]
{"k": "b"}
{"k": "c", "v": 1
{"k": "d", "v": ""}
"#;
        let mut reader = JsonLines::new(Lines::new(Cursor::new(text)), "k", "v", Notation::Raw);
        let mut found = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            found.push(match record {
                Record::Bad(line, _) => (line, "?".to_owned()),
                Record::Pair(pair) => {
                    let text =
                        [pair.key, pair.value].map(|bytes| String::from_utf8(bytes).unwrap()).join("=");
                    (pair.line, text)
                }
            });
        }
        let expected =
            [(2, "a=grün\n"), (3, r#"17={"x":[1,null]}"#), (4, "?"), (5, "?"), (6, "?"), (7, "d=")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }
}
