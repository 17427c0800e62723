//! Removes the remains of hashes, sorted sets and sets of dead processes, in a walk over all records in
//! small steps: elements of generations that have ended, heads without elements, and index records
//! that no member refers to. It also removes the fields of hashes that have expired.

use super::aggregate::{Aggregate, bury, doubt, is_empty};
use super::order::{Scored, drawn_at, parse_index};
use super::{Family, Head, Kind, Session, place, timed};
use crate::fault::Fault;
use darter::ScanRange;
use std::ops::Bound;

/// Generations whose heads are read in a step.
pub(super) const LOOKS: usize = 100;
/// Elements removed in a step.
const BURIED: usize = 1000;
/// Index records examined in a step.
const INDEXED: usize = 1000;
/// How long a key must have been empty, without any write, before its head is removed.
pub(super) const IDLE_MS: u64 = 60_000;
/// The age from which no writer can still be working on an index record: far beyond the longest
/// silence of a pool's member.
const FORGOTTEN_SECONDS: u64 = 3600;
/// The same in ms, for everything that a writer has begun.
pub(crate) const FORGOTTEN_MS: u64 = FORGOTTEN_SECONDS * 1000;

/// The progress after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SweepProgress {
    /// There is more to do.
    On,
    /// There is more to do, and it is worth continuing at once.
    OnAtOnce,
    /// The end was reached.
    Ended,
}

/// Returns whether a generation is its key's current one, or will become it.
async fn counts(session: &mut Session, aggregate: &Aggregate) -> Result<bool, Fault> {
    let mut at = Vec::new();
    place(&mut at, Family::Key, aggregate.key());
    let counts = |record: &[u8]| aggregate.is_of(record);
    if session.get_with(&at, counts).await?.unwrap_or(false) {
        return Ok(true);
    }
    let mut building = Vec::new();
    place(&mut building, Family::Building, aggregate.stem());
    if session.get_with(&building, |_| ()).await?.is_some() {
        return Ok(true);
    }
    // It may have become current before that record was removed.
    Ok(session.get_with(&at, counts).await?.unwrap_or(false))
}

/// Removes, among the records of a family, the elements of generations that have ended. An element
/// is only ever written after its head, or after a record that announces it (`transfer.rs`), so a
/// head that is absent or has another generation will not appear.
pub(super) async fn graves(
    session: &mut Session,
    left: &mut ScanRange,
    family: Family,
) -> Result<SweepProgress, Fault> {
    let mut progress = SweepProgress::On;
    for _ in 0..LOOKS {
        let mut met = None;
        session.scan_with(left, 1, |place, _| met = Some(place.to_vec())).await?;
        let Some(met) = met else { return Ok(SweepProgress::Ended) };
        let Some(aggregate) = Aggregate::of_place(family, &met) else {
            // The record was not written by a gateway.
            left.from = Bound::Excluded(met);
            continue;
        };
        if !counts(session, &aggregate).await? {
            progress = SweepProgress::OnAtOnce;
            if !bury(session, &aggregate, BURIED).await? {
                break;
            }
        }
        if let Bound::Excluded(end) = aggregate.range(family).to {
            left.from = Bound::Included(end);
        }
    }
    Ok(progress)
}

/// Removes, among the records of large hashes, the fields that have ended.
pub(super) async fn fields(
    session: &mut Session,
    left: &mut ScanRange,
    now: u64,
) -> Result<SweepProgress, Fault> {
    for _ in 0..LOOKS {
        let mut met = None;
        session.scan_with(left, 1, |place, _| met = Some(place.to_vec())).await?;
        let Some(met) = met else { return Ok(SweepProgress::Ended) };
        let Some(hash) = Aggregate::of_place(Family::Field, &met) else {
            // The record was not written by a gateway.
            left.from = Bound::Excluded(met);
            continue;
        };
        let mut at = Vec::new();
        place(&mut at, Family::Key, hash.key());
        let is_timed = |record: &[u8]| {
            hash.is_of(record) && Head::parse(record).is_ok_and(|head| head.kind == Kind::TimedHash)
        };
        if session.get_with(&at, is_timed).await? == Some(true) {
            let (removed, goes_on) = timed::remove_ended(session, &hash, left, INDEXED, now).await?;
            if goes_on {
                let is_dense = removed * 10 >= INDEXED;
                return Ok(if is_dense { SweepProgress::OnAtOnce } else { SweepProgress::On });
            }
        }
        if let Bound::Excluded(end) = hash.range(Family::Field).to {
            left.from = Bound::Included(end);
        }
    }
    Ok(SweepProgress::On)
}

/// Removes index records that no member refers to and that no writer can be working on.
pub(super) async fn indexes(
    session: &mut Session,
    left: &mut ScanRange,
    now: u64,
) -> Result<SweepProgress, Fault> {
    let (mut old, mut last) = (Vec::new(), Vec::new());
    let seen = session.scan_with(left, INDEXED, |place, _| {
        last.clear();
        last.extend_from_slice(place);
        if let Some(set) = Aggregate::of_place(Family::Score, place)
            && let Some((member, stamp)) = parse_index(set.element(place))
            && drawn_at(stamp) + FORGOTTEN_SECONDS < now / 1000
        {
            old.push((place.to_vec(), set.place(Family::Member, &member), stamp));
        }
    });
    let seen = seen.await?;
    let members: Vec<&[u8]> = old.iter().map(|(_, member, _)| &member[..]).collect();
    let records = session.get_many(&members).await?;
    for ((place, _, stamp), record) in old.iter().zip(records) {
        let scored = record.and_then(|record| Scored::parse(&record).ok());
        if scored.is_none_or(|scored| scored.stamp != *stamp) {
            session.discard(place).await?;
        }
    }
    if seen < INDEXED {
        return Ok(SweepProgress::Ended);
    }
    left.from = Bound::Excluded(last);
    Ok(SweepProgress::On)
}

/// Removes a head without elements that has been in doubt for a long time, or puts it in doubt.
/// Returns whether it is worth continuing.
pub(super) async fn idle(session: &mut Session, at: &[u8], record: &[u8], now: u64) -> Result<bool, Fault> {
    let head = Head::parse(record)?;
    let Some(aggregate) = Aggregate::of(&at[1..], &head) else { return Ok(false) };
    if !is_empty(session, &aggregate, now).await? {
        return Ok(false);
    }
    match head.doubted_since() {
        None => doubt(session, &aggregate, record, now).await.map(|doubted| doubted.is_some()),
        Some(since) if since + IDLE_MS < now => {
            let is_same = |other: &[u8]| other == record;
            Ok(session.remove_if(at, is_same).await?)
        }
        Some(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::{Scored, stamp};
    use super::super::{Expiry, Keyspace, Kind};
    use super::*;
    use darter::engine::Engine;
    use darter::{Store, block_on};

    const NOW: u64 = 1_800_000_000_000;

    struct Pool {
        store: Store,
        keys: Keyspace,
        walk: Expiry,
    }

    impl Pool {
        fn new() -> Self {
            let store = Store::open("mem:64M").unwrap();
            let mut keys = Keyspace::new(store.clone(), std::sync::Arc::default());
            keys.now = NOW;
            Self { store, keys, walk: Expiry::default() }
        }

        /// Runs at least two rounds of the walk: the second finds the generations that ended during
        /// the first.
        fn walk(&mut self, now: u64) {
            self.keys.now = now;
            for _ in 0..2 {
                while block_on(self.walk.step(&mut self.keys)).unwrap().census.is_none() {}
            }
        }

        /// Returns the places that begin with a family's byte.
        fn places(&self, family: Family) -> Vec<Vec<u8>> {
            let session = self.store.session_in(darter::engine::KeySpace::Gateway).unwrap();
            session.prefix([family as u8]).map(|pair| pair.unwrap().0).collect()
        }

        /// Walks through a set whose members are named like their scores.
        fn assert_ranks(&mut self, set: &Aggregate, members: usize) {
            let mut ranks = set.all_ranks(false, usize::MAX);
            for number in 0..members {
                let member = block_on(self.keys.next_member(&mut ranks)).unwrap().unwrap();
                assert_eq!((&member.name[..], member.score), (&number.to_be_bytes()[..], number as f64));
            }
            assert!(block_on(self.keys.next_member(&mut ranks)).unwrap().is_none());
        }

        fn add(&mut self, key: &[u8], kind: Kind, names: usize) -> Aggregate {
            let keys = &mut self.keys;
            block_on(async {
                let aggregate = keys.open(key, kind).await.unwrap();
                for number in 0..names {
                    let name = number.to_be_bytes();
                    if kind == Kind::Hash {
                        keys.set_field(&aggregate, &name, b"value").await.unwrap();
                    } else {
                        keys.rescore(&aggregate, &name, |_| Ok(Some(number as f64))).await.unwrap();
                    }
                }
                assert!(keys.confirm(&aggregate).await.unwrap());
                aggregate
            })
        }
    }

    #[test]
    fn what_has_ended_is_buried_and_nothing_else() {
        let mut pool = Pool::new();
        for key in [&b"a"[..], b"aa", b"b", b"\xff\xff", b""] {
            pool.add(key, Kind::Hash, 300);
            pool.add(&[key, b"z"].concat(), Kind::SortedSet, 300);
        }
        for key in [&b"aa"[..], b"bz", b"\xff\xff"] {
            // A writer that does so does not read the old value.
            block_on(pool.keys.set(key, b"a string", None)).unwrap();
        }
        // A write of a client that had not noticed the change.
        let late = Aggregate::new(Kind::Hash, b"a", *b"12345678");
        block_on(pool.keys.set_field(&late, b"f", b"v")).unwrap();
        assert_eq!(pool.places(Family::Field).len(), 5 * 300 + 1);
        for _ in 0..5 {
            pool.walk(NOW);
        }
        assert_eq!(pool.places(Family::Field).len(), 3 * 300);
        assert_eq!(pool.places(Family::Member).len(), 4 * 300);
        assert_eq!(pool.places(Family::Score).len(), 4 * 300);
    }

    #[test]
    fn an_empty_key_is_removed_when_it_was_not_written_for_long() {
        let mut pool = Pool::new();
        let kept = pool.add(b"kept", Kind::Hash, 1);
        pool.add(b"idle", Kind::Hash, 0);
        pool.add(b"used", Kind::SortedSet, 0);
        pool.walk(NOW);
        assert_eq!(pool.places(Family::Key).len(), 3);
        // A write removes the doubt, even if the key is empty in the end.
        let used = pool.add(b"used", Kind::SortedSet, 1);
        block_on(pool.keys.remove_member(&used, &0_usize.to_be_bytes(), |_| true)).unwrap();
        pool.walk(NOW + IDLE_MS);
        assert_eq!(pool.places(Family::Key).len(), 3);
        pool.walk(NOW + IDLE_MS + 1);
        assert_eq!(pool.places(Family::Key), [&b"kkept"[..], b"kused"]);
        assert!(block_on(pool.keys.stands(&used)).unwrap() && block_on(pool.keys.stands(&kept)).unwrap());
        pool.walk(NOW + 3 * IDLE_MS);
        assert_eq!(pool.places(Family::Key), [&b"kkept"[..]]);
    }

    #[test]
    fn what_no_member_calls_for_goes_when_it_is_old() {
        let mut pool = Pool::new();
        let set = pool.add(b"z", Kind::SortedSet, 2000);
        let left = Scored { score: 5.0, stamp: stamp(NOW) };
        let session = pool.store.session_in(darter::engine::KeySpace::Gateway).unwrap();
        session.put(set.place(Family::Score, &left.index(&7_usize.to_be_bytes())), b"").unwrap();
        session.put(set.place(Family::Score, &left.index(b"nobody")), b"").unwrap();
        pool.assert_ranks(&set, 2000);
        pool.walk(NOW + FORGOTTEN_SECONDS * 1000);
        assert_eq!(pool.places(Family::Score).len(), 2002);
        pool.walk(NOW + FORGOTTEN_SECONDS * 1000 + 1000);
        assert_eq!(pool.places(Family::Score).len(), 2000);
        pool.assert_ranks(&set, 2000);
    }
}
