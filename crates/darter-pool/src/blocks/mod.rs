//! Blocks: who may cut objects from which memory, and which of a process's objects are free.
//!
//! | file | what it holds |
//! |---|---|
//! | `size_class` | the 128 sizes of objects |
//! | `object` | kinds of objects; an object packed into a word |
//! | `layout` | where blocks, pages and objects lie |
//! | `block` | the word that says whose a block is |
//! | `slab`, `heap` | the process's books of its blocks, without verbs |
//! | `magazine`, `stock` | what each client keeps, without a shared lock |
//! | `share` | [`Blocks`], the process's share, which the files below act on |
//! | `grant` | where objects come from |
//! | `claims` | how objects that others freed come back |
//! | `release` | how objects of others and empty blocks go back |
//! | `hand_over` | how other blocks leave a process that goes on |
//! | `close` | exact books for the next owner |
//! | `reachable` | what an index can reach |
//! | `rebuild`, `sweep` | books rebuilt from that |
//! | `audit` | books compared with that |
//!
//! The room knows nothing of epochs or leases. It is told which members live, how many nodes may be
//! used, and which objects no reader can hold.

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
pub(crate) use layout::{BlockId, Layout};
pub(crate) use magazine::MagazineList;
pub use object::AllocKind;
pub(crate) use object::Object;
pub use reachable::ReachableSet;
pub(crate) use rebuild::VIOLATIONS_MAX;
pub(crate) use share::Blocks;
pub(crate) use size_class::{class_bytes, class_of};
pub(crate) use stock::{Found, Shortage, Stock};
