//! One thread's or task's connection to the memory nodes.

use crate::{
    Batch, CallFault, ClientObserver, Counters, FabricError, GlobalAddr, OpKind, RemoteProcedures,
    lease_clock,
};
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// What an endpoint's dropped futures have posted.
pub trait Orphans: Send + Sync + std::fmt::Debug {
    /// [`Endpoint::in_flight`].
    fn in_flight(&self) -> usize;
}

/// One thread's or task's connection to the memory nodes.
pub trait Endpoint: Send + 'static {
    /// Returns an empty batch, with buffers from earlier ones where possible.
    fn batch(&mut self) -> Batch;

    /// Gives a batch's buffers back for reuse.
    fn recycle(&mut self, batch: Batch);

    /// Posts the batch and waits for all of it: one round trip.
    fn submit(&mut self, batch: Batch) -> impl Future<Output = Result<Batch, FabricError>> + Send;

    /// Returns the procedures of memory nodes, if the provider can call any.
    #[inline]
    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        None
    }

    /// Calls a procedure of memory node `node` with these words, and waits for its answer: one round
    /// trip, which is counted apart from those of batches.
    ///
    /// Verbs of others take effect while the procedure runs, before and after any that it posts. If
    /// the future is dropped, a procedure that has been called runs all the same.
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

    /// Prefetches what a READ or WRITE of so many words is going to touch, if the memory is this
    /// machine's, so that its cache misses overlap with other work. Posts no verb; does nothing
    /// elsewhere.
    #[inline]
    fn prefetch(&self, _addr: GlobalAddr, _words: usize) {}

    /// Returns a guess at what a READ of a word would return, if that costs no verb. Only for
    /// [`Endpoint::prefetch`]: it is ordered with no verb.
    #[inline]
    fn glance(&self, _addr: GlobalAddr) -> Option<u64> {
        None
    }

    /// Batches posted by futures that were dropped and whose verbs have not all completed.
    #[inline]
    fn in_flight(&self) -> usize {
        self.orphans().map_or(0, |orphans| orphans.in_flight())
    }

    /// Returns a handle to the same count, valid also while this endpoint is idle or dropped;
    /// `None` if there are never any.
    #[inline]
    fn orphans(&self) -> Option<Arc<dyn Orphans>> {
        None
    }

    /// Returns milliseconds by this process's clock of leases, since its own beginning
    /// ([`crate::lease_clock`]). It never goes back, and it is not the wall clock. Two processes have
    /// different beginnings and rates: compare a reading with readings of the same process only, and
    /// store none in the pool.
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

    /// Begins an operation of this kind; the following verbs belong to it. Counting decorators count
    /// per kind, and an endpoint over TCP reports that nothing was sent only if nothing of the whole
    /// operation was.
    #[inline]
    fn begin(&mut self, _kind: OpKind) {}

    /// Notifies counting decorators that the operation lost a race and goes on.
    #[inline]
    fn retried(&mut self) {}

    /// Returns what this endpoint's operations have cost so far, where a decorator counts.
    #[inline]
    fn counters(&self) -> Option<&Counters> {
        None
    }
}
