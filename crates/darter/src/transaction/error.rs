//! The errors of transactions.

/// An error of a transaction.
///
/// ```
/// use darter::{Error, Store, TransactionError};
///
/// # fn main() -> Result<(), Error> {
/// let store = Store::open("mem:16M")?;
/// let mut transaction = store.transaction()?;
/// assert_eq!(transaction.get("pear")?, None);
/// store.put("pear", "green")?; // another client, say
/// transaction.put("plum", "blue")?;
/// let error = transaction.commit().unwrap_err();
/// assert!(matches!(error, Error::Transaction(TransactionError::Conflict)));
/// assert_eq!(store.get("plum")?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// Another client changed a key that the transaction had read, or needed one of its keys before
    /// it was committed. Nothing has changed; the transaction can be run again.
    #[error("conflict with another client: nothing has changed; run the transaction again")]
    Conflict,
    /// The transaction has too many keys.
    #[error("transaction of {keys} keys: at most {max} are possible; split it")]
    TooLarge {
        /// The number of its keys.
        keys: usize,
        /// The largest possible number.
        max: usize,
    },
    /// The transaction of a worker has too many bytes.
    #[error("transaction of {bytes} bytes: at most {max} are possible; split it")]
    TooManyBytes {
        /// The bytes of its keys and values.
        bytes: usize,
        /// The largest possible number.
        max: usize,
    },
}
