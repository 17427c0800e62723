//! Counters of a simulation.

/// Counts of events in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounts {
    /// Verbs executed completely.
    pub verbs: u64,
    /// Batches posted.
    pub batches: u64,
    /// Long verbs that executed in pieces.
    pub torn: u64,
    /// Verbs posted to memory nodes that, as their process knew, had left the pool.
    pub to_retired: u64,
}
