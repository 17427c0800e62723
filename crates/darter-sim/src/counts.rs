//! What a simulation counts.

/// What has happened in a simulation so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounts {
    /// Verbs executed whole.
    pub verbs: u64,
    /// Batches posted.
    pub batches: u64,
    /// Long verbs that executed in pieces.
    pub torn: u64,
}
