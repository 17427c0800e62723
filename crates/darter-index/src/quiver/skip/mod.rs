//! The skip table: where descents begin if nothing is remembered (`docs/quiver.md`, "Skip table").
//!
//! For each length of a prefix list, in nibbles, the table maps the prefix of a key of that length
//! to the first node on the key's path that is as deep or deeper. All entries are hints that carry
//! the life of the node they lead to, so they are written by plain WRITEs and never removed.
//!
//! | module | what it holds |
//! |---|---|
//! | `entry` | an entry in two words, and other contents of its place |
//! | `table` | a table's descriptor, its size, and where its buckets are |
//! | `view` | the table as the process knows it |
//! | `guide` | what a descent looks up and enters |
//! | `adjust` | the choice of a list, and the change to a table of it |
//! | `inspect` | the check, and the counts |

mod adjust;
mod entry;
mod guide;
mod inspect;
#[cfg(test)]
mod interleavings;
mod table;
mod view;

pub(super) use guide::Guide;
pub(super) use view::Skip;
