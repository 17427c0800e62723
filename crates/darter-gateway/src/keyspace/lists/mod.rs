//! Lists: where their elements lie, and how a command reads and changes them (docs/gateway.md).
//!
//! The elements of a small list lie in the head of its key. A larger list lies in *chunks*, records
//! in the order of the elements, and the head names the first and the last of them (`form.rs`).
//! A record holds about 1 KiB of elements (`packed.rs`).
//!
//! ```text
//! e, key, generation, chunk id (`chunk_id.rs`) -> which ends of the list, 1 byte | elements
//! ```
//!
//! A change within one record is one conditional change of that record (`in_place.rs`). All others
//! change the head and the chunks in one transaction of the index (`editing.rs`). A push or a pop
//! changes a chunk only if that chunk says that it is at that end of the list.
//!
//! A list is never empty: a command that removes its last element removes the head.

mod chunk_id;
mod editing;
mod form;
mod in_place;
mod packed;
mod reading;
#[cfg(test)]
mod tests;
mod whole;

pub(crate) use in_place::InPlace;
pub(in crate::keyspace) use packed::fits;
pub(crate) use packed::{Elements, End};
pub(crate) use reading::part;
pub(crate) use whole::is_one_record;

use super::aggregate::{Aggregate, Session};
use super::{Family, Keyspace, Retries, place};
use crate::fault::Fault;

/// The result of an edit of some elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edited {
    /// Whether the elements have changed.
    pub(crate) is_changed: bool,
    /// Whether the elements of the next chunk must be edited too.
    pub(crate) goes_on: bool,
}

/// A change of a list that depends on its elements. It is applied to a chunk after the other, or to
/// all elements if they lie in the head. A command that is repeated begins with a clone.
pub(crate) trait Edit: Clone + Send + Sync {
    /// Edits consecutive elements.
    fn apply<'e>(&mut self, elements: &mut Elements<'e>) -> Edited
    where
        Self: 'e;
}

impl Session {
    /// Must be called when a record of a list or a stream, other than the head, was read.
    pub(in crate::keyspace) fn has_read_chunk(&mut self, place: Vec<u8>) {
        if self.is_in_transaction() {
            self.chunks.insert((self.database, place));
        }
    }

    /// Removes, in the transaction in progress, the records that it has read of lists and streams that
    /// it ends. So no other client changes such a record after the commit.
    pub(in crate::keyspace) async fn end_chunks(&mut self) -> Result<(), Fault> {
        let (mut head, mut list) = (Vec::new(), None::<(Aggregate, bool)>);
        let before = self.database;
        for (database, at) in std::mem::take(&mut self.chunks) {
            if self.enter(database) != database {
                list = None;
            }
            let Some(of) = Aggregate::of_chunk(&at) else { continue };
            let is_current = match &list {
                Some((list, is_current)) if *list == of => *is_current,
                _ => {
                    place(&mut head, Family::Key, of.key());
                    self.get_with(&head, |record| of.is_of(record)).await? == Some(true)
                }
            };
            if !is_current {
                self.store(&at, None).await?;
            }
            list = Some((of, is_current));
        }
        self.enter(before);
        Ok(())
    }
}

impl Keyspace {
    /// Returns the error of a command whose transaction has read a list's records of different
    /// moments. The transaction is run again.
    fn torn(&mut self) -> Fault {
        if let Some(session) = &mut self.session {
            session.is_torn = true;
        }
        Fault::said("ERR the list has changed while it was read")
    }

    /// Lets a command that has met records of different moments read them again.
    ///
    /// # Errors
    /// Fails if the command has started over for too long, or if its transaction must be run again.
    async fn read_again(&mut self, retries: &mut Retries) -> Result<(), Fault> {
        if self.is_in_transaction() { Err(self.torn()) } else { retries.again().await }
    }
}
