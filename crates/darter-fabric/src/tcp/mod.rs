//! Memory nodes over TCP.
//!
//! A batch becomes one frame for each memory node that it names (more if it is longer than a frame
//! may be). A *hub* holds one connection to each node and the batches in flight on them, and is
//! driven by one thread. Posting only appends to the connections' buffers. Once per turn of that
//! thread's loop, everything posted since the last turn leaves in one system call per node, and
//! everything that has arrived is delivered. So with many operations in flight each verb costs a
//! fraction of a system call. A thread that runs [`crate::block_on`] or [`crate::run_all`] drives
//! its own hub; tasks of other executors share a hub that a thread of the fabric drives, so that
//! their polls never wait for a node. A loop that receives nothing for a while
//! ([`TcpOptions::spin`]) stops spinning and sleeps until one of its sockets is ready.
//!
//! A lost connection fails the batches that were on it with [`crate::FabricError::Disconnected`],
//! which means that their last verbs may have taken effect or not; the next batch connects again. A
//! node that returns with another memory (its boot id differs) is refused permanently.
//!
//! A node may be a memory group (crate `darter-group`), with the addresses of all its replicas:
//! then the frames on a lost connection are sent again to the replica that serves
//! (`group_channel.rs`).
//!
//! If [`TcpOptions::device`] names an RDMA device, each connection of a hub also has a pair of
//! queues ([`crate::rdma`]), which batches use instead; everything else is unchanged.
//!
//! Both sides prove that they know a token ([`crate::wire::proof`]), and may use TLS
//! ([`crate::wire::ClientTls`]): the token keeps strangers out, TLS protects secrecy and integrity.

mod addresses;
mod batches;
mod calls;
mod connection;
mod control;
mod endpoint;
mod fabric;
mod frames;
mod group;
mod group_channel;
mod handshake;
mod hub;
mod hub_state;
mod links;
mod options;
mod pairing;
mod reach;
mod reactor;
mod replica_link;
mod replicas;
mod session;

pub use endpoint::TcpEndpoint;
pub use fabric::Tcp;
pub use options::TcpOptions;
pub use replica_link::ReplicaLink;
