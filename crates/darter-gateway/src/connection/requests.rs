//! Executes the requests of a connection that have arrived.
//!
//! Over memory nodes, requests that do not depend on each other (`conflicts.rs`) run at the same
//! time, each with its own session and its own buffer for the reply. The replies are sent in the
//! order of the requests. Further requests start only while the replies of those that have started
//! are short together.
//!
//! Over a pool on this machine, where no request waits, they run one after the other.

use super::{Connection, SENT_AT_ONCE};
use crate::call::{Ahead, Call, Client, argument_too_long};
use crate::clock::WallClock;
use crate::commands;
use crate::conflicts::{Conflicts, OVERLAPPING_MAX, Requests};
use crate::pipeline::Pipeline;
use crate::reply::Reply;
use crate::request::{Arguments, Parser};
use crate::turns::TURN_BYTES;
use crate::worker::{KeyspaceLease, Worker};
use darter_fabric::turns;
use darter_fabric::wire::Outbox;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Most requests of a client that are parsed before the first of them runs, on a pool on this
/// machine.
const FORESEEN: usize = 16;
/// Fewest requests on the same key, if others follow, that are executed as one transaction on a pool
/// with round trips.
const RUN_BEFORE_OTHERS: usize = 16;
/// Replies of this length are moved, not copied.
const MOVED_BYTES: usize = 64 << 10;

impl Connection {
    /// Executes the requests that have arrived completely.
    pub(super) async fn do_requests(&mut self) -> io::Result<()> {
        if self.outbox.bytes.capacity() == 0 {
            self.outbox.bytes = self.worker.output();
        }
        self.client.info.holds(&self.inbox, &self.outbox, self.held_bytes + self.inbox.buffer_bytes());
        let worker = Rc::clone(&self.worker);
        let mut pipeline = worker.pipeline();
        let mut held: Option<KeyspaceLease<'_>> = None;
        let outcome = loop {
            // Before authentication, each request decides what the next one may do.
            let most = match self.client.is_trusted {
                true if worker.shared.has_round_trips => OVERLAPPING_MAX,
                true => FORESEEN,
                false => 1,
            };
            let parser = &mut self.parser;
            let parsed = pipeline.fill(parser, self.inbox.arrived(), self.client.is_trusted, most);
            if pipeline.len() > 0 {
                let done = self.do_parsed(&worker, &pipeline, &mut held).await;
                if done.is_err() || self.client.is_closing {
                    break done;
                }
            }
            if let Err(malformed) = &parsed {
                let mut reply = Reply::new(&mut self.outbox, self.client.is_resp3);
                reply.error(&format!("ERR {malformed}"));
                self.client.is_closing = true;
            }
            if parsed.is_err() || pipeline.len() == 0 {
                break Ok(());
            }
        };
        worker.give_pipeline(pipeline);
        if let Some(held) = held {
            worker.give_keyspace(held);
        }
        outcome
    }

    /// Executes parsed requests.
    async fn do_parsed<'w>(
        &mut self,
        worker: &'w Worker,
        pipeline: &Pipeline,
        held: &mut Option<KeyspaceLease<'w>>,
    ) -> io::Result<()> {
        let (client, shared) = (&mut self.client, &worker.shared);
        // Requests that overlap have a copy of the result.
        if client.is_trusted
            && client.users_version != shared.acl.version()
            && commands::refresh_user(client, shared).is_err()
        {
            return Ok(());
        }
        let clock = WallClock::read();
        let mut began = clock.read_at;
        let (mut number, mut outcome) = (0, Ok(()));
        let mut conflicts = Conflicts::default();
        // Requests before this one are not tried as a run again.
        let mut run_from = 0;
        while number < pipeline.len() {
            let run = if number < run_from { 0 } else { self.run_length(worker, pipeline, number) };
            run_from = run_from.max(number + run);
            let is_done = run > 0
                && Box::pin(self.do_run(worker, pipeline, number..number + run, held, (clock, began))).await;
            let together = if !is_done && worker.shared.has_round_trips && !worker.shared.pause.is_on() {
                let (parser, arrived) = (&self.parser, self.inbox.arrived());
                let left = (number..pipeline.len()).map(|at| pipeline.arguments(at, parser, arrived));
                conflicts.collect(left, &self.client)
            } else {
                0
            };
            if is_done {
                number += run;
                began = Instant::now();
            } else if together > 1 {
                number += self.do_together(worker, pipeline, number, &conflicts, held, clock).await;
                began = Instant::now();
            } else {
                began = pin!(self.do_one(worker, pipeline, number, held, (clock, began))).await;
                number += 1;
            }
            if self.outbox.waiting() > SENT_AT_ONCE {
                outcome = self.send().and_then(|()| self.count());
            }
            if self.client.is_closing || outcome.is_err() {
                break;
            }
            let is_full = self.outbox.waiting() > self.unsent_max();
            // Early, because a turn that ends within the next command would keep the session.
            if is_full || turns::work() >= TURN_BYTES / 2 {
                // Other connections may use the session.
                if let Some(lease) = held.take() {
                    worker.give_keyspace(lease);
                }
                if is_full {
                    outcome = poll_fn(|context| self.poll_room(context)).await;
                }
                tokio::task::yield_now().await;
                began = Instant::now();
                if outcome.is_err() {
                    break;
                }
            }
        }
        if number > 0 {
            self.inbox.take(pipeline.end(number - 1));
        }
        outcome
    }

    /// Returns the number of requests, from one on, that are executed as one transaction.
    fn run_length(&self, worker: &Worker, pipeline: &Pipeline, number: usize) -> usize {
        let shared = &worker.shared;
        if !shared.has_transactions || shared.pause.is_on() || shared.monitors.are_there() {
            return 0;
        }
        let (parser, arrived) = (&self.parser, self.inbox.arrived());
        let left = (number..pipeline.len()).map(|at| pipeline.arguments(at, parser, arrived));
        let length = commands::run_length(left, &self.client);
        // Where requests wait for round trips, those on other keys would wait for a short run.
        let is_worthwhile =
            !shared.has_round_trips || length >= RUN_BEFORE_OTHERS || number + length == pipeline.len();
        if is_worthwhile { length } else { 0 }
    }

    /// Executes requests on the same key as one transaction. Returns false if they must be executed
    /// one by one.
    async fn do_run<'w>(
        &mut self,
        worker: &'w Worker,
        pipeline: &Pipeline,
        numbers: Range<usize>,
        held: &mut Option<KeyspaceLease<'w>>,
        (clock, began): (WallClock, Instant),
    ) -> bool {
        let lease = match held {
            Some(lease) => lease,
            None => held.insert(worker.keyspace().await),
        };
        lease.keys.now = clock.at(began);
        self.client.info.is_active(began);
        let (parser, arrived) = (&self.parser, self.inbox.arrived());
        let requests = numbers.map(|number| pipeline.arguments(number, parser, arrived));
        let Some(args) = requests.clone().next() else { return false };
        let reply = Reply::new(&mut self.outbox, self.client.is_resp3);
        let (keys, client) = (&mut lease.keys, &mut self.client);
        let mut call = Call { args, keys, reply, client, shared: &worker.shared };
        let Some(run) = commands::execute_run(&mut call, requests).await else { return false };
        let each = began.elapsed() / u32::try_from(run.len()).unwrap_or(u32::MAX);
        for (command, args, ending) in &run {
            let began = Instant::now().checked_sub(each).unwrap_or(began);
            worker.did(Some((command, *ending)), args, began, &self.client.info);
        }
        true
    }

    /// Executes requests at the same time, up to the last of `conflicts`, or until their replies
    /// should be sent first. Returns their number, which is at least one.
    async fn do_together<'w>(
        &mut self,
        worker: &'w Worker,
        pipeline: &Pipeline,
        first: usize,
        conflicts: &Conflicts,
        held: &mut Option<KeyspaceLease<'w>>,
        clock: WallClock,
    ) -> usize {
        let lease = match held.take() {
            Some(lease) => lease,
            None => worker.keyspace().await,
        };
        let mut together = Together {
            worker,
            requests: (pipeline, &self.parser, self.inbox.arrived()),
            first,
            conflicts,
            client: &self.client,
            clock,
            start: self.outbox.len(),
            outbox: &mut self.outbox,
            leases: vec![lease],
            running: Vec::new(),
            started: Requests::default(),
            ended: Requests::default(),
            given_up: Requests::default(),
            replies: BTreeMap::new(),
        };
        poll_fn(|context| together.poll(context)).await;
        let count = together.ended.leading();
        *held = together.rest();
        count
    }

    /// Returns whether a request must wait for the end of a pause. Other gateways are not clients.
    fn must_wait(&self, worker: &Worker, args: &Arguments<'_>) -> bool {
        let is_of_client = !args.is_empty() && self.client.sender.is_none();
        let is_writing = if is_of_client { commands::is_writing(args, &self.client) } else { None };
        is_writing.is_some_and(|is_writing| worker.shared.pause.until(is_writing).is_some())
    }

    /// Executes one request. Returns when it ended.
    #[inline]
    async fn do_one<'w>(
        &mut self,
        worker: &'w Worker,
        pipeline: &Pipeline,
        number: usize,
        held: &mut Option<KeyspaceLease<'w>>,
        (clock, began): (WallClock, Instant),
    ) -> Instant {
        let args = pipeline.arguments(number, &self.parser, self.inbox.arrived());
        let began = if worker.shared.pause.is_on() && self.must_wait(worker, &args) {
            // Others may use the session during the pause.
            if let Some(lease) = held.take() {
                worker.give_keyspace(lease);
            }
            let is_writing = commands::is_writing(&args, &self.client).unwrap_or(false);
            let waiting = worker.shared.clients.wait(&self.client.info, false);
            worker.shared.pause.over(is_writing).await;
            drop(waiting);
            Instant::now()
        } else {
            began
        };
        #[cfg(feature = "scripts")]
        let began = if commands::runs_scripts(&args, &self.client) {
            // Others may use the session while this client waits for a thread.
            if let Some(lease) = held.take() {
                worker.give_keyspace(lease);
            }
            self.client.slot = worker.shared.scripts.slot().await;
            Instant::now()
        } else {
            began
        };
        let lease = match held {
            Some(lease) => lease,
            None => held.insert(worker.keyspace().await),
        };
        let is_foreseen = number == 0 && pipeline.len() > 1 && worker.shared.is_prefetched;
        if is_foreseen && lease.keys.select(self.client.database).is_ok() {
            lease.keys.prefetch(pipeline.first_arguments(self.inbox.arrived()));
        }
        let mut reply = Reply::new(&mut self.outbox, self.client.is_resp3);
        if let Some(bytes) = pipeline.too_long(number) {
            let fault = argument_too_long(bytes, worker.shared.argument_bytes_max);
            reply.error(&fault.text());
            worker.shared.note(&fault);
            self.client.abort();
        }
        if args.is_empty() {
            return began;
        }
        lease.keys.now = clock.at(began);
        self.client.info.is_active(began);
        let (keys, client) = (&mut lease.keys, &mut self.client);
        let mut call = Call { args, keys, reply, client, shared: &worker.shared };
        let command = commands::perform(&mut call).await;
        #[cfg(feature = "scripts")]
        drop(self.client.slot.take());
        if self.client.waiter.is_some() {
            return Box::pin(self.do_waiting(worker, pipeline, number, held)).await;
        }
        worker.did(command, &args, began, &self.client.info)
    }
}

/// Requests that run at the same time.
struct Together<'r, 'w> {
    worker: &'w Worker,
    /// The requests, of which these begin with the one numbered `first`.
    requests: (&'r Pipeline, &'r Parser, &'r [u8]),
    first: usize,
    conflicts: &'r Conflicts,
    client: &'r Client,
    clock: WallClock,
    outbox: &'r mut Outbox,
    /// The position of the first reply in the outbox.
    start: usize,
    /// Unused sessions.
    leases: Vec<KeyspaceLease<'w>>,
    running: Vec<Running<'r, 'w>>,
    started: Requests,
    ended: Requests,
    /// Requests to be executed again after all earlier ones.
    given_up: Requests,
    /// Replies that wait for earlier ones.
    replies: BTreeMap<usize, Vec<u8>>,
}

/// A request in progress.
type Running<'r, 'w> = Pin<Box<dyn Future<Output = Ended<'w>> + 'r>>;

/// A request that has ended, its session and its reply.
struct Ended<'w> {
    request: usize,
    lease: KeyspaceLease<'w>,
    reply: Outbox,
    is_given_up: bool,
}

impl<'r, 'w: 'r> Together<'r, 'w> {
    /// Continues the requests in progress, and starts further ones. Ready when all have ended, or
    /// when the replies so far should be sent first.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut at = 0;
        while at < self.running.len() {
            match self.running[at].as_mut().poll(context) {
                Poll::Ready(ended) => {
                    drop(self.running.swap_remove(at));
                    self.end(ended);
                }
                Poll::Pending => at += 1,
            }
        }
        let mut has_started = false;
        while let Some(request) = self.next() {
            if std::mem::replace(&mut has_started, true) && turns::work() >= TURN_BYTES / 2 {
                return turns::poll_end(context);
            }
            let lease = self.leases.pop().or_else(|| self.worker.overlapping_keyspace());
            let Some(lease) = lease else { break };
            let mut running = self.start(request, lease);
            match running.as_mut().poll(context) {
                Poll::Ready(ended) => self.end(ended),
                Poll::Pending => self.running.push(running),
            }
        }
        if self.running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns a request that can start now. If many bytes of replies wait, it is one whose reply
    /// others wait for.
    fn next(&mut self) -> Option<usize> {
        let first = self.ended.leading();
        if self.given_up.remove(first) {
            return Some(first);
        }
        let waiting: usize = self.replies.values().map(Vec::len).sum();
        let is_full =
            self.outbox.len() - self.start + waiting > SENT_AT_ONCE || self.given_up != Requests::default();
        let end = if is_full { self.started.end() } else { self.conflicts.len() };
        self.conflicts.next(end, self.started, self.ended)
    }

    fn start(&mut self, request: usize, mut lease: KeyspaceLease<'w>) -> Running<'r, 'w> {
        self.started.add(request);
        let (pipeline, parser, arrived) = self.requests;
        let args = pipeline.arguments(self.first + request, parser, arrived);
        let ahead = if request == self.ended.leading() { Ahead::No } else { Ahead::Yes };
        let mut client = self.client.overlapping(ahead);
        let (worker, began) = (self.worker, Instant::now());
        lease.keys.now = self.clock.at(began);
        let mut reply = Outbox::default();
        reply.bytes = worker.output();
        Box::pin(async move {
            client.info.is_active(began);
            let writer = Reply::new(&mut reply, client.is_resp3);
            let (keys, shared) = (&mut lease.keys, &*worker.shared);
            let mut call = Call { args, keys, reply: writer, client: &mut client, shared };
            let command = commands::perform(&mut call).await;
            let is_given_up = client.ahead == Ahead::GivenUp;
            if !is_given_up {
                worker.did(command, &args, began, &client.info);
            }
            Ended { request, lease, reply, is_given_up }
        })
    }

    /// Takes the session and the reply of a request that has ended, and puts the replies that wait
    /// for no earlier one in the outbox.
    fn end(&mut self, Ended { request, lease, reply, is_given_up }: Ended<'w>) {
        self.leases.push(lease);
        if is_given_up {
            self.given_up.add(request);
            return;
        }
        self.ended.add(request);
        self.replies.insert(request, reply.into_bytes());
        let leading = self.ended.leading();
        while let Some(entry) = self.replies.first_entry()
            && *entry.key() < leading
        {
            let mut bytes = entry.remove();
            if bytes.len() < MOVED_BYTES {
                self.outbox.bytes.extend_from_slice(&bytes);
                self.outbox.seal_if_long();
                bytes.clear();
                self.worker.give_output(bytes);
            } else {
                self.outbox.seal();
                self.outbox.bytes = bytes;
                self.outbox.seal();
            }
        }
    }

    /// Gives all sessions back but the first, which it returns.
    fn rest(self) -> Option<KeyspaceLease<'w>> {
        let mut first = None;
        for lease in self.leases {
            if lease.is_overlapping {
                self.worker.give_keyspace(lease);
            } else {
                first = Some(lease);
            }
        }
        first
    }
}
