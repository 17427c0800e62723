//! The commit of a transaction that only reads: the keys are read twice, and if no word has changed,
//! all of them had these values between the two reads. It writes nothing, so it aborts no other
//! transaction.
//!
//! A key's word proves that its value has not changed only if the same word cannot come back: that
//! holds for INLINE, LEAF and INTENT under one pin, but not for words without a value.

use crate::checker::note;
use crate::quiver::descent::{Lookup, PageSearchEnd};
use crate::quiver::intents::{intent_in, states_of};
use crate::quiver::operation::Operation;
use crate::quiver::search::value_at;
use crate::quiver::situations;
use crate::quiver::word::{State as Kind, Word};
use crate::radix::intent::State;
use crate::{Access, Commit, Result};
use darter_fabric::{Fabric, GlobalAddr};

/// Times that the keys are read before the transaction is committed as one that writes.
const READS_MAX: usize = 6;

/// A key's place as read: its address, its word, and the state of its intent's transaction.
type Seen = (GlobalAddr, Word, Option<State>);

impl<F: Fabric> Operation<'_, F> {
    /// Commits a transaction that only reads. Returns `None` if it must be committed as one that
    /// writes: because a key is absent, a page is being replaced, or the keys change all the time.
    pub(super) async fn commit_reads(&mut self, accesses: &[Access<'_>]) -> Result<Option<Commit>> {
        let mut before = None;
        for _ in 0..READS_MAX {
            let Some((seen, is_as_read)) = self.collect(accesses).await? else { return Ok(None) };
            if !is_as_read {
                note(situations::TRANSACTION_CONFLICT);
                return Ok(Some(Commit::Conflict));
            }
            if before.is_some_and(|before| before == seen) {
                note(situations::READS_VERIFIED);
                return Ok(Some(Commit::Done));
            }
            before = Some(seen);
        }
        Ok(None)
    }

    /// Reads all keys. Returns their places and whether their values are those that the transaction
    /// has read; `None` if a word may come back.
    async fn collect(&mut self, accesses: &[Access<'_>]) -> Result<Option<(Vec<Seen>, bool)>> {
        let mut ends = self.find_all(accesses, 0..accesses.len()).await?;
        ends.sort_unstable_by_key(|(number, _)| *number);
        let mut statuses = Vec::new();
        for (_, end) in &ends {
            if let PageSearchEnd::Page(found) = end {
                statuses.extend(intent_in(&found.spot)?.map(|intent| intent.status));
            }
        }
        let states =
            if statuses.is_empty() { Vec::new() } else { states_of(&mut self.client, &statuses).await? };
        let mut states = states.into_iter();
        let (mut seen, mut is_as_read) = (Vec::with_capacity(ends.len()), true);
        for ((_, end), access) in ends.iter().zip(accesses) {
            let PageSearchEnd::Page(found) = end else { return Ok(None) };
            let (Lookup::Record { addr, word, .. } | Lookup::Delta { addr, word, .. }) = found.spot else {
                return Ok(None);
            };
            if word.is_sealed() || found.head.is_sealed || word.state() == Kind::Tomb {
                return Ok(None);
            }
            let intent = intent_in(&found.spot)?;
            let state = intent.and_then(|_| states.next());
            let value = match (intent, state) {
                (Some(intent), Some(state)) => intent.value(state),
                _ => value_at(end)?,
            };
            is_as_read &= access.read.is_none_or(|read| read == value);
            seen.push((addr, word, state));
        }
        Ok(Some((seen, is_as_read)))
    }
}
