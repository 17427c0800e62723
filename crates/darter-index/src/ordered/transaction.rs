//! The keys of a transaction, and its outcome: the parameters of [`super::OrderedIndex::commit`].

use crate::{IndexError, Result};
use darter_fabric::GlobalAddr;
use darter_pool::MemberId;

/// Where and when a key was read: as long as [`super::OrderedIndex::read_versions`] returns the same
/// version of a key, the key's value has not changed.
///
/// A version contains an address and the word there. Both can come back after the memory was freed
/// and allocated again, but not while the client's epoch is the same (rule R4 of the pool).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub(crate) place: GlobalAddr,
    pub(crate) word: u64,
    /// The state of the transaction whose intent the word names.
    pub(crate) state: Option<u8>,
    pub(crate) epoch: u64,
    pub(crate) member: MemberId,
}

/// A key's value, `None` if the key is absent, and its version, if it has one.
pub type Versioned = (Option<Vec<u8>>, Option<Version>);

/// One key of a transaction: the value that the transaction has read, and what it stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value that was read, `Some(None)` if the key was absent. `None` if the key was not read.
    pub read: Option<Option<&'a [u8]>>,
    /// The version of the value that was read, if it is known: it saves a round trip of a
    /// transaction that only reads.
    pub version: Option<Version>,
    /// The change; `None` leaves the key as it is.
    pub write: Option<Write<'a>>,
}

/// A transaction's change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Stores a value.
    Put(&'a [u8]),
    /// Removes the key, if it is present.
    Remove,
}

impl<'a> Write<'a> {
    /// The value after the change.
    pub fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Put(value) => Some(value),
            Self::Remove => None,
        }
    }
}

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// At one moment all keys had the values that were read, and received the new values.
    Done,
    /// Another client has changed a key that was read, or has aborted the transaction. Nothing has
    /// changed; the transaction may be run again.
    Conflict,
}

/// Verifies that the keys ascend strictly.
///
/// # Errors
/// [`IndexError::Options`].
pub(crate) fn check_order(accesses: &[Access<'_>]) -> Result<()> {
    if accesses.windows(2).all(|pair| pair[0].key < pair[1].key) {
        return Ok(());
    }
    Err(IndexError::Options("the keys of a transaction must ascend, each once"))
}
