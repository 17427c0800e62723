//! The use of the skip table by a descent: it looks up the prefixes of its key, returns the nodes
//! to begin at, and enters nodes that the descent has passed and not found in the table.
//!
//! A node is entered by a descent that reached it through a slot and found its guard unsealed. So
//! it was linked, like everything that is remembered (L2). The WRITE is posted with the descent's
//! next batch; without a next batch, nothing is entered.

use super::entry::{self, BUCKET_WORDS, ENTRY_WORDS, Place};
use super::table::{self, DESCRIPTOR_WORDS, TABLE_KEPT, Table};
use super::view::Skip;
use crate::Result;
use crate::checker::note;
use crate::quiver::cache::is_old;
use crate::quiver::hint::NodeHint;
use crate::quiver::nibble::{NibbleKey, nibbles};
use crate::quiver::situations;
use crate::radix::prefix_hash::HashKeys;
use crate::radix::prefix_list::DELTA_MAX;
use darter_fabric::{Batch, GlobalAddr, ReadId};
use darter_pool::ForgottenNodes;
use smallvec::SmallVec;

/// A prefix of the key, and its bucket.
#[derive(Debug)]
struct Lookup {
    len: usize,
    hash: u64,
    bucket: GlobalAddr,
    read: Option<ReadId>,
    words: [u64; BUCKET_WORDS],
}

/// A descriptor to read, and the root word that names it.
#[derive(Debug)]
struct Load {
    word: u64,
    read: Option<ReadId>,
}

/// A descent's use of the table.
#[derive(Debug, Default)]
pub(in crate::quiver) struct Guide {
    lookups: SmallVec<[Lookup; 4]>,
    /// Nodes that the table leads to, the deepest last.
    found: SmallVec<[NodeHint; 4]>,
    /// Entries to write.
    entries: SmallVec<[(GlobalAddr, [u64; ENTRY_WORDS]); 2]>,
    load: Option<Load>,
}

impl Guide {
    /// Creates a guide for a key, if the process knows a table with lengths for it.
    pub(in crate::quiver) fn of(
        skip: &Skip,
        keys: &HashKeys,
        key: &mut NibbleKey<'_>,
        epoch: u64,
    ) -> Option<Box<Self>> {
        let view = skip.view(epoch)?;
        let table = view.table.as_ref().filter(|table| epoch.wrapping_sub(table.born) < TABLE_KEPT)?;
        let mut guide = Self::default();
        for len in table.list.lengths_below(nibbles(key.bytes()) + 1) {
            let hash = keys.express_of(key.identity(len));
            let bucket = table.bucket(hash);
            guide.lookups.push(Lookup { len, hash, bucket, read: None, words: [0; BUCKET_WORDS] });
        }
        (!guide.lookups.is_empty()).then(|| Box::new(guide))
    }

    /// Notes the root word read by a descent pinned at this epoch. Returns a guide that reads the
    /// descriptor if the process does not know it.
    pub(in crate::quiver) fn for_word(skip: &Skip, word: u64, epoch: u64) -> Option<Box<Self>> {
        if skip.see(word, epoch) || word == 0 {
            return None;
        }
        let load = Some(Load { word, read: None });
        Some(Box::new(Self { load, ..Self::default() }))
    }

    /// Adds the READs of the buckets.
    pub(in crate::quiver) fn look_up(&mut self, batch: &mut Batch) {
        for lookup in &mut self.lookups {
            lookup.read = Some(batch.read(lookup.bucket, BUCKET_WORDS));
        }
    }

    /// Adds the verbs that go with the descent's next READs.
    pub(in crate::quiver) fn post(&mut self, batch: &mut Batch) {
        for (at, words) in self.entries.drain(..) {
            batch.write(at, &words);
        }
        if let Some(Load { word, read }) = &mut self.load {
            *read = table::descriptor_of(*word).map(|at| batch.read(at, DESCRIPTOR_WORDS));
        }
    }

    /// Parses the descriptor, if it was read.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    pub(in crate::quiver) fn absorb_table(
        &mut self,
        (skip, keys): (&Skip, &HashKeys),
        done: &Batch,
        epoch: u64,
    ) -> Result<()> {
        let Some(Load { word, read: Some(read) }) = self.load.take() else { return Ok(()) };
        let Some(at) = table::descriptor_of(word) else { return Ok(()) };
        note(situations::SKIP_TABLE_CHANGED);
        skip.learn(word, Table::parse(keys, at, done.words(read))?, epoch);
        Ok(())
    }

    /// Evaluates the buckets, for a key of `most` nibbles. A deeper node is not on its path, and one
    /// on a memory node that is leaving the pool must not be read.
    pub(in crate::quiver) fn absorb(
        &mut self,
        (keys, forgotten): (&HashKeys, &ForgottenNodes),
        most: usize,
        done: &Batch,
    ) {
        for lookup in &mut self.lookups {
            let Some(read) = lookup.read.take() else { continue };
            lookup.words.copy_from_slice(done.words(read));
            let is_usable = |node: &NodeHint| node.depth <= most && !forgotten.contains(node.addr.node());
            self.found.extend(lookup.found(keys).filter(is_usable));
        }
    }

    /// The deepest node that the table leads to and that was not returned yet.
    pub(in crate::quiver) fn next(&mut self) -> Option<NodeHint> {
        self.found.pop()
    }

    /// Notes a node on the key's path that was read through a slot of a node of depth `above`, and
    /// whose guard is unsealed.
    pub(in crate::quiver) fn passed(&mut self, keys: &HashKeys, above: usize, node: NodeHint, epoch: u64) {
        if is_old(node.born, epoch) {
            return;
        }
        for lookup in &mut self.lookups {
            let Lookup { len, hash, bucket, .. } = *lookup;
            let is_covered = above < len && len <= node.depth && node.depth - len <= DELTA_MAX;
            if !is_covered || lookup.found(keys) == Some(node) {
                continue;
            }
            let place = table::place_for(keys, hash, len, &lookup.words) * ENTRY_WORDS;
            let words = entry::encode(keys, hash, len, node);
            lookup.words[place..place + ENTRY_WORDS].copy_from_slice(&words);
            self.entries.push((bucket.plus(place as u64 * 8), words));
        }
    }
}

impl Lookup {
    /// The node found in the bucket.
    fn found(&self, keys: &HashKeys) -> Option<NodeHint> {
        let mut found = None;
        for words in self.words.chunks_exact(ENTRY_WORDS) {
            match entry::decode(keys, self.hash, self.len, words) {
                Place::Own(node) => found = found.or(Some(node)),
                Place::Torn => note(situations::SKIP_ENTRY_TORN),
                Place::Empty | Place::Other => {}
            }
        }
        found
    }
}
