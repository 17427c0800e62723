//! Single round trips: a batch is filled, posted, read and recycled in one call.
//!
//! Each function costs exactly one round trip, with the verbs in the order in which they are added.
//! Code that reads several results of one batch uses [`submit`], whose result recycles the batch's
//! buffers when it is dropped.

use darter_fabric::{Batch, Endpoint, FabricError, GlobalAddr};
use std::ops::Deref;

/// A batch whose verbs have completed. Dropping it gives its buffers back to the endpoint.
pub struct Completed<'a, E: Endpoint> {
    endpoint: &'a mut E,
    /// Present until this is dropped.
    batch: Option<Batch>,
}

impl<E: Endpoint> Deref for Completed<'_, E> {
    type Target = Batch;

    #[inline]
    fn deref(&self) -> &Batch {
        match &self.batch {
            Some(batch) => batch,
            None => unreachable!("the batch is present until drop"),
        }
    }
}

impl<E: Endpoint> Drop for Completed<'_, E> {
    #[inline]
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            self.endpoint.recycle(batch);
        }
    }
}

/// The result of a CAS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Whether the word was swapped.
    pub swapped: bool,
    /// The word before the CAS.
    pub found: u64,
}

/// Posts a batch and waits for it.
#[inline]
pub(crate) async fn submit<E: Endpoint>(
    endpoint: &mut E,
    batch: Batch,
) -> Result<Completed<'_, E>, FabricError> {
    let batch = endpoint.submit(batch).await?;
    Ok(Completed { endpoint, batch: Some(batch) })
}

/// Posts the verbs that `fill` adds, and ignores their results.
#[inline]
pub(crate) async fn post<E: Endpoint>(
    endpoint: &mut E,
    fill: impl FnOnce(&mut Batch),
) -> Result<(), FabricError> {
    let mut batch = endpoint.batch();
    fill(&mut batch);
    submit(endpoint, batch).await.map(drop)
}

/// Reads `N` words from `addr` by one READ.
#[inline]
pub(crate) async fn read_words<const N: usize, E: Endpoint>(
    endpoint: &mut E,
    addr: GlobalAddr,
) -> Result<[u64; N], FabricError> {
    let mut batch = endpoint.batch();
    let read = batch.read(addr, N);
    let done = submit(endpoint, batch).await?;
    let mut words = [0; N];
    words.copy_from_slice(done.words(read));
    Ok(words)
}

/// Reads the words at these addresses, in this order, by one READ each.
#[inline]
pub(crate) async fn read_each<const N: usize, E: Endpoint>(
    endpoint: &mut E,
    addrs: [GlobalAddr; N],
) -> Result<[u64; N], FabricError> {
    let mut batch = endpoint.batch();
    let reads = addrs.map(|addr| batch.read(addr, 1));
    let done = submit(endpoint, batch).await?;
    Ok(reads.map(|read| done.words(read)[0]))
}

/// Reads `words` words from `addr` by one READ.
#[inline]
pub(crate) async fn read<E: Endpoint>(
    endpoint: &mut E,
    addr: GlobalAddr,
    words: usize,
) -> Result<Vec<u64>, FabricError> {
    let mut batch = endpoint.batch();
    let read = batch.read(addr, words);
    let done = submit(endpoint, batch).await?;
    Ok(done.words(read).to_vec())
}

/// Posts a batch, waits for it, and leaves it empty.
#[inline]
pub(crate) async fn send<E: Endpoint>(endpoint: &mut E, batch: &mut Batch) -> Result<(), FabricError> {
    *batch = endpoint.submit(std::mem::take(batch)).await?;
    batch.clear();
    Ok(())
}

/// Swaps the word at `addr` from `expected` to `desired` by one CAS.
#[inline]
pub(crate) async fn cas<E: Endpoint>(
    endpoint: &mut E,
    addr: GlobalAddr,
    expected: u64,
    desired: u64,
) -> Result<Swap, FabricError> {
    let mut batch = endpoint.batch();
    let id = batch.cas(addr, expected, desired);
    let done = submit(endpoint, batch).await?;
    Ok(Swap { swapped: done.swapped(id), found: done.found(id) })
}
