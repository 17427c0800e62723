//! A lock word in the pool, taken by CAS, whose holder may die: the word is a [`LockToken`]'s, so whoever finds the lock taken for
//! long can ask whether the holder can still write, and if not take the lock over.
//!
//! Published systems keep a bit there. A client that dies with it leaves the lock taken for ever, and everything
//! behind it. Whoever takes a lock over ([`Acquired::is_taken_over`]) has to mend what the former holder may have left half
//! done before it goes on; what that is depends on what the lock protects.

use crate::IndexError;
use crate::compute_node::yield_now;
use darter_fabric::{Fabric, GlobalAddr, mutant};
use darter_pool::{LockToken, Pinned};

/// Tries, each a round trip, that find the same holder before it is asked after.
const SPINS: u32 = 64;

/// A lock word that names this operation.
#[derive(Debug)]
pub(crate) struct Acquired {
    /// The name in it. Released by whoever has unlocked it, otherwise abandoned.
    pub(crate) hold: LockToken,
    /// The former holder did not unlock it, and can write no more.
    pub(crate) is_taken_over: bool,
}

/// One try; `Err(word)` names the holder.
async fn attempt<F: Fabric>(
    client: &mut Pinned<'_, F>,
    lock: GlobalAddr,
    expected: u64,
    hold: &LockToken,
) -> Result<Result<(), u64>, IndexError> {
    let mut batch = client.batch();
    let cas = batch.cas(lock, expected, hold.word());
    let done = client.submit(batch).await?;
    let (swapped, found) = (done.swapped(cas), done.found(cas));
    client.recycle(done);
    Ok(if swapped { Ok(()) } else { Err(found) })
}

/// Takes a lock if it is free: one round trip.
///
/// # Errors
/// Those of the pool and the fabric; the lock may then be taken, by a hold that is over.
pub(crate) async fn try_acquire<F: Fabric>(
    client: &mut Pinned<'_, F>,
    lock: GlobalAddr,
) -> Result<Option<Acquired>, IndexError> {
    let hold = LockToken::new(client)?.at(lock);
    if attempt(client, lock, 0, &hold).await?.is_ok() {
        return Ok(Some(Acquired { hold, is_taken_over: false }));
    }
    hold.release();
    client.retried();
    Ok(None)
}

/// Takes a lock, waiting for as long as its holder can write: a round trip when it is free. A holder that is alive and does
/// not go on, such as a stopped process on a provider that cannot shut it out, is waited for; without `takes_over`, as published,
/// one that is dead too, for ever.
///
/// # Errors
/// Those of the pool and the fabric; the lock may then be taken, by a hold that is over.
pub(crate) async fn acquire<F: Fabric>(
    client: &mut Pinned<'_, F>,
    lock: GlobalAddr,
    takes_over: bool,
) -> Result<Acquired, IndexError> {
    let hold = LockToken::new(client)?.at(lock);
    let (mut expected, mut holder, mut tries) = (0, 0, 0);
    loop {
        let Err(found) = attempt(client, lock, expected, &hold).await? else {
            return Ok(Acquired { hold, is_taken_over: expected != 0 });
        };
        client.retried();
        expected = 0;
        if holder != found {
            (holder, tries) = (found, 0);
        }
        tries += 1;
        if tries < SPINS || found == 0 {
            yield_now().await;
        } else if takes_over
            && (mutant!("lock-taken-over-without-asking") || LockToken::is_over(client, found).await?)
        {
            expected = found;
        } else {
            client.pause().await;
            tries = 0;
        }
    }
}
