//! Adding entries to the table: upkeep after splits, type switches and collapses (paper, sections
//! 3.1 and 4.2).
//!
//! An entry is installed only after the change that it reports is visible in the tree, by a client
//! that has been pinned since before it found the node there. A scrub waits a grace after the
//! unlinking, so after it no client can put a retired node back (R3). Installing is best effort: a
//! full bucket or a lost race drops the hint.

use super::super::node::NodeRef;
use super::super::prefix_hash::HashedKey;
use super::super::situations;
use super::split::{SplitOutcome, split};
use super::table::Table;
use super::{BUCKET_SLOTS, Entry, Express};
use crate::checker::note;
use crate::radix::prefix_list::PrefixList;
use crate::{IndexError, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::{Pinned, PoolError};
use smallvec::SmallVec;

/// Attempts before a hint is dropped.
const ATTEMPTS: usize = 4;

/// An entry to be installed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingEntry {
    pub(crate) hash: u64,
    pub(crate) entry: Entry,
    /// The node whose entry under this prefix the new entry replaces.
    pub(crate) replaces: Option<GlobalAddr>,
}

/// A bucket that an earlier round trip of the same operation has read.
#[derive(Clone, Debug)]
pub(crate) struct KnownBucket {
    pub(crate) hash: u64,
    pub(crate) words: [u64; BUCKET_SLOTS],
}

/// The entries to install for a node that covers the lengths above `above` up to `upto`, in the
/// order of the list.
///
/// The first `upto` bytes of `key` must agree with the node's prefix.
pub(crate) fn pending_for(
    list: PrefixList,
    key: &mut HashedKey<'_>,
    (above, upto): (usize, usize),
    node: NodeRef,
    replaces: Option<GlobalAddr>,
) -> SmallVec<[PendingEntry; 8]> {
    list.covering(above, node.depth)
        .filter(|&len| len <= upto)
        .map(|len| {
            let hash = key.express(len);
            PendingEntry { hash, entry: Entry::new(hash, len, node), replaces }
        })
        .collect()
}

/// What can be done with an entry, given its bucket.
enum Plan {
    Present,
    Swap { slot: usize, old: u64 },
    Full,
    Sealed,
}

fn plan(bucket: &[u64], new: &PendingEntry) -> Plan {
    let mut free = None;
    for (slot, &word) in bucket.iter().enumerate() {
        let entry = Entry::from_word(word);
        if entry.is_sealed() {
            return Plan::Sealed;
        }
        if entry.is_empty() {
            free = free.or(Some(slot));
        } else if entry == new.entry {
            return Plan::Present;
        } else if entry.matches(new.hash)
            && (new.replaces == Some(entry.addr()) || entry.addr() == new.entry.addr())
        {
            return Plan::Swap { slot, old: word };
        }
    }
    free.map_or(Plan::Full, |slot| Plan::Swap { slot, old: 0 })
}

/// Installs entries: in one round trip if the buckets are known and no other client interferes,
/// else in two.
///
/// # Errors
/// Those of the fabric. If space runs out, hints are dropped instead.
pub(crate) async fn install<F: Fabric>(
    client: &mut Pinned<'_, F>,
    express: Express<'_>,
    entries: &[PendingEntry],
    known: &[KnownBucket],
) -> Result<()> {
    let table = express.table;
    let mut pending: SmallVec<[PendingEntry; 8]> = entries.iter().copied().collect();
    for attempt in 0..ATTEMPTS {
        if pending.is_empty() {
            break;
        }
        let buckets = if attempt == 0 && entries.iter().all(|new| known.iter().any(|k| k.hash == new.hash)) {
            pending
                .iter()
                .filter_map(|new| known.iter().find(|k| k.hash == new.hash).map(|k| k.words))
                .collect()
        } else {
            read_buckets(client, table, &pending).await?
        };
        let mut batch = client.batch();
        let mut swaps: SmallVec<[_; 8]> = SmallVec::new();
        let mut crowded: SmallVec<[_; 8]> = SmallVec::new();
        for (new, bucket) in pending.iter().zip(&buckets) {
            match plan(bucket, new) {
                Plan::Present => {}
                Plan::Swap { slot, old } => {
                    let at = table.bucket_addr(new.hash).plus(slot as u64 * 8);
                    swaps.push((batch.cas(at, old, new.entry.word()), *new));
                }
                Plan::Full => crowded.push((*new, false)),
                Plan::Sealed => crowded.push((*new, true)),
            }
        }
        let mut left: SmallVec<[PendingEntry; 8]> = SmallVec::new();
        if swaps.is_empty() {
            client.recycle(batch);
        } else {
            let done = client.submit(batch).await?;
            note(situations::EXPRESS_INSTALLED);
            left.extend(swaps.iter().filter(|(cas, _)| !done.swapped(*cas)).map(|(_, new)| *new));
            client.recycle(done);
        }
        for (new, sealed) in crowded {
            match split(client, express, new.hash, sealed).await {
                Ok(SplitOutcome::Split | SplitOutcome::Moved) => left.push(new),
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
    client: &mut Pinned<'_, F>,
    table: &Table,
    entries: &[PendingEntry],
) -> Result<SmallVec<[[u64; BUCKET_SLOTS]; 8]>> {
    let mut batch = client.batch();
    let reads: SmallVec<[_; 8]> =
        entries.iter().map(|new| batch.read(table.bucket_addr(new.hash), BUCKET_SLOTS)).collect();
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
