//! The skip table: where descents begin that find nothing remembered (`docs/quiver.md`, "Skip
//! table").
//!
//! For each length of a prefix list, in nibbles, the table maps the first so many nibbles of a key
//! to the first node on the key's path that is as deep or deeper. All of it is hints that bear the
//! life of what they lead to, so entries are written by plain WRITEs and nothing is ever taken out.
//!
//! | module | what it holds |
//! |---|---|
//! | `entry` | an entry in two words, and what else may stand in its place |
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
