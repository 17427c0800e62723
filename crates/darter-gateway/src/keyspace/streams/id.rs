//! The id of a stream's entry: a time in ms, and a number among the entries of that time.

use std::fmt;

/// An entry's id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

impl StreamId {
    /// Bytes of an id in an index key.
    pub(super) const BYTES: usize = 16;
    /// The least id, which no entry has.
    pub(crate) const ZERO: Self = Self { ms: 0, seq: 0 };
    /// The greatest id.
    pub(crate) const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// Returns the next id, if there is one.
    pub(crate) fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => self.ms.checked_add(1).map(|ms| Self { ms, seq: 0 }),
        }
    }

    /// Returns the id before this one, if there is one.
    pub(crate) fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => self.ms.checked_sub(1).map(|ms| Self { ms, seq: u64::MAX }),
        }
    }

    /// Returns the bytes, whose order is that of the ids.
    pub(super) fn bytes(self) -> [u8; Self::BYTES] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// Returns the id with these bytes.
    pub(super) fn of_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self { ms: (number >> 64) as u64, seq: number as u64 }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::StreamId;

    #[test]
    fn ids_are_ordered_by_their_bytes() {
        let max = u64::MAX;
        let ids = [(0, 0), (0, 1), (0, max), (1, 0), (255, 256), (256, 0), (max, 0), (max, max)]
            .map(|(ms, seq)| StreamId { ms, seq });
        assert!(ids.is_sorted() && ids.map(StreamId::bytes).is_sorted());
        assert_eq!(ids.map(|id| StreamId::of_bytes(id.bytes())), ids);
        assert_eq!(ids[2].next(), Some(ids[3]));
        assert_eq!(ids[3].previous(), Some(ids[2]));
        assert_eq!((StreamId::MAX.next(), StreamId::ZERO.previous()), (None, None));
        assert_eq!(ids[4].to_string(), "255-256");
    }
}
