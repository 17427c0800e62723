//! A simulated world for memory groups. It is driven by a seed and uses no threads.
//!
//! Two or three replicas, sometimes with a spare, serve clients. Messages, requests and replies are
//! delayed, in order within a connection; connections end and nodes are disconnected; nodes pause,
//! even in the middle of a turn, and their clocks run at different rates; nodes die, and return
//! with nothing or with an old memory; the store of views is slow or loses requests; primaries hand
//! over; clients are fenced. With logs ([`Setup::is_durable`]) any number of nodes may die at any time,
//! lose entries of their logs that were not synced, and return with the others; disks are lost while
//! other members of each possible view have theirs. After [`World::calm`] has ended the faults, the group must come to
//! rest ([`World::unrest`]).
//!
//! The world implements clients' connections: it resends unanswered frames, under the same numbers,
//! to the replica that the client believes to be the primary. The [`Users`] choose the clients'
//! frames and use the replies: random verbs in the tests of this crate, indexes in the explorer.

mod client;
mod clients;
mod disk;
mod event;
mod executed;
mod faults;
mod node;
mod random;
mod rest;
mod world;

pub use client::{Frame, Payload, Users};
pub use event::MS;
pub use node::Life;
pub use random::Random;
pub use world::{Counts, Setup, World};
