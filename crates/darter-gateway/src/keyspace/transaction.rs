//! Setting several keys at once or not at all: `MSETNX`.
//!
//! A transaction writes an *intent* into the head of each key: the value, and the transaction's
//! random id. Whether an intent is valid depends on one record, the transaction's, which is written
//! once and decides for all keys at the same moment:
//!
//! ```text
//! t, transaction (8 bytes) -> 1 if committed, 0 if aborted | time, 8 bytes, little-endian
//! ```
//!
//! Without that record the transaction is undecided, and for readers its keys are absent. A client
//! that needs to write one of these keys first aborts the transaction: both the client and the
//! owner write the record on condition that there is none, so only one of them succeeds. A gateway
//! that dies has therefore set all keys or none.
//!
//! The owner replaces the intents of a committed transaction with plain strings. The background
//! walk does so for the intents of a dead owner, and removes intents that are an hour old and did
//! not commit (`sweep.rs`). The record of a transaction is removed if it was an hour old at the
//! beginning of a whole round over the heads, in which the walk replaced all intents that depended
//! on it.

use super::head::Generation;
use super::{Change, Family, Head, Keyspace, Retries, place, session};
use crate::fault::Fault;
use crate::turns;
use darter::engine::Worker;
use darter::{Condition, PutOutcome};
use std::collections::BTreeMap;

/// The state of a decided transaction, the first byte of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Aborted = 0,
    Committed = 1,
}

fn place_of(transaction: Generation) -> Vec<u8> {
    let mut at = Vec::with_capacity(1 + size_of::<Generation>());
    place(&mut at, Family::Transaction, &transaction);
    at
}

/// Decides a transaction, unless it has been decided. Returns the valid verdict.
async fn decide(
    session: &mut Worker,
    transaction: Generation,
    verdict: Verdict,
    now: u64,
) -> Result<Verdict, Fault> {
    let record = [&[verdict as u8][..], &now.to_le_bytes()].concat();
    let at = place_of(transaction);
    if session.put_if(&at, &record, Condition::Absent).await? != PutOutcome::Refused {
        return Ok(verdict);
    }
    let is_committed = is_committed(session, transaction).await?;
    Ok(if is_committed { Verdict::Committed } else { Verdict::Aborted })
}

/// Returns whether a transaction has committed.
pub(super) async fn is_committed(session: &mut Worker, transaction: Generation) -> Result<bool, Fault> {
    let is_committed = |record: &[u8]| record.first() == Some(&(Verdict::Committed as u8));
    let is_committed = session.get_with(place_of(transaction), is_committed).await?;
    Ok(is_committed.unwrap_or(false))
}

/// Aborts a transaction, so that its intents can be replaced. Returns whether it is aborted.
pub(super) async fn abort(session: &mut Worker, transaction: Generation, now: u64) -> Result<bool, Fault> {
    Ok(decide(session, transaction, Verdict::Aborted, now).await? == Verdict::Aborted)
}

/// Returns when a transaction was decided.
pub(super) fn decided_at(record: &[u8]) -> Option<u64> {
    record.get(1..)?.try_into().map(u64::from_le_bytes).ok()
}

/// Replaces the intent at a place, whose transaction has committed, with a plain string.
pub(super) async fn finish(session: &mut Worker, at: &[u8], intent: &[u8]) -> Result<(), Fault> {
    let mut plain = Vec::with_capacity(intent.len());
    let head = Head::parse(intent)?;
    head.rewrite(&mut plain, head.expiry);
    session.put_if(at, &plain, Condition::Equals(intent)).await?;
    Ok(())
}

/// The intents of a transaction, by place.
type Intents = Vec<(Vec<u8>, Vec<u8>)>;

impl Keyspace {
    /// Sets keys to strings if none of them exists, all at the same moment. Returns whether they
    /// were set.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn set_all_if_absent(&mut self, pairs: &BTreeMap<&[u8], &[u8]>) -> Result<bool, Fault> {
        if self.is_in_transaction() {
            return self.set_all_in_transaction(pairs).await;
        }
        let mut retries = Retries::default();
        for attempt in 0_u32.. {
            let transaction = darter_fabric::random_word().to_le_bytes();
            let mut intents = Vec::with_capacity(pairs.len());
            let written = self.write_intents(pairs, transaction, &mut intents).await;
            let now = self.now;
            let session = session(&mut self.session, &self.store)?;
            if matches!(written, Ok(true))
                && decide(session, transaction, Verdict::Committed, now).await? == Verdict::Committed
            {
                for (at, intent) in &intents {
                    finish(session, at, intent).await?;
                    turns::worked().await;
                }
                return Ok(true);
            }
            for (at, intent) in &intents {
                session.remove_if(at, |record| record == *intent).await?;
                turns::worked().await;
            }
            if !written? {
                return Ok(false);
            }
            // Another client has aborted it. That may have been another transaction, which the next
            // attempt would also abort.
            for _ in 0..darter_fabric::random_word() % (1 << attempt.min(10)) {
                tokio::task::yield_now().await;
            }
            let nothing = "ERR other clients keep setting the same keys; nothing has changed";
            retries.again().await.map_err(|_| Fault::said(nothing))?;
        }
        unreachable!("attempts do not end")
    }

    /// Does the same as part of a transaction that is in progress.
    async fn set_all_in_transaction(&mut self, pairs: &BTreeMap<&[u8], &[u8]>) -> Result<bool, Fault> {
        for &key in pairs.keys() {
            if self.look(key, |head| head.is_some()).await? {
                return Ok(false);
            }
        }
        for (&key, &value) in pairs {
            self.set(key, value, None).await?;
        }
        Ok(true)
    }

    /// Writes an intent into the head of each key, in key order, and returns them in `intents`.
    /// Returns false at the first key that exists.
    async fn write_intents(
        &mut self,
        pairs: &BTreeMap<&[u8], &[u8]>,
        transaction: Generation,
        intents: &mut Intents,
    ) -> Result<bool, Fault> {
        let now = self.now;
        for (&key, &value) in pairs {
            let written = self.change(key, |head, record| {
                if head.is_some() {
                    return Ok(Change::Keep(None));
                }
                Head::begin_intent(record, transaction, now);
                record.extend_from_slice(value);
                Ok(Change::Put(Some(record.clone())))
            });
            let Some(record) = written.await? else { return Ok(false) };
            let mut at = Vec::with_capacity(1 + key.len());
            place(&mut at, Family::Key, key);
            intents.push((at, record));
            turns::worked().await;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Expiry, KeyRange, Kind};
    use super::*;
    use darter::engine::Engine;
    use darter::{Store, block_on};
    use std::sync::Arc;

    const NOW: u64 = 1_800_000_000_000;
    const FORGOTTEN_MS: u64 = 3_600_000;

    fn keyspace(store: &Store) -> Keyspace {
        let mut keys = Keyspace::new(store.clone(), Arc::default());
        keys.now = NOW;
        keys
    }

    fn pairs() -> BTreeMap<&'static [u8], &'static [u8]> {
        BTreeMap::from([(&b"a"[..], &b"1"[..]), (b"b", b"2")])
    }

    /// Writes the intents of a transaction whose owner does nothing further.
    fn begun(keys: &mut Keyspace) -> Generation {
        let transaction = *b"12345678";
        assert!(block_on(keys.write_intents(&pairs(), transaction, &mut Vec::new())).unwrap());
        transaction
    }

    fn decided(keys: &mut Keyspace, transaction: Generation, verdict: Verdict) -> Verdict {
        let session = session(&mut keys.session, &keys.store).unwrap();
        block_on(decide(session, transaction, verdict, NOW)).unwrap()
    }

    fn values(keys: &mut Keyspace) -> Vec<Option<Vec<u8>>> {
        let mut found = Vec::new();
        let visit = |head: Option<Head<'_>>| found.push(head.map(|head| head.string().unwrap().to_vec()));
        block_on(keys.look_at_first([&b"a"[..], b"b"].into_iter(), visit)).unwrap();
        for (key, value) in [(&b"a"[..], &found[0]), (b"b", &found[1])] {
            let looked = keys.look(key, |head| head.map(|head| head.string().unwrap().to_vec()));
            assert_eq!(block_on(looked).unwrap(), *value);
        }
        found
    }

    fn walked(keys: &mut Keyspace) -> usize {
        let mut count = 0;
        block_on(keys.walk(&mut KeyRange::all(), usize::MAX, |_, _| count += 1)).unwrap();
        count
    }

    /// Runs rounds of the background walk at a given time.
    fn sweep(keys: &mut Keyspace, walk: &mut Expiry, now: u64) {
        keys.now = now;
        for _ in 0..3 {
            while block_on(walk.step(keys)).unwrap().census.is_none() {}
        }
    }

    fn records(store: &Store, family: Family) -> Vec<Vec<u8>> {
        let session = store.session_in(darter::engine::KeySpace::Gateway).unwrap();
        session.prefix([family as u8]).map(|pair| pair.unwrap().1).collect()
    }

    #[test]
    fn keys_appear_when_the_transaction_commits_and_not_before() {
        let store = Store::open("mem:64M").unwrap();
        let mut keys = keyspace(&store);
        let transaction = begun(&mut keys);
        assert_eq!((values(&mut keys), walked(&mut keys)), (vec![None, None], 0));
        assert!(!block_on(keys.remove(b"a")).unwrap());
        assert!(block_on(keys.find(b"a", Kind::Hash)).unwrap().is_none());
        assert_eq!(decided(&mut keys, transaction, Verdict::Committed), Verdict::Committed);
        let both = vec![Some(b"1".to_vec()), Some(b"2".to_vec())];
        assert_eq!((values(&mut keys), walked(&mut keys)), (both, 2));
        assert!(block_on(keys.find(b"a", Kind::Hash)).is_err());
        // A change of one of them turns it into a plain string.
        let append = |head: Option<Head<'_>>, record: &mut Vec<u8>| {
            Head::begin(record, Kind::String, None);
            record.extend_from_slice(head.unwrap().string()?);
            record.push(b'!');
            Ok(Change::Put(()))
        };
        block_on(keys.change(b"a", append)).unwrap();
        assert!(block_on(keys.remove(b"b")).unwrap());
        assert_eq!(values(&mut keys), [Some(b"1!".to_vec()), None]);
    }

    #[test]
    fn a_client_that_writes_a_key_aborts_an_undecided_transaction() {
        let store = Store::open("mem:64M").unwrap();
        let mut keys = keyspace(&store);
        let transaction = begun(&mut keys);
        let mut other = keyspace(&store);
        let put = |head: Option<Head<'_>>, record: &mut Vec<u8>| {
            assert!(head.is_none());
            Head::begin(record, Kind::String, None);
            Ok(Change::Put(()))
        };
        block_on(other.change(b"b", put)).unwrap();
        assert_eq!(decided(&mut keys, transaction, Verdict::Committed), Verdict::Aborted);
        assert_eq!(values(&mut keys), [None, Some(Vec::new())]);
        // A hash may replace the other intent.
        let hash = block_on(other.open(b"a", Kind::Hash)).unwrap();
        block_on(other.set_field(&hash, b"f", b"v", false)).unwrap();
        assert!(block_on(other.confirm(&hash)).unwrap());
        assert!(!block_on(keys.set_all_if_absent(&pairs())).unwrap());
    }

    #[test]
    fn a_transaction_that_is_refused_leaves_no_intents() {
        let store = Store::open("mem:64M").unwrap();
        let mut keys = keyspace(&store);
        block_on(keys.set(b"b", b"there", None)).unwrap();
        assert!(!block_on(keys.set_all_if_absent(&pairs())).unwrap());
        assert_eq!(records(&store, Family::Key), [b"\0there"]);
    }

    #[test]
    fn what_dead_gateways_left_of_transactions_goes() {
        let store = Store::open("mem:64M").unwrap();
        let (mut keys, mut walk) = (keyspace(&store), Expiry::default());
        let transaction = begun(&mut keys);
        sweep(&mut keys, &mut walk, NOW + FORGOTTEN_MS);
        assert_eq!(records(&store, Family::Key).len(), 2);
        sweep(&mut keys, &mut walk, NOW + FORGOTTEN_MS + 1);
        assert!(records(&store, Family::Key).is_empty());
        keys.now = NOW;
        begun(&mut keys);
        decided(&mut keys, transaction, Verdict::Committed);
        sweep(&mut keys, &mut walk, NOW + 1);
        assert!(
            records(&store, Family::Key)
                .iter()
                .all(|record| Head::parse(record).unwrap().kind == Kind::String)
        );
        assert_eq!(records(&store, Family::Transaction).len(), 1);
        sweep(&mut keys, &mut walk, NOW + FORGOTTEN_MS + 1);
        assert!(records(&store, Family::Transaction).is_empty());
        assert_eq!(values(&mut keys), [Some(b"1".to_vec()), Some(b"2".to_vec())]);
    }
}
