//! Putting entries into the table: upkeep after splits, type switches and collapses (paper, sections 3.1 and 4.2).
//!
//! Always after the change it reports is visible in the tree, and always pinned since before the node was found there: that
//! is what lets a scrub, which waits a grace after the unlinking, be sure that nobody can put a retired node back (R3).
//! Installing is best effort: a full bucket or a lost race drops the hint.

use super::super::node::NodeRef;
use super::super::prefix_hash::{HashKeys, HashedKey};
use super::super::situations;
use super::split::{SplitOutcome, split};
use super::table::Table;
use super::{BUCKET_SLOTS, Entry, PrefixList};
use crate::IndexError;
use crate::checker::note;
use darter_fabric::{Fabric, GlobalAddr, mutant};
use darter_pool::{Client, PoolError};
use smallvec::SmallVec;

/// Tries before a hint is dropped.
const ATTEMPTS: usize = 4;

/// An entry to be put in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) hash: u64,
    pub(crate) entry: Entry,
    /// The node whose entry under this prefix it takes over.
    pub(crate) replaces: Option<GlobalAddr>,
}

/// A bucket that an earlier round trip of the same operation brought.
#[derive(Clone, Debug)]
pub(crate) struct KnownBucket {
    pub(crate) hash: u64,
    pub(crate) words: [u64; BUCKET_SLOTS],
}

/// The wishes for a node that covers the lengths above `above` up to `upto`, in the order of the list.
///
/// `key` must agree with the node's prefix in its first `upto` bytes.
pub(crate) fn wishes_for(
    list: PrefixList,
    key: &mut HashedKey<'_>,
    (above, upto): (usize, usize),
    node: NodeRef,
    replaces: Option<GlobalAddr>,
) -> SmallVec<[Wish; 8]> {
    let known = if mutant!("entry-under-more-bytes-than-are-known") { key.bytes().len() } else { upto };
    list.covering(above, node.depth)
        .filter(|&len| len <= known)
        .map(|len| {
            let hash = key.express(len);
            Wish { hash, entry: Entry::new(hash, len, node), replaces }
        })
        .collect()
}

/// What a bucket allows for a wish.
enum Plan {
    Present,
    Swap { slot: usize, old: u64 },
    Full,
    Sealed,
}

fn plan(bucket: &[u64], wish: &Wish) -> Plan {
    let mut free = None;
    for (slot, &word) in bucket.iter().enumerate() {
        let entry = Entry::from_word(word);
        if entry.is_sealed() && !mutant!("entry-put-over-a-sealed-one") {
            return Plan::Sealed;
        }
        if entry.is_empty() {
            free = free.or(Some(slot));
        } else if entry == wish.entry {
            return Plan::Present;
        } else if entry.matches(wish.hash)
            && (wish.replaces == Some(entry.addr()) || entry.addr() == wish.entry.addr())
        {
            return Plan::Swap { slot, old: word };
        }
    }
    free.map_or(Plan::Full, |slot| Plan::Swap { slot, old: 0 })
}

/// Installs the wishes: one round trip when the buckets are known and nobody interferes, two otherwise.
///
/// # Errors
/// Those of the fabric. Running out of space drops hints instead.
pub(crate) async fn install<F: Fabric>(
    client: &mut Client<F>,
    table: &Table,
    keys: &HashKeys,
    version_addr: GlobalAddr,
    wishes: &[Wish],
    known: &[KnownBucket],
) -> Result<(), IndexError> {
    let mut pending: SmallVec<[Wish; 8]> = wishes.iter().copied().collect();
    for attempt in 0..ATTEMPTS {
        if pending.is_empty() {
            break;
        }
        let buckets = if attempt == 0 && wishes.iter().all(|w| known.iter().any(|k| k.hash == w.hash)) {
            pending
                .iter()
                .filter_map(|wish| known.iter().find(|k| k.hash == wish.hash).map(|k| k.words))
                .collect()
        } else {
            read_buckets(client, table, &pending).await?
        };
        let mut batch = client.batch();
        let mut swaps: SmallVec<[_; 8]> = SmallVec::new();
        let mut crowded: SmallVec<[_; 8]> = SmallVec::new();
        for (wish, bucket) in pending.iter().zip(&buckets) {
            match plan(bucket, wish) {
                Plan::Present => {}
                Plan::Swap { slot, old } => {
                    let at = table.bucket_addr(wish.hash).plus(slot as u64 * 8);
                    swaps.push((batch.cas(at, old, wish.entry.word()), *wish));
                }
                Plan::Full => crowded.push((*wish, false)),
                Plan::Sealed => crowded.push((*wish, true)),
            }
        }
        let mut left: SmallVec<[Wish; 8]> = SmallVec::new();
        if swaps.is_empty() {
            client.recycle(batch);
        } else {
            let done = client.submit(batch).await?;
            note(situations::EXPRESS_INSTALLED);
            left.extend(swaps.iter().filter(|(cas, _)| !done.swapped(*cas)).map(|(_, wish)| *wish));
            client.recycle(done);
        }
        for (wish, sealed) in crowded {
            match split(client, table, keys, version_addr, wish.hash, sealed).await {
                Ok(SplitOutcome::Split | SplitOutcome::Moved) => left.push(wish),
                Ok(SplitOutcome::Roomy | SplitOutcome::AtLimit)
                | Err(IndexError::Pool(PoolError::OutOfSpace { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        pending = left;
    }
    Ok(())
}

async fn read_buckets<F: Fabric>(
    client: &mut Client<F>,
    table: &Table,
    wishes: &[Wish],
) -> Result<SmallVec<[[u64; BUCKET_SLOTS]; 8]>, IndexError> {
    let mut batch = client.batch();
    let reads: SmallVec<[_; 8]> =
        wishes.iter().map(|wish| batch.read(table.bucket_addr(wish.hash), BUCKET_SLOTS)).collect();
    let done = client.submit(batch).await?;
    let buckets = reads
        .iter()
        .map(|&read| {
            let mut words = [0; BUCKET_SLOTS];
            words.copy_from_slice(done.words(read));
            words
        })
        .collect();
    client.recycle(done);
    Ok(buckets)
}
