//! JSON Lines: one object per line, with a field for the key and one for the value.
//!
//! A string denotes its characters, in UTF-8 or in the selected notation. A number, a boolean, an
//! array or an object denotes its JSON text exactly as in the file: a number of thirty digits keeps
//! them. A line is bad if the field is `null`, or if it occurs twice.

use super::lines::{Line, Lines};
use super::{Pair, Record, Records};
use crate::failure::Failure;
use crate::notation::Notation;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::io::BufRead;

/// The fields of an object, as in the file.
#[derive(Default)]
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Fields::default();
                while let Some(field) = map.next_entry()? {
                    fields.0.push(field);
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Object)
    }
}

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
        let object: Fields<'_> =
            serde_json::from_slice(bytes).map_err(|error| format!("not a JSON object: {error}"))?;
        let field = |name: &str| {
            let mut found = object.0.iter().filter(|(field, _)| field == name).map(|(_, value)| value.get());
            match (found.next(), found.next()) {
                (None, _) => Err(format!("no field `{name}`")),
                (Some(_), Some(_)) => Err(format!("more than one field `{name}`")),
                (Some("null"), None) => Err(format!("field `{name}` is null")),
                (Some(text), None) if text.starts_with('"') => {
                    let text: String = serde_json::from_str(text).map_err(|error| error.to_string())?;
                    self.notation.read(text.as_bytes()).map_err(|why| format!("field `{name}`: {why}"))
                }
                (Some(text), None) => Ok(text.as_bytes().to_vec()),
            }
        };
        Ok(Pair { line, key: field(&self.key)?, value: field(&self.value)? })
    }
}

impl<R: BufRead + Send> Records for JsonLines<R> {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        loop {
            let Some(Line { number, bytes, .. }) = self.lines.next()? else { return Ok(None) };
            let Some(bytes) = bytes else {
                return Ok(Some(Record::Bad(number, "line too long".to_owned())));
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

    fn is_cut(&self) -> bool {
        self.lines.is_cut()
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
{"k": "e", "v": null}
{"k": "f", "v": 1, "v": 2}
{"k": "g", "v": 123456789012345678901234567890.10}
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
        let expected = [
            (2, "a=grün\n"),
            (3, r#"17={"x": [1, null]}"#),
            (4, "?"),
            (5, "?"),
            (6, "?"),
            (7, "d="),
            (8, "?"),
            (9, "?"),
            (10, "g=123456789012345678901234567890.10"),
        ];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }
}
