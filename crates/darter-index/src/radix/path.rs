//! The path of a check's walk: the nodes from the root to the current position, with which every
//! leaf below must agree.

use super::leaf;
use super::prefix_hash::{HashKeys, HashedKey};
use super::slot::{Content, NodeCode, Slot, edge_of};
use super::tally::Tally;
use crate::{CheckReport, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Client;
use darter_pool::size_class::class_bytes;

/// A node on the path.
#[derive(Clone, Copy, Debug)]
pub struct PathStep {
    /// The node's address.
    pub addr: GlobalAddr,
    /// The name of its type.
    pub name: &'static str,
    /// Length of its prefix in bytes.
    pub depth: usize,
    /// Its identity word.
    pub identity: u64,
}

struct Frame<C> {
    step: PathStep,
    /// The edge from the node above: the depth at which it branches, and the key byte. `None` for
    /// the root.
    edge: Option<(usize, u8)>,
    /// Inner children not walked yet, last first.
    children: Vec<(u16, C)>,
}

/// The nodes on the path, each with the children that are still to be walked. `C` identifies a
/// child.
pub struct Path<C> {
    keys: HashKeys,
    /// The bits of an identity word that depend on the prefix.
    identity_bits: u64,
    frames: Vec<Frame<C>>,
    /// The edge of the child that is walked next.
    edge: Option<(usize, u8)>,
}

impl<C> Path<C> {
    /// Creates an empty path. `keys` hashes the prefixes of keys; `identity_bits` are the bits of
    /// an identity word that depend on the prefix.
    pub fn new(keys: HashKeys, identity_bits: u64) -> Self {
        Self { keys, identity_bits, frames: Vec::new(), edge: None }
    }

    /// Number of nodes on the path.
    pub fn levels(&self) -> usize {
        self.frames.len()
    }

    /// The depth of the last node; `None` if there is none.
    pub fn depth(&self) -> Option<usize> {
        self.frames.last().map(|frame| frame.step.depth)
    }

    /// Returns the child to walk next, in key order. Leaves nodes that have no child left. Returns
    /// `None` at the end of the walk.
    pub fn next_child(&mut self) -> Option<C> {
        while let Some(frame) = self.frames.last_mut() {
            if let Some((edge, child)) = frame.children.pop() {
                self.edge = Some((frame.step.depth, edge as u8));
                return Some(child);
            }
            self.frames.pop();
        }
        None
    }

    /// Enters the root, or the child that [`Path::next_child`] returned last. Its inner children
    /// are given in key order, each with its edge.
    pub fn enter(&mut self, step: PathStep, children: impl DoubleEndedIterator<Item = (u16, C)>) {
        let edge = self.edge.take();
        self.frames.push(Frame { step, edge, children: children.rev().collect() });
    }

    /// Counts the leaves among the children of the last node. Reads and verifies them if `is_read`.
    ///
    /// # Errors
    /// As [`CheckReport::verify_each`].
    pub async fn visit_leaves<F: Fabric, T: NodeCode + Sync>(
        &self,
        client: &mut Client<F>,
        (report, tally): (&mut CheckReport, &mut Tally),
        children: &[Slot<T>],
        is_read: bool,
    ) -> Result<()>
    where
        C: Sync,
    {
        let mut leaves = Vec::new();
        for &slot in children {
            if let Content::Leaf { addr, class } = slot.content()
                && report.reach(addr, class_bytes(class), "leaf")
            {
                tally.note_leaf(class_bytes(class), self.levels());
                leaves.extend(is_read.then(|| (slot, addr, leaf::class_words(class))));
            }
        }
        let verify = |report: &mut CheckReport, slot: &Slot<T>, words: &[u64]| {
            self.verify_leaf(report, slot.edge(), slot.addr(), words);
        };
        report.verify_each(client, &leaves, verify).await
    }

    /// Verifies that a leaf, found under an edge of the last node, has the key that its path
    /// spells, and that this key has the prefixes of all nodes on the path.
    fn verify_leaf(&self, report: &mut CheckReport, edge: Option<u16>, addr: GlobalAddr, words: &[u64]) {
        let key = match leaf::parse(addr, words) {
            Ok(leaf) => leaf.key,
            Err(error) => return report.violation(error.to_string()),
        };
        let Some(depth) = self.depth() else { return };
        let edge_fits = key.len() >= depth && edge == Some(edge_of(key, depth));
        let mut edges = self.frames.iter().filter_map(|frame| frame.edge);
        if !edge_fits || edges.any(|(at, byte)| key.get(at) != Some(&byte)) {
            return report
                .violation(format!("leaf at {addr}: its key differs from the one that its path spells"));
        }
        let mut hashed = HashedKey::new(self.keys, key);
        let mut steps = self.frames.iter().map(|frame| frame.step);
        let wrong = steps.find(|step| {
            step.depth > key.len() || (hashed.identity(step.depth) ^ step.identity) & self.identity_bits != 0
        });
        if let Some(PathStep { addr: node, name, .. }) = wrong {
            report.violation(format!("{name} at {node}: its identity is not that of the key in leaf {addr}"));
        }
    }
}
