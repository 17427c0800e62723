//! Makes every round trip take its time: pending polls before the verbs are posted and after they have landed.
//!
//! Each pending poll is a place where a caller can drop the future. Dropped before, no verb lands; dropped after, all
//! have landed and the caller never learns it.

use super::{forward_endpoint, forward_fabric};
use crate::{Batch, Counters, Endpoint, Fabric, FabricError, OpKind};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// How much to delay each round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Times the future is pending before its verbs are posted.
    pub pending_before: u32,
    /// Times the future is pending after its verbs have landed.
    pub pending_after: u32,
    /// Time the thread sleeps before its verbs are posted.
    pub sleep: Duration,
}

/// A fabric whose round trips are delayed.
#[derive(Clone, Debug)]
pub struct Delaying<F> {
    inner: F,
    delay: Delay,
}

impl<F> Delaying<F> {
    /// Wraps a fabric.
    pub fn new(inner: F, delay: Delay) -> Self {
        Self { inner, delay }
    }

    /// The fabric inside.
    pub fn inner(&self) -> &F {
        &self.inner
    }
}

impl<F: Fabric> Fabric for Delaying<F> {
    type Endpoint = DelayingEndpoint<F::Endpoint>;

    fn endpoint(&self) -> Result<Self::Endpoint, FabricError> {
        Ok(DelayingEndpoint { inner: self.inner.endpoint()?, delay: self.delay })
    }

    forward_fabric!();
}

/// An endpoint whose round trips are delayed.
#[derive(Debug)]
pub struct DelayingEndpoint<E> {
    inner: E,
    delay: Delay,
}

/// Is pending so many times, asking to be polled again each time.
async fn pending(mut times: u32) {
    poll_fn(|context| {
        if times == 0 {
            return Poll::Ready(());
        }
        times -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<E: Endpoint> Endpoint for DelayingEndpoint<E> {
    forward_endpoint!();

    async fn submit(&mut self, batch: Batch) -> Result<Batch, FabricError> {
        pending(self.delay.pending_before).await;
        if !self.delay.sleep.is_zero() {
            std::thread::sleep(self.delay.sleep);
        }
        let batch = self.inner.submit(batch).await?;
        pending(self.delay.pending_after).await;
        Ok(batch)
    }

    #[inline]
    fn begin(&mut self, kind: OpKind) {
        self.inner.begin(kind);
    }

    #[inline]
    fn retried(&mut self) {
        self.inner.retried();
    }

    #[inline]
    fn counters(&self) -> Option<&Counters> {
        self.inner.counters()
    }
}
