//! Connections to all memory nodes, and the batches in flight on them, driven by one thread.
//!
//! A thread whose loop runs ([`crate::block_on`], [`crate::run_all`]) has its own hub, which it
//! locks once per turn: the posts of its tasks only enter the lock again. Tasks of other executors
//! share the fabric's common hub, which a thread of the fabric drives (`reactor.rs`); a post there
//! waits for that lock at most for the length of a turn. No thread sleeps or connects while holding
//! the lock, and wakers are called without it.

use super::addresses::is_group;
use super::batches::{Called, Done, Ticket};
use super::connection::{Connection, PATIENCE};
use super::handshake::Caller;
use super::hub_state::{Attempt, HubState, Link};
use super::pairing::pair;
use super::reach::connect_within;
use super::session::Session;
use crate::executor::{Drive, Progress, Signal, posted};
use crate::rdma::Adapter;
use crate::{Batch, FabricError};
use parking_lot::ReentrantMutex;
use rustix::event::epoll;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long batches wait for a connection to a node that was silent before, or to a group that had
/// no serving replica.
const SILENT_PATIENCE: Duration = Duration::from_millis(500);

/// The driver of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// The loops of a thread that also polls the tasks.
    Tasks,
    /// The fabric's thread; tasks are polled elsewhere.
    Reactor,
}

/// A request that a task posts.
#[derive(Debug)]
pub(super) enum Request {
    Batch(Batch),
    Call(Box<Called>),
}

/// Connections and batches of one thread, or of all tasks of other executors.
#[derive(Debug)]
pub(super) struct Hub {
    state: ReentrantMutex<RefCell<HubState>>,
    /// An epoll instance with all connections, and with the queue of completions.
    sockets: OwnedFd,
    driver: Driver,
    /// The signal of the driving thread.
    signal: Arc<Signal>,
    /// The session of its fabric.
    pub(super) session: u64,
    /// The fabric's session, with its knowledge of the nodes, for connections that no post opens.
    /// Threads keep their hubs longer than fabrics live, whose devices must close with them.
    known: Weak<Session>,
    /// The number of its connections' channel to a memory group.
    channel: u32,
    me: Weak<Self>,
    spin: Duration,
    /// Something was posted that the reactor has not seen.
    has_posts: AtomicBool,
}

impl Hub {
    /// Creates a hub for the calling thread.
    pub(super) fn new(session: &Arc<Session>, driver: Driver) -> Result<Arc<Self>, FabricError> {
        let sockets = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| {
            FabricError::geometry(format!("cannot wait for sockets: {}", io::Error::from(error)))
        })?;
        let completions = session.adapter.as_ref().map(Adapter::completions).transpose()?;
        if let Some(completions) = &completions {
            let key = epoll::EventData::new_u64(u64::MAX);
            epoll::add(&sockets, completions.readable(), key, epoll::EventFlags::IN).map_err(|error| {
                FabricError::geometry(format!("cannot wait for completions: {}", io::Error::from(error)))
            })?;
        }
        let state = HubState::new(session, completions);
        Ok(Arc::new_cyclic(|me| Self {
            state: ReentrantMutex::new(RefCell::new(state)),
            sockets,
            driver,
            signal: crate::executor::signal(),
            session: session.number,
            known: Arc::downgrade(session),
            channel: session.next_channel(),
            me: Weak::clone(me),
            spin: session.options.spin,
            has_posts: AtomicBool::new(false),
        }))
    }

    /// Runs `what` on the state; `what` must not call this again.
    fn with<R>(&self, what: impl FnOnce(&mut HubState) -> R) -> R {
        let state = self.state.lock();
        what(&mut state.borrow_mut())
    }

    /// Returns whether this thread's loop drives the hub for the task that is being polled.
    pub(super) fn is_mine(&self) -> bool {
        self.driver == Driver::Tasks && self.signal.drives_here()
    }

    /// Returns whether tasks of any executor may use it.
    pub(super) fn is_common(&self) -> bool {
        self.driver == Driver::Reactor
    }

    /// Returns the number of posts to the device.
    pub(super) fn posts(&self) -> u64 {
        self.with(|state| state.posts())
    }

    /// Puts the frames of a batch or a call on their connections, to be sent at the next turn, with
    /// the waker to call after the replies.
    pub(super) fn post(&self, session: &Session, what: Request, waker: &Waker) -> Ticket {
        let mut wakers = Vec::new();
        let nodes = session.node_count();
        let (ticket, must_connect) = self.with(|state| {
            if state.links.len() < nodes && !state.is_closed {
                state.links.resize_with(nodes, || Link::Down);
            }
            let ticket = match what {
                Request::Batch(batch) => state.post(batch, None, waker),
                Request::Call(called) => state.post(Batch::new(), Some(called), waker),
            };
            if self.driver == Driver::Reactor {
                // Either the driver sees this flag before it sleeps, or this thread sees that it
                // sleeps.
                self.has_posts.store(true, Ordering::SeqCst);
                if self.signal.is_asleep() {
                    state.turn(self.sockets.as_fd(), true);
                    wakers.append(&mut state.to_wake);
                }
            }
            (ticket, !state.to_reach.is_empty())
        });
        wakers.into_iter().for_each(Waker::wake);
        if self.driver == Driver::Tasks {
            posted();
        }
        if must_connect {
            self.connect();
        }
        ticket
    }

    /// Returns the result of a batch or a call, or sets the waker to call when it is available.
    pub(super) fn poll(&self, ticket: Ticket, context: &Context<'_>) -> Poll<Result<Done, FabricError>> {
        if self.driver == Driver::Tasks && !self.is_mine() {
            // It was posted by a loop of another thread, which may have ended since.
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

    /// Gives up a batch whose future was dropped. Posted verbs are sent anyway, and the batch is
    /// counted until it is done.
    pub(super) fn give_up(&self, ticket: Ticket, orphans: &Arc<AtomicUsize>) {
        drop(self.with(|state| state.batches.give_up(ticket, orphans)));
    }

    /// Sends and receives as much as possible, for a thread that does not drive the hub. Does
    /// nothing while another thread holds the lock, since that thread does the same. A thread polls
    /// its tasks with its own hub locked, so two threads that waited for each other's hub would
    /// deadlock.
    pub(super) fn turn_once(&self) {
        let Some(state) = self.state.try_lock() else { return };
        let wakers = {
            let mut state = state.borrow_mut();
            state.turn(self.sockets.as_fd(), true);
            std::mem::take(&mut state.to_wake)
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        self.connect();
    }

    /// Connects to nodes that batches wait for, and again to groups that owe replies.
    fn connect(&self) {
        let attempts = self.with(|state| std::mem::take(&mut state.to_reach));
        if attempts.is_empty() {
            return;
        }
        let Some((me, session)) = self.me.upgrade().zip(self.known.upgrade()) else { return };
        for Attempt { node, number, after } in attempts {
            me.reach(&session, (node, number), after);
        }
    }

    /// Connects to a node, which must have the memory that the fabric knows, in a separate thread,
    /// after a delay.
    fn reach(self: &Arc<Self>, session: &Session, (node, attempt): (u8, u64), after: Duration) {
        let Some((known, boot_id)) = session.node(node).and_then(|known| {
            let boot_id = known.boot_id?;
            Some((known, boot_id))
        }) else {
            return self.reached(node, attempt, Err(FabricError::Unreachable { node }));
        };
        let hub = Arc::clone(self);
        let completions = self.with(|state| state.completions());
        let (options, silent) = (session.options.clone(), Arc::clone(&session.silent));
        let lost = Arc::clone(&session.lost);
        let caller = Caller { session: session.number, channel: self.channel, attempt: attempt as u32 };
        let is_group = is_group(&known.address);
        let patience = if is_group { options.group_patience } else { PATIENCE.min(options.patience) };
        let connects = move || {
            std::thread::sleep(after);
            let connected = connect_within(patience, &known.address, node, caller, &options);
            let connected = silent.judged(node, connected);
            let checked = connected.and_then(|(mut connection, welcome)| {
                let is_same = welcome.boot_id == boot_id;
                let is_lost = !is_same || welcome.region_bytes != known.bytes;
                lost.note(node, is_lost);
                if !is_lost {
                    if let Some(completions) = &completions {
                        pair(&mut connection, node, known.bytes, completions, &options)?;
                    }
                    return Ok(connection);
                }
                Err(FabricError::Lost { node })
            });
            hub.reached(node, attempt, checked);
        };
        if std::thread::Builder::new().name("darter-connect".to_owned()).spawn(connects).is_err() {
            self.reached(node, attempt, Err(FabricError::Unreachable { node }));
        } else if session.silent.contains(node) {
            let hub = Arc::clone(self);
            let patience = SILENT_PATIENCE.min(session.options.patience / 2);
            let tires = move || {
                std::thread::sleep(patience);
                hub.tire(node, attempt);
            };
            // Without this thread batches wait for the end of the attempt.
            let _ = std::thread::Builder::new().name("darter-tire".to_owned()).spawn(tires);
        }
    }

    /// Fails the batches that wait for an attempt to connect, and further ones until it ends.
    fn tire(&self, node: u8, attempt: u64) {
        let wakers = self.with(|state| {
            if let Some(Link::Connecting(awaited, waiting)) = state.links.get_mut(usize::from(node))
                && *awaited == attempt
            {
                let waiting = waiting.take().unwrap_or_default();
                state.turn_away(waiting, &FabricError::Unreachable { node });
            }
            std::mem::take(&mut state.to_wake)
        });
        self.has_posts.store(true, Ordering::SeqCst);
        self.signal.rouse();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Resumes the batches that waited for a connection.
    fn reached(&self, node: u8, attempt: u64, connected: Result<Connection, FabricError>) {
        let wakers = self.with(|state| {
            state.reached(self.sockets.as_fd(), (node, attempt), connected);
            std::mem::take(&mut state.to_wake)
        });
        self.has_posts.store(true, Ordering::SeqCst);
        self.signal.rouse();
        wakers.into_iter().for_each(Waker::wake);
        self.connect();
    }

    /// Closes the connection to a node that is not part of the pool.
    pub(super) fn forget(&self, node: u8) {
        let wakers = self.with(|state| {
            if usize::from(node) < state.links.len() {
                state.lose(node);
                state.give_group_up(node);
                state.links[usize::from(node)] = Link::Down;
                state.to_reach.retain(|attempt| attempt.node != node);
            }
            std::mem::take(&mut state.to_wake)
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends all connections and releases the device: the fabric was dropped, and with it everything
    /// that waited. The thread may keep the hub for a long time.
    pub(super) fn close(&self) {
        let (waker, ends) = self.with(|state| {
            state.is_closed = true;
            (state.on_close.take(), state.take_ends())
        });
        drop(ends);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns when the hub is closed.
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
        let (turn, must_connect) = self.with(|state| {
            let turn = state.turn(self.sockets.as_fd(), thorough || is_common);
            wakers.append(&mut state.to_wake);
            (turn, !state.to_reach.is_empty())
        });
        if must_connect {
            self.connect();
        }
        turn
    }

    fn send(&self, wakers: &mut Vec<Waker>) {
        self.with(|state| {
            state.send();
            state.watch_all(self.sockets.as_fd());
            wakers.append(&mut state.to_wake);
        });
        self.connect();
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
    /// Returns whether a socket is readable. Takes no lock, since posts need it.
    fn is_readable(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.sockets, PollFlags::IN)], Some(&now)) != Ok(0)
    }
}
