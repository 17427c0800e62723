//! The users of the pool: a record for each, under its name, with the rules that make it.

use super::{Family, Keyspace, place, session};
use crate::fault::Fault;
use darter::{Change, ScanRange};
use std::ops::Bound;

/// Most users that are read.
const USERS_MAX: usize = 10_000;

impl Keyspace {
    /// Returns the users' records, by name.
    ///
    /// # Errors
    /// The store's errors, and an error if there are too many users.
    pub(crate) async fn users(&mut self) -> Result<Vec<(String, Vec<u8>)>, Fault> {
        self.outside(async |keys| {
            let from = Bound::Included(vec![Family::User as u8]);
            let to = Bound::Excluded(vec![Family::User as u8 + 1]);
            let range = ScanRange { from, to, reverse: false };
            let mut found = Vec::new();
            let session = session(&mut keys.session, &keys.store)?;
            let read = session.scan_with(&range, USERS_MAX, |place, record| {
                let name = String::from_utf8(place[1..].to_vec());
                found.extend(name.ok().map(|name| (name, record.to_vec())));
            });
            if read.await? == USERS_MAX {
                return Err(Fault::said("ERR the pool has more users than a gateway reads"));
            }
            Ok(found)
        })
        .await
    }

    /// Replaces a user's record by the one that `decide` makes from it, or removes it. Calls `decide`
    /// again if another client changes the record in between. Returns whether it has changed.
    ///
    /// # Errors
    /// The store's errors, and those of `decide`.
    pub(crate) async fn change_user(
        &mut self,
        name: &str,
        mut decide: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>, Fault> + Send,
    ) -> Result<bool, Fault> {
        self.outside(async |keys| {
            place(&mut keys.key, Family::User, name.as_bytes());
            let mut refused = None;
            let session = session(&mut keys.session, &keys.store)?;
            let changed = session.update(&keys.key, |record| match decide(record) {
                Ok(Some(new)) => Change::Put(new),
                Ok(None) if record.is_some() => Change::Remove,
                Ok(None) => Change::Keep,
                Err(fault) => {
                    refused = Some(fault);
                    Change::Keep
                }
            });
            let changed = changed.await?;
            refused.map_or(Ok(changed), Err)
        })
        .await
    }
}
