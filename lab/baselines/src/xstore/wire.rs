//! Words of requests and replies.
//!
//! A request consists of the words of its procedure's arguments. A string of bytes is *plain*, a
//! length and its bytes, or *in a blob* that the caller has written into the pool, whose leaf image
//! has an empty key and the bytes as its value. A reply's first word is the outcome of the call.

use darter_fabric::{GlobalAddr, ProcedureError};
use darter_index::{IndexError, Result};
use darter_pool::PoolError;

/// The procedures' numbers.
pub(crate) const GET: u64 = 0x5853_0001;
pub(crate) const PUT: u64 = 0x5853_0002;
pub(crate) const DELETE: u64 = 0x5853_0003;
pub(crate) const SCAN: u64 = 0x5853_0004;
pub(crate) const MAINTAIN: u64 = 0x5853_0005;
pub(crate) const PUBLISH: u64 = 0x5853_0006;
pub(crate) const PING: u64 = 0x5853_0007;
/// A call to a range other than the index's first: the address of its descriptor, the number of the
/// procedure, and the procedure's request.
pub(crate) const OF_RANGE: u64 = 0x5853_0008;

/// Status after the pairs in the reply to a SCAN: nothing follows.
pub(crate) const SCAN_OVER: u64 = 0;
/// More pairs may follow.
pub(crate) const SCAN_MORE: u64 = 1;
/// The server's keys end at the bound that follows the pairs.
pub(crate) const SCAN_ENDED: u64 = 2;

/// Words of plain strings in a request, above which long strings become blobs.
pub(crate) const REQUEST_WORDS: usize = 2048;
/// Words of a reply, above which the rest takes another request.
pub(crate) const ANSWER_WORDS: usize = 4096;
/// Words of a plain string in a reply; a longer value is passed as the name of its blob.
pub(crate) const PLAIN_WORDS: usize = 512;

/// Encodes a sub-model of a generation, which the reply to a GET should include; 0 for none.
pub(crate) fn submodel_word(submodel: Option<(u64, u32)>) -> u64 {
    submodel.map_or(0, |(generation, submodel)| generation << 32 | (u64::from(submodel) + 1))
}

/// Returns the generation and the sub-model of such a word.
pub(crate) fn submodel_of(word: u64) -> Option<(u64, u64)> {
    let submodel = u64::from(word as u32).checked_sub(1)?;
    Some((word >> 32, submodel))
}

/// The code for a malformed request.
const MALFORMED: u64 = 1;
/// The code of a server that accepts no more calls.
const STOPPING: u64 = 2;

const IN_BLOB: u64 = 1 << 63;
const ABSENT: u64 = u64::MAX;

/// The error of a procedure for a malformed request.
pub(crate) fn malformed() -> ProcedureError {
    ProcedureError::new(MALFORMED, "malformed request; use the same release at both ends")
}

/// The error of a server that accepts no more calls.
pub(crate) fn stopping() -> ProcedureError {
    ProcedureError::new(STOPPING, "the server is stopping; nothing was done; call it again when it is back")
}

/// Bytes in a request or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text<'a> {
    Plain(&'a [u8]),
    /// In a blob of this size class.
    Blob(GlobalAddr, u8),
}

/// Adds a string.
pub(crate) fn write(words: &mut Vec<u64>, text: Option<Text<'_>>) {
    match text {
        None => words.push(ABSENT),
        Some(Text::Blob(addr, class)) => words.extend([IN_BLOB | u64::from(class), addr.bits()]),
        Some(Text::Plain(bytes)) => {
            words.push(bytes.len() as u64);
            words.extend(bytes.chunks(8).map(|bytes| {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(word)
            }));
        }
    }
}

/// Takes words from the front of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u64]);

/// A string taken from a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Absent,
    Plain(Vec<u8>),
    Blob(GlobalAddr, u8),
}

impl Reader<'_> {
    pub(crate) fn word(&mut self) -> Option<u64> {
        let (&word, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(word)
    }

    pub(crate) fn text(&mut self) -> Option<Taken> {
        let first = self.word()?;
        if first == ABSENT {
            return Some(Taken::Absent);
        }
        if first & IN_BLOB != 0 {
            return Some(Taken::Blob(GlobalAddr::from_bits(self.word()?), first as u8 & 0x7f));
        }
        let length = usize::try_from(first).ok()?;
        let (plain, rest) = self.0.split_at_checked(length.div_ceil(8))?;
        let mut bytes: Vec<u8> = plain.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length);
        self.0 = rest;
        Some(Taken::Plain(bytes))
    }
}

/// The first word of a successful reply.
const DONE: u64 = 0;
const OUT_OF_SPACE: u64 = 1;
const CORRUPT: u64 = 2;
const NO_PROGRESS: u64 = 3;
const NOT_EMPTY: u64 = 4;
const NO_INDEX: u64 = 5;
const MOVED: u64 = 6;

/// Encodes the reply to a call: its words, or an error that the caller should return as its own.
pub(crate) fn answer(outcome: Result<Vec<u64>>) -> darter_fabric::Answer {
    match outcome {
        Ok(mut words) => {
            words.insert(0, DONE);
            Ok(words)
        }
        Err(IndexError::Pool(PoolError::OutOfSpace { needed, node })) => {
            Ok(vec![OUT_OF_SPACE, needed, u64::from(node)])
        }
        Err(IndexError::Corrupt { addr, .. }) => Ok(vec![CORRUPT, addr.bits()]),
        Err(IndexError::NoProgress { addr, attempts }) => {
            Ok(vec![NO_PROGRESS, addr.bits(), u64::from(attempts)])
        }
        Err(IndexError::NotEmpty) => Ok(vec![NOT_EMPTY]),
        Err(IndexError::NoIndex { found, .. }) => Ok(vec![NO_INDEX, found]),
        Err(IndexError::Moved { addr }) => Ok(vec![MOVED, addr.bits()]),
        Err(error) => Err(ProcedureError::new(ProcedureError::FABRIC, error.to_string())),
    }
}

/// Returns the words of a reply after the first, or the error that it encodes.
pub(crate) fn outcome(words: &[u64]) -> Result<Reader<'_>> {
    let mut reader = Reader(words);
    let kind = reader.word().ok_or_else(strange)?;
    if kind == DONE {
        return Ok(reader);
    }
    let (first, second) = (reader.word().unwrap_or(0), reader.word().unwrap_or(0));
    Err(match kind {
        OUT_OF_SPACE => PoolError::OutOfSpace { needed: first, node: second as u8 }.into(),
        CORRUPT => IndexError::corrupt(
            GlobalAddr::from_bits(first),
            "the server found words that are not a leaf or a pair",
        ),
        NO_PROGRESS => IndexError::NoProgress { addr: GlobalAddr::from_bits(first), attempts: second as u32 },
        NOT_EMPTY => IndexError::NotEmpty,
        NO_INDEX => IndexError::NoIndex { expected: super::NAME, found: first },
        MOVED => IndexError::Moved { addr: GlobalAddr::from_bits(first) },
        _ => strange(),
    })
}

/// The error of a caller that cannot decode a reply.
pub(crate) fn strange() -> IndexError {
    IndexError::corrupt(GlobalAddr::NULL, "malformed reply of the server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_round_trip() {
        let mut words = Vec::new();
        let blob = Text::Blob(GlobalAddr::new(3, 4096), 100);
        for text in [None, Some(Text::Plain(b"")), Some(Text::Plain(b"123456789")), Some(blob)] {
            write(&mut words, text);
        }
        let mut reader = Reader(&words);
        let taken: Vec<_> = std::iter::from_fn(|| reader.text()).collect();
        let blob = Taken::Blob(GlobalAddr::new(3, 4096), 100);
        assert_eq!(taken, [Taken::Absent, Taken::Plain(vec![]), Taken::Plain(b"123456789".to_vec()), blob]);
        for cut in 0..words.len() {
            let mut reader = Reader(&words[..cut]);
            while reader.text().is_some() {}
        }
        assert_eq!(Reader(&[u64::MAX >> 1]).text(), None);
    }

    #[test]
    fn errors_reach_the_caller() {
        let full = IndexError::Pool(PoolError::OutOfSpace { needed: 9, node: 2 });
        let words = answer(Err(full)).unwrap();
        let error = outcome(&words).unwrap_err();
        assert!(matches!(error, IndexError::Pool(PoolError::OutOfSpace { needed: 9, node: 2 })));
        assert!(matches!(outcome(&answer(Err(IndexError::NotEmpty)).unwrap()), Err(IndexError::NotEmpty)));
        assert!(outcome(&[]).is_err() && outcome(&[99]).is_err());
        assert_eq!(outcome(&answer(Ok(vec![5])).unwrap()).unwrap().0, [5]);
    }
}
