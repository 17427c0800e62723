//! The check: a walk of everything reachable from the root words that verifies every invariant of
//! the format.
//!
//! In the tree: identity words agree with the keys below, buckets fill in order, an edge has one
//! slot, in its own bucket, leaves hold the key that their path spells, and no object is reached
//! twice. In the express skip table: the directory names each segment for exactly the entries of
//! its local depth, and entries name reachable nodes under the hash at which they are stored.
//!
//! Other clients may work at the same time. The walk stays pinned, so objects that it finds cannot
//! be reused, but it may report an entry as stale that is only waiting for its scrub. Such findings
//! are remarks, not violations.

use super::Dart;
use super::est::scrub::segments;
use super::est::table::{DESCRIPTOR_BYTES, Table};
use super::est::{BUCKET_SLOTS, Entry};
use super::node::{self, Content, NodeRef, Slot};
use super::operation::Operation;
use super::prefix_hash::identity_depth;
use super::retired_log::LogWrites;
use super::stats;
use crate::radix::path::{Path, PathStep};
use crate::radix::slot::{END, FANOUT};
use crate::radix::tally::Tally;
use crate::{CheckReport, EstStats, Result};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::Client;
use std::collections::HashMap;

/// Maximum depth in any sound tree; limits the walk in a damaged pool whose pointers form a cycle.
const DEPTH_MAX: usize = crate::KEY_BYTES_MAX + 1;

/// A walk in progress.
struct Inspection {
    report: CheckReport,
    tally: Tally,
    /// Identity words of the nodes reached, for checking the express entries.
    identities: HashMap<GlobalAddr, u64>,
    path: Path<NodeRef>,
}

impl<F: Fabric> Dart<F> {
    /// Walks and verifies the whole index.
    pub(super) async fn check_all(&self, client: &mut Client<F>) -> Result<CheckReport> {
        let mut operation = Operation::pin(&self.shared, client, OpKind::Maintain).await?;
        self.shared.refresh(&mut operation.client).await?;
        let mut walk = Inspection {
            report: CheckReport::default(),
            tally: stats::tally(),
            identities: HashMap::new(),
            path: Path::new(self.shared.keys, u64::MAX),
        };
        let root = operation.read_root().await?;
        operation.inspect_node(&mut walk, root).await?;
        while let Some(child) = walk.path.next_child() {
            operation.inspect_node(&mut walk, child).await?;
        }
        let mut est = EstStats::default();
        for table in operation.live_tables(&LogWrites::new()).await?.0 {
            est = operation.inspect_table(&mut walk, &table).await?;
        }
        walk.report.stats = stats::finish(walk.tally, est);
        Ok(walk.report)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Reads one node, verifies it and its leaves, and adds it to the path.
    async fn inspect_node(&mut self, walk: &mut Inspection, node: NodeRef) -> Result<()> {
        if node.depth > DEPTH_MAX || !walk.report.reach(node.addr, node.ty.bytes(), "inner node") {
            return Ok(());
        }
        let words = match self.read_node(node).await {
            Ok(words) => words,
            Err(error) => {
                return walk.report.unreadable(format!("{} at {}", node.ty.name(), node.addr), error);
            }
        };
        let identity = words[0];
        verify_slots(walk, node, &words);
        let live = node::children_in_order(node.ty, &words);
        walk.tally.note_node(node.ty.name(), node.ty.bytes(), live.len());
        walk.identities.insert(node.addr, identity);
        if walk.path.levels() > 0 && live.len() < 2 && !is_chain(&live) {
            walk.report.remarks.push(format!(
                "{} at {}: live children: {}; left by a client that died, or by many deletes at a time; the \
                 next delete near it collapses it",
                node.ty.name(),
                node.addr,
                live.len()
            ));
        }
        let inner = live.iter().filter_map(|slot| match slot.content() {
            Content::Node { addr, ty, skip } => {
                let depth = node.depth + 1 + usize::from(skip);
                Some((slot.edge().unwrap_or(0), NodeRef { addr, ty, depth }))
            }
            _ => None,
        });
        let step = PathStep { addr: node.addr, name: node.ty.name(), depth: node.depth, identity };
        walk.path.enter(step, inner);
        let Inspection { report, tally, path, .. } = walk;
        path.visit_leaves(&mut self.client, (report, tally), &live, true).await
    }

    /// Verifies a table's directory, segments and entries, and counts them.
    async fn inspect_table(&mut self, walk: &mut Inspection, table: &Table) -> Result<EstStats> {
        walk.report.reach(table.descriptor, DESCRIPTOR_BYTES, "express descriptor");
        walk.report.reach(table.directory_addr, 8 << table.bits, "express directory");
        let mut counts = EstStats {
            prefix_list: table.list.bytes(),
            directory_entries: table.directory_len() as u64,
            bytes: DESCRIPTOR_BYTES + (8 << table.bits),
            ..EstStats::default()
        };
        let mut stale = 0_u64;
        let named = segments(&mut self.client, table).await?;
        for index in (0..table.directory_len()).filter(|&index| is_left_behind(table, index)) {
            walk.report.violation(format!(
                "express directory: entry {index} names {}, which has been split twice since",
                table.cached(index).segment()
            ));
        }
        for entry in named {
            if entry.local_depth() > table.bits {
                walk.report.violation(format!(
                    "express segment {}: local depth {}",
                    entry.segment(),
                    entry.local_depth()
                ));
                continue;
            }
            if !walk.report.reach(entry.segment(), table.segment.bytes(), "express segment") {
                continue;
            }
            stale += self.inspect_segment(walk, table, entry.segment(), &mut counts).await?;
        }
        walk.report.stale_hints += stale;
        if stale > 0 {
            walk.report.remarks.push(format!(
                "{stale} express entries name nodes that are no longer in the tree; they are checked before use, \
                 and scrubbed before the nodes' memory is freed"
            ));
        }
        Ok(counts)
    }

    /// Verifies a segment's entries and counts them. Returns the number of entries that name nodes
    /// that are no longer in the tree.
    async fn inspect_segment(
        &mut self,
        walk: &mut Inspection,
        table: &Table,
        segment: GlobalAddr,
        counts: &mut EstStats,
    ) -> Result<u64> {
        counts.segments += 1;
        counts.slots += table.segment.words() as u64;
        counts.bytes += table.segment.bytes();
        let mut stale = 0;
        for (at, word) in self.client.read(segment, table.segment.words()).await?.into_iter().enumerate() {
            let entry = Entry::from_word(word).unsealed();
            if entry.is_empty() {
                continue;
            }
            counts.entries += 1;
            let Some(&identity) = walk.identities.get(&entry.addr()) else {
                stale += 1;
                continue;
            };
            if entry.delta() != 0 {
                continue;
            }
            let (hash, bucket) = (self.shared.keys.express_of(identity), at / BUCKET_SLOTS);
            // If a split was begun and abandoned, the sealed entries are those that it has yet to
            // divide.
            let is_found = Entry::from_word(word).is_sealed()
                || table.bucket_addr(hash) == segment.plus((bucket * BUCKET_SLOTS * 8) as u64);
            if !entry.matches(hash) || table.segment.bucket_of(hash) != bucket || !is_found {
                walk.report.violation(format!(
                    "express entry for {} (depth {}): not where its prefix belongs",
                    entry.addr(),
                    identity_depth(identity)
                ));
            }
        }
        Ok(stale)
    }
}

/// Whether a directory entry, as it was just read, is two splits behind another one that covers it.
/// A client that splits a segment must first update all entries that still name the segment's
/// predecessor.
fn is_left_behind(table: &Table, index: usize) -> bool {
    let mine = table.cached(index).local_depth();
    (0..=table.bits).any(|depth| {
        let first = index & ((1 << depth) - 1);
        let other = table.cached(first).local_depth().min(table.bits);
        other > mine + 1 && first & ((1 << other) - 1) == index & ((1 << other) - 1)
    })
}

/// A single inner child may be valid: as a link of a chain over bytes that one edge cannot skip.
/// Part of such a chain stays when a later key diverges from it halfway.
fn is_chain(live: &[Slot]) -> bool {
    matches!(live, [only] if matches!(only.content(), Content::Node { .. }))
}

fn verify_slots(walk: &mut Inspection, node: NodeRef, words: &[u64]) {
    let width = node.ty.bucket_words();
    let name = node.ty.name();
    let mut seen = [false; FANOUT];
    let mut sealed = 0;
    if identity_depth(words[0]) != node.depth {
        let depth = identity_depth(words[0]);
        walk.report.violation(format!(
            "{name} at {}: identity says depth {depth}, its pointer {}",
            node.addr, node.depth
        ));
    }
    for (bucket, bucket_words) in words.chunks(width).enumerate() {
        if bucket_words[0] != words[0] {
            walk.report
                .violation(format!("{name} at {}: buckets 0 and {bucket} differ in identity", node.addr));
        }
        let mut ended = false;
        for (at, &word) in bucket_words.iter().enumerate().skip(1) {
            let slot = Slot::from_word(word);
            sealed += u64::from(slot.is_sealed());
            let Some(edge) = slot.edge() else {
                ended = true;
                continue;
            };
            if slot.content() == Content::Invalid {
                walk.report.violation(format!("{name} at {}: slot {word:#x} has an unknown type", node.addr));
                continue;
            }
            let direct = node.ty.direct_word(edge);
            if node.ty.bucket_of(edge) != bucket || direct.is_some_and(|want| want != at) {
                walk.report.violation(format!("{name} at {}: edge {edge} in bucket {bucket}", node.addr));
            }
            if ended && direct.is_none() {
                walk.report.violation(format!(
                    "{name} at {}: a slot after an empty one in bucket {bucket}",
                    node.addr
                ));
            }
            if std::mem::replace(&mut seen[usize::from(edge.min(END))], true) {
                walk.report.violation(format!("{name} at {}: edge {edge} has two slots", node.addr));
            }
        }
    }
    if sealed > 0 {
        walk.report.remarks.push(format!(
            "{name} at {}: {sealed} slots sealed by a replacement under way; the next writer finishes it",
            node.addr
        ));
    }
}
