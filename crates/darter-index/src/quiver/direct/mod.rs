//! Searches in memory that this process can load from ([`Endpoint::memory`]): the usual cases of a
//! [`Descent`](super::descent::Descent), without batches, hints and copies of nodes.
//!
//! Every load is a READ of one word. A search from the root word loads, in this order, the slots of
//! each node from the key's own edge downwards, the page's head, the record at the rank that the
//! page's own map gives, and leaves. So it is a descent by nodes that uses no hint, and what makes
//! that one right makes this one right: L3, L4 and L5 in `docs/quiver.md`.
//!
//! What is rare is left to the descent, which reads everything again: words that are being replaced,
//! intents, writes to vacant slots, keys that leave a path, leaves of other keys, and all damage. A
//! search that is not sure returns [`Unsure`].
//!
//! [`Endpoint::memory`]: darter_fabric::Endpoint::memory

mod place;

pub(super) use self::place::{Page, Sure, Unsure, Way, node_of, way_to};
use self::place::{Record, page_of};
use super::descent::{Found, Image, Lookup, PageSearchEnd, Purpose};
use super::nibble::identity_of;
use super::node::{Content, NodeAt};
use super::page::PageRef;
use super::pair::INLINE_WORDS_MAX;
use super::shared::Shared;
use super::word::{Print, Word};
use darter_fabric::local::Memory;

/// A key's value, as loaded.
pub(super) struct Loaded {
    /// The leaf's image; `None` if the key is absent.
    pub(super) image: Option<Image>,
    /// Whether the pair has a leaf although it could be stored in a page.
    pub(super) is_moved_out: bool,
}

impl Loaded {
    fn of(image: Option<Image>, is_leaf: bool) -> Self {
        let is_moved_out = is_leaf && image.as_ref().is_some_and(|image| image.len() <= INLINE_WORDS_MAX);
        Self { image, is_moved_out }
    }
}

/// Loads a key's value.
pub(super) fn value_of(shared: &Shared, memory: Memory<'_>, key: &[u8]) -> Sure<Loaded> {
    let way = way_to(shared, memory, key)?;
    let page = match way.content {
        Content::None { hi } if way.own <= hi && is_on_path(shared, memory, key, way.node) => {
            return Ok(Loaded::of(None, false));
        }
        Content::Page { class, addr, .. } => Page::of(memory, PageRef { addr, class }, key)?,
        _ => return Err(Unsure),
    };
    if let Record::Own { value, word, .. } = page.record(key, |_| false)? {
        return Ok(Loaded::of(value, word.leaf_object().is_some()));
    }
    match page.pair_in(page.delta(), key, Print::new(shared.keys, key))? {
        Some((_, _, image)) => Ok(Loaded::of(Some(image), true)),
        None if page.proves_absence(shared, key) => Ok(Loaded::of(None, false)),
        None => Err(Unsure),
    }
}

/// Whether a node has a prefix of the key.
fn is_on_path(shared: &Shared, memory: Memory<'_>, key: &[u8], node: NodeAt) -> bool {
    let identity = memory.words(node.addr, 1).map(|words| words.load(0));
    identity == Some(identity_of(shared.keys, key, node.depth))
}

/// Finds a key's place for a change, as a descent for this purpose does.
pub(super) fn place_of(
    shared: &Shared,
    memory: Memory<'_>,
    key: &[u8],
    purpose: Purpose,
) -> Sure<PageSearchEnd> {
    let page = page_of(shared, memory, key)?;
    let (head, print) = (page.head()?, Print::new(shared.keys, key));
    if head.is_sealed {
        return Err(Unsure);
    }
    let leaf_print = page.leaf_print(key, print);
    let may_skip_leaf = |word: Word| purpose == Purpose::Overwrite && word.may_be_leaf_of(leaf_print);
    let spot = match page.record(key, may_skip_leaf)? {
        Record::Own { addr, word, is_inline, value } => Lookup::Record { addr, word, is_inline, value },
        // The words that show that the key is absent must be those that show where it goes: in other
        // words loaded later, the key may be gone from another place.
        Record::Other => match page.pair_in(head.delta.iter().copied(), key, print)? {
            Some((addr, word, value)) => Lookup::Delta { addr, word, value },
            None if page.proves_absence(shared, key) => Lookup::absent(&head, print),
            None => return Err(Unsure),
        },
    };
    Ok(PageSearchEnd::Page(Box::new(Found { print, head, spot, from: None })))
}
