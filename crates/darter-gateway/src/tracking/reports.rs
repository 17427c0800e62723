//! Reports of changed keys: to the clients of this gateway, and to other gateways.

use super::{Tracker, Tracking, lock};
use crate::keyspace::Changes;
use crate::peers::{MessageKind, PeerId, Peers};
use crate::state::GatewayState;
use crate::worker::Worker;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// The interval between two requests to other gateways.
const INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of keys that are reported to another gateway together.
const REPORTED_BYTES: usize = 64 << 10;

/// Returns messages to other gateways about changed keys: each key after its length. An empty message
/// stands for all keys.
fn messages(keys: &[Vec<u8>], bytes_max: usize) -> Vec<Vec<u8>> {
    let mut messages = vec![Vec::new()];
    for key in keys {
        if messages.last().is_none_or(|last| last.len() + key.len() + 4 > REPORTED_BYTES.min(bytes_max)) {
            messages.push(Vec::new());
        }
        if let Some(last) = messages.last_mut() {
            last.extend_from_slice(&(key.len() as u32).to_le_bytes());
            last.extend_from_slice(key);
        }
    }
    messages.retain(|message| !message.is_empty());
    let is_possible = messages.iter().all(|message| message.len() <= bytes_max);
    if is_possible { messages } else { vec![Vec::new()] }
}

/// Returns the keys of a message; `None` if it stands for all keys, or is not valid.
fn keys_of(mut message: &[u8]) -> Option<Vec<&[u8]>> {
    let mut keys = Vec::new();
    while let Some((length, rest)) = message.split_first_chunk() {
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        keys.push(key);
        message = rest;
    }
    Some(keys).filter(|keys| message.is_empty() && !keys.is_empty())
}

/// Reports what a command of the client `by` has changed, or a command of no client, to the clients
/// of all gateways that track keys. Must be called after the change, and before the reply is sent.
#[inline]
pub(crate) fn report(shared: &GatewayState, changes: Changes, by: Option<u64>) {
    if changes != Changes::Nothing {
        // A client that does not count yet reads after the change.
        fence(Ordering::SeqCst);
        if shared.are_changes_wanted() {
            report_wanted(shared, changes, by);
        }
    }
}

#[cold]
fn report_wanted(shared: &GatewayState, changes: Changes, by: Option<u64>) {
    let (tracking, peers) = (&shared.tracking, &shared.peers);
    match changes {
        Changes::Nothing => {}
        Changes::Keys(keys) => {
            let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            tracking.changed(&names, by);
            if peers.track() {
                for message in messages(&keys, shared.argument_bytes_max) {
                    peers.tell_tracking(MessageKind::Changed, &message);
                }
            }
        }
        Changes::Everything => {
            lock(&tracking.state).forget(tracking, |_| true);
            peers.tell_tracking(MessageKind::Changed, b"");
        }
    }
}

/// Follows the clients that track keys, until the task is aborted.
pub(crate) async fn follow(worker: Rc<Worker>) {
    let shared = &worker.shared;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = Instant::now();
        shared.peers.forget_tracking(now);
        if shared.tracking.is_any() {
            lock(&shared.tracking.state).purge();
            if lock(&shared.tracking.coverage).silent_since(now).is_some() {
                shared.tracking.suspect();
            }
            shared.tracking.request(&shared.peers);
        }
    }
}

impl Tracking {
    /// Tells the clients that track some of these keys.
    fn changed(&self, keys: &[&[u8]], by: Option<u64>) {
        let mut state = lock(&self.state);
        for key in keys {
            state.invalidate(key, by, self);
        }
        if state.prefixes.len() > 0 {
            state.broadcast(keys, by, self);
        }
    }

    /// Takes a report of another gateway.
    pub(crate) fn others_changed(&self, message: &[u8]) {
        match keys_of(message) {
            Some(keys) => self.changed(&keys, None),
            None => lock(&self.state).forget(self, |_| true),
        }
    }

    /// Tells the clients that may have cached anything to forget it: keys may have changed without a
    /// report.
    fn suspect(&self) {
        lock(&self.state).forget(self, Tracker::may_have_cached);
    }

    /// Requests that all other gateways report the keys that they change, if clients of this one track
    /// keys.
    pub(crate) fn request(&self, peers: &Peers) {
        if self.is_any() {
            let time = lock(&self.coverage).time(Instant::now());
            peers.broadcast(MessageKind::Track, b"", time.as_bytes());
        }
    }

    /// Another gateway confirms that it reports the keys that it changes.
    pub(crate) fn has_confirmed(&self, id: PeerId, time: &[u8]) {
        let was_silent = lock(&self.coverage).confirmed(id, time, Instant::now());
        if was_silent == Some(true) {
            self.suspect();
            self.confirmed.notify_waiters();
        }
    }

    /// Another gateway begins a connection for its messages.
    pub(crate) fn has_met(&self, id: PeerId, peers: &Peers) {
        lock(&self.coverage).met(id);
        self.suspect();
        self.request(peers);
    }

    /// The connection for another gateway's messages has ended.
    pub(crate) fn has_lost(&self, id: PeerId) {
        lock(&self.coverage).lost(id);
        self.suspect();
    }

    /// The gateway has read the directory of gateways.
    pub(crate) fn has_read(&self, ids: impl Iterator<Item = PeerId>, now: Instant) {
        if lock(&self.coverage).read(ids, now) {
            self.suspect();
            self.confirmed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_keys_and_are_not_too_long() {
        let keys: Vec<Vec<u8>> = (0..300).map(|number| vec![b'k'; number * 7]).collect();
        let sent = messages(&keys, 10_000);
        assert!(sent.len() > 1 && sent.iter().all(|message| (1..=10_000).contains(&message.len())));
        let found: Vec<&[u8]> = sent.iter().flat_map(|message| keys_of(message).unwrap()).collect();
        assert_eq!(found, keys);
        assert_eq!(messages(&keys, 1000), [b""]);
        for everything in [&b""[..], b"\x01", b"\x01\0\0\0", b"\x01\0\0\0k\0", b"\xff\xff\xff\xffk"] {
            assert_eq!(keys_of(everything), None);
        }
    }
}
