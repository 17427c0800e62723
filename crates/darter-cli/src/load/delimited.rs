//! CSV and TSV: fields between delimiters, in CSV quoted if necessary (RFC 4180).
//!
//! A missing quote must not absorb the lines after it, as it does in lenient readers. So the reader
//! first determines a record's extent, strictly: a quoted field may span lines, but its closing
//! quote must be followed by a delimiter or the end. If a record violates this, or is not closed
//! within [`RECORD_LINES_MAX`] lines, only its first line is bad; reading resumes with the second.
//! `csv-core` then splits the well-formed records. Every record has as many fields as the header,
//! so an unquoted comma in a value makes its line bad instead of truncating the value.

use super::lines::{Line, Lines};
use super::{Pair, Record, Records};
use crate::failure::Failure;
use crate::notation::Notation;
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use darter_fabric::counted;
use std::io::BufRead;

/// Maximum number of lines of a record.
const RECORD_LINES_MAX: usize = 1000;
/// Maximum number of bytes of a record.
const RECORD_BYTES_MAX: usize = super::lines::LINE_BYTES_MAX;

/// The columns with keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns<'a> {
    /// The columns with these names in the header.
    Named { key: &'a str, value: &'a str },
    /// The columns with these numbers, from 1; there is no header.
    Numbered { key: &'a str, value: &'a str },
    /// The first and the second of two columns; there is no header.
    Both,
}

/// The number of fields of every record. A record with another number has a delimiter too many or
/// too few, so a value may be truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// As many fields as the header.
    Header(usize),
    /// Key and value.
    Both,
    /// As many fields as the first record, once it is known.
    First(Option<usize>),
}

impl Width {
    /// Returns an error message if a record must not have this number of fields.
    fn refusal(&mut self, fields: usize) -> Option<String> {
        let (expected, who) = match *self {
            Self::Header(expected) => (expected, "the header has"),
            Self::Both => (2, "key and value are"),
            Self::First(Some(expected)) => (expected, "the first line has"),
            Self::First(None) => {
                *self = Self::First(Some(fields));
                return None;
            }
        };
        (fields != expected).then(|| format!("{}; {who} {expected}", counted(fields as u64, "field")))
    }
}

/// Reads pairs from delimited fields.
pub(super) struct Delimited<R> {
    lines: Lines<R>,
    delimiter: u8,
    quoting: bool,
    splitter: Reader,
    notation: Notation,
    /// Positions of the key and the value among the fields.
    key: usize,
    value: usize,
    width: Width,
    /// Whether a last line without a line end is bad, because its value may be truncated.
    refuses_open_end: bool,
}

/// The extent of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// It ends at the end of the bytes read so far.
    Whole,
    /// It continues, since a quoted field is open.
    Open,
    /// It is malformed: a closing quote is followed by other bytes.
    Malformed,
}

/// Tracks the quotes of a record from line to line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quotes {
    FieldStart,
    Unquoted,
    Quoted,
    /// After a quote in a quoted field: either its end or the first half of a doubled quote.
    MaybeClosed,
}

impl Quotes {
    /// Processes one more line, and returns the record's extent after it.
    fn follow(&mut self, line: &[u8], delimiter: u8) -> Extent {
        for &byte in line {
            *self = match (*self, byte) {
                (Self::Quoted, b'"') => Self::MaybeClosed,
                (Self::FieldStart | Self::MaybeClosed, b'"') | (Self::Quoted, _) => Self::Quoted,
                (_, byte) if byte == delimiter => Self::FieldStart,
                (Self::MaybeClosed, _) => return Extent::Malformed,
                (Self::FieldStart | Self::Unquoted, _) => Self::Unquoted,
            };
        }
        if *self == Self::Quoted { Extent::Open } else { Extent::Whole }
    }
}

/// A record's bytes, or why it is bad.
enum Extract {
    Record(u64, Vec<u8>),
    Bad(u64, String),
}

impl<R: BufRead> Delimited<R> {
    /// Reads comma-separated fields.
    pub(super) fn csv(lines: Lines<R>, columns: Columns<'_>, notation: Notation) -> Result<Self, Failure> {
        Self::new(lines, b',', columns, notation)
    }

    /// Reads tab-separated fields.
    pub(super) fn tsv(lines: Lines<R>, columns: Columns<'_>, notation: Notation) -> Result<Self, Failure> {
        Self::new(lines, b'\t', columns, notation)
    }

    fn new(
        lines: Lines<R>,
        delimiter: u8,
        columns: Columns<'_>,
        notation: Notation,
    ) -> Result<Self, Failure> {
        let quoting = delimiter == b',';
        let splitter = ReaderBuilder::new().delimiter(delimiter).quoting(quoting).build();
        let width = Width::First(None);
        let mut reader = Self {
            lines,
            delimiter,
            quoting,
            splitter,
            notation,
            key: 0,
            value: 1,
            width,
            refuses_open_end: false,
        };
        match columns {
            Columns::Named { key, value } => reader.read_header(key, value)?,
            Columns::Numbered { key, value } => {
                (reader.key, reader.value) = (numbered(key)?, numbered(value)?);
            }
            Columns::Both => reader.width = Width::Both,
        }
        Ok(reader)
    }

    /// Makes a last line without a line end bad, unless a quote ends its last field: the file may
    /// have been cut there.
    pub(super) fn refusing_open_end(self, refuses: bool) -> Self {
        Self { refuses_open_end: refuses, ..self }
    }

    /// Reads the header, and finds the columns of two names in it.
    fn read_header(&mut self, key: &str, value: &str) -> Result<(), Failure> {
        let header = match self.extract()? {
            None => {
                return Err(Failure::usage(
                    "the file is empty: the line with the names of the columns is missing",
                ));
            }
            Some(Extract::Bad(line, why)) => {
                return Err(Failure::usage(format_args!("line {line}, the header: {why}")));
            }
            Some(Extract::Record(_, bytes)) => bytes,
        };
        let names = self.split(&header);
        let position = |wanted: &str| {
            let mut found = (0..names.len()).filter(|&at| names[at] == wanted.as_bytes());
            match (found.next(), found.next()) {
                (Some(at), None) => Ok(at),
                (Some(_), Some(_)) => Err(Failure::usage(format_args!(
                    "the header has more than one column `{wanted}`; choose another with --key or --value"
                ))),
                (None, _) => {
                    let names: Vec<String> = names.iter().map(|name| Notation::Escaped.write(name)).collect();
                    Err(Failure::usage(format_args!(
                        "no column `{wanted}`; the columns are: {}. Choose with --key and --value, or give --no-header",
                        names.join(", ")
                    )))
                }
            }
        };
        (self.key, self.value) = (position(key)?, position(value)?);
        self.width = Width::Header(names.len());
        Ok(())
    }

    /// Returns the bytes of the next record that is not blank.
    fn extract(&mut self) -> Result<Option<Extract>, Failure> {
        loop {
            let Some(Line { number, bytes, mut is_ended }) = self.lines.next()? else { return Ok(None) };
            let Some(mut record) = bytes else {
                return Ok(Some(Extract::Bad(number, "line too long".to_owned())));
            };
            if record.is_empty() {
                continue;
            }
            if !self.quoting {
                return Ok(Some(self.extracted(number, record, is_ended)));
            }
            let mut quotes = Quotes::FieldStart;
            let mut extent = quotes.follow(&record, self.delimiter);
            let mut further = Vec::new();
            while extent == Extent::Open
                && further.len() < RECORD_LINES_MAX
                && record.len() < RECORD_BYTES_MAX
            {
                let Some(line) = self.lines.next()? else { break };
                extent = match &line.bytes {
                    Some(bytes) => {
                        record.push(b'\n');
                        record.extend_from_slice(bytes);
                        quotes.follow(bytes, self.delimiter)
                    }
                    None => Extent::Malformed,
                };
                is_ended = line.is_ended;
                further.push(line);
            }
            if extent == Extent::Whole {
                let is_closed = is_ended || quotes == Quotes::MaybeClosed;
                return Ok(Some(self.extracted(number, record, is_closed)));
            }
            let why = if further.is_empty() && extent == Extent::Malformed {
                "a quoted field is followed by something other than a delimiter"
            } else {
                "missing closing quote"
            };
            self.lines.put_back(further);
            return Ok(Some(Extract::Bad(number, why.to_owned())));
        }
    }

    /// Returns a well-formed record, unless the file may have been cut within it.
    fn extracted(&self, line: u64, record: Vec<u8>, is_closed: bool) -> Extract {
        if is_closed || !self.refuses_open_end {
            return Extract::Record(line, record);
        }
        let why = "the last line has no line end, so the file may have been cut in it";
        Extract::Bad(line, why.to_owned())
    }

    /// Returns the fields of a well-formed record.
    fn split(&mut self, record: &[u8]) -> Vec<Vec<u8>> {
        // A field is never longer than the record, and their number is at most its bytes plus one.
        let mut text = vec![0; record.len() + 1];
        let mut ends = vec![0; record.split(|&byte| byte == self.delimiter).count() + 1];
        self.splitter.reset();
        let (mut taken, mut written, mut ended) = (0, 0, 0);
        loop {
            let (outcome, read, wrote, ends_found) =
                self.splitter.read_record(&record[taken..], &mut text[written..], &mut ends[ended..]);
            taken += read;
            written += wrote;
            ended += ends_found;
            // At the end of the record `csv-core` requests more input; no more input means the end.
            if outcome != ReadRecordResult::InputEmpty {
                break;
            }
        }
        let mut from = 0;
        ends[..ended].iter().map(|&end| text[std::mem::replace(&mut from, end)..end].to_vec()).collect()
    }

    fn pair(&mut self, line: u64, record: &[u8]) -> Result<Pair, String> {
        let fields = self.split(record);
        if let Some(why) = self.width.refusal(fields.len()) {
            return Err(why);
        }
        let field = |at: usize, what: &str| {
            let found = fields
                .get(at)
                .ok_or_else(|| format!("{} fields; the {what} is field {}", fields.len(), at + 1))?;
            self.notation.read(found).map_err(|why| format!("{what}: {why}"))
        };
        Ok(Pair { line, key: field(self.key, "key")?, value: field(self.value, "value")? })
    }
}

impl<R: BufRead + Send> Records for Delimited<R> {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        Ok(match self.extract()? {
            None => None,
            Some(Extract::Bad(line, why)) => Some(Record::Bad(line, why)),
            Some(Extract::Record(line, bytes)) => Some(match self.pair(line, &bytes) {
                Ok(pair) => Record::Pair(pair),
                Err(why) => Record::Bad(line, why),
            }),
        })
    }

    fn is_cut(&self) -> bool {
        self.lines.is_cut()
    }
}

/// Returns the index of a column, given as a number from 1.
fn numbered(text: &str) -> Result<usize, Failure> {
    match text.parse::<usize>() {
        Ok(number) if number > 0 => Ok(number - 1),
        _ => Err(Failure::usage(format_args!(
            "column `{text}`: without a header, a column must be a number from 1"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Returns keys and values with their lines; for bad lines, the number and a question mark.
    fn read(mut reader: impl Records) -> Vec<(u64, String)> {
        let mut found = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            found.push(match record {
                Record::Bad(line, _) => (line, "?".to_owned()),
                Record::Pair(Pair { line, key, value }) => {
                    (line, format!("{}={}", key.escape_ascii(), value.escape_ascii()))
                }
            });
        }
        found
    }

    fn csv(text: &str) -> Vec<(u64, String)> {
        read(Delimited::csv(Lines::new(Cursor::new(text)), Columns::Both, Notation::Raw).unwrap())
    }

    fn lines(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
        expected.iter().map(|(line, text)| (*line, (*text).to_owned())).collect()
    }

    #[test]
    fn quotes_delimiters_and_line_ends_inside_fields() {
        let text = "a,1\n\"b,c\",\"say \"\"hi\"\"\"\r\n\"over\nlines\",x\n,\n\"\",\"\"\nin\"side,2\n";
        let expected = [
            (1, "a=1"),
            (2, "b,c=say \\\"hi\\\""),
            (3, "over\\nlines=x"),
            (5, "="),
            (6, "="),
            (7, "in\\\"side=2"),
        ];
        assert_eq!(csv(text), lines(&expected));
    }

    #[test]
    fn a_bad_line_does_not_lose_the_others() {
        let text = "a,1\n\"b,2\nc,\"3\"\nd,4\nonly\n\"e\"x,5\n\nf,6\n\"g,7";
        let expected =
            [(1, "a=1"), (2, "?"), (3, "c=3"), (4, "d=4"), (5, "?"), (6, "?"), (8, "f=6"), (9, "?")];
        assert_eq!(csv(text), lines(&expected));
    }

    #[test]
    fn an_open_quote_fails_after_the_maximum_number_of_lines() {
        let mut text = "\"open,1\n".to_owned();
        text.push_str(&"k,v\n".repeat(RECORD_LINES_MAX * 2));
        let found = csv(&text);
        assert_eq!(found[0], (1, "?".to_owned()));
        assert_eq!(found.len(), 1 + RECORD_LINES_MAX * 2);
    }

    fn named(text: &'static str, key: &str, value: &str) -> Result<Delimited<Cursor<&'static str>>, Failure> {
        Delimited::csv(Lines::new(Cursor::new(text)), Columns::Named { key, value }, Notation::Raw)
    }

    #[test]
    fn columns_are_found_by_name() {
        let text = "id\tname\tnote\n1\tAda\t\"x\n2\tGrace\t\n";
        let columns = Columns::Named { key: "name", value: "id" };
        let reader = Delimited::tsv(Lines::new(Cursor::new(text)), columns, Notation::Raw).unwrap();
        assert_eq!(read(reader), lines(&[(2, "Ada=1"), (3, "Grace=2")]));
        for (text, says) in
            [("id,na\u{1b}me\n", "id, na\\x1bme"), ("", "empty"), ("key,id,key\n", "more than one")]
        {
            let refused = named(text, "key", "id");
            assert!(matches!(refused, Err(Failure::Usage(why)) if why.contains(says)), "{text}");
        }
    }

    #[test]
    fn another_number_of_fields_is_bad() {
        let text = "key,value\na,1\nx,hello, world\nb\nc,\"hello, world\"\n";
        let expected = [(2, "a=1"), (3, "?"), (4, "?"), (5, "c=hello, world")];
        assert_eq!(read(named(text, "key", "value").unwrap()), lines(&expected));
        // Without a header there are two fields or, if columns are chosen, as many as in the first
        // line.
        assert_eq!(csv("x,hello, world\na,1\n"), lines(&[(1, "?"), (2, "a=1")]));
        let columns = Columns::Numbered { key: "3", value: "1" };
        let text = "1,-,a\n2,b\n3,-,c\n4,-,d,e\n";
        let reader = Delimited::csv(Lines::new(Cursor::new(text)), columns, Notation::Raw).unwrap();
        assert_eq!(read(reader), lines(&[(1, "a=1"), (2, "?"), (3, "c=3"), (4, "?")]));
    }

    #[test]
    fn a_last_line_that_may_be_cut_is_bad_on_request() {
        for (text, is_closed) in
            [("a,1\nb,2", false), ("a,1\nb,\"2\"", true), ("a,1\nb,\"2\n\"", true), ("a,1\nb,", false)]
        {
            let reader =
                || Delimited::csv(Lines::new(Cursor::new(text)), Columns::Both, Notation::Raw).unwrap();
            assert_eq!(read(reader()).iter().filter(|(_, pair)| pair == "?").count(), 0, "{text}");
            let bad = read(reader().refusing_open_end(true)).iter().filter(|(_, pair)| pair == "?").count();
            assert_eq!(bad, usize::from(!is_closed), "{text}");
        }
    }

    #[test]
    fn notations_are_read_and_their_mistakes_reported() {
        let text = "00ff,61\n0,62\nxx,63\n";
        let reader = Delimited::csv(Lines::new(Cursor::new(text)), Columns::Both, Notation::Hex).unwrap();
        assert_eq!(read(reader), lines(&[(1, "\\x00\\xff=a"), (2, "?"), (3, "?")]));
    }
}
