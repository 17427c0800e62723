//! Transactions over any keys: between [`Keyspace::begin`] and [`Keyspace::commit`] all reads and
//! changes belong to one transaction of the index.
//!
//! Elements of a generation that a transaction ends are removed after its commit, so that removing
//! a large hash takes one change.

use super::aggregate::{bury, is_empty, mark};
use super::{Aggregate, Head, Keyspace, Kind, session};
use crate::fault::Fault;
use darter::engine::Worker;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

/// A connection to the pool, and the generations that its transaction in progress ends.
#[derive(Debug)]
pub(super) struct Session {
    worker: Worker,
    pub(super) ended: Vec<Aggregate>,
}

impl Session {
    pub(super) fn new(worker: Worker) -> Self {
        Self { worker, ended: Vec::new() }
    }
}

impl Deref for Session {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        &self.worker
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Worker {
        &mut self.worker
    }
}

/// The keys of the hash function for digests, so that clients cannot construct equal digests.
static DIGESTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Returns the elements of a key whose head is not in doubt; `None` for a string.
fn without_doubt(key: &[u8], record: &[u8]) -> Result<Option<Aggregate>, Fault> {
    let head = Head::parse(record)?;
    let aggregate = Aggregate::of(key, &head).filter(|aggregate| aggregate.kind() != Kind::Intent);
    Ok(aggregate.filter(|_| head.doubted_since().is_none()))
}

impl Keyspace {
    /// Begins a transaction that was run before this often.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) fn begin(&mut self, attempt: u16) -> Result<(), Fault> {
        session(&mut self.session, &self.store)?.begin_transaction(attempt);
        Ok(())
    }

    /// Returns whether a transaction is in progress.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_in_transaction())
    }

    /// Commits the transaction. Returns false if it must be run again.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn commit(&mut self) -> Result<bool, Fault> {
        let session = session(&mut self.session, &self.store)?;
        let is_done = session.commit_transaction().await?;
        let ended = std::mem::take(&mut session.ended);
        for aggregate in ended.iter().filter(|_| is_done) {
            // The walk removes what remains.
            if bury(session, aggregate, usize::MAX).await.is_err() {
                break;
            }
        }
        Ok(is_done)
    }

    /// Ends a transaction in progress without any change.
    pub(crate) fn roll_back(&mut self) {
        if let Some(session) = &mut self.session {
            session.roll_back();
            session.ended.clear();
        }
    }

    /// Puts a key's head in doubt if the key has elements, before a transaction reads all of them:
    /// a client that adds an element removes the doubt, which changes the head that the transaction
    /// verifies. If another client changes the head at the same time, it may stay without a doubt.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn hold(&mut self, key: &[u8]) -> Result<(), Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(()) };
        if let Some(aggregate) = without_doubt(key, &record)? {
            let session = session(&mut self.session, &self.store)?;
            mark(session, &aggregate, &record, self.now, 0).await?;
        }
        Ok(())
    }

    /// Returns whether the transaction will notice elements that other clients add to a key.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn is_held(&mut self, key: &[u8]) -> Result<bool, Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(true) };
        Ok(without_doubt(key, &record)?.is_none())
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
        let Some(aggregate) = Aggregate::of(key, &head) else {
            head.body.hash(&mut hasher);
            return Ok(Some(hasher.finish()));
        };
        if aggregate.kind() == Kind::Intent {
            if is_empty(session(&mut self.session, &self.store)?, &aggregate).await? {
                return Ok(None);
            }
            let mut hasher = DIGESTS.build_hasher();
            (Kind::String as u8, head.expiry).hash(&mut hasher);
            head.string()?.hash(&mut hasher);
            return Ok(Some(hasher.finish()));
        }
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
