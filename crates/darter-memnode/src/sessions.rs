//! Sessions: the holder of each member slot, the connected sessions, and the sessions that are
//! fenced for ever.
//!
//! A session that held a slot here and has lost all connections is gone: its process has ended or
//! will be refused. About a session that has not connected since the node started, or since this
//! replica of a group began to serve, this node has no information; only its lease decides.
//!
//! A session with a read-only token may change the member line of the slot that it has claimed to
//! read ([`Sessions::line_of`]). If this node has forgotten that, the line itself tells. The token is
//! that of a connection: a connection with a read-only token is refused if its session may write,
//! since it names a session of another process, whose line it could change.
//!
//! A node remembers a million fenced sessions ([`SessionSet`]). So that sessions with a read-only token
//! cannot make it forget others by having themselves fenced, a slot that one of them did not leave in
//! order rests for [`REST`] before another of them gets it: days pass until a million are fenced.

use crate::error::MemNodeError;
use crate::ledger::{Ledger, Remembered};
use crate::redo_log::{Fact, SessionFacts};
use crate::session_set::SessionSet;
use darter_fabric::member_lines::{MEMBER_LINES, READERS_MAX};
use darter_fabric::wire::Refusal;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long a slot rests after a session that only reads was fenced, or has left it in use.
const REST: Duration = Duration::from_secs(60);

/// What a connection may do, as its token says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everything.
    #[default]
    Write,
    /// Read memory, and take part in a pool as a member that reads.
    Read,
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// The number of connections of each session.
    connected: HashMap<u64, usize>,
    /// The connected sessions of which a connection may write.
    writers: HashSet<u64>,
    /// The session that holds each member slot.
    slots: HashMap<u64, u64>,
    /// The sessions among these that have claimed their slot to read.
    readers: HashSet<u64>,
    /// The slots that rest, and until when, once that is known.
    resting: HashMap<u64, Option<Instant>>,
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

    /// Returns whether a session is known to have a token that lets it write.
    pub(crate) fn may_write(&self, session: u64) -> bool {
        let holds_slot = || self.slots.values().any(|&holder| holder == session);
        self.writers.contains(&session) || !self.readers.contains(&session) && holds_slot()
    }

    pub(crate) fn enter(&mut self, session: u64, access: Access) {
        *self.connected.entry(session).or_default() += 1;
        if access == Access::Write {
            self.writers.insert(session);
        }
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
                self.writers.remove(&session);
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
        self.rest(session);
        self.slots.retain(|_, holder| *holder != session);
        self.readers.remove(&session);
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

    /// Assigns a slot to a session that only reads, in place of the one that it had. Other sessions
    /// keep theirs, even if they have no connection, since a fence would end them. Sessions that only
    /// read hold [`READERS_MAX`] slots at most, with those that rest.
    pub(crate) fn claim_to_read(&mut self, slot: u64, session: u64, now: Instant) -> Refusal {
        self.resting.retain(|_, until| *until.get_or_insert(now + REST) > now);
        let others = self.readers.len() - usize::from(self.readers.contains(&session));
        let is_held = self.slots.get(&slot).is_some_and(|&holder| holder != session);
        let is_over = others + self.resting.len() >= READERS_MAX;
        if slot >= MEMBER_LINES || is_held || is_over || self.resting.contains_key(&slot) {
            return Refusal::Taken;
        }
        self.slots.retain(|_, holder| *holder != session);
        self.hold_to_read(slot, session);
        Refusal::None
    }

    /// Lets the slot rest that a session holds to read.
    pub(crate) fn rest(&mut self, session: u64) {
        if let Some(slot) = self.line_of(session) {
            self.resting.insert(slot, None);
        }
    }

    /// Returns the slot that a session has claimed to read.
    pub(crate) fn line_of(&self, session: u64) -> Option<u64> {
        let holder = self.readers.get(&session)?;
        self.slots.iter().find_map(|(&slot, held_by)| (held_by == holder).then_some(slot))
    }

    /// Returns whether this node does not know which session holds a slot.
    pub(crate) fn is_unclaimed(&self, slot: u64) -> bool {
        !self.slots.contains_key(&slot)
    }

    /// Records that a session holds a slot to read.
    pub(crate) fn hold_to_read(&mut self, slot: u64, session: u64) {
        self.slots.insert(slot, session);
        self.readers.insert(session);
    }

    pub(crate) fn release(&mut self, slot: u64, session: u64) {
        if self.slots.get(&slot) == Some(&session) {
            self.slots.remove(&slot);
            self.readers.remove(&session);
        }
    }

    /// Forgets which session holds which slot. A replica that does not serve calls it, since
    /// sessions are then connected to another replica. When this one serves again, a session
    /// without a connection here is not necessarily gone, but may not have reconnected yet. So only
    /// its lease decides.
    pub(crate) fn forget_slots(&mut self) {
        self.slots.clear();
        self.readers.clear();
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
        sessions.enter(1, Access::Write);
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
        sessions.enter(3, Access::Write);
        assert_eq!(sessions.fence(3, false).unwrap(), Refusal::Taken);
        // A session whose lease has lapsed is fenced even if it is connected.
        assert_eq!(sessions.fence(3, true).unwrap(), Refusal::None);
        assert!(sessions.is_fenced(3));
        assert_eq!(sessions.claim(0, 4).unwrap(), Refusal::None);
    }

    #[test]
    fn a_session_lives_as_long_as_one_of_its_connections() {
        let mut sessions = Sessions::default();
        sessions.enter(1, Access::Write);
        sessions.enter(1, Access::Write);
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
        sessions.enter(1, Access::Write);
        assert_eq!(sessions.claim(0, 1).unwrap(), Refusal::None);
        sessions.release(0, 2);
        assert_eq!(sessions.claim(0, 2).unwrap(), Refusal::Taken);
        sessions.release(0, 1);
        assert_eq!(sessions.claim(0, 2).unwrap(), Refusal::None);
    }

    #[test]
    fn of_a_session_from_before_another_replica_served_only_its_lease_tells() {
        let mut sessions = Sessions::default();
        sessions.enter(1, Access::Write);
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

    #[test]
    fn a_session_that_reads_has_one_line_and_ends_no_session_that_writes() {
        let mut sessions = Sessions::default();
        sessions.enter(1, Access::Write);
        sessions.enter(7, Access::Read);
        assert_eq!(sessions.claim(0, 1).unwrap(), Refusal::None);
        sessions.leave(1);
        // Gone, or about to connect again.
        let now = Instant::now();
        assert_eq!(sessions.claim_to_read(0, 7, now), Refusal::Taken);
        assert!(!sessions.is_fenced(1) && sessions.may_write(1) && !sessions.may_write(7));
        assert_eq!((sessions.line_of(1), sessions.line_of(7)), (None, None));
        assert_eq!(sessions.claim_to_read(1, 7, now), Refusal::None);
        assert_eq!(sessions.claim_to_read(2, 7, now), Refusal::None);
        assert_eq!(sessions.line_of(7), Some(2));
        sessions.enter(8, Access::Read);
        assert_eq!(sessions.claim_to_read(2, 8, now), Refusal::Taken);
        sessions.leave(7);
        assert_eq!(sessions.claim_to_read(2, 8, now), Refusal::Taken);
        assert!(!sessions.is_fenced(7));
        // A session that writes takes over from a reader that is gone, as from any other.
        assert_eq!(sessions.claim(2, 9).unwrap(), Refusal::None);
        assert!(sessions.is_fenced(7) && sessions.line_of(7).is_none() && sessions.line_of(9).is_none());
        assert_eq!(sessions.claim_to_read(3, 8, now), Refusal::None);
        sessions.release(3, 8);
        assert_eq!(sessions.line_of(8), None);
        assert_eq!(sessions.claim_to_read(3, 8, now), Refusal::None);
    }

    #[test]
    fn a_slot_of_a_reader_that_was_fenced_rests() {
        let mut sessions = Sessions::default();
        let now = Instant::now();
        let later = now + REST + Duration::from_millis(1);
        for session in 0..READERS_MAX as u64 {
            sessions.enter(1000 + session, Access::Read);
            assert_eq!(sessions.claim_to_read(session, 1000 + session, now), Refusal::None);
            assert_eq!(sessions.fence(1000 + session, true).unwrap(), Refusal::None);
            assert!(sessions.is_fenced(1000 + session));
        }
        sessions.enter(1, Access::Read);
        for slot in [0, 100, READERS_MAX as u64] {
            assert_eq!(
                sessions.claim_to_read(slot, 1, now),
                Refusal::Taken,
                "all that readers may hold rest"
            );
        }
        // Sessions that write do not wait.
        assert_eq!(sessions.claim(0, 2).unwrap(), Refusal::None);
        assert_eq!(sessions.claim_to_read(1, 1, later), Refusal::None);
        // It leaves its line in use.
        sessions.rest(1);
        sessions.release(1, 1);
        assert_eq!(sessions.claim_to_read(1, 1, later), Refusal::Taken);
        assert_eq!(sessions.claim_to_read(2, 1, later), Refusal::None);
    }

    #[test]
    fn sessions_that_read_leave_slots_to_those_that_write() {
        let mut sessions = Sessions::default();
        let (readers, now) = (READERS_MAX as u64, Instant::now());
        for session in 0..=readers {
            sessions.enter(1000 + session, Access::Read);
            let expected = if session < readers { Refusal::None } else { Refusal::Taken };
            assert_eq!(sessions.claim_to_read(session, 1000 + session, now), expected);
        }
        assert_eq!(sessions.claim_to_read(MEMBER_LINES, 1000, now), Refusal::Taken);
        assert_eq!(sessions.claim_to_read(readers, 1000, now), Refusal::None, "it gives the other slot up");
        assert_eq!(sessions.claim(0, 1).unwrap(), Refusal::None);
    }

    #[test]
    fn a_token_that_lets_a_session_write_counts_for_all_its_connections() {
        let mut sessions = Sessions::default();
        sessions.enter(1, Access::Read);
        assert!(!sessions.may_write(1));
        sessions.enter(1, Access::Write);
        assert!(sessions.may_write(1));
        sessions.leave(1);
        assert!(sessions.may_write(1));
        sessions.leave(1);
        assert!(!sessions.may_write(1));
    }
}
