//! Slots as an operation has read them: the address, the content, and the edges that the slot was
//! responsible for.

use super::map_copy::Copied;
use super::nibble::EdgeRange;
use super::node::{self, Content, NodeAt, Slot};
use super::shared::Shared;
use crate::{IndexError, Result};
use darter_fabric::GlobalAddr;

/// A slot: its address and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotAt {
    pub(super) addr: GlobalAddr,
    pub(super) slot: Slot,
}

/// A slot of a node, and what is needed to replace what it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParentSlot {
    /// The node that has the slot.
    pub(super) node: NodeAt,
    /// The node's identity.
    pub(super) identity: u64,
    /// The edges that the slot was responsible for.
    pub(super) edges: EdgeRange,
    /// The slot.
    pub(super) at: SlotAt,
    /// Which pages of the node have copies of their maps.
    pub(super) copied: Copied,
}

impl ParentSlot {
    /// The root word, as if it were a slot of a node.
    pub(super) fn root(shared: &Shared, word: u64) -> Self {
        let slot = Slot::from_root_word(word);
        let node = NodeAt { addr: GlobalAddr::NULL, depth: 0 };
        let at = SlotAt { addr: shared.words.root, slot: slot.unsealed() };
        Self { node, identity: 0, edges: EdgeRange::ALL, at, copied: Copied::default() }
    }

    /// The slot at `lo` in the words of a node.
    pub(super) fn of(node: NodeAt, words: &[u64], lo: u8) -> Self {
        let slots = node::slots(words);
        let slot = slots[usize::from(lo)].unsealed();
        let at = SlotAt { addr: node::slot_addr(node.addr, lo), slot };
        let (edges, copied) = (node::edges_of(&slots, lo), Copied::of(node::copies(words)));
        Self { node, identity: words[0], edges, at, copied }
    }

    /// The root node that this slot, the root word, points to.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if it does not point to a node.
    pub(super) fn root_node(&self) -> Result<NodeAt> {
        match self.at.slot.content() {
            Content::Node { skip: 0, addr } => Ok(NodeAt { addr, depth: 0 }),
            _ => Err(IndexError::corrupt(self.at.addr, "root word names no node")),
        }
    }

    /// The word in the pool for another slot in this slot's place.
    pub(super) fn stored(&self, slot: Slot) -> u64 {
        slot.stored(self.identity, self.edges.lo)
    }

    /// Whether it is the root word.
    pub(super) fn is_root(&self) -> bool {
        self.node.addr == GlobalAddr::NULL
    }
}
