//! Removing every entry that names a retired node, before its memory is freed (rule R3).
//!
//! An unlinked node waits one grace, so that every operation that found it in the tree, and might
//! still add an entry for it, has ended. Then its entries are cleared under every length of the
//! list, in the current table and in any table that is being built. The node then waits a second
//! grace for operations that read an entry before it was cleared. The entries of a sealed bucket
//! are moving to another segment: the split is finished first, then the entry is cleared at its new
//! place.

use super::super::prefix_hash::HashedKey;
use super::super::situations;
use super::split::split;
use super::table::Table;
use super::{BUCKET_SLOTS, DirectoryEntry, Entry, Express};
use crate::checker::note;
use crate::radix::prefix_list::DELTA_MAX;
use crate::{IndexError, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Pinned;
use std::collections::HashSet;

/// Maximum number of passes. A scrub that needs more can only be due to damage.
const PASSES_MAX: u32 = 10_000;

/// A retired node whose entries must be cleared: its address and its whole prefix.
#[derive(Clone, Debug)]
pub(crate) struct Retired {
    pub(crate) addr: GlobalAddr,
    pub(crate) prefix: Vec<u8>,
}

/// Clears every entry of `table` that names one of the nodes. Returns whether there were any.
///
/// # Errors
/// Those of the fabric. Some entries may then be left, and the nodes must not be freed.
pub(crate) async fn scrub<F: Fabric>(
    client: &mut Pinned<'_, F>,
    express: Express<'_>,
    nodes: &[Retired],
) -> Result<bool> {
    let table = express.table;
    let mut pending: Vec<(u64, GlobalAddr)> = Vec::new();
    let mut cleared = false;
    for node in nodes {
        let mut key = HashedKey::new(*express.keys, &node.prefix);
        for len in table.list.lengths() {
            if len <= node.prefix.len() && node.prefix.len() - len <= DELTA_MAX {
                pending.push((key.express(len), node.addr));
            }
        }
    }
    for _ in 0..PASSES_MAX {
        if pending.is_empty() {
            return Ok(cleared);
        }
        let mut left = Vec::new();
        for chunk in pending.chunks(64) {
            left.extend(scrub_chunk(client, express, chunk, &mut cleared).await?);
        }
        pending = left;
    }
    Err(endless(table.descriptor))
}

/// Makes one pass over some buckets. Returns the buckets that need another pass.
async fn scrub_chunk<F: Fabric>(
    client: &mut Pinned<'_, F>,
    express: Express<'_>,
    chunk: &[(u64, GlobalAddr)],
    cleared: &mut bool,
) -> Result<Vec<(u64, GlobalAddr)>> {
    let table = express.table;
    let mut batch = client.batch();
    let reads: Vec<_> = chunk
        .iter()
        .map(|&(hash, _)| {
            let other = table.other_half(table.index(hash));
            let depth = table.cached(table.index(hash)).local_depth();
            let bucket = batch.read(table.bucket_addr(hash), BUCKET_SLOTS);
            (bucket, batch.read(table.entry_addr(other), 1), other, depth)
        })
        .collect();
    let done = client.submit(batch).await?;
    let mut left = Vec::new();
    let mut sealed = Vec::new();
    let mut clears = Vec::new();
    for (&(hash, addr), (read, head, other, depth)) in chunk.iter().zip(reads) {
        let bucket = done.words(read);
        // A split of the segment that both came from reads the nodes of all its entries.
        if DirectoryEntry::from_word(done.words(head)[0]).local_depth() < depth {
            sealed.push(other as u64);
            left.push((hash, addr));
            continue;
        }
        if bucket.iter().any(|&word| Entry::from_word(word).is_sealed()) {
            sealed.push(hash);
            left.push((hash, addr));
            continue;
        }
        for (slot, &word) in bucket.iter().enumerate() {
            let entry = Entry::from_word(word);
            if !entry.is_empty() && entry.addr() == addr {
                clears.push((table.bucket_addr(hash).plus(slot as u64 * 8), word, hash, addr));
            }
        }
    }
    client.recycle(done);
    if !clears.is_empty() {
        let mut batch = client.batch();
        let swaps: Vec<_> = clears.iter().map(|&(at, word, ..)| batch.cas(at, word, 0)).collect();
        let done = client.submit(batch).await?;
        for (&(_, _, hash, addr), cas) in clears.iter().zip(swaps) {
            if done.swapped(cas) {
                *cleared = true;
                continue;
            }
            note(situations::SCRUB_LOST);
            left.push((hash, addr));
        }
        client.recycle(done);
    }
    for hash in sealed {
        note(situations::SCRUB_MET_SPLIT);
        split(client, express, hash, true).await?;
    }
    Ok(left)
}

/// Reads every segment that the table's directory currently names.
///
/// # Errors
/// Those of the fabric.
pub(crate) async fn segments<F: Fabric>(
    client: &mut Pinned<'_, F>,
    table: &Table,
) -> Result<Vec<DirectoryEntry>> {
    let words = client.read(table.directory_addr, table.directory_len()).await?;
    let mut seen = HashSet::new();
    let mut segments = Vec::new();
    for (index, &word) in words.iter().enumerate() {
        let entry = DirectoryEntry::from_word(word);
        table.remember(index, entry);
        if seen.insert(entry.segment()) {
            segments.push(entry);
        }
    }
    Ok(segments)
}

/// Clears every entry that names a doomed node, in the whole table.
///
/// # Errors
/// Those of the fabric.
pub(crate) async fn scrub_everywhere<F: Fabric>(
    client: &mut Pinned<'_, F>,
    express: Express<'_>,
    doomed: impl Fn(GlobalAddr) -> bool + Send,
) -> Result<()> {
    let table = express.table;
    for _ in 0..PASSES_MAX {
        finish_splits(client, express).await?;
        let before = segments(client, table).await?;
        let mut is_moving = false;
        for entry in &before {
            is_moving |= scrub_segment(client, table, entry.segment(), &doomed).await?;
        }
        // An entry that moved during the pass may have been missed. Repeat until no segment was
        // split during the pass and no split was in progress.
        let is_settled = segments(client, table).await? == before && !is_moving;
        if is_settled {
            return Ok(());
        }
    }
    Err(endless(table.descriptor))
}

fn endless(addr: GlobalAddr) -> IndexError {
    IndexError::corrupt(addr, "an express segment whose split never ends")
}

/// Clears entries of one segment. Returns whether other entries are sealed, and so are moving to
/// another segment.
async fn scrub_segment<F: Fabric>(
    client: &mut Pinned<'_, F>,
    table: &Table,
    segment: GlobalAddr,
    doomed: &(impl Fn(GlobalAddr) -> bool + Send),
) -> Result<bool> {
    loop {
        let words = client.read(segment, table.segment.words()).await?;
        let is_sealed = words.iter().any(|&word| Entry::from_word(word).is_sealed());
        let mut batch = client.batch();
        for (at, &word) in words.iter().enumerate() {
            let entry = Entry::from_word(word);
            if !entry.is_empty() && !entry.is_sealed() && doomed(entry.addr()) {
                batch.cas(segment.plus(at as u64 * 8), word, 0);
            }
        }
        if batch.is_empty() {
            client.recycle(batch);
            return Ok(is_sealed);
        }
        client.complete(batch).await?;
    }
}

/// Finishes every split that was begun and abandoned.
async fn finish_splits<F: Fabric>(client: &mut Pinned<'_, F>, express: Express<'_>) -> Result<()> {
    let table = express.table;
    segments(client, table).await?;
    for index in 0..table.directory_len() {
        let words = client.read(table.cached(index).segment(), table.segment.words()).await?;
        let begun = words.iter().any(|&word| Entry::from_word(word).is_sealed());
        if begun {
            split(client, express, index as u64, true).await?;
        }
    }
    Ok(())
}
