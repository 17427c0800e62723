//! The check: a walk of everything reachable from the root word that verifies every invariant of
//! the format; and the counts.
//!
//! It verifies that slots are taken in order and each edge has one, headers spell the path that
//! leads to them, leaves hold the key that their path spells, and no object is reached twice.
//! Reverse pointers are hints and not checked.
//!
//! Other clients may work at the same time: the walk stays pinned, so the objects it reaches cannot
//! be reused; their half-done changes are remarks, not violations.

use super::Smart;
use super::leaf::{self, Format, Read};
use super::node::{self, HEADER_WORDS, Header, NODE_BYTES, NODE_WORDS, NodeType, PUBLISHED_BYTES};
use super::shared::Operation;
use super::slot::{Content, Slot};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::slot::{END, FANOUT};
use darter_index::radix::tally::Tally;
use darter_index::{CheckReport, IndexStats, Result};
use darter_pool::Client;
use darter_pool::size_class::{class_bytes, class_of};

/// Nodes that the counts read in one round trip.
const WIDTH: usize = 128;

/// Returns an empty tally.
fn tally() -> Tally {
    Tally::new(NodeType::ALL.map(NodeType::name))
}

/// Returns the bytes of the pool that an object takes.
fn allocated(bytes: u64) -> u64 {
    class_of(bytes).map_or(bytes, class_bytes)
}

/// A node on the path being walked.
struct Frame {
    depth: usize,
    /// Inner children not walked yet, last first.
    children: Vec<Slot>,
}

/// A walk in progress.
struct Inspection {
    report: CheckReport,
    tally: Tally,
    frames: Vec<Frame>,
    /// The bytes spelled by the path to the current node.
    path: Vec<u8>,
}

impl<F: Fabric> Smart<F> {
    /// Walks and verifies everything.
    pub(super) async fn check_all(&self, client: &mut Client<F>) -> Result<CheckReport> {
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Maintain).await?;
        let (root, _) = operation.read_root().await?;
        let mut walk = Inspection {
            report: CheckReport::default(),
            tally: tally(),
            frames: Vec::new(),
            path: Vec::new(),
        };
        operation.inspect_node(&mut walk, root).await?;
        while let Some(frame) = walk.frames.last_mut() {
            let depth = frame.depth;
            if let Some(child) = frame.children.pop() {
                walk.path.truncate(depth);
                walk.path.push(child.edge().unwrap_or(0) as u8);
                operation.inspect_node(&mut walk, child).await?;
            } else {
                walk.frames.pop();
            }
        }
        walk.report.stats = walk.tally.finish();
        Ok(walk.report)
    }

    /// Counts everything without reading leaves, many nodes in parallel, under one pin. A leaf that
    /// was killed or moved and is still in its slot counts.
    pub(super) async fn collect_stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Maintain).await?;
        let (root, _) = operation.read_root().await?;
        let mut tally = tally();
        let mut open = vec![(root, 1_usize)];
        while !open.is_empty() {
            let run = open.split_off(open.len().saturating_sub(WIDTH));
            let mut batch = operation.client.batch();
            let reads: Vec<_> =
                run.into_iter().map(|(slot, level)| (level, batch.read(slot.addr(), NODE_WORDS))).collect();
            let done = operation.client.complete(batch).await?;
            for (level, read) in reads {
                let words = done.words(read);
                let live = node::children_in_order(&words[HEADER_WORDS..]);
                if let Some(ty) = Header::from_word(words[1]).ty() {
                    tally.note_node(ty.name(), PUBLISHED_BYTES, live.len());
                }
                for slot in live {
                    match slot.content() {
                        Content::Leaf { len, .. } => tally.note_leaf(allocated(leaf::bytes_of(len)), level),
                        _ if level <= darter_index::KEY_BYTES_MAX => open.push((slot, level + 1)),
                        _ => {}
                    }
                }
            }
        }
        Ok(tally.finish())
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Reads the node of a slot, verifies it and its leaves, and pushes it onto the path.
    async fn inspect_node(&mut self, walk: &mut Inspection, slot: Slot) -> Result<()> {
        let addr = slot.addr();
        let arrival = walk.path.len();
        if arrival > darter_index::KEY_BYTES_MAX
            || !walk.report.reach(addr, allocated(NODE_BYTES), "inner node")
        {
            return Ok(());
        }
        let words = match self.read_words(addr).await {
            Ok(words) => words,
            Err(error) => return walk.report.unreadable(format_args!("inner node at {addr}"), error),
        };
        let header = Header::from_word(words[1]);
        let (Some(ty), Some(partial)) = (header.ty(), header.partial_from(arrival)) else {
            walk.report.violation(format!("inner node at {addr}: header {:#x} at byte {arrival}", words[1]));
            return Ok(());
        };
        let whole = (0..=node::PARTIAL_MAX.min(arrival))
            .rev()
            .find_map(|back| header.partial_from(arrival - back).map(|bytes| (back, bytes)));
        if let Some((back, bytes)) = whole
            && bytes[..back] != walk.path[arrival - back..]
        {
            walk.report.violation(format!("inner node at {addr}: its header spells another path"));
        }
        walk.path.extend_from_slice(&partial);
        let depth = walk.path.len();
        verify_slots(walk, addr, ty, &words[HEADER_WORDS..]);
        let live = node::children_in_order(&words[HEADER_WORDS..]);
        walk.tally.note_node(ty.name(), PUBLISHED_BYTES, live.len());
        let is_spare = match live[..] {
            [] => true,
            [only] => matches!(only.content(), Content::Leaf { .. }),
            _ => false,
        };
        if is_spare && !walk.frames.is_empty() {
            walk.report.remark(format!(
                "inner node at {addr}: {} children; a client died before it removed the node; the next delete near it does",
                live.len()
            ));
        }
        let (leaves, mut children): (Vec<Slot>, Vec<Slot>) =
            live.into_iter().partition(|slot| matches!(slot.content(), Content::Leaf { .. }));
        children.reverse();
        walk.frames.push(Frame { depth, children });
        self.inspect_leaves(walk, leaves).await
    }

    async fn inspect_leaves(&mut self, walk: &mut Inspection, mut leaves: Vec<Slot>) -> Result<()> {
        while !leaves.is_empty() {
            let reached = leaves.drain(..).filter_map(|slot| match slot.content() {
                Content::Leaf { addr, len } => {
                    let is_fresh = walk.report.reach(addr, allocated(leaf::bytes_of(len)), "leaf");
                    is_fresh.then_some(((slot, len), addr, leaf::words_of(len)))
                }
                _ => None,
            });
            let reached: Vec<_> = reached.collect();
            let Inspection { report, tally, frames, path } = &mut *walk;
            let format = self.shared.format;
            let verify = |report: &mut CheckReport, &(slot, len): &(Slot, u8), words: &[u64]| {
                leaves.extend(verify_leaf(format, (report, tally), (path, frames.len()), slot, len, words));
            };
            report.verify_each(&mut self.client, &reached, verify).await?;
        }
        Ok(())
    }
}

/// Verifies a leaf. Returns the slot that should point to the leaf to which it has moved.
fn verify_leaf(
    format: Format,
    (report, tally): (&mut CheckReport, &mut Tally),
    (path, levels): (&[u8], usize),
    slot: Slot,
    len: u8,
    words: &[u64],
) -> Option<Slot> {
    let (addr, edge) = (slot.addr(), slot.edge().unwrap_or(END));
    match format.parse(addr, words) {
        Err(error) => report.violation(error.to_string()),
        Ok(Read::Pair(pair)) => {
            tally.note_leaf(allocated(leaf::bytes_of(len)), levels);
            let depth = path.len();
            let fits = pair.key.starts_with(path)
                && pair.key.get(depth).map_or(END, |&byte| u16::from(byte)) == edge;
            if !fits {
                report.violation(format!("leaf at {addr}: its key does not match its path"));
            }
            if pair.value.is_none() {
                report.remark(format!("leaf at {addr}: its value was lost; put the key again, or delete it"));
            }
        }
        Ok(Read::Dead) => {
            report.remark(format!("leaf at {addr}: dead; the next writer of its key clears the slot"));
        }
        Ok(Read::Moved(to, len)) => {
            report
                .remark(format!("leaf at {addr}: moved to {to}; the next writer of its key swings the slot"));
            return Some(Slot::leaf(edge, len, to));
        }
        Ok(Read::Torn) => {
            tally.note_leaf(allocated(leaf::bytes_of(len)), levels);
            report.remark(format!(
                "leaf at {addr}: torn; it is being written, or its writer died during the write"
            ));
        }
    }
    None
}

fn verify_slots(walk: &mut Inspection, addr: GlobalAddr, ty: NodeType, slots: &[u64]) {
    let mut seen = [false; FANOUT];
    let (mut sealed, mut taken, mut beyond) = (0, 0, 0);
    for (index, &word) in slots.iter().enumerate() {
        let slot = Slot::from_word(word);
        sealed += u64::from(slot.is_sealed());
        let Some(edge) = slot.edge() else { continue };
        if taken < index {
            walk.report.violation(format!("inner node at {addr}: a slot after an empty one"));
        }
        taken = index + 1;
        beyond += usize::from(index >= ty.slots());
        if slot.content() == Content::Invalid {
            walk.report.violation(format!("inner node at {addr}: slot {word:#x} is of an unknown type"));
            continue;
        }
        if std::mem::replace(&mut seen[usize::from(edge.min(END))], true) {
            walk.report.violation(format!("inner node at {addr}: edge {edge} has two slots"));
        }
    }
    if sealed > 0 {
        walk.report
            .remark(format!("inner node at {addr}: {sealed} slots sealed; the next writer removes the node"));
    }
    if beyond > 0 {
        walk.report.remark(format!(
            "inner node at {addr}: {beyond} slots beyond its type; the next writer of their edges raises the type"
        ));
    }
}
