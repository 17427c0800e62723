//! A lock word in the pool, taken by CAS, whose holder may die. The word belongs to a
//! [`LockToken`], so a client that finds the lock taken for long can check whether the holder can
//! still write, and otherwise take the lock over.
//!
//! Published systems store a bit. If its holder dies, the lock stays taken forever and blocks
//! everything it protects. A client that takes a lock over ([`Acquired::is_taken_over`]) must first
//! repair what the former holder may have left half done; how depends on what the lock protects.

use crate::compute_node::yield_now;
use crate::lock_token::{LockToken, LockTokens};
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::Result;
use darter_pool::Pinned;
use std::sync::Arc;

/// Attempts, each a round trip, that find the same holder before its state is checked.
const SPINS: u32 = 64;

/// A lock word that names this operation.
#[derive(Debug)]
pub(crate) struct Acquired {
    /// The name in it. Released by the client that has unlocked it, otherwise abandoned.
    pub(crate) token: LockToken,
    /// The former holder did not unlock it and can no longer write.
    pub(crate) is_taken_over: bool,
    /// The word that was read with the lock, if any.
    pub(crate) beside: Option<u64>,
}

/// Makes one attempt; `Err(word)` names the holder. `beside` is a word on the same node that is
/// read after the CAS in the same round trip, so under the lock.
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

/// Takes a lock and waits while its holder can write; one round trip if it is free. It also waits
/// for a holder that is alive but makes no progress, such as a stopped process on a provider that
/// cannot evict it. Also returns the word at `beside`, on the same node, read under the lock.
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
        } else if tokens.holder_has_ended(client, found).await? {
            expected = found;
        } else {
            client.pause().await;
            tries = 0;
        }
    }
}
