//! The provider for memory nodes over RDMA: verbs use a device, everything else uses TCP.
//!
//! A client of a memory node has a TCP connection to it, as described in [`crate::tcp`]; over it,
//! both sides pair two queues of their devices once ([`crate::wire::Pairing`]). From then on a
//! batch is one chain of work requests for each node that it names, posted with one call, without
//! the node's processor. The connection stays open: its end tells each side that the other is gone.
//!
//! - `name`: how a device is named on a command line.
//! - `verbs`: the binding to libibverbs, opened when a device is first named.
//! - `device`: an open device, and memory registered with it.
//! - `arena`: registered memory for the words of batches.
//! - `queue`: queue pairs and completion queues.
//! - `lane`: the client's connection to one node: batches become chains, completions end them.
//! - `probe`: tests of a device's behaviour that the specification leaves open.
//! - `bare`: only verbs, as a baseline for measurements.
//! - `export`: the node's side: the region registered, a queue pair for each client.
//!
//! The guarantees of RDMA that are weaker than those of memory and TCP are listed in
//! [`crate::Endpoint`]'s contract and in `docs/rdma.md`.

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

/// A device in use by a client, with the memory of its batches.
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
