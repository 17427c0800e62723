//! Epochs inside one process: which clients are pinned, and since when (DART, section 4.4).
//!
//! The global epoch lives in the pool. Each process has its own view of it, the *process epoch*,
//! which is never ahead; a client that begins an operation pins the process epoch. A process
//! *publishes* an epoch `e` in its member line once none of its clients is pinned below `e`; the
//! global epoch advances from `e` to `e + 1` only when every live member has published `e`. A
//! retired object is stamped with the global epoch read after it was unlinked (rule R5) and freed
//! at stamp + 2.
//!
//! *Why that is safe.* A reader that can hold an object's address pinned `p` before the object was
//! unlinked, so `p` is at most the stamp `s`. For the global epoch to reach `s + 2`, a member must
//! have read `s + 1` from it and then seen every live member's published epoch at `s + 1`; the
//! reader's process publishes that only when the reader is no longer pinned at `p`.
//!
//! *Pinning* is one swap, then a check whether the process epoch has moved since it was read; if it
//! has, the client pins again. Upkeep sets the process epoch, then reads the pins. Both are
//! sequentially consistent, so one of the two sees the other: either upkeep sees the pin and does
//! not publish, or the client sees the new epoch and pins that. So while a client is pinned at `p`,
//! its process has not published beyond `p`, the global epoch is at most `p + 1`, and no object
//! that was unlinked in an operation at `p` or later has been freed. That is rule R4: a later
//! operation at the same `p` may use the data that an operation at `p` read.

use darter_fabric::Orphans;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use super::leftovers::Leftovers;
use super::limbo::Ring;
use crate::blocks::MagazineList;
use crate::sync::lock;

/// The value of a pin while the client is unpinned: above every epoch.
const UNPINNED: u64 = u64::MAX;
/// On x86-64 a swap orders all later loads; elsewhere the memory model requires a fence.
const SWAP_ORDERS_LOADS: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// One client's pin, on its own cache line.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Pin(AtomicU64);

/// The state of one client, as the process keeps it.
#[derive(Debug)]
pub(super) struct ClientState {
    pin: Pin,
    /// Its free objects.
    pub magazines: Arc<MagazineList>,
    /// Objects that the client has retired since the last stamping.
    pub ring: Mutex<Ring>,
    /// Work that its operations have left.
    pub leftovers: Arc<Leftovers>,
    /// Verbs that its dropped operations have posted.
    pub orphans: Option<Arc<dyn Orphans>>,
    /// The client is idle or gone, and its pin outlives its last operation until another thread
    /// finds that the operation's verbs have landed, and clears this.
    pub lingering: Mutex<bool>,
    /// The client is gone; the thread that ends its pin forgets it.
    pub gone: AtomicBool,
}

impl ClientState {
    /// The epoch at which the client is pinned.
    pub(super) fn pinned(&self) -> Option<u64> {
        Some(self.pin.0.load(Ordering::Acquire)).filter(|&epoch| epoch != UNPINNED)
    }

    /// Batches of its dropped operations that are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.orphans.as_ref().map_or(0, |orphans| orphans.in_flight())
    }

    /// Pins the process epoch and returns it.
    #[inline]
    pub(super) fn pin(&self, clients: &Clients) -> u64 {
        loop {
            let epoch = clients.epoch.load(Ordering::Acquire);
            // The epoch moves a few times a second, so this loop ends.
            if self.pin_at(epoch, clients) {
                return epoch;
            }
        }
    }

    /// Pins an epoch. Returns whether it is still the process epoch; if not, the pin may have come
    /// too late to hold anything back.
    #[inline]
    fn pin_at(&self, epoch: u64, clients: &Clients) -> bool {
        self.pin.0.swap(epoch, Ordering::SeqCst);
        if !SWAP_ORDERS_LOADS {
            fence(Ordering::SeqCst);
        }
        clients.epoch.load(Ordering::SeqCst) == epoch
    }

    /// Ends the pin.
    #[inline]
    pub(super) fn unpin(&self) {
        self.pin.0.store(UNPINNED, Ordering::Release);
    }

    /// Whether the pin outlives its operation until its verbs have landed.
    pub(super) fn is_lingering(&self) -> bool {
        *lock(&self.lingering)
    }

    /// The same; takes the right to end the pin.
    pub(super) fn take_lingering(&self) -> bool {
        std::mem::take(&mut *lock(&self.lingering))
    }

    /// Lets the pin outlive its operation.
    pub(super) fn set_lingering(&self) {
        *lock(&self.lingering) = true;
    }

    /// Does the work that the client's operations left if no verb of a dropped operation is in
    /// flight, even while the client waits in another operation.
    ///
    /// The list is taken before the check for such verbs: after the check, the client may add the
    /// work of its present operation, which has verbs in flight. Work is in the list only if its
    /// operation has been dropped, so the check sees that operation's verbs. No lock is held during
    /// the check, which may take a provider's locks, under which other threads run operations.
    pub(super) fn settle_leftovers(&self) {
        loop {
            let mut work = self.leftovers.take_former();
            if work.is_empty() {
                return;
            }
            if self.in_flight() == 0 {
                for task in work {
                    task();
                }
                return;
            }
            self.leftovers.put_back(&mut work);
            // A client that is gone may have been forgotten while the list was empty. Then no other
            // thread checks again.
            if !self.gone.load(Ordering::SeqCst) || self.in_flight() > 0 {
                return;
            }
        }
    }
}

/// The process epoch and the clients that pin it.
#[derive(Debug)]
pub(super) struct Clients {
    epoch: AtomicU64,
    states: Mutex<Vec<Arc<ClientState>>>,
}

impl Clients {
    /// A process without clients, at the epoch that registration published.
    pub(super) fn new(epoch: u64) -> Self {
        Self { epoch: AtomicU64::new(epoch), states: Mutex::default() }
    }

    /// The process epoch.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Adds a client, unpinned.
    pub(super) fn add(
        &self,
        orphans: Option<Arc<dyn Orphans>>,
        magazines: &Arc<MagazineList>,
    ) -> Arc<ClientState> {
        let state = Arc::new(ClientState {
            pin: Pin(AtomicU64::new(UNPINNED)),
            magazines: Arc::clone(magazines),
            ring: Mutex::default(),
            leftovers: Arc::default(),
            orphans,
            lingering: Mutex::default(),
            gone: AtomicBool::new(false),
        });
        lock(&self.states).push(Arc::clone(&state));
        state
    }

    /// Forgets a client that is unpinned and has handed over its ring.
    pub(super) fn remove(&self, state: &Arc<ClientState>) {
        lock(&self.states).retain(|other| !Arc::ptr_eq(other, state));
    }

    /// Ends the pin of an idle or dropped client if the verbs that it waits for have landed.
    pub(super) fn reap(&self, state: &Arc<ClientState>) {
        let mut lingering = lock(&state.lingering);
        if *lingering && state.in_flight() == 0 {
            self.end_pin(state, &mut lingering);
        }
    }

    /// Ends the pin of a client whose last operation has no verb in flight.
    pub(super) fn end_pin(&self, state: &Arc<ClientState>, lingering: &mut bool) {
        *lingering = false;
        state.leftovers.settle();
        state.unpin();
        if state.gone.load(Ordering::SeqCst) {
            self.remove(state);
        }
    }

    /// Returns all clients.
    pub(super) fn all(&self) -> Vec<Arc<ClientState>> {
        lock(&self.states).clone()
    }

    /// Adopts a newer global epoch: pins from now on are at `global` or later. Only upkeep calls
    /// this.
    pub(super) fn observe(&self, global: u64) {
        self.epoch.fetch_max(global, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Returns the oldest pin. Call [`Clients::observe`] first.
    pub(super) fn oldest_pin(&self) -> Option<u64> {
        lock(&self.states).iter().filter_map(|state| state.pinned()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pin_holds_back() {
        let clients = Clients::new(5);
        let (one, two) = (clients.add(None, &Arc::default()), clients.add(None, &Arc::default()));
        assert_eq!(clients.oldest_pin(), None);
        assert_eq!(one.pin(&clients), 5);
        clients.observe(6);
        assert_eq!(two.pin(&clients), 6);
        assert_eq!(clients.oldest_pin(), Some(5));
        one.unpin();
        assert_eq!(clients.oldest_pin(), Some(6));
        clients.remove(&two);
        assert_eq!(clients.oldest_pin(), None);
        clients.observe(4);
        assert_eq!(clients.epoch(), 6);
    }

    /// Between a client's read of the epoch and its pin, the epoch moves, and upkeep finds no pin.
    #[test]
    fn an_epoch_that_moved_before_it_was_pinned_is_not_pinned() {
        let clients = Clients::new(5);
        let client = clients.add(None, &Arc::default());
        let read = clients.epoch();
        clients.observe(6);
        assert_eq!(clients.oldest_pin(), None, "6 is published");
        assert!(!client.pin_at(read, &clients));
        assert_eq!(client.pin(&clients), 6);
        assert_eq!(clients.oldest_pin(), Some(6));
    }

    #[test]
    fn a_pin_never_slips_below_a_published_epoch() {
        let clients = Arc::new(Clients::new(1));
        let published = Arc::new(AtomicU64::new(1));
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (clients, published) = (Arc::clone(&clients), Arc::clone(&published));
                let state = clients.add(None, &Arc::default());
                std::thread::spawn(move || {
                    for _ in 0..rounds {
                        let pinned = state.pin(&clients);
                        assert!(published.load(Ordering::SeqCst) <= pinned);
                        state.unpin();
                    }
                })
            })
            .collect();
        for epoch in 2..rounds {
            clients.observe(epoch);
            if clients.oldest_pin().is_none_or(|pin| pin >= epoch) {
                published.store(epoch, Ordering::SeqCst);
            }
        }
        for worker in workers {
            worker.join().unwrap();
        }
    }
}
