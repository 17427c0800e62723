//! Transactions over any keys: between [`Keyspace::begin`] and [`Keyspace::commit`] all reads and
//! changes belong to one transaction of the index.
//!
//! A transaction that has read all elements of a key must notice elements that other clients add. It
//! therefore requires that the key's head was in doubt when it read it: a client that adds an
//! element removes the doubt, and the commit finds that the head has changed. The first run of a
//! transaction finds out which heads must be in doubt.
//!
//! Elements of a generation that a transaction ends are removed after its commit, so that removing
//! a large hash takes one change.

use super::aggregate::{bury, is_empty, mark, without_doubt};
use super::{Aggregate, Head, Keyspace, Kind, session};
use crate::fault::Fault;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

/// The keys of the hash function for digests, so that clients cannot construct equal digests.
static DIGESTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Keyspace {
    /// Begins a transaction that was run before this often, and that reads all elements of the given
    /// keys.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn begin(&mut self, attempt: u16, held: &BTreeSet<Vec<u8>>) -> Result<(), Fault> {
        for key in held {
            self.hold(key).await?;
        }
        session(&mut self.session, &self.store)?.begin_transaction(attempt);
        Ok(())
    }

    /// Returns whether a transaction is in progress.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_in_transaction())
    }

    /// Returns the keys that the next run of the transaction must name when it begins.
    pub(crate) fn unheld(&mut self) -> BTreeSet<Vec<u8>> {
        self.session.as_mut().map(|session| std::mem::take(&mut session.unheld)).unwrap_or_default()
    }

    /// Commits the transaction. Returns false if it must be run again.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn commit(&mut self) -> Result<bool, Fault> {
        let session = session(&mut self.session, &self.store)?;
        let is_done = session.unheld.is_empty() && session.commit_transaction().await?;
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
            session.unheld.clear();
        }
    }

    /// Puts a key's head in doubt if the key has elements. If another client changes the head at the
    /// same time, it may stay without a doubt.
    async fn hold(&mut self, key: &[u8]) -> Result<(), Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(()) };
        if let Some(aggregate) = without_doubt(key, &record)? {
            let session = session(&mut self.session, &self.store)?;
            mark(session, &aggregate, &record, self.now, 0).await?;
        }
        Ok(())
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
