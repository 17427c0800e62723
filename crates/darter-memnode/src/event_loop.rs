//! The event loop of a memory node: waits for ready sockets, accepts connections, serves them and
//! ends them.

use crate::error::{MemNodeError, system};
use crate::group::Group;
use crate::metrics::DroppedFor;
use crate::peer::{Peer, Progress};
use crate::redo_log::Journal;
use crate::service::{LogLine, Service};
use crate::workers::Outcome;
use darter_fabric::local::LocalEndpoint;
use darter_group::Answers;
use darter_telemetry::credentials::CredentialWatch;
use darter_telemetry::{Stop, descriptors};
use rustix::event::{Timespec, epoll};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The key of the listener; keys of connections are above it and below [`GROUP_BELL`].
const LISTENER: u64 = 0;
/// The key of the bell that workers ring.
const BELL: u64 = u64::MAX;
/// The key of the bell that the log's thread rings.
const LOG_BELL: u64 = u64::MAX - 1;
/// The key of the bell that the threads of a memory group ring.
const GROUP_BELL: u64 = u64::MAX - 2;
/// Maximum number of sockets served in one iteration.
const EVENTS_MAX: usize = 256;
/// Maximum number of connections accepted in one iteration.
const ACCEPTS_MAX: usize = 64;
/// Maximum number of connections that have not completed the handshake; beyond it a new connection
/// replaces the oldest.
const PENDING_HANDSHAKES_MAX: usize = 256;
/// Number of descriptors reserved for the log, checkpoints, views, other replicas and the metrics
/// port; at most a quarter of the system's limit.
const DESCRIPTORS_KEPT: usize = 64;
/// The interval between sweeps over idle connections.
const SWEEP: Duration = Duration::from_millis(500);

/// The sockets and their connections.
pub(crate) struct EventLoop<'s> {
    waiting: OwnedFd,
    /// `None` after the node has stopped accepting connections.
    listener: Option<TcpListener>,
    /// The system refused to accept a connection; the next attempt is at the next sweep.
    is_paused: bool,
    peers: HashMap<u64, Peer>,
    /// Maximum number of connections, given the limit of open files.
    peers_max: usize,
    next_key: u64,
    /// Keys in the order of arrival, including connections that have completed the handshake or
    /// ended since.
    ungreeted: VecDeque<u64>,
    fenced: u64,
    /// Replies of this turn, if the node is a replica.
    answers: Answers,
    service: Service<'s>,
    credentials: CredentialWatch,
}

fn flags((hears, sends): (bool, bool)) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, hears);
    flags.set(epoll::EventFlags::OUT, sends);
    flags
}

/// Returns the maximum number of connections if the system allows `left` more descriptors.
fn peers_allowed(left: usize) -> usize {
    (left - (left / 4).min(DESCRIPTORS_KEPT)).max(4)
}

impl<'s> EventLoop<'s> {
    pub(crate) fn new(listener: TcpListener, mut service: Service<'s>) -> Result<Self, MemNodeError> {
        let peers_max = peers_allowed(descriptors::left());
        // A quarter is for connections before their handshake, so that a refused client gets the
        // reason.
        let greeted_max = peers_max - peers_max / 4;
        if greeted_max < service.connections_max {
            service.connections_max = greeted_max;
            warn!(
                connections_max = greeted_max,
                "the limit of open files allows fewer connections than the options do"
            );
        }
        let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| system("wait for sockets")(error.into()))?;
        let turns = Self {
            waiting,
            listener: None,
            is_paused: false,
            peers: HashMap::new(),
            peers_max,
            next_key: LISTENER + 1,
            ungreeted: VecDeque::new(),
            fenced: service.sessions.fenced_ever().0,
            answers: Answers::default(),
            credentials: CredentialWatch::new(service.options.credentials()),
            service,
        };
        turns.service.metrics.fenced_sessions.set(turns.service.sessions.fenced() as u64);
        turns.watch(&listener, LISTENER).map_err(system("wait for connections"))?;
        turns.watch(turns.service.workers.bell(), BELL).map_err(system("wait for its workers"))?;
        let group_log = turns.service.group.as_ref().and_then(Group::log_bell);
        if let Some(bell) = turns.service.journal.as_ref().map(Journal::bell).or(group_log) {
            turns.watch(bell, LOG_BELL).map_err(system("wait for the log's thread"))?;
        }
        if let Some(group) = &turns.service.group {
            turns.watch(group.bell(), GROUP_BELL).map_err(system("wait for its group's threads"))?;
        }
        Ok(Self { listener: Some(listener), ..turns })
    }

    fn watch(&self, socket: impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.waiting, socket, epoll::EventData::new_u64(key), flags((true, false)))?)
    }

    fn watch_for(&self, socket: impl AsFd, key: u64, interest: (bool, bool)) -> io::Result<()> {
        Ok(epoll::modify(&self.waiting, socket, epoll::EventData::new_u64(key), flags(interest))?)
    }

    /// Serves until `stop` is requested and no work is left. Returns the log, if one is kept.
    pub(crate) fn run(
        mut self,
        stop: &Stop,
        endpoint: &mut LocalEndpoint,
    ) -> Result<Option<Journal>, MemNodeError> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut now = Instant::now();
        let (mut busy_until, mut next_sweep) = (now, now);
        let (mut drained_by, mut leaves_by) = (None, None);
        loop {
            if stop.is_asked() && drained_by.is_none() && !self.leaves_group(now, &mut leaves_by) {
                drained_by = Some(now + self.service.options.drain);
                self.begin_to_drain(endpoint);
            }
            let has_ended = drained_by.is_some_and(|end| now >= end || self.peers.is_empty());
            if has_ended || stop.is_urgent() {
                break;
            }
            if self.service.waits_for_disk() {
                self.wait_for_disk(endpoint);
            }
            let nap = self.service.group.as_ref().map_or(SWEEP / 4, |group| group.nap().min(SWEEP / 4));
            let nap = self.service.gate.nap(now).map_or(nap, |due| due.min(nap));
            let nap = if now < busy_until { Duration::ZERO } else { nap };
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
            events.clear();
            match epoll::wait(&self.waiting, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(system("wait for sockets")(error.into())),
            }
            let found = Instant::now();
            self.service.now = found;
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    BELL => self.finish_calls(endpoint),
                    LOG_BELL => self.release(endpoint),
                    GROUP_BELL => self.service.group.iter().for_each(Group::quiet),
                    key => {
                        let flags = event.flags;
                        let is_lost = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                        if is_lost && self.peers.get(&key).is_some_and(Peer::is_throttled) {
                            self.part(key);
                        } else {
                            self.serve(key, endpoint);
                        }
                    }
                }
            }
            for key in self.service.gate.due(found) {
                self.resume(key, endpoint);
            }
            self.service.end_turn(found);
            self.end_group_turn(!events.is_empty() || stop.is_asked());
            now = found;
            if events.is_empty() {
                // While this thread spins, a replica or client on this machine may need the core.
                if nap.is_zero() {
                    std::thread::yield_now();
                }
            } else {
                now = Instant::now();
                busy_until = now + self.service.options.spin;
                self.service.metrics.turned(now.saturating_duration_since(found));
            }
            if now >= next_sweep {
                next_sweep = now + SWEEP;
                self.sweep();
            }
            self.credentials.tick(now, stop);
        }
        let left: Vec<u64> = self.peers.keys().copied().collect();
        for key in left {
            self.drop_for(key, DroppedFor::Closing);
        }
        self.service.log.flush(now);
        let of_group = self.service.group.take().and_then(Group::into_journal);
        Ok(self.service.journal.take().or(of_group))
    }

    /// Takes no requests until the log is durable further, for a limited time.
    #[cold]
    fn wait_for_disk(&mut self, endpoint: &mut LocalEndpoint) {
        if let Some(journal) = &mut self.service.journal {
            journal.wait(SWEEP / 4);
        }
        self.release(endpoint);
    }

    /// Sends the replies that no longer wait for the log, or refuses all of them if the log has
    /// failed.
    fn release(&mut self, endpoint: &mut LocalEndpoint) {
        let Some(journal) = &mut self.service.journal else { return };
        let is_further = journal.advance();
        let failure = journal.failure();
        if !is_further && failure.is_none() {
            return;
        }
        let mut waiting = std::mem::take(&mut journal.waiting);
        waiting.retain(|key| {
            let Some(peer) = self.peers.get_mut(key) else { return false };
            let still_waits = match &failure {
                Some(why) => {
                    peer.refuse_held(why);
                    false
                }
                None => peer.release(&self.service),
            };
            // If the connection must wait again, `serve` records it.
            self.serve(*key, endpoint);
            still_waits
        });
        if let Some(journal) = &mut self.service.journal {
            journal.waiting.append(&mut waiting);
        }
    }

    /// Sends the results of this turn to the group, and replies that no longer wait to clients. If
    /// nothing has happened, does only the work that is due.
    fn end_group_turn(&mut self, has_happened: bool) {
        let Service { group: Some(group), sessions, gate, now, .. } = &mut self.service else { return };
        if !has_happened && !group.is_due(*now) {
            return;
        }
        let mut answered = BTreeSet::new();
        let replies = group.end_turn(sessions, &mut self.answers);
        if !group.serves() {
            sessions.forget_slots();
        }
        // Replies to one connection are mostly adjacent.
        let mut answers = self.answers.iter().peekable();
        while let Some(&(key, ..)) = answers.peek() {
            let mut peer = self.peers.get_mut(&key);
            while let Some((_, id, words)) = answers.next_if(|(to, ..)| *to == key) {
                if let Some(peer) = &mut peer {
                    peer.pay_for_reply(size_of_val(words), gate);
                    peer.finish_answered(id, words);
                }
            }
            answered.insert(key);
        }
        drop(answers);
        for reply in replies {
            if let Some(peer) = self.peers.get_mut(&reply.peer) {
                peer.finish_grouped(reply.id, reply.outcome);
                answered.insert(reply.peer);
            }
        }
        for key in answered {
            let Some(peer) = self.peers.get_mut(&key) else { continue };
            let progress = peer.push(&self.service);
            self.served(key, progress);
        }
    }

    /// Makes the replica leave its group before the node stops. Returns whether that takes longer.
    fn leaves_group(&mut self, now: Instant, until: &mut Option<Instant>) -> bool {
        let Some(group) = &mut self.service.group else { return false };
        let until = *until.get_or_insert(now + self.service.options.drain);
        now < until && group.leave()
    }

    /// Accepts the waiting connections.
    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = &self.listener else { return };
            let (stream, address) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    let passes = matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock
                            | io::ErrorKind::Interrupted
                            | io::ErrorKind::ConnectionAborted
                    );
                    if passes {
                        break;
                    }
                    if self.drop_oldest_ungreeted() {
                        continue;
                    }
                    if self.service.log.allows(LogLine::Accepting, self.service.now) {
                        warn!(%error, "cannot accept a connection; is the limit of open files too low?");
                    }
                    self.pause_accepting();
                    break;
                }
            };
            let ungreeted = self.peers.len() - self.service.greeted;
            if ungreeted >= PENDING_HANDSHAKES_MAX || self.peers.len() >= self.peers_max {
                self.drop_oldest_ungreeted();
            }
            let Ok(peer) = Peer::new(stream, address, self.next_key, &self.service) else { continue };
            if self.watch(peer.socket(), self.next_key).is_ok() {
                self.peers.insert(self.next_key, peer);
                self.ungreeted.push_back(self.next_key);
                self.next_key += 1;
            }
        }
        self.tell_open();
    }

    /// Accepts no connections until the next sweep.
    fn pause_accepting(&mut self) {
        if let Some(listener) = &self.listener {
            self.is_paused = self.watch_for(listener, LISTENER, (false, false)).is_ok();
        }
    }

    fn tell_open(&self) {
        self.service.metrics.open.set(self.peers.len() as u64);
    }

    /// Makes room for another connection. Returns whether there was a connection to drop.
    fn drop_oldest_ungreeted(&mut self) -> bool {
        while let Some(key) = self.ungreeted.pop_front() {
            let may_go = |peer: &Peer| !peer.is_greeted();
            if self.peers.get(&key).is_some_and(may_go) {
                self.drop_for(key, DroppedFor::Silent);
                return true;
            }
        }
        false
    }

    /// Serves a connection that has waited because of a limit.
    fn resume(&mut self, key: u64, endpoint: &mut LocalEndpoint) {
        if let Some(peer) = self.peers.get_mut(&key) {
            peer.resume(self.service.now);
            self.serve(key, endpoint);
        }
    }

    /// Serves one connection, then updates the events that its socket is watched for.
    fn serve(&mut self, key: u64, endpoint: &mut LocalEndpoint) {
        let Some(peer) = self.peers.get_mut(&key) else { return };
        let progress = peer.serve(&mut self.service, endpoint);
        self.service.tell_fenced(&mut self.fenced, peer.address);
        self.served(key, progress);
    }

    /// Ends a connection after it was served, or updates its events.
    fn served(&mut self, key: u64, progress: Progress) {
        let Some(peer) = self.peers.get_mut(&key) else { return };
        let (interest, watched) = (peer.interest(self.service.options), peer.watched);
        peer.watched = interest;
        if progress == Progress::Ended {
            return self.part(key);
        }
        if interest != watched
            && let Some(peer) = self.peers.get(&key)
            && self.watch_for(peer.socket(), key, interest).is_err()
        {
            self.drop_for(key, DroppedFor::System);
        }
        if self.holds_too_much() {
            self.shed();
        }
    }

    /// Sends the outcomes of calls to the connections that still wait for them.
    fn finish_calls(&mut self, endpoint: &mut LocalEndpoint) {
        for Outcome { peer: key, id, result } in self.service.workers.outcomes() {
            if let Some(peer) = self.peers.get_mut(&key) {
                self.service.metrics.calls.add(1);
                peer.finish_call(id, result, &mut self.service);
                self.serve(key, endpoint);
            }
        }
    }

    fn holds_too_much(&self) -> bool {
        self.service.metrics.buffer_bytes.get() > self.service.options.buffer_bytes_max as u64
    }

    /// Shrinks empty buffers, then drops the connections with the largest buffers until the total
    /// is within the limit.
    #[cold]
    fn shed(&mut self) {
        for peer in self.peers.values_mut() {
            peer.rest(&self.service);
        }
        while self.holds_too_much()
            && let Some((&most, _)) = self.peers.iter().max_by_key(|(_, peer)| peer.buffer_bytes())
        {
            self.drop_for(most, DroppedFor::Memory);
        }
    }

    fn part(&mut self, key: u64) {
        if let Some(peer) = self.peers.remove(&key) {
            peer.part(&mut self.service);
            self.tell_open();
        }
    }

    fn drop_for(&mut self, key: u64, fault: DroppedFor) {
        if let Some(peer) = self.peers.get_mut(&key) {
            peer.drop_for(fault);
            self.part(key);
        }
    }

    /// Checks the connections that had no events.
    fn sweep(&mut self) {
        let mut gone = Vec::new();
        for (&key, peer) in &mut self.peers {
            if peer.is_idle(self.service.now, SWEEP) {
                peer.rest(&self.service);
            }
            gone.extend(peer.lateness(&self.service).map(|fault| (key, fault)));
        }
        for (key, fault) in gone {
            self.drop_for(key, fault);
        }
        while let Some(key) = self.ungreeted.front()
            && self.peers.get(key).is_none_or(Peer::is_greeted)
        {
            self.ungreeted.pop_front();
        }
        if self.is_paused
            && let Some(listener) = &self.listener
        {
            self.is_paused = self.watch_for(listener, LISTENER, (true, false)).is_err();
        }
        if !self.service.gate.is_open() {
            self.service.gate.renew(self.service.now);
            self.service.metrics.know_tenants(|| self.service.gate.counts());
        }
        self.service.log.tick(self.service.now);
        self.service.metrics.swept(self.service.now);
    }

    /// Accepts the connections that are waiting now and no later ones, and serves every connection
    /// once; those with nothing in progress end.
    fn begin_to_drain(&mut self, endpoint: &mut LocalEndpoint) {
        self.service.is_draining = true;
        self.service.metrics.is_draining.set(1);
        info!(connections = self.peers.len(), "draining");
        self.accept();
        self.listener = None;
        for key in self.service.gate.release() {
            self.resume(key, endpoint);
        }
        let keys: Vec<u64> = self.peers.keys().copied().collect();
        for key in keys {
            self.serve(key, endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_the_log() {
        for left in [16, 64, 1024, 1 << 20] {
            let kept = left - peers_allowed(left);
            assert_eq!(kept, (left / 4).min(DESCRIPTORS_KEPT), "of {left} descriptors");
        }
        assert_eq!(peers_allowed(0), 4, "a node without descriptors still tries");
    }
}
