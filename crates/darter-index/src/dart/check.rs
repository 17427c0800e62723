//! The check: a walk of everything reachable from the root words that verifies every invariant of
//! the format.
//!
//! Of the tree: identity words agree with the keys below, buckets fill in order, an edge has one
//! slot and in its own bucket, leaves hold the key their path spells, no object is reached twice.
//! Of the express skip table: the directory names each segment for exactly the entries of its local
//! depth, and entries name reachable nodes under the hash they sit at.
//!
//! Other clients may be at work meanwhile: the walk stays pinned, so what it meets cannot be
//! reused, but it may then report an entry as stale that is only waiting for its scrub; such things
//! are remarks, not violations.

use super::Dart;
use super::est::scrub::segments;
use super::est::table::{DESCRIPTOR_BYTES, Table};
use super::est::{BUCKET_SLOTS, Entry};
use super::leaf;
use super::node::{self, Held, NodeRef, NodeType, Slot};
use super::prefix_hash::identity_depth;
use super::stats;
use crate::radix::path::{Path, Step};
use crate::radix::slot::{END, FANOUT};
use crate::radix::tally::Tally;
use crate::{CheckReport, EstStats, IndexError};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::size_class::class_bytes;
use darter_pool::{Client, Pinned};
use std::collections::HashMap;

/// Leaf bytes read in one round trip.
const LEAF_BATCH_BYTES: u64 = 1 << 20;
/// Nesting deeper than any sound tree's, so that damage cannot lead in circles.
const DEPTH_MAX: usize = crate::KEY_BYTES_MAX + 1;

/// A walk in progress.
struct Inspection {
    report: CheckReport,
    tally: Tally,
    /// Identity words of the nodes reached, for the express entries.
    identities: HashMap<GlobalAddr, (u64, NodeType)>,
    path: Path<NodeRef>,
}

impl<F: Fabric> Dart<F> {
    /// Walks and verifies everything.
    pub(super) async fn check_all(&self, client: &mut Client<F>) -> Result<CheckReport, IndexError> {
        let mut client = client.pin(OpKind::Maintain).await?;
        self.shared.refresh(&mut client).await?;
        let mut walk = Inspection {
            report: CheckReport::default(),
            tally: stats::tally(),
            identities: HashMap::new(),
            path: Path::new(self.shared.keys, u64::MAX),
        };
        let root = self.read_root(&mut client).await?;
        self.inspect_node(&mut client, &mut walk, root).await?;
        while let Some(child) = walk.path.next_child() {
            self.inspect_node(&mut client, &mut walk, child).await?;
        }
        let mut est = EstStats::default();
        for table in self.live_tables(&mut client).await?.0 {
            est = self.inspect_table(&mut client, &mut walk, &table).await?;
        }
        walk.report.stats = stats::finish(walk.tally, est);
        Ok(walk.report)
    }

    /// Reads one node, verifies it and its leaves, and puts it on the path.
    async fn inspect_node(
        &self,
        client: &mut Pinned<'_, F>,
        walk: &mut Inspection,
        node: NodeRef,
    ) -> Result<(), IndexError> {
        if node.depth > DEPTH_MAX || !walk.report.reach(node.addr, node.ty.bytes(), "inner node") {
            return Ok(());
        }
        let words = match self.read_node(client, node).await {
            Ok(words) => words,
            Err(error) => {
                let what = format_args!("{} at {}", node.ty.name(), node.addr);
                return walk.report.unreadable(what, error);
            }
        };
        let identity = words[0];
        verify_slots(walk, node, &words);
        let live = node::children_in_order(node.ty, &words);
        walk.tally.note_node(node.ty.name(), node.ty.bytes(), live.len());
        walk.identities.insert(node.addr, (identity, node.ty));
        if walk.path.levels() > 0 && live.len() < 2 && !is_chain(&live) {
            walk.report.remarks.push(format!(
                "{} at {}: {} live children; a dead client left it; the next delete near it collapses it",
                node.ty.name(),
                node.addr,
                live.len()
            ));
        }
        let mut children = Vec::new();
        let mut leaves = Vec::new();
        for slot in live {
            match slot.held() {
                Held::Node { addr, ty, skip } => {
                    let depth = node.depth + 1 + usize::from(skip);
                    children.push((slot.edge().unwrap_or(0), NodeRef { addr, ty, depth }));
                }
                _ => leaves.push(slot),
            }
        }
        let step = Step { addr: node.addr, name: node.ty.name(), depth: node.depth, identity };
        walk.path.enter(step, children.into_iter());
        self.inspect_leaves(client, walk, &leaves).await
    }

    async fn inspect_leaves(
        &self,
        client: &mut Pinned<'_, F>,
        walk: &mut Inspection,
        leaves: &[Slot],
    ) -> Result<(), IndexError> {
        let levels = walk.path.levels();
        let mut rest = leaves;
        while !rest.is_empty() {
            let mut batch = client.batch();
            let mut reads = Vec::new();
            let mut bytes = 0;
            while let [slot, tail @ ..] = rest {
                let Held::Leaf { addr, class } = slot.held() else {
                    // Of no known type: reported with its node.
                    rest = tail;
                    continue;
                };
                let words = leaf::class_words(class);
                if !reads.is_empty() && bytes + words as u64 * 8 > LEAF_BATCH_BYTES {
                    break;
                }
                bytes += words as u64 * 8;
                rest = tail;
                if walk.report.reach(addr, class_bytes(class), "leaf") {
                    walk.tally.note_leaf(class_bytes(class), levels);
                    reads.push((*slot, batch.read(addr, words)));
                }
            }
            match client.submit(batch).await {
                Ok(done) => {
                    for (slot, read) in reads {
                        walk.path.verify_leaf(&mut walk.report, slot.edge(), slot.addr(), done.words(read));
                    }
                    client.recycle(done);
                }
                Err(error) => walk.report.unreadable(format_args!("leaves below {}", rest.len()), error)?,
            }
        }
        Ok(())
    }

    /// Verifies a table's directory, segments and entries, and counts them.
    async fn inspect_table(
        &self,
        client: &mut Pinned<'_, F>,
        walk: &mut Inspection,
        table: &Table,
    ) -> Result<EstStats, IndexError> {
        walk.report.reach(table.descriptor, DESCRIPTOR_BYTES, "express descriptor");
        walk.report.reach(table.directory_addr, 8 << table.bits, "express directory");
        let mut counts = EstStats {
            prefix_list: table.list.lengths().iter().map(|&len| len as u8).collect(),
            directory_entries: table.directory_len() as u64,
            bytes: DESCRIPTOR_BYTES + (8 << table.bits),
            ..EstStats::default()
        };
        let mut stale = 0_u64;
        let named = segments(client, table).await?;
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
            counts.segments += 1;
            counts.slots += table.segment.words() as u64;
            counts.bytes += table.segment.bytes();
            let mut batch = client.batch();
            let read = batch.read(entry.segment(), table.segment.words());
            let done = client.submit(batch).await?;
            let segment = entry.segment();
            for (at, &word) in done.words(read).iter().enumerate() {
                let bucket = segment.plus((at / BUCKET_SLOTS * BUCKET_SLOTS * 8) as u64);
                let is_sealed = Entry::from_word(word).is_sealed();
                let entry = Entry::from_word(word).unsealed();
                if entry.is_empty() {
                    continue;
                }
                counts.entries += 1;
                match walk.identities.get(&entry.addr()).copied() {
                    None => stale += 1,
                    Some((identity, _)) if entry.delta() == 0 => {
                        let hash = self.shared.keys.express_of(identity);
                        let depth = identity_depth(identity);
                        // Where a split was begun and left, the sealed entries are the ones that it
                        // still has to divide.
                        let is_found = is_sealed || table.bucket_addr(hash) == bucket;
                        if !entry.matches(hash)
                            || table.segment.bucket_of(hash) != at / BUCKET_SLOTS
                            || !is_found
                        {
                            walk.report.violation(format!(
                                "express entry for {} (depth {depth}): not where its prefix belongs",
                                entry.addr()
                            ));
                        }
                    }
                    Some(_) => {}
                }
            }
            client.recycle(done);
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
}

/// Whether a directory entry, as it was just read, is two splits behind another that covers it. Who
/// splits a segment first has all entries name it that still name what it came from.
fn is_left_behind(table: &Table, index: usize) -> bool {
    let mine = table.cached(index).local_depth();
    (0..=table.bits).any(|depth| {
        let first = index & ((1 << depth) - 1);
        let other = table.cached(first).local_depth().min(table.bits);
        other > mine + 1 && first & ((1 << other) - 1) == index & ((1 << other) - 1)
    })
}

/// A single inner child may be right: a link of a chain over bytes that one edge cannot skip, some
/// of which stay when a later key parts from the chain halfway.
fn is_chain(live: &[Slot]) -> bool {
    matches!(live, [only] if matches!(only.held(), Held::Node { .. }))
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
            if slot.held() == Held::Invalid {
                walk.report.violation(format!("{name} at {}: slot {word:#x} is of no known type", node.addr));
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
