//! The kinds of operation that costs are counted by.

/// A kind of operation, counted apart from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum OpKind {
    /// Point search.
    Get,
    /// A write that may create its key.
    Insert,
    /// A write to a key that must exist.
    Update,
    /// Removal of a key.
    Delete,
    /// Range or prefix scan, one chunk.
    Scan,
    /// Several searches that share their round trips.
    MultiGet,
    /// Bulk load.
    Load,
    /// Upkeep that no operation requested: epochs, reclamation, adjustment, checks.
    Maintain,
}

impl OpKind {
    /// How many kinds there are.
    pub const COUNT: usize = 8;
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Get,
        Self::Insert,
        Self::Update,
        Self::Delete,
        Self::Scan,
        Self::MultiGet,
        Self::Load,
        Self::Maintain,
    ];

    /// Returns the kind's name in tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Scan => "scan",
            Self::MultiGet => "multi_get",
            Self::Load => "load",
            Self::Maintain => "maintain",
        }
    }
}
