//! Whether the other gateways report the keys that they change: each of them must have confirmed that
//! recently, and on the connection on which it sends its messages now.

use crate::peers::PeerId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a confirmation counts, from the time of the request. The other gateway continues to report
/// for longer.
const COUNTS_FOR: Duration = Duration::from_secs(10);
/// How long a reading of the directory counts.
const READ_FOR: Duration = Duration::from_secs(15);

/// The other gateways, and until when each of them reports the keys that it changes.
#[derive(Debug)]
pub(super) struct Coverage {
    /// The moment from which requests count time.
    origin: Instant,
    /// When the directory of gateways was last read; `None` if this gateway has none.
    read: Option<Instant>,
    others: BTreeMap<PeerId, Option<Instant>>,
    /// Since when a gateway is silent, if that was noticed.
    silent_since: Option<Instant>,
}

impl Coverage {
    /// Begins without other gateways. `is_in_directory` says whether there may be any.
    pub(super) fn new(is_in_directory: bool, now: Instant) -> Self {
        Self {
            origin: now,
            read: is_in_directory.then_some(now),
            others: BTreeMap::new(),
            silent_since: None,
        }
    }

    /// Returns whether all gateways report the keys that they change.
    fn is_complete(&self, now: Instant) -> bool {
        self.read.is_none_or(|read| now < read + READ_FOR)
            && self.others.values().all(|until| until.is_some_and(|until| now < until))
    }

    /// Returns since when one of the gateways is silent; `None` if all of them report the keys that they
    /// change.
    pub(super) fn silent_since(&mut self, now: Instant) -> Option<Instant> {
        if self.is_complete(now) {
            self.silent_since = None;
        } else {
            self.silent_since.get_or_insert(now);
        }
        self.silent_since
    }

    /// Must be called when no requests follow for some time.
    pub(super) fn rest(&mut self) {
        self.silent_since = None;
    }

    /// Returns the time, for a request to the other gateways.
    pub(super) fn time(&self, now: Instant) -> String {
        now.saturating_duration_since(self.origin).as_millis().to_string()
    }

    /// Takes the confirmation of a gateway, with the time of the request. Returns whether the gateway
    /// may have changed keys before without a report; `None` if the time is not possible.
    pub(super) fn confirmed(&mut self, id: PeerId, time: &[u8], now: Instant) -> Option<bool> {
        let millis = std::str::from_utf8(time).ok()?.parse().ok()?;
        let asked = self.origin.checked_add(Duration::from_millis(millis)).filter(|asked| *asked <= now)?;
        let before = self.others.insert(id, Some(asked + COUNTS_FOR)).flatten();
        Some(before.is_none_or(|until| until <= now))
    }

    /// A gateway begins another connection, or its connection has ended: messages may be lost.
    pub(super) fn lost(&mut self, id: PeerId) {
        if let Some(until) = self.others.get_mut(&id) {
            *until = None;
        }
    }

    /// A gateway begins a connection.
    pub(super) fn met(&mut self, id: PeerId) {
        self.others.insert(id, None);
    }

    /// Takes the gateways of the directory. Returns whether one has gone that may have changed keys
    /// without a report.
    pub(super) fn read(&mut self, ids: impl Iterator<Item = PeerId>, now: Instant) -> bool {
        let before = std::mem::take(&mut self.others);
        self.others = ids.map(|id| (id, before.get(&id).copied().flatten())).collect();
        self.read = Some(now);
        let mut gone = before.iter().filter(|(id, _)| !self.others.contains_key(id));
        gone.any(|(_, until)| until.is_none_or(|until| until <= now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> PeerId {
        PeerId::from_bytes([number; 8])
    }

    #[test]
    fn every_gateway_must_have_confirmed_recently() {
        let start = Instant::now();
        let mut coverage = Coverage::new(true, start);
        assert!(coverage.is_complete(start));
        coverage.read([id(1), id(2)].into_iter(), start);
        assert_eq!(coverage.silent_since(start), Some(start));
        let (asked, later) = (start + Duration::from_secs(1), start + Duration::from_secs(2));
        let time = coverage.time(asked);
        assert_eq!(coverage.confirmed(id(1), time.as_bytes(), later), Some(true));
        assert_eq!(coverage.silent_since(later), Some(start));
        assert_eq!(coverage.confirmed(id(2), time.as_bytes(), later), Some(true));
        assert_eq!(coverage.silent_since(later), None);
        assert_eq!(coverage.confirmed(id(2), time.as_bytes(), later), Some(false));
        // By the time of the request, not of the confirmation.
        assert!(!coverage.is_complete(asked + COUNTS_FOR));
        for nonsense in [&b""[..], b"x", b"99999999", b"99999999999999999999"] {
            assert_eq!(coverage.confirmed(id(1), nonsense, later), None);
        }
    }

    #[test]
    fn a_new_connection_a_lost_one_and_a_new_gateway_end_it() {
        let now = Instant::now();
        let mut coverage = Coverage::new(true, now);
        for change in [Coverage::lost, Coverage::met] {
            coverage.read([id(1)].into_iter(), now);
            coverage.confirmed(id(1), b"0", now);
            assert!(coverage.is_complete(now));
            change(&mut coverage, id(1));
            assert!(!coverage.is_complete(now));
            assert_eq!(coverage.confirmed(id(1), b"0", now), Some(true));
        }
        assert!(!coverage.read([id(1), id(2)].into_iter(), now));
        assert!(!coverage.is_complete(now));
        // It has gone without a confirmation.
        assert!(coverage.read([id(1)].into_iter(), now));
        assert!(coverage.is_complete(now));
        assert!(!coverage.read([].into_iter(), now));
        assert!(!coverage.is_complete(now + READ_FOR));
        assert!(Coverage::new(false, now).is_complete(now + READ_FOR));
    }
}
