//! The check: a walk of everything reachable from the root words that verifies every invariant of
//! the format. The same walk counts for the statistics, without reading leaves.
//!
//! It verifies that every node has at least two children, places increase, deciding words lead to
//! children of their digits, leaves hold the key that their path spells, headers hold the digits of
//! every key below, and no object is reached twice. Other clients may work at the same time: the
//! walk stays pinned, so the objects it reaches cannot be reused.

use super::Wort;
use super::header::Header;
use super::node::{Content, Node, Slot};
use super::shared::Shared;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::leaf;
use darter_index::radix::tally::Tally;
use darter_index::{CheckReport, IndexError, Result};
use darter_pool::Client;
use darter_pool::size_class::class_bytes;
use std::sync::Arc;

/// Nodes read in a round trip: siblings and their descendants. A walk of one node at a time would
/// be slow, and its pin blocks reclamation.
const NODES_A_TRIP: usize = 256;

/// A node that was walked, for those below it.
struct Walked {
    addr: GlobalAddr,
    header: Header,
    above: Option<Edge>,
    /// Nodes from the root to this one.
    depth: usize,
}

impl Drop for Walked {
    /// A path may be as deep as the longest key, so its nodes are dropped iteratively.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(edge) = above {
            above = Arc::into_inner(edge.node).and_then(|mut node| node.above.take());
        }
    }
}

/// A step down from a node.
#[derive(Clone)]
struct Edge {
    node: Arc<Walked>,
    digit: u16,
}

/// A node to walk, and the path to it.
struct Pending {
    slot: Slot,
    above: Option<Edge>,
}

/// Returns the nodes on a path, from its end to the root, each with the digit that continues the
/// path.
fn path(last: Option<&Edge>) -> impl Iterator<Item = (&Walked, u16)> {
    std::iter::successors(last, |edge| edge.node.above.as_ref()).map(|edge| (&*edge.node, edge.digit))
}

/// A walk in progress.
struct Inspection<'a> {
    shared: &'a Shared,
    report: CheckReport,
    tally: Tally,
    /// Inner nodes that are not walked yet, the next one last.
    pending: Vec<Pending>,
    /// Leaves to verify: the slot, and the path to it.
    leaves: Vec<((Slot, Option<Edge>), GlobalAddr, usize)>,
    /// Whether to read leaves and verify everything, or only to count.
    verifies: bool,
}

impl<F: Fabric> Wort<F> {
    /// Walks everything.
    pub(super) async fn walk(&self, client: &mut Client<F>, verifies: bool) -> Result<CheckReport> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let shared = &*self.shared;
        let tally = Tally::new(shared.format.types.iter().map(|ty| ty.name()));
        let (report, pending, leaves) = (CheckReport::default(), Vec::new(), Vec::new());
        let mut walk = Inspection { shared, report, tally, pending, leaves, verifies };
        let [word] = client.read_words(shared.words.root).await?;
        let root = Slot::from_word(word);
        match root.content() {
            Content::Empty => {}
            Content::Node { .. } => walk.pending.push(Pending { slot: root, above: None }),
            Content::Leaf { .. } => walk.note_leaf(root, None),
            _ => walk.report.violation("the root word is of an unknown type".to_owned()),
        }
        while !walk.pending.is_empty() {
            walk.step(&mut client).await?;
        }
        walk.verify_leaves(&mut client).await?;
        walk.report.stats = walk.tally.finish();
        self.shared.hocl.report(&mut client, &mut walk.report).await?;
        Ok(walk.report)
    }
}

impl Inspection<'_> {
    /// Reads the next nodes and verifies them and their leaves.
    async fn step<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<()> {
        let next = self.pending.split_off(self.pending.len().saturating_sub(NODES_A_TRIP));
        let mut fresh = Vec::new();
        for pending in next.into_iter().rev() {
            let Content::Node { addr, ty, .. } = pending.slot.content() else { continue };
            if self.report.reach(addr, ty.pool_bytes(), "inner node") {
                fresh.push((pending, addr, ty));
            }
        }
        let mut batch = client.batch();
        let reads: Vec<_> = fresh.iter().map(|&(_, addr, ty)| batch.read(addr, ty.words())).collect();
        let read: Vec<Option<Vec<u64>>> = match client.complete(batch).await {
            Ok(done) => reads.iter().map(|&read| Some(done.words(read).to_vec())).collect(),
            Err(error) => {
                let error = IndexError::from(error);
                if !error.is_damage() {
                    return Err(error);
                }
                // One of the slots is damaged: each node is read separately.
                vec![None; fresh.len()]
            }
        };
        for ((pending, addr, ty), words) in fresh.into_iter().zip(read) {
            let words = match words {
                Some(words) => words,
                None => match client.read(addr, ty.words()).await {
                    Ok(words) => words,
                    Err(error) => {
                        self.report.unreadable(format_args!("{} at {addr}", ty.name()), error)?;
                        continue;
                    }
                },
            };
            self.enter(addr, &Node::new(ty, &words), pending.above);
        }
        if self.leaves.len() >= NODES_A_TRIP { self.verify_leaves(client).await } else { Ok(()) }
    }

    /// Verifies a node, and queues its children.
    fn enter(&mut self, addr: GlobalAddr, node: &Node<'_>, above: Option<Edge>) {
        let (header, start) = (node.header(), start(above.as_ref()));
        let name = node.ty.name();
        if header.branch() < start {
            self.report.violation(format!("{name} at {addr}: not as deep as the edge that leads to it"));
            return;
        }
        let children: Vec<Slot> = node.children().iter().map(|&(_, slot)| slot).collect();
        self.tally.note_node(name, node.ty.pool_bytes(), children.len());
        if self.verifies {
            self.verify(node, addr, children.len(), start);
        }
        let depth = above.as_ref().map_or(0, |edge| edge.node.depth) + 1;
        let walked = Arc::new(Walked { addr, header, above, depth });
        for &slot in children.iter().rev() {
            let edge = Edge { node: Arc::clone(&walked), digit: slot.edge().unwrap_or(0) };
            match slot.content() {
                Content::Node { .. } => self.pending.push(Pending { slot, above: Some(edge) }),
                Content::Leaf { .. } => self.note_leaf(slot, Some(edge)),
                Content::Invalid => self.report.violation(format!("slot {slot:?} is of an unknown type")),
                _ => {}
            }
        }
    }

    fn verify(&mut self, node: &Node<'_>, addr: GlobalAddr, children: usize, start: usize) {
        let name = node.ty.name();
        if let Some(what) = node.violation() {
            self.report.violation(format!("{name} at {addr}: {what}"));
        }
        if !self.shared.format.types.contains(&node.ty) {
            self.report.violation(format!("{name} at {addr}: not a type of this tree"));
        }
        if children < 2 {
            self.report.violation(format!("{name} at {addr}: live children: {children}"));
        }
        if node.header().is_stale(start) {
            self.report.remark(format!(
                "{name} at {addr}: its header was left by an interrupted change; the next writer that reaches it \
                 rebuilds it"
            ));
        }
    }

    /// Counts a leaf, and queues it if leaves are verified.
    fn note_leaf(&mut self, slot: Slot, above: Option<Edge>) {
        let Content::Leaf { addr, class } = slot.content() else { return };
        if self.report.reach(addr, class_bytes(class), "leaf") {
            let depth = above.as_ref().map_or(0, |edge| edge.node.depth);
            self.tally.note_leaf(class_bytes(class), depth);
            self.leaves.extend(self.verifies.then(|| ((slot, above), addr, leaf::class_words(class))));
        }
    }

    /// Reads and verifies the queued leaves.
    async fn verify_leaves<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<()> {
        let (leaves, shared) = (std::mem::take(&mut self.leaves), self.shared);
        let verify = |report: &mut CheckReport, (slot, above): &(Slot, Option<Edge>), words: &[u64]| {
            verify_leaf(shared, above.as_ref(), report, *slot, words);
        };
        self.report.verify_each(client, &leaves, verify).await
    }
}

/// Returns the place of the first digit after a path.
fn start(above: Option<&Edge>) -> usize {
    above.map_or(0, |edge| edge.node.header.branch() + 1)
}

/// Verifies that a leaf has the key that its path spells, and that headers on the path hold that
/// key's digits.
fn verify_leaf(shared: &Shared, above: Option<&Edge>, report: &mut CheckReport, slot: Slot, words: &[u64]) {
    let (digits, addr) = (shared.format.digits, slot.addr());
    let key = match leaf::parse(addr, words) {
        Ok(leaf) => leaf.key,
        Err(error) => return report.violation(error.to_string()),
    };
    let Some(last) = above else { return };
    let is_off = |(node, edge): (&Walked, u16)| digits.edge(key, node.header.branch()) != edge;
    if digits.count(key) < last.node.header.branch() || path(above).any(is_off) {
        return report.violation(format!("leaf at {addr}: its key does not match its path"));
    }
    let is_wrong = |node: &&Walked| {
        let header = node.header;
        header.known(digits).any(|at| header.digit(digits, at) != Some(digits.edge(key, at)))
    };
    if let Some(node) = path(above).map(|(node, _)| node).find(is_wrong) {
        report.violation(format!("node at {}: its header is not that of leaf {addr}", node.addr));
    }
}
