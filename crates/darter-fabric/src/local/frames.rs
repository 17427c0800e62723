//! Executes the verbs of a frame on this memory: used by a memory node to serve clients across a
//! network, and for its other accesses to the memory.

use super::LocalEndpoint;
use super::endpoint::Regions;
use super::order::Order;
use crate::wire::FrameVerbs;
use crate::{FabricError, GlobalAddr, Verb, VerbKind};

/// Receives the effects of a frame's verbs as they execute, in order. Nothing happens between a
/// verb and its report if no other thread executes verbs.
pub trait FrameObserver {
    /// A READ, or a CAS that failed, has read this number of bytes at an offset; `is_volatile` says
    /// whether the verb is [volatile](crate::Batch::volatile).
    fn saw(&mut self, offset: u64, bytes: usize, is_volatile: bool);

    /// A verb has stored these words, little-endian, at an offset. The word that a FAA or a CAS
    /// found is not reported in addition.
    fn wrote(&mut self, offset: u64, bytes: &[u8], is_volatile: bool);
}

impl FrameObserver for () {
    #[inline]
    fn saw(&mut self, _offset: u64, _bytes: usize, _is_volatile: bool) {}

    #[inline]
    fn wrote(&mut self, _offset: u64, _bytes: &[u8], _is_volatile: bool) {}
}

impl LocalEndpoint {
    /// Executes the verbs of a request on node 0, in order, and appends their results to `out`.
    ///
    /// # Errors
    /// Fails like a batch of these verbs, except that then none of them has taken effect.
    pub fn execute_frame(&mut self, verbs: FrameVerbs<'_>, out: &mut Vec<u8>) -> Result<(), FabricError> {
        self.execute_frame_observed(verbs, out, &mut ())
    }

    /// [`LocalEndpoint::execute_frame`], with an observer of the verbs' effects.
    ///
    /// # Errors
    /// Fails as [`LocalEndpoint::execute_frame`] does; then the observer was not called.
    pub fn execute_frame_observed(
        &mut self,
        verbs: FrameVerbs<'_>,
        out: &mut Vec<u8>,
        observer: &mut impl FrameObserver,
    ) -> Result<(), FabricError> {
        self.check_unflushed()?;
        self.pool.regions.execute_frame(verbs, out, observer)
    }

    /// Fails on persistent memory: frames are not flushed.
    fn check_unflushed(&self) -> Result<(), FabricError> {
        if self.pool.flushing.is_some() {
            return Err(FabricError::geometry(
                "a pool with `durability=flush` cannot be served across a network; nodes keep a log instead",
            ));
        }
        Ok(())
    }

    /// Copies whole words of node 0 at an offset, little-endian.
    ///
    /// # Errors
    /// Fails like a READ of them.
    pub fn copy_words(&self, offset: u64, bytes: &mut [u8]) -> Result<(), FabricError> {
        self.check_unflushed()?;
        let words = self.pool.regions.locate(&verb(VerbKind::Read, offset, bytes.len())?)?;
        Order::default().load_into(words, bytes.as_chunks_mut().0, u64::to_le_bytes);
        Ok(())
    }

    /// Stores whole words of node 0 at an offset, little-endian.
    ///
    /// # Errors
    /// Fails like a WRITE of them.
    pub fn store_words(&self, offset: u64, bytes: &[u8]) -> Result<(), FabricError> {
        self.check_unflushed()?;
        let words = self.pool.regions.locate(&verb(VerbKind::Write, offset, bytes.len())?)?;
        Order::default().store(words, bytes.chunks_exact(8).map(word));
        Ok(())
    }
}

fn verb(kind: VerbKind, offset: u64, bytes: usize) -> Result<Verb, FabricError> {
    if offset >= crate::OFFSET_LIMIT {
        return Err(FabricError::out_of_bounds(GlobalAddr::new(0, 0), offset, crate::OFFSET_LIMIT));
    }
    let addr = GlobalAddr::new(0, offset);
    Ok(Verb { kind, addr, at: 0, words: (bytes / 8) as u32, is_fenced: false, is_volatile: false })
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Regions {
    /// [`Regions::execute`] for the verbs of a frame; appends their results to `out`.
    #[inline]
    fn execute_frame(
        &self,
        verbs: FrameVerbs<'_>,
        out: &mut Vec<u8>,
        observer: &mut impl FrameObserver,
    ) -> Result<(), FabricError> {
        if verbs.reach() > self.node_bytes() {
            // Fails before any verb is executed.
            verbs.clone().try_for_each(|(verb, _)| self.locate(&verb).map(drop))?;
        }
        let mut order = Order::default();
        for (verb, carried) in verbs {
            let words = self.locate(&verb)?;
            let (offset, is_volatile) = (verb.addr.offset(), verb.is_volatile);
            match verb.kind {
                VerbKind::Read => {
                    let at = out.len();
                    out.resize(at + words.len() * 8, 0);
                    order.load_into(words, out[at..].as_chunks_mut().0, u64::to_le_bytes);
                    observer.saw(offset, words.len() * 8, is_volatile);
                }
                VerbKind::Write => {
                    order.store(words, carried.chunks_exact(8).map(word));
                    observer.wrote(offset, &carried[..words.len() * 8], is_volatile);
                }
                VerbKind::Cas => {
                    let (expected, desired) = (word(carried), &carried[8..]);
                    let found = order.cas(&words[0], expected, word(desired));
                    out.extend_from_slice(&found.to_le_bytes());
                    if found == expected {
                        observer.wrote(offset, &desired[..8], is_volatile);
                    } else {
                        observer.saw(offset, 8, is_volatile);
                    }
                }
                VerbKind::Faa => {
                    let found = order.add(&words[0], word(carried));
                    out.extend_from_slice(&found.to_le_bytes());
                    let stored = found.wrapping_add(word(carried));
                    observer.wrote(offset, &stored.to_le_bytes(), is_volatile);
                }
            }
        }
        Ok(())
    }
}
