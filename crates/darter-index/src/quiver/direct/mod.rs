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

use self::place::Record;
pub(super) use self::place::{Page, Sure, Unsure, Way, node_of, way_to};
use super::descent::{Found, Image, Lookup, PageSearchEnd};
use super::node::Content;
use super::outcome::Home;
use super::page::{Head, IDENTITY_AT};
use super::pair::INLINE_WORDS_MAX;
use super::shared::Shared;
use super::word::{Print, State};
use crate::Result;
use crate::radix::leaf;
use darter_fabric::GlobalAddr;
use darter_fabric::local::Memory;

/// A key's value, as loaded.
pub(super) struct LoadedValue {
    /// The leaf's image; `None` if the key is absent.
    image: Option<Image>,
    /// Whether the pair has a leaf although it could be stored in a page.
    pub(super) is_moved_out: bool,
}

impl LoadedValue {
    fn of(image: Option<Image>, is_leaf: bool) -> Self {
        let is_moved_out = is_leaf && image.as_ref().is_some_and(|image| image.len() <= INLINE_WORDS_MAX);
        Self { image, is_moved_out }
    }

    /// The value; `None` if the key is absent.
    #[inline]
    pub(super) fn value(&self) -> Result<Option<&[u8]>> {
        let parsed = self.image.as_ref().map(|image| leaf::parse_again(GlobalAddr::NULL, image));
        Ok(parsed.transpose()?.map(|pair| pair.value))
    }
}

/// Loads a key's value.
pub(super) fn value_of(shared: &Shared, memory: Memory<'_>, key: &[u8]) -> Sure<LoadedValue> {
    let way = way_to(shared, memory, key)?;
    if let Content::None { hi } = way.content
        && way.own <= hi
        && way.is_of(shared, key)
    {
        return Ok(LoadedValue::of(None, false));
    }
    let (page, print) = (way.page(memory, key)?, || Print::new(shared.keys, key));
    if let Record::Own { value, word, .. } = page.record(key, print, false)? {
        return Ok(LoadedValue::of(value, word.leaf_object().is_some()));
    }
    // The words of a delta count only in their own page, which only a verified head shows.
    let head = if memory.is_transient() { None } else { Some(page.head()?) };
    let found = match &head {
        Some(head) => page.pair_in(head.delta.iter().copied(), key, print()),
        None => page.pair_in(page.delta(), key, print()),
    };
    match found? {
        Some((_, _, image)) => Ok(LoadedValue::of(Some(image), true)),
        None if page.proves_absence(shared, head.as_ref(), key) => Ok(LoadedValue::of(None, false)),
        None => Err(Unsure),
    }
}

/// The place of a pair to put regardless of its value.
pub(super) enum Spot {
    /// The record of a key with a value.
    Home(Home),
    /// Another place, as a descent finds it.
    End(PageSearchEnd),
}

/// Finds a key's place for a put regardless of its value. If that is a record with a value, the page's
/// head is not needed.
pub(super) fn spot_of(shared: &Shared, memory: Memory<'_>, key: &[u8]) -> Sure<Spot> {
    let page = way_to(shared, memory, key)?.page(memory, key)?;
    let head = if memory.is_transient() { None } else { Some(page.head()?) };
    let print = Print::new(shared.keys, key);
    let record = page.record(key, || print, true)?;
    if let &Record::Own { addr, word, .. } = &record
        && !(page.is_sealed() || word.is_sealed() || word.is_intent() || word.state() == State::Tomb)
    {
        let (at, shape, identity) = (page.at, page.shape, page.words.load(IDENTITY_AT));
        let home =
            Home { page: at, shape, identity, print, addr, word, was_there: true, is_put_again: false };
        return Ok(Spot::Home(home));
    }
    let head = head.map_or_else(|| page.head(), Ok)?;
    place_in(shared, &page, head, print, record, key).map(Spot::End)
}

/// Finds a key's place for a change, as a writer's descent does.
pub(super) fn place_of(shared: &Shared, memory: Memory<'_>, key: &[u8]) -> Sure<PageSearchEnd> {
    let page = way_to(shared, memory, key)?.page(memory, key)?;
    let (head, print) = (page.head()?, Print::new(shared.keys, key));
    let record = page.record(key, || print, false)?;
    place_in(shared, &page, head, print, record, key)
}

/// The place of a key in a page, whose record at the key's rank is known.
fn place_in(
    shared: &Shared,
    page: &Page<'_>,
    head: Head,
    print: Print,
    record: Record,
    key: &[u8],
) -> Sure<PageSearchEnd> {
    if head.is_sealed {
        return Err(Unsure);
    }
    let spot = match record {
        Record::Own { addr, word, is_inline, value } => Lookup::Record { addr, word, is_inline, value },
        // The words that show that the key is absent must be those that show where it goes: in other
        // words loaded later, the key may be gone from another place.
        Record::Other => match page.pair_in(head.delta.iter().copied(), key, print)? {
            Some((addr, word, value)) => Lookup::Delta { addr, word, value },
            None if page.proves_absence(shared, Some(&head), key) => Lookup::absent(&head, print),
            None => return Err(Unsure),
        },
    };
    Ok(PageSearchEnd::Page(Box::new(Found { print, head, spot, from: None })))
}
