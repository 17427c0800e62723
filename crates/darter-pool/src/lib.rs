//! Ownership of memory: blocks, slabs, epochs, leases and reclamation in a memory pool that clients
//! reach only by one-sided verbs (DART, section 4.4).
//!
//! - [`Pool`]: a process's membership in a pool: create, open, upkeep, audit, sweep, close.
//! - [`Client`]: one thread's or task's access: verbs, pins, allocation, retirement.
//! - [`ReachableSet`]: the objects that an index can reach, for [`Pool::audit`] and
//!   [`Pool::finish_adoption`].
//! - [`size_class`]: the 128 sizes of objects.
//!
//! A process gets each block by a CAS on the block's word and cuts it into slabs without further
//! coordination. Memory nodes run no code. Any process may free any object: it sets a bit where the
//! object's owner will find it. A process that ends cleanly leaves exact books in its blocks. If a
//! process dies, any other may adopt and sweep its blocks, given the objects that the index can
//! reach.
//!
//! ```
//! use darter_fabric::{Local, OpKind, block_on};
//! use darter_pool::{AllocKind, Pool, PoolError, PoolOptions};
//!
//! # fn main() -> Result<(), PoolError> {
//! let pool = block_on(Pool::create(Local::memory(8 << 20, 2)?, &PoolOptions::default()))?;
//! let mut client = pool.client()?;
//! block_on(async {
//!     let mut pinned = client.pin(OpKind::Insert).await?;
//!     let leaf = pinned.alloc(1, 100, AllocKind::Leaf).await?;
//!     let mut batch = pinned.batch();
//!     batch.write(leaf, &[1, 2, 3]);
//!     let done = pinned.submit(batch).await?;
//!     pinned.recycle(done);
//!     pinned.retire(leaf, 100, AllocKind::Leaf);
//!     Ok(())
//! })
//! # }
//! ```

mod blocks;
mod checksum;
mod client;
mod create;
mod error;
#[cfg(test)]
mod fixtures;
mod laggard;
mod maintenance;
mod members;
mod pool;
mod process;
mod reclaim;
mod region;
mod round_trip;
mod sync;
mod usage;

pub use blocks::{AllocKind, AuditReport, ForgottenNodes, MemberId, ReachableSet, size_class};
pub use client::{Client, Pinned};
pub use create::PoolOptions;
pub use error::PoolError;
pub use laggard::Laggard;
pub use maintenance::{Balancing, Removal};
pub use members::{Adoption, SweepReport, erase_if_lost, members_in_use};
pub use pool::{Pool, SnapshotsHeldBack};
pub use reclaim::{Extension, Leftovers, Room, RoomRequest, SnapshotId, Unlinked};
pub use region::{HEAD_BYTES, ROOT_WORDS};
pub use round_trip::{Completed, Swap};
pub use usage::{BlockHolder, BlockRun, MemberUsage, NodeStanding, NodeUsage, PoolUsage};
