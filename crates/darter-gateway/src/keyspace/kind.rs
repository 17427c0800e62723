//! The types of keys, with the codes that heads have.

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A string.
    String = 0,
    /// Fields with values, in the head or in a generation.
    Hash = 1,
    /// Members with scores, in the head or in a generation.
    SortedSet = 2,
    /// Members, in the head or in a generation.
    Set = 3,
    /// Elements in an order, in the head or in chunks of a generation.
    List = 4,
    /// Entries with ids, in the head and in chunks of a generation.
    Stream = 5,
    /// A hash whose fields may expire (`timed.rs`).
    TimedHash = 6,
}

const KINDS: [Kind; 7] =
    [Kind::String, Kind::Hash, Kind::SortedSet, Kind::Set, Kind::List, Kind::Stream, Kind::TimedHash];

impl Kind {
    /// Returns the name of the type, as in replies of `TYPE`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash | Self::TimedHash => "hash",
            Self::SortedSet => "zset",
            Self::Set => "set",
            Self::List => "list",
            Self::Stream => "stream",
        }
    }

    /// Returns the type that clients see.
    pub(crate) fn seen(self) -> Self {
        if self == Self::TimedHash { Self::Hash } else { self }
    }

    /// Returns whether a name is the name of the type.
    pub(crate) fn is_named(self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.name().as_bytes())
    }

    /// Returns whether a key of this type exists as long as its head does. The head of another type may
    /// be there without elements.
    pub(super) fn lasts(self) -> bool {
        matches!(self, Self::String | Self::List | Self::Stream)
    }

    pub(super) fn of(code: u8) -> Option<Self> {
        KINDS.into_iter().find(|kind| *kind as u8 == code)
    }
}
