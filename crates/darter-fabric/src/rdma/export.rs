//! A memory node's side: its region registered with a device, and a queue pair for each connection
//! of a client that requests one. After the pairing the node's processor is not involved.

use super::device::{Device, Registration, Use};
use super::name::DeviceName;
use super::queue::{CompletionQueue, Queue};
use crate::wire::Pairing;
use crate::{FabricError, Local};
use std::sync::Arc;

/// A region that clients' devices may read and write.
#[derive(Debug)]
pub struct Export {
    registration: Registration,
    device: Arc<Device>,
    /// Of all queue pairs; nothing is ever posted on them here.
    completions: Arc<CompletionQueue>,
}

/// A client's queue pair. After it is dropped, no verb of the client takes effect.
#[derive(Debug)]
pub struct ServedQueue(#[allow(dead_code, reason = "what counts is when it is dropped")] Queue);

impl Export {
    /// Registers the region of a local fabric of one node.
    ///
    /// # Errors
    /// Fails if the library or the device is missing or cannot be used, if the region is an
    /// ordinary file, or if its memory cannot be pinned; the message says what to do.
    pub fn new(name: &DeviceName, memory: &Local) -> Result<Self, FabricError> {
        memory.check_pinnable()?;
        let device = Device::open(name)?;
        let registration = device.register(memory.clone(), Use::Region)?;
        let completions = Arc::new(CompletionQueue::new(&device)?);
        Ok(Self { registration, device, completions })
    }

    /// Creates a queue pair for a client and connects it to the client's. Returns the data that the
    /// client needs to connect its own.
    ///
    /// # Errors
    /// Fails if the client's numbers are invalid, the devices cannot reach each other, or this one
    /// has no room for another queue pair.
    pub fn pair(&self, theirs: &Pairing) -> Result<(ServedQueue, Pairing), FabricError> {
        let queue = Queue::new(&self.completions)?;
        queue.connect(theirs, true)?;
        let ours = Pairing {
            base: self.registration.base(),
            key: self.registration.remote_key(),
            ..queue.pairing()
        };
        Ok((ServedQueue(queue), ours))
    }

    /// Returns a description of the device for an operator.
    pub fn describe(&self) -> String {
        self.device.describe()
    }
}
