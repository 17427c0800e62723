//! Memory nodes over TCP.
//!
//! A batch becomes one frame for each memory node it names (more when it is longer than a frame may
//! be). A *hub* holds one connection to each node and the batches under way on them, and is driven
//! by one thread: posting only appends to the connections' buffers, and once a turn of that
//! thread's loop everything posted meanwhile leaves in one system call a node, and everything that
//! has arrived is handed out. So with many operations under way each verb pays a fraction of a
//! system call. A thread that runs [`crate::block_on`] or [`crate::run_all`] drives a hub of its
//! own; tasks of other executors share a hub that a thread of the fabric drives, so that no poll of
//! theirs waits for a node. A loop that gets nothing for a while ([`TcpOptions::spin`]) stops
//! spinning and sleeps until one of its sockets is ready.
//!
//! A lost connection fails the batches that were on it with [`crate::FabricError::Disconnected`],
//! which means that their last verbs may have taken effect or not; the next batch connects again. A
//! node that comes back with another memory (its boot id differs) is refused for good.
//!
//! A node may be a memory group (crate `darter-group`), with the addresses of all its replicas: then what
//! was on a lost connection is sent again to whichever replica serves (`group_channel.rs`).
//!
//! Where [`TcpOptions::device`] names an RDMA device, each connection of a hub has a pair of queues
//! beside it ([`crate::rdma`]), and batches go there; all else is as said.
//!
//! Both sides prove that they know a token ([`crate::wire::proof`]), and may speak TLS
//! ([`crate::wire::ClientTls`]): the token keeps strangers out, TLS keeps what passes secret and
//! whole.

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
