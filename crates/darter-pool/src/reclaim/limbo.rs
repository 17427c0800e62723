//! Limbo: objects that were unlinked and may still be read.
//!
//! A client collects retired objects in its [`Ring`]; every 64 of them become a [`Bag`] of the
//! process. A bag gets its *stamp*, the global epoch read after all its objects were unlinked (rule
//! R5), at the next round of upkeep. Upkeep frees the bag two epochs later. Since bags belong to
//! the process, a client that goes away leaves nothing behind. Objects with a note
//! ([`crate::Pinned::unlink`]) pass a first grace period here, are handed out for scrubbing, and
//! come back by `retire` for the second (rule R3).
//!
//! Each object also carries the epoch at which it was *born* into limbo: the pin of the operation
//! that unlinked it. The oldest birth of any object not yet freed for good bounds the *flushed*
//! epoch in the member line, on which sweeps rely (`adoption`). Objects move between rings, limbo
//! and an operation's hands while that minimum is computed. It is computed in the order limbo,
//! rings, limbo, so that an object that moves is found in one place or the other.
//!
//! Lock order: ring, then limbo, then heap.

use darter_fabric::GlobalAddr;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::blocks::{AllocKind, Object};
use crate::sync::lock;

/// Objects in a bag.
pub(super) const BAG_OBJECTS: usize = 64;
const NEVER: u64 = u64::MAX;

/// The objects that one client has retired since its last bag.
#[derive(Debug)]
pub(super) struct Ring {
    objects: Vec<Object>,
    born: u64,
    /// Birth of the oldest object that `take_graced` handed out and that may not be retired yet.
    in_hand: u64,
    /// The addresses of those objects. They are in no list of limbo, but not leaked.
    handed_out: HashSet<GlobalAddr>,
    /// Shared by those objects.
    hand: Arc<()>,
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            born: NEVER,
            in_hand: NEVER,
            handed_out: HashSet::new(),
            hand: Arc::default(),
        }
    }
}

/// Objects that were unlinked before one read of the global epoch.
#[derive(Debug)]
struct Bag {
    sequence: u64,
    stamp: Option<u64>,
    born: u64,
    objects: Vec<Object>,
}

/// An object that has passed its first grace period: no reader that found it in the tree still
/// holds it.
#[derive(Debug)]
pub struct Unlinked {
    /// Its address.
    pub addr: GlobalAddr,
    /// Its size in bytes, as passed to [`crate::Pinned::unlink`].
    pub bytes: u64,
    /// Its kind.
    pub kind: AllocKind,
    /// The note that the index passed when it unlinked the object.
    pub note: Box<[u8]>,
    pub(super) born: u64,
    /// While it exists, all that the taking client retires or unlinks counts as born when this was.
    pub(super) hand: Option<Arc<()>>,
}

#[derive(Debug)]
struct Noted {
    sequence: u64,
    stamp: Option<u64>,
    object: Unlinked,
}

#[derive(Debug)]
struct State {
    next_sequence: u64,
    bags: VecDeque<Bag>,
    noted: VecDeque<Noted>,
    graced: Vec<Unlinked>,
    /// Objects in other members' blocks that wait to be freed by FAA, and their oldest birth.
    remote: Vec<Object>,
    remote_born: u64,
}

/// The process's limbo.
#[derive(Debug)]
pub(super) struct Limbo {
    state: Mutex<State>,
    waiting: AtomicUsize,
    graced: AtomicUsize,
    /// Objects that wait for nodes that are away.
    put_off: AtomicUsize,
    /// Objects freed so far.
    freed: AtomicU64,
}

impl Limbo {
    pub(super) fn new() -> Self {
        let state = State {
            next_sequence: 0,
            bags: VecDeque::new(),
            noted: VecDeque::new(),
            graced: Vec::new(),
            remote: Vec::new(),
            remote_born: NEVER,
        };
        Self {
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            graced: AtomicUsize::new(0),
            put_off: AtomicUsize::new(0),
            freed: AtomicU64::new(0),
        }
    }

    /// Objects that wait here, without those in rings.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of objects that were freed so far.
    pub(super) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    /// Objects that wait for [`Limbo::take_graced`].
    #[inline]
    pub(super) fn graced(&self) -> usize {
        self.graced.load(Ordering::Relaxed)
    }

    /// Objects that rounds of upkeep will free.
    pub(super) fn ripening(&self) -> usize {
        let others = self.graced() + self.put_off.load(Ordering::Relaxed);
        self.waiting().saturating_sub(others)
    }

    /// Adds a retired object to a ring, and moves the ring's objects to limbo if the ring is full;
    /// returns whether it was.
    pub(super) fn retire(&self, ring: &Mutex<Ring>, object: Object, born: u64) -> bool {
        let mut ring = lock(ring);
        ring.born = ring.born.min(born).min(ring.in_hand);
        ring.take_back(object.addr());
        if ring.objects.capacity() == 0 {
            ring.objects.reserve_exact(BAG_OBJECTS);
        }
        ring.objects.push(object);
        let full = ring.objects.len() >= BAG_OBJECTS;
        if full {
            self.empty(&mut ring);
        }
        full
    }

    /// Moves a ring's objects into a bag.
    pub(super) fn collect(&self, ring: &Mutex<Ring>) {
        self.empty(&mut lock(ring));
    }

    /// Whether a ring is empty.
    pub(super) fn is_empty(ring: &Mutex<Ring>) -> bool {
        lock(ring).objects.is_empty()
    }

    fn empty(&self, ring: &mut Ring) {
        if ring.objects.is_empty() {
            return;
        }
        let objects = std::mem::take(&mut ring.objects);
        let born = std::mem::replace(&mut ring.born, NEVER);
        self.waiting.fetch_add(objects.len(), Ordering::Relaxed);
        let mut state = lock(&self.state);
        let sequence = state.take_sequence();
        state.bags.push_back(Bag { sequence, stamp: None, born, objects });
    }

    /// Adds an object for the first of two grace periods. It may be one that `ring`'s owner has in
    /// hand, so it counts as born no later than those.
    pub(super) fn unlink(&self, ring: &Mutex<Ring>, mut object: Unlinked) {
        // Locked to the end, so that no births in hand are forgotten before the object is in limbo.
        let mut ring = lock(ring);
        ring.take_back(object.addr);
        object.born = object.born.min(ring.in_hand);
        object.hand = None;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        let sequence = state.take_sequence();
        state.noted.push_back(Noted { sequence, stamp: None, object });
    }

    /// Hands out the objects that have passed their first grace period; `ring` notes their oldest
    /// birth before they leave limbo.
    pub(super) fn take_graced(&self, ring: &Mutex<Ring>) -> Vec<Unlinked> {
        let mut ring = lock(ring);
        let mut state = lock(&self.state);
        let mut taken = std::mem::take(&mut state.graced);
        for object in &mut taken {
            object.hand = Some(Arc::clone(&ring.hand));
        }
        ring.in_hand = taken.iter().map(|object| object.born).fold(ring.in_hand, u64::min);
        ring.handed_out.extend(taken.iter().map(|object| object.addr));
        self.waiting.fetch_sub(taken.len(), Ordering::Relaxed);
        self.graced.store(0, Ordering::Relaxed);
        taken
    }

    /// Forgets births in hand once all objects that were handed out are gone; returns whether they
    /// are. Must not be called while the ring's owner is in the middle of an operation, which may
    /// have dropped a handed-out object just before it retires it.
    pub(super) fn settle_hand(ring: &Mutex<Ring>) -> bool {
        let mut ring = lock(ring);
        let settled = Arc::strong_count(&ring.hand) == 1;
        if settled {
            ring.in_hand = NEVER;
            ring.handed_out.clear();
        }
        settled
    }

    /// Returns a mark: the objects now in limbo were unlinked before it.
    pub(super) fn mark(&self) -> u64 {
        lock(&self.state).next_sequence
    }

    /// Stamps the objects that were there at `mark` with the global epoch read after `mark`; calls
    /// `retired` with the objects for which the last grace period begins.
    pub(super) fn stamp(&self, mark: u64, global: u64, mut retired: impl FnMut(Object)) {
        let mut state = lock(&self.state);
        for bag in state.bags.iter_mut().rev().skip_while(|bag| bag.sequence >= mark) {
            if bag.stamp.is_some() {
                break;
            }
            bag.stamp = Some(global);
            bag.objects.iter().copied().for_each(&mut retired);
        }
        for noted in state.noted.iter_mut().rev().skip_while(|noted| noted.sequence >= mark) {
            if noted.stamp.is_some() {
                break;
            }
            noted.stamp = Some(global);
        }
    }

    /// Takes the objects that are free at `global`: calls `free` with each bag's objects, which
    /// returns those in other members' blocks; calls `graced` with the stamps of objects that have
    /// passed their first grace period. Runs under limbo's lock, so that [`Limbo::oldest`] misses
    /// nothing.
    pub(super) fn ripen(
        &self,
        global: u64,
        mut graced: impl FnMut(u64),
        mut free: impl FnMut(&[Object]) -> Vec<Object>,
    ) {
        let mut state = lock(&self.state);
        let is_ripe = |stamp: Option<u64>| stamp.is_some_and(|stamp| stamp + 2 <= global);
        while state.bags.front().is_some_and(|bag| is_ripe(bag.stamp)) {
            let Some(bag) = state.bags.pop_front() else { break };
            let remote = free(&bag.objects);
            self.freed.fetch_add(bag.objects.len() as u64, Ordering::Relaxed);
            self.waiting.fetch_sub(bag.objects.len() - remote.len(), Ordering::Relaxed);
            if !remote.is_empty() {
                state.remote_born = state.remote_born.min(bag.born);
                state.remote.extend(remote);
            }
        }
        while state.noted.front().is_some_and(|noted| is_ripe(noted.stamp)) {
            let Some(noted) = state.noted.pop_front() else { break };
            noted.stamp.into_iter().for_each(&mut graced);
            state.graced.push(noted.object);
        }
        self.graced.store(state.graced.len(), Ordering::Relaxed);
    }

    /// Takes the objects that wait to be freed by FAA, except those on nodes that are away, with the oldest
    /// birth of all.
    pub(super) fn take_remote(&self, is_away: impl Fn(u8) -> bool) -> (Vec<Object>, u64) {
        let mut state = lock(&self.state);
        let objects: Vec<_> = state.remote.extract_if(.., |object| !is_away(object.addr().node())).collect();
        self.waiting.fetch_sub(objects.len(), Ordering::Relaxed);
        self.put_off.store(state.remote.len(), Ordering::Relaxed);
        let born = state.remote_born;
        if state.remote.is_empty() {
            state.remote_born = NEVER;
        }
        (objects, born)
    }

    /// Returns a node that is away and has objects that wait to be freed by FAA, if there is one.
    pub(super) fn awaits(&self, is_away: impl Fn(u8) -> bool) -> Option<u8> {
        lock(&self.state).remote.iter().map(|object| object.addr().node()).find(|&node| is_away(node))
    }

    /// Returns the oldest birth in limbo.
    fn oldest_here(&self) -> u64 {
        let state = lock(&self.state);
        let bags = state.bags.iter().map(|bag| bag.born);
        let noted = state.noted.iter().map(|noted| noted.object.born);
        let graced = state.graced.iter().map(|object| object.born);
        bags.chain(noted).chain(graced).fold(state.remote_born, u64::min)
    }

    /// Returns the oldest birth of any object that this process has unlinked and not freed for
    /// good. `clients` returns the oldest birth in its clients' rings and pins; it is called
    /// between two reads of limbo.
    pub(super) fn oldest(&self, clients: impl FnOnce() -> u64) -> u64 {
        let before = self.oldest_here();
        let between = clients();
        let again = self.oldest_here();
        before.min(between).min(again)
    }

    /// Returns the oldest birth in a ring or in its owner's hands.
    pub(super) fn oldest_in(ring: &Mutex<Ring>) -> u64 {
        let ring = lock(ring);
        ring.born.min(ring.in_hand)
    }

    /// Returns all objects in limbo, for audits.
    pub(super) fn contents(&self) -> Vec<GlobalAddr> {
        let state = lock(&self.state);
        let bags =
            state.bags.iter().flat_map(|bag| &bag.objects).chain(&state.remote).map(|object| object.addr());
        let noted = state.noted.iter().map(|noted| noted.object.addr);
        bags.chain(noted).chain(state.graced.iter().map(|object| object.addr)).collect()
    }

    /// Returns a ring's objects and those handed out to its owner, for audits.
    pub(super) fn ring_contents(ring: &Mutex<Ring>) -> Vec<GlobalAddr> {
        let ring = lock(ring);
        ring.objects.iter().map(|object| object.addr()).chain(ring.handed_out.iter().copied()).collect()
    }
}

impl Ring {
    /// Notes that an object is back in limbo, if it was handed out.
    fn take_back(&mut self, addr: GlobalAddr) {
        if !self.handed_out.is_empty() {
            self.handed_out.remove(&addr);
        }
    }
}

impl State {
    fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(offset: u64) -> Object {
        Object::new(GlobalAddr::new(1, offset), 5)
    }

    #[test]
    fn objects_ripen_two_epochs_after_their_stamp() {
        let (limbo, ring) = (Limbo::new(), Mutex::new(Ring::default()));
        assert!(!limbo.retire(&ring, object(64), 7));
        limbo.collect(&ring);
        let mark = limbo.mark();
        limbo.retire(&ring, object(128), 8);
        limbo.collect(&ring);
        limbo.stamp(mark, 10, drop);
        let ripe = |global| {
            let mut freed = Vec::new();
            limbo.ripen(global, drop, |objects| {
                freed.extend_from_slice(objects);
                Vec::new()
            });
            freed
        };
        assert_eq!(limbo.oldest(|| NEVER), 7);
        assert!(ripe(11).is_empty());
        assert_eq!(ripe(12), vec![object(64)]);
        assert_eq!(limbo.oldest(|| NEVER), 8);
        assert!(ripe(100).is_empty());
        limbo.stamp(limbo.mark(), 100, drop);
        assert_eq!(ripe(102), vec![object(128)]);
        assert_eq!((limbo.waiting(), limbo.oldest(|| NEVER)), (0, NEVER));
    }

    #[test]
    fn notes_come_back_once_and_keep_their_birth() {
        let (limbo, ring) = (Limbo::new(), Mutex::new(Ring::default()));
        let addr = GlobalAddr::new(0, 4096);
        let note = [1, 2].into();
        let noted = Unlinked { addr, bytes: 80, kind: AllocKind::Inner, note, born: 3, hand: None };
        limbo.unlink(&ring, noted);
        limbo.stamp(limbo.mark(), 5, drop);
        limbo.ripen(6, drop, |_| Vec::new());
        assert_eq!(limbo.graced(), 0);
        limbo.ripen(7, drop, |_| Vec::new());
        let taken = limbo.take_graced(&ring);
        assert_eq!((taken.len(), &*taken[0].note, limbo.graced()), (1, &[1, 2][..], 0));
        assert_eq!(Limbo::oldest_in(&ring), 3);
        limbo.retire(&ring, object(64), 9);
        assert!(!Limbo::settle_hand(&ring));
        drop(taken);
        assert!(Limbo::settle_hand(&ring));
        assert_eq!(Limbo::oldest_in(&ring), 3);
    }
}
