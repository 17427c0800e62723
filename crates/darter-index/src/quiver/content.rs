//! The live pairs of a page, read with as much of their leaves as a new page needs.

use super::nibble::{EdgeRange, common, edge, identity_of, nibbles};
use super::page::{FIXED_WORDS, IDENTITY_AT, PageRef, Shape, image_in, standing_whole, verify_word};
use super::pair::{INLINE_WORDS_MAX, Key, Pair};
use super::situations;
use super::word::{Print, State, Word};
use crate::checker::note;
use crate::ordered::{KEY_BYTES_MAX, LostNodes};
use crate::radix::leaf::{self, Image};
use crate::radix::prefix_hash::HashKeys;
use crate::{IndexError, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Client;

/// Words of a leaf that are read at first, enough for any pair that may be stored in a page.
const LEAF_WORDS: usize = INLINE_WORDS_MAX;

/// The content of a page.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Its live pairs in key order, up to the last requested edge.
    pub(super) pairs: Vec<Pair>,
    /// Leaves named by its words up to that edge that belong to no pair, because their key is not
    /// the record's; each with the record's edge.
    pub(super) strays: Vec<(u8, (GlobalAddr, u8))>,
    /// The edges of all live pairs, in key order; also of those whose leaves are lost.
    pub(super) edges: Vec<u8>,
    /// Leaves on lost memory nodes up to that edge, which are in no other list.
    pub(super) lost: Vec<LostLeaf>,
}

/// A leaf on a lost memory node.
#[derive(Debug)]
pub(super) struct LostLeaf {
    pub(super) edge: u8,
    pub(super) class: u8,
    /// The key of the pair stored in its record, which is most likely its own.
    pub(super) key: Option<Key>,
}

/// A leaf to read.
struct Wanted {
    addr: GlobalAddr,
    class: u8,
    edge: u8,
    /// The word that names it.
    word: Word,
    /// The pair stored in the record.
    own: Option<Pair>,
}

impl From<Wanted> for LostLeaf {
    fn from(Wanted { class, edge, own, .. }: Wanted) -> Self {
        Self { edge, class, key: own.map(|own| own.key) }
    }
}

impl Content {
    /// Reads the leaves of a page whose words were all read, up to the last edge that the page is
    /// still responsible for. The leaves beyond belong to linked parts. `keys` is for the index's
    /// hashes.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`].
    pub(super) fn read<F: Fabric>(
        client: &mut Client<F>,
        keys: HashKeys,
        page: PageRef,
        of: (&Shape, &[u64]),
        last: u8,
    ) -> impl Future<Output = Result<Self>> + Send {
        Self::read_around(client, keys, page, of, last, LostNodes::NONE)
    }

    /// As [`Content::read`], without the leaves on lost memory nodes.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`].
    pub(super) async fn read_around<F: Fabric>(
        client: &mut Client<F>,
        keys: HashKeys,
        page: PageRef,
        (shape, words): (&Shape, &[u64]),
        last: u8,
        lost: LostNodes,
    ) -> Result<Self> {
        let mut content = Self::default();
        let edges = shape.edges.up_to(last);
        let mut wanted = Vec::new();
        for rank in 0..shape.records {
            let at = shape.record_at(rank);
            let record = &words[at..at + shape.record_words];
            let own = standing_whole(page.addr, record)?.map(|leaf| {
                let words = leaf::image_of(&record[1..], leaf.key.len(), leaf.value.len()).len();
                let image = Some(image_in(page.addr, &record[..=words]));
                Pair { key: leaf.key.into(), print: Print::new(keys, leaf.key), image, leaf: None }
            });
            let addr = page.addr.plus(at as u64 * 8);
            verify_word(addr, Word(record[0]), shape.born, own.as_ref().map(|own| own.print))?;
            let edge = shape.edge_of(Word(record[0]), own.as_ref().map(|own| &own.key[..]));
            match (Word(record[0]).state(), own) {
                (State::Inline, Some(own)) => {
                    content.edges.push(edge);
                    if edges.contains(edge) {
                        content.pairs.push(own);
                    }
                }
                (State::Tomb, _) => {}
                (State::Leaf { addr, class }, own) => {
                    wanted.push(Wanted { addr, class, edge, word: Word(record[0]), own });
                }
                _ => return Err(IndexError::corrupt(page.addr, "record of unknown kind")),
            }
        }
        for word in &words[FIXED_WORDS..FIXED_WORDS + shape.delta] {
            match Word(*word).state() {
                State::Leaf { addr, class } => {
                    let edge = shape.edge_of(Word(*word), None);
                    wanted.push(Wanted { addr, class, edge, word: Word(*word), own: None });
                }
                State::Empty | State::Tomb => {}
                _ => return Err(IndexError::corrupt(page.addr, "delta slot of unknown kind")),
            }
        }
        content.edges.extend(wanted.iter().map(|leaf| leaf.edge));
        if !content.edges.iter().all(|&edge| shape.edges.contains(edge)) {
            return Err(IndexError::corrupt(page.addr, "page has a pair outside its edges"));
        }
        content.edges.sort_unstable();
        wanted.retain(|leaf| edges.contains(leaf.edge));
        let is_lost = |leaf: &mut Wanted| lost.contains(leaf.addr.node());
        content.lost.extend(wanted.extract_if(.., is_lost).map(LostLeaf::from));
        content.read_leaves(client, (keys, page.addr, shape), wanted).await?;
        content.pairs.sort_by(|a, b| a.key.cmp(&b.key));
        if content.pairs.windows(2).any(|pair| pair[0].key == pair[1].key) {
            return Err(IndexError::corrupt(page.addr, "page has a key twice"));
        }
        if !content.belongs(keys, words[IDENTITY_AT], shape, edges) {
            return Err(IndexError::corrupt(page.addr, "page has a leaf with another page's key"));
        }
        Ok(content)
    }

    /// Adds pairs for a page that keeps its edges, unless one of their keys is here already.
    /// Returns whether they were added. `depth` is that of the page's node. For content that was
    /// read up to the page's last edge.
    pub(super) fn add(&mut self, added: &[Pair], depth: usize) -> bool {
        let is_here = |pair: &Pair| self.pairs.binary_search_by(|own| own.key.cmp(&pair.key)).is_ok();
        if added.iter().any(is_here) {
            return false;
        }
        self.pairs.extend_from_slice(added);
        self.pairs.sort_by(|a, b| a.key.cmp(&b.key));
        self.edges = self.pairs.iter().map(|pair| edge(&pair.key, depth)).collect();
        true
    }

    /// The pairs under some edges, in key order; `depth` is that of the page's node.
    pub(super) fn within(&self, edges: EdgeRange, depth: usize) -> &[Pair] {
        let begin = self.pairs.partition_point(|pair| edge(&pair.key, depth) < edges.lo);
        let end = self.pairs.partition_point(|pair| edge(&pair.key, depth) <= edges.hi);
        &self.pairs[begin..end]
    }

    /// Whether the keys are below these edges of the page's node, each below the edge given by its
    /// word. Parts are made and linked by these edges, so a damaged leaf must be detected here.
    fn belongs(&self, keys: HashKeys, identity: u64, shape: &Shape, edges: EdgeRange) -> bool {
        let (Some(first), Some(last)) = (self.pairs.first(), self.pairs.last()) else { return true };
        let depth = shape.depth;
        let mut expected: Vec<u8> = self.edges.iter().copied().filter(|&edge| edges.contains(edge)).collect();
        for leaf in &self.lost {
            if let Some(at) = expected.iter().position(|&edge| edge == leaf.edge) {
                expected.remove(at);
            }
        }
        nibbles(&first.key) >= depth
            && identity_of(keys, &first.key, depth) == identity
            && common(&first.key, &last.key) >= depth
            && self.pairs.iter().map(|pair| edge(&pair.key, depth)).eq(expected)
    }

    async fn read_leaves<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        of: (HashKeys, GlobalAddr, &Shape),
        wanted: Vec<Wanted>,
    ) -> Result<()> {
        let mut batch = client.batch();
        let reads: Vec<_> = wanted
            .iter()
            .map(|leaf| batch.read(leaf.addr, leaf::class_words(leaf.class).min(LEAF_WORDS)))
            .collect();
        if reads.is_empty() {
            client.recycle(batch);
            return Ok(());
        }
        let done = client.submit(batch).await?;
        let mut long = Vec::new();
        for (leaf, read) in wanted.into_iter().zip(reads) {
            let words = done.words(read);
            let (key, value) = leaf::lengths(words).unwrap_or((usize::MAX, 0));
            let header = leaf::key_place(words).map_or(0, |(header, _)| header);
            let room = leaf::class_words(leaf.class) * 8;
            if key > KEY_BYTES_MAX || header + key + value > room {
                return Err(IndexError::corrupt(leaf.addr, "leaf longer than its size class"));
            }
            if header + key + value <= words.len() * 8 {
                if leaf::is_intent(words) {
                    note(situations::INTENT_MOVED);
                }
                // An intent stays a leaf: its value is not the key's.
                let image = (!leaf::is_intent(words)).then(|| leaf::image_of(words, key, value));
                let key = leaf::parse(leaf.addr, words)?.key;
                self.take(of, leaf, key, image)?;
            } else if header + key <= words.len() * 8 {
                let bytes: &[u8] = bytemuck::cast_slice(words);
                self.take(of, leaf, &bytes[header..header + key], None)?;
            } else {
                long.push((leaf, header, key));
            }
        }
        client.recycle(done);
        self.read_long_keys(client, of, long).await
    }

    async fn read_long_keys<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        of: (HashKeys, GlobalAddr, &Shape),
        long: Vec<(Wanted, usize, usize)>,
    ) -> Result<()> {
        if long.is_empty() {
            return Ok(());
        }
        let mut batch = client.batch();
        let reads: Vec<_> = long
            .iter()
            .map(|(leaf, header, key)| batch.read(leaf.addr.plus(*header as u64), key.div_ceil(8)))
            .collect();
        let done = client.submit(batch).await?;
        for ((leaf, _, key), read) in long.into_iter().zip(reads) {
            let bytes: &[u8] = bytemuck::cast_slice(done.words(read));
            self.take(of, leaf, &bytes[..key], None)?;
        }
        client.recycle(done);
        Ok(())
    }

    /// Adds a leaf with its key, and its image if that may be stored in a page.
    fn take(
        &mut self,
        (keys, page, shape): (HashKeys, GlobalAddr, &Shape),
        leaf: Wanted,
        key: &[u8],
        image: Option<&[u64]>,
    ) -> Result<()> {
        let print = Print::new(keys, key);
        if nibbles(key) < shape.depth || !leaf.word.may_be_leaf_of(shape.leaf_print(page, key, print)) {
            return Err(IndexError::corrupt(leaf.addr, "leaf's key does not match its word"));
        }
        if let Some(own) = leaf.own.filter(|own| &own.key[..] != key) {
            if !own.print.is_twin_of(print) {
                return Err(IndexError::corrupt(leaf.addr, "leaf's key does not match its record"));
            }
            // The leaf came by a blind CAS for another key: the record's pair counts.
            self.strays.push((leaf.edge, (leaf.addr, leaf.class)));
            self.pairs.push(own);
            return Ok(());
        }
        let (image, leaf) = (image.map(Image::from), Some((leaf.addr, leaf.class)));
        self.pairs.push(Pair { key: key.into(), print, image, leaf });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::nibble::LAST;
    use super::super::{Quiver, QuiverOptions};
    use super::*;
    use crate::fixtures::process;
    use darter_fabric::block_on;
    use darter_pool::AllocKind;
    use darter_pool::size_class::class_of;
    use darter_sim::Sim;

    /// A page with an empty delta slot, records without inline pairs, and these delta words.
    fn words_of(shape: &Shape, identity: u64, delta: &[Word]) -> Vec<u64> {
        let head = [shape.guard(), identity, shape.word(), 0];
        head.into_iter().chain(delta.iter().map(|word| word.0)).collect()
    }

    fn shape_of(edges: EdgeRange, depth: usize) -> Shape {
        Shape {
            born: 1,
            delta: 1,
            records: 0,
            record_words: 1,
            map_words: 0,
            edges,
            depth,
            base: 0,
            width: 0,
        }
    }

    /// Parts are linked in the slots of their edges, so a damaged edge must be detected before.
    #[test]
    fn a_leaf_beyond_the_edges_of_its_page_is_damage() {
        let (pool, quiver) = process::<Quiver<Sim>>(QuiverOptions::default(), &[]);
        let (mut client, keys) = (pool.client().unwrap(), quiver.shared.keys);
        let edges = EdgeRange { lo: 3, hi: 5 };
        let shape = shape_of(edges, 0);
        let page = PageRef { addr: GlobalAddr::new(0, 4096), class: 3 };
        let word = Word::leaf(
            Print::new(keys, b"pear").of_leaf(page.addr, EdgeRange { lo: 3, hi: 6 }, 6),
            3,
            page.addr,
        );
        assert_eq!(word.leaf_edge(edges), 6);
        let words = words_of(&shape, identity_of(keys, b"", 0), &[word]);
        let read = Content::read(&mut client, keys, page, (&shape, &words), edges.hi);
        let error = block_on(read).unwrap_err();
        assert!(matches!(error, IndexError::Corrupt { .. }), "{error}");
    }

    /// After a power failure a leaf had another key than its word was for, and a rebuild made a
    /// node above the page's own.
    #[test]
    fn a_leaf_of_another_pages_key_is_damage() {
        let (pool, quiver) = process::<Quiver<Sim>>(QuiverOptions::default(), &[]);
        let (mut client, keys) = (pool.client().unwrap(), quiver.shared.keys);
        let page = PageRef { addr: GlobalAddr::new(0, 4096), class: 3 };
        let shape = shape_of(EdgeRange::ALL, 2);
        let identity = identity_of(keys, b"plum", 2);
        for (key, belongs) in [(&b"plum"[..], true), (b"pqr", false), (b"blum", false), (b"", false)] {
            let image = leaf::image(key, b"green");
            let class = class_of(image.len() as u64 * 8).unwrap();
            let leaf = block_on(client.alloc(0, image.len() as u64 * 8, AllocKind::Leaf)).unwrap();
            let mut batch = client.batch();
            batch.write(leaf, &image);
            block_on(client.submit(batch)).unwrap();
            let word =
                Word::leaf(shape.leaf_print(page.addr, b"plum", Print::new(keys, b"plum")), class, leaf);
            let words = words_of(&shape, identity, &[word]);
            let read = block_on(Content::read(&mut client, keys, page, (&shape, &words), LAST));
            assert_eq!(read.is_ok(), belongs, "{key:?}: {read:?}");
        }
    }
}
