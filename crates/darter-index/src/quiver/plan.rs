//! What becomes of a page's pairs: cut at edges, as evenly as few parts allow.
//!
//! The plan depends on the pairs and the page's edges alone, so that all helpers of a rebuild make
//! the same one.

use std::ops::Range;

/// What a part becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// NONE: no pairs.
    None,
    /// A page.
    Page,
    /// A node under its only edge, because a page cannot hold its pairs.
    Node,
}

/// A part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kind: Kind,
    /// Its first edge.
    pub(super) lo: u8,
    /// Its last edge.
    pub(super) hi: u8,
    /// Its pairs.
    pub(super) pairs: Range<usize>,
}

/// Parts for the edges `lo` to `hi`. `edges` has the edge of each pair, in key order.
pub(super) fn plan(edges: &[u8], lo: u8, hi: u8, records_max: usize) -> Vec<Part> {
    let parts = edges.len().div_ceil(records_max).max(1);
    let target = edges.len().div_ceil(parts);
    let mut plan = Cuts { parts: Vec::new(), lo, begin: 0 };
    let mut at = 0;
    while at < edges.len() {
        let edge = edges[at];
        let end = at + edges[at..].iter().take_while(|&&other| other == edge).count();
        let (open, more) = (at - plan.begin, end - at);
        if more > records_max {
            plan.cut(edge.checked_sub(1), at);
            plan.parts.push(Part { kind: Kind::Node, lo: edge, hi: edge, pairs: at..end });
            (plan.lo, plan.begin) = (edge + 1, end);
        } else if open + more > records_max || open > 0 && 2 * open + more > 2 * target {
            plan.cut(edge.checked_sub(1), at);
        }
        at = end;
    }
    plan.cut(Some(hi), edges.len());
    plan.parts
}

struct Cuts {
    parts: Vec<Part>,
    /// The first edge in no part yet.
    lo: u8,
    /// The first pair in no part yet.
    begin: usize,
}

impl Cuts {
    /// Makes a part of the edges up to `hi` and the pairs up to `end`.
    fn cut(&mut self, hi: Option<u8>, end: usize) {
        let Some(hi) = hi.filter(|&hi| hi >= self.lo) else { return };
        let kind = if self.begin == end { Kind::None } else { Kind::Page };
        self.parts.push(Part { kind, lo: self.lo, hi, pairs: self.begin..end });
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
            let parts = plan(&edges, lo, hi, records_max);
            prop_assert_eq!((parts[0].lo, parts[0].pairs.start), (lo, 0));
            prop_assert_eq!(parts.last().map(|part| (part.hi, part.pairs.end)), Some((hi, edges.len())));
            for (part, next) in parts.iter().zip(&parts[1..]) {
                prop_assert_eq!((part.hi + 1, part.pairs.end), (next.lo, next.pairs.start));
            }
            for part in &parts {
                prop_assert!(edges[part.pairs.clone()].iter().all(|edge| (part.lo..=part.hi).contains(edge)));
                let expected = match part.pairs.len() {
                    0 => Kind::None,
                    pairs if pairs > records_max => Kind::Node,
                    _ => Kind::Page,
                };
                prop_assert_eq!(part.kind, expected);
                prop_assert!(part.kind != Kind::Node || part.lo == part.hi);
            }
        }
    }

    #[test]
    fn two_parts_are_about_equal() {
        let edges: Vec<u8> = (0..80).map(|at| at / 5).collect();
        let parts = plan(&edges, 0, 16, 64);
        assert_eq!(parts.iter().map(|part| part.pairs.len()).collect::<Vec<_>>(), [40, 40]);
    }
}
