//! Sessions: which process holds which member slot, which are connected, which are shut out for ever.

use darter_fabric::tcp::wire::Refusal;
use std::collections::{HashMap, HashSet};

/// Sessions that a node has shut out and remembers; the oldest are forgotten beyond this. A session's number is random and
/// used by one process only, so only a process that slept while a million others died could slip through.
const FENCED_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// Connections of each session.
    connected: HashMap<u64, usize>,
    /// The session that holds each member slot.
    slots: HashMap<u64, u64>,
    fenced: HashSet<u64>,
    fenced_in_order: std::collections::VecDeque<u64>,
}

impl Sessions {
    pub(super) fn is_fenced(&self, session: u64) -> bool {
        self.fenced.contains(&session)
    }

    pub(super) fn enter(&mut self, session: u64) {
        *self.connected.entry(session).or_default() += 1;
    }

    pub(super) fn leave(&mut self, session: u64) {
        if let Some(count) = self.connected.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                self.connected.remove(&session);
            }
        }
    }

    fn shut_out(&mut self, session: u64) {
        if self.fenced.insert(session) {
            self.fenced_in_order.push_back(session);
            if self.fenced_in_order.len() > FENCED_MAX
                && let Some(oldest) = self.fenced_in_order.pop_front()
            {
                self.fenced.remove(&oldest);
            }
        }
    }

    /// Takes a slot for a session. A holder without a connection is shut out first.
    pub(super) fn claim(&mut self, slot: u64, session: u64) -> Refusal {
        match self.slots.get(&slot) {
            Some(&holder) if holder == session => Refusal::None,
            Some(holder) if self.connected.contains_key(holder) => Refusal::Taken,
            Some(&holder) => {
                self.shut_out(holder);
                self.slots.insert(slot, session);
                Refusal::None
            }
            None => {
                self.slots.insert(slot, session);
                Refusal::None
            }
        }
    }

    pub(super) fn release(&mut self, slot: u64, session: u64) {
        if self.slots.get(&slot) == Some(&session) {
            self.slots.remove(&slot);
        }
    }

    /// Shuts out the holder of a slot, unless it is connected.
    pub(super) fn fence(&mut self, slot: u64) -> Refusal {
        match self.slots.get(&slot).copied() {
            Some(holder) if self.connected.contains_key(&holder) => Refusal::Taken,
            Some(holder) => {
                self.shut_out(holder);
                self.slots.remove(&slot);
                Refusal::None
            }
            None => Refusal::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_lives_as_long_as_it_is_connected() {
        let mut sessions = Sessions::default();
        sessions.enter(1);
        assert_eq!(sessions.claim(0, 1), Refusal::None);
        assert_eq!((sessions.claim(0, 2), sessions.fence(0)), (Refusal::Taken, Refusal::Taken));
        sessions.leave(1);
        assert_eq!(sessions.fence(0), Refusal::None);
        assert!(sessions.is_fenced(1) && !sessions.is_fenced(2));
        assert_eq!(sessions.claim(0, 2), Refusal::None);
        // A new holder shuts the old one out, connected again or not.
        assert_eq!(sessions.claim(0, 3), Refusal::None);
        assert!(sessions.is_fenced(2));
        sessions.release(0, 2);
        sessions.enter(3);
        assert_eq!(sessions.fence(0), Refusal::Taken);
        sessions.release(0, 3);
        assert_eq!(sessions.fence(0), Refusal::None);
        assert!(!sessions.is_fenced(3));
    }
}
