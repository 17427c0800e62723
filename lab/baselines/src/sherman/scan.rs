//! Scans: from leaf to leaf by their fences, several leaves per round trip.
//!
//! A scan's position is a fence. Each round finds the node above the leaves at that position, reads
//! as many of its leaves as are likely to be needed, and takes those that follow each other without
//! a gap. Changes since the node was cached show in the fences, and the next round continues after
//! the last leaf that matched.

use super::entry::{Entry, key_words, order_of};
use super::format::Format;
use super::page::{Aim, Link, Page, Position};
use super::search::{entry_key, inline_value};
use super::walk::fetch_bounds;
use super::{Operation, Sherman};
use darter_fabric::{Fabric, OpKind};
use darter_index::radix::leaf as pair;
use darter_index::radix::sink::is_void;
use darter_index::{IndexError, KeyValue, Result, ScanRange};
use darter_pool::Client;
use std::cmp::Ordering;
use std::ops::Bound;

/// Maximum number of leaves read in one round trip.
const WIDTH_MAX: usize = 32;
/// Bytes of blocks read in one round trip.
const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// The position of a scan: the fence that it has reached, in its direction.
enum Cursor {
    /// Keys from here up, and the link to their leaf from the previous one.
    From(Vec<u8>, Link),
    /// Keys right below this one.
    Below(Vec<u8>),
    /// The last keys.
    Last,
}

impl Cursor {
    fn start(range: &ScanRange) -> Self {
        let bytes = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        match (range.reverse, &range.to) {
            (false, _) => Self::From(bytes(&range.from).unwrap_or_default(), Link::NONE),
            (true, Bound::Unbounded) => Self::Last,
            // The key itself is included: the least key above it is the key with a zero appended.
            (true, Bound::Included(to)) => Self::Below([&to[..], &[0]].concat()),
            (true, Bound::Excluded(to)) => Self::Below(to.clone()),
        }
    }

    fn aim(&self) -> Aim<'_> {
        match self {
            Self::From(key, _) => Aim::At(key),
            Self::Below(key) => Aim::Below(key),
            Self::Last => Aim::Last,
        }
    }

    /// Returns the cursor after a leaf; `None` if the leaf is the last.
    fn past(leaf: &Page, reverse: bool) -> Option<Self> {
        if reverse {
            return (!leaf.low.bytes().is_empty()).then(|| Self::Below(leaf.low.bytes().to_vec()));
        }
        leaf.high.as_ref().map(|high| Self::From(high.bytes().to_vec(), leaf.sibling))
    }

    /// Returns whether the range has nothing after the cursor.
    fn is_out_of(&self, range: &ScanRange) -> bool {
        match (self, &range.from, &range.to) {
            (Self::From(key, _), _, Bound::Included(to)) => key > to,
            (Self::From(key, _), _, Bound::Excluded(to)) => key >= to,
            (Self::Below(key), Bound::Included(from) | Bound::Excluded(from), _) => key <= from,
            _ => false,
        }
    }
}

impl<F: Fabric> Sherman<F> {
    pub(crate) async fn scan_pairs(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
    ) -> Result<Vec<KeyValue>> {
        let mut pairs = Vec::new();
        if is_void(range) || limit == 0 {
            return Ok(pairs);
        }
        let mut cursor = Some(Cursor::start(range));
        // The part not scanned yet: a leaf that took in a neighbour in between also has keys before
        // the cursor.
        let mut rest = range.clone();
        while let Some(at) = cursor.take().filter(|at| !at.is_out_of(range) && pairs.len() < limit) {
            let mut operation = Operation::pin(&*self.shared, client, OpKind::Scan).await?;
            let leaves = operation.leaves_from(&at, range.reverse, limit - pairs.len()).await?;
            for leaf in leaves {
                let left = limit - pairs.len();
                operation.take_leaf(&leaf, &rest, left, &mut pairs).await?;
                cursor = Cursor::past(&leaf, range.reverse);
                match &cursor {
                    Some(Cursor::From(key, _)) => rest.from = Bound::Included(key.clone()),
                    Some(Cursor::Below(key)) => rest.to = Bound::Excluded(key.clone()),
                    Some(Cursor::Last) | None => {}
                }
                if pairs.len() >= limit || cursor.as_ref().is_none_or(|cursor| cursor.is_out_of(range)) {
                    break;
                }
            }
        }
        pairs.truncate(limit);
        Ok(pairs)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Returns at least one leaf from a position on, sound and without gaps, in the scan's
    /// direction.
    async fn leaves_from(&mut self, cursor: &Cursor, reverse: bool, limit: usize) -> Result<Vec<Box<Page>>> {
        let format = &self.shared.format;
        let slots = format.span.unwrap_or(format.node_words / format.entry_words());
        let likely = limit / (slots / 2).max(1) + 1;
        let mut leaves: Vec<Box<Page>> = Vec::new();
        let copy = self.shared.cache.find(cursor.aim(), 1).filter(|copy| copy.page.level == 1);
        let links: Vec<Link> = match (copy, cursor) {
            (Some(copy), _) if likely > 1 => {
                let (first, page) = (copy.page.towards(cursor.aim()), &copy.page);
                let width = likely.min(WIDTH_MAX);
                if reverse {
                    (0..=first).rev().take(width).map(|at| page.child(at)).collect()
                } else {
                    (first..page.children()).take(width).map(|at| page.child(at)).collect()
                }
            }
            (_, Cursor::From(_, sibling)) if !sibling.is_none() => vec![*sibling],
            _ => Vec::new(),
        };
        if !links.is_empty() {
            let mut batch = self.client.batch();
            let reads: Vec<_> =
                links.iter().map(|&link| batch.read(link.addr(), format.words_of(link))).collect();
            let done = self.client.submit(batch).await?;
            let pages: Vec<_> = links
                .iter()
                .zip(reads)
                .map_while(|(link, read)| {
                    let page = Page::parse(format, link.addr(), done.words(read))?;
                    (page.tag == link.tag() && !page.is_dead() && page.is_leaf()).then_some(page)
                })
                .collect();
            self.client.recycle(done);
            for mut page in pages {
                fetch_bounds(&mut self.client, &mut page).await?;
                let follows = match leaves.last() {
                    None => page.place(cursor.aim()) == Some(Position::Within),
                    Some(last) if reverse => {
                        page.high.as_ref().is_some_and(|high| high.bytes() == last.low.bytes())
                    }
                    Some(last) => last.high.as_ref().is_some_and(|high| high.bytes() == page.low.bytes()),
                };
                if !follows || page.is_torn(format) {
                    break;
                }
                leaves.push(Box::new(page));
            }
        }
        let mut repaired = 0;
        let mut torn = 0;
        while leaves.is_empty() {
            let Some(mut page) = self.page_at(cursor.aim(), 0, false).await? else {
                let addr = self.shared.root.addr();
                return Err(IndexError::corrupt(addr, "the tree has no leaves"));
            };
            if page.is_torn(format) {
                torn += 1;
                if torn % 16 == 0 {
                    self.repair_stuck(page.link(), &mut repaired).await?;
                }
                continue;
            }
            fetch_bounds(&mut self.client, &mut page).await?;
            leaves.push(page);
        }
        Ok(leaves)
    }

    /// Appends a leaf's pairs that are in the range, in its direction.
    async fn take_leaf(
        &mut self,
        leaf: &Page,
        range: &ScanRange,
        limit: usize,
        pairs: &mut Vec<KeyValue>,
    ) -> Result<()> {
        let format = &self.shared.format;
        let mut entries: Vec<Entry> =
            leaf.entries(format).filter(|entry| may_hold(format, leaf, range, entry)).collect();
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        if range.reverse {
            entries.reverse();
        }
        let mut found = if format.is_inline() {
            inline_pairs(format, leaf, range, &entries)?
        } else {
            self.pairs_in_blocks(leaf, range, limit, &entries).await?
        };
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.dedup_by(|a, b| a.0 == b.0);
        if range.reverse {
            found.reverse();
        }
        pairs.extend(found);
        Ok(())
    }

    /// Returns pairs of the range from the blocks of a leaf's entries, in the order of the entries;
    /// at least `limit` if there are enough.
    async fn pairs_in_blocks(
        &mut self,
        leaf: &Page,
        range: &ScanRange,
        limit: usize,
        entries: &[Entry],
    ) -> Result<Vec<KeyValue>> {
        let format = &self.shared.format;
        let (mut found, mut rest): (Vec<KeyValue>, _) = (Vec::new(), entries);
        while !rest.is_empty() && found.len() < limit {
            let (now, later) = rest.split_at(self.blocks_at_once(rest, limit - found.len()));
            rest = later;
            let mut batch = self.client.batch();
            let reads: Vec<_> = now
                .iter()
                .map(|entry| (entry, batch.read(entry.block().addr, entry.block().words())))
                .collect();
            let done = self.client.submit(batch).await?;
            for (entry, read) in reads {
                let held = pair::parse(entry.block().addr, done.words(read))?;
                // A pair that was put during the READ of the leaf can have another's digest: its
                // position is unknown.
                if range.contains(held.key) && key_words(format, held.key, leaf.prefix) == entry.key {
                    found.push((held.key.to_vec(), held.value.to_vec()));
                }
            }
            self.client.recycle(done);
        }
        Ok(found)
    }

    /// Returns how many of these entries' blocks to read in one round trip for this many wanted
    /// pairs.
    fn blocks_at_once(&self, entries: &[Entry], wanted: usize) -> usize {
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            bytes += entry.block().bytes();
            bytes <= BLOCK_BYTES_MAX
        };
        let mut take = entries.iter().take_while(fits).take(wanted).count().max(1);
        // Keys whose digests have the same order part can be in any order: take all of them.
        while take < entries.len() && self.may_tie(&entries[take - 1], &entries[take]) {
            take += 1;
        }
        take
    }

    /// Returns whether the words of two entries do not determine which key comes first.
    fn may_tie(&self, a: &Entry, b: &Entry) -> bool {
        self.shared.format.key.is_none() && super::entry::same_order(a, b)
    }
}

/// Returns whether an entry's key, according to its words, may be in the range.
fn may_hold(format: &Format, leaf: &Page, range: &ScanRange, entry: &Entry) -> bool {
    let stands = |bound: &Bound<Vec<u8>>, out: Ordering| match bound {
        Bound::Included(key) | Bound::Excluded(key) => {
            // Digests only order keys that share the leaf's prefix; the bound may lack it.
            let comparable = key.get(..leaf.prefix) == leaf.low.bytes().get(..leaf.prefix);
            !comparable || order_of(format, &entry.key, key, leaf.prefix) != out
        }
        Bound::Unbounded => true,
    };
    stands(&range.from, Ordering::Less) && stands(&range.to, Ordering::Greater)
}

/// Returns the pairs of the range that are stored in a leaf's entries.
fn inline_pairs(format: &Format, leaf: &Page, range: &ScanRange, entries: &[Entry]) -> Result<Vec<KeyValue>> {
    let mut found = Vec::new();
    for entry in entries {
        let key = entry_key(format, entry).unwrap_or_default();
        if range.contains(&key) {
            found.push((key, inline_value(format, leaf.addr, entry)?));
        }
    }
    Ok(found)
}
