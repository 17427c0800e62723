//! Lock tokens: names for holders of locks in the pool, so that a lock is a lease and not a trap.
//!
//! DART needs no locks; the systems it is compared with do. A lock word of theirs holds 0 or a
//! token's word:
//!
//! ```text
//! member slot 8 | generation 8 | number 16 | incarnation 32      never 0: incarnations begin at 1
//! ```
//!
//! A token is *over* when its holder can write no more: its process has ended, after fencing proved
//! or enforced that; or it was dropped without [`LockToken::release`], as by a cancelled operation
//! or an error, and all verbs of that operation have completed. Only then may another client take
//! the lock over, by CAS from that word, and mend what was left half done.
//!
//! Other processes cannot see that a token was abandoned while its process lives, so upkeep
//! *disowns* its lock word ([`LockToken::at`]): replaces it by a word that names no holder. Clients
//! that wait for a lock do upkeep, so two clients that wait for what each other's process abandoned
//! do not wait for ever.
//!
//! Numbers are reused, with another generation each time, so words come back in the end. Two CASes
//! must not meet that: the one that takes a lock over, some round trips after its client learnt
//! that the holder was over; and one that disowns a word and lands late. So the number that has
//! been free for longest is reused, and only when 4,096 are free: a word comes back after 256 ×
//! 4,096 tokens of its process, 1,048,576, at the earliest. The bound is smaller only while a
//! process has more than 61,440 tokens at a time, since fewer numbers are free then. A word that
//! came back names a present token: a client that asks is told that it is not over, and asks again.
//!
//! The pool has no part in this: it keeps the tokens of a process as one of its membership's
//! extensions ([`Extension`]), whose verbs every round of upkeep posts.

#[cfg(test)]
mod tests;

use crate::sync::lock;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_index::{IndexError, Result};
use darter_pool::{Client, Extension, Leftovers, MemberId, Pinned, Pool, PoolError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Tokens that a process can have at a time.
const TOKENS_MAX: usize = 1 << 16;
/// Numbers that have to be free before one is reused, as long as there are new ones.
const FREE_MIN: usize = 4096;

/// A lock word that names no holder: incarnations begin at 1.
const DISOWNED: u64 = 1 << 32;

/// The tokens of a process. An index keeps a handle of them.
#[derive(Debug, Default)]
pub(crate) struct LockTokens(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    /// By number: the generation, and whether it is in use.
    states: Vec<(u8, bool)>,
    /// The one that has been free for longest comes first.
    free: VecDeque<u16>,
    /// Over, with lock words that may still name them; their numbers are not free yet.
    to_disown: Vec<Abandoned>,
}

/// A token that was dropped without being released.
#[derive(Clone, Copy, Debug)]
struct Abandoned {
    number: u16,
    word: u64,
    lock: GlobalAddr,
}

impl LockTokens {
    /// Those of a membership.
    pub(crate) fn of<F: Fabric>(pool: &Pool<F>) -> Arc<Self> {
        pool.extension()
    }

    /// Whether they are those of this client's membership.
    fn belong_to<F: Fabric>(self: &Arc<Self>, client: &Client<F>) -> bool {
        Arc::ptr_eq(self, &Self::of(client.pool()))
    }

    /// Returns a new name to lock with, for an operation.
    ///
    /// # Errors
    /// [`IndexError::TooManyLocks`].
    pub(crate) fn issue<F: Fabric>(self: &Arc<Self>, client: &mut Pinned<'_, F>) -> Result<LockToken> {
        debug_assert!(self.belong_to(client), "a handle serves the membership it was opened with");
        let (number, generation) = self.take().ok_or(IndexError::TooManyLocks { max: TOKENS_MAX })?;
        let word = word_of(client.pool().member(), number, generation);
        let (tokens, leftovers) = (Arc::clone(self), Some(client.leftovers()));
        Ok(LockToken { word, number, lock: GlobalAddr::NULL, tokens, leftovers, released: false })
    }

    /// Whether the token that a lock word names is over, so that the lock may be taken over by CAS
    /// from that word. Words that name no holder are. Does a round of upkeep, by which members that
    /// died or lapsed are evicted: call it unpinned, since a client that waits while pinned holds
    /// up everybody's reclamation, and pause between calls.
    ///
    /// # Errors
    /// As [`Client::maintain`].
    pub(crate) async fn is_over<F: Fabric>(
        self: &Arc<Self>,
        client: &mut Client<F>,
        word: u64,
    ) -> Result<bool, PoolError> {
        debug_assert!(self.belong_to(client), "a handle serves the membership it was opened with");
        client.settle_leftovers();
        if word as u32 == 0 {
            return Ok(true);
        }
        let named = MemberId { member: (word >> 56) as u8, incarnation: word as u32 };
        if named == client.pool().member() {
            let is_over = self.has_ended((word >> 32) as u16, (word >> 48) as u8);
            if !is_over {
                client.maintain().await?;
            }
            return Ok(is_over);
        }
        client.maintain().await?;
        client.is_live(named).await.map(|is_live| !is_live)
    }

    /// A number that is not in use, with its generation.
    fn take(&self) -> Option<(u16, u8)> {
        let mut numbers = lock(&self.0);
        let number = if numbers.free.len() < FREE_MIN && numbers.states.len() < TOKENS_MAX {
            numbers.states.push((0, false));
            (numbers.states.len() - 1) as u16
        } else {
            numbers.free.pop_front()?
        };
        let (generation, in_use) = &mut numbers.states[usize::from(number)];
        *generation = generation.wrapping_add(1);
        *in_use = true;
        Some((number, *generation))
    }

    fn give_back(&self, number: u16) {
        let mut numbers = lock(&self.0);
        numbers.states[usize::from(number)].1 = false;
        numbers.free.push_back(number);
    }

    fn has_ended(&self, number: u16, generation: u8) -> bool {
        lock(&self.0).states.get(usize::from(number)) != Some(&(generation, true))
    }

    /// The verbs of the operation that abandoned this token have completed: the token is over.
    fn end(&self, abandoned: Abandoned) {
        let mut numbers = lock(&self.0);
        numbers.states[usize::from(abandoned.number)].1 = false;
        if abandoned.lock.is_null() {
            numbers.free.push_back(abandoned.number);
        } else {
            numbers.to_disown.push(abandoned);
        }
    }
}

impl Extension for LockTokens {
    /// Replaces the lock words of abandoned tokens by one that names no holder, so that other
    /// processes may take the locks over. Cancelled, it is done again.
    fn upkeep(&self, batch: &mut Batch) -> Option<Box<dyn FnOnce() + Send>> {
        let abandoned = lock(&self.0).to_disown.clone();
        if abandoned.is_empty() {
            return None;
        }
        for &Abandoned { word, lock, .. } in &abandoned {
            batch.cas(lock, word, DISOWNED);
        }
        let numbers = Arc::clone(&self.0);
        Some(Box::new(move || {
            // Another round may have done the same meanwhile: a number is free once.
            let mut numbers = lock(&numbers);
            let Numbers { to_disown, free, .. } = &mut *numbers;
            to_disown.retain(|listed| {
                let is_done = abandoned.iter().any(|done| done.word == listed.word);
                free.extend(is_done.then_some(listed.number));
                !is_done
            });
        }))
    }
}

fn word_of(me: MemberId, number: u16, generation: u8) -> u64 {
    u64::from(me.member) << 56
        | u64::from(generation) << 48
        | u64::from(number) << 32
        | u64::from(me.incarnation)
}

/// A name to put into a lock word, for as long as the lock is held. Dropped without
/// [`LockToken::release`], it is abandoned: over as soon as the verbs of the operation that had it
/// have completed.
#[derive(Debug)]
pub(crate) struct LockToken {
    word: u64,
    number: u16,
    /// Null, or the lock word that may name it.
    lock: GlobalAddr,
    tokens: Arc<LockTokens>,
    /// Of the operation that has it; none between two operations.
    leftovers: Option<Arc<Leftovers>>,
    released: bool,
}

impl LockToken {
    /// What to put into the lock word. Never 0.
    pub(crate) fn word(&self) -> u64 {
        self.word
    }

    /// Adds the verb that unlocks `lock`, which holds this token, behind all others of a batch. A
    /// WRITE would be lost where a waiter's CAS that fails writes back what it found.
    pub(crate) fn unlock_in<F: Fabric>(&self, fabric: &F, batch: &mut Batch, lock: GlobalAddr) {
        let batch = batch.fence();
        if fabric.capabilities().pure_cas {
            batch.volatile().write(lock, &[0]);
        } else {
            batch.volatile().cas(lock, self.word(), 0);
        }
    }

    /// The same for the lock word at this address, which has to stay a lock word, or memory that
    /// never holds this token's word, for as long as the process lives: if the token is abandoned,
    /// other processes too may take the lock over at once, instead of when this one has ended.
    #[must_use]
    pub(crate) fn at(self, lock: GlobalAddr) -> Self {
        let mut this = self;
        this.lock = lock;
        this
    }

    /// Ends the token in order: the lock word holds another value, or never held this one.
    pub(crate) fn release(mut self) {
        self.released = true;
    }

    /// Takes the token from the operation that has it, which has no verbs on their way that the
    /// lock protects against. Dropped before [`LockToken::pass_to`] gives it to another, it is over
    /// at once.
    #[must_use]
    pub(crate) fn leave(self) -> Self {
        let mut this = self;
        this.leftovers = None;
        this
    }

    /// Passes the token, and the lock that it names, to a client of the process: from now on that
    /// client's operation has it. The former, if there is one, has no verbs on their way that the
    /// lock protects against.
    pub(crate) fn pass_to<F: Fabric>(&mut self, client: &mut Pinned<'_, F>) {
        self.leftovers = Some(client.leftovers());
    }
}

impl Drop for LockToken {
    fn drop(&mut self) {
        if self.released {
            self.tokens.give_back(self.number);
        } else {
            let &mut Self { number, word, lock, .. } = self;
            let (tokens, abandoned) = (Arc::clone(&self.tokens), Abandoned { number, word, lock });
            match &self.leftovers {
                Some(leftovers) => leftovers.push(move || tokens.end(abandoned)),
                // No operation would ever settle it: its former client may be idle for long, or
                // gone.
                None => tokens.end(abandoned),
            }
        }
    }
}
