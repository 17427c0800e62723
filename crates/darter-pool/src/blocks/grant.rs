//! Sources of objects when a magazine is empty, cheapest first: free objects in the heap, objects
//! in own slabs that others freed, a new slab in an own block, a closed block with room, a free
//! block.
//!
//! A block is granted by one CAS on its word in the block table; the memory node runs no code. If
//! an operation is cancelled during a grant, a cut or a claim, the memory concerned stays out of
//! circulation (`heap`).

use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, ObjectState};

use super::block::{BlockState, BlockWord};
use super::heap::{ClaimFilter, Cut, OwnBlock};
use super::layout::{BlockId, Layout, PageId, is_run};
use super::object::AllocKind;
use super::share::Blocks;
use super::stock::Shortage;
use crate::error::PoolError;
use crate::region::TABLE_AT;
use crate::round_trip::{cas, post, submit};

/// Slabs searched for freed objects at once, and pages considered for it.
const CLAIMS_PER_SHORTAGE: usize = 64;
const PAGES_PER_SHORTAGE: usize = 2048;
/// Words read by one verb.
const TABLE_WORDS_PER_READ: usize = 4096;
/// A closed block has much room, and is taken before a free one, if at least one part in this many
/// is free.
const ROOM_PART_MIN: u64 = 32;
/// Free blocks that remain for members that wait for room.
const BLOCKS_FOR_OTHERS: usize = 4;

/// Blocks that a search for objects may take from the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewBlocks {
    /// Free blocks, if enough remain for members that wait for room.
    Surplus,
    /// Free blocks, and closed ones with much room.
    Roomy,
    /// Free and closed blocks.
    Any,
}

impl<F: Fabric> Blocks<F> {
    /// Takes at least one and at most the wanted number of free objects, all on one node: the first
    /// of `nodes` nodes that has some, beginning with the preferred one. Returns whether there were
    /// any. Nodes that are leaving are skipped, and so are absent ones; if the others have no room, a
    /// search that may take any blocks fails with an absent node's error.
    pub(crate) async fn obtain(
        &self,
        endpoint: &mut F::Endpoint,
        nodes: u8,
        shortage: Shortage,
        new_blocks: NewBlocks,
        out: &mut Vec<GlobalAddr>,
    ) -> Result<bool, PoolError> {
        let nodes = usize::from(nodes);
        let mut absent = None;
        for step in 0..nodes {
            let node = ((usize::from(shortage.node) + step) % nodes) as u8;
            if !self.layout().accepts(node) {
                continue;
            }
            let obtained = if self.fabric().remote_nodes().is_lost(node) {
                Err(FabricError::Lost { node }.into())
            } else if self.fabric().remote_nodes().is_absent(node) {
                Err(FabricError::Unreachable { node }.into())
            } else {
                self.obtain_on(endpoint, Shortage { node, ..shortage }, new_blocks, out).await
            };
            match obtained {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                // The node turned out to be absent just now.
                Err(error) if self.fabric().remote_nodes().is_absent(node) => absent = Some(error),
                Err(error) => return Err(error),
            }
        }
        absent.filter(|_| new_blocks == NewBlocks::Any).map_or(Ok(false), Err)
    }

    async fn obtain_on(
        &self,
        endpoint: &mut F::Endpoint,
        Shortage { node, kind, class, want }: Shortage,
        new_blocks: NewBlocks,
        out: &mut Vec<GlobalAddr>,
    ) -> Result<bool, PoolError> {
        let mut may_claim = self.has_met_others() && !is_run(class);
        // Other clients may take the objects that we cut, and closed blocks may have no room for
        // us; each iteration uses up a block.
        for _ in 0..=self.layout().blocks(node) {
            let cut = {
                let mut heap = self.heap();
                if heap.take(node, kind, class, want, out) {
                    return Ok(true);
                }
                if may_claim { None } else { heap.begin_cut(node, kind, class) }
            };
            if std::mem::take(&mut may_claim) {
                let filter =
                    ClaimFilter { node: Some(node), kind: Some(kind), class: Some(class), block: None };
                let claims = self.heap().begin_claims(filter, CLAIMS_PER_SHORTAGE, PAGES_PER_SHORTAGE);
                self.fetch_claims(endpoint, &claims).await?;
                continue;
            }
            if let Some(cut) = cut {
                self.cut(endpoint, cut).await?;
                let mut heap = self.heap();
                heap.finish_slab(cut);
                if heap.take(node, kind, class, want, out) {
                    return Ok(true);
                }
                continue;
            }
            if !self.acquire_block(endpoint, node, kind, new_blocks).await? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Writes the words of a new slab.
    async fn cut(
        &self,
        endpoint: &mut F::Endpoint,
        Cut { page: first, class }: Cut,
    ) -> Result<(), PoolError> {
        let PageId { block, page } = first;
        let mut batch = endpoint.batch();
        batch.write(self.layout().freed_words(block).plus(u64::from(page) * 8), &[0]);
        let shape = self.layout().shape(page, class);
        // The slab's bitmap may lie where objects were.
        let head = shape.as_ref().map_or(0, |shape| u64::from(shape.first));
        self.fabric().memory_observer().note_object(
            self.layout().page_addr(first),
            head,
            ObjectState::Unmanaged,
        );
        if shape.is_some_and(|shape| shape.bitmap.is_some()) {
            let (bitmap, words) = self.layout().bitmap_of(first, class);
            batch.write(bitmap, &vec![0; words]);
        }
        let page_word = self.layout().page_word(class);
        batch.write(self.layout().block_addr(block).plus(u64::from(page) * 8), &[page_word]);
        submit(endpoint, batch).await?;
        Ok(())
    }

    /// Returns the words of a node's block table; none if the node has left the pool.
    pub(crate) async fn read_block_table(
        &self,
        endpoint: &mut F::Endpoint,
        node: u8,
    ) -> Result<Vec<u64>, PoolError> {
        let blocks = self.layout().blocks(node) as usize;
        let mut batch = endpoint.batch();
        let reads: Vec<_> = (0..blocks)
            .step_by(TABLE_WORDS_PER_READ)
            .map(|at| {
                let words = (blocks - at).min(TABLE_WORDS_PER_READ);
                batch.read(GlobalAddr::new(node, TABLE_AT + at as u64 * 8), words)
            })
            .collect();
        if reads.is_empty() {
            return Ok(Vec::new());
        }
        let done = match submit(endpoint, batch).await {
            // It has left since the batch was made.
            Err(_) if self.layout().is_removed(node) => return Ok(Vec::new()),
            done => done?,
        };
        Ok(reads.iter().flat_map(|&read| done.words(read)).copied().collect())
    }

    /// Gets one more block of `kind` on `node`; returns `false` if there is none.
    async fn acquire_block(
        &self,
        endpoint: &mut F::Endpoint,
        node: u8,
        kind: AllocKind,
        new_blocks: NewBlocks,
    ) -> Result<bool, PoolError> {
        if !self.may_own_more() {
            return Ok(false);
        }
        let words = self.read_block_table(endpoint, node).await?;
        let table: Vec<_> = (0u32..)
            .zip(words)
            .filter_map(|(index, word)| Some((BlockId { node, index }, BlockWord::decode(word)?)))
            .collect();
        let is_free = |(_, word): &&(BlockId, BlockWord)| word.state == BlockState::Free;
        let free = table.iter().filter(is_free).count();
        let room_min = match new_blocks {
            NewBlocks::Surplus if free <= BLOCKS_FOR_OTHERS => return Ok(false),
            NewBlocks::Surplus => u64::MAX,
            NewBlocks::Roomy => self.layout().block_bytes / ROOM_PART_MIN,
            NewBlocks::Any => 0,
        };
        for &(block, word) in &table {
            let is_closed = word.state == BlockState::Closed && word.kind == kind;
            if is_closed && word.closed_room() >= room_min && self.reopen(endpoint, block, word).await? {
                return Ok(true);
            }
        }
        // Another process may take a free block at the same time, which then counts against the
        // reserve.
        if !self.may_take_free(free) {
            return Ok(false);
        }
        for &(block, word) in &table {
            if word.state == BlockState::Free && self.grant(endpoint, block, word, kind).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Changes a block's word; returns `false` if it was no longer `from`.
    pub(crate) async fn change_word(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        from: BlockWord,
        to: BlockWord,
    ) -> Result<bool, PoolError> {
        Ok(cas(endpoint, Layout::block_word(block), from.encode(), to.encode()).await?.swapped)
    }

    async fn grant(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        word: BlockWord,
        kind: AllocKind,
    ) -> Result<bool, PoolError> {
        let owned = word.next(BlockState::Owned, kind, self.me());
        if !self.change_word(endpoint, block, word, owned).await? {
            return Ok(false);
        }
        let zeros = vec![0; self.layout().pages as usize * 2];
        post(endpoint, |batch| batch.write(self.layout().block_addr(block), &zeros)).await?;
        self.heap().add(block, OwnBlock::empty(self.layout(), owned));
        Ok(true)
    }

    /// Takes over a block that was closed cleanly, and fetches its free objects. Returns `false` if
    /// another member was faster, or if the block's books are damaged: then nothing is allocated
    /// from it until a sweep rebuilds them.
    pub(crate) async fn reopen(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        word: BlockWord,
    ) -> Result<bool, PoolError> {
        let owned = word.next(BlockState::Owned, word.kind, self.me());
        if !self.change_word(endpoint, block, word, owned).await? {
            return Ok(false);
        }
        let left = self.books_left(endpoint, block, word).await?;
        if !left.damage.is_empty() {
            self.change_word(endpoint, block, owned, word.closed_again(owned)).await?;
            return Ok(false);
        }
        let books = OwnBlock::from_page_words(self.layout(), owned, &left.page_words);
        let claims = self.heap().add_and_claim(block, books);
        self.fetch_claims(endpoint, &claims).await?;
        Ok(true)
    }
}
