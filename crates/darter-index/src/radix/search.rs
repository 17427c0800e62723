//! Searches as state machines without a fabric, and the round trips that drive them.
//!
//! A [`Search`] adds its next verbs to a batch and receives their results. So a get drives one
//! search, and a multi-get drives many in the same round trips.

use crate::Result;
use darter_fabric::{Batch, Fabric, Verb, turns};
use darter_pool::Pinned;

/// Bytes that the searches of one round trip read together, except that one search may read more.
const STEP_BYTES: usize = 4 << 20;
/// Bytes of values after which a multi-get returns the values read so far.
pub const VALUES_BYTES: usize = 1 << 20;

/// A search for one key. `C` is the index's context: its root words and caches.
pub trait Search<C: ?Sized> {
    /// The result of the search.
    type End;

    /// Adds the verbs of the next round trip.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    fn post(&mut self, context: &C, batch: &mut Batch) -> Result<()>;

    /// Receives the results of the round trip. Returns the result of the search if it has ended.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`](crate::IndexError::Corrupt), or the index's error for a value that
    /// was lost.
    fn absorb(&mut self, context: &C, done: &Batch) -> Result<Option<Self::End>>;
}

/// Runs a search to its end. Also returns the batch of its last round trip, with the words at which
/// the search ended.
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

/// Does one round trip for the first searches of a list, up to 4 MiB. Searches that end are removed
/// from the list: `ended` gets the number and the result of each, and the batch with the words at
/// which it ended. The others stay in their order.
///
/// # Errors
/// Those of the searches, of `ended`, and of the fabric. The list is then of no further use.
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
    let (mut posted, mut words) = (0, 0);
    for (_, search) in searches.iter_mut() {
        let verbs = batch.len();
        search.post(context, &mut batch)?;
        posted += 1;
        words += batch.verbs()[verbs..].iter().map(Verb::reply_words).sum::<usize>();
        if words * 8 >= STEP_BYTES {
            break;
        }
    }
    let waiting = searches.split_off(posted);
    let done = client.submit(batch).await?;
    // The words at which a search ended are processed and copied once more.
    let bytes = words * 8 / posted.max(1);
    for (number, mut search) in std::mem::take(searches) {
        match search.absorb(context, &done)? {
            Some(end) => ended(number, &search, end, &done)?,
            None => searches.push((number, search)),
        }
        turns::worked(bytes).await;
    }
    searches.extend(waiting);
    client.recycle(done);
    Ok(())
}

/// Runs several searches to their ends at the same time, in the round trips of the longest if they
/// read little. `ended` gets the number and the result of each, and returns its value. Returns the
/// values of the first searches: of at least one if there is one, and of all if they have less than
/// 1 MiB together.
///
/// # Errors
/// As [`step`].
pub async fn run_all<F, C, S>(
    client: &mut Pinned<'_, F>,
    context: &C,
    searches: impl Iterator<Item = S> + Send,
    mut ended: impl FnMut(usize, S::End, &Batch) -> Result<Option<Vec<u8>>> + Send,
) -> Result<Vec<Option<Vec<u8>>>>
where
    F: Fabric,
    C: Sync + ?Sized,
    S: Search<C, End: Send> + Send,
{
    let mut searches: Vec<(usize, S)> = searches.enumerate().collect();
    let mut values = vec![None; searches.len()];
    let (mut bytes, mut largest) = (0, 1);
    while !searches.is_empty() {
        // Searches end in any order, and values after an unfinished search are read in vain, so a
        // few more searches run to their ends.
        let more = (VALUES_BYTES / largest).max(1);
        if bytes >= VALUES_BYTES && searches.len() > more {
            values.truncate(searches[more].0);
            searches.truncate(more);
        }
        let ended = |number, _: &S, end, done: &Batch| {
            let value = ended(number, end, done)?;
            let length = value.as_ref().map_or(0, Vec::len);
            (bytes, largest) = (bytes + length, largest.max(length));
            values[number] = value;
            Ok(())
        };
        step(client, context, &mut searches, ended).await?;
    }
    Ok(values)
}
