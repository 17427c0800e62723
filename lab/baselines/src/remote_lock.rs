//! A lock word in the pool, taken by CAS, whose holder may die: the word is a [`LockToken`]'s, so
//! anyone who finds the lock taken for long can learn whether the holder can still write, and if
//! not take the lock over.
//!
//! Published systems keep a bit there. A client that dies with it leaves the lock taken for ever,
//! and everything behind it. Anyone who takes a lock over ([`Acquired::is_taken_over`]) has to mend
//! what the former holder may have left half done before it goes on; what that is depends on what
//! the lock protects.

use crate::compute_node::yield_now;
use crate::lock_token::{LockToken, LockTokens};
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::Result;
use darter_pool::Pinned;
use std::sync::Arc;

/// Tries, each a round trip, that find the same holder before the holder is looked up.
const SPINS: u32 = 64;

/// A lock word that names this operation.
#[derive(Debug)]
pub(crate) struct Acquired {
    /// The name in it. Released by the client that has unlocked it, otherwise abandoned.
    pub(crate) token: LockToken,
    /// The former holder did not unlock it, and can write no more.
    pub(crate) is_taken_over: bool,
    /// The word that was read beside the lock, if one was.
    pub(crate) beside: Option<u64>,
}

/// One try; `Err(word)` names the holder. `beside` is a word on the same node that is read behind
/// the CAS in the same round trip, so that it is what it is under the lock.
async fn attempt<F: Fabric>(
    client: &mut Pinned<'_, F>,
    (lock, beside): (GlobalAddr, Option<GlobalAddr>),
    expected: u64,
    token: &LockToken,
) -> Result<Result<Option<u64>, u64>> {
    let mut batch = client.batch();
    let cas = batch.volatile().cas(lock, expected, token.word());
    let read = beside.map(|beside| batch.read(beside, 1));
    let done = client.submit(batch).await?;
    let outcome =
        if done.swapped(cas) { Ok(read.map(|read| done.words(read)[0])) } else { Err(done.found(cas)) };
    client.recycle(done);
    Ok(outcome)
}

/// Takes a lock if it is free: one round trip.
///
/// # Errors
/// Errors of the pool and the fabric; the lock may then be taken, by a token that is over.
pub(crate) async fn try_acquire<F: Fabric>(
    tokens: &Arc<LockTokens>,
    client: &mut Pinned<'_, F>,
    lock: GlobalAddr,
) -> Result<Option<Acquired>> {
    let token = tokens.issue(client)?.at(lock);
    if attempt(client, (lock, None), 0, &token).await?.is_ok() {
        return Ok(Some(Acquired { token, is_taken_over: false, beside: None }));
    }
    token.release();
    client.retried();
    Ok(None)
}

/// Takes a lock, waiting for as long as its holder can write: a round trip when it is free. A
/// holder that is alive and does not go on, such as a stopped process on a provider that cannot
/// shut it out, is waited for. With the lock comes the word at `beside`, on the same node.
///
/// # Errors
/// Errors of the pool and the fabric; the lock may then be taken, by a token that is over.
pub(crate) async fn acquire<F: Fabric>(
    tokens: &Arc<LockTokens>,
    client: &mut Pinned<'_, F>,
    (lock, beside): (GlobalAddr, Option<GlobalAddr>),
) -> Result<Acquired> {
    let token = tokens.issue(client)?.at(lock);
    let (mut expected, mut holder, mut tries) = (0, 0, 0);
    loop {
        let found = match attempt(client, (lock, beside), expected, &token).await? {
            Ok(beside) => return Ok(Acquired { token, is_taken_over: expected != 0, beside }),
            Err(found) => found,
        };
        client.retried();
        expected = 0;
        if holder != found {
            (holder, tries) = (found, 0);
        }
        tries += 1;
        if tries < SPINS || found == 0 {
            yield_now().await;
        } else if tokens.is_over(client, found).await? {
            expected = found;
        } else {
            client.pause().await;
            tries = 0;
        }
    }
}
