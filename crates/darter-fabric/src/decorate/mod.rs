//! Decorators: fabrics that wrap any other and add one concern to every verb that passes.
//!
//! | decorator | what it adds |
//! |---|---|
//! | [`Counting`] | exact counts of round trips, verbs and bytes by kind of operation |
//! | [`Tracing`] | a bounded record of the latest verbs, for tests and printing |
//! | [`Failing`] | an error at a chosen verb or batch, as if the client had died there |
//! | [`Delaying`] | pending polls before and after the verbs, at which a future can be dropped; random delays |
//! | [`Aging`] | how soon memory is written again |
//!
//! They stack: each forwards what it does not handle itself.

mod aging;
mod counting;
mod delaying;
mod failing;
mod jitter;
mod tracing;

pub use aging::{AGES, AgeTally, Ages, Aging, AgingEndpoint};
pub use counting::{Counting, CountingEndpoint};
pub use delaying::{Delay, Delaying, DelayingEndpoint};
pub use failing::{FailPlan, FailPoint, Failing, FailingEndpoint};
pub use jitter::{Jitter, JitterCounts, JitterTally};
pub use tracing::{Trace, TracedVerb, Tracing, TracingEndpoint};

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

        fn node_address(&self, node: u8) -> Option<String> {
            self.inner.node_address(node)
        }

        fn add_node(&self, node: u8, address: &str) -> Result<(), crate::FabricError> {
            self.inner.add_node(node, address)
        }

        fn node_id(&self, node: u8) -> Option<u64> {
            self.inner.node_id(node)
        }

        fn expect_node(&self, node: u8, expected: &crate::ExpectedNode) -> Result<(), crate::FabricError> {
            self.inner.expect_node(node, expected)
        }

        #[inline]
        fn is_absent(&self, node: u8) -> bool {
            self.inner.is_absent(node)
        }

        #[inline]
        fn is_lost(&self, node: u8) -> bool {
            self.inner.is_lost(node)
        }

        fn disown_node(&self, node: u8) {
            self.inner.disown_node(node);
        }

        fn look_for_absent(&self) {
            self.inner.look_for_absent();
        }

        fn forget_node(&self, node: u8) {
            self.inner.forget_node(node);
        }

        fn replicas(&self, node: u8) -> Vec<crate::ReplicaStatus> {
            self.inner.replicas(node)
        }

        fn compare_replicas(&self, node: u8) -> crate::ReplicaComparison {
            self.inner.compare_replicas(node)
        }

        fn hand_over(
            &self,
            node: u8,
            to: &str,
            patience: std::time::Duration,
        ) -> Result<(), crate::FabricError> {
            self.inner.hand_over(node, to, patience)
        }

        fn capabilities(&self) -> crate::Capabilities {
            self.inner.capabilities()
        }

        fn place_on_chip(&self, addr: crate::GlobalAddr, bytes: u64) -> bool {
            self.inner.place_on_chip(addr, bytes)
        }

        fn notes(&self) -> Vec<String> {
            self.inner.notes()
        }

        #[inline]
        fn note_object(&self, addr: crate::GlobalAddr, bytes: u64, state: crate::ObjectState) {
            self.inner.note_object(addr, bytes, state);
        }

        #[inline]
        fn note_grace(&self, stamp: u64) {
            self.inner.note_grace(stamp);
        }

        fn claim(&self, slot: u32) -> Result<Box<dyn crate::Identity>, crate::FabricError> {
            self.inner.claim(slot)
        }

        fn fence(&self, suspect: crate::Suspect) -> Result<crate::FenceOutcome, crate::FabricError> {
            self.inner.fence(suspect)
        }

        fn persist(&self) -> Result<(), crate::FabricError> {
            self.inner.persist()
        }

        fn verify(&self) -> Result<(), crate::FabricError> {
            self.inner.verify()
        }
    };
}

/// Implements the methods of [`crate::Endpoint`] that concern buffers, what is under way, and the
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
        fn glance(&self, addr: crate::GlobalAddr) -> Option<u64> {
            self.inner.glance(addr)
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
        fn refuses_allocation(&mut self) -> bool {
            self.inner.refuses_allocation()
        }

        #[inline]
        fn note_pin(&mut self, epoch: Option<u64>) {
            self.inner.note_pin(epoch);
        }
    };
}

use {forward_endpoint, forward_fabric};
