//! Calls in the model: a request passes the NICs and waits for a core of the memory node, its
//! procedure runs when the core has finished it, and the reply goes back.
//!
//! A procedure takes effect at one instant: its verbs cost nothing in addition to the core's time.

use super::call_flight::{CallFlight, CallResult, Request};
use super::nic::Ps;
use super::world::{Cost, Happening, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the words of a request or reply.
fn payload(words: &[u64]) -> u64 {
    words.len() as u64 * 8
}

impl World {
    /// Makes a call by the running task; returns the call's number.
    pub(super) fn post_call(&mut self, task: u32, compute_node: u32, node: u8, request: Request) -> u32 {
        self.work(self.prices.post + self.prices.verb);
        let (now, posted) = (self.clock, self.now());
        let bytes = payload(&request.words);
        let is_fetched = bytes > self.prices.inline;
        let nic = &mut self.nics[compute_node as usize];
        let (_, processed) = nic.posts.serve(now, posted, self.prices.send_verb);
        let ready = processed + if is_fetched { self.prices.fetch } else { 0 };
        let bytes = self.prices.message_bytes(bytes);
        let (sent, _) = nic.send.serve(now, ready, self.prices.bytes(bytes));
        nic.verbs_sent += 1;
        nic.bytes_sent += bytes;
        let flight = CallFlight {
            task,
            compute_node,
            node,
            request: Some(request),
            outcome: None,
            done_at: None,
            orphan: None,
        };
        let call = self.spare_calls.pop().unwrap_or_else(|| {
            self.calls.push(None);
            self.calls.len() as u32 - 1
        });
        self.calls[call as usize] = Some(flight);
        self.push(sent + self.prices.half_rtt, Happening::CallArrive { call });
        call
    }

    /// A call's request arrives, passes the NIC and waits for a core.
    pub(super) fn call_arrives(&mut self, call: u32) {
        let now = self.clock;
        let Some(CallFlight { node, request: Some(request), .. }) = &self.calls[call as usize] else {
            return;
        };
        let bytes = self.prices.message_bytes(payload(&request.words));
        let node = &mut self.nodes[usize::from(*node)];
        let nic = &mut self.nics[node.nic];
        nic.verbs_served += 1;
        nic.bytes_received += bytes;
        let (_, received) = nic.receive.serve(now, now, self.prices.bytes(bytes));
        let (_, ready) = nic.serves.serve(now, received, self.prices.serve_verb);
        let Some(core) = node.cores.iter_mut().min_by_key(|core| core.free_at()) else { return };
        let (_, done) = core.serve(now, ready, self.prices.call);
        self.push(done, Happening::CallRun { call });
    }

    /// A core has finished a call: removes its procedure, which runs next, without the lock.
    pub(super) fn take_request(&mut self, call: u32) -> Option<Request> {
        self.calls[call as usize].as_mut()?.request.take()
    }

    /// A procedure has run: its reply leaves.
    pub(super) fn call_ran(&mut self, call: u32, outcome: CallResult) {
        let now = self.clock;
        let Some(flight) = &mut self.calls[call as usize] else { return };
        let bytes = outcome.as_ref().map_or(0, |words| payload(words));
        flight.outcome = Some(outcome);
        let nic = &mut self.nics[self.nodes[usize::from(flight.node)].nic];
        let is_fetched = bytes > self.prices.inline;
        let bytes = self.prices.message_bytes(bytes);
        let (_, processed) = nic.posts.serve(now, now, self.prices.send_verb);
        let ready = processed + if is_fetched { self.prices.fetch } else { 0 };
        let (left, _) = nic.send.serve(now, ready, self.prices.bytes(bytes));
        nic.bytes_sent += bytes;
        let jitter = self.draw(self.prices.jitter + 1);
        self.push(left + self.prices.half_rtt + jitter, Happening::CallReturn { call });
    }

    /// A call's reply arrives, and lets the task continue.
    pub(super) fn call_returns(&mut self, call: u32) {
        let now = self.clock;
        let Some(flight) = &mut self.calls[call as usize] else { return };
        let bytes = flight.outcome.iter().flatten().map(|words| payload(words)).sum();
        let bytes = self.prices.message_bytes(bytes);
        let nic = &mut self.nics[flight.compute_node as usize];
        nic.bytes_received += bytes;
        let (_, received) = nic.receive.serve(now, now, self.prices.bytes(bytes));
        flight.done_at = Some(received);
        let task = flight.task;
        if let Some(orphans) = flight.orphan.take() {
            orphans.fetch_sub(1, Ordering::Relaxed);
            self.retire_call(call);
        } else {
            self.push(received, Happening::Run { task, cost: Cost::Poll });
        }
    }

    /// Takes the outcome of a call, if the running task can see it.
    pub(super) fn take_call(&mut self, call: u32) -> Option<CallResult> {
        let now = self.now();
        let flight = self.calls[call as usize].as_ref()?;
        if flight.done_at.is_none_or(|done_at| done_at > now) {
            return None;
        }
        self.retire_call(call)?.outcome
    }

    fn retire_call(&mut self, call: u32) -> Option<CallFlight> {
        let flight = self.calls[call as usize].take()?;
        self.spare_calls.push(call);
        Some(flight)
    }

    /// The future that waited for a call was dropped: the procedure runs nevertheless.
    pub(super) fn orphan_call(&mut self, call: u32, orphans: &Arc<AtomicUsize>) {
        let Some(flight) = &mut self.calls[call as usize] else { return };
        if flight.done_at.is_some() {
            self.retire_call(call);
        } else {
            orphans.fetch_add(1, Ordering::Relaxed);
            flight.orphan = Some(Arc::clone(orphans));
        }
    }

    /// Returns how long the cores of each memory node were busy on average, and its NIC's number.
    pub(super) fn busy_cores(&self) -> impl Iterator<Item = (usize, Ps)> {
        self.nodes.iter().map(|node| {
            let busy: Ps = node.cores.iter().map(|core| core.busy).sum();
            (node.nic, busy / node.cores.len().max(1) as u64)
        })
    }
}
