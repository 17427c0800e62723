//! Decorators: fabrics that wrap any other and add one concern to every verb that passes.
//!
//! | decorator | what it adds |
//! |---|---|
//! | [`Counting`] | exact counts of round trips, verbs and bytes by kind of operation |
//! | [`Tracing`] | a bounded record of the latest verbs, for tests and printing |
//! | [`Failing`] | an error at a chosen verb or batch, as if the client had died there |
//! | [`Delaying`] | pending polls before and after the verbs, at which a future can be dropped; random delays |
//! | [`Aging`] | how soon memory is written again |
//! | [`Reading`] | the refusals of a memory node whose client has a read-only token |
//!
//! They stack: each forwards the methods that it does not handle.

mod aging;
mod counting;
mod delaying;
mod failing;
mod jitter;
mod reading;
mod tracing;

pub use aging::{AGES, AgeTally, Ages, Aging, AgingEndpoint};
pub use counting::{Counting, CountingEndpoint};
pub use delaying::{Delay, Delaying, DelayingEndpoint};
pub use failing::{FailPlan, FailPoint, Failing, FailingEndpoint};
pub use jitter::{Jitter, JitterCounts, JitterTally};
pub use reading::{Reading, ReadingEndpoint};
pub use tracing::{Trace, TracedVerb, Tracing, TracingEndpoint};

/// Implements [`crate::Membership`] for a decorator by its `inner` fabric.
macro_rules! forward_membership {
    ($decorator:ident) => {
        impl<F: crate::Fabric> crate::Membership for $decorator<F> {
            fn claim(&self, slot: u32) -> Result<Box<dyn crate::Identity>, crate::FabricError> {
                self.inner.claim(slot)
            }

            fn fence(&self, suspect: crate::Suspect) -> Result<crate::FenceOutcome, crate::FabricError> {
                self.inner.fence(suspect)
            }
        }
    };
}

/// Implements the methods of [`crate::Fabric`] that a decorator leaves to its `inner` fabric.
macro_rules! forward_fabric {
    () => {
        #[inline]
        fn nodes(&self) -> usize {
            self.inner.nodes()
        }

        #[inline]
        fn node_bytes(&self, node: u8) -> u64 {
            self.inner.node_bytes(node)
        }

        fn capabilities(&self) -> crate::Capabilities {
            self.inner.capabilities()
        }

        fn persist(&self) -> Result<(), crate::FabricError> {
            self.inner.persist()
        }

        fn verify(&self) -> Result<(), crate::FabricError> {
            self.inner.verify()
        }

        fn notes(&self) -> Vec<String> {
            self.inner.notes()
        }

        #[inline]
        fn remote_nodes(&self) -> &dyn crate::RemoteNodes {
            self.inner.remote_nodes()
        }

        fn replica_groups(&self) -> &dyn crate::ReplicaGroups {
            self.inner.replica_groups()
        }

        fn on_chip_memory(&self) -> &dyn crate::OnChipMemory {
            self.inner.on_chip_memory()
        }

        #[inline]
        fn memory_observer(&self) -> &dyn crate::MemoryObserver {
            self.inner.memory_observer()
        }
    };
}

/// Implements the methods of [`crate::Endpoint`] that concern statistics.
macro_rules! forward_statistics {
    () => {
        #[inline]
        fn begin(&mut self, kind: crate::OpKind) {
            self.inner.begin(kind);
        }

        #[inline]
        fn retried(&mut self) {
            self.inner.retried();
        }

        #[inline]
        fn counters(&self) -> Option<&crate::Counters> {
            self.inner.counters()
        }
    };
}

/// Implements the methods of [`crate::Endpoint`] that concern buffers, verbs in flight, and the
/// provider's clock.
macro_rules! forward_endpoint {
    () => {
        #[inline]
        fn batch(&mut self) -> crate::Batch {
            self.inner.batch()
        }

        #[inline]
        fn recycle(&mut self, batch: crate::Batch) {
            self.inner.recycle(batch);
        }

        #[inline]
        fn prefetch(&self, addr: crate::GlobalAddr, words: usize) {
            self.inner.prefetch(addr, words);
        }

        #[inline]
        fn peek(&self, addr: crate::GlobalAddr) -> Option<u64> {
            self.inner.peek(addr)
        }

        #[inline]
        fn in_flight(&self) -> usize {
            self.inner.in_flight()
        }

        fn orphans(&self) -> Option<std::sync::Arc<dyn crate::Orphans>> {
            self.inner.orphans()
        }

        fn now_ms(&self) -> u64 {
            self.inner.now_ms()
        }

        fn pause(&mut self) -> impl Future<Output = ()> + Send {
            self.inner.pause()
        }

        #[inline]
        fn observer(&mut self) -> Option<&mut dyn crate::ClientObserver> {
            self.inner.observer()
        }
    };
}

use {forward_endpoint, forward_fabric, forward_membership, forward_statistics};
