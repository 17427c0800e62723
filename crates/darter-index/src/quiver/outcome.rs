//! The purpose of a descent, and its result; the place of a put.

use super::node::NodeAt;
use super::page::{Head, PageRef, Shape};
use super::parent_slot::ParentSlot;
use super::word::{Print, State, Word};
pub(super) use crate::radix::leaf::Image;
use darter_fabric::{GlobalAddr, ReadId};

/// The content of a key's place.
#[derive(Clone, Debug)]
pub(super) enum Lookup {
    /// The key is static; it may have a value.
    Record {
        addr: GlobalAddr,
        word: Word,
        /// Whether the key is stored in its record.
        is_inline: bool,
        /// `None` at a TOMB, at a LEAF that will be overwritten, and at an INTENT whose transaction
        /// leaves no value.
        value: Option<Image>,
    },
    /// The key is in the delta.
    Delta { addr: GlobalAddr, word: Word, value: Image },
    /// The key is absent. An insert goes to this delta slot; if it is `None`, the delta is full.
    Absent { vacancy: Option<(GlobalAddr, Word)> },
}

impl Lookup {
    /// The place of an absent key: a new pair goes to the delta slot that the key has left,
    /// otherwise to the first slot that was never used.
    pub(super) fn absent(head: &Head, print: Print) -> Self {
        let is_own = |(at, word): (usize, &Word)| word.is_erased_by(head.delta_addr(at), print);
        let own = head.delta.iter().enumerate().position(is_own);
        let at = own.or_else(|| head.delta.iter().position(|word| word.is_empty()));
        Self::Absent { vacancy: at.map(|at| (head.delta_addr(at), head.delta[at])) }
    }

    /// Whether the key has a value.
    pub(super) fn is_present(&self) -> bool {
        match self {
            Self::Record { word, value, .. } if word.is_intent() => value.is_some(),
            Self::Record { word, .. } => word.state() != State::Tomb,
            Self::Delta { .. } => true,
            Self::Absent { .. } => false,
        }
    }
}

/// The page of a key as found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The key's print.
    pub(super) print: Print,
    pub(super) head: Head,
    pub(super) spot: Lookup,
    /// The slot that pointed to the page, unless the page was remembered.
    pub(super) from: Option<ParentSlot>,
}

/// The place of a pair to put: a record, or a slot of a page's delta.
pub(super) struct Home {
    pub(super) page: PageRef,
    pub(super) shape: Shape,
    /// The identity of the page's node.
    pub(super) identity: u64,
    /// The key's print.
    pub(super) print: Print,
    pub(super) addr: GlobalAddr,
    /// The word there, not sealed.
    pub(super) word: Word,
    /// Whether the key has a value.
    pub(super) was_there: bool,
    /// Whether the place is a record from which the key was removed.
    pub(super) is_put_again: bool,
}

/// How a descent ends.
#[derive(Clone, Debug)]
pub(super) enum PageSearchEnd {
    /// No page is responsible for the key: a slot with NONE.
    Vacant { parent: ParentSlot },
    /// The key leaves the path in the compressed nibbles before a child node.
    Diverged { parent: ParentSlot, child: NodeAt },
    /// For writers: a node on the path is being replaced.
    Sealed { node: NodeAt },
    /// A page.
    Page(Box<Found>),
    /// For readers that know the page's map: a record's leaf, or `None` if there is none.
    Value(Option<Image>),
    /// For readers that know the page's map: the record in this READ, of the page at this address.
    Standing(ReadId, GlobalAddr),
    /// For readers that remember the word that names it: the leaf in this READ.
    Hot(ReadId),
}

/// The purpose of a descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To return a value.
    Read,
    /// To change the place found.
    Write,
    /// To put a value regardless of the current one: a record's leaf need not be read.
    Overwrite,
}
