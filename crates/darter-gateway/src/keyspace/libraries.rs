//! The libraries of functions, which all gateways of the pool share.
//!
//! The record `l` is the *directory*: the libraries' names, the digests of their code, and their
//! functions. The code of a library has its own record, `l` and the library's name. All are
//! read and changed in transactions, so that they match.

use super::{Family, Keyspace, place, session};
use crate::fault::Fault;

impl Keyspace {
    /// Returns the code of a library, or the directory for an empty name.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn library(&mut self, name: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.outside(async |keys| {
            place(&mut keys.key, Family::Library, name.as_bytes());
            Ok(session(&mut keys.session, &keys.store)?.get(&keys.key).await?)
        })
        .await
    }

    /// Stores the code of a library, or the directory; or removes it.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn set_library(&mut self, name: &str, record: Option<&[u8]>) -> Result<(), Fault> {
        self.outside(async |keys| {
            place(&mut keys.key, Family::Library, name.as_bytes());
            let session = session(&mut keys.session, &keys.store)?;
            match record {
                Some(record) => drop(session.put(&keys.key, record).await?),
                None => drop(session.remove_if(&keys.key, |_| true).await?),
            }
            Ok(())
        })
        .await
    }
}
