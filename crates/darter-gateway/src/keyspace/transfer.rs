//! Copies of keys, for `COPY`, `RENAME` and `RENAMENX`.
//!
//! Over an index with transactions each of these commands is one transaction, in which the steps
//! below take effect together, unless the key is too large (`commands/transactions.rs`). The rest of
//! this text is about copies without a transaction.
//!
//! The places of a hash's or sorted set's elements contain their key. A copy therefore writes all
//! elements again, into a generation that no head names yet, and then replaces the destination's
//! head (`drafts.rs`): other clients see the old destination or the whole new one.
//!
//! A rename copies the key and then removes the source, if the source is still the same as when it
//! was copied. A string is the same if its head is. Before a hash or a sorted set is copied, a
//! doubt is written into its head, and every client that adds an element removes the doubt
//! (`aggregate.rs`). If the source has changed, the rename starts over. So no acknowledged write is
//! lost, whichever gateway dies, but other clients may see both keys, and a gateway that dies may
//! leave both.
//!
//! A writer that finds the doubt of a rename leaves it in place for a second, for two seconds at
//! the second attempt, and for four at the third, so that the rename succeeds. A copy stops as soon
//! as its doubt is gone, and is removed before the next attempt.

use super::aggregate::{Aggregate, HELD_LOOK, bury, is_empty, mark};
use super::drafts::{Copied, place_of_announcement};
use super::order::Scored;
use super::{Family, Head, Keyspace, Kind, Retries, Walked, check_key, place, session};
use crate::fault::Fault;
use crate::turns;
use std::time::{Duration, Instant};

/// Elements copied between two updates of the record that announces them.
const CHUNK: usize = 512;
/// How often a rename copies the elements of a key while other clients change it.
const COPIES: u8 = 3;

/// The treatment of a copy's destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// It is replaced.
    Replaced,
    /// It is kept if it exists.
    Kept,
}

/// The result of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transferred {
    /// The source does not exist.
    NoSource,
    /// The destination exists and was kept.
    Kept,
    /// The destination is equal to the source.
    Done,
}

/// Returns when a record that announces elements was written.
pub(super) fn written_at(record: &[u8]) -> Option<u64> {
    record.try_into().map(u64::from_le_bytes).ok()
}

impl Keyspace {
    /// Returns the record of a key's head and its elements, unless the key is absent.
    ///
    /// # Errors
    /// The store's errors, and [`crate::fault::FOREIGN`].
    pub(crate) async fn source(&mut self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Aggregate>)>, Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(None) };
        let aggregate = Aggregate::of(key, &Head::parse(&record)?);
        if let Some(aggregate) = &aggregate
            && is_empty(session(&mut self.session, &self.store)?, aggregate, self.now).await?
        {
            return Ok(None);
        }
        Ok(Some((record, aggregate)))
    }

    /// Counts the elements of a key that are separate records, up to `most`.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn count_elements(&mut self, key: &[u8], most: usize) -> Result<usize, Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(0) };
        let aggregate = Aggregate::of(key, &Head::parse(&record)?);
        // A list or a stream is only copied in a transaction.
        let Some(aggregate) = aggregate.filter(|aggregate| !aggregate.kind().lasts()) else {
            return Ok(0);
        };
        let mut count = 0;
        self.walk_elements(&mut aggregate.elements(), most, |_, _| count += 1).await?;
        Ok(count)
    }

    /// Copies the value of a head. Returns `None` if the source has ended by then, or if it has
    /// changed and must not change.
    async fn duplicate(
        &mut self,
        source: &[u8],
        elements: Option<&Aggregate>,
        (database, to): (u8, &[u8]),
        must_last: bool,
    ) -> Result<Option<Copied>, Fault> {
        let head = Head::parse(source)?;
        let mut record = Vec::new();
        let Some(elements) = elements else {
            head.rewrite(&mut record, head.expiry);
            return Ok(Some(Copied { record, aggregate: None }));
        };
        if head.kind.lasts() && !self.is_in_transaction() {
            return Err(Fault::said(format!(
                "ERR the {} is too large to be copied or renamed in one transaction; nothing has changed",
                head.kind.name()
            )));
        }
        let generation = darter_fabric::random_word().to_le_bytes();
        let copy = Aggregate::new(head.kind, to, generation);
        head.with_generation(&mut record, generation);
        let copied = Copied { record, aggregate: Some(copy.clone()) };
        let (head, own) = (must_last.then_some(source), self.database());
        let is_copied = self.copy_elements(elements, (database, &copy), head).await;
        if matches!(is_copied, Ok(true)) {
            return Ok(Some(copied));
        }
        self.select(database)?;
        self.discard(&copied).await?;
        self.select(own)?;
        is_copied.map(|_| None)
    }

    /// Copies elements as long as their generation is current or, if `head` is given, as long as
    /// the head is unchanged. Returns whether that is still the case.
    async fn copy_elements(
        &mut self,
        from: &Aggregate,
        (database, to): (u8, &Aggregate),
        head: Option<&[u8]>,
    ) -> Result<bool, Fault> {
        let own = [from.names()];
        let families = if from.kind() == Kind::Stream { from.kind().families() } else { &own };
        for &family in families {
            if !self.copy_family(from, (database, to), family, head).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies the elements of a family, as [`Keyspace::copy_elements`] does.
    async fn copy_family(
        &mut self,
        from: &Aggregate,
        (database, to): (u8, &Aggregate),
        family: Family,
        head: Option<&[u8]>,
    ) -> Result<bool, Fault> {
        let (began, announcement) = (Instant::now(), place_of_announcement(to));
        let mut at = Vec::new();
        place(&mut at, Family::Key, from.key());
        // Elements added during the copy may be copied, but not more than there were at the
        // beginning.
        let (mut most, mut count) = (CHUNK, 0);
        if head.is_none() {
            self.walk_elements(&mut from.elements_of(family), usize::MAX, |_, _| most += 2).await?;
        }
        let (mut elements, mut walked) = (from.elements_of(family), Walked::Paused);
        while walked == Walked::Paused {
            let now = self.now + began.elapsed().as_millis() as u64;
            let announced = session(&mut self.session, &self.store)?;
            let own = announced.enter(database);
            announced.store(&announcement, Some(&now.to_le_bytes())).await?;
            announced.enter(own);
            let mut met = Vec::new();
            let walk = self.walk_records(&mut elements, CHUNK, |name, record| {
                met.push((name.to_vec(), record.to_vec()));
            });
            walked = walk.await?;
            count += met.len();
            if head.is_none() && count > most {
                return Err(Fault::said(
                    "ERR other clients add to the key faster than it can be copied; nothing has changed",
                ));
            }
            let session = session(&mut self.session, &self.store)?;
            session.enter(database);
            for (name, record) in met {
                to.check(&name)?;
                session.store(&to.place(family, &name), Some(&record)).await?;
                if to.kind() == Kind::SortedSet {
                    // After the member, since the stamp is as old as the member.
                    let index = Scored::parse(&record)?.index(&name);
                    session.store(&to.place(Family::Score, &index), Some(b"")).await?;
                }
                turns::copied(record.len()).await;
            }
            session.enter(own);
            let is_same = |record: &[u8]| head.map_or_else(|| from.is_of(record), |head| head == record);
            let is_same = session.get_with(&at, is_same).await? == Some(true);
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the copy the value of a key, if the key may be replaced or is equal to
    /// `copied_before`. Returns whether it did.
    async fn publish(
        &mut self,
        to: &[u8],
        copied: &Copied,
        destination: Destination,
        copied_before: Option<&Copied>,
    ) -> Result<bool, Fault> {
        let before = copied_before.map(|copied| Head::parse(&copied.record)).transpose()?;
        let is_own = |head: &Head<'_>| match (&before, head.generation()) {
            (Some(before), None) => before == head,
            (Some(before), generation) => before.generation() == generation,
            (None, _) => false,
        };
        let replaces = destination == Destination::Replaced;
        self.install(to, copied, |head| replaces || head.is_none_or(&is_own)).await
    }

    /// Copies a key to a destination with another name.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn copy(
        &mut self,
        from: &[u8],
        to: &[u8],
        destination: Destination,
    ) -> Result<Transferred, Fault> {
        check_key(to)?;
        let mut retries = Retries::default();
        loop {
            let Some((record, elements)) = self.source(from).await? else { return Ok(Transferred::NoSource) };
            if destination == Destination::Kept && self.look(to, |head| head.is_some()).await? {
                return Ok(Transferred::Kept);
            }
            let Some(copied) =
                self.duplicate(&record, elements.as_ref(), (self.database(), to), false).await?
            else {
                let nothing = "ERR other clients keep replacing the key; nothing has changed";
                retries.again().await.map_err(|_| Fault::said(nothing))?;
                continue;
            };
            let is_placed = self.publish(to, &copied, destination, None).await?;
            return Ok(if is_placed { Transferred::Done } else { Transferred::Kept });
        }
    }

    /// Copies a key to another database, or moves it there, in the transaction in progress.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn send(
        &mut self,
        from: &[u8],
        (database, to): (u8, &[u8]),
        destination: Destination,
        moves: bool,
    ) -> Result<Transferred, Fault> {
        check_key(to)?;
        let Some((record, elements)) = self.source(from).await? else { return Ok(Transferred::NoSource) };
        let own = self.select(database)?;
        let is_kept = destination == Destination::Kept && self.look(to, |head| head.is_some()).await?;
        self.select(own)?;
        if is_kept {
            return Ok(Transferred::Kept);
        }
        let copied = self.duplicate(&record, elements.as_ref(), (database, to), false).await?;
        // Only another part of the transaction could have replaced the source.
        let Some(copied) = copied else { return Ok(Transferred::NoSource) };
        self.select(database)?;
        let is_placed = self.publish(to, &copied, destination, None).await?;
        self.select(own)?;
        if is_placed && moves {
            self.remove(from).await?;
        }
        Ok(if is_placed { Transferred::Done } else { Transferred::Kept })
    }

    /// Renames a key to another name.
    ///
    /// # Errors
    /// The store's errors, and an error if other clients keep changing the key.
    pub(crate) async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        destination: Destination,
    ) -> Result<Transferred, Fault> {
        check_key(to)?;
        let (mut before, mut copies) = (None, 0);
        let mut retries = Retries::default();
        while copies < COPIES && retries.again().await.is_ok() {
            let Some((mut record, elements)) = self.source(from).await? else {
                // If it was copied before, another client has removed it since.
                return Ok(if before.is_some() { Transferred::Done } else { Transferred::NoSource });
            };
            if destination == Destination::Kept
                && before.is_none()
                && self.look(to, |head| head.is_some()).await?
            {
                return Ok(Transferred::Kept);
            }
            let mut at = Vec::new();
            place(&mut at, Family::Key, from);
            // A list or a stream is read in the transaction that removes it.
            if let Some(elements) = elements.as_ref().filter(|elements| !elements.kind().lasts()) {
                self.wait_while_held(&at, &record).await?;
                let session = session(&mut self.session, &self.store)?;
                let marked = mark(session, elements, &record, self.now, 1 << copies).await?;
                let Some(marked) = marked else { continue };
                record = marked;
                copies += 1;
            }
            let Some(copied) =
                self.duplicate(&record, elements.as_ref(), (self.database(), to), true).await?
            else {
                continue;
            };
            let reader = session(&mut self.session, &self.store)?;
            if reader.get_with(&at, |other| other == record).await? != Some(true) {
                self.discard(&copied).await?;
                continue;
            }
            if !self.publish(to, &copied, destination, before.as_ref()).await? {
                return Ok(Transferred::Kept);
            }
            let session = session(&mut self.session, &self.store)?;
            if session.remove_if(&at, |other| other == record).await? {
                if let Some(elements) = &elements {
                    bury(session, elements, usize::MAX).await?;
                }
                return Ok(Transferred::Done);
            }
            before = Some(copied);
        }
        Err(Fault::said(if before.is_some() {
            "ERR other clients keep changing the key: the new key is a copy, and the old one is still there"
        } else {
            "ERR other clients keep changing the key: it was not renamed, nothing has changed"
        }))
    }

    /// Waits while another client's rename holds the head with this record.
    pub(super) async fn wait_while_held(&mut self, at: &[u8], record: &[u8]) -> Result<(), Fault> {
        let held = Duration::from_secs(Head::parse(record)?.held_seconds().into());
        let mut waited = Duration::ZERO;
        while self.may_sleep && !self.is_in_transaction() && waited < held {
            tokio::time::sleep(HELD_LOOK).await;
            waited += HELD_LOOK;
            let session = session(&mut self.session, &self.store)?;
            if session.get_with(at, |other| other == record).await? != Some(true) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Change, Expiry};
    use super::*;
    use darter::engine::Engine;
    use darter::{Store, block_on};
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    const NOW: u64 = 1_800_000_000_000;
    const FORGOTTEN_MS: u64 = 3_600_000;
    const FIELDS: u32 = 600;

    struct Pool {
        store: Store,
        keys: Keyspace,
        walk: Expiry,
    }

    impl Pool {
        /// A pool with a hash.
        fn new() -> Self {
            let store = Store::open("mem:64M").unwrap();
            let mut keys = Keyspace::new(store.clone(), Arc::default());
            keys.now = NOW;
            let mut pool = Self { store, keys, walk: Expiry::default() };
            (0..FIELDS).for_each(|field| pool.add(b"from", field));
            pool
        }

        fn add(&mut self, key: &[u8], field: u32) {
            let keys = &mut self.keys;
            block_on(async {
                let hash = keys.open(key, Kind::Hash).await.unwrap();
                keys.set_field(&hash, &field.to_be_bytes(), b"value").await.unwrap();
                assert!(keys.confirm(&hash).await.unwrap());
            });
        }

        fn fields(&mut self, key: &[u8]) -> usize {
            block_on(async {
                let Some(hash) = self.keys.find(key, Kind::Hash).await.unwrap() else { return 0 };
                let mut count = 0;
                self.keys.walk_elements(&mut hash.elements(), usize::MAX, |_, _| count += 1).await.unwrap();
                count
            })
        }

        fn records(&self, family: Family) -> usize {
            self.store.session_in(darter::engine::KeySpace::Gateway).unwrap().prefix([family as u8]).count()
        }

        /// Runs rounds of the background walk at a given time.
        fn sweep(&mut self, now: u64) {
            self.keys.now = now;
            for _ in 0..4 {
                while block_on(self.walk.step(&mut self.keys)).unwrap().census.is_none() {}
            }
            self.keys.now = NOW;
        }

        fn duplicate(&mut self) -> Copied {
            block_on(async {
                let (record, elements) = self.keys.source(b"from").await.unwrap().unwrap();
                self.keys.duplicate(&record, elements.as_ref(), (0, b"to"), false).await.unwrap().unwrap()
            })
        }
    }

    #[test]
    fn elements_of_a_copy_in_progress_are_not_leftovers() {
        let mut pool = Pool::new();
        let copied = pool.duplicate();
        pool.sweep(NOW + 1000);
        assert_eq!(pool.records(Family::Field), 2 * FIELDS as usize);
        assert_eq!(pool.fields(b"to"), 0);
        assert!(block_on(pool.keys.publish(b"to", &copied, Destination::Kept, None)).unwrap());
        pool.sweep(NOW + 2 * FORGOTTEN_MS);
        assert_eq!((pool.fields(b"from"), pool.fields(b"to")), (FIELDS as usize, FIELDS as usize));
        assert_eq!(pool.records(Family::Building), 0);
    }

    #[test]
    fn a_rename_that_is_disturbed_again_and_again_fails_and_leaves_no_copy() {
        let mut pool = Pool::new();
        let mut other = Pool {
            store: pool.store.clone(),
            keys: Keyspace::new(pool.store.clone(), Arc::default()),
            walk: Expiry::default(),
        };
        other.keys.now = NOW;
        let mut added = FIELDS;
        let outcome = {
            let mut rename = pin!(pool.keys.rename(b"from", b"to", Destination::Replaced));
            loop {
                match rename.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(outcome) => break outcome,
                    Poll::Pending => other.add(b"from", added),
                }
                added += 1;
                assert!(added < FIELDS + 1000, "the copy continues although it was disturbed");
            }
        };
        let told = outcome.unwrap_err().text().into_owned();
        assert!(told.contains("nothing has changed"), "{told}");
        assert_eq!((pool.fields(b"from"), pool.fields(b"to")), (added as usize, 0));
        assert_eq!((pool.records(Family::Field), pool.records(Family::Building)), (added as usize, 0));
    }

    #[test]
    fn a_writer_waits_for_a_rename_that_is_at_work() {
        let mut pool = Pool::new();
        let at = [&[Family::Key as u8], &b"from"[..]].concat();
        let hash = block_on(pool.keys.find(b"from", Kind::Hash)).unwrap().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut other = Keyspace::new(pool.store.clone(), Arc::default());
            let session = session(&mut other.session, &other.store).unwrap();
            let record = session.get(&at).await.unwrap().unwrap();
            let marked = mark(session, &hash, &record, NOW, 4).await.unwrap().unwrap();
            pool.keys.may_sleep = true;
            let mut confirm = pin!(pool.keys.confirm(&hash));
            assert!(poll_fn(|context| Poll::Ready(confirm.as_mut().poll(context).is_pending())).await);
            // The writer may remove the mark after four seconds, and not before.
            assert!(session.remove_if(&at, |other| other == marked).await.unwrap());
            assert!(!confirm.await.unwrap(), "the write does not persist");
        });
    }

    #[test]
    fn a_clock_that_steps_takes_no_copy_at_work() {
        let mut pool = Pool::new();
        let copied = pool.duplicate();
        pool.walk.trust_clock(false);
        pool.sweep(NOW + 10 * FORGOTTEN_MS);
        assert_eq!(pool.records(Family::Building), 1);
        assert!(block_on(pool.keys.publish(b"to", &copied, Destination::Kept, None)).unwrap());
        assert_eq!(pool.fields(b"to"), FIELDS as usize);
    }

    #[test]
    fn elements_of_a_copy_that_was_never_finished_go_after_an_hour() {
        let mut pool = Pool::new();
        pool.duplicate();
        pool.sweep(NOW + 2 * FORGOTTEN_MS);
        assert_eq!((pool.records(Family::Field), pool.records(Family::Building)), (FIELDS as usize, 0));
        assert_eq!(pool.fields(b"from"), FIELDS as usize);
    }

    #[test]
    fn a_copy_that_is_refused_leaves_nothing() {
        let mut pool = Pool::new();
        let copied = pool.duplicate();
        block_on(pool.keys.set(b"to", b"there", None)).unwrap();
        assert!(!block_on(pool.keys.publish(b"to", &copied, Destination::Kept, None)).unwrap());
        assert_eq!((pool.records(Family::Field), pool.records(Family::Building)), (FIELDS as usize, 0));
        let look = pool.keys.look(b"to", |head| head.unwrap().string().unwrap().to_vec());
        assert_eq!(block_on(look).unwrap(), b"there");
    }

    #[test]
    fn a_rename_leaves_nothing_under_the_old_name() {
        let mut pool = Pool::new();
        let renamed = block_on(pool.keys.rename(b"from", b"to", Destination::Kept)).unwrap();
        assert_eq!((renamed, pool.fields(b"to")), (Transferred::Done, FIELDS as usize));
        assert_eq!((pool.records(Family::Field), pool.records(Family::Building)), (FIELDS as usize, 0));
        assert_eq!(pool.records(Family::Key), 1);
    }

    #[test]
    fn a_copy_ends_when_its_source_does() {
        let mut pool = Pool::new();
        let end = Some(NOW + 5000);
        block_on(async {
            let rewrite = |head: Option<Head<'_>>, record: &mut Vec<u8>| {
                head.unwrap().rewrite(record, end);
                Ok(Change::Put(()))
            };
            pool.keys.change(b"from", rewrite).await.unwrap();
            pool.keys.set(b"string", b"x", end).await.unwrap();
            for key in [&b"from"[..], b"string"] {
                let copied = pool.keys.copy(key, b"to", Destination::Replaced).await.unwrap();
                let expiry = pool.keys.look(b"to", |head| head.unwrap().expiry).await.unwrap();
                assert_eq!((copied, expiry), (Transferred::Done, end), "{}", key.escape_ascii());
            }
        });
    }

    #[test]
    fn a_copy_of_a_sorted_set_is_in_the_order_of_scores() {
        let mut pool = Pool::new();
        block_on(async {
            let set = pool.keys.open(b"set", Kind::SortedSet).await.unwrap();
            for (name, score) in [(b"a", 2.0), (b"b", 1.0)] {
                pool.keys.rescore(&set, name, |_| Ok(Some(score))).await.unwrap();
            }
            assert!(pool.keys.confirm(&set).await.unwrap());
            pool.keys.copy(b"set", b"to", Destination::Kept).await.unwrap();
            let copy = pool.keys.find(b"to", Kind::SortedSet).await.unwrap().unwrap();
            let mut ranks = copy.all_ranks(false, usize::MAX);
            for (name, score) in [(b"b", 1.0), (b"a", 2.0)] {
                let member = pool.keys.next_member(&mut ranks).await.unwrap().unwrap();
                assert_eq!((&member.name[..], member.score), (&name[..], score));
            }
        });
    }

    #[test]
    fn a_field_that_comes_between_the_copy_and_the_removal_is_not_lost() {
        let mut pool = Pool::new();
        let (from, elements) = block_on(pool.keys.source(b"from")).unwrap().unwrap();
        let elements = elements.unwrap();
        let marked = {
            let session = session(&mut pool.keys.session, &pool.keys.store).unwrap();
            block_on(mark(session, &elements, &from, NOW, 4)).unwrap().unwrap()
        };
        pool.duplicate();
        pool.add(b"from", FIELDS);
        let session = session(&mut pool.keys.session, &pool.keys.store).unwrap();
        assert!(!block_on(session.remove_if(b"kfrom", |record| record == marked)).unwrap());
        assert_eq!(
            block_on(pool.keys.rename(b"from", b"to", Destination::Replaced)).unwrap(),
            Transferred::Done
        );
        assert_eq!((pool.fields(b"from"), pool.fields(b"to")), (0, FIELDS as usize + 1));
    }
}
