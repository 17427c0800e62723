//! Search and multi-get: a leaf, starting at the cache, and the pair's block if pairs are in
//! blocks.

use super::entry::{Block, Entry, EntryState, key_words, unpack};
use super::format::Format;
use super::page::{Aim, Link, Page};
use super::walk::{Walk, WalkEnd};
use super::{Operation, Shared, Sherman};
use darter_fabric::{Batch, Fabric, GlobalAddr, OpKind, ReadId};
use darter_index::radix::leaf as pair;
use darter_index::radix::search::{self, Search};
use darter_index::{IndexError, Result};
use darter_pool::Client;
use smallvec::SmallVec;

/// Entries of a leaf that may hold a key.
pub(crate) type Matches = SmallVec<[(usize, Entry); 2]>;

impl Page {
    /// Returns the entries whose words match a key; `None` if one of them is torn.
    pub(crate) fn matches(&self, format: &Format, key: &[u8]) -> Option<Matches> {
        let words = key_words(format, key, self.prefix);
        let at = format.check_words();
        let mut matches = Matches::new();
        for slot in 0..self.slots(format) {
            if self.slot(format, slot)[at..at + words.len()] == words[..] {
                match self.entry(format, slot) {
                    EntryState::Holds(entry) => matches.push((slot, entry)),
                    EntryState::Empty => {}
                    EntryState::Torn => return None,
                }
            }
        }
        Some(matches)
    }

    /// Returns whether a hopscotch leaf's vacancy bitmap matches its entries.
    pub(crate) fn has_right_vacancy(&self, format: &Format) -> bool {
        self.table(format).is_none_or(|table| table.has_right_vacancy())
    }

    /// Returns whether some entry is torn, so that a key that was not found may be there.
    pub(crate) fn is_torn(&self, format: &Format) -> bool {
        if let Some(table) = self.table(format) {
            return !table.is_sound();
        }
        (0..self.slots(format)).any(|slot| self.entry(format, slot) == EntryState::Torn)
    }
}

/// Returns an inline entry's value.
///
/// # Errors
/// [`IndexError::LostInWrite`].
pub(crate) fn inline_value(format: &Format, addr: GlobalAddr, entry: &Entry) -> Result<Vec<u8>> {
    if entry.lost {
        return Err(IndexError::LostInWrite { addr });
    }
    let bytes: &[u8] = bytemuck::cast_slice(&entry.payload);
    Ok(bytes[..format.value.unwrap_or(0)].to_vec())
}

/// Returns the key of an entry that stores it.
pub(crate) fn entry_key(format: &Format, entry: &Entry) -> Option<Vec<u8>> {
    format.key.map(|bytes| unpack(&entry.key, bytes))
}

#[derive(Debug)]
enum SearchState {
    Walking,
    /// The leaf, and the blocks of its matching entries.
    Blocks(Box<Page>, SmallVec<[(Block, Option<ReadId>); 2]>),
}

/// The end of a search.
#[derive(Debug)]
pub(crate) enum Found {
    Value(Option<Vec<u8>>),
    Stuck(Link),
}

/// A search in progress.
#[derive(Debug)]
pub(crate) struct KeySearch<'k> {
    pub(crate) key: &'k [u8],
    walk: Walk<'k>,
    stage: SearchState,
    pub(crate) repaired: u32,
}

impl<'k> KeySearch<'k> {
    pub(crate) fn new(key: &'k [u8], fresh: bool, repaired: u32) -> Self {
        Self { key, walk: Walk::new(Aim::At(key), 0, true, fresh), stage: SearchState::Walking, repaired }
    }

    fn absent(&mut self, shared: &Shared, page: &Page) -> Option<Found> {
        if page.is_torn(&shared.format) { self.again(page) } else { Some(Found::Value(None)) }
    }

    fn again(&mut self, page: &Page) -> Option<Found> {
        self.walk.again(page).map(Found::Stuck)
    }
}

impl Search<Shared> for KeySearch<'_> {
    type End = Found;

    fn post(&mut self, shared: &Shared, batch: &mut Batch) -> Result<()> {
        match &mut self.stage {
            SearchState::Walking => self.walk.post(shared, batch).map(drop),
            SearchState::Blocks(_, blocks) => {
                for (block, read) in blocks {
                    *read = Some(batch.read(block.addr, block.words()));
                }
                Ok(())
            }
        }
    }

    fn absorb(&mut self, shared: &Shared, done: &Batch) -> Result<Option<Found>> {
        let page = match std::mem::replace(&mut self.stage, SearchState::Walking) {
            SearchState::Walking => match self.walk.absorb(shared, done)? {
                Some(WalkEnd::Page(page)) => page,
                Some(WalkEnd::Stuck(link)) => return Ok(Some(Found::Stuck(link))),
                _ => return Ok(None),
            },
            SearchState::Blocks(page, blocks) => {
                for (block, read) in blocks {
                    let Some(read) = read else { continue };
                    let found = pair::parse(block.addr, done.words(read))?;
                    if found.key == self.key {
                        return Ok(Some(Found::Value(Some(found.value.to_vec()))));
                    }
                }
                return Ok(self.absent(shared, &page));
            }
        };
        self.in_page(shared, page)
    }
}

impl KeySearch<'_> {
    /// Continues from the leaf.
    pub(crate) fn in_page(&mut self, shared: &Shared, page: Box<Page>) -> Result<Option<Found>> {
        let format = &shared.format;
        match page.matches(format, self.key) {
            None => Ok(self.again(&page)),
            Some(matches) if matches.is_empty() => Ok(self.absent(shared, &page)),
            Some(matches) if format.is_inline() => {
                let value = inline_value(format, page.addr, &matches[0].1)?;
                Ok(Some(Found::Value(Some(value))))
            }
            Some(matches) => {
                let blocks = matches.iter().map(|(_, entry)| (entry.block(), None)).collect();
                self.stage = SearchState::Blocks(page, blocks);
                Ok(None)
            }
        }
    }
}

impl<F: Fabric> Sherman<F> {
    /// Returns the values of several keys, in their order, with shared round trips.
    pub(crate) async fn values_of(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
        kind: OpKind,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut operation = Operation::pin(&*self.shared, client, kind).await?;
        let mut values = vec![None; keys.len()];
        let searches = keys.iter().enumerate().map(|(at, key)| (at, KeySearch::new(key, false, 0)));
        let mut searches: Vec<_> = searches.collect();
        while !searches.is_empty() {
            operation.step(&mut searches, &mut values).await?;
        }
        Ok(values)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Runs a step of several searches; completed ones leave the list.
    async fn step(
        &mut self,
        searches: &mut Vec<(usize, KeySearch<'_>)>,
        values: &mut [Option<Vec<u8>>],
    ) -> Result<()> {
        let shared = self.shared;
        let mut stuck = Vec::new();
        search::step(&mut self.client, shared, searches, |at, search, found, _| {
            match found {
                Found::Value(value) => values[at] = value,
                Found::Stuck(link) => stuck.push((at, search.key, search.repaired, link)),
            }
            Ok(())
        })
        .await?;
        for (at, key, mut repaired, link) in stuck {
            self.repair_stuck(link, &mut repaired).await?;
            searches.push((at, KeySearch::new(key, true, repaired)));
        }
        Ok(())
    }
}
