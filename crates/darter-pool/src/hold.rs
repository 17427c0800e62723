//! Holds: names for whoever has a lock in the pool, so that a lock is a lease and not a trap.
//!
//! DART needs no locks; the systems it is compared with do. A lock word of theirs holds 0 or a hold's word:
//!
//! ```text
//! member slot 8 | generation 8 | number 16 | incarnation 32      never 0: incarnations begin at 1
//! ```
//!
//! A hold is *over* when its holder can write no more: its process has ended, after fencing proved or enforced that; or
//! it was dropped without [`Hold::release`], as by a cancelled operation or an error, and all verbs of that operation have
//! completed. Only then may another client take the lock over, by CAS from that word, and mend what was left half done.
//!
//! Other processes cannot see that a hold was abandoned while its process lives, so upkeep *disowns* its lock word
//! ([`Hold::at`]): makes it a word that names nobody. Whoever waits for a lock does upkeep, so two clients that wait for what each
//! other's process abandoned do not wait for ever.
//!
//! Numbers are reused, with another generation each time, so words come back in the end. Two CASes
//! must not meet that: the one that takes a lock over, some round trips after its client learnt that
//! the holder was over; and one that disowns a word and lands late. So the number that has been free
//! for longest is reused, and only when 4,096 are free: a word comes back after 256 × 4,096 holds of
//! its process, 1,048,576, at the earliest. The bound is smaller only while a process has more than
//! 61,440 holds at a time, since fewer numbers are free then. A word that came back names a present
//! hold: who asks is told that it is not over, and asks again.

use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, mutant};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::block::Owner;
use crate::client::{Client, Pinned};
use crate::epoch::{ClientState, lock};
use crate::{PoolError, member};

/// Locks that a process can hold at a time.
const HOLDS_MAX: usize = 1 << 16;
/// Numbers that have to be free before one is reused, as long as there are new ones.
const FREE_MIN: usize = 4096;

/// A lock word that names nobody: incarnations begin at 1.
const DISOWNED: u64 = 1 << 32;

/// The holds of a process.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    /// By number: the generation, and whether it is in use.
    states: Vec<(u8, bool)>,
    /// The one that has been free for longest comes first.
    free: VecDeque<u16>,
    /// Over, with lock words that may still name them; their numbers are not free yet.
    to_disown: Vec<Abandoned>,
}

/// A hold that was dropped without being released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned {
    number: u16,
    word: u64,
    lock: GlobalAddr,
}

impl Holds {
    /// A number that is not in use, with its generation.
    fn take(&self) -> Option<(u16, u8)> {
        let mut numbers = lock(&self.0);
        let number = if numbers.free.len() < FREE_MIN && numbers.states.len() < HOLDS_MAX {
            numbers.states.push((0, false));
            (numbers.states.len() - 1) as u16
        } else {
            numbers.free.pop_front()?
        };
        let (generation, in_use) = &mut numbers.states[usize::from(number)];
        if !mutant!("hold-generation-kept") {
            *generation = generation.wrapping_add(1);
        }
        *in_use = true;
        Some((number, *generation))
    }

    fn give_back(&self, number: u16) {
        let mut numbers = lock(&self.0);
        numbers.states[usize::from(number)].1 = false;
        numbers.free.push_back(number);
    }

    fn is_over(&self, number: u16, generation: u8) -> bool {
        lock(&self.0).states.get(usize::from(number)) != Some(&(generation, true))
    }

    /// The verbs of a client's operation have completed: what it abandoned is over.
    pub(crate) fn settle(&self, state: &ClientState) {
        lock(&state.left_over).append(&mut lock(&state.abandoned));
        let left_over = std::mem::take(&mut *lock(&state.left_over));
        self.end(left_over);
    }

    /// The verbs of the operations that abandoned these holds have completed: the holds are over.
    pub(crate) fn end(&self, over: Vec<Abandoned>) {
        let mut numbers = lock(&self.0);
        for abandoned in over {
            numbers.states[usize::from(abandoned.number)].1 = false;
            if abandoned.lock.is_null() || mutant!("hold-never-disowned") {
                numbers.free.push_back(abandoned.number);
            } else {
                numbers.to_disown.push(abandoned);
            }
        }
    }

    /// Has the lock words of abandoned holds name nobody, so that other processes may take the locks over. Cancelled, it is done
    /// again.
    ///
    /// # Errors
    /// The fabric's.
    pub(crate) async fn disown<E: Endpoint>(&self, endpoint: &mut E) -> Result<(), FabricError> {
        let abandoned = lock(&self.0).to_disown.clone();
        if abandoned.is_empty() {
            return Ok(());
        }
        let mut batch = endpoint.batch();
        for &Abandoned { word, lock, .. } in &abandoned {
            batch.cas(lock, word, DISOWNED);
        }
        let done = endpoint.submit(batch).await?;
        endpoint.recycle(done);
        // Another round may have done the same meanwhile: a number is free once.
        let mut numbers = lock(&self.0);
        let Numbers { to_disown, free, .. } = &mut *numbers;
        to_disown.retain(|listed| {
            let is_done = abandoned.iter().any(|done| done.word == listed.word);
            free.extend(is_done.then_some(listed.number));
            !is_done
        });
        Ok(())
    }
}

fn word_of(me: Owner, number: u16, generation: u8) -> u64 {
    u64::from(me.member) << 56
        | u64::from(generation) << 48
        | u64::from(number) << 32
        | u64::from(me.incarnation)
}

/// A name to put into a lock word, for as long as the lock is held. Dropped without [`Hold::release`], it is abandoned: over
/// as soon as the verbs of the operation that had it have completed.
#[derive(Debug)]
pub struct Hold {
    word: u64,
    number: u16,
    /// Null, or the lock word that may name it.
    lock: GlobalAddr,
    holds: Arc<Holds>,
    /// Of the client whose operation has it; none between two operations.
    state: Option<Arc<ClientState>>,
    released: bool,
}

impl Hold {
    /// What to put into the lock word. Never 0.
    pub fn word(&self) -> u64 {
        self.word
    }

    /// The same for the lock word at this address, which has to stay a lock word, or memory that never holds this hold's word, for
    /// as long as the process lives: if the hold is abandoned, other processes too may take the lock over at once, instead of
    /// when this one has ended.
    #[must_use]
    pub fn at(self, lock: GlobalAddr) -> Self {
        let mut this = self;
        this.lock = lock;
        this
    }

    /// Ends the hold in order: the lock word holds another value, or never held this one.
    pub fn release(mut self) {
        self.released = true;
    }

    /// Takes the hold from the operation that has it, which has no verbs on their way that the lock protects against. Dropped
    /// before [`Hold::pass_to`] gives it to another, it is over at once.
    #[must_use]
    pub fn leave(self) -> Self {
        let mut this = self;
        this.state = None;
        this
    }

    /// Passes the hold, and the lock that it names, to a client of the process: from now on that client's operation has it. The
    /// former, if there is one, has no verbs on their way that the lock protects against.
    pub fn pass_to<F: Fabric>(&mut self, client: &mut Pinned<'_, F>) {
        self.state = Some(client.note_hold());
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.released || mutant!("hold-over-as-soon-as-dropped") {
            self.holds.give_back(self.number);
        } else {
            let &mut Self { number, word, lock: at, .. } = self;
            let abandoned = Abandoned { number, word, lock: at };
            match &self.state {
                Some(state) => lock(&state.abandoned).push(abandoned),
                // No operation would ever settle it: its former client may be idle for long, or gone.
                None => self.holds.end(vec![abandoned]),
            }
        }
    }
}

impl<F: Fabric> Pinned<'_, F> {
    /// A new name to lock with, for this operation.
    ///
    /// # Errors
    /// [`PoolError::TooManyHolds`].
    pub fn hold(&mut self) -> Result<Hold, PoolError> {
        let shared = &self.pool().shared;
        let (me, holds) = (shared.me, Arc::clone(&shared.holds));
        let (number, generation) = holds.take().ok_or(PoolError::TooManyHolds { max: HOLDS_MAX })?;
        let state = Some(self.note_hold());
        let word = word_of(me, number, generation);
        Ok(Hold { word, number, lock: GlobalAddr::NULL, holds, state, released: false })
    }
}

impl<F: Fabric> Client<F> {
    /// Whether the hold that a lock word names is over, so that the lock may be taken over by CAS from that word. Words that
    /// name nobody are. Does a round of upkeep, by which members that died or lapsed are ended: call it unpinned, since whoever
    /// waits while pinned holds up everybody's reclamation, and pause between calls.
    ///
    /// # Errors
    /// As [`crate::Pool::maintain`].
    pub async fn is_over(&mut self, word: u64) -> Result<bool, PoolError> {
        self.settle_own_holds();
        if word as u32 == 0 {
            return Ok(true);
        }
        let named = Owner { member: (word >> 56) as u8, incarnation: word as u32 };
        let me = self.pool().shared.me;
        if named == me {
            let is_over = self.pool().shared.holds.is_over((word >> 32) as u16, (word >> 48) as u8);
            if !is_over {
                self.upkeep().await?;
            }
            return Ok(is_over);
        }
        self.upkeep().await?;
        let (_, endpoint) = self.parts();
        Ok(!member::is_live(endpoint, named).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_comes_back_only_after_a_million_holds() {
        let holds = Holds::default();
        let present = [holds.take(), holds.take()].map(Option::unwrap);
        let first = holds.take().unwrap();
        holds.give_back(first.0);
        let others = (1..1 << 24).find(|_| {
            let (number, generation) = holds.take().unwrap();
            assert!(!present.iter().any(|&(held, _)| held == number));
            holds.give_back(number);
            (number, generation) == first
        });
        assert_eq!(others, Some(256 * FREE_MIN));
    }

    #[test]
    fn every_number_can_be_held_at_a_time() {
        let holds = Holds::default();
        let numbers: Vec<_> = (0..HOLDS_MAX).map(|_| holds.take().unwrap().0).collect();
        assert_eq!(holds.take(), None);
        holds.give_back(numbers[7]);
        assert_eq!(holds.take(), Some((7, 2)));
        assert_eq!(holds.take(), None);
    }
}
