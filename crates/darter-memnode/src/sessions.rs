//! Sessions: the holder of each member slot, the connected sessions, and the sessions that are
//! fenced for ever.
//!
//! A session that held a slot here and has lost all connections is gone: its process has ended or
//! will be refused. About a session that has not connected since the node started, or since this
//! replica of a group began to serve, this node has no information; only its lease decides.

use crate::error::MemNodeError;
use crate::ledger::{Ledger, Remembered};
use crate::redo_log::{Fact, SessionFacts};
use crate::session_set::SessionSet;
use darter_fabric::wire::Refusal;
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// The number of connections of each session.
    connected: HashMap<u64, usize>,
    /// The session that holds each member slot.
    slots: HashMap<u64, u64>,
    fenced: SessionSet,
    /// The fenced sessions that were ended by a crash of this node.
    forgotten: HashSet<u64>,
    /// The number of sessions ever fenced.
    fenced_total: u64,
    ledger: Option<Ledger>,
    /// `None` if no log is kept.
    logged: Option<Logged>,
}

/// Facts about sessions for the log.
#[derive(Debug, Default)]
struct Logged {
    /// All sessions ever admitted that are not fenced.
    known: SessionSet,
    /// Facts that are not yet in the log.
    facts: Vec<Fact>,
}

impl Sessions {
    /// Starts without connections, with the recorded sessions fenced.
    pub(crate) fn new(ledger: Option<Ledger>, remembered: &Remembered) -> Self {
        let forgotten = remembered.forgotten.iter().copied().collect();
        let mut sessions = Self { forgotten, ledger, ..Self::default() };
        remembered.fenced.iter().for_each(|&session| sessions.remember(session));
        sessions
    }

    /// Enables collecting facts for a log, which remembers these sessions.
    #[must_use]
    pub(crate) fn logged(self, remembered: &Remembered) -> Self {
        let known = remembered.known.iter().copied().collect();
        Self { logged: Some(Logged { known, facts: Vec::new() }), ..self }
    }

    /// Takes the facts that are not yet in the log.
    pub(crate) fn take_facts(&mut self) -> impl Iterator<Item = Fact> + use<> {
        self.logged.as_mut().map(|logged| std::mem::take(&mut logged.facts)).unwrap_or_default().into_iter()
    }

    /// Returns the current facts about sessions.
    pub(crate) fn facts(&self) -> SessionFacts {
        let known = self.logged.as_ref().map(|logged| logged.known.to_vec()).unwrap_or_default();
        SessionFacts { fenced: self.fenced.to_vec(), known, replica: Vec::new() }
    }

    pub(crate) fn is_fenced(&self, session: u64) -> bool {
        self.fenced.contains(session)
    }

    /// Returns why a session is refused, with a text for people; `None` if it is not.
    pub(crate) fn refusal(&self, session: u64) -> Option<(Refusal, &'static str)> {
        if self.forgotten.contains(&session) {
            Some((Refusal::Forgotten, "the node crashed, which ended this session"))
        } else if self.is_fenced(session) {
            Some((Refusal::Fenced, "this session was shut out"))
        } else {
            None
        }
    }

    /// Returns whether a session has a connection.
    pub(crate) fn is_connected(&self, session: u64) -> bool {
        self.connected.contains_key(&session)
    }

    /// Returns the number of sessions that have a connection.
    pub(crate) fn connected(&self) -> usize {
        self.connected.len()
    }

    /// Returns the number of fenced sessions that are remembered.
    pub(crate) fn fenced(&self) -> usize {
        self.fenced.len()
    }

    /// Returns the number of sessions ever fenced, and the newest of them.
    pub(crate) fn fenced_ever(&self) -> (u64, Option<u64>) {
        (self.fenced_total, self.fenced.newest())
    }

    pub(crate) fn enter(&mut self, session: u64) {
        *self.connected.entry(session).or_default() += 1;
        if let Some(logged) = &mut self.logged
            && logged.known.insert(session)
        {
            logged.facts.push(Fact::Entered(session));
        }
    }

    pub(crate) fn leave(&mut self, session: u64) {
        if let Some(count) = self.connected.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                self.connected.remove(&session);
            }
        }
    }

    fn remember(&mut self, session: u64) {
        if self.fenced.insert(session) {
            self.fenced_total += 1;
        }
    }

    /// Fences a session; if there is a ledger, the session is on stable storage before any client
    /// can learn of it.
    fn shut_out(&mut self, session: u64) -> Result<Refusal, MemNodeError> {
        if !self.is_fenced(session) {
            if let Some(ledger) = &mut self.ledger {
                ledger.fenced(session)?;
            }
            if let Some(logged) = &mut self.logged {
                logged.known.remove(session);
                logged.facts.push(Fact::Fenced(session));
            }
            self.remember(session);
        }
        self.slots.retain(|_, holder| *holder != session);
        Ok(Refusal::None)
    }

    /// Assigns a slot to a session. A holder without a connection is fenced first.
    pub(crate) fn claim(&mut self, slot: u64, session: u64) -> Result<Refusal, MemNodeError> {
        match self.slots.get(&slot).copied() {
            Some(holder) if holder == session => {}
            Some(holder) if self.connected.contains_key(&holder) => return Ok(Refusal::Taken),
            Some(holder) => {
                self.shut_out(holder)?;
            }
            _ => {}
        }
        self.slots.insert(slot, session);
        Ok(Refusal::None)
    }

    pub(crate) fn release(&mut self, slot: u64, session: u64) {
        if self.slots.get(&slot) == Some(&session) {
            self.slots.remove(&slot);
        }
    }

    /// Forgets which session holds which slot. A replica that does not serve calls it, since
    /// sessions are then connected to another replica. When this one serves again, a session
    /// without a connection here is not necessarily gone, but may not have reconnected yet. So only
    /// its lease decides.
    pub(crate) fn forget_slots(&mut self) {
        self.slots.clear();
    }

    /// Fences a session if it is known to be gone, or if its lease has lapsed.
    pub(crate) fn fence(&mut self, session: u64, lapsed: bool) -> Result<Refusal, MemNodeError> {
        let is_connected = self.connected.contains_key(&session);
        let was_here = self.slots.values().any(|&holder| holder == session);
        let is_gone = !is_connected && was_here;
        if lapsed || is_gone || self.is_fenced(session) {
            self.shut_out(session)
        } else {
            Ok(if is_connected { Refusal::Taken } else { Refusal::Stranger })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_lives_while_it_is_connected() {
        let mut sessions = Sessions::default();
        sessions.enter(1);
        assert_eq!(sessions.claim(0, 1).unwrap(), Refusal::None);
        assert_eq!(sessions.claim(0, 2).unwrap(), Refusal::Taken);
        assert_eq!(sessions.fence(1, false).unwrap(), Refusal::Taken);
        sessions.leave(1);
        assert_eq!(sessions.fence(1, false).unwrap(), Refusal::None);
        assert!(sessions.is_fenced(1) && !sessions.is_fenced(2));
        assert_eq!(sessions.claim(0, 2).unwrap(), Refusal::None);
        // A new holder fences the old one, even if the old one has connected again.
        assert_eq!(sessions.claim(0, 3).unwrap(), Refusal::None);
        assert!(sessions.is_fenced(2));
        sessions.release(0, 2);
        sessions.enter(3);
        assert_eq!(sessions.fence(3, false).unwrap(), Refusal::Taken);
        // A session whose lease has lapsed is fenced even if it is connected.
        assert_eq!(sessions.fence(3, true).unwrap(), Refusal::None);
        assert!(sessions.is_fenced(3));
        assert_eq!(sessions.claim(0, 4).unwrap(), Refusal::None);
    }

    #[test]
    fn a_session_lives_as_long_as_one_of_its_connections() {
        let mut sessions = Sessions::default();
        sessions.enter(1);
        sessions.enter(1);
        assert_eq!(sessions.claim(0, 1).unwrap(), Refusal::None);
        sessions.leave(1);
        assert_eq!(sessions.claim(0, 2).unwrap(), Refusal::Taken);
        assert_eq!(sessions.fence(1, false).unwrap(), Refusal::Taken);
        assert_eq!(sessions.connected(), 1);
        sessions.leave(1);
        assert_eq!(sessions.connected(), 0);
        assert_eq!(sessions.fence(1, false).unwrap(), Refusal::None);
    }

    #[test]
    fn a_slot_is_given_back_by_its_holder() {
        let mut sessions = Sessions::default();
        sessions.enter(1);
        assert_eq!(sessions.claim(0, 1).unwrap(), Refusal::None);
        sessions.release(0, 2);
        assert_eq!(sessions.claim(0, 2).unwrap(), Refusal::Taken);
        sessions.release(0, 1);
        assert_eq!(sessions.claim(0, 2).unwrap(), Refusal::None);
    }

    #[test]
    fn of_a_session_from_before_another_replica_served_only_its_lease_tells() {
        let mut sessions = Sessions::default();
        sessions.enter(1);
        assert_eq!(sessions.claim(0, 1).unwrap(), Refusal::None);
        sessions.leave(1);
        sessions.forget_slots();
        assert_eq!(sessions.fence(1, false).unwrap(), Refusal::Stranger);
        assert_eq!(sessions.fence(1, true).unwrap(), Refusal::None);
    }

    #[test]
    fn a_session_that_a_crash_ended_is_refused_for_that() {
        let (fenced, forgotten) = (vec![7, 8], vec![8]);
        let sessions =
            Sessions::new(None, &Remembered { boot_id: 1, fenced, forgotten, ..Remembered::default() });
        let refusal = |session| sessions.refusal(session).map(|(refusal, _)| refusal);
        assert_eq!([7, 8, 9].map(refusal), [Some(Refusal::Fenced), Some(Refusal::Forgotten), None]);
        assert!(sessions.is_fenced(8));
    }

    #[test]
    fn of_a_session_from_before_a_restart_only_its_lease_tells() {
        let mut sessions =
            Sessions::new(None, &Remembered { boot_id: 1, fenced: vec![8], ..Remembered::default() });
        assert_eq!(sessions.refusal(8).map(|(refusal, _)| refusal), Some(Refusal::Fenced));
        assert!(sessions.is_fenced(8));
        assert_eq!(sessions.fence(9, false).unwrap(), Refusal::Stranger);
        assert_eq!(sessions.fence(9, true).unwrap(), Refusal::None);
        assert!(sessions.is_fenced(9));
    }
}
