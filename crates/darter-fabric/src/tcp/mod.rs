//! Memory nodes over TCP: one connection to each node for each hub, and a hub for each thread.
//!
//! A batch becomes one frame for each memory node it names (more when it is longer than a frame may be). Whoever polls a
//! batch drives its hub: everything that tasks of the thread have posted meanwhile leaves in one system call a node, and
//! everything that has arrived is handed out, whichever task it is for. So a thread with many operations under way pays
//! a fraction of a system call for each verb. A hub that gets nothing for a while stops spinning and sleeps until its
//! sockets have something to say ([`TcpOptions::spin`]).
//!
//! A lost connection fails the batches that were on it with [`crate::FabricError::Disconnected`], which says that their last
//! verbs may have landed or not; the next batch connects again. A node that comes back with another memory (its boot id
//! differs) is refused for good.

mod batches;
pub mod buffer;
mod connection;
mod fabric;
mod hub;
pub mod wire;

pub use fabric::{Tcp, TcpEndpoint, TcpOptions};
