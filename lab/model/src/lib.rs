//! The provider of the benchmark's model: a cluster on which any index runs unchanged, in virtual
//! time.
//!
//! Its memory is this process's, its clock is that of a queueing model: a verb waits for its
//! thread's processor, the NICs of both machines, their links, and an atomic also for its address
//! (lab/docs/model.md draws it). This determines when each verb takes effect, and so which client
//! loses a race and retries. One thread of the host runs all of it; equal descriptions and equal
//! tasks give equal times to the picosecond.
//!
//! - [`ModelSpec`] describes a cluster: there are four published testbeds, of which every number
//!   can be changed.
//! - [`Model`] is the fabric, seen from one compute node; all of them share the cluster's memory
//!   and clock.
//! - [`Cluster`] runs client tasks on the cluster's threads. Outside of it verbs execute as they
//!   are posted and cost nothing; pools are created, filled and checked this way.
//! - [`Report`] lists how busy each resource was.
//!
//! A node can have procedures ([`Model::with_procedures`]): a call takes one of its cores for a
//! time.
//!
//! READs and WRITEs of several words take effect at one instant: they do not tear here. Compute
//! nodes do not fail. `darter-sim` covers both.
//!
//! ```
//! use darter_model::{Cluster, Model, ModelSpec};
//! use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr};
//!
//! let spec: ModelSpec = "preset=dart,threads=6,jitter-ns=0".parse()?;
//! let model = Model::new(&spec)?;
//! let (report, outputs) = Cluster::drive(&model, |seat| {
//!     let fabric = model.compute_node(seat.compute_node);
//!     async move {
//!         let mut endpoint = fabric.endpoint()?;
//!         for _ in 0..100 {
//!             let mut batch = endpoint.batch();
//!             batch.read(GlobalAddr::new(0, 4096), 16);
//!             let done = endpoint.submit(batch).await?;
//!             endpoint.recycle(done);
//!         }
//!         Ok::<u64, FabricError>(100)
//!     }
//! })?;
//! let reads: u64 = outputs.into_iter().sum::<Result<_, _>>()?;
//! assert!(report.per_s(reads) > 2.9e6 && report.per_s(reads) < 3.1e6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call_flight;
mod calls;
mod cluster;
mod fabric;
mod memory;
mod nic;
mod parameters;
mod report;
mod spec;
mod world;

pub use cluster::{Cluster, Stuck};
pub use fabric::{Model, ModelEndpoint};
pub use parameters::{ModelSpec, PARAMETERS, Parameter, Preset, Unit};
pub use report::{Bottleneck, MachineUse, Report, Resource};
pub use spec::{Seat, Setting, SpecError};

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod papers;
#[cfg(test)]
mod tests;
