//! The division of a page's pairs: cut at edges, as evenly as the smallest number of parts allows.
//!
//! The plan depends only on the pairs and the page's edges, so that all helpers of a rebuild make
//! the same one.

use super::nibble::EdgeRange;
use std::ops::Range;

/// The result of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// NONE: no pairs.
    None,
    /// A page.
    Page,
    /// A node under its only edge, because a page cannot hold its pairs.
    Node,
}

impl Kind {
    /// The result of a part with this many pairs; a part of several edges has at most `records_max`.
    pub(super) fn of(pairs: usize, records_max: usize) -> Self {
        match pairs {
            0 => Self::None,
            pairs if pairs > records_max => Self::Node,
            _ => Self::Page,
        }
    }
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kind: Kind,
    /// The part's edges.
    pub(super) edges: EdgeRange,
    /// The part's pairs.
    pub(super) pairs: Range<usize>,
}

/// Parts of a page for the edges `all`. `edges` has the edge of each pair, in key order.
pub(super) fn plan(edges: &[u8], all: EdgeRange, records_max: usize) -> Vec<Part> {
    let parts = edges.len().div_ceil(records_max).max(1);
    let target = edges.len().div_ceil(parts);
    let mut plan = Cuts { parts: Vec::new(), lo: all.lo, begin: 0 };
    let mut at = 0;
    while at < edges.len() {
        let edge = edges[at];
        let end = at + edges[at..].iter().take_while(|&&other| other == edge).count();
        let (open, more) = (at - plan.begin, end - at);
        if more > records_max {
            plan.cut(edge.checked_sub(1), at);
            plan.parts.push(Part { kind: Kind::Node, edges: EdgeRange::one(edge), pairs: at..end });
            (plan.lo, plan.begin) = (edge + 1, end);
        } else if open + more > records_max || open > 0 && 2 * open + more > 2 * target {
            plan.cut(edge.checked_sub(1), at);
        }
        at = end;
    }
    plan.cut(Some(all.hi), edges.len());
    plan.parts
}

struct Cuts {
    parts: Vec<Part>,
    /// The first edge that is in no part yet.
    lo: u8,
    /// The first pair that is in no part yet.
    begin: usize,
}

impl Cuts {
    /// Makes a part of the edges up to `hi` and the pairs up to `end`.
    fn cut(&mut self, hi: Option<u8>, end: usize) {
        let Some(hi) = hi.filter(|&hi| hi >= self.lo) else { return };
        let kind = if self.begin == end { Kind::None } else { Kind::Page };
        let edges = EdgeRange { lo: self.lo, hi };
        self.parts.push(Part { kind, edges, pairs: self.begin..end });
        (self.lo, self.begin) = (hi + 1, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_hold_all_pairs_and_all_edges(
            mut edges in proptest::collection::vec(3_u8..=12, 0..90),
            records_max in 1_usize..64,
        ) {
            edges.sort_unstable();
            let (lo, hi) = (2, 14);
            let parts = plan(&edges, EdgeRange { lo, hi }, records_max);
            prop_assert_eq!((parts[0].edges.lo, parts[0].pairs.start), (lo, 0));
            let end = parts.last().map(|part| (part.edges.hi, part.pairs.end));
            prop_assert_eq!(end, Some((hi, edges.len())));
            for (part, next) in parts.iter().zip(&parts[1..]) {
                prop_assert_eq!((part.edges.hi + 1, part.pairs.end), (next.edges.lo, next.pairs.start));
            }
            for part in &parts {
                prop_assert!(edges[part.pairs.clone()].iter().all(|&edge| part.edges.contains(edge)));
                let expected = match part.pairs.len() {
                    0 => Kind::None,
                    pairs if pairs > records_max => Kind::Node,
                    _ => Kind::Page,
                };
                prop_assert_eq!(part.kind, expected);
                prop_assert!(part.kind != Kind::Node || part.edges.lo == part.edges.hi);
            }
        }
    }

    #[test]
    fn two_parts_are_about_equal() {
        let edges: Vec<u8> = (0..80).map(|at| at / 5).collect();
        let parts = plan(&edges, EdgeRange::ALL, 64);
        assert_eq!(parts.iter().map(|part| part.pairs.len()).collect::<Vec<_>>(), [40, 40]);
    }
}
