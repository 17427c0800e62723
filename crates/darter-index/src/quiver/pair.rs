//! The pairs that a new page is made of, and the page's words.
//!
//! Whether a pair is stored in the page or in a leaf is computed from the pairs alone, so that all
//! helpers of a rebuild make the same page.

use super::hint::PageHint;
use super::map::Map;
use super::map_copy::{self, Copied};
use super::nibble::EdgeRange;
use super::node;
use super::page::{FIXED_WORDS, PageRef, REMOVAL, Shape};
use super::shared::Shared;
use super::word::{INTENT_CLASS, Print, Word};
use crate::Result;
use crate::radix::drafts::Drafts;
use crate::radix::leaf::{self, Image};
use crate::radix::prefix_hash::HashKeys;
use crate::radix::writes::Writes;
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::size_class::class_of;
use darter_pool::{AllocKind, Client};
use smallvec::SmallVec;

/// Most words of a leaf's image that is stored in a page.
pub(super) const INLINE_WORDS_MAX: usize = 32;

/// A key; short keys need no allocation.
pub(super) type Key = SmallVec<[u8; 24]>;

/// A key with its value, for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The key.
    pub(super) key: Key,
    /// The key's print.
    pub(super) print: Print,
    /// The leaf's image; `None` if the pair has a leaf that is too large to be stored in a page.
    pub(super) image: Option<Image>,
    /// The leaf that the pair already has.
    pub(super) leaf: Option<(GlobalAddr, u8)>,
}

impl Pair {
    /// A pair that has no leaf yet.
    pub(super) fn new(keys: HashKeys, key: &[u8], value: &[u8]) -> Self {
        let image = Some(leaf::image(key, value));
        Self { key: key.into(), print: Print::new(keys, key), image, leaf: None }
    }

    /// Whether its leaf is an intent, whose key may be absent.
    fn is_intent(&self) -> bool {
        self.leaf.is_some_and(|(_, class)| class & INTENT_CLASS != 0)
    }

    fn inline_words(&self) -> Option<usize> {
        self.image.as_ref().map(Image::len).filter(|&words| words <= INLINE_WORDS_MAX)
    }
}

/// Words of a record in a page of these pairs: the slot, and room for pairs of up to twice the
/// median size. Larger pairs would waste more room than their leaves cost.
pub(super) fn record_words(pairs: &[Pair]) -> usize {
    let mut sizes: Vec<usize> = pairs.iter().filter_map(Pair::inline_words).collect();
    sizes.sort_unstable();
    let bound = sizes.get(sizes.len() / 2).map_or(0, |middle| middle * 2);
    1 + sizes.into_iter().rev().find(|&words| words <= bound).unwrap_or(0)
}

/// The place of a new page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The identity of the node.
    pub(super) identity: u64,
    /// Nibbles of its prefix.
    pub(super) depth: usize,
    /// The edges that the page will be responsible for.
    pub(super) edges: EdgeRange,
    /// The memory node that the page should be on.
    pub(super) home: u8,
}

/// Makes pages, nodes and leaves that other clients cannot see yet.
pub(super) struct Maker {
    pub(super) keys: HashKeys,
    /// Delta slots of a page.
    pub(super) delta: usize,
    pub(super) born: u32,
    writes: Writes,
    drafts: Drafts,
    /// Leaves that pairs had and that pages no longer name, because the pairs are stored in the
    /// pages.
    pub(super) left: Vec<(GlobalAddr, u8)>,
}

impl Maker {
    /// Creates a maker for a client pinned at this epoch.
    pub(super) fn new(shared: &Shared, epoch: u64) -> Self {
        Self {
            keys: shared.keys,
            delta: shared.geometry.delta,
            born: epoch as u32,
            writes: Writes::default(),
            drafts: Drafts::new(),
            left: Vec::new(),
        }
    }

    /// Allocates a page of these pairs, at most [`super::page::RECORDS_MAX`], in key order, and
    /// posts its words.
    ///
    /// # Errors
    /// Those of the pool and the fabric.
    pub(super) async fn page<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        place: Place,
        pairs: &[Pair],
    ) -> Result<PageHint> {
        let map = Map::of(pairs.iter().map(|pair| &pair.key[..]));
        let shape = Shape {
            born: self.born,
            delta: self.delta,
            records: pairs.len(),
            record_words: record_words(pairs),
            map_words: map.words.len(),
            edges: place.edges,
            depth: place.depth,
            base: map.base,
            width: map.width,
        };
        let mut words = vec![0; shape.words()];
        let bytes = words.len() as u64 * 8;
        let addr = self.drafts.alloc(client, place.home, bytes, AllocKind::Inner).await?;
        let checksum = u64::from(shape.checksum(addr, place.identity, &map.words));
        // An intent counts as a removed record: a page with too few live records by its count is
        // read before it is replaced, but one with too many stays forever.
        let intents = pairs.iter().filter(|pair| pair.is_intent()).count() as u64;
        let removals = checksum + intents * REMOVAL;
        words[..FIXED_WORDS].copy_from_slice(&[shape.guard(), place.identity, shape.word(), removals]);
        words[FIXED_WORDS..FIXED_WORDS + shape.delta].fill(Word::empty(addr).0);
        words[shape.head_words() - map.words.len()..shape.head_words()].copy_from_slice(&map.words);
        for (rank, pair) in pairs.iter().enumerate() {
            let (at, room) = (shape.record_at(rank), shape.record_words - 1);
            words[at] = match &pair.image {
                Some(image) if image.len() <= room => {
                    words[at + 1..at + 1 + image.len()].copy_from_slice(image);
                    words[at + 1] = leaf::bind(words[at + 1], addr);
                    self.left.extend(pair.leaf);
                    Word::inline(self.born, pair.print).0
                }
                _ => {
                    let (leaf, class) = self.leaf_of(client, place.home, pair).await?;
                    Word::leaf(shape.leaf_print(addr, &pair.key, pair.print), class, leaf).0
                }
            };
        }
        self.writes.write(client, addr, &words).await?;
        let class = class_of(bytes).unwrap_or(u8::MAX);
        Ok(PageHint::new(PageRef { addr, class }, shape, &map.words))
    }

    /// Posts the copy of a page's map, for the node that the page will be linked in.
    pub(super) fn copy_map(&mut self, node: GlobalAddr, copied: &mut Copied, page: &PageHint) {
        if let Some(copy) = map_copy::copy(&page.shape, &page.map) {
            let at = copied.assign(page.shape.edges.lo);
            self.writes.post(node::copy_addr(node, at), &copy);
        }
    }

    /// The pair's leaf; a new leaf if it has none.
    async fn leaf_of<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        home: u8,
        pair: &Pair,
    ) -> Result<(GlobalAddr, u8)> {
        if let Some(leaf) = pair.leaf {
            return Ok(leaf);
        }
        let image = pair.image.as_deref().unwrap_or_default();
        let class = class_of(image.len() as u64 * 8).unwrap_or(u8::MAX);
        Ok((self.object(client, home, image, AllocKind::Leaf).await?, class))
    }

    /// Allocates a node and posts its words, which depend on its address.
    ///
    /// # Errors
    /// Those of the pool and the fabric.
    pub(super) async fn node<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        home: u8,
        image: impl FnOnce(GlobalAddr) -> Vec<u64>,
    ) -> Result<GlobalAddr> {
        let addr = self.drafts.alloc(client, home, node::NODE_BYTES, AllocKind::Inner).await?;
        self.writes.write(client, addr, &image(addr)).await?;
        Ok(addr)
    }

    /// Allocates an object and posts its words.
    ///
    /// # Errors
    /// Those of the pool and the fabric.
    pub(super) async fn object<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        home: u8,
        words: &[u64],
        kind: AllocKind,
    ) -> Result<GlobalAddr> {
        let addr = self.drafts.alloc(client, home, words.len() as u64 * 8, kind).await?;
        self.writes.write(client, addr, words).await?;
        Ok(addr)
    }

    /// Posts other words for the only object that was made.
    pub(super) fn rewrite(&mut self, addr: GlobalAddr, words: &[u64]) {
        self.writes = Writes::default();
        self.writes.post(addr, words);
    }

    /// Links what was made by one CAS. Returns the word's previous value; unless it was the
    /// expected one, gives back what was made.
    ///
    /// # Errors
    /// Those of the fabric.
    pub(super) async fn link<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        at: GlobalAddr,
        expected: u64,
        desired: u64,
    ) -> Result<u64> {
        let found = self.writes.link(client, at, expected, desired).await?;
        if found == expected {
            self.drafts.keep();
        } else {
            self.discard(client);
        }
        Ok(found)
    }

    /// As [`Self::link`], but keeps what was made for another attempt. Returns whether it was
    /// linked.
    ///
    /// # Errors
    /// Those of the fabric.
    pub(super) async fn try_link<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        at: GlobalAddr,
        expected: u64,
        desired: u64,
    ) -> Result<bool> {
        let is_linked = self.writes.link(client, at, expected, desired).await? == expected;
        if is_linked {
            self.drafts.keep();
        }
        Ok(is_linked)
    }

    /// Gives back what was made and not linked.
    pub(super) fn discard<F: Fabric>(&mut self, client: &mut Client<F>) {
        self.drafts.discard(client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_pair_does_not_widen_all_records() {
        let keys = HashKeys::new([1, 2, 3, 4]);
        let pair = |bytes: usize| Pair::new(keys, &[1; 8], &vec![0; bytes]);
        let mut pairs = vec![pair(64); 9];
        assert_eq!(record_words(&pairs), 1 + 10);
        pairs.push(pair(200));
        assert_eq!(record_words(&pairs), 1 + 10);
        pairs.push(pair(100));
        assert_eq!(record_words(&pairs), 1 + 15);
        assert_eq!(record_words(&[pair(1000)]), 1);
        assert_eq!(record_words(&[]), 1);
    }
}
