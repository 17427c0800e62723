//! Memory groups: replicas with equal regions that are one memory node to their clients.
//!
//! A *primary* executes frames as any memory node does, sends what they have changed to its
//! *backups* as one ordered log of records, and answers when all backups have acknowledged every
//! record that the answer depends on. Which replica is the primary says a *view*, in a store outside
//! the group that is only asked when the view changes. docs/replication.md has the protocol, the
//! argument that it is right, and what was checked.
//!
//! All of it is a state machine without input or output. [`Replica`] takes requests, messages,
//! replies of the store and the time, and returns what is to be sent ([`Output`], [`Answers`]).
//! Whoever drives it sees to connections, clocks and the store; tests drive it in a simulated world
//! (crate `darter-sim`).
//!
//! `view` is who serves, `record` and `message` what replicas tell each other. A primary is in
//! `serve`, `stream`, `held`, `answers` and `lease`, a backup in `backup`; `duplicates` is what both
//! know of frames. `change` is how a view becomes the next one. `codec` is messages as bytes.

mod answers;
mod backup;
mod change;
mod codec;
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
pub use duplicates::Duplicates;
pub use interface::{Kept, Options, Outcome, Output, Request, Role, Start};
pub use memory::{Memory, Region};
pub use message::{Beside, Message};
pub use record::{Content, FrameId, Position, Record, StreamId};
pub use replica::Replica;
pub use view::{ReplicaId, StoreReply, StoreRequest, View};
