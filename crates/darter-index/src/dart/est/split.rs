//! Splitting a segment: the table grows while it is in use.
//!
//! The rule is that of the tree's own nodes (`docs/dart.md`). First, every slot of the old segment
//! is sealed, so that its contents can never change again; then any client may build the two halves
//! from them. So a scrub cannot miss an entry that is moving from one segment to another: it either
//! clears the old slot before the seal, or finds the seal and finishes the split first.
//!
//! Several clients may build duplicates. The lowest directory entry of each half decides: the first
//! CAS there wins, and every client copies the winner into the half's other entries. The client
//! that wins the lower half retires the old segment, after it has incremented the version word,
//! which makes other processes read the directory again. A split first completes the copying of the
//! split before it, so that a directory entry is never more than one split out of date.
//!
//! If the client that split a segment has died, directory entries, cached ones above all, may name
//! the old segment for a long time. Scrubs clear entries in the halves and not in the old segment.
//! That segment still leads no operation to a freed node: sealed entries are not hints, and they
//! are divided again only as long as one half is not linked, which a scrub of an entry of the other
//! half prevents by linking it first.
//!
//! An entry does not hold the hash bit that assigns it to one half or the other. The bit is
//! recovered from the node that the entry names: from its identity word if the node lies exactly at
//! the entry's length, else from the key of any leaf below.

use super::super::descend_any::keys_below_hinted;
use super::super::drafts::Drafts;
use super::super::node::NodeRef;
use super::super::prefix_hash::{HashedKey, identity_depth};
use super::super::seal::seal_all;
use super::super::situations;
use super::table::Table;
use super::{BUCKET_SLOTS, DirectoryEntry, Entry, Express, SEGMENT_BUCKETS_MAX};
use crate::checker::note;
use crate::{IndexError, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::{AllocKind, Pinned, PoolError};
use std::sync::atomic::Ordering;

/// A segment splits if a bucket is full and at least this percentage of the segment's slots is
/// taken; below that, the hint is dropped.
const SPLIT_PERCENT: usize = 60;

/// The result of an attempt to split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitOutcome {
    /// The hash's segment has been split.
    Split,
    /// The cached directory was out of date; it has been updated.
    Moved,
    /// The segment has room elsewhere (or the pool has none): a split is not worthwhile.
    Roomy,
    /// The directory has no bits left for this segment.
    AtLimit,
}

/// Splits the segment of `hash` if it is full enough, or finishes a split that another client began
/// (`sealed`).
///
/// # Errors
/// Those of the fabric. Running out of space is [`SplitOutcome::Roomy`], unless a split has begun:
/// a scrub, which needs it finished, then gets the error and has to try again later.
pub(crate) async fn split<F: Fabric>(
    client: &mut Pinned<'_, F>,
    express: Express<'_>,
    hash: u64,
    sealed: bool,
) -> Result<SplitOutcome> {
    let table = express.table;
    // Counting a segment usually costs 8 KiB, so an insert into a full bucket counts it only for
    // one hash in four.
    if !sealed && (hash >> 40) & 3 != 0 {
        return Ok(SplitOutcome::Roomy);
    }
    let index = table.index(hash);
    let old = table.cached(index);
    let Some(mut words) = read_segment(client, table, index, old).await? else {
        return Ok(SplitOutcome::Moved);
    };
    let begun = words.iter().any(|&word| Entry::from_word(word).is_sealed());
    let used = words.iter().filter(|&&word| !Entry::from_word(word).is_empty()).count();
    if !begun && used * 100 < table.segment.words() * SPLIT_PERCENT {
        return Ok(SplitOutcome::Roomy);
    }
    if old.local_depth() >= table.bits {
        table.saturated.store(true, Ordering::Relaxed);
        return Ok(SplitOutcome::AtLimit);
    }
    if begun && follow_both_halves(client, table, index, old).await? {
        note(situations::SEGMENT_HELPED);
        return Ok(SplitOutcome::Split);
    }
    complete_previous(client, table, index, old).await?;
    let halves = match alloc_halves(client, table, old.segment().node()).await {
        Err(IndexError::Pool(PoolError::OutOfSpace { .. })) if !begun => {
            return Ok(SplitOutcome::Roomy);
        }
        halves => halves?,
    };
    seal_all(client, old.segment(), &mut words, |_, _| true).await?;
    let images = divide(client, express, old.local_depth(), &words).await?;
    let mut batch = client.batch();
    for (half, image) in halves.iter().zip(&images) {
        batch.write(half.addr, image);
    }
    client.complete(batch).await?;
    let retires = link_halves(client, table, index, old, halves).await?;
    if begun {
        note(situations::SEGMENT_HELPED);
    }
    if retires {
        retire_segment(client, express, old.segment()).await?;
    }
    Ok(SplitOutcome::Split)
}

/// Reads the segment that a directory entry names, and the entry again. Returns `None` if the entry
/// has changed; its new value is then cached.
async fn read_segment<F: Fabric>(
    client: &mut Pinned<'_, F>,
    table: &Table,
    index: usize,
    old: DirectoryEntry,
) -> Result<Option<Vec<u64>>> {
    let mut batch = client.batch();
    let fresh = batch.read(table.entry_addr(index), 1);
    let read = batch.read(old.segment(), table.segment.words());
    let done = client.submit(batch).await?;
    let now = DirectoryEntry::from_word(done.words(fresh)[0]);
    let words = (now == old).then(|| done.words(read).to_vec());
    client.recycle(done);
    if words.is_none() {
        table.remember(index, now);
    }
    Ok(words)
}

/// A half that is not linked yet.
struct Half {
    addr: GlobalAddr,
    drafts: Drafts,
}

/// Allocates memory for both halves, or for neither.
async fn alloc_halves<F: Fabric>(client: &mut Pinned<'_, F>, table: &Table, node: u8) -> Result<[Half; 2]> {
    let mut drafts = [Drafts::new(), Drafts::new()];
    let mut addrs = [GlobalAddr::NULL; 2];
    for (half, addr) in drafts.iter_mut().zip(&mut addrs) {
        match half.alloc(client, node, table.segment.bytes(), AllocKind::Inner).await {
            Ok(got) => *addr = got,
            Err(error) => {
                for half in &mut drafts {
                    half.discard(client);
                }
                return Err(error);
            }
        }
    }
    let ([lower, upper], [low, high]) = (drafts, addrs);
    Ok([Half { addr: low, drafts: lower }, Half { addr: high, drafts: upper }])
}

/// Links both halves, unless another client has linked a duplicate. Returns whether this client
/// must retire the old segment.
async fn link_halves<F: Fabric>(
    client: &mut Pinned<'_, F>,
    table: &Table,
    index: usize,
    old: DirectoryEntry,
    halves: [Half; 2],
) -> Result<bool> {
    let step = 1_usize << old.local_depth();
    let mut retires = false;
    for (side, Half { addr, mut drafts }) in halves.into_iter().enumerate() {
        let primary = (index & (step - 1)) + side * step;
        let mine = DirectoryEntry::new(addr, old.local_depth() + 1);
        if publish(client, table, primary, step * 2, old, mine).await? {
            drafts.keep();
            retires |= side == 0;
        } else {
            drafts.discard(client);
        }
    }
    Ok(retires)
}

/// Notifies other processes that the directory has changed, and retires the segment that was split.
async fn retire_segment<F: Fabric>(
    client: &mut Pinned<'_, F>,
    express: Express<'_>,
    segment: GlobalAddr,
) -> Result<()> {
    note(situations::SEGMENT_SPLIT);
    client
        .post(|batch| {
            _ = batch.faa(express.version, 1);
        })
        .await?;
    let bytes = express.table.segment.bytes();
    client.retire(segment, bytes, AllocKind::Inner);
    Ok(())
}

/// The contents of the two halves. Entries whose node no longer shows where they belong are
/// dropped, since they are only hints.
async fn divide<F: Fabric>(
    client: &mut Pinned<'_, F>,
    express: Express<'_>,
    local_depth: u32,
    words: &[u64],
) -> Result<[Vec<u64>; 2]> {
    let size = express.table.segment;
    let mut images = [vec![0; size.words()], vec![0; size.words()]];
    let entries: Vec<(usize, Entry)> = words
        .iter()
        .map(|&word| Entry::from_word(word).unsealed())
        .enumerate()
        .filter(|(_, entry)| !entry.is_empty())
        .collect();
    let hashes = hashes_of(client, express, &entries).await?;
    let mut filled = [[0_usize; SEGMENT_BUCKETS_MAX]; 2];
    for ((at, entry), hash) in entries.into_iter().zip(hashes) {
        let bucket = at / BUCKET_SLOTS;
        let Some(hash) = hash.filter(|&hash| entry.matches(hash) && size.bucket_of(hash) == bucket) else {
            continue;
        };
        let side = (hash >> local_depth & 1) as usize;
        images[side][bucket * BUCKET_SLOTS + filled[side][bucket]] = entry.word();
        filled[side][bucket] += 1;
    }
    Ok(images)
}

/// The full hash of each entry whose node still shows it.
async fn hashes_of<F: Fabric>(
    client: &mut Pinned<'_, F>,
    express: Express<'_>,
    entries: &[(usize, Entry)],
) -> Result<Vec<Option<u64>>> {
    let mut batch = client.batch();
    let reads: Vec<_> = entries.iter().map(|(_, entry)| batch.read(entry.addr(), 1)).collect();
    let done = client.submit(batch).await?;
    let identities: Vec<u64> = reads.iter().map(|&read| done.words(read)[0]).collect();
    client.recycle(done);
    let mut hashes: Vec<Option<u64>> =
        identities.iter().map(|&identity| Some(express.keys.express_of(identity))).collect();
    let mut deep = Vec::new();
    for (at, ((_, entry), &identity)) in entries.iter().zip(&identities).enumerate() {
        if entry.delta() != 0 {
            hashes[at] = None;
            let depth = identity_depth(identity);
            if let Some(len) = depth.checked_sub(entry.delta())
                && let Some(node) = entry.node(len)
            {
                deep.push((at, len, NodeRef { depth, ..node }));
            }
        }
    }
    debug_assert!(express.table.list.word() != 0 || deep.is_empty());
    let nodes: Vec<NodeRef> = deep.iter().map(|&(_, _, node)| node).collect();
    let found = keys_below_hinted(client, &nodes).await?;
    for ((at, len, _), key) in deep.into_iter().zip(found) {
        hashes[at] =
            key.filter(|key| key.len() >= len).map(|key| HashedKey::new(*express.keys, &key).express(len));
    }
    Ok(hashes)
}

/// Links one half. Returns whether `mine` won. Fills the half's other entries with the winner.
async fn publish<F: Fabric>(
    client: &mut Pinned<'_, F>,
    table: &Table,
    primary: usize,
    stride: usize,
    old: DirectoryEntry,
    mine: DirectoryEntry,
) -> Result<bool> {
    let mut batch = client.batch();
    let cas = batch.cas(table.entry_addr(primary), old.word(), mine.word());
    let done = client.submit(batch).await?;
    let won = done.swapped(cas);
    let winner = if won { mine } else { DirectoryEntry::from_word(done.found(cas)) };
    client.recycle(done);
    table.remember(primary, winner);
    if winner.local_depth() == mine.local_depth() {
        fill(client, table, primary + stride, stride, old, winner).await?;
    }
    Ok(won)
}

/// Replaces `old` by `winner` in every `stride`-th directory entry from `first` on.
async fn fill<F: Fabric>(
    client: &mut Pinned<'_, F>,
    table: &Table,
    first: usize,
    stride: usize,
    old: DirectoryEntry,
    winner: DirectoryEntry,
) -> Result<()> {
    let indexes: Vec<usize> = (first..table.directory_len()).step_by(stride).collect();
    if indexes.is_empty() {
        return Ok(());
    }
    let mut batch = client.batch();
    let swaps: Vec<_> =
        indexes.iter().map(|&index| batch.cas(table.entry_addr(index), old.word(), winner.word())).collect();
    let done = client.submit(batch).await?;
    for (&index, cas) in indexes.iter().zip(swaps) {
        let now = if done.swapped(cas) { winner.word() } else { done.found(cas) };
        table.remember(index, DirectoryEntry::from_word(now));
    }
    client.recycle(done);
    Ok(())
}

/// If both halves of a segment are linked, makes the directory entries that still name the segment
/// name the halves. Returns whether both are linked.
///
/// In that case the segment's entries must not be divided again: scrubs have cleared entries only
/// in the halves, and the nodes that the old entries name may be free.
async fn follow_both_halves<F: Fabric>(
    client: &mut Pinned<'_, F>,
    table: &Table,
    index: usize,
    old: DirectoryEntry,
) -> Result<bool, IndexError> {
    let step = 1_usize << old.local_depth();
    let lower = index & (step - 1);
    let primaries = [lower, lower + step];
    let mut batch = client.batch();
    let reads = primaries.map(|primary| batch.read(table.entry_addr(primary), 1));
    let done = client.submit(batch).await?;
    let halves = reads.map(|read| DirectoryEntry::from_word(done.words(read)[0]));
    client.recycle(done);
    if halves.contains(&old) {
        return Ok(false);
    }
    for (primary, half) in primaries.into_iter().zip(halves) {
        table.remember(primary, half);
        if half.local_depth() == old.local_depth() + 1 {
            fill(client, table, primary + step * 2, step * 2, old, half).await?;
        }
    }
    Ok(true)
}

/// Before a segment splits, makes every directory entry of its half name it: the split that created
/// it may have been cut short.
async fn complete_previous<F: Fabric>(
    client: &mut Pinned<'_, F>,
    table: &Table,
    index: usize,
    segment: DirectoryEntry,
) -> Result<()> {
    let stride = 1_usize << segment.local_depth();
    let indexes: Vec<usize> = (index & (stride - 1)..table.directory_len()).step_by(stride).collect();
    let mut batch = client.batch();
    let reads: Vec<_> = indexes.iter().map(|&index| batch.read(table.entry_addr(index), 1)).collect();
    let done = client.submit(batch).await?;
    let found: Vec<_> = reads.iter().map(|&read| DirectoryEntry::from_word(done.words(read)[0])).collect();
    client.recycle(done);
    let mut batch = client.batch();
    for (&index, entry) in indexes.iter().zip(found) {
        if entry.local_depth() < segment.local_depth() {
            batch.cas(table.entry_addr(index), entry.word(), segment.word());
        }
        table.remember(index, if entry.local_depth() < segment.local_depth() { segment } else { entry });
    }
    if batch.is_empty() {
        client.recycle(batch);
        return Ok(());
    }
    client.complete(batch).await?;
    Ok(())
}
