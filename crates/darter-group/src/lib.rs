//! Memory groups: replicas with equal regions that are one memory node to their clients.
//!
//! A *primary* executes frames as any memory node does, sends their changes to its *backups* as one
//! ordered log of records, and replies when all backups have acknowledged every record that the
//! reply depends on. A *view* defines which replica is the primary. Views are kept in a store
//! outside the group, which is used only when the view changes. docs/replication.md has the
//! protocol, the argument for its correctness, and the checks that were made.
//!
//! All of it is a state machine without input or output. [`Replica`] takes requests, messages,
//! replies of the store and the time, and returns what to send ([`Output`], [`Answers`]). Its
//! driver provides connections, clocks and the store; tests drive it in a simulated world (crate
//! `darter-sim`).
//!
//! `view` defines the roles, `record` and `message` the data that replicas exchange. A primary is
//! in `serve`, `stream`, `held`, `answers` and `lease`, a backup in `backup`; `duplicates` is their
//! common knowledge of frames. `change` has the view changes. `disk` has the log of a durable replica.
//! `codec` encodes messages and entries as bytes.

mod answers;
mod backup;
mod change;
mod codec;
mod disk;
mod duplicates;
mod held;
mod interface;
mod lease;
mod log;
mod memory;
mod message;
mod peer;
mod primary;
mod record;
mod replica;
mod serve;
mod stream;
mod view;

pub use answers::Answers;
pub use disk::{Entry, Logged};
pub use duplicates::Duplicates;
pub use interface::{Options, Outcome, Output, Request, Role, Start};
pub use memory::{Memory, Region};
pub use message::{Beside, Message};
pub use record::{Content, FrameId, Position, Record, StreamId};
pub use replica::Replica;
pub use view::{ReplicaId, StoreReply, StoreRequest, View};
