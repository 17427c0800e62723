//! One thread's or task's connection to the memory nodes.

use crate::local::Memory;
use crate::{
    Batch, CallFault, ClientObserver, Counters, FabricError, GlobalAddr, OpKind, RemoteProcedures,
    lease_clock,
};
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Batches in flight that an endpoint's dropped futures have posted.
pub trait Orphans: Send + Sync + std::fmt::Debug {
    /// Returns the same as [`Endpoint::in_flight`].
    fn in_flight(&self) -> usize;
}

/// One thread's or task's connection to the memory nodes.
pub trait Endpoint: Send + 'static {
    /// Returns an empty batch, which reuses buffers of earlier ones if possible.
    fn batch(&mut self) -> Batch;

    /// Takes back a batch's buffers for reuse.
    fn recycle(&mut self, batch: Batch);

    /// Posts the batch and waits until all of it has completed: one round trip.
    fn submit(&mut self, batch: Batch) -> impl Future<Output = Result<Batch, FabricError>> + Send;

    /// Returns the procedures of memory nodes, if the provider can call any.
    #[inline]
    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        None
    }

    /// Calls a procedure of memory node `node` with these words, and waits for its result: one
    /// round trip, which is counted separately from those of batches.
    ///
    /// Verbs of other clients can take effect while the procedure runs, before and after any that
    /// it posts. If the future is dropped, a procedure that has been called runs anyway.
    ///
    /// # Errors
    /// [`FabricError::Call`] if the call was refused, the procedure failed, or its server ended;
    /// [`FabricError::Unreachable`] if nothing was sent; [`FabricError::Fenced`].
    fn call(
        &mut self,
        node: u8,
        procedure: u64,
        words: Vec<u64>,
    ) -> impl Future<Output = Result<Vec<u64>, FabricError>> + Send {
        async move {
            match self.procedures() {
                Some(procedures) => procedures.call(node, procedure, words).await,
                None => Err(CallFault::Unsupported.of(node, procedure)),
            }
        }
    }

    /// Prefetches the words that a READ or WRITE of `words` words will access, if the memory is in
    /// this machine, so that its cache misses overlap with other work. Posts no verb; does nothing
    /// for remote memory.
    #[inline]
    fn prefetch(&self, _addr: GlobalAddr, _words: usize) {}

    /// Returns a guess at the result of a READ of a word, if that is possible without a verb. Only
    /// for [`Endpoint::prefetch`]: it is not ordered with any verb.
    #[inline]
    fn peek(&self, _addr: GlobalAddr) -> Option<u64> {
        None
    }

    /// Returns the pool's memory, if this process may load its words without verbs. A client then
    /// sees the same as by READs. Loads are not counted, traced, delayed or simulated.
    #[inline]
    fn memory(&self) -> Option<Memory<'_>> {
        None
    }

    /// Returns the number of batches posted by dropped futures whose verbs have not all completed.
    #[inline]
    fn in_flight(&self) -> usize {
        self.orphans().map_or(0, |orphans| orphans.in_flight())
    }

    /// Returns a handle to the same count, which is also valid while this endpoint is idle or
    /// dropped; `None` if the count is always 0.
    #[inline]
    fn orphans(&self) -> Option<Arc<dyn Orphans>> {
        None
    }

    /// Returns the milliseconds of this process's clock of leases, since the clock's start
    /// ([`crate::lease_clock`]). The clock never goes back, and it is not the wall clock. The
    /// clocks of two processes have different starts and rates: compare a reading only with
    /// readings of the same process, and never store one in the pool.
    fn now_ms(&self) -> u64 {
        lease_clock().as_millis() as u64
    }

    /// Lets other tasks run for about a millisecond of that clock.
    fn pause(&mut self) -> impl Future<Output = ()> + Send {
        let mut yielded = false;
        std::future::poll_fn(move |context| {
            if std::mem::replace(&mut yielded, true) {
                std::thread::sleep(Duration::from_millis(1));
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    /// Returns the observer of this client, if the provider is a simulation.
    #[inline]
    fn observer(&mut self) -> Option<&mut dyn ClientObserver> {
        None
    }

    /// Begins an operation of this kind, to which the following verbs belong. Counting decorators
    /// count by kind, and an endpoint over TCP reports that nothing was sent only if nothing of the
    /// whole operation was sent.
    #[inline]
    fn begin(&mut self, _kind: OpKind) {}

    /// Notifies counting decorators that the operation lost a race and continues.
    #[inline]
    fn retried(&mut self) {}

    /// Returns the costs of this endpoint's operations so far, if a decorator counts them.
    #[inline]
    fn counters(&self) -> Option<&Counters> {
        None
    }
}
