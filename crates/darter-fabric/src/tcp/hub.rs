//! Connections to all memory nodes, and the batches under way on them, driven by one thread.
//!
//! A thread whose loop runs ([`crate::block_on`], [`crate::run_all`]) has a hub of its own, which
//! it locks once a turn: the posts of its tasks only enter the lock again. Tasks of other executors
//! share the fabric's common hub, which a thread of the fabric drives (`reactor.rs`); a post there
//! waits for that lock at most as long as a turn takes. No thread sleeps or connects with the lock
//! held, and wakers are called without it.

use super::batches::{Batches, Pending, Ticket};
use super::connection::{Connection, Sent};
use super::handshake::connect;
use super::session::Session;
use crate::executor::{Drive, Progress, Signal, posted};
use crate::mutant;
use crate::wire::{self, Refusal, RequestKind};
use crate::{Batch, FabricError, GlobalAddr, Verb};
use parking_lot::ReentrantMutex;
use rustix::event::epoll;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Who drives a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// The loops of a thread that also polls the tasks.
    Tasks,
    /// The fabric's thread; tasks are polled elsewhere.
    Reactor,
}

/// Connections and batches of one thread, or of all tasks of other executors.
#[derive(Debug)]
pub(super) struct Hub {
    state: ReentrantMutex<RefCell<HubState>>,
    /// An epoll instance with all connections.
    sockets: OwnedFd,
    driver: Driver,
    /// The driving thread's.
    signal: Arc<Signal>,
    /// The session of the fabric it belongs to.
    pub(super) session: u64,
    spin: Duration,
    /// Something was posted that the reactor has not seen.
    has_posts: AtomicBool,
}

#[derive(Debug)]
struct HubState {
    /// A node has reported that this session was fenced: then it is, on all nodes and for good.
    fenced: Arc<AtomicBool>,
    patience: Duration,
    links: Vec<Link>,
    /// Attempts to connect so far.
    attempts: u64,
    batches: Batches,
    /// To be called once the lock is free.
    to_wake: Vec<Waker>,
    /// No fabric uses it any more.
    is_closed: bool,
    on_close: Option<Waker>,
}

/// The connection to a node, if any.
#[derive(Debug)]
enum Link {
    Down,
    /// With the attempt under way, and the batches that wait for it.
    Connecting(u64, Vec<Ticket>),
    Up(Box<Connection>),
}

impl Hub {
    /// Returns a hub of the calling thread.
    pub(super) fn new(session: &Session, driver: Driver) -> Result<Arc<Self>, FabricError> {
        let sockets = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| {
            FabricError::geometry(format!("cannot wait for sockets: {}", io::Error::from(error)))
        })?;
        let state = HubState {
            fenced: Arc::clone(&session.fenced),
            patience: session.options.patience,
            links: Vec::new(),
            attempts: 0,
            batches: Batches::default(),
            to_wake: Vec::new(),
            is_closed: false,
            on_close: None,
        };
        Ok(Arc::new(Self {
            state: ReentrantMutex::new(RefCell::new(state)),
            sockets,
            driver,
            signal: crate::executor::signal(),
            session: session.number,
            spin: session.options.spin,
            has_posts: AtomicBool::new(false),
        }))
    }

    /// Runs `what` on the state; `what` must not call this again.
    fn with<R>(&self, what: impl FnOnce(&mut HubState) -> R) -> R {
        let state = self.state.lock();
        what(&mut state.borrow_mut())
    }

    /// Returns whether this thread's loop drives the hub for a task that is polled now.
    pub(super) fn is_mine(&self) -> bool {
        self.driver == Driver::Tasks && self.signal.drives_here()
    }

    /// Returns whether tasks of any executor may use it.
    pub(super) fn is_common(&self) -> bool {
        self.driver == Driver::Reactor
    }

    /// Puts a batch's frames on their connections, to leave at the next turn, and the waker to be
    /// called when they are answered.
    pub(super) fn post(self: &Arc<Self>, session: &Session, batch: Batch, waker: &Waker) -> Ticket {
        let mut absent = Vec::new();
        let mut wakers = Vec::new();
        let nodes = session.node_count();
        let ticket = self.with(|state| {
            if state.links.len() < nodes && !state.is_closed {
                state.links.resize_with(nodes, || Link::Down);
            }
            let ticket = state.post(batch, waker, &mut absent);
            if self.driver == Driver::Reactor {
                // Either it sees this flag before it sleeps, or it is seen to sleep here.
                self.has_posts.store(true, Ordering::SeqCst);
                if self.signal.is_asleep() {
                    state.turn(self.sockets.as_fd(), true);
                    wakers.append(&mut state.to_wake);
                }
            }
            ticket
        });
        wakers.into_iter().for_each(Waker::wake);
        if self.driver == Driver::Tasks {
            posted();
        }
        for (node, attempt) in absent {
            self.reach(session, node, attempt);
        }
        ticket
    }

    /// Returns a batch's result, or a waker to be called when it is there.
    pub(super) fn poll(&self, ticket: Ticket, context: &Context<'_>) -> Poll<Result<Batch, FabricError>> {
        if self.driver == Driver::Tasks && !self.is_mine() {
            // Posted by a loop of another thread, which may have ended meanwhile.
            self.turn_once();
            context.waker().wake_by_ref();
        }
        let mut replaced = None;
        let result = self.with(|state| {
            let result = state.batches.take(ticket);
            if result.is_none() {
                replaced = state.batches.wait(ticket, context.waker());
            }
            result
        });
        drop(replaced);
        result.map_or(Poll::Pending, Poll::Ready)
    }

    /// Gives up a batch whose future was dropped. What was posted is sent all the same, and counted
    /// until it is done.
    pub(super) fn give_up(&self, ticket: Ticket, orphans: &Arc<AtomicUsize>) {
        drop(self.with(|state| state.batches.give_up(ticket, orphans)));
    }

    /// Sends and receives what can be, for a thread that does not drive the hub.
    pub(super) fn turn_once(&self) {
        let wakers = self.with(|state| {
            state.turn(self.sockets.as_fd(), true);
            std::mem::take(&mut state.to_wake)
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Connects to a node, which must have the memory that the fabric knows, in a thread of its
    /// own.
    fn reach(self: &Arc<Self>, session: &Session, node: u8, attempt: u64) {
        let Some(known) = session.node(node) else {
            return self.reached(node, attempt, Err(FabricError::Unreachable { node }));
        };
        let hub = Arc::clone(self);
        let (number, options) = (session.number, session.options.clone());
        let connects = move || {
            let connected = connect(&known.address, node, number, &options).map_err(|error| match error {
                FabricError::Io(_) => FabricError::Unreachable { node },
                other => other,
            });
            let checked = connected.and_then(|(connection, welcome)| {
                let is_same = welcome.boot_id == known.boot_id || mutant!("tcp-hub-takes-any-memory");
                if is_same && welcome.region_bytes == known.bytes {
                    return Ok(connection);
                }
                Err(FabricError::geometry(format!(
                    "{}: the memory node was restarted with another memory; its part of the pool is \
                     gone",
                    known.address
                )))
            });
            hub.reached(node, attempt, checked);
        };
        if std::thread::Builder::new().name("darter-connect".to_owned()).spawn(connects).is_err() {
            self.reached(node, attempt, Err(FabricError::Unreachable { node }));
        }
    }

    /// Lets the batches go on that waited for a connection.
    fn reached(&self, node: u8, attempt: u64, connected: Result<Connection, FabricError>) {
        let wakers = self.with(|state| {
            state.reached(self.sockets.as_fd(), (node, attempt), connected);
            std::mem::take(&mut state.to_wake)
        });
        self.has_posts.store(true, Ordering::SeqCst);
        self.signal.rouse();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Closes the connection to a node that is not part of the pool.
    pub(super) fn forget(&self, node: u8) {
        let wakers = self.with(|state| {
            if usize::from(node) < state.links.len() {
                state.lose(node);
            }
            std::mem::take(&mut state.to_wake)
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends all connections: the fabric was dropped, and with it all that waited.
    pub(super) fn close(&self) {
        let (waker, links) = self.with(|state| {
            state.is_closed = true;
            (state.on_close.take(), std::mem::take(&mut state.links))
        });
        drop(links);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ends when the hub is closed.
    pub(super) async fn closed(&self) {
        std::future::poll_fn(|context| {
            self.with(|state| {
                state.on_close = Some(context.waker().clone());
                if state.is_closed { Poll::Ready(()) } else { Poll::Pending }
            })
        })
        .await;
    }
}

impl Drive for Hub {
    fn hold(&self, then: &mut dyn FnMut()) {
        let _state = (self.driver == Driver::Tasks).then(|| self.state.lock());
        then();
    }

    fn turn(&self, thorough: bool, wakers: &mut Vec<Waker>) -> Progress {
        let is_common = self.driver == Driver::Reactor;
        let has_posts = is_common && self.has_posts.swap(false, Ordering::SeqCst);
        if is_common && !thorough && !has_posts && !self.is_readable() {
            return Progress::Waiting;
        }
        self.with(|state| {
            let turn = state.turn(self.sockets.as_fd(), thorough || is_common);
            wakers.append(&mut state.to_wake);
            turn
        })
    }

    fn send(&self, wakers: &mut Vec<Waker>) {
        self.with(|state| {
            state.send();
            state.watch_all(self.sockets.as_fd());
            wakers.append(&mut state.to_wake);
        });
    }

    fn readable(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }

    fn spin(&self) -> Duration {
        self.spin
    }

    fn is_closed(&self) -> bool {
        self.with(|state| state.is_closed)
    }
}

impl Hub {
    /// Returns whether a socket has something. Takes no lock, since posts need it.
    fn is_readable(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.sockets, PollFlags::IN)], Some(&now)) != Ok(0)
    }
}

impl HubState {
    /// Puts a batch's frames on their connections; names the nodes that have none yet.
    fn post(&mut self, batch: Batch, waker: &Waker, absent: &mut Vec<(u8, u64)>) -> Ticket {
        let ticket = self.batches.reserve();
        let mut pending = Pending::new(batch, waker);
        let is_fenced = self.fenced.load(Ordering::Relaxed);
        pending.error = is_fenced.then_some(FabricError::Fenced);
        let mut seen: [u64; 4] = [0; 4];
        for first in 0..if is_fenced { 0 } else { pending.batch.len() } {
            let node = pending.batch.verbs()[first].addr.node();
            let (word, bit) = (usize::from(node) / 64, 1_u64 << (node % 64));
            if seen[word] & bit != 0 {
                continue;
            }
            seen[word] |= bit;
            match self.links.get_mut(usize::from(node)) {
                Some(Link::Up(connection)) => post_to(connection, node, ticket, first, &mut pending),
                Some(Link::Connecting(_, waiting)) => {
                    waiting.push(ticket);
                    pending.parts += 1;
                }
                Some(down @ Link::Down) => {
                    self.attempts += 1;
                    *down = Link::Connecting(self.attempts, vec![ticket]);
                    absent.push((node, self.attempts));
                    pending.parts += 1;
                }
                None => {
                    let unknown = FabricError::out_of_bounds(GlobalAddr::new(node, 0), 0, 0);
                    pending.error.get_or_insert(unknown);
                }
            }
        }
        if pending.parts == 0 {
            // Nothing could be posted: the error is to be fetched at once.
            waker.wake_by_ref();
        }
        self.batches.put(ticket, pending);
        ticket
    }

    /// Sends what waits.
    fn send(&mut self) -> Progress {
        let mut turn = Progress::Idle;
        for node in 0..self.links.len() {
            let Link::Up(connection) = &mut self.links[node] else { continue };
            if let Ok(moved) = send_on(connection) {
                turn = turn.max(moved);
            } else {
                self.lose(node as u8);
                turn = Progress::Moved;
            }
        }
        turn
    }

    /// Has all connections watched.
    fn watch_all(&mut self, sockets: BorrowedFd<'_>) {
        for node in 0..self.links.len() {
            let Link::Up(connection) = &mut self.links[node] else { continue };
            if watch(connection, sockets, true).is_err() {
                self.lose(node as u8);
            }
        }
    }

    /// Sends and receives without blocking: from nodes that owe a reply, or from all if `thorough`,
    /// with their sockets watched from then on.
    fn turn(&mut self, sockets: BorrowedFd<'_>, thorough: bool) -> Progress {
        let mut turn = self.send();
        for node in 0..self.links.len() {
            match &mut self.links[node] {
                // The thread that connects rouses this one: no need to spin for it.
                Link::Down | Link::Connecting(..) => {}
                Link::Up(connection) => {
                    let owes = !connection.sent.is_empty();
                    let watched = watch(connection, sockets, thorough);
                    if !owes && !thorough {
                        continue;
                    }
                    match watched.and_then(|()| self.receive(node)) {
                        Ok(true) => turn = Progress::Moved,
                        Ok(false) if owes && !(thorough && self.is_out_of_patience(node)) => {
                            turn = turn.max(Progress::Waiting);
                        }
                        Ok(false) if !owes => {}
                        Ok(false) | Err(_) => {
                            self.lose(node as u8);
                            turn = Progress::Moved;
                        }
                    }
                }
            }
        }
        turn
    }

    /// Returns whether a node that owes a reply, and sent nothing just now, has been silent for too
    /// long.
    fn is_out_of_patience(&mut self, node: usize) -> bool {
        let Link::Up(connection) = &mut self.links[node] else { return false };
        connection.silent_since.get_or_insert_with(Instant::now).elapsed() > self.patience
    }

    /// Hands out the replies that have arrived; returns whether anything has.
    fn receive(&mut self, node: usize) -> io::Result<bool> {
        let Link::Up(connection) = &mut self.links[node] else { return Ok(false) };
        if !connection.receive()? {
            return Ok(false);
        }
        if !mutant!("tcp-silence-never-forgiven") {
            connection.silent_since = None;
        }
        while let Some((sent, refusal, range)) = connection.next_reply()? {
            let Some(pending) = self.batches.get(sent.batch) else { continue };
            if refusal == Refusal::None {
                let payload = connection.payload(range);
                if !wire::take_answers(&mut pending.batch, node as u8, sent.first..sent.end, payload) {
                    // Its frame is no longer listed: it ends here, the others with the connection.
                    pending.lost(node as u8);
                    self.to_wake.extend(self.batches.part_ended(sent.batch));
                    return Err(io::ErrorKind::InvalidData.into());
                }
            } else {
                if refusal == Refusal::Fenced && !mutant!("tcp-fenced-reply-forgotten") {
                    self.fenced.store(true, Ordering::Relaxed);
                }
                let text = connection.text(range);
                pending.error.get_or_insert(wire::error_of(refusal, node as u8, &text));
            }
            self.to_wake.extend(self.batches.part_ended(sent.batch));
        }
        Ok(true)
    }

    /// A connection is gone: what was on it may have been done or not.
    fn lose(&mut self, node: u8) {
        let connection = match std::mem::replace(&mut self.links[usize::from(node)], Link::Down) {
            Link::Down => return,
            Link::Connecting(_, waiting) => {
                return self.turn_away(waiting, &FabricError::Unreachable { node });
            }
            Link::Up(connection) => connection,
        };
        for sent in connection.sent {
            if let Some(pending) = self.batches.get(sent.batch) {
                if mutant!("tcp-lost-told-as-unsent") {
                    pending.error.get_or_insert(FabricError::Unreachable { node });
                } else {
                    pending.lost(node);
                }
                self.to_wake.extend(self.batches.part_ended(sent.batch));
            }
        }
    }

    /// The batches that wait for a connection have none, and nothing was sent.
    fn turn_away(&mut self, waiting: Vec<Ticket>, error: &FabricError) {
        for ticket in waiting {
            if let Some(pending) = self.batches.get(ticket) {
                pending.error.get_or_insert(again(error));
            }
            self.to_wake.extend(self.batches.part_ended(ticket));
        }
    }

    fn reached(
        &mut self,
        sockets: BorrowedFd<'_>,
        (node, attempt): (u8, u64),
        connected: Result<Connection, FabricError>,
    ) {
        // Closed meanwhile, there are no links; forgotten meanwhile, the node may be another.
        let Some(link) = self.links.get_mut(usize::from(node)) else { return };
        let waiting = match link {
            Link::Connecting(awaited, waiting) if *awaited == attempt => std::mem::take(waiting),
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
        match watched {
            Ok(connection) => {
                let mut connection = Box::new(connection);
                for &ticket in &waiting {
                    let Some(pending) = self.batches.get(ticket) else { continue };
                    let verbs = pending.batch.verbs();
                    if let Some(first) = verbs.iter().position(|verb| verb.addr.node() == node) {
                        post_to(&mut connection, node, ticket, first, pending);
                    }
                }
                *link = Link::Up(connection);
                for ticket in waiting {
                    self.to_wake.extend(self.batches.part_ended(ticket));
                }
            }
            Err(error) => {
                if matches!(error, FabricError::Fenced) && !mutant!("tcp-fenced-greeting-forgotten") {
                    self.fenced.store(true, Ordering::Relaxed);
                }
                self.turn_away(waiting, &error);
            }
        }
    }
}

/// Returns the same error once more.
fn again(error: &FabricError) -> FabricError {
    match *error {
        FabricError::Unreachable { node } => FabricError::Unreachable { node },
        FabricError::Fenced => FabricError::Fenced,
        ref other => FabricError::geometry(other.to_string()),
    }
}

/// Sends what waits on a connection.
fn send_on(connection: &mut Connection) -> io::Result<Progress> {
    let waiting = connection.out.waiting();
    if waiting == 0 {
        return Ok(Progress::Idle);
    }
    connection.flush()?;
    Ok(if connection.out.waiting() < waiting { Progress::Moved } else { Progress::Waiting })
}

/// Watches a connection's socket for what is awaited from it, or for nothing: a watch slows the
/// sender of a reply down.
fn watch(connection: &mut Connection, sockets: BorrowedFd<'_>, is_watched: bool) -> io::Result<()> {
    let mut flags = epoll::EventFlags::empty();
    if is_watched {
        flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, connection.out.waiting() > 0);
    }
    if flags != connection.watched {
        connection.watched = flags;
        epoll::modify(sockets, &connection.channel, epoll::EventData::new_u64(0), flags)?;
    }
    Ok(())
}

/// Puts a batch's verbs for one node, the first of which is given, on its connection, in as many
/// frames as it takes.
fn post_to(connection: &mut Connection, node: u8, ticket: Ticket, first: usize, pending: &mut Pending) {
    let limit = connection.frame_bytes as usize;
    let (verbs, data) = pending.batch.parts_mut();
    let size = |verb: &Verb| {
        let there = wire::HEADER_BYTES + wire::request_words(verb) * 8;
        (there, wire::reply_words(verb) * 8)
    };
    let is_too_long = |verb: &&Verb| verb.addr.node() == node && size(verb).0.max(size(verb).1) > limit;
    if let Some(verb) = verbs.iter().find(is_too_long) {
        pending.error.get_or_insert(FabricError::geometry(format!(
            "a verb of {} bytes at {}; memory node {node} takes {limit} at most in one",
            u64::from(verb.words) * 8,
            verb.addr
        )));
        return;
    }
    let mut from = first;
    while from < verbs.len() {
        let at = connection.begin_frame();
        let (mut there, mut back, mut count, mut end) = (0, 0, 0_u16, from);
        while end < verbs.len() {
            let verb = &verbs[end];
            if verb.addr.node() == node {
                let (more, answer) = size(verb);
                let is_answer_too_long = back + answer > limit && !mutant!("tcp-answers-beyond-a-frame");
                let verbs_max = wire::VERBS_MAX + usize::from(mutant!("tcp-one-verb-too-many"));
                if there + more > limit || is_answer_too_long || usize::from(count) == verbs_max {
                    break;
                }
                (there, back, count) = (there + more, back + answer, count + 1);
                wire::put_verb(&mut connection.out.bytes, verb, data);
            }
            end += 1;
        }
        let id = connection.end_frame(at, RequestKind::Batch, count);
        let answered_from = if mutant!("tcp-later-frame-answers-from-the-first") { first } else { from };
        connection.sent.push_back(Sent { id, batch: ticket, first: answered_from, end });
        if from == first || !mutant!("tcp-batch-ends-with-its-first-frame") {
            pending.parts += 1;
        }
        from = end;
    }
}
