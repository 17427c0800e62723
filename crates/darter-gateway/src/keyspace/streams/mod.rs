//! Streams: where their entries and consumer groups lie, and how a command reads and changes them
//! (docs/gateway.md).
//!
//! The head of a stream has its counts, and its last entries (`head.rs`). When it has no more room for
//! an entry, the entries in it become a *chunk*, a record of about 1 KiB (`packed.rs`).
//!
//! ```text
//! x, key, generation, id of the first entry, 16 bytes -> entries
//! ```
//!
//! So a stream changes in one conditional change of its head (`in_place.rs`). What also changes chunks
//! is a transaction of the index (`editing.rs`), which always changes the head too.
//!
//! Consumer groups (`groups.rs`) and their pending entries (`pending.rs`) have their own records, which
//! change in transactions that do not change the head.
//!
//! `DUMP` and `RESTORE` read and write whole streams (`whole.rs`).
//!
//! A stream without entries exists as long as its head does.

mod editing;
mod groups;
mod head;
mod id;
mod in_place;
mod packed;
mod pending;
mod reading;
#[cfg(test)]
mod tests;
mod varint;
mod whole;

pub(crate) use editing::OpenStream;
pub(crate) use groups::{Consumer, Group};
pub(crate) use head::{NewId, Stream, Trim, TrimTo};
pub(crate) use id::StreamId;
pub(crate) use in_place::Added;
pub(crate) use packed::{Entry, body_of};
pub(crate) use pending::{Pending, PendingEdit, PendingWalk};
pub(crate) use reading::StreamWalk;
pub(crate) use whole::{WholeGroup, WholeStream};
