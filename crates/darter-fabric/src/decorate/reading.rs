//! Limits a process to reading, as a memory node limits a client whose token is a read-only one: for
//! tests of whether a pool and an index keep to that.

use super::{forward_endpoint, forward_statistics};
use crate::local::Memory;
use crate::member_lines::OwnLine;
use crate::{
    Batch, Capabilities, Endpoint, Fabric, FabricError, FenceOutcome, Identity, Membership, MemoryObserver,
    RemoteNodes, Suspect, VerbKind,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// No slot.
const NONE: u64 = u64::MAX;

/// A fabric that refuses batches which would change more than the member line of the slot that the
/// process has claimed. None of the verbs of such a batch takes effect. It cannot call procedures.
#[derive(Clone, Debug)]
pub struct Reading<F> {
    inner: F,
    claimed: Arc<Claimed>,
}

/// The last claim of the process.
#[derive(Debug)]
struct Claimed {
    slot: AtomicU64,
    holder: AtomicU64,
    refused: AtomicU64,
}

impl<F> Reading<F> {
    /// Wraps a fabric.
    pub fn new(inner: F) -> Self {
        let claimed =
            Claimed { slot: AtomicU64::new(NONE), holder: AtomicU64::new(0), refused: AtomicU64::new(0) };
        Self { inner, claimed: Arc::new(claimed) }
    }

    /// Returns the number of requests that were refused.
    pub fn refused(&self) -> u64 {
        self.claimed.refused.load(Ordering::Relaxed)
    }
}

impl Claimed {
    fn line(&self) -> Option<OwnLine> {
        let slot = self.slot.load(Ordering::Relaxed);
        (slot != NONE).then(|| OwnLine { slot, holder: self.holder.load(Ordering::Relaxed) })
    }

    fn refuse(&self, node: u8) -> FabricError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        FabricError::ReadOnly { node }
    }

    /// Returns a memory node that refuses a batch, if one does.
    fn refusing(&self, batch: &mut Batch) -> Option<u8> {
        let line = self.line();
        let (verbs, data) = batch.parts_mut();
        let refused = verbs.iter().find(|verb| {
            let at = verb.at as usize;
            let words = &data[at..at + verb.request_words()];
            let carried: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let is_own = verb.addr.node() == 0 && line.is_some_and(|line| line.may_change(verb, &carried));
            !is_own && verb.kind != VerbKind::Read
        });
        refused.map(|verb| verb.addr.node())
    }
}

impl<F: Fabric> Membership for Reading<F> {
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        let identity = self.inner.claim(slot)?;
        self.claimed.slot.store(slot.into(), Ordering::Relaxed);
        self.claimed.holder.store(identity.holder(), Ordering::Relaxed);
        Ok(identity)
    }

    fn fence(&self, _: Suspect) -> Result<FenceOutcome, FabricError> {
        Err(self.claimed.refuse(0))
    }
}

impl<F: Fabric> Fabric for Reading<F> {
    type Endpoint = ReadingEndpoint<F::Endpoint>;

    fn endpoint(&self) -> Result<Self::Endpoint, FabricError> {
        Ok(ReadingEndpoint { inner: self.inner.endpoint()?, claimed: Arc::clone(&self.claimed) })
    }

    fn nodes(&self) -> usize {
        self.inner.nodes()
    }

    fn node_bytes(&self, node: u8) -> u64 {
        self.inner.node_bytes(node)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { reads_only: true, calls: false, ..self.inner.capabilities() }
    }

    fn persist(&self) -> Result<(), FabricError> {
        Err(self.claimed.refuse(0))
    }

    fn remote_nodes(&self) -> &dyn RemoteNodes {
        self.inner.remote_nodes()
    }

    fn memory_observer(&self) -> &dyn MemoryObserver {
        self.inner.memory_observer()
    }
}

/// An endpoint of a [`Reading`] fabric.
#[derive(Debug)]
pub struct ReadingEndpoint<E> {
    inner: E,
    claimed: Arc<Claimed>,
}

impl<E: Endpoint> Endpoint for ReadingEndpoint<E> {
    forward_endpoint!();
    forward_statistics!();

    #[inline]
    fn memory(&self) -> Option<Memory<'_>> {
        self.inner.memory()
    }

    async fn submit(&mut self, mut batch: Batch) -> Result<Batch, FabricError> {
        match self.claimed.refusing(&mut batch) {
            Some(node) => Err(self.claimed.refuse(node)),
            None => self.inner.submit(batch).await,
        }
    }
}
