//! Verbs as loads, stores and atomics on the mapping. This is the hot path of every local
//! benchmark.
//!
//! Each verb is checked against its region before it accesses a word. `order.rs` defines the order
//! of verbs.
//!
//! A batch with several READs prefetches all of them first, so that their cache misses overlap: the
//! same benefit that a doorbell batch has on a network.

use super::LocalPool;
use super::flush::{Flushing, Raised, Turn};
use super::mapping::Mapping;
use super::memory::Memory;
use super::order::Order;
use crate::call::NodeProcedures;
use crate::fork;
use crate::spares::Spares;
use crate::turns::{self, PORTION_BYTES, VERB_BYTES};
use crate::{Batch, Calling, Endpoint, FabricError, GlobalAddr, RemoteProcedures, Verb, VerbKind};
use std::convert::identity;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words in a cache line.
const LINE_WORDS: u64 = 8;
/// Cache lines prefetched for one READ; the processor's own prefetcher handles longer ones.
const PREFETCH_LINES_MAX: u64 = 4;

/// The regions of all nodes, one after another in one mapping.
#[derive(Debug)]
pub(super) struct Regions {
    mapping: Mapping,
    nodes: u64,
    node_bytes: u64,
}

impl Regions {
    /// `mapping` must have at least `nodes * node_bytes` bytes.
    pub(super) fn new(mapping: Mapping, node_bytes: u64, nodes: usize) -> Self {
        let regions = Self { mapping, nodes: nodes as u64, node_bytes };
        assert!(regions.mapping.words().len() as u64 * 8 >= regions.nodes * node_bytes);
        assert_eq!(node_bytes % 8, 0);
        regions
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes as usize
    }

    pub(super) fn node_bytes(&self) -> u64 {
        self.node_bytes
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Returns the words that a verb names, if they lie inside its region.
    #[inline]
    pub(super) fn locate(&self, verb: &Verb) -> Result<&[AtomicU64], FabricError> {
        self.words(verb.addr, verb.words).ok_or_else(|| self.refusal(verb))
    }

    /// Returns words of a region; `None` if it does not have them.
    #[inline]
    pub(super) fn words(&self, addr: GlobalAddr, words: u32) -> Option<&[AtomicU64]> {
        let (node, offset) = (u64::from(addr.node()), addr.offset());
        // The sum cannot wrap: an offset has 40 bits, a length at most 35.
        let end = offset + u64::from(words) * 8;
        if node >= self.nodes || end > self.node_bytes || offset % 8 != 0 {
            return None;
        }
        let start = (node * self.node_bytes + offset) / 8;
        // SAFETY: `node < nodes` and `end <= node_bytes`, so the range ends at or before `nodes *
        // node_bytes`, which the mapping has (asserted in `new`); `offset` and `node_bytes` are
        // multiples of 8.
        Some(unsafe {
            self.mapping.words().get_unchecked(start as usize..(start + u64::from(words)) as usize)
        })
    }

    /// Returns the error of a verb that [`Regions::locate`] refused.
    #[cold]
    fn refusal(&self, verb: &Verb) -> FabricError {
        let known = u64::from(verb.addr.node()) < self.nodes;
        if known && !verb.addr.offset().is_multiple_of(8) {
            return FabricError::Misaligned { addr: verb.addr };
        }
        FabricError::out_of_bounds(
            verb.addr,
            u64::from(verb.words) * 8,
            if known { self.node_bytes } else { 0 },
        )
    }

    /// Starts to load the first lines of an object into the cache. An address outside the regions
    /// is harmless here.
    #[inline]
    pub(super) fn prefetch(&self, addr: GlobalAddr, words: u32) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let start = u64::from(addr.node()).wrapping_mul(self.node_bytes).wrapping_add(addr.offset());
            let base = self.mapping.words().as_ptr().cast::<i8>();
            let lines = u64::from(words).div_ceil(LINE_WORDS).min(PREFETCH_LINES_MAX);
            for line in 0..lines {
                let target = base.wrapping_add((start + line * LINE_WORDS * 8) as usize);
                // SAFETY: a prefetch is a hint; it reads nothing into the program and never faults.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(target) };
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = (addr, words, LINE_WORDS, PREFETCH_LINES_MAX);
    }

    #[inline]
    fn prefetch_reads(&self, verbs: &[Verb]) {
        if verbs.len() > 1 {
            for verb in verbs.iter().filter(|verb| verb.kind == VerbKind::Read) {
                self.prefetch(verb.addr, verb.words);
            }
        }
    }

    /// [`Regions::execute`] on persistent memory: everything that the batch has stored and read is
    /// on the medium when this returns, also with an error.
    fn execute_flushed(
        &self,
        flushing: &Flushing,
        raised: &mut Raised,
        batch: &mut Batch,
    ) -> Result<(), FabricError> {
        let (verbs, data) = batch.parts_mut();
        self.prefetch_reads(verbs);
        let mut turn = Turn::new(flushing, &self.mapping, raised);
        for verb in verbs {
            let words = self.locate(verb)?;
            let buffer = &mut data[verb.at as usize..];
            turn.execute(verb, words, buffer);
        }
        Ok(())
    }

    /// Executes a batch in posting order. On an error the verbs before the refused one have taken
    /// effect.
    #[inline]
    fn execute(&self, batch: &mut Batch) -> Result<(), FabricError> {
        let (verbs, data) = batch.parts_mut();
        self.prefetch_reads(verbs);
        let mut order = Order::default();
        for verb in verbs {
            let words = self.locate(verb)?;
            perform(&mut order, verb.kind, words, &mut data[verb.at as usize..]);
        }
        Ok(())
    }

    /// [`Regions::execute`] for a thread that takes turns: a turn may end after each verb, and
    /// within a long READ or WRITE.
    async fn execute_in_turns(&self, batch: &mut Batch) -> Result<(), FabricError> {
        let (verbs, data) = batch.parts_mut();
        self.prefetch_reads(verbs);
        let mut order = Order::default();
        for verb in verbs {
            let words = self.locate(verb)?;
            let mut buffer = &mut data[verb.at as usize..];
            turns::worked(VERB_BYTES).await;
            if matches!(verb.kind, VerbKind::Cas | VerbKind::Faa) {
                perform(&mut order, verb.kind, words, buffer);
                continue;
            }
            for portion in words.chunks(PORTION_BYTES / 8) {
                perform(&mut order, verb.kind, portion, buffer);
                buffer = &mut buffer[portion.len()..];
                turns::worked(portion.len() * 8).await;
            }
        }
        Ok(())
    }
}

/// Executes a verb, or a part of a READ or WRITE.
#[inline]
fn perform(order: &mut Order, kind: VerbKind, words: &[AtomicU64], buffer: &mut [u64]) {
    match kind {
        VerbKind::Read => order.load_into(words, buffer, identity),
        VerbKind::Write => order.store(words, buffer.iter().copied()),
        VerbKind::Cas => buffer[0] = order.cas(&words[0], buffer[0], buffer[1]),
        VerbKind::Faa => buffer[0] = order.add(&words[0], buffer[0]),
    }
}

/// One thread's connection to a [`super::Local`] pool.
#[derive(Debug)]
pub struct LocalEndpoint {
    pub(super) pool: Arc<LocalPool>,
    spares: Spares,
    procedures: NodeProcedures,
    /// Buffer for the counters that a batch on persistent memory has raised; empty between batches.
    raised: Raised,
}

impl LocalEndpoint {
    pub(super) fn new(pool: Arc<LocalPool>, procedures: NodeProcedures) -> Self {
        Self { pool, spares: Spares::default(), procedures, raised: Raised::new() }
    }
}

impl Endpoint for LocalEndpoint {
    #[inline]
    fn batch(&mut self) -> Batch {
        self.spares.batch()
    }

    #[inline]
    fn recycle(&mut self, batch: Batch) {
        self.spares.recycle(batch);
    }

    #[inline]
    fn prefetch(&self, addr: GlobalAddr, words: usize) {
        self.pool.regions.prefetch(addr, words as u32);
    }

    #[inline]
    fn peek(&self, addr: GlobalAddr) -> Option<u64> {
        if self.pool.flushing.is_some() {
            // A word read by a peek would have to be flushed.
            return None;
        }
        self.pool.regions.words(addr, 1).map(|words| words[0].load(Ordering::Relaxed))
    }

    #[inline]
    fn memory(&self) -> Option<Memory<'_>> {
        // A word loaded from persistent memory would have to be flushed. In a child process the
        // verbs that are posted instead fail.
        let is_direct = self.pool.flushing.is_none() && fork::check(self.pool.forks).is_ok();
        is_direct.then(|| Memory::new(&self.pool))
    }

    #[inline]
    async fn submit(&mut self, mut batch: Batch) -> Result<Batch, FabricError> {
        fork::check(self.pool.forks)?;
        match &self.pool.flushing {
            None if turns::are_taken() => self.pool.regions.execute_in_turns(&mut batch).await?,
            None => self.pool.regions.execute(&mut batch)?,
            Some(flushing) => {
                self.pool.regions.execute_flushed(flushing, &mut self.raised, &mut batch)?;
                let words: usize = batch.verbs().iter().map(|verb| verb.words as usize).sum();
                turns::worked(batch.len() * VERB_BYTES + words * 8).await;
            }
        }
        Ok(batch)
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        Some(self)
    }
}

impl RemoteProcedures for LocalEndpoint {
    fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Calling<'_> {
        Box::pin(async move {
            if usize::from(node) >= self.pool.regions.nodes() {
                return Err(FabricError::out_of_bounds(GlobalAddr::new(node, 0), 0, 0));
            }
            let procedures = self.procedures.of(node).map_err(|fault| fault.of(node, procedure))?;
            procedures.run(procedure, words).await.map_err(|fault| fault.of(node, procedure))
        })
    }
}
