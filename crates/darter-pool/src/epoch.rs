//! Epochs inside one process: who is pinned, and since when (DART, section 4.4).
//!
//! The global epoch lives in the pool. Each process has its own view of it, the *process epoch*, never ahead; a
//! client that begins an operation pins that. A process *publishes* an epoch `e` in its member line once none of its
//! clients is pinned below `e`; the global epoch goes from `e` to `e + 1` only when every live member has published
//! `e`. What is retired is stamped with the global epoch read after unlinking (rule R5) and freed at stamp + 2.
//!
//! *Why that is safe.* A reader that can hold an object's address pinned `p` before the object was unlinked, so `p` is
//! at most the stamp `s`. For the global epoch to reach `s + 2`, someone read `s + 1` from it and then saw every live
//! member's published epoch at `s + 1`; the reader's process publishes that only when it is no longer pinned at `p`.
//!
//! *Pinning* is one swap, then a look whether the process epoch moved meanwhile; if it did, again. With the upkeep's
//! "set the process epoch, then look at the pins", both sequentially consistent, one of the two sees the other: either
//! upkeep sees the pin and does not publish, or the client sees the new epoch and pins that. Hence a client pinned at
//! `p` knows that its process has not published beyond `p`, so the global epoch is at most `p + 1`, and nothing that
//! was unlinked in an operation at `p` or later has been freed. That is rule R4: what an operation at `p` read may be
//! used by a later one at the same `p`.

use crate::hold::Abandoned;
use darter_fabric::{Orphans, mutant};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limbo::Ring;
use crate::magazine::Magazine;

/// The value of a pin that is not there: above every epoch.
const UNPINNED: u64 = u64::MAX;
/// On x86-64 a swap orders all later loads; elsewhere the model asks for a fence.
const SWAP_ORDERS_LOADS: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Locks a mutex whose data stays whole whatever panicked beside it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One client's pin, on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Pin(AtomicU64);

/// What the process knows of one of its clients.
#[derive(Debug)]
pub(crate) struct ClientState {
    pin: Pin,
    /// What the client has retired since the last stamping.
    pub ring: Mutex<Ring>,
    /// The client's magazines, for audits.
    pub magazines: Mutex<Vec<Arc<Magazine>>>,
    /// Holds that its operations abandoned, until their verbs have completed.
    pub abandoned: Mutex<Vec<Abandoned>>,
    /// Those of operations before the present one.
    pub left_over: Mutex<Vec<Abandoned>>,
    /// What its dropped operations have posted.
    pub orphans: Option<Arc<dyn Orphans>>,
    /// The client is idle or gone, and its pin outlives its last operation until somebody finds that what the operation posted
    /// has landed, and takes this back.
    pub lingering: Mutex<bool>,
    /// The client is gone; whoever ends its pin forgets it.
    pub gone: AtomicBool,
}

impl ClientState {
    /// The epoch the client is pinned at.
    pub(crate) fn pinned(&self) -> Option<u64> {
        Some(self.pin.0.load(Ordering::Acquire)).filter(|&epoch| epoch != UNPINNED)
    }

    /// Batches of its dropped operations that are on their way.
    pub(crate) fn in_flight(&self) -> usize {
        self.orphans.as_ref().map_or(0, |orphans| orphans.in_flight())
    }

    /// Pins the process epoch and answers it.
    #[inline]
    pub(crate) fn pin(&self, clients: &Clients) -> u64 {
        loop {
            let epoch = clients.epoch.load(Ordering::Acquire);
            self.pin.0.swap(epoch, Ordering::SeqCst);
            if !SWAP_ORDERS_LOADS {
                fence(Ordering::SeqCst);
            }
            // The epoch moves a few times a second, so this loop ends.
            if clients.epoch.load(Ordering::SeqCst) == epoch || mutant!("pin-without-a-second-look") {
                return epoch;
            }
        }
    }

    /// Ends the pin.
    #[inline]
    pub(crate) fn unpin(&self) {
        self.pin.0.store(UNPINNED, Ordering::Release);
    }
}

/// The process epoch and the clients that pin it.
#[derive(Debug)]
pub(crate) struct Clients {
    epoch: AtomicU64,
    states: Mutex<Vec<Arc<ClientState>>>,
}

impl Clients {
    /// No clients yet, at the epoch that registration published.
    pub(crate) fn new(epoch: u64) -> Self {
        Self { epoch: AtomicU64::new(epoch), states: Mutex::default() }
    }

    /// The process epoch.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Adds a client, unpinned.
    pub(crate) fn add(&self, orphans: Option<Arc<dyn Orphans>>) -> Arc<ClientState> {
        let state = Arc::new(ClientState {
            pin: Pin(AtomicU64::new(UNPINNED)),
            ring: Mutex::default(),
            magazines: Mutex::default(),
            abandoned: Mutex::default(),
            left_over: Mutex::default(),
            orphans,
            lingering: Mutex::default(),
            gone: AtomicBool::new(false),
        });
        lock(&self.states).push(Arc::clone(&state));
        state
    }

    /// Forgets a client that is unpinned and has handed over its ring.
    pub(crate) fn remove(&self, state: &Arc<ClientState>) {
        lock(&self.states).retain(|other| !Arc::ptr_eq(other, state));
    }

    /// The clients there are.
    pub(crate) fn all(&self) -> Vec<Arc<ClientState>> {
        lock(&self.states).clone()
    }

    /// Takes over a newer global epoch: pins from now on are at `global` or later. Only upkeep calls this.
    pub(crate) fn observe(&self, global: u64) {
        self.epoch.fetch_max(global, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The oldest pin. Call [`Clients::observe`] first.
    pub(crate) fn oldest_pin(&self) -> Option<u64> {
        lock(&self.states).iter().filter_map(|state| state.pinned()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pin_holds_back() {
        let clients = Clients::new(5);
        let (one, two) = (clients.add(None), clients.add(None));
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

    #[test]
    fn a_pin_never_slips_below_a_published_epoch() {
        let clients = Arc::new(Clients::new(1));
        let published = Arc::new(AtomicU64::new(1));
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (clients, published) = (Arc::clone(&clients), Arc::clone(&published));
                let state = clients.add(None);
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
