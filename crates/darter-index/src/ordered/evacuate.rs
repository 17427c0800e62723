//! Moving what an index reaches to other memory nodes.

/// The result of one step of [`super::OrderedIndex::evacuate`] or [`super::OrderedIndex::level`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evacuated {
    /// The key from which the next step continues; `None` after the last step.
    pub next: Option<Vec<u8>>,
    /// Number of objects moved.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Why an index refuses.
pub(crate) const CANNOT_EVACUATE: &str = "this index cannot move its objects off a memory node; back the pool up, and \
     restore it into another pool with `--index quiver`";
