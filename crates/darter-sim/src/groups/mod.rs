//! A simulated world for memory groups: seeds that decide everything, no threads.
//!
//! Two or three replicas, sometimes a spare, serve clients. Messages, requests and replies are
//! delayed, in order within a connection; connections end and nodes are parted; nodes pause, in the
//! middle of a turn too, and their clocks run at different rates; nodes die, and come back with
//! nothing or with an old memory; the store of views is slow or loses requests; primaries hand
//! over; clients are shut out. When [`World::calm`] says that nothing goes wrong any more, the
//! group must come to rest ([`World::unrest`]).
//!
//! The world knows what a client's connection does: it sends again what was not answered, under the
//! same numbers, to whom it holds to be the primary. What clients send and what they make of the
//! replies is up to their [`Users`]: random verbs in the tests of this crate, indexes in the
//! explorer.

mod client;
mod clients;
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
