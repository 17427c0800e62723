//! The memory of a replica, as the protocol uses it.

use darter_fabric::effects::EffectsObserver;
use darter_fabric::local::LocalEndpoint;
use darter_fabric::wire::FrameVerbs;
use darter_fabric::{Fabric, FabricError, Local};

/// A region that executes frames and reports what they change.
pub trait Memory {
    /// Executes a frame's verbs in order, appends the words of their results, and reports their
    /// effects to the observer.
    ///
    /// # Errors
    /// Fails if a verb lies outside the region; then no verb was executed.
    fn execute(
        &mut self,
        verbs: FrameVerbs<'_>,
        results: &mut Vec<u8>,
        observer: &mut EffectsObserver<'_>,
    ) -> Result<(), FabricError>;

    /// Stores whole words. Returns whether they lie in the region.
    fn store(&mut self, offset: u64, bytes: &[u8]) -> bool;

    /// Copies whole words of the region to a buffer.
    fn copy(&self, offset: u64, buffer: &mut [u8]);

    /// Returns the bytes of the region.
    fn bytes(&self) -> u64;
}

/// Returns whether all bytes are zero. Checks a cache line per iteration.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    let (lines, rest) = bytes.as_chunks::<64>();
    // Four times as fast as a comparison, which calls a function.
    lines.iter().all(|line| line.iter().fold(0, |seen, byte| seen | byte) == 0)
        && rest.iter().all(|byte| *byte == 0)
}

/// The first region of this process's memory.
#[derive(Debug)]
pub struct Region {
    endpoint: LocalEndpoint,
    bytes: u64,
}

impl Region {
    /// Returns the region of node 0.
    ///
    /// # Errors
    /// As for [`Fabric::endpoint`].
    pub fn new(local: &Local) -> Result<Self, FabricError> {
        Ok(Self { endpoint: local.endpoint()?, bytes: local.node_bytes(0) })
    }
}

impl Memory for Region {
    fn execute(
        &mut self,
        verbs: FrameVerbs<'_>,
        results: &mut Vec<u8>,
        observer: &mut EffectsObserver<'_>,
    ) -> Result<(), FabricError> {
        self.endpoint.execute_frame_observed(verbs, results, observer)
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> bool {
        self.endpoint.store_words(offset, bytes).is_ok()
    }

    fn copy(&self, offset: u64, buffer: &mut [u8]) {
        // The caller passes only parts of the region.
        let copied = self.endpoint.copy_words(offset, buffer);
        debug_assert!(copied.is_ok(), "the part lies outside the region");
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
