//! Which processes may use a pool: member slots that live processes hold, and the fencing of those
//! that may be dead.

use crate::FabricError;

/// The part of a provider that knows which processes live.
pub trait Membership {
    /// Takes client slot `slot` for this process, which holds it as long as it may write.
    ///
    /// # Errors
    /// [`FabricError::IdentityTaken`] if another live process holds it.
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError>;

    /// Ensures that none of a client's verbs can take effect any longer, or reports that it lives.
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached, so that nothing is known.
    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError>;
}

/// The outcome of an attempt to fence a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceOutcome {
    /// The client is gone or shut out; its epoch may be ignored and its blocks adopted.
    Fenced,
    /// The client lives; leave it alone.
    Alive,
    /// The provider does not know. The client is alive if it renews its lease.
    Unknown,
}

/// Holds a client's identity at the provider until dropped; its loss proves to others that the
/// client is dead.
pub trait Identity: Send + Sync + std::fmt::Debug {
    /// Returns the provider's number for the holder, by which others name it in a [`Suspect`]; 0 if
    /// the slot suffices.
    fn holder(&self) -> u64 {
        0
    }
}

/// A client that may be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The client slot it took.
    pub slot: u32,
    /// [`Identity::holder`], as the client published it.
    pub holder: u64,
    /// It has been silent for longer than its lease: a provider that can shut it out does so even
    /// if it may live.
    pub lapsed: bool,
}
