//! A set of sessions in order of arrival, which drops the oldest beyond a maximum number.

use std::collections::{HashSet, VecDeque};

/// Maximum number of sessions in a set. A session's number is random and used by one process only,
/// so a fenced process could be accepted again only if a million others were fenced while it slept.
const SESSIONS_MAX: usize = 1 << 20;

#[derive(Clone, Debug, Default)]
pub(crate) struct SessionSet {
    members: HashSet<u64>,
    /// The members in order of arrival. Some may have been removed since.
    order: VecDeque<u64>,
}

impl SessionSet {
    /// Adds a session. Returns whether it is new.
    pub(crate) fn insert(&mut self, session: u64) -> bool {
        let is_new = self.members.insert(session);
        if is_new {
            self.order.push_back(session);
            if self.order.len() > SESSIONS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.members.remove(&oldest);
            }
        }
        is_new
    }

    pub(crate) fn remove(&mut self, session: u64) {
        self.members.remove(&session);
    }

    pub(crate) fn contains(&self, session: u64) -> bool {
        self.members.contains(&session)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the newest member.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.order.back().copied()
    }

    /// Returns the members, the oldest first.
    pub(crate) fn to_vec(&self) -> Vec<u64> {
        self.order.iter().copied().filter(|session| self.contains(*session)).collect()
    }
}

impl FromIterator<u64> for SessionSet {
    fn from_iter<I: IntoIterator<Item = u64>>(sessions: I) -> Self {
        let mut set = Self::default();
        for session in sessions {
            set.insert(session);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let last = SESSIONS_MAX as u64 + 1;
        let mut set: SessionSet = (0..last).collect();
        assert_eq!((set.len(), set.contains(0), set.contains(1)), (SESSIONS_MAX, false, true));
        assert!(!set.insert(1) && set.insert(last));
        assert_eq!(set.newest(), Some(last));
        set.remove(5);
        assert!(!set.to_vec().contains(&5));
    }
}
