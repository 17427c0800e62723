//! Where a history can be cut: behind an operation that overlaps no other and after which it is
//! known what the key holds.
//!
//! Such an operation is the last of what came before in every order that time allows, and the first
//! of what comes after begins with what it left. So the two sides have nothing else to do with each
//! other.

use super::outside::Judged;
use std::ops::Range;

/// Operations that a segment has at least, where it is long enough: many short questions cost more
/// than few longer ones.
const COARSE: usize = 32;

/// The places where a history can be cut.
pub(super) struct Segments {
    /// Behind how many operations, in order; the last cut is the history's end.
    cuts: Vec<usize>,
}

impl Segments {
    /// Finds the cuts of operations that are in order of invocation.
    pub(super) fn new(operations: &[Judged]) -> Self {
        let mut cuts = Vec::new();
        // The latest return of all operations before.
        let mut latest = None;
        for (at, operation) in operations.iter().enumerate() {
            let is_after_all = latest.is_none_or(|latest| latest < operation.invoked);
            let next = operations.get(at + 1);
            let is_before_all = next.is_none_or(|next| operation.returned < next.invoked);
            if next.is_none() || is_after_all && is_before_all && operation.state_after().is_some() {
                cuts.push(at + 1);
            }
            latest = latest.max(Some(operation.returned));
        }
        Self { cuts }
    }

    /// Segments of a few dozen operations or more.
    pub(super) fn coarse(&self) -> Vec<Range<usize>> {
        let mut segments = Vec::new();
        let mut begin = 0;
        for &cut in &self.cuts {
            if cut - begin >= COARSE || Some(&cut) == self.cuts.last() {
                segments.push(begin..cut);
                begin = cut;
            }
        }
        segments
    }

    /// The shortest segments that a coarse one consists of.
    pub(super) fn fine(&self, coarse: &Range<usize>) -> Vec<Range<usize>> {
        let mut segments = Vec::new();
        let mut begin = coarse.start;
        let first = self.cuts.partition_point(|&cut| cut <= coarse.start);
        for &cut in self.cuts[first..].iter().take_while(|&&cut| cut <= coarse.end) {
            segments.push(begin..cut);
            begin = cut;
        }
        segments
    }
}
