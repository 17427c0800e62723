//! The first and the last line of a file that `export` writes. `import` uses them to verify that
//! the file is complete and unchanged.
//!
//! A file in TSV:
//!
//! ```text
//! # darter export 1
//! key     value
//! pear    green
//! # end of darter export: pairs=1 sha256=9f3c…
//! ```
//!
//! In JSON Lines the first line is `{"darter_export":1}` and the last is
//! `{"darter_export_end":{"pairs":1,"sha256":"9f3c…"}}`. The number in the first line is the
//! version of the format. `export --all` writes `# darter export 1 all` or
//! `{"darter_export":1,"all":true}` instead, so that `import` never stores places of the index as
//! keys unless `--all` is given. The checksum is the SHA-256 of all lines before the last, each
//! with its line end LF: `head -n -1 FILE | sha256sum` prints it. In TSV no other line begins with
//! `#`, because `export` writes that first byte of a key as `\x23`. So tools that skip lines with
//! `#` read exactly the pairs.
//!
//! Exports of one format can be concatenated; each keeps its first and last line.

use crate::notation::Notation;
use darter_fabric::counted;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::io::{self, Write};

/// The line of a TSV file with the names of the columns.
pub(crate) const COLUMNS: &str = "key\tvalue";

/// How `export` writes pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    /// Key, tab and value, with the escapes \n \t \r \\ \xNN, after a line with the names of the
    /// columns.
    Tsv,
    /// One JSON object per line, with the same escapes in its strings.
    Jsonl,
}

impl ExportFormat {
    /// Returns the first line.
    fn first_line(self, extent: Extent) -> &'static str {
        match (self, extent) {
            (Self::Tsv, Extent::Keys) => "# darter export 1",
            (Self::Tsv, Extent::Places) => "# darter export 1 all",
            (Self::Jsonl, Extent::Keys) => r#"{"darter_export":1}"#,
            (Self::Jsonl, Extent::Places) => r#"{"darter_export":1,"all":true}"#,
        }
    }

    /// Returns the prefix of the first line, in all versions.
    fn first_line_prefix(self) -> &'static str {
        match self {
            Self::Tsv => "# darter export",
            Self::Jsonl => r#"{"darter_export":"#,
        }
    }

    /// Returns the prefix of the last line.
    fn last_line_prefix(self) -> &'static str {
        match self {
            Self::Tsv => "# end of darter export",
            Self::Jsonl => r#"{"darter_export_end""#,
        }
    }

    /// Returns whether a line is not a pair.
    fn is_apart(self, line: &[u8]) -> bool {
        match self {
            Self::Tsv => line.starts_with(b"#"),
            Self::Jsonl => line.starts_with(br#"{"darter_export"#),
        }
    }
}

/// The keys that an export holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Keys of programs, or of a table.
    Keys,
    /// All places of the index, as written by `export --all`.
    Places,
}

/// The count and the checksum of the lines of one export.
pub(crate) struct Sum {
    format: ExportFormat,
    extent: Extent,
    lines: u64,
    hash: Sha256,
}

impl Sum {
    fn new(format: ExportFormat, extent: Extent) -> Self {
        let mut sum = Self { format, extent, lines: 0, hash: Sha256::new() };
        sum.add(format.first_line(extent).as_bytes());
        sum
    }

    fn add(&mut self, line: &[u8]) {
        self.lines += 1;
        self.hash.update(line);
        self.hash.update(b"\n");
    }

    /// Returns the number of pairs in the lines.
    fn pairs(&self) -> u64 {
        let others = if self.format == ExportFormat::Tsv { 2 } else { 1 };
        self.lines.saturating_sub(others)
    }

    /// Fails if a line is not the last line of an export with these lines.
    fn compare(&self, line: &[u8]) -> Result<(), String> {
        if line == self.last_line().as_bytes() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(line);
        if !text.starts_with(self.format.last_line_prefix()) {
            return Err("this line is neither a pair nor the last line of an export".to_owned());
        }
        let is_digit = |c: char| c.is_ascii_digit();
        let claimed =
            text.find(is_digit).map(|at| text[at..].split(|c| !is_digit(c)).next().unwrap_or_default());
        match claimed.and_then(|digits| digits.parse().ok()) {
            Some(pairs) if pairs != self.pairs() => Err(format!(
                "the last line of the export counts {}, but {} precede it: lines are missing, or were added",
                counted(pairs, "pair"),
                self.pairs()
            )),
            _ => Err("the checksum in the last line does not match the export's lines: they were changed, or are in \
                      another order"
                .to_owned()),
        }
    }

    /// Returns the last line of an export with these lines.
    fn last_line(&self) -> String {
        let (pairs, sha256) = (self.pairs(), Notation::Hex.write(&self.hash.clone().finalize()));
        match self.format {
            ExportFormat::Tsv => {
                format!("{}: pairs={pairs} sha256={sha256}", self.format.last_line_prefix())
            }
            ExportFormat::Jsonl => {
                json!({ "darter_export_end": { "pairs": pairs, "sha256": sha256 } }).to_string()
            }
        }
    }
}

/// Writes an export.
pub(crate) struct ExportWriter<'a, W> {
    out: &'a mut W,
    sum: Sum,
}

impl<'a, W: Write> ExportWriter<'a, W> {
    /// Writes the lines before the first pair.
    pub(crate) fn new(out: &'a mut W, format: ExportFormat, extent: Extent) -> io::Result<Self> {
        let sum = Sum::new(format, extent);
        writeln!(out, "{}", format.first_line(extent))?;
        let mut writer = Self { out, sum };
        if format == ExportFormat::Tsv {
            writer.line(COLUMNS)?;
        }
        Ok(writer)
    }

    /// Returns the number of pairs written.
    pub(crate) fn pairs(&self) -> u64 {
        self.sum.pairs()
    }

    /// Writes a pair.
    pub(crate) fn pair(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let (key, value) = (Notation::Escaped.write(key), Notation::Escaped.write(value));
        match self.sum.format {
            ExportFormat::Tsv => match key.strip_prefix('#') {
                Some(rest) => self.line(&format!("\\x23{rest}\t{value}")),
                None => self.line(&format!("{key}\t{value}")),
            },
            ExportFormat::Jsonl => self.line(&json!({ "key": key, "value": value }).to_string()),
        }
    }

    /// Writes the last line, and returns the number of pairs written. An export without it counts
    /// as failed.
    pub(crate) fn finish(self) -> io::Result<u64> {
        writeln!(self.out, "{}", self.sum.last_line())?;
        Ok(self.sum.pairs())
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.sum.add(line.as_bytes());
        writeln!(self.out, "{line}")
    }
}

/// Checks the lines of a file while they are read.
#[derive(Default)]
pub(crate) enum EnvelopeReader {
    /// Before the first line.
    #[default]
    Start,
    /// The file does not begin as an export does: another program wrote it, or a version of darter
    /// whose exports had no first and last line.
    Foreign,
    /// In an export.
    Within { sum: Sum, is_first: bool },
    /// After the last line of an export.
    After(ExportFormat, Extent),
}

impl EnvelopeReader {
    /// Processes the next line, without its line end. Returns whether it is part of the contents.
    ///
    /// # Errors
    /// Fails if the line shows that the file is an export that is incomplete or was changed.
    pub(crate) fn take(&mut self, line: &[u8], is_ended: bool) -> Result<bool, String> {
        match self {
            Self::Start => self.take_first(line, is_ended),
            Self::Foreign => refuse_last_line(line).map(|()| true),
            Self::Within { .. } if !is_ended => Err("the file was cut in this line".to_owned()),
            Self::Within { sum, is_first } => {
                let format = sum.format;
                let awaits_columns = format == ExportFormat::Tsv && sum.lines == 1;
                if awaits_columns && line != COLUMNS.as_bytes() {
                    return Err(
                        "the second line of an export must be the names of the columns, `key` and `value`"
                            .to_owned(),
                    );
                }
                if !format.is_apart(line) {
                    sum.add(line);
                    return Ok(!awaits_columns || *is_first);
                }
                sum.compare(line)?;
                *self = Self::After(format, sum.extent);
                Ok(false)
            }
            &mut Self::After(format, extent) => {
                if line != format.first_line(extent).as_bytes() || !is_ended {
                    return Err(
                        "this line follows the last line of an export, but does not begin another export of its \
                                format"
                            .to_owned(),
                    );
                }
                *self = Self::Within { sum: Sum::new(format, extent), is_first: false };
                Ok(false)
            }
        }
    }

    fn take_first(&mut self, line: &[u8], is_ended: bool) -> Result<bool, String> {
        for format in [ExportFormat::Tsv, ExportFormat::Jsonl] {
            for extent in [Extent::Keys, Extent::Places] {
                let first = format.first_line(extent).as_bytes();
                if !is_ended && first.starts_with(line) && !line.is_empty() {
                    return Err("the file was cut in its first line".to_owned());
                }
                if line == first {
                    *self = Self::Within { sum: Sum::new(format, extent), is_first: true };
                    return Ok(false);
                }
            }
            if line.starts_with(format.first_line_prefix().as_bytes()) {
                let first = format.first_line(Extent::Keys);
                return Err(format!(
                    "the file begins like an export, but not with `{first}`: it was changed, or a newer version \
                     of darter wrote it"
                ));
            }
        }
        refuse_last_line(line)?;
        *self = Self::Foreign;
        Ok(true)
    }

    /// Fails if the file is incomplete.
    pub(crate) fn end(&self) -> Result<(), String> {
        match self {
            Self::Within { sum, .. } => Err(format!(
                "the file was cut: the last line of an export is missing; {} precede the cut",
                counted(sum.pairs(), "pair")
            )),
            Self::Start | Self::Foreign | Self::After(..) => Ok(()),
        }
    }

    /// Returns the kind of keys in the export; `None` if the file does not begin as an export does.
    pub(crate) fn extent(&self) -> Option<Extent> {
        match self {
            Self::Start | Self::Foreign => None,
            Self::Within { sum, .. } => Some(sum.extent),
            Self::After(_, extent) => Some(*extent),
        }
    }
}

/// Fails if a line is the last line of an export without a first line.
fn refuse_last_line(line: &[u8]) -> Result<(), String> {
    let is_last = |format: ExportFormat| line.starts_with(format.last_line_prefix().as_bytes());
    if is_last(ExportFormat::Tsv) || is_last(ExportFormat::Jsonl) {
        return Err("this line ends an export whose first line is missing or was changed".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(format: ExportFormat, pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = ExportWriter::new(&mut file, format, Extent::Keys).unwrap();
        for (key, value) in pairs {
            writer.pair(key, value).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), pairs.len() as u64);
        file
    }

    /// Returns the lines that are part of the contents.
    fn read(file: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let (mut reader, mut contents) = (EnvelopeReader::default(), Vec::new());
        for line in file.split_inclusive(|&byte| byte == b'\n') {
            let (text, is_ended) = line.strip_suffix(b"\n").map_or((line, false), |text| (text, true));
            if reader.take(text, is_ended)? {
                contents.push(text.to_vec());
            }
        }
        reader.end()?;
        Ok(contents)
    }

    const PAIRS: [(&[u8], &[u8]); 3] = [(b"#a", b"1"), (b"b", b"#2"), (b"c\n", b"")];

    #[test]
    fn an_export_has_the_documented_form() {
        let tsv = String::from_utf8(export(ExportFormat::Tsv, &PAIRS)).unwrap();
        let begins = "# darter export 1\nkey\tvalue\n\\x23a\t1\nb\t#2\nc\\n\t\n# end of darter export: pairs=3 sha256=";
        assert!(tsv.starts_with(begins), "{tsv}");
        let end = tsv.rfind("\n#").unwrap() + 1;
        let hash = Notation::Hex.write(&Sha256::digest(&tsv[..end]));
        assert!(tsv.ends_with(&format!("pairs=3 sha256={hash}\n")), "{tsv}");
        let empty = String::from_utf8(export(ExportFormat::Jsonl, &[])).unwrap();
        let ends = r#"{"darter_export_end":{"pairs":0,"sha256":""#;
        assert!(empty.starts_with("{\"darter_export\":1}\n") && empty.contains(ends), "{empty}");
    }

    #[test]
    fn whole_exports_one_after_another_are_read() {
        for format in [ExportFormat::Tsv, ExportFormat::Jsonl] {
            let (one, two) = (export(format, &PAIRS), export(format, &PAIRS[..1]));
            let columns = usize::from(format == ExportFormat::Tsv);
            assert_eq!(read(&one).unwrap().len(), 3 + columns);
            let both = read(&[&one[..], &two].concat()).unwrap();
            assert_eq!(both.len(), 4 + columns);
            assert_eq!(both[3 + columns], read(&two).unwrap()[columns]);
        }
        let mixed = [export(ExportFormat::Tsv, &PAIRS), export(ExportFormat::Jsonl, &PAIRS)].concat();
        assert!(read(&mixed).unwrap_err().contains("its format"));
    }

    #[test]
    fn changed_lines_and_lines_in_another_order_are_noticed() {
        for format in [ExportFormat::Tsv, ExportFormat::Jsonl] {
            let whole = export(format, &PAIRS);
            let lines: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
            for at in 0..lines.len() {
                let mut without = lines.clone();
                without.remove(at);
                let mut twice = lines.clone();
                twice.insert(at, lines[at]);
                for changed in [without, twice] {
                    assert!(read(&changed.concat()).is_err(), "line {at} of {format:?}");
                }
                for other in 0..at {
                    let mut swapped = lines.clone();
                    swapped.swap(at, other);
                    assert!(read(&swapped.concat()).is_err(), "lines {at} and {other} of {format:?}");
                }
            }
        }
    }
}
