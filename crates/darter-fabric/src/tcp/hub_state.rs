//! A hub's connections to all memory nodes, and the batches in flight on them. The thread that
//! holds its lock sends, receives and connects with it; nothing here blocks.

use super::batches::{Batches, Called, Pending, Ticket};
use super::calls::take_reply_to_call;
use super::connection::{Connection, Replied, Sent};
use super::frames::post_to;
use super::group_channel::GroupChannel;
use super::session::{AbsentNodes, Session, SessionEnd, SilentNodes};
use crate::executor::Progress;
use crate::rdma::{CompletionQueue, Lane, Posted};
use crate::wire::{self, Refusal};
use crate::words::Lender;
use crate::{Batch, FabricError, GlobalAddr};
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Connections and batches, under the lock of their [`Hub`](super::hub::Hub).
#[derive(Debug)]
pub(super) struct HubState {
    ended: Arc<SessionEnd>,
    silent: Arc<SilentNodes>,
    absent: Arc<AbsentNodes>,
    patience: Duration,
    /// Its thread sleeps as soon as nothing has arrived.
    sleeps: bool,
    /// The memory of batches that use a device, and the queue of their completions.
    device: Option<DeviceEnds>,
    pub(super) links: Vec<Link>,
    /// Number of attempts to connect so far.
    attempts: u64,
    pub(super) batches: Batches,
    /// The state of channels to memory groups, which outlives their connections.
    groups: BTreeMap<u8, GroupChannel>,
    /// Attempts to connect that no thread has begun.
    pub(super) to_reach: Vec<Attempt>,
    /// Wakers to call after the lock is released.
    pub(super) to_wake: Vec<Waker>,
    /// No fabric uses it any longer.
    pub(super) is_closed: bool,
    pub(super) on_close: Option<Waker>,
}

/// A hub's part of the device that its verbs use.
#[derive(Debug)]
struct DeviceEnds {
    buffers: Arc<dyn Lender>,
    completions: Arc<CompletionQueue>,
    /// Its descriptor is readable, or becomes so with the next completion.
    is_armed: bool,
    /// Posts of connections that are gone.
    posts: u64,
}

/// Delay before a group is connected to again, since a handover takes some time.
const AGAIN: Duration = Duration::from_millis(5);

/// An attempt to connect to a node, to be made after a delay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub node: u8,
    pub number: u64,
    pub after: Duration,
}

/// The connection to a node, if any.
#[derive(Debug)]
pub(super) enum Link {
    Down,
    /// With the current attempt, and the batches that wait for it; `None` if batches have waited
    /// long enough for a node that was silent before.
    Connecting(u64, Option<Vec<Ticket>>),
    Up(Box<Connection>),
}

impl HubState {
    /// Returns the initial state of a hub of this session: no connection, no batch.
    pub(super) fn new(session: &Session, completions: Option<Arc<CompletionQueue>>) -> Self {
        let device = session.adapter.as_ref().zip(completions).map(|(adapter, completions)| DeviceEnds {
            buffers: Arc::clone(&adapter.buffers),
            completions,
            is_armed: false,
            posts: 0,
        });
        Self {
            ended: Arc::clone(&session.ended),
            silent: Arc::clone(&session.silent),
            absent: Arc::clone(&session.absent),
            patience: session.options.patience,
            sleeps: session.options.spin.is_zero(),
            device,
            links: Vec::new(),
            attempts: 0,
            batches: Batches::default(),
            groups: BTreeMap::new(),
            to_reach: Vec::new(),
            to_wake: Vec::new(),
            is_closed: false,
            on_close: None,
        }
    }

    /// Puts a batch's frames, or that of a call, on their connections, or queues it until there are
    /// connections.
    pub(super) fn post(&mut self, batch: Batch, called: Option<Box<Called>>, waker: &Waker) -> Ticket {
        let Self { batches, links, attempts, to_reach, ended, device, .. } = self;
        let (ticket, pending) = batches.put(batch, called, waker);
        pending.error = ended.error();
        if let Some(device) = device
            && !pending.batch.lend_from(&device.buffers)
        {
            pending.error.get_or_insert_with(no_memory);
        }
        if pending.error.is_none() {
            if let Some(called) = &pending.called {
                let node = called.node;
                if !route(links, (node, ticket, 0), pending) {
                    to_reach.push(begin(links, attempts, (node, ticket), pending));
                }
            }
            let mut seen: [u64; 4] = [0; 4];
            for first in 0..pending.batch.len() {
                let node = pending.batch.verbs()[first].addr.node();
                let (word, bit) = (usize::from(node) / 64, 1_u64 << (node % 64));
                if seen[word] & bit == 0 {
                    seen[word] |= bit;
                    if !route(links, (node, ticket, first), pending) {
                        to_reach.push(begin(links, attempts, (node, ticket), pending));
                    }
                }
            }
        }
        if pending.parts == 0 {
            // Nothing could be posted: the error must be fetched at once.
            waker.wake_by_ref();
        }
        ticket
    }
    /// Returns the queue of the device's completions, if verbs use one.
    pub(super) fn completions(&self) -> Option<Arc<CompletionQueue>> {
        self.device.as_ref().map(|device| Arc::clone(&device.completions))
    }

    /// Takes the parts that refer to nodes and to the device out, in the order in which they must
    /// be dropped: the memory of batches must outlive the queues that they are on.
    pub(super) fn take_ends(&mut self) -> (Vec<Link>, Batches, Option<impl Sized + use<>>) {
        (std::mem::take(&mut self.links), std::mem::take(&mut self.batches), self.device.take())
    }

    /// Returns the number of posts to the device.
    pub(super) fn posts(&self) -> u64 {
        let of_link = |link: &Link| match link {
            Link::Up(connection) => connection.lane.as_ref().map_or(0, |lane| lane.posts),
            _ => 0,
        };
        self.device.as_ref().map_or(0, |device| device.posts) + self.links.iter().map(of_link).sum::<u64>()
    }

    /// Handles completions of the device, and posts the work that waited for them. Returns whether
    /// there were any. If `arms`, the next completion makes the queue's descriptor readable.
    fn take_completions(&mut self, arms: bool) -> bool {
        let Some(device) = &mut self.device else { return false };
        if arms && device.completions.quiet() {
            device.is_armed = false;
        }
        let mut has_moved = self.drain_completions();
        if let Some(device) = &mut self.device
            && arms
            && !device.is_armed
        {
            device.is_armed = device.completions.arm().is_ok();
            // Completions before it was armed do not set the descriptor.
            has_moved |= self.drain_completions();
        }
        has_moved
    }

    fn drain_completions(&mut self) -> bool {
        let Some(device) = &self.device else { return false };
        let completions = Arc::clone(&device.completions);
        let mut lost = [0_u64; 4];
        let drained = completions.drain(|id, has_succeeded| {
            let node = usize::from(id as u8);
            let Some(Link::Up(connection)) = self.links.get_mut(node) else { return };
            // Completions of a destroyed queue may still arrive.
            let Some(lane) = connection.lane.as_mut().filter(|lane| lane.id() == id) else { return };
            if !has_succeeded {
                lost[node / 64] |= 1 << (node % 64);
                return;
            }
            connection.silent_since = None;
            if let Some(ticket) = lane.completed() {
                self.to_wake.extend(self.batches.part_ended(ticket));
            }
        });
        let is_broken = drained.is_err();
        for node in 0..self.links.len() {
            let Link::Up(connection) = &mut self.links[node] else { continue };
            let Some(lane) = &mut connection.lane else { continue };
            while let Some(ticket) = lane.next_waiting() {
                let Some(pending) = self.batches.get(ticket) else {
                    lane.skip_waiting();
                    continue;
                };
                if lane.post_waiting(&mut pending.batch) == Posted::Done {
                    self.to_wake.extend(self.batches.part_ended(ticket));
                }
            }
            if is_broken || lane.is_broken() || lost[node / 64] >> (node % 64) & 1 != 0 {
                self.lose(node as u8);
            }
        }
        drained.unwrap_or(true)
    }

    /// Sends pending data.
    pub(super) fn send(&mut self) -> Progress {
        let mut turn = Progress::Idle;
        for node in 0..self.links.len() {
            let Link::Up(connection) = &mut self.links[node] else { continue };
            if let Ok(moved) = send_on(connection) {
                connection.has_sent = moved == Progress::Moved;
                turn = turn.max(moved);
            } else {
                self.lose(node as u8);
                turn = Progress::Moved;
            }
        }
        turn
    }

    /// Watches all connections.
    pub(super) fn watch_all(&mut self, sockets: BorrowedFd<'_>) {
        self.take_completions(true);
        for node in 0..self.links.len() {
            let Link::Up(connection) = &mut self.links[node] else { continue };
            if watch(connection, sockets, true).is_err() {
                self.lose(node as u8);
            }
        }
    }

    /// Sends and receives without blocking: from nodes that owe a reply, or from all if `thorough`,
    /// whose sockets are watched from then on.
    pub(super) fn turn(&mut self, sockets: BorrowedFd<'_>, thorough: bool) -> Progress {
        let mut turn = self.send();
        if self.take_completions(thorough) {
            turn = Progress::Moved;
        }
        for node in 0..self.links.len() {
            match &mut self.links[node] {
                // The connecting thread rouses this one: there is no need to spin for it.
                Link::Down | Link::Connecting(..) => {}
                Link::Up(connection) => {
                    let is_busy = connection.lane.as_ref().is_some_and(Lane::is_busy);
                    let owes = !connection.sent.is_empty() || !connection.calls.is_empty() || is_busy;
                    // A loop that does not spin sleeps between most turns, so it keeps the watch.
                    let watched = watch(connection, sockets, thorough || self.sleeps);
                    let waits = connection.waits_for_reply();
                    if !thorough && (!owes || is_busy || waits) {
                        // If a device owes completions, its queue is polled instead of the node's
                        // socket.
                        turn = if owes { turn.max(Progress::Waiting) } else { turn };
                        continue;
                    }
                    match watched.and_then(|()| self.receive(node)) {
                        Ok(true) => turn = Progress::Moved,
                        Ok(false) if owes && !(thorough && self.is_out_of_patience(node)) => {
                            turn = turn.max(Progress::Waiting);
                        }
                        Ok(false) if !owes => {}
                        silent => {
                            if silent.is_ok() && !self.groups.contains_key(&(node as u8)) {
                                self.silent.add(node as u8);
                            }
                            self.lose(node as u8);
                            turn = Progress::Moved;
                        }
                    }
                }
            }
        }
        turn
    }

    /// Returns whether a node that owes a reply, and has just sent nothing, has been silent for too
    /// long.
    fn is_out_of_patience(&mut self, node: usize) -> bool {
        let Link::Up(connection) = &mut self.links[node] else { return false };
        let silence = connection.silent_since.get_or_insert_with(Instant::now).elapsed();
        if connection.sent.is_empty() && connection.lane.is_none() {
            // A procedure may take any time. A live node still executes an empty batch.
            if silence > self.patience / 2 {
                connection.ask_for_a_sign();
            }
            return false;
        }
        match self.groups.get_mut(&(node as u8)) {
            Some(group) if connection.view.is_some() => {
                let has_ended = silence > group.patience;
                if has_ended {
                    group.was_silent(self.patience);
                }
                has_ended
            }
            _ => silence > self.patience,
        }
    }

    /// Delivers the replies that have arrived. Returns whether there were any.
    fn receive(&mut self, node: usize) -> io::Result<bool> {
        let Link::Up(connection) = &mut self.links[node] else { return Ok(false) };
        if !connection.receive()? {
            return Ok(false);
        }
        connection.silent_since = None;
        if connection.view.is_some()
            && let Some(group) = self.groups.get_mut(&(node as u8))
        {
            group.was_heard();
        }
        while let Some((replied, refusal, range)) = connection.next_reply()? {
            let sent = match replied {
                Replied::Next(sent) => sent,
                Replied::Call(ticket) => {
                    let Some(pending) = self.batches.get(ticket) else { continue };
                    let is_whole =
                        take_reply_to_call(pending, node as u8, refusal, connection.payload(range));
                    pending.error.iter().for_each(|error| self.ended.note(error));
                    self.to_wake.extend(self.batches.part_ended(ticket));
                    if !is_whole {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    continue;
                }
            };
            let Some(pending) = self.batches.get(sent.batch) else { continue };
            if refusal == Refusal::None {
                let payload = connection.payload(range);
                if !wire::take_answers(&mut pending.batch, node as u8, sent.first..sent.end, payload) {
                    // Its frame is no longer listed, so it ends here; the others end with the
                    // connection.
                    pending.lost(node as u8);
                    self.to_wake.extend(self.batches.part_ended(sent.batch));
                    return Err(io::ErrorKind::InvalidData.into());
                }
            } else {
                let error = wire::error_of(refusal, node as u8, &connection.text(range));
                self.ended.note(&error);
                pending.error.get_or_insert(error);
            }
            self.to_wake.extend(self.batches.part_ended(sent.batch));
        }
        Ok(true)
    }

    /// Handles the loss of a connection: requests on it may have been executed or not.
    pub(super) fn lose(&mut self, node: u8) {
        let connection = match std::mem::replace(&mut self.links[usize::from(node)], Link::Down) {
            Link::Down => return,
            Link::Connecting(_, waiting) => {
                return self.turn_away(waiting.unwrap_or_default(), &FabricError::Unreachable { node });
            }
            Link::Up(connection) => connection,
        };
        let Connection { lane, sent, calls, view, last_id, .. } = *connection;
        let mut sent = sent;
        if view.is_some() {
            if self.groups.entry(node).or_default().keep(last_id, std::mem::take(&mut sent)) {
                self.attempts += 1;
                self.links[usize::from(node)] = Link::Connecting(self.attempts, Some(Vec::new()));
                self.to_reach.push(Attempt { node, number: self.attempts, after: AGAIN });
            }
        } else {
            self.absent.note(node, true);
        }
        if let Some((lane, device)) = lane.zip(self.device.as_mut()) {
            device.posts += lane.posts;
            // No verb takes effect from here on, so the batches' memory can be reused.
            for ticket in lane.end() {
                if let Some(pending) = self.batches.get(ticket) {
                    pending.lost(node);
                }
                self.to_wake.extend(self.batches.part_ended(ticket));
            }
        }
        for ticket in calls.into_values() {
            if let Some(pending) = self.batches.get(ticket) {
                pending.lost(node);
            }
            self.to_wake.extend(self.batches.part_ended(ticket));
        }
        self.frames_lost(node, sent);
    }

    /// Handles frames that may or may not have been executed.
    fn frames_lost(&mut self, node: u8, frames: impl IntoIterator<Item = Sent>) {
        for sent in frames {
            if let Some(pending) = self.batches.get(sent.batch) {
                pending.lost(node);
                self.to_wake.extend(self.batches.part_ended(sent.batch));
            }
        }
    }

    /// Gives up the frames that a group owes replies to: no replica serves, or none serves this
    /// session any longer.
    pub(super) fn give_group_up(&mut self, node: u8) {
        if let Some(group) = self.groups.get_mut(&node) {
            let unanswered = group.give_up();
            // It is unknown whether they took effect before the session ended.
            if self.ended.error().is_some() {
                for sent in &unanswered {
                    let pending = self.batches.get(sent.batch);
                    pending.map(|pending| pending.error.get_or_insert(FabricError::Fenced));
                }
            }
            self.frames_lost(node, unanswered);
        }
    }

    /// Fails the batches that wait for a connection; nothing was sent.
    pub(super) fn turn_away(&mut self, waiting: Vec<Ticket>, error: &FabricError) {
        for ticket in waiting {
            if let Some(pending) = self.batches.get(ticket) {
                pending.error.get_or_insert_with(|| error.again());
            }
            self.to_wake.extend(self.batches.part_ended(ticket));
        }
    }

    pub(super) fn reached(
        &mut self,
        sockets: BorrowedFd<'_>,
        (node, attempt): (u8, u64),
        connected: Result<Connection, FabricError>,
    ) {
        // If the hub was closed since, there are no links; if the node was forgotten, its number
        // may belong to another.
        let Some(link) = self.links.get_mut(usize::from(node)) else { return };
        let waiting = match link {
            Link::Connecting(awaited, waiting) if *awaited == attempt => waiting.take().unwrap_or_default(),
            _ => return,
        };
        *link = Link::Down;
        let watched = connected.and_then(|connection| {
            let key = epoll::EventData::new_u64(node.into());
            match epoll::add(sockets, &connection.channel, key, connection.watched) {
                Ok(()) => Ok(connection),
                Err(_) => Err(FabricError::Unreachable { node }),
            }
        });
        self.absent.note(node, watched.is_err());
        match watched {
            Ok(connection) => {
                let mut connection = Box::new(connection);
                if connection.view.is_some() {
                    let group = self.groups.entry(node).or_default();
                    group.resume(&mut connection, node, &mut self.batches);
                }
                for &ticket in &waiting {
                    let Some(pending) = self.batches.get(ticket) else { continue };
                    let mut verbs = pending.batch.verbs().iter();
                    let first = verbs.position(|verb| verb.addr.node() == node);
                    if let Some(first) = first.or(pending.called.as_ref().map(|_| 0)) {
                        post_to(&mut connection, node, ticket, first, pending);
                    }
                }
                *link = Link::Up(connection);
                for ticket in waiting {
                    self.to_wake.extend(self.batches.part_ended(ticket));
                }
            }
            Err(error) => {
                self.ended.note(&error);
                self.give_group_up(node);
                self.turn_away(waiting, &error);
            }
        }
    }
}

/// Posts on a node's connection, or queues the request until there is one. Returns whether that
/// was possible: else the hub must begin to connect.
#[inline]
fn route(links: &mut [Link], (node, ticket, first): (u8, Ticket, usize), pending: &mut Pending) -> bool {
    match links.get_mut(usize::from(node)) {
        Some(Link::Up(connection)) => post_to(connection, node, ticket, first, pending),
        Some(Link::Down) => return false,
        Some(Link::Connecting(_, Some(waiting))) => {
            waiting.push(ticket);
            pending.parts += 1;
        }
        Some(Link::Connecting(_, None)) => {
            pending.error.get_or_insert(FabricError::Unreachable { node });
        }
        None => {
            let unknown = FabricError::out_of_bounds(GlobalAddr::new(node, 0), 0, 0);
            pending.error.get_or_insert(unknown);
        }
    }
    true
}

/// Begins to connect to a node, for a request that waits for it. Returns the attempt to make.
#[cold]
fn begin(
    links: &mut [Link],
    attempts: &mut u64,
    (node, ticket): (u8, Ticket),
    pending: &mut Pending,
) -> Attempt {
    *attempts += 1;
    links[usize::from(node)] = Link::Connecting(*attempts, Some(vec![ticket]));
    pending.parts += 1;
    Attempt { node, number: *attempts, after: Duration::ZERO }
}

/// Returns the error of a batch whose words cannot be registered with the device.
#[cold]
fn no_memory() -> FabricError {
    FabricError::geometry(
        "no memory for a batch can be registered with the RDMA device; raise the limit of locked memory (`ulimit -l`)",
    )
}

/// Sends pending data on a connection.
fn send_on(connection: &mut Connection) -> io::Result<Progress> {
    let waiting = connection.out.waiting();
    if waiting == 0 {
        return Ok(Progress::Idle);
    }
    connection.flush()?;
    Ok(if connection.out.waiting() < waiting { Progress::Moved } else { Progress::Waiting })
}

/// Sets the events for which a connection's socket is watched, possibly none: a watch slows down
/// the sender of a reply.
fn watch(connection: &mut Connection, sockets: BorrowedFd<'_>, is_watched: bool) -> io::Result<()> {
    let mut flags = epoll::EventFlags::empty();
    if is_watched {
        flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, connection.out.waiting() > 0);
    }
    if flags != connection.watched {
        epoll::modify(sockets, &connection.channel, epoll::EventData::new_u64(0), flags)?;
        connection.watched = flags;
    }
    Ok(())
}
