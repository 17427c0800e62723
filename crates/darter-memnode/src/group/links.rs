//! The connections to the other replicas, for what this one has to say to them. Each is made by a
//! thread of its own, again and again until it stands.

use crate::bell::Bell;
use darter_fabric::tcp::ReplicaLink;
use darter_fabric::{FabricError, TcpOptions};
use darter_group::{Message, ReplicaId};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};
use tracing::warn;

/// How long a replica may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two attempts to connect to one.
const AGAIN: Duration = Duration::from_millis(50);
/// Attempts in a row before a failure is logged again: some ten seconds.
const TOLD_EVERY: u32 = 200;
/// Between two looks whether connections still stand.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Link {
    address: String,
    /// `None` while a thread connects.
    up: Option<ReplicaLink>,
    /// Counts the connections.
    attempt: u32,
    /// Failures in a row.
    failures: u32,
    /// A thread connects, or is about to.
    is_connecting: bool,
}

/// The connections to all other replicas.
#[derive(Debug)]
pub(super) struct Links {
    me: ReplicaId,
    all: Vec<Link>,
    options: TcpOptions,
    bell: Arc<Bell>,
    made: (Sender<Made>, Receiver<Made>),
    next_look: Option<Instant>,
}

/// Which link a thread has connected, or why it has not.
type Made = (usize, Result<ReplicaLink, FabricError>);

impl Links {
    pub(super) fn new(me: ReplicaId, addresses: Vec<String>, options: TcpOptions, bell: Arc<Bell>) -> Self {
        let link = |address| Link { address, up: None, attempt: 0, failures: 0, is_connecting: false };
        let all = addresses.into_iter().map(link).collect();
        Self { me, all, options, bell, made: mpsc::channel(), next_look: None }
    }

    /// Returns the names of the first so many others if each of them was reached.
    pub(super) fn first_reached(&self, count: usize) -> Option<Vec<ReplicaId>> {
        self.all.iter().take(count).map(|link| link.up.as_ref().map(ReplicaLink::replica)).collect()
    }

    /// Takes the connections that were made, looks at times whether the others still stand, and has
    /// new ones made. Returns the replicas whose connections are gone.
    pub(super) fn turn(&mut self, now: Instant) -> Vec<ReplicaId> {
        let made: Vec<Made> = self.made.1.try_iter().collect();
        for (at, made) in made {
            let link = &mut self.all[at];
            link.is_connecting = false;
            match made {
                Ok(up) => (link.up, link.failures) = (Some(up), 0),
                Err(why) => {
                    if link.failures.is_multiple_of(TOLD_EVERY) {
                        warn!(address = %link.address, %why, "another replica cannot be reached");
                    }
                    link.failures += 1;
                }
            }
        }
        if self.next_look.is_some_and(|next| now < next) {
            return Vec::new();
        }
        self.next_look = Some(now + LOOK);
        let lost = self.part(|link| link.look().is_err());
        (0..self.all.len()).for_each(|at| self.connect(at));
        lost
    }

    /// Has a link connected, if it is not.
    fn connect(&mut self, at: usize) {
        let link = &mut self.all[at];
        if link.up.is_some() || link.is_connecting {
            return;
        }
        link.is_connecting = true;
        link.attempt += 1;
        let (attempt, failures) = (link.attempt, link.failures);
        let (address, me, options) = (link.address.clone(), self.me, self.options.clone());
        let (made, bell) = (self.made.0.clone(), Arc::clone(&self.bell));
        let connects = move || {
            if failures > 0 {
                std::thread::sleep(AGAIN);
            }
            let _ = made.send((at, ReplicaLink::connect(&address, me, attempt, PATIENCE, &options)));
            bell.ring();
        };
        let spawned = std::thread::Builder::new().name("darter-replica".to_owned()).spawn(connects);
        link.is_connecting = spawned.is_ok();
    }

    /// Puts a message for a replica on its connection. Returns whether there is one.
    pub(super) fn send(&mut self, to: ReplicaId, message: &Message) -> bool {
        let mut up = self.all.iter_mut().filter_map(|link| link.up.as_mut());
        let Some(link) = up.find(|link| link.replica() == to) else { return false };
        link.send(|out| message.put(out));
        true
    }

    /// Sends what the sockets take. Returns the replicas whose connections are gone.
    pub(super) fn flush(&mut self) -> Vec<ReplicaId> {
        self.part(|link| link.waiting() > 0 && link.flush().is_err())
    }

    /// Drops the connections of which this holds, and returns whose they were.
    fn part(&mut self, is_gone: impl Fn(&mut ReplicaLink) -> bool) -> Vec<ReplicaId> {
        let mut gone = Vec::new();
        for link in &mut self.all {
            if link.up.as_mut().is_some_and(&is_gone) {
                gone.extend(link.up.take().map(|up| up.replica()));
            }
        }
        gone
    }

    /// Returns whether there is something to send, or a look at the connections is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.has_waiting() || self.next_look.is_none_or(|next| now >= next)
    }

    /// Returns whether a socket did not take all that it was to send.
    pub(super) fn has_waiting(&self) -> bool {
        self.all.iter().filter_map(|link| link.up.as_ref()).any(|link| link.waiting() > 0)
    }
}
