//! Members: the processes that use a pool, how they join, are found dead and leave, and what they
//! leave behind.
//!
//! | file | contents |
//! |---|---|
//! | `superblock` | a pool's constants, checked before any other bytes are trusted |
//! | `bootstrap` | how one process at a time creates a pool |
//! | `member` | the member table, and the argument about leases and incarnations |
//! | `register` | how a process goes live |
//! | `silence` | how long a process has given no sign of life |
//! | `evict` | how members that are gone are ended |
//! | `membership` | [`Members`], a process's own membership |
//! | `erasure` | how a pool that has lost a node is ended |
//! | `nodes`, `addition` | the node directory, and how a pool grows |
//! | `roster`, `removal` | which nodes are in use, and how one leaves |
//! | `balancing` | which member moves objects between nodes |
//! | `adoption` | how blocks of dead members are recovered |
//!
//! This module depends on blocks, but not on pins or limbo: its callers pass in what to publish.

mod addition;
mod adoption;
mod balancing;
mod bootstrap;
mod erasure;
mod evict;
#[cfg(test)]
mod interleavings;
mod lines;
mod member;
mod membership;
mod nodes;
mod register;
mod removal;
mod roster;
mod silence;
mod superblock;

pub use adoption::{Adoption, SweepReport};
pub(crate) use bootstrap::Bootstrap;
pub use erasure::erase_if_lost;
#[cfg(test)]
pub(crate) use member::heartbeat_addr;
pub use member::members_in_use;
pub(crate) use member::{MemberLine, MemberTable, is_live};
pub(crate) use membership::{Members, News};
pub(crate) use nodes::{Absent, expect_absent, learn, uses_of, write_directory};
pub(crate) use register::register;
pub(crate) use roster::{Roster, Stage};
pub(crate) use superblock::{
    LEASE_MS_MAX, Superblock, begin as begin_superblocks, finish as finish_superblocks, node_sizes,
    read as read_superblocks, read_node as read_superblock,
};
