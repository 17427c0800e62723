//! The provider for memory nodes over RDMA: verbs go through a device, all else as over TCP.
//!
//! A client of a memory node has a TCP connection to it, as [`crate::tcp`] describes; over it, both
//! pair two queues of their devices once ([`crate::wire::Pairing`]). From then on a batch is one
//! chain of work requests for each node it names, posted with one call, and the node's processor
//! takes no part. The connection stays: its end is how each side learns that the other is gone.
//!
//! - `name`: how a device is named on a command line.
//! - `verbs`: the binding to libibverbs, opened when a device is first named.
//! - `device`: an open device, and memory registered with it.
//! - `arena`: registered memory for the words of batches.
//! - `queue`: queue pairs and completion queues.
//! - `lane`: the client's way to one node: batches become chains, completions end them.
//! - `probe`: what a device does where the specification leaves it free.
//! - `bare`: verbs and nothing else, to measure against.
//! - `export`: the node's side: the region registered, a queue pair for each client.
//!
//! What RDMA promises less than memory and TCP do is stated in [`crate::Endpoint`]'s contract and
//! in `docs/rdma.md`.

mod arena;
mod bare;
mod device;
mod export;
mod lane;
mod name;
mod probe;
mod queue;
mod verbs;

pub use bare::BareLoop;
pub use export::{Export, ServedQueue};
pub(crate) use lane::{Lane, Posted, Target};
pub use name::{DeviceName, DeviceNameError};
pub use probe::{ProbeReport, Share, probe};
pub(crate) use queue::{CompletionQueue, Queue};

use crate::FabricError;
use crate::words::Lender;
use arena::Arena;
use device::Device;
use std::sync::Arc;

/// A device as a client uses it, with the memory of its batches.
#[derive(Clone, Debug)]
pub(crate) struct Adapter {
    device: Arc<Device>,
    pub buffers: Arc<dyn Lender>,
}

impl Adapter {
    /// Opens a device.
    ///
    /// # Errors
    /// Fails if the library, the device or its address is missing; the message says what to do.
    pub(crate) fn open(name: &DeviceName) -> Result<Self, FabricError> {
        let device = Device::open(name)?;
        let buffers = Arc::new(Arena::new(Arc::clone(&device)));
        Ok(Self { device, buffers })
    }

    /// Returns a queue for the completions of one thread.
    ///
    /// # Errors
    /// Fails if the device has no room for one.
    pub(crate) fn completions(&self) -> Result<Arc<CompletionQueue>, FabricError> {
        CompletionQueue::new(&self.device).map(Arc::new)
    }

    /// Describes the device for an operator.
    pub(crate) fn describe(&self) -> String {
        self.device.describe()
    }
}
