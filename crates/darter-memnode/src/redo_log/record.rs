//! Records: one for each frame that changed memory, and one for each fact about sessions.
//!
//! ```text
//! record    0  checksum 4 | payload bytes 4
//!           8  position 8                     of the record's first byte in the log
//!          16  unsynced 4 | kind 4            bytes before it that were not known to be durable
//!          24  payload, padded with zeros to 8 bytes
//!
//! effects      as `darter_fabric::effects` puts them
//! entered      session 8
//! fenced       session 8
//! stopped      -
//! recovered    -
//! end          -
//! entry        as `darter_group` puts entries of a replica's log
//! ```
//!
//! All numbers are little-endian. The checksum (CRC-32) covers everything after it, including the
//! position: leftovers of an earlier use of the file, or a record at another place, are not records
//! here. *unsynced* distinguishes a torn tail from damage (`recovery.rs`).
//!
//! *end* is not part of the log: it is at the place of the next record, which overwrites it. It
//! states up to where the records before it are durable, so that damage to the newest of them is
//! not mistaken for a torn tail.

use darter_fabric::wire;

/// Bytes of a record's head.
pub(super) const HEAD_BYTES: usize = 24;
/// Maximum bytes of a payload: those of the largest message to a replica.
pub(super) const PAYLOAD_BYTES_MAX: usize = wire::MESSAGE_BYTES_MAX;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    /// Words written by a frame.
    Effects = 1,
    /// A session was admitted.
    Entered = 2,
    /// A session was fenced.
    Fenced = 3,
    /// The node stopped in order; no record follows before it is restarted.
    Stopped = 4,
    /// The node recovered from a crash: all sessions admitted before are fenced.
    Recovered = 5,
    /// No record follows yet.
    End = 6,
    /// An entry of the log of a replica.
    Entry = 7,
}

impl Kind {
    fn from_code(code: u32) -> Option<Self> {
        use Kind::{Effects, End, Entered, Entry, Fenced, Recovered, Stopped};
        [Effects, Entered, Fenced, Stopped, Recovered, End, Entry]
            .into_iter()
            .find(|kind| *kind as u32 == code)
    }
}

/// A record in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'b> {
    pub(super) kind: Kind,
    pub(super) position: u64,
    /// Everything before this position was durable when the record was made.
    pub(super) durable: u64,
    pub(super) payload: &'b [u8],
}

/// Returns the number of bytes of a record with a payload of this size.
pub(super) const fn record_bytes(payload: usize) -> usize {
    HEAD_BYTES + payload.next_multiple_of(8)
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Builds records at the end of a buffer.
#[derive(Debug)]
pub(super) struct Draft {
    at: usize,
}

impl Draft {
    /// Begins a record: bytes appended to the buffer are its payload.
    pub(super) fn begin(out: &mut Vec<u8>) -> Self {
        let at = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        Self { at }
    }

    /// Cancels a record without a payload. Returns whether there was none.
    pub(super) fn is_empty(&self, out: &[u8]) -> bool {
        out.len() == self.at + HEAD_BYTES
    }

    /// Cancels the record.
    pub(super) fn cancel(self, out: &mut Vec<u8>) {
        out.truncate(self.at);
    }

    /// Completes a record. Returns its bytes.
    pub(super) fn end(self, out: &mut Vec<u8>, kind: Kind, position: u64, durable: u64) -> u64 {
        let payload = out.len() - self.at - HEAD_BYTES;
        out.resize(self.at + record_bytes(payload), 0);
        let record = &mut out[self.at..];
        let unsynced = u32::try_from(position - durable).unwrap_or(u32::MAX);
        record[4..8].copy_from_slice(&(payload as u32).to_le_bytes());
        record[8..16].copy_from_slice(&position.to_le_bytes());
        record[16..20].copy_from_slice(&unsynced.to_le_bytes());
        record[20..24].copy_from_slice(&(kind as u32).to_le_bytes());
        let checksum = crc32fast::hash(&record[4..]);
        record[..4].copy_from_slice(&checksum.to_le_bytes());
        record.len() as u64
    }
}

/// Distance in bytes between copies of an end: one damaged sector does not affect two, or a copy
/// and the last record.
const ENDS_APART: usize = 512;
/// Number of copies of an end: swapping two sectors does not affect all of them.
const ENDS: usize = 3;
/// Number of bytes of all copies of an end.
pub(super) const ENDS_BYTES: usize = (ENDS - 1) * ENDS_APART + HEAD_BYTES;

/// Appends the copies of an end, which state up to where the records before this position are
/// durable.
pub(super) fn put_ends(out: &mut Vec<u8>, position: u64, durable: u64) {
    put_copies(out, position, |_| durable);
}

/// Appends the replacement of the ends once another segment follows: ends which state that the
/// record at this position is durable.
pub(super) fn put_followed(out: &mut Vec<u8>, position: u64) {
    put_copies(out, position, |at| at);
}

fn put_copies(out: &mut Vec<u8>, position: u64, durable: impl Fn(u64) -> u64) {
    let first = out.len();
    for copy in (0..ENDS).map(|number| number * ENDS_APART) {
        out.resize(first + copy, 0);
        let at = position + copy as u64;
        Draft::begin(out).end(out, Kind::End, at, durable(at));
    }
}

/// Returns the length in bytes of the record that begins here, according to its head alone; `None`
/// if the head is invalid.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < HEAD_BYTES {
        return None;
    }
    let payload = word32(bytes, 4) as usize;
    (payload <= PAYLOAD_BYTES_MAX).then(|| record_bytes(payload))
}

/// Returns the record that begins here, if it is complete and has this position.
pub(super) fn parse(bytes: &[u8], position: u64) -> Option<Record<'_>> {
    let record = bytes.get(..length(bytes)?)?;
    let is_here = word64(record, 8) == position;
    let is_whole = || crc32fast::hash(&record[4..]) == word32(record, 0);
    if !is_here || !is_whole() {
        return None;
    }
    let kind = Kind::from_code(word32(record, 20))?;
    let payload = &record[HEAD_BYTES..HEAD_BYTES + word32(record, 4) as usize];
    let unsynced = word32(record, 16);
    let durable = if unsynced == u32::MAX { 0 } else { position.saturating_sub(unsynced.into()) };
    Some(Record { kind, position, durable, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_fabric::effects::{effects, put_effect};

    fn some_record(out: &mut Vec<u8>, position: u64) -> u64 {
        let draft = Draft::begin(out);
        put_effect(out, 64, &[7; 24]);
        put_effect(out, (1 << 40) - 8, &[9; 8]);
        draft.end(out, Kind::Effects, position, position - 24)
    }

    #[test]
    fn a_record_comes_back_as_it_was_put() {
        let mut bytes = Vec::new();
        let length = some_record(&mut bytes, 4096);
        assert_eq!(length, bytes.len() as u64);
        let record = parse(&bytes, 4096).unwrap();
        assert_eq!((record.kind, record.durable), (Kind::Effects, 4072));
        let effects: Vec<_> = effects(record.payload).collect();
        assert_eq!(effects, [Some((64, &[7; 24][..])), Some(((1 << 40) - 8, &[9; 8][..]))]);
        assert_eq!(parse(&bytes, 4104), None, "another position");
    }

    #[test]
    fn every_cut_and_every_flip_is_noticed() {
        let mut bytes = Vec::new();
        some_record(&mut bytes, 4096);
        for keep in 0..bytes.len() {
            assert_eq!(parse(&bytes[..keep], 4096), None, "{keep}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&flipped, 4096), None, "{bit}");
        }
    }
}
