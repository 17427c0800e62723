//! Lock tokens: names for the holders of locks in the pool, which make a lock a lease.
//!
//! DART needs no locks; the systems it is compared with do. Their lock words hold 0 or a token's
//! word:
//!
//! ```text
//! member slot 8 | generation 8 | number 16 | incarnation 32      never 0: incarnations begin at 1
//! ```
//!
//! A token is *over* when its holder can no longer write: its process has ended, as fencing proved
//! or enforced; or the token was dropped without [`LockToken::release`], for example by a cancelled
//! operation or an error, and all verbs of that operation have completed. Only then may another
//! client take the lock over, by CAS from that word, and repair what was left half done.
//!
//! Other processes cannot see that a token was abandoned while its process lives, so upkeep
//! *disowns* its lock word ([`LockToken::at`]): it replaces the word by one that names no holder.
//! Clients that wait for a lock run upkeep, so two clients that each wait for a token abandoned by
//! the other's process do not deadlock.
//!
//! Numbers are reused with another generation each time, so words eventually repeat. Two CASes must
//! not encounter a repeated word: one that takes a lock over, some round trips after its client
//! found that the holder was over, and one that disowns a word and takes effect late. So the number
//! that has been free for longest is reused, and only if 4,096 are free: a word repeats after 256 ×
//! 4,096 = 1,048,576 tokens of its process at the earliest. The bound is smaller only while a
//! process has more than 61,440 tokens at a time, since fewer numbers are free then. A repeated
//! word names a current token: a client that checks it finds that it is not over, and checks again
//! later.
//!
//! The pool is not involved: it keeps the tokens of a process as an extension of its membership
//! ([`Extension`]), whose verbs every round of upkeep posts.

#[cfg(test)]
mod tests;

use crate::sync::lock;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_index::{IndexError, Result};
use darter_pool::{Client, Extension, Leftovers, MemberId, Pinned, Pool, PoolError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Maximum number of tokens of a process at a time.
const TOKENS_MAX: usize = 1 << 16;
/// Numbers that must be free before one is reused, as long as there are new ones.
const FREE_MIN: usize = 4096;

/// A lock word that names no holder: incarnations begin at 1.
const DISOWNED: u64 = 1 << 32;

/// The tokens of a process. An index keeps a handle to them.
#[derive(Debug, Default)]
pub(crate) struct LockTokens(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    /// By number: the generation, and whether it is in use.
    states: Vec<(u8, bool)>,
    /// The number that has been free for longest comes first.
    free: VecDeque<u16>,
    /// Tokens that are over, with lock words that may still name them; their numbers are not free
    /// yet.
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
    /// Returns the tokens of a membership.
    pub(crate) fn of<F: Fabric>(pool: &Pool<F>) -> Arc<Self> {
        pool.extension()
    }

    /// Returns whether they belong to this client's membership.
    fn belong_to<F: Fabric>(self: &Arc<Self>, client: &Client<F>) -> bool {
        Arc::ptr_eq(self, &Self::of(client.pool()))
    }

    /// Returns a new name for the locks of an operation.
    ///
    /// # Errors
    /// [`IndexError::TooManyLocks`].
    pub(crate) fn issue<F: Fabric>(self: &Arc<Self>, client: &mut Pinned<'_, F>) -> Result<LockToken> {
        debug_assert!(self.belong_to(client), "the handle belongs to another membership");
        let (number, generation) = self.take().ok_or(IndexError::TooManyLocks { max: TOKENS_MAX })?;
        let word = word_of(client.pool().member(), number, generation);
        let (tokens, leftovers) = (Arc::clone(self), Some(client.leftovers()));
        Ok(LockToken { word, number, lock: GlobalAddr::NULL, tokens, leftovers, released: false })
    }

    /// Returns whether the token in a lock word is over, so that the lock may be taken over by CAS
    /// from that word; true for words that name no holder. Runs a round of upkeep, which evicts
    /// members that died or whose leases ended. Call it unpinned, because a client that waits while
    /// pinned blocks reclamation for all, and pause between calls.
    ///
    /// # Errors
    /// As [`Client::maintain`].
    pub(crate) async fn holder_has_ended<F: Fabric>(
        self: &Arc<Self>,
        client: &mut Client<F>,
        word: u64,
    ) -> Result<bool, PoolError> {
        debug_assert!(self.belong_to(client), "the handle belongs to another membership");
        client.settle_leftovers();
        if word as u32 == 0 {
            return Ok(true);
        }
        let named = MemberId { member: (word >> 56) as u8, incarnation: word as u32 };
        if named == client.pool().member() {
            let has_ended = self.has_ended((word >> 32) as u16, (word >> 48) as u8);
            if !has_ended {
                client.maintain().await?;
            }
            return Ok(has_ended);
        }
        client.maintain().await?;
        client.is_live(named).await.map(|is_live| !is_live)
    }

    /// Takes a number that is not in use, with its generation.
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

    /// Marks an abandoned token as over after its operation's verbs have completed.
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
    /// processes may take the locks over. If cancelled, it is repeated.
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
            // Another round may have done the same in between: a number is freed only once.
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

/// A name to put into a lock word while the lock is held. Dropped without [`LockToken::release`],
/// it is abandoned: over once the verbs of its operation have completed.
#[derive(Debug)]
pub(crate) struct LockToken {
    word: u64,
    number: u16,
    /// The lock word that may name it, or null.
    lock: GlobalAddr,
    tokens: Arc<LockTokens>,
    /// Of the operation that holds it; `None` between two operations.
    leftovers: Option<Arc<Leftovers>>,
    released: bool,
}

impl LockToken {
    /// Returns the word to put into the lock word. Never 0.
    pub(crate) fn word(&self) -> u64 {
        self.word
    }

    /// Adds the verb that unlocks `lock`, which holds this token, after all others of a batch. A
    /// WRITE would be lost if a waiter's failed CAS writes back the old word.
    pub(crate) fn unlock_in<F: Fabric>(&self, fabric: &F, batch: &mut Batch, lock: GlobalAddr) {
        let batch = batch.fence();
        if fabric.capabilities().pure_cas {
            batch.volatile().write(lock, &[0]);
        } else {
            batch.volatile().cas(lock, self.word(), 0);
        }
    }

    /// Sets the address of the lock word. It must stay a lock word, or memory that never holds this
    /// token's word, while the process lives. If the token is abandoned, other processes can then
    /// take the lock over at once instead of after the end of this process.
    #[must_use]
    pub(crate) fn at(self, lock: GlobalAddr) -> Self {
        let mut this = self;
        this.lock = lock;
        this
    }

    /// Ends the token: the lock word holds another value, or never held this one.
    pub(crate) fn release(mut self) {
        self.released = true;
    }

    /// Detaches the token from its operation, which has no more verbs in flight that the lock
    /// protects against. If it is dropped before [`LockToken::pass_to`], it is over at once.
    #[must_use]
    pub(crate) fn leave(self) -> Self {
        let mut this = self;
        this.leftovers = None;
        this
    }

    /// Passes the token, and the lock that it names, to the operation of another client of the
    /// process. The former operation, if any, has no more verbs in flight that the lock protects
    /// against.
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
                // dropped.
                None => tokens.end(abandoned),
            }
        }
    }
}
