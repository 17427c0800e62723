//! What a descent is for, and how it ends.

use super::node::NodeAt;
use super::page::Head;
use super::parent_slot::ParentSlot;
use super::word::{Print, State, Word};
use darter_fabric::{GlobalAddr, ReadId};
use smallvec::SmallVec;

/// Words of a leaf's image.
pub(super) type Image = SmallVec<[u64; 12]>;

/// What a key's place says.
#[derive(Clone, Debug)]
pub(super) enum Lookup {
    /// The key is static, with its value if it has one.
    Record {
        addr: GlobalAddr,
        word: Word,
        /// Whether the record's key stands in it.
        is_inline: bool,
        /// None at a TOMB, and at a LEAF that is to be overwritten.
        value: Option<Image>,
    },
    /// The key is in the delta.
    Delta { addr: GlobalAddr, word: Word, value: Image },
    /// The key is absent. An insert goes to this delta slot; none is left if there is none.
    Absent { vacancy: Option<(GlobalAddr, Word)> },
}

impl Lookup {
    /// That of an absent key: a new one goes to the delta slot that the key has left, else to the
    /// first that was never taken.
    pub(super) fn absent(head: &Head, print: Print) -> Self {
        let is_own = |(at, word): (usize, &Word)| word.is_erased_by(head.delta_addr(at), print);
        let own = head.delta.iter().enumerate().position(is_own);
        let at = own.or_else(|| head.delta.iter().position(|word| word.state() == State::Empty));
        Self::Absent { vacancy: at.map(|at| (head.delta_addr(at), head.delta[at])) }
    }

    /// Whether the key has a value.
    pub(super) fn is_present(&self) -> bool {
        match self {
            Self::Record { word, .. } => word.state() != State::Tomb,
            Self::Delta { .. } => true,
            Self::Absent { .. } => false,
        }
    }
}

/// Where a key's page was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) head: Head,
    pub(super) spot: Lookup,
    /// The slot that pointed to the page, unless the page was remembered.
    pub(super) from: Option<ParentSlot>,
}

/// How a descent ends.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// No page is responsible for the key: a slot with NONE.
    Vacant { parent: ParentSlot },
    /// The key leaves the path in the compressed nibbles before a child node.
    Diverged { parent: ParentSlot, child: NodeAt },
    /// For writers: a node on the way is being replaced.
    Sealed { node: NodeAt },
    /// A page.
    Page(Box<Found>),
    /// For readers who know the page's map: a record's leaf, or that there is none.
    Value(Option<Image>),
    /// For readers who know the page's map: the record that this READ has brought, of the page there.
    Standing(ReadId, GlobalAddr),
    /// For readers who remember the word that names it: the leaf that this READ has brought.
    Hot(ReadId),
}

/// What the descent is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To return a value.
    Read,
    /// To change the place found.
    Write,
    /// To put a value there whatever it was: a record's leaf need not be read.
    Overwrite,
}
