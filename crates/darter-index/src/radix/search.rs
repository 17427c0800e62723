//! Searches as machines without a fabric, and the round trips that drive them.
//!
//! A [`Search`] adds the verbs that it needs next to a batch and takes what they brought. So a get
//! drives one, and a multi-get drives many with the same round trips.

use crate::Result;
use darter_fabric::{Batch, Fabric, Verb, turns};
use darter_pool::Pinned;

/// A search for one key. `C` is what its index knows: its root words, its caches.
pub trait Search<C: ?Sized> {
    /// How it ends.
    type End;

    /// Adds the verbs of the next round trip.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    fn post(&mut self, context: &C, batch: &mut Batch) -> Result<()>;

    /// Takes what the round trip brought. Returns how the search ended, if it did.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`](crate::IndexError::Corrupt), or what the index says of a value that was lost.
    fn absorb(&mut self, context: &C, done: &Batch) -> Result<Option<Self::End>>;
}

/// Runs a search to its end. Returns the batch of its last round trip too, with the words that it
/// ended at.
///
/// # Errors
/// Those of the search and of the fabric.
#[inline]
pub async fn run<F, C, S>(client: &mut Pinned<'_, F>, context: &C, search: &mut S) -> Result<(S::End, Batch)>
where
    F: Fabric,
    C: Sync + ?Sized,
    S: Search<C, End: Send> + Send,
{
    loop {
        let mut batch = client.batch();
        search.post(context, &mut batch)?;
        let done = client.submit(batch).await?;
        match search.absorb(context, &done)? {
            Some(end) => return Ok((end, done)),
            None => client.recycle(done),
        }
    }
}

/// Does one round trip of several searches. Those that end leave the list: `ended` gets the number
/// and the end of each, and the batch with the words that it ended at.
///
/// # Errors
/// Those of the searches, of `ended`, and of the fabric; then the list is of no further use.
pub async fn step<F, C, S>(
    client: &mut Pinned<'_, F>,
    context: &C,
    searches: &mut Vec<(usize, S)>,
    mut ended: impl FnMut(usize, &S, S::End, &Batch) -> Result<()> + Send,
) -> Result<()>
where
    F: Fabric,
    C: Sync + ?Sized,
    S: Search<C, End: Send> + Send,
{
    let mut batch = client.batch();
    for (_, search) in searches.iter_mut() {
        search.post(context, &mut batch)?;
    }
    let done = client.submit(batch).await?;
    // What a search has ended at is computed over and copied once more.
    let words: usize = done.verbs().iter().map(Verb::reply_words).sum();
    let bytes = words * 8 / searches.len().max(1);
    for (number, mut search) in std::mem::take(searches) {
        match search.absorb(context, &done)? {
            Some(end) => ended(number, &search, end, &done)?,
            None => searches.push((number, search)),
        }
        turns::worked(bytes).await;
    }
    client.recycle(done);
    Ok(())
}

/// Runs several searches to their ends side by side, in the round trips of the longest.
///
/// # Errors
/// As [`step`].
pub async fn run_all<F, C, S>(
    client: &mut Pinned<'_, F>,
    context: &C,
    searches: impl Iterator<Item = S> + Send,
    mut ended: impl FnMut(usize, S::End, &Batch) -> Result<()> + Send,
) -> Result<()>
where
    F: Fabric,
    C: Sync + ?Sized,
    S: Search<C, End: Send> + Send,
{
    let mut searches: Vec<(usize, S)> = searches.enumerate().collect();
    while !searches.is_empty() {
        step(client, context, &mut searches, |number, _, end, done| ended(number, end, done)).await?;
    }
    Ok(())
}
