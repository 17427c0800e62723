//! The connections on which this replica sends messages to the others. A separate thread connects
//! each, and retries until it succeeds.

use crate::bell::Bell;
use darter_fabric::tcp::ReplicaLink;
use darter_fabric::{FabricError, TcpOptions};
use darter_group::{Message, ReplicaId};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};
use tracing::warn;

/// Maximum time for a replica to reply.
const PATIENCE: Duration = Duration::from_secs(1);
/// The interval between attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);
/// Number of attempts in a row before a failure is logged again: about ten seconds.
const TOLD_EVERY: u32 = 200;
/// The interval between checks whether connections are still open.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Link {
    address: String,
    /// `None` while a thread connects.
    up: Option<ReplicaLink>,
    /// The number of connections made.
    attempt: u32,
    /// The number of failures in a row.
    failures: u32,
    /// Whether a thread is connecting, or about to.
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

/// The number of a link, and its connection or the error.
type Made = (usize, Result<ReplicaLink, FabricError>);

impl Links {
    pub(super) fn new(me: ReplicaId, addresses: Vec<String>, options: TcpOptions, bell: Arc<Bell>) -> Self {
        let link = |address| Link { address, up: None, attempt: 0, failures: 0, is_connecting: false };
        let all = addresses.into_iter().map(link).collect();
        Self { me, all, options, bell, made: mpsc::channel(), next_look: None }
    }

    /// Returns the names of the first `count` other replicas if each of them was reached.
    pub(super) fn first_reached(&self, count: usize) -> Option<Vec<ReplicaId>> {
        self.all.iter().take(count).map(|link| link.up.as_ref().map(ReplicaLink::replica)).collect()
    }

    /// Takes new connections, checks from time to time whether the others are still open, and
    /// reconnects. Returns the replicas whose connections are lost.
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
        let lost = self.part(|link| link.check().is_err());
        (0..self.all.len()).for_each(|at| self.connect(at));
        lost
    }

    /// Starts connecting a link, if it is not connected.
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

    /// Queues a message for a replica on its connection. Returns whether there is a connection.
    pub(super) fn send(&mut self, to: ReplicaId, message: &Message) -> bool {
        let mut up = self.all.iter_mut().filter_map(|link| link.up.as_mut());
        let Some(link) = up.find(|link| link.replica() == to) else { return false };
        link.send(|out| message.put(out));
        true
    }

    /// Queues a message for all replicas that are connected.
    pub(super) fn send_all(&mut self, message: &Message) {
        for link in self.all.iter_mut().filter_map(|link| link.up.as_mut()) {
            link.send(|out| message.put(out));
        }
    }

    /// Sends as much as the sockets accept. Returns the replicas whose connections are lost.
    pub(super) fn flush(&mut self) -> Vec<ReplicaId> {
        self.part(|link| link.waiting() > 0 && link.flush().is_err())
    }

    /// Drops the connections for which `is_gone` is true, and returns their replicas.
    fn part(&mut self, is_gone: impl Fn(&mut ReplicaLink) -> bool) -> Vec<ReplicaId> {
        let mut gone = Vec::new();
        for link in &mut self.all {
            if link.up.as_mut().is_some_and(&is_gone) {
                gone.extend(link.up.take().map(|up| up.replica()));
            }
        }
        gone
    }

    /// Returns whether there is data to send, or a check of the connections is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.has_waiting() || self.next_look.is_none_or(|next| now >= next)
    }

    /// Returns whether a socket has not accepted all its data.
    pub(super) fn has_waiting(&self) -> bool {
        self.all.iter().filter_map(|link| link.up.as_ref()).any(|link| link.waiting() > 0)
    }
}
