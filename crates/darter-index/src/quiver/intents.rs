//! Intents of transactions as descents find them, and their transactions' states.

use super::outcome::{Lookup, PageSearchEnd};
use super::situations;
use crate::Result;
use crate::checker::note;
use crate::radix::intent::{Intent, State, Status};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Client;

/// The intent in a key's place.
pub(super) fn intent_in(spot: &Lookup) -> Result<Option<Intent<'_>>> {
    match spot {
        Lookup::Record { value: Some(image), .. } | Lookup::Delta { value: image, .. } => Intent::of(image),
        Lookup::Record { value: None, .. } | Lookup::Absent { .. } => Ok(None),
    }
}

/// The intent at the end of a descent.
pub(super) fn intent_at(end: &PageSearchEnd) -> Result<Option<Intent<'_>>> {
    match end {
        PageSearchEnd::Page(found) => intent_in(&found.spot),
        PageSearchEnd::Value(Some(image)) => Intent::of(image),
        _ => Ok(None),
    }
}

/// Reads the outcomes of the intents at the ends of some descents, in one round trip. Returns each
/// descent's number with the state of the transaction and the value that the key has.
///
/// # Errors
/// Those of [`states_of`].
pub(super) async fn outcomes<F: Fabric>(
    client: &mut Client<F>,
    ends: &[(usize, PageSearchEnd)],
) -> Result<Vec<(usize, State, Option<Vec<u8>>)>> {
    let mut intents = Vec::with_capacity(ends.len());
    for (number, end) in ends {
        intents.extend(intent_at(end)?.map(|intent| (*number, intent)));
    }
    let at: Vec<_> = intents.iter().map(|(_, intent)| intent.status).collect();
    let states = states_of(client, &at).await?;
    let outcome = |((number, intent), state): ((usize, Intent<'_>), State)| {
        (number, state, intent.value(state).map(<[u8]>::to_vec))
    };
    Ok(intents.into_iter().zip(states).map(outcome).collect())
}

/// Reads the states of some transactions by their status words, in one round trip.
///
/// # Errors
/// Those of the fabric, and [`IndexError::Corrupt`].
pub(super) async fn states_of<F: Fabric>(client: &mut Client<F>, at: &[GlobalAddr]) -> Result<Vec<State>> {
    let mut batch = client.batch();
    let reads: Vec<_> = at.iter().map(|&at| (at, batch.read(at, 1))).collect();
    let done = client.submit(batch).await?;
    let state = |(at, read)| Ok(Status::parse(at, done.words(read)[0])?.state);
    let states = reads.into_iter().map(state).collect();
    client.recycle(done);
    note(situations::INTENT_READ);
    states
}
