//! Operations on many keys at a time: several clients of one session, each with an operation under
//! way.
//!
//! A round trip to a memory node takes far longer than the work on it, so the operations overlap.
//! In memory of this machine they follow one another. Operations on the same key keep their order:
//! one client does them all.

use crate::Error;
use darter_fabric::{Counters, Endpoint, Fabric};
use darter_index::{Condition, OrderedIndex, PutOutcome};
use darter_pool::{Client, Pool};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Operations under way at most.
const LANES: usize = 16;
/// Keys that a removal of a range collects at a time.
pub(crate) const KEYS: usize = 512;

/// A session's clients beyond its first, opened as they are needed and kept.
pub(crate) struct Lanes<F: Fabric>(Vec<Client<F>>);

impl<F: Fabric> Default for Lanes<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F: Fabric> Lanes<F> {
    /// Returns the clients for so many operations, the session's own among them.
    pub(crate) fn clients<'c>(
        &'c mut self,
        pool: &Pool<F>,
        own: &'c mut Client<F>,
        operations: usize,
    ) -> Result<Vec<&'c mut Client<F>>, Error> {
        let wanted = operations.min(LANES).saturating_sub(1);
        while self.0.len() < wanted {
            self.0.push(pool.client()?);
        }
        Ok(std::iter::once(own).chain(self.0.iter_mut().take(wanted)).collect())
    }

    /// What the clients' operations have cost.
    pub(crate) fn counters(&self) -> Counters {
        self.0.iter().filter_map(|client| client.endpoint().counters().copied()).sum()
    }
}

/// An operation on one of many keys.
pub(crate) trait KeyOperation<F: Fabric>: Sync {
    /// What an operation returns.
    type Output: Send;

    /// Operates on the `i`th key.
    fn operate(
        &self,
        client: &mut Client<F>,
        i: usize,
    ) -> impl Future<Output = Result<Self::Output, Error>> + Send;
}

/// Puts of pairs.
pub(crate) struct Puts<'p, I, K, V> {
    pub(crate) index: &'p I,
    /// The places of the keys.
    pub(crate) keys: &'p [&'p [u8]],
    pub(crate) pairs: &'p [(K, V)],
}

impl<F, I, K, V> KeyOperation<F> for Puts<'_, I, K, V>
where
    F: Fabric,
    I: OrderedIndex<F>,
    K: Sync,
    V: AsRef<[u8]> + Sync,
{
    type Output = PutOutcome;

    async fn operate(&self, client: &mut Client<F>, i: usize) -> Result<PutOutcome, Error> {
        let (_, value) = &self.pairs[i];
        Ok(self.index.put(client, self.keys[i], value.as_ref(), Condition::Always).await?)
    }
}

/// Removals of keys.
pub(crate) struct Deletes<'k, I> {
    pub(crate) index: &'k I,
    pub(crate) keys: &'k [&'k [u8]],
}

impl<F: Fabric, I: OrderedIndex<F>> KeyOperation<F> for Deletes<'_, I> {
    type Output = bool;

    async fn operate(&self, client: &mut Client<F>, i: usize) -> Result<bool, Error> {
        Ok(self.index.delete(client, self.keys[i]).await?)
    }
}

/// One client's share of the operations.
type Lane<'l, R> = Pin<Box<dyn Future<Output = Result<Vec<(usize, R)>, Error>> + Send + 'l>>;

/// Runs an operation on each key and returns their results in the order of the keys. All of them
/// are over when it returns, even if one of them failed.
pub(crate) async fn run<F: Fabric, O: KeyOperation<F>>(
    clients: Vec<&mut Client<F>>,
    keys: &[&[u8]],
    operation: &O,
) -> Result<Vec<O::Output>, Error> {
    let mut lanes: Vec<Vec<usize>> = vec![Vec::new(); clients.len()];
    let mut lane_of = HashMap::with_capacity(keys.len());
    for (i, key) in keys.iter().enumerate() {
        let lane = *lane_of.entry(*key).or_insert(i % clients.len());
        lanes[lane].push(i);
    }
    let mut running: Vec<Lane<'_, O::Output>> = Vec::with_capacity(lanes.len());
    for (client, lane) in clients.into_iter().zip(lanes) {
        running.push(Box::pin(async move {
            let mut done = Vec::with_capacity(lane.len());
            for i in lane {
                done.push((i, operation.operate(client, i).await?));
            }
            Ok(done)
        }));
    }
    let mut results = Vec::with_capacity(keys.len());
    let mut failure = None;
    poll_fn(|context| {
        running.retain_mut(|lane| match lane.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(done)) => {
                results.extend(done);
                false
            }
            Poll::Ready(Err(error)) => {
                failure.get_or_insert(error);
                false
            }
        });
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    if let Some(error) = failure {
        return Err(error);
    }
    results.sort_unstable_by_key(|(i, _)| *i);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
