//! One client's part in reclamation: its pin, the objects it has retired, and when upkeep is due.

use darter_fabric::{Endpoint, GlobalAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::epoch::ClientState;
use super::leftovers::Leftovers;
use super::limbo::{Limbo, Unlinked};
use super::upkeep::Reclamation;
use crate::blocks::{AllocKind, MagazineList, Object};
use crate::sync::lock;

/// Operations between checks whether upkeep is due.
const UPKEEP_OPERATIONS: u32 = 1024;
/// Bags of garbage between two checks that make upkeep due at the next operation.
const UPKEEP_BAGS: u32 = 16;

/// One client's pin and the objects that it has retired.
pub(crate) struct Reclaimer {
    state: Arc<ClientState>,
    /// The epoch of the present operation, or of the last one.
    epoch: u64,
    /// Operations under way, one inside another.
    depth: u32,
    /// The pin outlived its operation because verbs were in flight.
    lingers: bool,
    /// The client's operations may have left work.
    has_leftovers: bool,
    /// Objects from `take_graced` may be in hand.
    has_hand: bool,
    until_upkeep: u32,
    bags: u32,
}

impl Reclaimer {
    /// An unpinned client with an endpoint and these magazines.
    pub(crate) fn new<E: Endpoint>(
        reclamation: &Reclamation,
        endpoint: &E,
        magazines: &Arc<MagazineList>,
    ) -> Self {
        Self {
            epoch: reclamation.epoch(),
            state: reclamation.add_client(endpoint.orphans(), magazines),
            depth: 0,
            lingers: false,
            has_leftovers: false,
            has_hand: false,
            until_upkeep: UPKEEP_OPERATIONS,
            bags: 0,
        }
    }

    /// The epoch of the present operation, or of the last one.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The epoch at which the client is pinned, as the process sees it.
    pub(crate) fn pinned(&self) -> Option<u64> {
        self.state.pinned()
    }

    /// Whether an operation is under way.
    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.depth > 0
    }

    /// Whether the pin outlived its operation because verbs were in flight.
    pub(crate) fn lingers(&self) -> bool {
        self.lingers
    }

    /// Counts an operation. Returns whether it must check for upkeep first.
    #[inline]
    pub(crate) fn count_operation(&mut self) -> bool {
        self.until_upkeep = self.until_upkeep.saturating_sub(1);
        self.until_upkeep == 0
    }

    /// Begins a span of operations, and returns how many rounds of upkeep are due after the last
    /// one.
    pub(crate) fn take_due_rounds(&mut self, reclamation: &Reclamation) -> u32 {
        self.until_upkeep = UPKEEP_OPERATIONS;
        self.bags = 0;
        // Under pressure the epoch has to advance twice beyond the garbage's stamp, once per round.
        if reclamation.take_pressure() { 4 } else { 1 }
    }

    /// Whether upkeep could bring any memory back.
    pub(crate) fn has_garbage(&self, reclamation: &Reclamation) -> bool {
        reclamation.limbo.waiting() > 0 || !Limbo::is_empty(&self.state.ring)
    }

    /// Notes that an allocation found no room. The caller is pinned, so nothing ripens now; the
    /// upkeep before the next operation runs more rounds.
    pub(crate) fn note_out_of_space(&mut self, reclamation: &Reclamation) {
        reclamation.set_pressure();
        self.until_upkeep = 1;
    }

    /// Pins the process epoch, or keeps a pin whose verbs are still in flight, and returns the
    /// epoch. Inside another operation call only [`Reclaimer::nest`].
    #[inline]
    pub(crate) fn enter<E: Endpoint>(&mut self, reclamation: &Reclamation, endpoint: &E) -> u64 {
        if self.has_hand || self.lingers {
            self.enter_slowly(endpoint);
        }
        if !self.lingers {
            self.epoch = self.state.pin(&reclamation.clients);
        }
        self.epoch
    }

    #[cold]
    fn enter_slowly<E: Endpoint>(&mut self, endpoint: &E) {
        if self.lingers {
            // From now on the pin is also this operation's: no other thread may end it.
            let lingers = self.state.take_lingering();
            self.lingers = lingers && endpoint.in_flight() > 0;
        }
        self.state.leftovers.next_operation();
        self.settle_leftovers();
        self.has_hand = self.has_hand && !Limbo::settle_hand(&self.state.ring);
    }

    /// Counts one more guard of the operation.
    #[inline]
    pub(crate) fn nest(&mut self) {
        self.depth += 1;
    }

    /// Counts one guard less. Returns whether it was the operation's last.
    #[inline]
    pub(crate) fn unnest(&mut self) -> bool {
        self.depth -= 1;
        self.depth == 0
    }

    /// Ends the pin, unless verbs of the operation are in flight.
    #[inline]
    pub(crate) fn leave<E: Endpoint>(&mut self, endpoint: &E) {
        self.lingers = endpoint.in_flight() > 0;
        if self.lingers {
            self.state.set_lingering();
            return;
        }
        if self.has_leftovers {
            self.settle_leftovers();
        }
        self.state.unpin();
    }

    /// Does the work that the last operation left, unless its verbs are still in flight.
    #[cold]
    fn settle_leftovers(&mut self) {
        if self.has_leftovers && !self.lingers {
            self.has_leftovers = false;
            self.state.leftovers.settle();
        }
    }

    /// Does the work that earlier operations left if none of their verbs is in flight: an operation
    /// must not wait for work that would otherwise be done only at its own end.
    pub(crate) fn settle_own_leftovers<E: Endpoint>(&mut self, endpoint: &E) {
        if self.has_leftovers && endpoint.in_flight() == 0 {
            self.state.leftovers.settle();
        }
    }

    /// Returns the list of work to do once the present operation's verbs have completed.
    pub(crate) fn leftovers(&mut self) -> Arc<Leftovers> {
        self.has_leftovers = true;
        Arc::clone(&self.state.leftovers)
    }

    /// Ends a pin that outlived its operation, if its verbs have completed.
    pub(crate) fn release_lingering_pin(&mut self, reclamation: &Reclamation) {
        if self.depth == 0 && self.lingers {
            reclamation.clients.reap(&self.state);
            self.lingers = self.state.is_lingering();
            self.settle_leftovers();
        }
    }

    /// The epoch in which an object unlinked now counts as born: the operation's. Outside any
    /// operation it is unknown, and counts as 0.
    fn birth(&self) -> u64 {
        if self.depth > 0 { self.epoch } else { 0 }
    }

    /// Takes an object that the operation has unlinked.
    pub(crate) fn retire(&mut self, reclamation: &Reclamation, object: Object) {
        if reclamation.limbo.retire(&self.state.ring, object, self.birth()) {
            self.bags += 1;
            if self.bags >= UPKEEP_BAGS {
                self.until_upkeep = 1;
            }
        }
    }

    /// Takes an object that the operation has unlinked and that hints may still name.
    pub(crate) fn unlink(
        &mut self,
        reclamation: &Reclamation,
        addr: GlobalAddr,
        bytes: u64,
        kind: AllocKind,
        note: Box<[u8]>,
    ) {
        let object = Unlinked { addr, bytes, kind, note, born: self.birth(), hand: None };
        self.put_back(reclamation, object);
    }

    /// Takes an object from [`Reclaimer::take_graced`] back.
    pub(crate) fn put_back(&mut self, reclamation: &Reclamation, object: Unlinked) {
        reclamation.limbo.unlink(&self.state.ring, object);
    }

    /// Objects of any client of this process that have passed their first grace period.
    #[inline]
    pub(crate) fn take_graced(&mut self, reclamation: &Reclamation) -> Vec<Unlinked> {
        if reclamation.limbo.graced() == 0 {
            return Vec::new();
        }
        self.has_hand = true;
        reclamation.limbo.take_graced(&self.state.ring)
    }

    /// Ends the client and its endpoint. The pin outlives the client while its last verbs are in
    /// flight.
    pub(crate) fn close<E: Endpoint>(&mut self, reclamation: &Reclamation, endpoint: Option<E>) {
        reclamation.limbo.collect(&self.state.ring);
        self.state.gone.store(true, Ordering::SeqCst);
        let mut lingering = lock(&self.state.lingering);
        *lingering = endpoint.is_some_and(|endpoint| endpoint.in_flight() > 0);
        if !*lingering {
            reclamation.clients.end_pin(&self.state, &mut lingering);
        }
    }
}
