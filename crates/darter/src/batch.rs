//! Operations on many keys at a time: several clients of one session, each of which executes an
//! operation.
//!
//! A round trip to a memory node takes far longer than the work on it, so the operations overlap.
//! In memory of this machine they are executed one after another. Operations on the same key keep
//! their order, because the same client executes all of them.

use crate::Error;
use crate::parts::{StoreClient, StoreIndex, StorePool};
use darter_fabric::{Counters, Endpoint};
use darter_index::{Condition, OrderedIndex, PutOutcome};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Maximum number of operations in progress.
const LANES: usize = 16;
/// Number of keys that a removal of a range collects at a time.
pub(crate) const KEYS: usize = 512;

/// A session's clients beyond its first, opened when needed and kept.
#[derive(Default)]
pub(crate) struct Lanes(Vec<StoreClient>);

impl Lanes {
    /// Returns the clients for this number of operations, including the session's own.
    pub(crate) fn clients<'c>(
        &'c mut self,
        pool: &StorePool,
        own: &'c mut StoreClient,
        operations: usize,
    ) -> Result<Vec<&'c mut StoreClient>, Error> {
        let wanted = operations.min(LANES).saturating_sub(1);
        while self.0.len() < wanted {
            self.0.push(pool.client()?);
        }
        Ok(std::iter::once(own).chain(self.0.iter_mut().take(wanted)).collect())
    }

    /// Returns the costs of the clients' operations.
    pub(crate) fn counters(&self) -> Counters {
        self.0.iter().filter_map(|client| client.endpoint().counters().copied()).sum()
    }
}

/// An operation on one of many keys.
pub(crate) trait KeyOperation: Sync {
    /// What an operation returns.
    type Output: Send;

    /// Executes the operation on the `i`th key.
    fn operate(
        &self,
        client: &mut StoreClient,
        i: usize,
    ) -> impl Future<Output = Result<Self::Output, Error>> + Send;
}

/// Puts of pairs.
pub(crate) struct Puts<'p, K, V> {
    pub(crate) index: &'p StoreIndex,
    /// The places of the keys.
    pub(crate) keys: &'p [&'p [u8]],
    pub(crate) pairs: &'p [(K, V)],
}

impl<K, V> KeyOperation for Puts<'_, K, V>
where
    K: Sync,
    V: AsRef<[u8]> + Sync,
{
    type Output = PutOutcome;

    async fn operate(&self, client: &mut StoreClient, i: usize) -> Result<PutOutcome, Error> {
        let (_, value) = &self.pairs[i];
        Ok(self.index.put(client, self.keys[i], value.as_ref(), Condition::Always).await?)
    }
}

/// Removals of keys.
pub(crate) struct Deletes<'k> {
    pub(crate) index: &'k StoreIndex,
    pub(crate) keys: &'k [&'k [u8]],
}

impl KeyOperation for Deletes<'_> {
    type Output = bool;

    async fn operate(&self, client: &mut StoreClient, i: usize) -> Result<bool, Error> {
        Ok(self.index.delete(client, self.keys[i]).await?)
    }
}

/// One client's share of the operations. Returns the results, and the error that ended them.
type Lane<'l, R> = Pin<Box<dyn Future<Output = (Vec<(usize, R)>, Option<Error>)> + Send + 'l>>;

/// Runs an operation on each key that has no result in `done` yet, and stores the results there, in
/// the order of the keys. All of them have ended when it returns, even if one of them failed.
///
/// # Errors
/// Fails if an operation fails. The error is preferably one after which the operation may have
/// taken effect.
pub(crate) async fn run<O: KeyOperation>(
    clients: Vec<&mut StoreClient>,
    keys: &[&[u8]],
    operation: &O,
    done: &mut Vec<Option<O::Output>>,
) -> Result<(), Error> {
    done.resize_with(keys.len(), || None);
    let mut lanes: Vec<Vec<usize>> = vec![Vec::new(); clients.len()];
    let mut lane_of = HashMap::with_capacity(keys.len());
    for (i, key) in keys.iter().enumerate().filter(|(i, _)| done[*i].is_none()) {
        let lane = *lane_of.entry(*key).or_insert(i % clients.len());
        lanes[lane].push(i);
    }
    let mut running: Vec<Lane<'_, O::Output>> = Vec::with_capacity(lanes.len());
    for (client, lane) in clients.into_iter().zip(lanes) {
        running.push(Box::pin(async move {
            let mut done = Vec::with_capacity(lane.len());
            for i in lane {
                match operation.operate(client, i).await {
                    Ok(result) => done.push((i, result)),
                    Err(error) => return (done, Some(error)),
                }
            }
            (done, None)
        }));
    }
    let mut failure: Option<Error> = None;
    poll_fn(|context| {
        running.retain_mut(|lane| {
            let Poll::Ready((results, error)) = lane.as_mut().poll(context) else { return true };
            for (i, result) in results {
                done[i] = Some(result);
            }
            let is_worse =
                |error: &Error| failure.as_ref().is_none_or(|worst| worst.is_unsent() && !error.is_unsent());
            if let Some(error) = error.filter(is_worse) {
                failure = Some(error);
            }
            false
        });
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::{KeyOperation, run};
    use crate::engine::Engine;
    use crate::parts::StoreClient;
    use crate::{Error, Store, block_on};
    use darter_fabric::FabricError;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts the calls for each key; the calls for some keys fail.
    struct Failing {
        calls: Vec<AtomicUsize>,
        fails: fn(usize) -> Option<FabricError>,
    }

    impl KeyOperation for Failing {
        type Output = usize;

        async fn operate(&self, _: &mut StoreClient, i: usize) -> Result<usize, Error> {
            self.calls[i].fetch_add(1, Ordering::Relaxed);
            (self.fails)(i).map_or(Ok(i), |error| Err(error.into()))
        }
    }

    #[test]
    fn keys_that_are_done_are_not_done_again_after_another_has_failed() {
        let store = Store::open("mem:16M").unwrap();
        let names: Vec<_> = (0..40_u8).map(|name| [name]).collect();
        let keys: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
        let mut operation = Failing {
            calls: keys.iter().map(|_| AtomicUsize::new(0)).collect(),
            fails: |i| (i == 5).then_some(FabricError::Forgotten { node: 0 }),
        };
        let mut done = Vec::new();
        let mut run = |operation: &Failing| {
            let mut clients: Vec<_> = (0..4).map(|_| store.pool().client().unwrap()).collect();
            block_on(run(clients.iter_mut().collect(), &keys, operation, &mut done))
        };
        assert!(run(&operation).unwrap_err().is_unsent());
        operation.fails = |_| None;
        run(&operation).unwrap();
        assert!(done.into_iter().flatten().eq(0..40));
        let calls = operation.calls.iter().map(|calls| calls.load(Ordering::Relaxed));
        assert!(calls.enumerate().all(|(i, calls)| calls == if i == 5 { 2 } else { 1 }));
    }

    #[test]
    fn the_error_is_that_of_a_key_that_may_have_changed() {
        let store = Store::open("mem:16M").unwrap();
        let keys: Vec<&[u8]> = vec![b"a", b"b", b"c"];
        let operation = Failing {
            calls: keys.iter().map(|_| AtomicUsize::new(0)).collect(),
            fails: |i| Some(if i == 1 { FabricError::Fenced } else { FabricError::Forgotten { node: 0 } }),
        };
        let mut clients: Vec<_> = (0..3).map(|_| store.pool().client().unwrap()).collect();
        let error = block_on(run(clients.iter_mut().collect(), &keys, &operation, &mut Vec::new()));
        assert!(!error.unwrap_err().is_unsent());
    }
}
