//! Records the latest verbs, for assertions in tests and for printing.

use super::{forward_endpoint, forward_fabric, forward_membership};
use crate::{
    Batch, Calling, Counters, Endpoint, Fabric, FabricError, GlobalAddr, OpKind, RemoteProcedures, VerbKind,
};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

/// One verb of the record, as it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedVerb {
    /// The endpoint that posted it, counted from 0 in order of opening.
    pub endpoint: u64,
    /// Its batch, counted from 0 over all endpoints in order of posting.
    pub round_trip: u64,
    /// The operation that it belongs to.
    pub op: OpKind,
    /// Its kind.
    pub kind: VerbKind,
    /// Its address.
    pub addr: GlobalAddr,
    /// Words moved.
    pub words: u32,
    /// CAS: expected and desired word. FAA: addend, 0. READ: 0, 0. WRITE: its first word, 0.
    pub operands: [u64; 2],
    /// CAS and FAA: the word found, after completion. READ: the first word read.
    pub found: Option<u64>,
}

impl fmt::Display for TracedVerb {
    /// `#12 ep0 insert CAS mn0+0x1040 0x0 -> 0x7f found 0x0`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} ep{} {} ", self.round_trip, self.endpoint, self.op.name())?;
        match self.kind {
            VerbKind::Read => write!(f, "READ {} {} words", self.addr, self.words)?,
            VerbKind::Write => write!(f, "WRITE {} {} words", self.addr, self.words)?,
            VerbKind::Cas => {
                write!(f, "CAS {} {:#x} -> {:#x}", self.addr, self.operands[0], self.operands[1])?;
            }
            VerbKind::Faa => write!(f, "FAA {} {:#x}", self.addr, self.operands[0])?,
        }
        match (self.kind, self.found) {
            (VerbKind::Cas | VerbKind::Faa, Some(found)) => write!(f, " found {found:#x}"),
            _ => Ok(()),
        }
    }
}

/// The record that all endpoints of a [`Tracing`] fabric share. Clones share it too.
#[derive(Clone, Debug)]
pub struct Trace {
    ring: Arc<Mutex<Ring>>,
}

#[derive(Debug)]
struct Ring {
    verbs: VecDeque<TracedVerb>,
    capacity: usize,
    /// Number of verbs ever recorded; the newest in `verbs` has this number less one.
    recorded: u64,
    round_trips: u64,
    endpoints: u64,
}

impl Trace {
    fn new(capacity: usize) -> Self {
        let ring = Ring { verbs: VecDeque::new(), capacity, recorded: 0, round_trips: 0, endpoints: 0 };
        Self { ring: Arc::new(Mutex::new(ring)) }
    }

    /// Removes and returns the recorded verbs, oldest first.
    pub fn take(&self) -> Vec<TracedVerb> {
        self.with(|ring| ring.verbs.drain(..).collect())
    }

    /// Returns the number of round trips since the fabric was wrapped, including those that the
    /// record has dropped. Calls are included, although they leave no verb in the record.
    pub fn round_trips(&self) -> u64 {
        self.with(|ring| ring.round_trips)
    }

    /// A panic elsewhere leaves the ring consistent, so its poison is ignored.
    fn with<R>(&self, act: impl FnOnce(&mut Ring) -> R) -> R {
        act(&mut self.ring.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Display for Trace {
    /// Writes one verb per line, oldest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs = self.with(|ring| ring.verbs.clone());
        verbs.iter().try_for_each(|verb| writeln!(f, "{verb}"))
    }
}

impl Ring {
    /// Records a batch as posted. Returns the number of its first verb.
    fn post(&mut self, endpoint: u64, op: OpKind, batch: &mut Batch) -> u64 {
        let first = self.recorded;
        let (verbs, data) = batch.parts_mut();
        for verb in verbs {
            let word = |i: usize| data.get(verb.at as usize + i).copied().unwrap_or(0);
            let operands = match verb.kind {
                VerbKind::Read => [0, 0],
                VerbKind::Cas => [word(0), word(1)],
                VerbKind::Faa => [word(0), 0],
                VerbKind::Write => [if verb.words == 0 { 0 } else { word(0) }, 0],
            };
            if self.verbs.len() >= self.capacity {
                self.verbs.pop_front();
            }
            self.verbs.push_back(TracedVerb {
                endpoint,
                round_trip: self.round_trips,
                op,
                kind: verb.kind,
                addr: verb.addr,
                words: verb.words,
                operands,
                found: None,
            });
            self.recorded += 1;
        }
        self.round_trips += 1;
        first
    }

    /// Adds the results of a completed batch to its verbs that are still in the record.
    fn complete(&mut self, first: u64, batch: &mut Batch) {
        let oldest = self.recorded - self.verbs.len() as u64;
        let (verbs, data) = batch.parts_mut();
        for (number, verb) in (first..).zip(verbs) {
            let entry = number.checked_sub(oldest).and_then(|i| self.verbs.get_mut(i as usize));
            if let Some(entry) = entry.filter(|_| verb.kind != VerbKind::Write && verb.words > 0) {
                entry.found = data.get(verb.at as usize).copied();
            }
        }
    }
}

/// A fabric whose verbs are recorded.
#[derive(Clone, Debug)]
pub struct Tracing<F> {
    inner: F,
    trace: Trace,
}

impl<F> Tracing<F> {
    /// Wraps a fabric; the record keeps the latest `capacity` verbs (at least one).
    pub fn new(inner: F, capacity: usize) -> Self {
        Self { inner, trace: Trace::new(capacity.max(1)) }
    }

    /// Returns the record.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the wrapped fabric.
    pub fn inner(&self) -> &F {
        &self.inner
    }
}

forward_membership!(Tracing);

impl<F: Fabric> Fabric for Tracing<F> {
    type Endpoint = TracingEndpoint<F::Endpoint>;

    fn endpoint(&self) -> Result<Self::Endpoint, FabricError> {
        let inner = self.inner.endpoint()?;
        let number = self.trace.with(|ring| {
            ring.endpoints += 1;
            ring.endpoints - 1
        });
        Ok(TracingEndpoint { inner, trace: self.trace.clone(), number, op: OpKind::Maintain })
    }

    forward_fabric!();
}

/// An endpoint whose verbs are recorded. A batch is recorded when it is posted, and gets its
/// results when it completes.
#[derive(Debug)]
pub struct TracingEndpoint<E> {
    inner: E,
    trace: Trace,
    number: u64,
    op: OpKind,
}

impl<E: Endpoint> Endpoint for TracingEndpoint<E> {
    forward_endpoint!();

    async fn submit(&mut self, mut batch: Batch) -> Result<Batch, FabricError> {
        let first = self.trace.with(|ring| ring.post(self.number, self.op, &mut batch));
        let mut batch = self.inner.submit(batch).await?;
        self.trace.with(|ring| ring.complete(first, &mut batch));
        Ok(batch)
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        Some(self)
    }

    fn begin(&mut self, kind: OpKind) {
        self.op = kind;
        self.inner.begin(kind);
    }

    fn retried(&mut self) {
        self.inner.retried();
    }

    fn counters(&self) -> Option<&Counters> {
        self.inner.counters()
    }
}

impl<E: Endpoint> RemoteProcedures for TracingEndpoint<E> {
    fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Calling<'_> {
        self.trace.with(|ring| ring.round_trips += 1);
        Box::pin(self.inner.call(node, procedure, words))
    }
}
