//! The default way to modify a key: read it, then write on condition that its value has not
//! changed.

use super::{Condition, Decide, Decision, OrderedIndex, PutOutcome};
use crate::Result;
use crate::radix::{TURNS_MAX, no_progress};
use darter_fabric::Fabric;
use darter_pool::Client;

/// [`OrderedIndex::modify`] as a get and a conditional put or delete, repeated until the condition
/// holds.
pub(super) async fn by_conditions<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
    key: &[u8],
    decide: &mut Decide<'_>,
) -> Result<Decision> {
    let mut new = Vec::new();
    for _ in 0..TURNS_MAX {
        let old = index.get(client, key).await?;
        let condition = old.as_deref().map_or(Condition::Absent, Condition::Equals);
        new.clear();
        let decision = decide(old.as_deref(), &mut new);
        let is_done = match decision {
            Decision::Keep => true,
            Decision::Put => index.put(client, key, &new, condition).await? != PutOutcome::Refused,
            Decision::Remove => old.is_none() || index.delete_when(client, key, condition).await?,
        };
        if is_done {
            return Ok(decision);
        }
    }
    Err(no_progress(client.pool().root_word(0)))
}
