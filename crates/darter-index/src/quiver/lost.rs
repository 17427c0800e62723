//! The index around memory nodes that are lost: what the slots of a node lead to, and which keys are
//! out of reach behind a slot or a word (`docs/pool.md`, "Lost nodes").
//!
//! The keys below a slot have the prefix of its node and one of its edges, so that a slot alone shows
//! which keys are out of reach. The prefix is in the keys below the node: of a node on a compressed path,
//! a key must be found that can be read. If there is none, everything below that node is out of reach.
//!
//! A walk goes from the root to a key, like that of a drain ([`super::evacuate`]): a key is all that is
//! kept between two steps.

use super::content::LostLeaf;
use super::evacuate::is_behind;
use super::nibble::{EDGES, END, EdgeRange, common, edge, first_after, first_below};
use super::node::{self, Content, NodeAt};
use super::operation::Operation;
use super::page::{PageRef, Shape};
use crate::Result;
use crate::ordered::{Gap, LostNodes};
use darter_fabric::Fabric;
use darter_pool::size_class::class_bytes;
use std::collections::BTreeMap;

/// What a slot leads to.
pub(super) enum Place {
    /// A page that can be read: its shape and its words.
    Page(PageRef, Shape, Vec<u64>),
    /// Nothing that can be read. An object of these bytes is lost, unless the slot leads to a node below
    /// which no key can be found.
    Lost(Option<u64>),
}

/// The part of a node that a step of a walk visits.
pub(super) struct Around {
    /// The edges of each slot, in key order, up to that of `below`, and what it leads to. Slots without
    /// keys are left out.
    pub(super) places: Vec<(EdgeRange, Place)>,
    /// The child at which the walk continues, its edge, and its prefix.
    pub(super) below: Option<(NodeAt, u8, Vec<u8>)>,
}

/// The keys under some edges of the node whose prefix is the first `depth` nibbles of a key.
pub(super) fn range_of(key: &[u8], depth: usize, edges: EdgeRange, keys: Option<u64>) -> Gap {
    Gap { from: first_below(key, depth, edges.lo), until: first_after(key, depth, edges.hi), keys }
}

/// The keys of a page's lost leaves; the page is of a node whose prefix is the first `depth` nibbles of
/// `prefix`.
pub(super) fn gaps_of(prefix: &[u8], depth: usize, lost: &[LostLeaf]) -> Vec<Gap> {
    let mut known: Vec<_> = lost.iter().filter_map(|leaf| leaf.key.as_ref()).collect();
    known.sort();
    let mut unknown: BTreeMap<u8, u64> = BTreeMap::new();
    for leaf in lost.iter().filter(|leaf| leaf.key.is_none()) {
        *unknown.entry(leaf.edge).or_default() += 1;
    }
    let unknown = unknown.into_iter();
    let ranges = unknown.map(|(edge, keys)| range_of(prefix, depth, EdgeRange::one(edge), Some(keys)));
    known.into_iter().map(|key| Gap::of_key(key)).chain(ranges).collect()
}

impl<F: Fabric> Operation<'_, F> {
    /// Looks at the slots of a node from that of a key on. `prefix` begins with the node's prefix, and has
    /// no more bytes than that needs.
    pub(super) async fn look_around(
        &mut self,
        lost: LostNodes,
        from: &[u8],
        (node, words): (NodeAt, &[u64]),
        prefix: &[u8],
    ) -> Result<Around> {
        let first = if common(from, prefix) >= node.depth { edge(from, node.depth) } else { END };
        let slots = node::slots(words);
        let (mut places, mut pages, mut below) = (Vec::new(), Vec::new(), None);
        for lo in (0..EDGES as u8).filter(|&lo| node::edges_of(&slots, lo).hi >= first) {
            let edges = node::edges_of(&slots, lo);
            match slots[usize::from(lo)].content() {
                Content::Page { class, addr, .. } if lost.contains(addr.node()) => {
                    places.push((edges, Place::Lost(Some(class_bytes(class)))));
                }
                Content::Page { class, addr, .. } => pages.push((edges, PageRef { addr, class })),
                Content::Node { addr, .. } if lost.contains(addr.node()) => {
                    places.push((edges, Place::Lost(Some(node::NODE_BYTES))));
                }
                Content::Node { skip, addr } => {
                    let at = NodeAt { addr, depth: node.depth + 1 + skip };
                    if skip == 0 {
                        below = Some((at, lo, first_below(prefix, node.depth, lo)));
                    } else {
                        let (key, has_lost) = self.key_below_around(at, lost).await?;
                        if key.is_none() && has_lost {
                            places.push((edges, Place::Lost(None)));
                        }
                        let own = |key: Vec<u8>| key[..at.depth.div_ceil(2).min(key.len())].to_vec();
                        below = key.map(|key| (at, lo, own(key)));
                    }
                    below = below.filter(|(at, _, own)| !is_behind(from, own, at.depth));
                    if below.is_some() {
                        break;
                    }
                }
                _ => {}
            }
        }
        if !pages.is_empty() {
            let mut batch = self.client.batch();
            let reads: Vec<_> = pages.iter().map(|(_, page)| batch.read(page.addr, page.words())).collect();
            let done = self.client.submit(batch).await?;
            for ((edges, page), read) in pages.into_iter().zip(reads) {
                let (shape, words) = page.parse(done.words(read).to_vec())?;
                places.push((edges, Place::Page(page, shape, words)));
            }
            self.client.recycle(done);
        }
        places.sort_by_key(|(edges, _)| edges.lo);
        Ok(Around { places, below })
    }
}
