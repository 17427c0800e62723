//! Choosing the prefix list: the paper's greedy algorithm (section 3.1, "Runtime Adjustment") on
//! the summary of one walk.
//!
//! The round trips that a list saves for a key depend only on the depths of the inner nodes on the
//! key's path, and many keys share them. So one walk counts keys and sampled accesses per *shape*
//! (set of depths), and the greedy rounds run on the shapes, not on the tree: add the length that
//! saves the most round trips, given those already added. Stop when the next one saves less than
//! one in two hundred, when the nodes that it would enter exceed the budget, or at eight lengths.
//!
//! Each length costs a search one verb, since all are looked up at once. If the verb rate of a NIC
//! is the bottleneck, lengths that save little cost more than they save. So a verb has a price in
//! round trips.

use super::prefix_list::{DELTA_MAX, LIST_MAX, PathDepths, PrefixList};
use std::collections::BTreeMap;

/// Longest length a list can hold.
const LENGTH_MAX: usize = 255;
/// A further length must save at least this fraction of the remaining round trips.
const GAIN_MIN: f64 = 0.005;
/// Total weight of the keys that were never sampled, if any were sampled.
const PRIOR: f64 = 0.1;

/// Keys that share a path shape.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    keys: f64,
    accesses: f64,
}

/// The results of a walk.
#[derive(Debug)]
pub struct Summary {
    shapes: BTreeMap<PathDepths, Weight>,
    /// `entered[L]` is the number of nodes that a list with length L enters.
    entered: Vec<u64>,
    /// Number of inner nodes.
    pub nodes: u64,
    /// Bytes of inner nodes.
    pub node_bytes: u64,
}

impl Default for Summary {
    fn default() -> Self {
        Self { shapes: BTreeMap::new(), entered: vec![0; LENGTH_MAX + 1], nodes: 0, node_bytes: 0 }
    }
}

impl Summary {
    /// Counts a node that covers the lengths above `above` up to `depth`.
    pub fn note_node(&mut self, above: usize, depth: usize, bytes: u64) {
        self.nodes += 1;
        self.node_bytes += bytes;
        let first = (above + 1).max(depth.saturating_sub(DELTA_MAX));
        for length in first..=depth.min(LENGTH_MAX) {
            self.entered[length] += 1;
        }
    }

    /// Counts `keys` leaves on a path, with the accesses sampled in them.
    pub fn note_keys(&mut self, path: PathDepths, keys: f64, accesses: f64) {
        let weight = self.shapes.entry(path).or_default();
        weight.keys += keys;
        weight.accesses += accesses;
    }

    /// Number of entries that a table for this list would hold.
    pub fn entries(&self, list: PrefixList) -> u64 {
        list.lengths().into_iter().map(|length| self.entered[length]).sum()
    }

    /// The list that saves the most round trips with at most `budget` entries, where a verb costs
    /// `verb_price` round trips.
    pub fn choose(&self, budget: u64, verb_price: f64) -> PrefixList {
        let shapes = self.weighted();
        let cost_of = |lengths: &[u8]| cost_of(&shapes, lengths, verb_price);
        let mut chosen: Vec<u8> = Vec::new();
        let mut cost = cost_of(&chosen);
        let mut spent = 0;
        while chosen.len() < LIST_MAX {
            let best = (1..=LENGTH_MAX as u8)
                .filter(|&length| {
                    let entered = self.entered[usize::from(length)];
                    !chosen.contains(&length) && entered > 0 && spent + entered <= budget
                })
                .map(|length| (cost_of(&with(&chosen, length)), length))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((next, length)) = best else { break };
            if cost - next < cost * GAIN_MIN {
                break;
            }
            chosen = with(&chosen, length);
            spent += self.entered[usize::from(length)];
            cost = next;
        }
        prune(cost_of, &mut chosen);
        PrefixList::new(&chosen)
    }

    /// Shapes with their weights, which sum to 1.
    fn weighted(&self) -> Vec<(PathDepths, f64)> {
        let keys: f64 = self.shapes.values().map(|weight| weight.keys).sum();
        let accesses: f64 = self.shapes.values().map(|weight| weight.accesses).sum();
        if keys == 0.0 {
            return Vec::new();
        }
        let prior = if accesses > 0.0 { PRIOR } else { 1.0 };
        let mut shapes: Vec<(PathDepths, f64)> = self
            .shapes
            .iter()
            .map(|(&path, weight)| {
                let sampled = if accesses > 0.0 { weight.accesses / accesses } else { 0.0 };
                (path, prior * weight.keys / keys + (1.0 - prior) * sampled)
            })
            .collect();
        // The order of a map differs from run to run, and with it the sums' last bits.
        shapes.sort_unstable_by_key(|&(path, _)| path);
        shapes
    }
}

/// Drops lengths that later ones made useless.
fn prune(cost_of: impl Fn(&[u8]) -> f64, chosen: &mut Vec<u8>) {
    let mut at = 0;
    while at < chosen.len() {
        let mut without = chosen.clone();
        without.remove(at);
        let (with, without_cost) = (cost_of(chosen), cost_of(&without));
        if without_cost - with < with * GAIN_MIN {
            *chosen = without;
        } else {
            at += 1;
        }
    }
}

fn with(lengths: &[u8], length: u8) -> Vec<u8> {
    let mut all = lengths.to_vec();
    all.push(length);
    all
}

/// Average cost of a search under a list, in round trips: one for the table, one per node read, one
/// for the leaf. Its verbs are these without the first, plus one for each length.
fn cost_of(shapes: &[(PathDepths, f64)], lengths: &[u8], verb_price: f64) -> f64 {
    let nodes: f64 = shapes.iter().map(|&(path, weight)| weight * f64::from(nodes_read(path, lengths))).sum();
    2.0 + nodes + verb_price * (1.0 + nodes + lengths.len() as f64)
}

/// Inner nodes that a search reads on this path, starting at the deepest node that some length
/// leads to.
fn nodes_read(path: PathDepths, lengths: &[u8]) -> u32 {
    let all: u32 = path.iter().map(|word| word.count_ones()).sum();
    lengths
        .iter()
        .filter_map(|&length| {
            let depth = first_at_or_above(path, usize::from(length))?;
            (depth - usize::from(length) <= DELTA_MAX).then(|| count_from(path, depth))
        })
        .min()
        .unwrap_or(all)
        .min(all)
}

/// The least depth in the set that is at least `depth`.
fn first_at_or_above(path: PathDepths, depth: usize) -> Option<usize> {
    (depth / 64..4).find_map(|word| {
        let bits = if word == depth / 64 { path[word] >> (depth % 64) << (depth % 64) } else { path[word] };
        (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
    })
}

/// Number of depths in the set that are at least `depth`.
fn count_from(path: PathDepths, depth: usize) -> u32 {
    let at = depth / 64;
    (path[at] >> (depth % 64)).count_ones() + path[at + 1..].iter().map(|word| word.count_ones()).sum::<u32>()
}

#[cfg(test)]
mod tests {
    use super::super::prefix_list::with_depth;
    use super::*;

    fn path(depths: &[usize]) -> PathDepths {
        depths.iter().fold(PathDepths::default(), |path, &depth| with_depth(path, depth))
    }

    fn summary(shapes: &[(&[usize], f64, f64)], entered: &[(usize, u64)]) -> Summary {
        let mut summary = Summary::default();
        for &(depths, keys, accesses) in shapes {
            summary.note_keys(path(depths), keys, accesses);
        }
        for &(length, count) in entered {
            summary.entered[length] = count;
        }
        summary
    }

    #[test]
    fn reading_begins_at_the_deepest_node_a_length_leads_to() {
        let p = path(&[0, 1, 3, 70, 200]);
        assert_eq!(nodes_read(p, &[]), 5);
        assert_eq!(nodes_read(p, &[1]), 4);
        assert_eq!(nodes_read(p, &[2]), 3);
        assert_eq!(nodes_read(p, &[4]), 5, "70 lies too deep below 4");
        assert_eq!(nodes_read(p, &[60, 2]), 2);
        assert_eq!(nodes_read(p, &[200]), 1);
    }

    /// The shapes of 10 M uniform random keys: most under depth 3, the rest under depth 2.
    #[test]
    fn random_keys_get_lengths_two_and_three() {
        let s = summary(
            &[(&[0, 1, 2, 3], 70.0, 0.0), (&[0, 1, 2], 30.0, 0.0)],
            &[(1, 128), (2, 32_768), (3, 2_800_000)],
        );
        assert_eq!(s.choose(10_000_000, 0.0).lengths()[..], [2, 3]);
        assert_eq!(s.choose(1_000_000, 0.0).lengths()[..], [2], "the budget forbids 3");
    }

    #[test]
    fn a_length_that_saves_less_than_its_verb_costs_is_left_out() {
        let s =
            summary(&[(&[0, 1, 2, 3], 90.0, 0.0), (&[0, 1, 2], 10.0, 0.0)], &[(2, 32_768), (3, 2_800_000)]);
        assert_eq!(s.choose(10_000_000, 0.0).lengths()[..], [2, 3]);
        assert_eq!(s.choose(10_000_000, 0.5).lengths()[..], [3]);
    }

    #[test]
    fn accesses_outweigh_keys() {
        let s = summary(&[(&[0, 5, 9], 99.0, 0.0), (&[0, 30, 31, 32], 1.0, 500.0)], &[(9, 50), (32, 50)]);
        assert_eq!(s.choose(60, 0.0).lengths()[..], [32]);
    }
}
