//! Counts the cost of every operation. The counters are in the endpoint, so counting accesses no
//! shared memory.

use super::{forward_endpoint, forward_fabric, forward_membership};
use crate::local::Memory;
use crate::{Batch, Calling, Counters, Endpoint, Fabric, FabricError, OpKind, RemoteProcedures};
use std::future::Future;

/// A fabric whose endpoints count. [`Endpoint::counters`] returns the counts.
#[derive(Clone, Debug)]
pub struct Counting<F> {
    inner: F,
}

impl<F> Counting<F> {
    /// Wraps a fabric.
    pub fn new(inner: F) -> Self {
        Self { inner }
    }

    /// Returns the wrapped fabric.
    pub fn inner(&self) -> &F {
        &self.inner
    }
}

forward_membership!(Counting);

impl<F: Fabric> Fabric for Counting<F> {
    type Endpoint = CountingEndpoint<F::Endpoint>;

    fn endpoint(&self) -> Result<Self::Endpoint, FabricError> {
        let inner = self.inner.endpoint()?;
        Ok(CountingEndpoint { inner, kind: OpKind::Maintain, counters: Counters::default() })
    }

    forward_fabric!();
}

/// An endpoint that counts. Verbs posted before the first [`Endpoint::begin`] count as maintenance.
#[derive(Debug)]
pub struct CountingEndpoint<E> {
    inner: E,
    kind: OpKind,
    counters: Counters,
}

impl<E: Endpoint> Endpoint for CountingEndpoint<E> {
    forward_endpoint!();

    #[inline]
    fn memory(&self) -> Option<Memory<'_>> {
        self.inner.memory()
    }

    #[inline]
    fn submit(&mut self, batch: Batch) -> impl Future<Output = Result<Batch, FabricError>> + Send {
        let counters = &mut self.counters[self.kind];
        counters.round_trips += 1;
        counters.verbs += batch.len() as u64;
        for verb in batch.verbs() {
            counters.read_bytes += verb.read_bytes();
            counters.write_bytes += verb.write_bytes();
        }
        self.inner.submit(batch)
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        Some(self)
    }

    #[inline]
    fn begin(&mut self, kind: OpKind) {
        self.kind = kind;
        self.counters[kind].ops += 1;
        self.inner.begin(kind);
    }

    #[inline]
    fn retried(&mut self) {
        self.counters[self.kind].retries += 1;
        self.inner.retried();
    }

    #[inline]
    fn counters(&self) -> Option<&Counters> {
        Some(&self.counters)
    }
}

impl<E: Endpoint> RemoteProcedures for CountingEndpoint<E> {
    fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Calling<'_> {
        Box::pin(async move {
            let counters = &mut self.counters[self.kind];
            counters.round_trips += 1;
            counters.calls += 1;
            counters.call_bytes += words.len() as u64 * 8;
            let answer = self.inner.call(node, procedure, words).await?;
            self.counters[self.kind].answer_bytes += answer.len() as u64 * 8;
            Ok(answer)
        })
    }
}
