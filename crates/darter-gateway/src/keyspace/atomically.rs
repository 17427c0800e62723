//! Transactions over any keys: between [`Keyspace::begin`] and [`Keyspace::commit`] all reads and
//! changes belong to one transaction of the index.
//!
//! A transaction that has read all elements of a key must notice elements that other clients add. It
//! therefore requires that the key's head was in doubt when it read it: a client that adds an
//! element removes the doubt, and the commit finds that the head has changed. The first run of a
//! transaction finds out which heads must be in doubt. If it was run several times in vain, clients
//! that would remove the doubts wait until it has ended, for a second at most.
//!
//! Elements of a generation that a transaction ends are removed after its commit, so that removing
//! a large hash takes one change.

use super::aggregate::{bury, doubtable, mark};
use super::{
    Aggregate, Family, Head, KEY_BYTES, Keyspace, Kind, Scoped, TOGETHER_MAX, place_of_head, session,
};
use crate::fault::Fault;
use crate::turns;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

/// The keys of the hash function for digests, so that clients cannot construct equal digests.
static DIGESTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Runs of a transaction after which other clients leave its doubts in place.
const STARVED: u16 = 4;
/// Seconds for which they do.
const HELD_SECONDS: u8 = 1;

impl Keyspace {
    /// Begins a transaction that was run before this often, and that reads all elements of the given
    /// keys.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn begin(&mut self, attempt: u16, held: &BTreeSet<Scoped>) -> Result<(), Fault> {
        let before = self.database();
        for (database, key) in held {
            self.select(*database)?;
            self.hold(key, if attempt < STARVED { 0 } else { HELD_SECONDS }).await?;
        }
        self.select(before)?;
        self.changed.clear();
        session(&mut self.session, &self.store)?.begin_transaction(attempt);
        Ok(())
    }

    /// Returns whether a transaction is in progress.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_in_transaction())
    }

    /// Returns whether the transaction in progress changes a record.
    pub(crate) fn is_changing(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_changing())
    }

    /// Returns whether the transaction in progress has read the head of a key whose elements have separate
    /// records.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) fn has_read_large(&mut self, key: &[u8]) -> Result<bool, Fault> {
        place_of_head(&mut self.key, key)?;
        let read = session(&mut self.session, &self.store)?.read_by_transaction(&self.key)?;
        let head = read.and_then(|record| Head::parse(record).ok());
        Ok(head.is_some_and(|head| head.generation().is_some() && !head.kind.lasts()))
    }

    /// Reads the heads of keys together, so that the commands of the transaction find them in memory.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn read_heads<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) -> Result<(), Fault> {
        let keys = keys.filter(|key| key.len() <= KEY_BYTES);
        let places: Vec<_> = keys.map(|key| [&[Family::Key as u8], key].concat()).collect();
        let session = session(&mut self.session, &self.store)?;
        let mut left = &places[..];
        while !left.is_empty() {
            let read = session.get_many_first(&left[..left.len().min(TOGETHER_MAX)]).await?;
            left = &left[read.len()..];
            turns::worked().await;
        }
        Ok(())
    }

    /// Returns the keys that the next run of the transaction must name when it begins.
    pub(crate) fn unheld(&mut self) -> BTreeSet<Scoped> {
        self.session.as_mut().map(|session| std::mem::take(&mut session.unheld)).unwrap_or_default()
    }

    /// Returns whether the transaction in progress has read records that never existed together.
    pub(crate) fn is_torn(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_torn)
    }

    /// Commits the transaction. Returns false if it must be run again.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn commit(&mut self) -> Result<bool, Fault> {
        let session = session(&mut self.session, &self.store)?;
        if session.is_changing() {
            session.end_chunks().await?;
        }
        let is_possible = session.unheld.is_empty() && !session.is_torn;
        let is_done = is_possible && session.commit_transaction().await?;
        let ended = std::mem::take(&mut session.ended);
        let before = session.database;
        for (database, aggregate) in ended.iter().filter(|_| is_done) {
            session.enter(*database);
            // The walk removes what remains.
            if bury(session, aggregate, usize::MAX).await.is_err() {
                break;
            }
        }
        session.enter(before);
        Ok(is_done)
    }

    /// Ends a transaction in progress without any change.
    pub(crate) fn roll_back(&mut self) {
        if let Some(session) = &mut self.session {
            session.roll_back();
            session.ended.clear();
            session.unheld.clear();
            session.is_torn = false;
            session.chunks.clear();
        }
    }

    /// Puts a key's head in doubt if the key has elements, and lets other clients leave the doubt in
    /// place for some seconds. If another client changes the head at the same time, it may stay
    /// without a doubt.
    async fn hold(&mut self, key: &[u8], held_seconds: u8) -> Result<(), Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(()) };
        if let Some(aggregate) = doubtable(key, &Head::parse(&record)?, held_seconds) {
            let session = session(&mut self.session, &self.store)?;
            let marked = mark(session, &aggregate, &record, self.now, held_seconds).await?;
            let database = session.database;
            session
                .held
                .extend(marked.filter(|_| held_seconds > 0).map(|record| (database, aggregate, record)));
        }
        Ok(())
    }

    /// Must be called when no further run of a transaction follows: lets the clients go on that wait
    /// for its end.
    ///
    /// # Errors
    /// The store's errors. The clients then wait for as long as the doubts say.
    pub(crate) async fn release(&mut self) -> Result<(), Fault> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let before = session.database;
        let mut done = Ok(());
        for (database, aggregate, record) in std::mem::take(&mut session.held) {
            session.enter(database);
            done = done.and(mark(session, &aggregate, &record, self.now, 0).await.map(drop));
        }
        session.enter(before);
        done
    }

    /// Returns a digest of a key's type, expiry time and value with all elements; `None` if the key
    /// is absent. Equal values have equal digests in one gateway.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn digest(&mut self, key: &[u8]) -> Result<Option<u64>, Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(None) };
        let head = Head::parse(&record)?;
        let mut hasher = DIGESTS.build_hasher();
        (head.kind as u8, head.expiry).hash(&mut hasher);
        // The head of a stream changes with its entries.
        let elements = Aggregate::of(key, &head).filter(|_| head.kind != Kind::Stream);
        let Some(aggregate) = elements else {
            head.body.hash(&mut hasher);
            return Ok(Some(hasher.finish()));
        };
        aggregate.generation().hash(&mut hasher);
        let (mut count, mut elements) = (0, aggregate.elements());
        let walk = self.walk_elements(&mut elements, usize::MAX, |name, element| {
            count += 1;
            (name, element).hash(&mut hasher);
        });
        walk.await?;
        Ok((count > 0).then(|| hasher.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::{Store, block_on};
    use std::sync::Arc;

    /// Runs commands in a transaction, and returns the round trips that they and the commit take.
    fn round_trips(keys: &mut Keyspace, body: impl AsyncFnOnce(&mut Keyspace)) -> [u64; 2] {
        block_on(async {
            keys.begin(0, &BTreeSet::new()).await.unwrap();
            let start = keys.counters().total().round_trips;
            body(keys).await;
            let end = keys.counters().total().round_trips;
            assert!(keys.commit().await.unwrap());
            [end - start, keys.counters().total().round_trips - end]
        })
    }

    #[test]
    fn doubts_are_held_for_a_transaction_that_has_failed_often_until_it_ends() {
        let store = Store::open("mem:64M").unwrap();
        let mut keys = Keyspace::new(store, Arc::default());
        let held = BTreeSet::from([(0, b"hash".to_vec())]);
        block_on(async {
            let hash = keys.open(b"hash", Kind::Hash).await.unwrap();
            keys.set_field(&hash, b"field", b"value").await.unwrap();
            assert!(keys.confirm(&hash).await.unwrap());
            for attempt in 0..STARVED + 2 {
                keys.begin(attempt, &held).await.unwrap();
                keys.roll_back();
                let record = keys.head_record(b"hash").await.unwrap().unwrap();
                let head = Head::parse(&record).unwrap();
                assert!(head.doubted_since().is_some());
                assert_eq!(head.held_seconds() > 0, attempt >= STARVED, "attempt {attempt}");
            }
            keys.release().await.unwrap();
            let record = keys.head_record(b"hash").await.unwrap().unwrap();
            assert_eq!(Head::parse(&record).unwrap().held_seconds(), 0);
        });
    }

    /// `cargo test -p darter-gateway --lib few_round_trips -- --nocapture` prints the numbers.
    #[test]
    fn transactions_of_many_commands_take_few_round_trips() {
        let store = Store::options().direct(false).open("mem:64M").unwrap();
        let mut keys = Keyspace::new(store, Arc::default());
        let names: Vec<Vec<u8>> = (0..100).map(|number| format!("key {number}").into_bytes()).collect();
        for _ in 0..2 {
            let set = round_trips(&mut keys, async |keys| {
                for name in &names {
                    keys.set(name, b"value", None).await.unwrap();
                }
            });
            let get = round_trips(&mut keys, async |keys| {
                keys.read_heads(names.iter().map(Vec::as_slice)).await.unwrap();
                for name in &names {
                    assert!(keys.look(name, |head| head.is_some()).await.unwrap());
                }
            });
            let hset = round_trips(&mut keys, async |keys| {
                let mut set = |_: usize, _: Option<&[u8]>, new: &mut Vec<u8>| {
                    new.extend_from_slice(b"value");
                    Ok(true)
                };
                let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                keys.add_elements((b"hash", Kind::Hash), &names, true, &mut set).await.unwrap();
            });
            println!("round trips, commands and commit: SET {set:?}, GET {get:?}, HSET {hset:?}");
            assert_eq!(set[0], 0);
            assert!(get[0] + get[1] <= 12 && hset[0] <= 10, "{get:?} {hset:?}");
        }
    }
}
