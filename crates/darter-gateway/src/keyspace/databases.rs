//! The databases of a pool's gateways, as `SELECT` numbers them.
//!
//! The records of database 0 lie in [`KeySpace::Gateway`]. Each other database has the same kinds of
//! records in its own key space, which lies in that one after `d` and the database's number. So a
//! keyspace that has selected a database reaches only its keys, and only their heads, elements and
//! cursors.

use super::aggregate::Session;
use super::{Family, Keyspace, session};
use crate::fault::Fault;
use darter::ScanRange;
use darter::engine::KeySpace;
use std::ops::Bound;

/// The number of databases.
pub(crate) const DATABASES: u8 = 16;

fn space_of(database: u8) -> KeySpace {
    if database == 0 { KeySpace::Gateway } else { KeySpace::Database(database) }
}

/// Returns the place of a key's head in the index. A place that is too long is returned too.
pub(crate) fn place_in_index(database: u8, key: &[u8]) -> Vec<u8> {
    space_of(database).into_place([&[Family::Key as u8], key].concat())
}

/// Returns whether a place in the index is that of a key's head.
pub(crate) fn is_place_of_head(place: &[u8]) -> bool {
    let is_gateways = KeySpace::of_place(place) == KeySpace::Gateway;
    let record = if is_gateways { KeySpace::Gateway.key(place) } else { &[] };
    match record {
        [family, _, family_in_database, ..] if *family == Family::Database as u8 => {
            *family_in_database == Family::Key as u8
        }
        record => record.first() == Some(&(Family::Key as u8)),
    }
}

impl Session {
    /// Continues in another database. Returns the number of the one before.
    pub(super) fn enter(&mut self, database: u8) -> u8 {
        if database != self.database {
            self.worker.enter(space_of(database));
        }
        std::mem::replace(&mut self.database, database)
    }

    /// Returns the number of the first database after `last` that has records.
    pub(super) async fn next_database(&mut self, last: u8) -> Result<Option<u8>, Fault> {
        let from = Bound::Included(vec![Family::Database as u8, last + 1]);
        let to = Bound::Excluded(vec![Family::Database as u8, DATABASES]);
        let (range, mut found) = (ScanRange { from, to, reverse: false }, None);
        let before = self.enter(0);
        let scanned = self.scan_with(&range, 1, |place, _| found = place.get(1).copied()).await;
        self.enter(before);
        scanned?;
        Ok(found)
    }
}

impl Keyspace {
    /// Returns the number of the selected database.
    #[inline]
    pub(crate) fn database(&self) -> u8 {
        self.session.as_ref().map_or(0, |session| session.database)
    }

    /// Selects a database for what follows. Returns the number of the one before.
    ///
    /// # Errors
    /// The store's errors.
    #[inline]
    pub(crate) fn select(&mut self, database: u8) -> Result<u8, Fault> {
        if self.database() == database {
            return Ok(database);
        }
        Ok(session(&mut self.session, &self.store)?.enter(database))
    }

    /// Runs a part that works on records outside of the databases other than 0.
    ///
    /// # Errors
    /// Those of `run`, and the store's.
    pub(super) async fn outside<R>(
        &mut self,
        run: impl AsyncFnOnce(&mut Self) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let before = self.select(0)?;
        let done = run(self).await;
        self.select(before)?;
        done
    }
}
