//! The kinds of operation, for counting costs.

/// A kind of operation, counted separately.
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
    /// A transaction's commit: changes of several keys at once.
    Transact,
    /// Bulk load.
    Load,
    /// Maintenance that no operation requested: epochs, reclamation, adjustment, checks.
    Maintain,
}

impl OpKind {
    /// The number of kinds.
    pub const COUNT: usize = 9;
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Get,
        Self::Insert,
        Self::Update,
        Self::Delete,
        Self::Scan,
        Self::MultiGet,
        Self::Transact,
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
            Self::Transact => "transact",
            Self::Load => "load",
            Self::Maintain => "maintain",
        }
    }
}
