//! What a scan has read of pages: pairs stored in records, and leaves to read.
//!
//! All leaves are read in one round trip if they have at most [`LEAVES_BYTES`]. Otherwise each page
//! is handed on separately: first the leaves of its delta are read, which are unordered, then those
//! of its records, which are in key order, some at a time.

use crate::checker::note;
use crate::quiver::hint::{HotLeaf, PageSlot};
use crate::quiver::intents::states_of;
use crate::quiver::nibble::EdgeRange;
use crate::quiver::page::{FIXED_WORDS, PageRef, Shape, standing_whole, verify_word};
use crate::quiver::pair::INLINE_WORDS_MAX;
use crate::quiver::shared::Shared;
use crate::quiver::situations;
use crate::quiver::word::{Print, State, Word};
use crate::radix::compare;
use crate::radix::intent::Intent;
use crate::radix::leaf::{self, Leaf};
use crate::radix::prefix_hash::HashKeys;
use crate::radix::sink::Sink;
use crate::{IndexError, Result, ScanRange};
use darter_fabric::turns::{self, PORTION_BYTES};
use darter_fabric::{Batch, Fabric, GlobalAddr, ReadId};
use darter_pool::Client;
use std::cmp::Ordering;

/// Bytes of leaves that one round trip reads; with those of records, one leaf more at most.
const LEAVES_BYTES: usize = 4 << 20;
/// Bytes of the smallest sectors of storage media.
const SECTOR_BYTES_MIN: u64 = 512;

/// The words read of a page.
#[derive(Clone, Copy)]
pub(super) struct Part<'w> {
    /// The first words: at least to the end of the delta.
    pub(super) head: &'w [u64],
    /// Adjacent records.
    pub(super) records: &'w [u64],
    /// The rank of the first of these records.
    pub(super) first: usize,
}

impl<'w> Part<'w> {
    /// The whole page.
    pub(super) fn whole(shape: &Shape, words: &'w [u64]) -> Self {
        Self { head: words, records: &words[shape.head_words()..shape.words()], first: 0 }
    }

    /// The first record, or the last one.
    pub(super) fn record(&self, shape: &Shape, is_last: bool) -> &'w [u64] {
        let mut records = self.records.chunks_exact(shape.record_words.max(1));
        if is_last { records.next_back() } else { records.next() }.unwrap_or_default()
    }
}

/// A page whose pairs are read.
#[derive(Clone, Copy)]
pub(super) struct Source<'w> {
    pub(super) page: PageRef,
    pub(super) shape: Shape,
    pub(super) part: Part<'w>,
    /// The identity that the page's node is remembered under, if the page is remembered.
    pub(super) identity: Option<u64>,
    /// A key with the page's prefix.
    pub(super) path: &'w [u8],
}

/// Pairs of several pages.
#[derive(Default)]
pub(super) struct Rows<'w> {
    pairs: Vec<Leaf<'w>>,
    /// Each with the index of its first pair.
    sources: Vec<(Source<'w>, usize)>,
    leaves: Vec<RowLeaf<'w>>,
    /// The last key to return in the walk's direction; all keys if `None`.
    pub(super) end: Option<&'w [u8]>,
}

/// A pair stored in a leaf.
struct RowLeaf<'w> {
    addr: GlobalAddr,
    class: u8,
    /// The word that names it, and the index of its page in `sources`.
    word: Word,
    slot: PageSlot,
    source: usize,
    /// The pair stored in its record; `None` if there is none, or in the delta.
    own: Option<Leaf<'w>>,
    /// The leaf's words, if they were read.
    image: Option<&'w [u64]>,
}

impl<'w> RowLeaf<'w> {
    fn bytes(&self) -> usize {
        leaf::class_words(self.class) * 8
    }

    /// The pair of a leaf that was read with its page.
    fn hot_pair(&self, keys: HashKeys, from: &Source<'_>) -> Result<Leaf<'w>> {
        note(situations::HOT_WORD_SCANNED);
        Ok(self.pair(keys, from, self.image.unwrap_or_default())?.0)
    }

    /// Returns the pair, from the leaf as read, and whether the pair is the leaf's.
    fn pair<'r>(&self, keys: HashKeys, from: &Source<'_>, words: &'r [u64]) -> Result<(Leaf<'r>, bool)>
    where
        'w: 'r,
    {
        let leaf = leaf::parse(self.addr, words)?;
        let Source { page, shape, path, .. } = from;
        let print = Print::new(keys, leaf.key);
        let is_named = self.word.may_be_leaf_of(shape.leaf_print(page.addr, leaf.key, print));
        let fits = match self.own {
            Some(own) if own.key == leaf.key => true,
            // A leaf with another key than the record's: the value is still in the record.
            Some(own) if Print::new(keys, own.key).is_twin_of(print) => return Ok((own, false)),
            Some(_) => false,
            None => shape.may_have(leaf.key, path),
        };
        if !fits || !is_named {
            return Err(IndexError::corrupt(self.addr, "leaf's key does not match its word"));
        }
        Ok((leaf, true))
    }
}

impl<'w> Rows<'w> {
    /// Adds the pairs of a page under some of its edges. Leaves under other edges may belong to
    /// parts that are already linked. Only hot words that the page still has are used. `keys` is
    /// for the index's hashes.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`], also if the keys stored in the page are out of order or do not
    /// belong to it.
    pub(super) fn take(
        &mut self,
        from: Source<'w>,
        edges: EdgeRange,
        hot: &[HotLeaf<'w>],
        keys: HashKeys,
    ) -> Result<()> {
        let Source { page, shape, part, path, .. } = from;
        let is_whole = edges == shape.edges;
        let is_wanted = |word: Word, own: Option<&[u8]>| is_whole || edges.contains(shape.edge_of(word, own));
        let source = self.sources.len();
        self.sources.push((from, self.pairs.len()));
        self.pairs.reserve(part.records.len() / shape.record_words.max(1));
        let row = |slot: PageSlot, word: Word, (addr, class): (GlobalAddr, u8), own| {
            let is_it = |hot: &&HotLeaf<'_>| hot.0.slot == slot && hot.0.word == word;
            let image = hot.iter().find(is_it).map(|(_, words)| *words);
            RowLeaf { addr, class, word, slot, source, own, image }
        };
        let mut order = Order { shape: &shape, path, last: None };
        for (at, record) in part.records.chunks_exact(shape.record_words.max(1)).enumerate() {
            let (word, rank) = (Word(record[0]), part.first + at);
            let own_addr = page.addr.plus(shape.record_at(rank) as u64 * 8);
            let verify = |key: Option<&[u8]>| {
                verify_word(own_addr, word, shape.born, key.map(|key| Print::new(keys, key)))
            };
            match word.state() {
                State::Inline => {
                    let pair = leaf::parse_bound(page.addr, &record[1..])?;
                    if !word.is_of_life(shape.born) || ends_sector(own_addr) {
                        verify(Some(pair.key))?;
                    }
                    order.pass(page, pair.key)?;
                    if is_wanted(word, Some(pair.key)) {
                        self.pairs.push(pair);
                    }
                }
                State::Leaf { addr, class } => {
                    let own = standing_whole(page.addr, record)?;
                    if let Some(own) = own {
                        order.pass(page, own.key)?;
                    }
                    if is_wanted(word, own.map(|own| own.key)) {
                        let slot = PageSlot::record(rank);
                        self.leaves.push(row(slot, word, (addr, class), own));
                    }
                }
                State::Tomb => {
                    let own = standing_whole(page.addr, record)?.map(|own| own.key);
                    verify(own)?;
                    own.map_or(Ok(()), |own| order.pass(page, own))?;
                }
                State::Empty | State::Invalid => {
                    return Err(IndexError::corrupt(page.addr, "record of unknown kind"));
                }
            }
        }
        order.end(page)?;
        for (at, word) in part.head[FIXED_WORDS..FIXED_WORDS + shape.delta].iter().enumerate() {
            if let Some((addr, class, _)) = Word(*word).leaf_object()
                && is_wanted(Word(*word), None)
            {
                self.leaves.push(row(PageSlot::delta(at), Word(*word), (addr, class), None));
            }
        }
        Ok(())
    }

    /// Reads the leaves that were not read yet, and hands on the pairs in the range, in its order,
    /// until the sink is full. Returns the key of a pair whose leaf was read although the
    /// pair could be stored in a page.
    pub(super) async fn hand_on<F: Fabric>(
        mut self,
        (shared, client): (&Shared, &mut Client<F>),
        range: &ScanRange,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let unread = self.leaves.iter().filter(|row| row.image.is_none());
        let is_much = unread.map(RowLeaf::bytes).sum::<usize>() > LEAVES_BYTES;
        if is_much {
            return Box::pin(self.hand_on_by_pages((shared, client), range, sink)).await;
        }
        let (read, unread): (Vec<_>, Vec<_>) = self.leaves.drain(..).partition(|row| row.image.is_some());
        for row in &read {
            self.pairs.push(row.hot_pair(shared.keys, &self.sources[row.source].0)?);
        }
        let first = self.sources.first().map(|(from, _)| from.page);
        if unread.is_empty() {
            let is_in_order = read.is_empty() && !range.reverse;
            hand_on(self.pairs, is_in_order, (self.end, first), range, sink).await?;
            return Ok(None);
        }
        let Self { pairs, sources, end, .. } = self;
        let unread: Vec<_> = unread.iter().collect();
        let leaves = Leaves::read(client, &unread).await?;
        let Read { pairs: read, intents, moved_out } = leaves.pairs(shared, &sources).await?;
        let mut pairs: Vec<Leaf<'_>> = pairs;
        pairs.extend(decided(client, read, intents).await?);
        hand_on(pairs, false, (end, first), range, sink).await?;
        let moved_out = moved_out.map(<[u8]>::to_vec);
        client.recycle(leaves.done);
        Ok(moved_out)
    }

    /// As [`Self::hand_on`], for leaves of more than [`LEAVES_BYTES`].
    async fn hand_on_by_pages<F: Fabric>(
        self,
        (shared, client): (&Shared, &mut Client<F>),
        range: &ScanRange,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let Self { pairs, sources, leaves, end } = &self;
        let mut moved_out = None;
        for (at, (from, pairs_from)) in sources.iter().enumerate() {
            if sink.left == 0 {
                break;
            }
            let (pairs_to, end) = match sources.get(at + 1) {
                Some((_, pairs_to)) => (*pairs_to, None),
                None => (pairs.len(), *end),
            };
            let mut held = pairs[*pairs_from..pairs_to].to_vec();
            let (mut delta, mut records) = (Vec::new(), Vec::new());
            for row in leaves.iter().filter(|row| row.source == at) {
                match (row.image, row.slot.rank()) {
                    (Some(_), _) => held.push(row.hot_pair(shared.keys, from)?),
                    (None, Some(_)) => records.push(row),
                    (None, None) => delta.push(row),
                }
            }
            if range.reverse {
                records.reverse();
            }
            let added = Leaves::read(client, &delta).await?;
            let in_delta = added.pairs(shared, sources).await?;
            moved_out = in_delta.moved_out.map(<[u8]>::to_vec).or(moved_out);
            held.extend(decided(client, in_delta.pairs, in_delta.intents).await?);
            let (mut rest, mut last) = (&records[..], None::<Vec<u8>>);
            loop {
                let (now, later) = split_portion(rest, LEAVES_BYTES, |row| row.bytes());
                let leaves = Leaves::read(client, now).await?;
                let Read { pairs: read, intents, moved_out: moved } = leaves.pairs(shared, sources).await?;
                moved_out = moved.map(<[u8]>::to_vec).or(moved_out);
                let is_past = |last: &[u8], key: &[u8]| compare(last, key) == forwards(range);
                let first = last.as_deref().zip(read.first().map(|pair| pair.key));
                if first.is_some_and(|(last, first)| !is_past(last, first))
                    || !read.windows(2).all(|pair| is_past(pair[0].key, pair[1].key))
                {
                    return Err(out_of_place(from.page));
                }
                let end = if later.is_empty() { end } else { read.last().map(|pair| pair.key) };
                let pairs = [&held[..], &decided(client, read, intents).await?].concat();
                hand_on(pairs, false, (end, Some(from.page)), range, sink).await?;
                if later.is_empty() || sink.left == 0 {
                    break;
                }
                last = end.map(<[u8]>::to_vec);
                held.retain(|pair| last.as_deref().is_none_or(|last| is_past(last, pair.key)));
                client.recycle(leaves.done);
                rest = later;
            }
        }
        Ok(moved_out)
    }
}

/// How a key compares with the next one in a range's direction.
fn forwards(range: &ScanRange) -> Ordering {
    if range.reverse { Ordering::Greater } else { Ordering::Less }
}

/// Splits off the first items, until they have at least `portion` bytes.
fn split_portion<T>(items: &[T], portion: usize, bytes_of: impl Fn(&T) -> usize) -> (&[T], &[T]) {
    let mut bytes = 0;
    let is_within = |item: &&T| {
        let is_within = bytes < portion;
        bytes += bytes_of(item);
        is_within
    };
    items.split_at(items.iter().take_while(is_within).count())
}

/// Leaves that were read in one round trip.
struct Leaves<'r, 'w> {
    rows: &'r [&'r RowLeaf<'w>],
    reads: Vec<ReadId>,
    done: Batch,
}

impl<'r, 'w> Leaves<'r, 'w> {
    async fn read<F: Fabric>(client: &mut Client<F>, rows: &'r [&'r RowLeaf<'w>]) -> Result<Self> {
        let mut batch = client.batch();
        let reads = rows.iter().map(|row| batch.read(row.addr, leaf::class_words(row.class))).collect();
        let done = if rows.is_empty() { batch } else { client.submit(batch).await? };
        Ok(Self { rows, reads, done })
    }

    /// Returns the pairs. Remembers each leaf that matches its word as hot.
    async fn pairs(&self, shared: &Shared, sources: &[(Source<'_>, usize)]) -> Result<Read<'_>> {
        let (mut pairs, mut intents, mut moved_out) = (Vec::with_capacity(self.rows.len()), Vec::new(), None);
        for (row, read) in self.rows.iter().zip(&self.reads) {
            let words = self.done.words(*read);
            let (from, _) = &sources[row.source];
            let (pair, is_own) = row.pair(shared.keys, from, words)?;
            if words.len() <= INLINE_WORDS_MAX {
                moved_out = Some(pair.key);
            }
            if let Some(identity) = from.identity.filter(|_| is_own) {
                shared.learn_hot(identity, (from.page, &from.shape), row.slot, row.word);
            }
            if let Some(intent) = Intent::of(words)? {
                intents.push((pairs.len(), intent));
            }
            pairs.push(pair);
            turns::worked(words.len() * 8).await;
        }
        Ok(Read { pairs, intents, moved_out })
    }
}

/// The pairs of some leaves.
struct Read<'r> {
    /// In the order of the leaves.
    pairs: Vec<Leaf<'r>>,
    /// The pairs that are intents, whose values are not yet the keys' ([`decided`]), by their
    /// indexes.
    intents: Vec<(usize, Intent<'r>)>,
    /// The key of a pair that could be stored in a page.
    moved_out: Option<&'r [u8]>,
}

/// Replaces the values of intents by those of their keys, and removes the pairs of absent keys, with
/// one more round trip if there are any intents.
async fn decided<'r, F: Fabric>(
    client: &mut Client<F>,
    mut pairs: Vec<Leaf<'r>>,
    intents: Vec<(usize, Intent<'r>)>,
) -> Result<Vec<Leaf<'r>>> {
    if intents.is_empty() {
        return Ok(pairs);
    }
    let at: Vec<_> = intents.iter().map(|(_, intent)| intent.status).collect();
    let states = Box::pin(states_of(client, &at)).await?;
    // From the last one, so that a removal moves no intent that is yet to come.
    for ((number, intent), state) in intents.into_iter().zip(states).rev() {
        match intent.value(state) {
            Some(value) => pairs[number].value = value,
            None => drop(pairs.remove(number)),
        }
    }
    Ok(pairs)
}

/// The keys stored in a page, in the order in which they are read.
struct Order<'s, 'w> {
    shape: &'s Shape,
    /// A key with the page's prefix.
    path: &'s [u8],
    last: Option<&'w [u8]>,
}

impl<'w> Order<'_, 'w> {
    /// Fails unless the key comes after the previous one; the first key must belong to the page.
    fn pass(&mut self, page: PageRef, key: &'w [u8]) -> Result<()> {
        let fits = match self.last.replace(key) {
            Some(last) => compare(last, key).is_lt(),
            None => self.shape.may_have(key, self.path),
        };
        if fits { Ok(()) } else { Err(out_of_place(page)) }
    }

    /// Fails unless the last key belongs to the page.
    fn end(&self, page: PageRef) -> Result<()> {
        let fits = self.last.is_none_or(|last| self.shape.may_have(last, self.path));
        if fits { Ok(()) } else { Err(out_of_place(page)) }
    }
}

/// Whether a word may be in another sector than the words after it. Otherwise damage to the word,
/// except for single bits, changes those words too.
pub(super) fn ends_sector(addr: GlobalAddr) -> bool {
    addr.offset() % SECTOR_BYTES_MIN == SECTOR_BYTES_MIN - 8
}

fn out_of_place(page: PageRef) -> IndexError {
    IndexError::corrupt(page.addr, "page has a record out of order")
}

/// Hands on the pairs in the range. If all come from records they are already in order, unless
/// pages are read in descending order.
///
/// # Errors
/// [`IndexError::Corrupt`], with the first page, if a key occurs twice.
async fn hand_on(
    mut pairs: Vec<Leaf<'_>>,
    is_in_order: bool,
    (end, first): (Option<&[u8]>, Option<PageRef>),
    range: &ScanRange,
    sink: &mut Sink<'_>,
) -> Result<()> {
    if !is_in_order {
        pairs.sort_by(|a, b| compare(a.key, b.key));
        let is_twice = |pair: &[Leaf<'_>]| pair[0].key == pair[1].key;
        if let Some(page) = first.filter(|_| pairs.windows(2).any(is_twice)) {
            return Err(IndexError::corrupt(page.addr, "page, or one after it, has a key twice"));
        }
    }
    // The bounds of the pairs to hand on.
    let low = pairs.partition_point(|pair| {
        range.begins_behind(pair.key) || range.reverse && end.is_some_and(|end| pair.key < end)
    });
    let high = pairs[low..].partition_point(|pair| {
        !range.ends_before(pair.key) && (range.reverse || end.is_none_or(|end| pair.key <= end))
    });
    let counted = &mut pairs[low..low + high];
    if range.reverse {
        counted.reverse();
    }
    let mut rest = &*counted;
    if !turns::are_taken() {
        sink.take_all(std::mem::take(&mut rest).iter().copied());
    }
    while !rest.is_empty() {
        let bytes_of = |pair: &Leaf<'_>| pair.key.len() + pair.value.len();
        let (portion, others) = split_portion(rest, PORTION_BYTES, bytes_of);
        sink.take_all(portion.iter().copied());
        turns::worked(portion.iter().map(bytes_of).sum()).await;
        rest = others;
    }
    Ok(())
}
