//! Delays round trips: pending polls before the verbs are posted and after they have taken effect,
//! and random delays of the calling thread before a batch, within it and after it.
//!
//! Each pending poll is a place where a caller can drop the future. If it is dropped before, no
//! verb takes effect; if it is dropped after, all have taken effect without the caller's knowledge.
//! During a random delay other threads and processes continue, so that operations overlap and verbs
//! take effect in orders that would otherwise hardly ever occur.

use super::jitter::{Jitter, JitterTally, Moment, Source};
use super::{forward_endpoint, forward_fabric, forward_membership, forward_statistics};
use crate::local::Memory;
use crate::{Batch, Calling, Endpoint, Fabric, FabricError, RemoteProcedures};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// The delays of each round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delay {
    /// Number of pending polls before the verbs are posted.
    pub pending_before: u32,
    /// Number of pending polls after the verbs have taken effect.
    pub pending_after: u32,
    /// Time that the thread sleeps before its verbs are posted.
    pub sleep: Duration,
    /// Additional random sleep of the thread.
    pub jitter: Jitter,
}

impl Delay {
    /// Performs the delays before a post.
    async fn before(self) {
        pending(self.pending_before).await;
        if !self.sleep.is_zero() {
            std::thread::sleep(self.sleep);
        }
    }
}

/// A fabric whose round trips are delayed.
#[derive(Clone, Debug)]
pub struct Delaying<F> {
    inner: F,
    delay: Delay,
    tally: JitterTally,
}

impl<F> Delaying<F> {
    /// Wraps a fabric.
    pub fn new(inner: F, delay: Delay) -> Self {
        Self { inner, delay, tally: JitterTally::default() }
    }

    /// Returns the random delays so far, of all endpoints of this fabric and its clones.
    pub fn tally(&self) -> &JitterTally {
        &self.tally
    }

    /// Returns the wrapped fabric.
    pub fn inner(&self) -> &F {
        &self.inner
    }
}

forward_membership!(Delaying);

impl<F: Fabric> Fabric for Delaying<F> {
    type Endpoint = DelayingEndpoint<F::Endpoint>;

    fn endpoint(&self) -> Result<Self::Endpoint, FabricError> {
        let jitter = Source::new(self.delay.jitter, self.tally.clone());
        Ok(DelayingEndpoint { inner: self.inner.endpoint()?, delay: self.delay, jitter })
    }

    forward_fabric!();
}

/// An endpoint whose round trips are delayed.
#[derive(Debug)]
pub struct DelayingEndpoint<E> {
    inner: E,
    delay: Delay,
    jitter: Source,
}

/// Returns `Pending` this number of times, waking itself each time.
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
    forward_statistics!();

    #[inline]
    fn memory(&self) -> Option<Memory<'_>> {
        if self.delay == Delay::default() { self.inner.memory() } else { None }
    }

    async fn submit(&mut self, batch: Batch) -> Result<Batch, FabricError> {
        self.delay.before().await;
        let outcome = match self.jitter.draw() {
            None => self.inner.submit(batch).await,
            Some((Moment::Before, time)) => {
                self.jitter.delay(time);
                self.inner.submit(batch).await
            }
            Some((Moment::Within, time)) => self.jitter.submit_in_parts(&mut self.inner, batch, time).await,
            Some((Moment::After, time)) => {
                let outcome = self.inner.submit(batch).await;
                self.jitter.delay(time);
                outcome
            }
        };
        let batch = outcome?;
        pending(self.delay.pending_after).await;
        Ok(batch)
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        Some(self)
    }
}

impl<E: Endpoint> RemoteProcedures for DelayingEndpoint<E> {
    fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Calling<'_> {
        Box::pin(async move {
            self.delay.before().await;
            let delay = self.jitter.draw();
            // A request is sent whole: no delay within it is possible.
            if let Some((Moment::Before | Moment::Within, time)) = delay {
                self.jitter.delay(time);
            }
            let outcome = self.inner.call(node, procedure, words).await;
            if let Some((Moment::After, time)) = delay {
                self.jitter.delay(time);
            }
            let answer = outcome?;
            pending(self.delay.pending_after).await;
            Ok(answer)
        })
    }
}
