//! The processes that may use a pool: member slots held by live processes, and the fencing of
//! processes that may be dead.

use crate::FabricError;

/// The part of a provider that tracks live processes.
pub trait Membership {
    /// Takes client slot `slot` for this process, which holds it while it may write.
    ///
    /// # Errors
    /// [`FabricError::IdentityTaken`] if another live process holds it.
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError>;

    /// Ensures that none of a client's verbs can take effect any longer, or reports that it is
    /// alive.
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached; then the outcome is unknown. If the error names another
    /// node than 0, node 0 has fenced the client.
    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError>;
}

/// The outcome of an attempt to fence a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceOutcome {
    /// The client is gone or fenced; its epoch may be ignored and its blocks adopted.
    Fenced,
    /// The client is alive and must not be disturbed.
    Alive,
    /// The provider cannot decide. The client is alive if it renews its lease.
    Unknown,
}

/// Holds a client's identity at the provider until dropped; its loss proves to other clients that
/// the client is dead.
pub trait Identity: Send + Sync + std::fmt::Debug {
    /// Returns the provider's number for the holder, which a [`Suspect`] contains; 0 if the slot
    /// suffices.
    fn holder(&self) -> u64 {
        0
    }
}

/// A client that may be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Its client slot.
    pub slot: u32,
    /// [`Identity::holder`], as the client published it.
    pub holder: u64,
    /// It has been silent for longer than its lease: a provider that can fence it does so even if
    /// it may be alive.
    pub lapsed: bool,
}
