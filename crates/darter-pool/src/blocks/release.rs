//! How memory leaves the process: freed bits of objects in other members' blocks, and empty blocks.

use darter_fabric::{Batch, Fabric, GlobalAddr};
use std::collections::BTreeSet;

use super::block::{BlockState, BlockWord};
use super::layout::{BlockId, Layout};
use super::object::Object;
use super::share::Blocks;
use crate::error::PoolError;
use crate::round_trip::{cas, post, read_words};

/// Freed bits sent in one batch.
const FREES_PER_BATCH: usize = 256;

impl<F: Fabric> Blocks<F> {
    /// Sets the freed bits of objects that lie in other members' blocks.
    pub(crate) async fn send_frees(
        &self,
        endpoint: &mut F::Endpoint,
        objects: Vec<Object>,
    ) -> Result<(), PoolError> {
        for words in self.freed_bits(objects).chunks(FREES_PER_BATCH) {
            let set = |batch: &mut Batch| {
                for &(addr, bits) in words {
                    batch.faa(addr, bits);
                }
            };
            post(endpoint, set).await?;
        }
        Ok(())
    }

    /// The blocks in which objects lie.
    pub(crate) fn blocks_of(&self, objects: &[Object]) -> BTreeSet<BlockId> {
        objects.iter().filter_map(|object| Some(self.layout().page_of(object.addr())?.block)).collect()
    }

    /// Notes frees that have landed in these blocks. If this process has taken over one of the
    /// blocks since it posted the frees, it may have searched it for freed objects too early.
    pub(crate) fn note_landed(&self, blocks: &BTreeSet<BlockId>) {
        let heap = self.heap();
        if blocks.iter().any(|&block| heap.block(block).is_some()) {
            self.note_others();
        }
    }

    /// Takes over closed blocks in which this process has freed objects, so that those with nothing
    /// left in them go back to the pool.
    pub(crate) async fn reopen_touched(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        for block in self.take_touched() {
            // A node that has left had no block in use. It may leave during the read.
            let has_left = || self.layout().is_removed(block.node);
            if has_left() {
                continue;
            }
            let word = match read_words(endpoint, Layout::block_word(block)).await {
                Err(_) if has_left() => continue,
                words => words.map(|[word]| BlockWord::decode(word))?,
            };
            if let Some(word) = word.filter(|word| word.state == BlockState::Closed) {
                self.reopen(endpoint, block, word).await?;
            }
        }
        Ok(())
    }

    /// The bitmap words of objects with the bits to set, each word once.
    fn freed_bits(&self, mut objects: Vec<Object>) -> Vec<(GlobalAddr, u64)> {
        objects.sort_unstable();
        let mut words: Vec<(GlobalAddr, u64)> = Vec::with_capacity(objects.len());
        for object in objects {
            let place = self.layout().freed_bit(object.addr(), object.class());
            let (Some((addr, bit)), Some(page)) = (place, self.layout().page_of(object.addr())) else {
                self.heap().count_bad_free();
                continue;
            };
            self.touch(page.block);
            match words.last_mut() {
                // An object that a damaged pointer freed twice sets its bit once.
                Some((last, bits)) if *last == addr => *bits |= bit,
                _ => words.push((addr, bit)),
            }
        }
        words
    }

    /// Returns whether a node does not respond, so that work on it is put off. A node that was given up is
    /// not away.
    pub(crate) fn is_away(&self, node: u8) -> bool {
        self.fabric().remote_nodes().is_absent(node) && !self.layout().is_removed(node)
    }

    /// Gives wholly free blocks back, except `keep` of them, and those on nodes that are away, until a later
    /// call.
    pub(crate) async fn return_blocks(
        &self,
        endpoint: &mut F::Endpoint,
        keep: usize,
    ) -> Result<(), PoolError> {
        let leaving = {
            let mut heap = self.heap();
            heap.begin_return(keep);
            heap.leaving()
        };
        for (block, word) in leaving {
            if self.is_away(block.node) {
                continue;
            }
            // A node that was given up has taken its block words with it.
            if !self.layout().is_removed(block.node) {
                cas(endpoint, Layout::block_word(block), word.encode(), word.freed().encode()).await?;
            }
            // Also after a lost race: an earlier CAS of this process, thought lost, has landed.
            self.heap().finish_return(block, word);
        }
        Ok(())
    }

    /// Returns a node that is away and has blocks that this process gives back, if there is one.
    pub(crate) fn awaited_by_blocks(&self) -> Option<u8> {
        let leaving = self.heap().leaving();
        leaving.into_iter().map(|(block, _)| block.node).find(|&node| self.is_away(node))
    }
}
