//! The errors of index operations.

use darter_fabric::{FabricError, GlobalAddr};
use darter_pool::PoolError;

/// The result of an index operation.
pub type Result<T, E = IndexError> = std::result::Result<T, E>;

/// An error of an index operation. After any error, previously stored data is intact.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The key is longer than [`crate::KEY_BYTES_MAX`].
    #[error("key of {bytes} bytes: keys hold at most {max} bytes; shorten it or store its hash")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Key and value together do not fit in one leaf of this pool.
    #[error(
        "value of {bytes} bytes: this pool holds at most {max}; split it, or create the pool with larger blocks"
    )]
    ValueTooLong {
        /// Its length.
        bytes: usize,
        /// The largest value for this key in this pool.
        max: usize,
    },
    /// The pool holds no index of this kind, or one of another format.
    #[error("the pool holds {}, not {expected} as this program knows it; {}", held(*found), instead(*found))]
    NoIndex {
        /// The index that was requested.
        expected: &'static str,
        /// The word in the pool's root that names the index it holds; 0 for none.
        found: u64,
    },
    /// Bytes in the pool contradict the index's format.
    #[error("damaged pool at {addr}: {what}; run `darter check`")]
    Corrupt {
        /// Where the damage is.
        addr: GlobalAddr,
        /// What is wrong.
        what: &'static str,
    },
    /// An operation gave up: each of its attempts lost a race to another client, or met damage that
    /// looks like a lost race.
    #[error(
        "no progress at {addr} in {attempts} attempts: other clients changed it each time, or the pool is damaged; try \
         again, and run `darter check` if that does not help"
    )]
    NoProgress {
        /// The place that kept changing.
        addr: GlobalAddr,
        /// Number of attempts.
        attempts: u32,
    },
    /// A client died, or gave up, while writing this key's value in place, and the value is now
    /// neither the old one nor the new one. Only indexes that write in place return this.
    #[error(
        "the value at {addr} was lost: its writer died while it wrote in place; put the key again, or delete it"
    )]
    LostInWrite {
        /// Where the value is.
        addr: GlobalAddr,
    },
    /// The index was created for keys, or values, of one length.
    #[error("{what} of {bytes} bytes: this index holds {what}s of {expected} bytes only; create one for any")]
    WrongLength {
        /// "key" or "value".
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The only valid length.
        expected: usize,
    },
    /// The number of locks that a process can hold at a time is limited. Only indexes with locks
    /// return this.
    #[error("this process holds {max} locks in the pool at once; let fewer operations run at a time")]
    TooManyLocks {
        /// Maximum number of locks.
        max: usize,
    },
    /// The keys have moved to another server, and the caller has not found it in many attempts.
    /// Only indexes with servers on several memory nodes return this.
    #[error("the keys of the range at {addr} have moved to another server each time; try again")]
    Moved {
        /// The range in which the keys were.
        addr: GlobalAddr,
    },
    /// Invalid or unsupported options.
    #[error("index options: {0}")]
    Options(&'static str),
    /// A bulk load was given keys out of order.
    #[error("bulk load: key {at} is not above the one before it; sort the input and drop duplicates")]
    NotSorted {
        /// The position of the offending key, from 0.
        at: u64,
    },
    /// Bulk load into an index that already has keys.
    #[error("bulk load needs an empty index; use put instead")]
    NotEmpty,
    /// The pool failed, most often because it is out of space.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Returns the name in a pool's kind word: the word begins with a name in capitals, followed by the
/// format's version.
fn name_in(kind: u64) -> Option<String> {
    let bytes = kind.to_le_bytes();
    let letters = bytes.iter().take_while(|byte| byte.is_ascii_uppercase());
    let name: String = letters.map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    match &*name {
        "" => None,
        // The word has room for only four letters of the name.
        "quiv" => Some("quiver".to_owned()),
        _ => Some(name),
    }
}

/// Returns a description of the pool's contents according to its kind word.
fn held(kind: u64) -> String {
    let version = kind.to_le_bytes().into_iter().find(|&byte| byte != 0 && !byte.is_ascii_uppercase());
    match name_in(kind) {
        _ if kind == 0 => "no index".to_owned(),
        None => format!("an index of the unknown kind {kind:#x}"),
        Some(name) => format!("the index {name}, format {}", version.unwrap_or(0)),
    }
}

/// What to do about a pool with this kind word.
fn instead(kind: u64) -> &'static str {
    if kind == 0 {
        "create one, or open another pool"
    } else {
        "open the pool as that (`--index`), or another pool"
    }
}

impl IndexError {
    /// Creates the error for damage `what` found at `addr`.
    pub const fn corrupt(addr: GlobalAddr, what: &'static str) -> Self {
        Self::Corrupt { addr, what }
    }

    /// Returns the name of the index that the pool holds, if that is why the requested one was
    /// refused.
    pub fn held_index(&self) -> Option<String> {
        match self {
            Self::NoIndex { found, .. } => name_in(*found),
            _ => None,
        }
    }

    /// Whether the pool's bytes are damaged, so that a retry would fail again.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::Pool(PoolError::Damaged { .. }) => true,
            Self::Fabric(error) | Self::Pool(PoolError::Fabric(error)) => error.is_bad_address(),
            _ => false,
        }
    }

    /// Whether the pool was full. Writers detect that before they link anything, so the objects
    /// that they had allocated may be freed. After any other error they may be linked: the CAS may
    /// have been executed although its reply was lost.
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, Self::Pool(PoolError::OutOfSpace { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_that_a_pool_holds_is_named() {
        let text = |kind: u64| IndexError::NoIndex { expected: "art", found: kind }.to_string();
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        assert!(text(0).contains("holds no index, not art"), "{}", text(0));
        for (kind, named) in [
            (word(b"QUIV\x02\0\0\0"), "the index quiver, format 2"),
            (word(b"DART\x05\0\0\0"), "the index dart, format 5"),
            (word(b"SHERMAN\x02"), "the index sherman, format 2"),
            (7, "unknown kind 0x7"),
        ] {
            assert!(text(kind).contains(named), "{}", text(kind));
        }
        let refused = IndexError::NoIndex { expected: "art", found: word(b"QUIV\x02\0\0\0") };
        assert_eq!(refused.held_index().as_deref(), Some("quiver"));
        assert_eq!(IndexError::Options("none").held_index(), None);
    }
}
