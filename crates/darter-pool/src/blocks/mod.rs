//! Blocks: which member may cut objects from which memory, and which of a process's objects are
//! free.
//!
//! | file | contents |
//! |---|---|
//! | `size_class` | the 128 sizes of objects |
//! | `object` | kinds of objects; an object packed into a word |
//! | `layout` | positions of blocks, pages and objects |
//! | `node_use` | how this process uses each memory node |
//! | `block` | the word that names a block's owner |
//! | `slab`, `heap` | the process's books of its blocks, without verbs |
//! | `magazine`, `stock` | the objects that each client keeps, without a shared lock |
//! | `share` | [`Blocks`], the process's share, on which the files below operate |
//! | `grant` | sources of objects |
//! | `claims` | how objects that others freed come back |
//! | `release` | how objects of others and empty blocks go back |
//! | `hand_over` | how other blocks leave a process that continues |
//! | `close` | exact books for the next owner |
//! | `reachable` | the objects that an index can reach |
//! | `rebuild`, `sweep` | books rebuilt from those objects |
//! | `audit` | books compared with those objects |
//!
//! This module does not depend on epochs or leases. Its callers pass in which members live, how
//! many nodes are usable, and which objects no reader can hold.

mod audit;
mod bits;
mod block;
mod claims;
mod close;
mod grant;
mod hand_over;
mod heap;
#[cfg(test)]
mod heap_model;
#[cfg(test)]
mod interleavings;
mod layout;
mod magazine;
mod node_use;
mod object;
mod reachable;
mod rebuild;
mod release;
mod share;
pub mod size_class;
mod slab;
mod stock;
mod sweep;

pub use audit::AuditReport;
pub use block::MemberId;
pub(crate) use block::{BlockState, BlockWord};
pub(crate) use grant::NewBlocks;
pub(crate) use layout::{BlockId, Layout};
pub(crate) use magazine::MagazineList;
pub use node_use::ForgottenNodes;
pub(crate) use node_use::NodeUse;
pub use object::AllocKind;
pub(crate) use object::Object;
pub use reachable::ReachableSet;
pub(crate) use rebuild::VIOLATIONS_MAX;
pub(crate) use share::Blocks;
pub(crate) use size_class::{class_bytes, class_of};
pub(crate) use stock::{Found, Shortage, Stock};
