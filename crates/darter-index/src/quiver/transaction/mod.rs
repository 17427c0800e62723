//! Transactions: changes of several keys that take effect at one moment (`docs/transactions.md`).
//!
//! A commit *installs* an intent in the place of each key, decides them all by one CAS of the status
//! word, and then *settles* each key: the intent is replaced by its outcome. Any client that needs
//! to change a key with an intent decides it first ([`Operation::decided`]); readers only read the
//! status word. No client waits for another one, except for a few round trips for a transaction that
//! was tried more often.

mod install;
mod install_new;
mod settle;
mod snapshot;
#[cfg(test)]
mod tests;

use super::Quiver;
use super::descent::{Descent, Found, Image, Lookup, PageSearchEnd, Purpose};
use super::intents::intent_at;
use super::operation::Operation;
use super::page::{PageRef, Shape};
use super::situations;
use super::word::{LeafPrint, Word};
use super::write::CONCURRENT_DELETES_MAX;
use crate::checker::note;
use crate::ordered::{check_key, check_order};
use crate::radix::intent::{Intent, State, Status};
use crate::radix::{TURNS_MAX, leaf, no_progress, search};
use crate::{Access, Commit, Decision, IndexError, Result, Write};
use darter_fabric::{Batch, Fabric, GlobalAddr, OpKind};
use darter_pool::Client;
use std::cmp::Reverse;

/// Keys whose intents are installed, or settled, in the same round trips.
const CHUNK: usize = 128;
/// Round trips for which a transaction waits for another one that makes no progress.
const POLLS_MAX: usize = 8;

/// A leaf's address and class.
type Leaf = (GlobalAddr, u8);

/// This client's transaction until all of its keys are settled.
struct Own<'a> {
    accesses: &'a [Access<'a>],
    /// The address of its status word, once the first key's memory node is known.
    at: Option<GlobalAddr>,
    status: Status,
    /// Whether the status word is written.
    is_written: bool,
    installed: Vec<Installed>,
}

/// The place of a key in its page, and what may be stored there.
struct Place {
    addr: GlobalAddr,
    /// The word that was found there.
    word: Word,
    /// The word that says that the key is absent.
    removed: Word,
    /// The page's count of removals, if the place is a record.
    removals: Option<GlobalAddr>,
    /// Whether the page may be empty enough to be replaced once the key is removed.
    may_be_thin: bool,
    print: LeafPrint,
    page: PageRef,
    shape: Shape,
    identity: u64,
}

/// An intent that is installed.
struct Installed {
    /// The key's number among the transaction's accesses.
    number: usize,
    intent: Leaf,
    /// The place that the intent was installed in; `None` if it may be elsewhere.
    place: Option<Place>,
    /// The key's value before the transaction.
    before: Option<Vec<u8>>,
    /// A leaf with the key's value after a commit; `None` if the key is then absent.
    after: Option<Leaf>,
}

impl<F: Fabric> Quiver<F> {
    /// Commits a transaction: [`crate::OrderedIndex::commit`].
    pub(in crate::quiver) async fn commit_all(
        &self,
        client: &mut Client<F>,
        accesses: &[Access<'_>],
        attempt: u16,
    ) -> Result<Commit> {
        check_order(accesses)?;
        accesses.iter().try_for_each(|access| check_key(access.key))?;
        if let &[access @ Access { write: Some(write), .. }] = accesses {
            return self.commit_one(client, access, write).await;
        }
        let mut operation = Operation::begin(&self.shared, client, OpKind::Transact).await?;
        if accesses.iter().all(|access| access.write.is_none())
            && let Some(outcome) = operation.commit_reads(accesses).await?
        {
            return Ok(outcome);
        }
        let status = Status::undecided(attempt);
        let mut own = Own { accesses, at: None, status, is_written: false, installed: Vec::new() };
        let installed = operation.install_all(&mut own).await;
        let state = match installed {
            Ok(true) => operation.decide_own(&mut own, State::Committed).await?,
            Ok(false) => operation.decide_own(&mut own, State::Aborted).await?,
            Err(error) if error.is_out_of_space() || matches!(error, IndexError::ValueTooLong { .. }) => {
                operation.decide_own(&mut own, State::Aborted).await?;
                operation.settle(own).await?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        operation.settle(own).await?;
        Ok(if state == State::Committed { Commit::Done } else { Commit::Conflict })
    }

    /// Commits a transaction of one key, which needs no intent.
    async fn commit_one(
        &self,
        client: &mut Client<F>,
        access: Access<'_>,
        write: Write<'_>,
    ) -> Result<Commit> {
        let mut outcome = Commit::Done;
        let mut decide = |now: Option<&[u8]>, new: &mut Vec<u8>| {
            let is_as_read = access.read.is_none_or(|read| read == now);
            outcome = if is_as_read { Commit::Done } else { Commit::Conflict };
            match (outcome, write) {
                (Commit::Conflict, _) => Decision::Keep,
                (Commit::Done, Write::Put(value)) => {
                    new.extend_from_slice(value);
                    Decision::Put
                }
                (Commit::Done, Write::Remove) => Decision::Remove,
            }
        };
        self.modify_value(client, OpKind::Transact, access.key, &mut decide).await?;
        Ok(outcome)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Decides the intent at the end of a writer's descent, if there is one: an undecided
    /// transaction is aborted. Returns the end as if the outcome were stored in place of the
    /// intent, but with the intent's word.
    pub(in crate::quiver) async fn decided(&mut self, end: PageSearchEnd) -> Result<PageSearchEnd> {
        if intent_at(&end)?.is_some() { Box::pin(self.decided_for(end, None)).await } else { Ok(end) }
    }

    /// As [`Self::decided`], for a transaction of this age.
    async fn decided_for(&mut self, mut end: PageSearchEnd, age: Option<Age>) -> Result<PageSearchEnd> {
        let Some(intent) = intent_at(&end)? else { return Ok(end) };
        let state = self.decide(&intent, age).await?;
        let outcome = intent.value(state).map(<[u8]>::to_vec);
        if let PageSearchEnd::Page(found) = &mut end {
            take_outcome(&mut found.spot, outcome.as_deref())?;
        }
        Ok(end)
    }

    /// Returns the outcome of another client's transaction, which it first aborts if it is
    /// undecided and not older than the caller's own.
    async fn decide(&mut self, intent: &Intent<'_>, age: Option<Age>) -> Result<State> {
        let at = intent.status;
        if age.is_some_and(|(_, Reverse(own))| own == at.bits()) {
            return Err(IndexError::corrupt(at, "a transaction found its own intent"));
        }
        let mut seen = intent.first;
        let mut polls = 0;
        while let Some(age) = age {
            let [word] = self.client.read_words(at).await?;
            let status = Status::parse(at, word)?;
            polls = if word == seen { polls + 1 } else { 0 };
            seen = word;
            let is_older = age_of(status, Some(at)) > age;
            if status.state != State::Undecided || !is_older || polls >= POLLS_MAX {
                break;
            }
            note(situations::INTENT_AWAITED);
        }
        for _ in 0..TURNS_MAX {
            let status = Status::parse(at, seen)?;
            if status.state != State::Undecided {
                note(situations::INTENT_DECIDED);
                return Ok(status.state);
            }
            let found = self.client.cas(at, seen, status.decided(State::Aborted).word(at)).await?;
            if found.swapped {
                note(situations::INTENT_ABORTED);
                return Ok(State::Aborted);
            }
            seen = found.found;
        }
        Err(no_progress(at))
    }

    /// Finds the places of some keys, in the same round trips.
    async fn find_all(
        &mut self,
        accesses: &[Access<'_>],
        numbers: impl Iterator<Item = usize> + Send,
    ) -> Result<Vec<(usize, PageSearchEnd)>> {
        let descent = |at: usize| (at, self.descent_for(accesses[at].key, Purpose::Write));
        let mut searches: Vec<_> = numbers.map(descent).collect();
        let mut ends = Vec::with_capacity(searches.len());
        while !searches.is_empty() {
            let ended = |number, _: &Descent<'_>, end, _: &Batch| {
                ends.push((number, end));
                Ok(())
            };
            search::step(&mut self.client, self.shared, &mut searches, ended).await?;
        }
        // Searches end in any order, but a new page has its pairs in key order.
        ends.sort_unstable_by_key(|(number, _)| *number);
        Ok(ends)
    }

    /// Decides the own transaction. Returns its state: it may have been aborted before.
    async fn decide_own(&mut self, own: &mut Own<'_>, state: State) -> Result<State> {
        let (Some(at), true) = (own.at, own.is_written) else {
            // No other client knows the transaction.
            own.status.state = state;
            return Ok(state);
        };
        for _ in 0..TURNS_MAX {
            let decided = own.status.decided(state);
            let found = self.client.cas(at, own.status.word(at), decided.word(at)).await?;
            own.status = if found.swapped { decided } else { Status::parse(at, found.found)? };
            if own.status.state != State::Undecided {
                return Ok(own.status.state);
            }
        }
        Err(no_progress(at))
    }
}

impl Own<'_> {
    fn age(&self) -> Age {
        age_of(self.status, self.at)
    }
}

impl Place {
    /// The word that names a leaf in this place.
    fn leaf(&self, (addr, class): Leaf) -> Word {
        Word::leaf(self.print, class, addr)
    }
}

/// A transaction that was tried more often is older; of two, the one whose status word has the
/// lower address.
type Age = (u16, Reverse<u64>);

fn age_of(status: Status, at: Option<GlobalAddr>) -> Age {
    (status.attempt, Reverse(at.map_or(u64::MAX, GlobalAddr::bits)))
}

/// The place of a key in the page where a writer's search ended; `None` if the page must be
/// replaced first.
fn place_of(key: &[u8], found: &Found) -> Option<Place> {
    let (head, print) = (&found.head, found.print);
    let (addr, word, removed, removals) = match &found.spot {
        Lookup::Record { addr, word, is_inline: true, .. } => {
            (*addr, *word, Word::tomb(head.shape.born, print), Some(head.page.removals_addr()))
        }
        Lookup::Record { addr, word, .. } => {
            (*addr, *word, Word::erased(*addr, print), Some(head.page.removals_addr()))
        }
        Lookup::Delta { addr, word, .. } => (*addr, *word, Word::erased(*addr, print), None),
        Lookup::Absent { vacancy } => {
            let (addr, word) = (*vacancy)?;
            (addr, word, Word::erased(addr, print), None)
        }
    };
    if word.is_sealed() || head.is_sealed {
        return None;
    }
    let live = head.live_about();
    Some(Place {
        addr,
        word,
        removed,
        removals,
        print: head.shape.leaf_print(head.page.addr, key, print),
        may_be_thin: live <= 1 + CONCURRENT_DELETES_MAX || head.is_thin(live - 1),
        page: head.page,
        shape: head.shape,
        identity: head.identity,
    })
}

/// Stores a decided transaction's outcome in a key's place as it was found.
fn take_outcome(spot: &mut Lookup, outcome: Option<&[u8]>) -> Result<()> {
    let image_of = |image: &Image, value: &[u8]| {
        let key = leaf::parse_again(GlobalAddr::NULL, image)?.key;
        Ok::<_, IndexError>(leaf::image(key, value))
    };
    match (spot, outcome) {
        (Lookup::Record { value, .. }, outcome) => {
            *value = match (&value, outcome) {
                (Some(image), Some(outcome)) => Some(image_of(image, outcome)?),
                _ => None,
            };
        }
        (Lookup::Delta { value, .. }, Some(outcome)) => *value = image_of(value, outcome)?,
        (spot @ Lookup::Delta { .. }, None) => {
            if let Lookup::Delta { addr, word, .. } = spot {
                *spot = Lookup::Absent { vacancy: Some((*addr, *word)) };
            }
        }
        (Lookup::Absent { .. }, _) => {}
    }
    Ok(())
}
