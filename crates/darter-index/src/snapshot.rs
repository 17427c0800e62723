//! Snapshots of an index: the values that all keys had at one moment, while clients go on changing
//! them.
//!
//! The pool says when a snapshot begins ([`Pool::begin_snapshot`](darter_pool::Pool::begin_snapshot)).
//! From then on, before a client changes a key, it *preserves* the key's value as of that moment:
//! it stores the value in the same index under a separate key, unless a client has done so before
//! ([`begin_change`]). A reader of the snapshot reads a key, and *afterwards* looks for a preserved
//! value, which replaces what it has read ([`get_at`], [`scan_at`]).
//!
//! ```text
//! ff 'o' snapshot (8 bytes, big-endian) key    00          the key was absent
//!                                              01 value    the key's value
//! ```
//!
//! *Why that is right.* No key changes after the beginning before its old value is preserved. So a
//! client that finds no preserved value, and then reads the key, has either read the value as of the
//! beginning, or another client has preserved that value in between; then storing it is refused,
//! because the record exists. And a reader that reads a key, and afterwards finds no preserved value,
//! has read the key before any change. Values of another snapshot have another number, and are never
//! looked at.
//!
//! Operations of the index on keys beyond [`OLD_VALUES`] and before its end must preserve nothing.

use crate::{Condition, IndexError, KEY_BYTES_MAX, KeyValue, OrderedIndex, Result, ScanRange};
use darter_fabric::Fabric;
use darter_pool::{Client, Pinned, PoolError, SnapshotId};
use std::ops::Bound;

/// The first bytes of the keys of preserved values.
pub const OLD_VALUES: [u8; 2] = [0xff, b'o'];
/// The first bytes of keys after those.
const BEHIND: [u8; 2] = [0xff, b'o' + 1];
/// Bytes in front of the key of a preserved value.
const FRONT: usize = OLD_VALUES.len() + 8;
const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
/// Number of values that are preserved at a time.
const PRESERVED_AT_ONCE: usize = 32;
/// Number of preserved values that are removed at a time.
const REMOVED_AT_ONCE: usize = 256;

/// The first pairs of a snapshot's range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPart {
    /// The pairs, in ascending order. There may be none although the range has more.
    pub pairs: Vec<KeyValue>,
    /// The lower bound of the rest; `None` at the end of the range.
    pub rest: Option<Bound<Vec<u8>>>,
}

/// Begins an operation that changes these keys: pins the client around it, and preserves the keys'
/// values if a snapshot is open. If they cannot be preserved because a key or value would be too
/// long, ends the snapshot.
///
/// # Errors
/// [`PoolError::ChangesHeld`] for some milliseconds while a snapshot begins: drop nothing and try
/// again. Without room for the values it fails with [`PoolError::OutOfSpace`]. Nothing has changed
/// then.
#[inline]
pub async fn begin_change<'c, F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &'c mut Client<F>,
    keys: &[&[u8]],
) -> Result<Pinned<'c, F>> {
    let mut pinned = client.pin_for_change().await?;
    if let Some(snapshot) = pinned.open_snapshot() {
        // Boxed, so that the future of every operation need not reserve space for it.
        Box::pin(preserve(index, &mut pinned, snapshot, keys)).await?;
    }
    Ok(pinned)
}

/// Preserves the values of keys. The client is pinned for the change that follows.
#[cold]
async fn preserve<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
    snapshot: SnapshotId,
    keys: &[&[u8]],
) -> Result<()> {
    // A few at a time, since their values are in memory together.
    for keys in keys.chunks(PRESERVED_AT_ONCE) {
        if !preserve_some(index, client, snapshot, keys).await? {
            return give_up(client, snapshot).await;
        }
    }
    Ok(())
}

/// Preserves the values of some keys. Returns false if one of them cannot be preserved.
async fn preserve_some<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
    snapshot: SnapshotId,
    keys: &[&[u8]],
) -> Result<bool> {
    let keys: Vec<&[u8]> = keys.iter().copied().filter(|key| !is_old_value(key)).collect();
    if keys.iter().any(|key| FRONT + key.len() > KEY_BYTES_MAX) {
        return Ok(false);
    }
    let places: Vec<Vec<u8>> = keys.iter().map(|key| place(snapshot, key)).collect();
    let known = index.multi_get(client, &slices(&places)).await?;
    let unknown: Vec<usize> = (0..keys.len()).filter(|&i| known[i].is_none()).collect();
    let values = index.multi_get(client, &unknown.iter().map(|&i| keys[i]).collect::<Vec<_>>()).await?;
    for (i, value) in unknown.into_iter().zip(values) {
        let mut record = vec![if value.is_some() { PRESENT } else { ABSENT }];
        record.extend(value.unwrap_or_default());
        match index.put(client, &places[i], &record, Condition::Absent).await {
            Err(IndexError::ValueTooLong { .. } | IndexError::Pool(PoolError::TooLarge { .. })) => {
                return Ok(false);
            }
            put => drop(put?),
        }
    }
    Ok(true)
}

async fn give_up<F: Fabric>(client: &mut Client<F>, snapshot: SnapshotId) -> Result<()> {
    let pool = client.pool().clone();
    pool.end_snapshot(client, snapshot).await?;
    Ok(())
}

/// Returns the value that a key had when the snapshot began. That the snapshot is still open must be
/// checked afterwards.
///
/// # Errors
/// As [`OrderedIndex::get`].
pub async fn get_at<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
    snapshot: SnapshotId,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let now = index.get(client, key).await?;
    if FRONT + key.len() > KEY_BYTES_MAX {
        // A change of this key would have ended the snapshot.
        return Ok(now);
    }
    let old = index.get(client, &place(snapshot, key)).await?;
    Ok(old.map_or(now, value_of))
}

/// Returns the first pairs of an ascending range as of when the snapshot began: about `limit` of
/// them. That the snapshot is still open must be checked afterwards.
///
/// # Errors
/// As [`OrderedIndex::scan`].
pub async fn scan_at<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
    snapshot: SnapshotId,
    range: &ScanRange,
    limit: usize,
) -> Result<SnapshotPart> {
    let (part, mut rest) = before_old_values(range);
    let mut now = index.scan(client, &part, limit).await?;
    let mut to = part.to.clone();
    if let Some((last, _)) = now.last().filter(|_| now.len() >= limit) {
        (to, rest) = (Bound::Included(last.clone()), Some(Bound::Excluded(last.clone())));
    }
    let old = index.scan(client, &places(snapshot, &part.from, &to), limit).await?;
    if let Some((last, _)) = old.last().filter(|_| old.len() >= limit) {
        let last = &last[FRONT..];
        now.retain(|(key, _)| &key[..] <= last);
        rest = Some(Bound::Excluded(last.to_vec()));
    }
    Ok(SnapshotPart { pairs: merge(now, old), rest })
}

/// Replaces the present pairs by old ones with the same keys.
fn merge(now: Vec<KeyValue>, old: Vec<KeyValue>) -> Vec<KeyValue> {
    if old.is_empty() {
        return now;
    }
    let mut pairs = Vec::with_capacity(now.len() + old.len());
    let mut now = now.into_iter().peekable();
    for (place, record) in old {
        let key = place[FRONT..].to_vec();
        while let Some(pair) = now.next_if(|(present, _)| *present < key) {
            pairs.push(pair);
        }
        now.next_if(|(present, _)| *present == key);
        if let Some(value) = value_of(record) {
            pairs.push((key, value));
        }
    }
    pairs.extend(now);
    pairs
}

/// Returns the part of a range in front of the preserved values, or after them, with the lower bound
/// of the rest.
fn before_old_values(range: &ScanRange) -> (ScanRange, Option<Bound<Vec<u8>>>) {
    let (mut part, mut rest) = (range.clone(), None);
    if is_old_value(match &range.from {
        Bound::Included(from) | Bound::Excluded(from) => from,
        Bound::Unbounded => &[],
    }) {
        part.from = Bound::Included(BEHIND.to_vec());
    } else if !range.begins_behind(&OLD_VALUES) && !range.ends_before(&OLD_VALUES) {
        part.to = Bound::Excluded(OLD_VALUES.to_vec());
        rest = Some(Bound::Included(BEHIND.to_vec()));
    }
    (part, rest)
}

/// Removes preserved values of snapshots that are over, at most a few hundred. Returns whether there
/// may be more.
///
/// # Errors
/// As [`OrderedIndex::delete`].
pub async fn remove_old_values<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
) -> Result<bool> {
    let mut keys = Vec::new();
    let range = ScanRange::prefix(&OLD_VALUES);
    let keep = |key: &[u8], _: &[u8]| keys.push(key.to_vec());
    let found = index.scan_with(client, &range, REMOVED_AT_ONCE, keep).await?;
    // Read afterwards: the snapshot of a value that was found has begun, so it is this one or over.
    let pool = client.pool().clone();
    let open = pool.read_open_snapshot(client).await?.map(|open| place(open, b""));
    let over = |key: &&Vec<u8>| open.as_ref().is_none_or(|open| !key.starts_with(open));
    let mut removed = 0;
    for key in keys.iter().filter(over) {
        removed += usize::from(index.delete(client, key).await?);
    }
    Ok(found == REMOVED_AT_ONCE && removed > 0)
}

/// Returns whether this is the key of a preserved value.
pub fn is_old_value(key: &[u8]) -> bool {
    key.starts_with(&OLD_VALUES)
}

/// The key under which a key's value is preserved.
fn place(snapshot: SnapshotId, key: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(FRONT + key.len());
    place.extend_from_slice(&OLD_VALUES);
    place.extend_from_slice(&snapshot.number().to_be_bytes());
    place.extend_from_slice(key);
    place
}

/// The keys under which the values of the keys between two bounds are preserved.
fn places(snapshot: SnapshotId, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> ScanRange {
    let all = ScanRange::prefix(&place(snapshot, b""));
    let bound = |bound: &Bound<Vec<u8>>, all: Bound<Vec<u8>>| match bound {
        Bound::Unbounded => all,
        bound => bound.clone().map(|key| place(snapshot, &key)),
    };
    ScanRange { from: bound(from, all.from), to: bound(to, all.to), reverse: false }
}

/// The value in a record.
fn value_of(mut record: Vec<u8>) -> Option<Vec<u8>> {
    if record.first() != Some(&PRESENT) {
        return None;
    }
    record.remove(0);
    Some(record)
}

fn slices(keys: &[Vec<u8>]) -> Vec<&[u8]> {
    keys.iter().map(Vec::as_slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Unscheduled, advance, alone, executes, finish, process_on};
    use crate::{Dart, Quiver, QuiverOptions};
    use darter_fabric::{Local, block_on};
    use darter_pool::{Pool, PoolOptions};
    use darter_sim::{Executor, Sim};
    use std::collections::BTreeMap;

    /// Begins a snapshot between two operations of many clients' interleaved changes, and compares it
    /// with a model, read in parts of every size between the later changes.
    fn a_snapshot_is_as_of_its_beginning<I: OrderedIndex<Local>>() {
        let pool =
            block_on(Pool::create(Local::memory(32 << 20, 1).unwrap(), &PoolOptions::default())).unwrap();
        let mut client = pool.client().unwrap();
        let index = block_on(I::open_or_create(&mut client, I::Options::default())).unwrap();
        let mut seed = 1_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        // Keys on both sides of the preserved values.
        let key =
            |n: u64| if n < 40 { vec![b'k', n as u8] } else { vec![0xff, b'm' + (n % 6) as u8, n as u8] };
        let key = |n: u64| Some(key(n)).filter(|key| !is_old_value(key)).unwrap_or_else(|| vec![0xff]);
        let mut model = BTreeMap::new();
        for round in 0..30 {
            let mut change = |model: &mut BTreeMap<Vec<u8>, Vec<u8>>, client: &mut Client<Local>| {
                let key = key(random(80));
                let mut pinned = block_on(begin_change(&index, client, &[&key])).unwrap();
                if random(3) == 0 {
                    block_on(index.delete(&mut pinned, &key)).unwrap();
                    model.remove(&key);
                } else {
                    let value = vec![random(256) as u8; random(200) as usize];
                    block_on(index.put(&mut pinned, &key, &value, Condition::Always)).unwrap();
                    model.insert(key, value);
                }
            };
            (0..20).for_each(|_| change(&mut model, &mut client));
            let expected = model.clone();
            let snapshot = block_on(pool.begin_snapshot(&mut client)).unwrap();
            let (mut range, mut found, limit) = (ScanRange::all(), Vec::new(), round + 1);
            loop {
                (0..5).for_each(|_| change(&mut model, &mut client));
                let part = block_on(scan_at(&index, &mut client, snapshot, &range, limit)).unwrap();
                found.extend(part.pairs);
                let Some(rest) = part.rest else { break };
                range.from = rest;
            }
            assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>(), "parts of {limit}");
            for key in (0..80).map(key) {
                let value = block_on(get_at(&index, &mut client, snapshot, &key)).unwrap();
                assert_eq!(value.as_ref(), expected.get(&key));
            }
            assert!(block_on(pool.end_snapshot(&mut client, snapshot)).unwrap());
        }
        while block_on(remove_old_values(&index, &mut client)).unwrap() {}
        let left = block_on(index.scan(&mut client, &ScanRange::all(), 1000)).unwrap();
        assert_eq!(left, model.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_snapshot_of_quiver_is_as_of_its_beginning() {
        a_snapshot_is_as_of_its_beginning::<Quiver<Local>>();
    }

    #[test]
    fn a_snapshot_of_dart_is_as_of_its_beginning() {
        a_snapshot_is_as_of_its_beginning::<Dart<Local>>();
    }

    /// A key that is present when a snapshot begins, with its value, and one that is absent.
    const KEYS: [(&[u8], Option<&[u8]>); 2] = [(b"pear", Some(b"true")), (b"quince", None)];

    /// A client runs `operation` on a key, and stops after each of its events in turn. Then another
    /// client changes the key, and the first one goes on. The snapshot shows the value from before.
    fn beside_another_change(
        operation: &impl AsyncFn(&Quiver<Sim>, &mut Client<Sim>, SnapshotId, (&[u8], Option<&[u8]>)),
    ) {
        for (key, value) in KEYS {
            for events in 0.. {
                let sim = Sim::new(1, 8 << 20);
                let options = QuiverOptions { cache_bytes: 0, ..QuiverOptions::default() };
                let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, options, &[b"fig", b"pear", b"plum"]);
                let [mut owner, mut one, mut other] = [(); 3].map(|()| pool.client().unwrap());
                let snapshot = block_on(pool.begin_snapshot(&mut owner)).unwrap();
                let _at_the_end = Unscheduled(sim.clone());
                let mut executor = Executor::new(&sim);
                let task = executor.spawn(0, operation(&quiver, &mut one, snapshot, (key, value)));
                let has_ended = advance(&mut executor, task, events, executes);
                alone(&pool, change(&quiver, &mut other, key));
                finish(&mut executor, task);
                let found = alone(&pool, get_at(&quiver, &mut owner, snapshot, key)).unwrap();
                assert_eq!(found.as_deref(), value, "after {events} events");
                drop(executor);
                if has_ended {
                    assert!(events > 1);
                    break;
                }
            }
        }
    }

    async fn change(quiver: &Quiver<Sim>, client: &mut Client<Sim>, key: &[u8]) {
        let mut pinned = begin_change(quiver, client, &[key]).await.unwrap();
        quiver.put(&mut pinned, key, b"changed", Condition::Always).await.unwrap();
    }

    #[test]
    fn the_value_that_was_preserved_first_stays() {
        beside_another_change(&async |quiver, client, _, (key, _)| change(quiver, client, key).await);
    }

    #[test]
    fn a_reader_beside_a_change_finds_the_old_value() {
        beside_another_change(&async |quiver, client, snapshot, (key, value)| {
            assert_eq!(get_at(quiver, client, snapshot, key).await.unwrap().as_deref(), value);
        });
        beside_another_change(&async |quiver, client, snapshot, (key, value)| {
            let part = scan_at(quiver, client, snapshot, &ScanRange::prefix(key), 10).await.unwrap();
            let expected = value.map(|value| (key.to_vec(), value.to_vec()));
            assert_eq!(part.pairs, expected.into_iter().collect::<Vec<_>>());
        });
    }

    /// What cannot be preserved ends the snapshot, and not the change.
    #[test]
    fn a_key_too_long_to_be_preserved_ends_the_snapshot() {
        let pool =
            block_on(Pool::create(Local::memory(32 << 20, 1).unwrap(), &PoolOptions::default())).unwrap();
        let mut client = pool.client().unwrap();
        let index = block_on(Quiver::create(&mut client, QuiverOptions::default())).unwrap();
        let snapshot = block_on(pool.begin_snapshot(&mut client)).unwrap();
        let key = vec![7; KEY_BYTES_MAX - FRONT + 1];
        drop(block_on(begin_change(&index, &mut client, &[&key[1..]])).unwrap());
        assert_eq!(block_on(pool.read_open_snapshot(&mut client)).unwrap(), Some(snapshot));
        drop(block_on(begin_change(&index, &mut client, &[&key])).unwrap());
        assert_eq!(block_on(pool.read_open_snapshot(&mut client)).unwrap(), None);
        assert_eq!(client.open_snapshot(), None, "nothing more is preserved");
    }
}
