//! What an index operation returns instead of its result.

use darter_fabric::{FabricError, GlobalAddr};
use darter_pool::PoolError;

/// What an index operation returns.
pub type Result<T, E = IndexError> = std::result::Result<T, E>;

/// An error of an index operation. Whatever it says, what was stored before is intact.
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
        /// The index asked for.
        expected: &'static str,
        /// The word in the pool's root that names the index it holds; 0 for none.
        found: u64,
    },
    /// Bytes in the pool contradict the index's format.
    #[error("damaged pool at {addr}: {what}; run `darter check`")]
    Corrupt {
        /// Where.
        addr: GlobalAddr,
        /// What was found.
        what: &'static str,
    },
    /// An operation gave up: each of its attempts lost a race to another client, or met damage that
    /// looks like one.
    #[error(
        "no progress at {addr} in {attempts} attempts: other clients changed it each time, or the pool is damaged; try \
         again, and run `darter check` if that does not help"
    )]
    NoProgress {
        /// What it could not get past.
        addr: GlobalAddr,
        /// How often it tried.
        attempts: u32,
    },
    /// A client died, or gave up, while writing this key's value in place, and what is there is
    /// neither the old value nor the new one. Only indexes that write in place return this.
    #[error(
        "the value at {addr} was lost: its writer died while it wrote in place; put the key again, or delete it"
    )]
    LostInWrite {
        /// Where.
        addr: GlobalAddr,
    },
    /// The index was created for keys, or values, of one length.
    #[error("{what} of {bytes} bytes: this index holds {what}s of {expected} bytes only; create one for any")]
    WrongLength {
        /// "key" or "value".
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The only length.
        expected: usize,
    },
    /// A process can hold so many locks at a time. Only indexes with locks return this.
    #[error("this process holds {max} locks in the pool at once; let fewer operations run at a time")]
    TooManyLocks {
        /// Locks there can be.
        max: usize,
    },
    /// The keys are with another server by now, and the caller has not found it in many attempts.
    /// Only indexes with servers on several memory nodes return this.
    #[error("the keys of the range at {addr} have moved to another server each time; try again")]
    Moved {
        /// The range where they were.
        addr: GlobalAddr,
    },
    /// Options that cannot be fulfilled.
    #[error("index options: {0}")]
    Options(&'static str),
    /// A bulk load was given keys out of order.
    #[error("bulk load: key {at} is not above the one before it; sort the input and drop duplicates")]
    NotSorted {
        /// The position of the offending key, from 0.
        at: u64,
    },
    /// Bulk load into an index that has keys.
    #[error("bulk load needs an empty index; use put instead")]
    NotEmpty,
    /// The pool failed: out of space, most often.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Returns the name in a pool's kind word: a word begins with a name in capitals, then the format's
/// version.
fn name_in(kind: u64) -> Option<String> {
    let bytes = kind.to_le_bytes();
    let letters = bytes.iter().take_while(|byte| byte.is_ascii_uppercase());
    let name: String = letters.map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    match &*name {
        "" => None,
        // The word has room for four letters of its name.
        "quiv" => Some("quiver".to_owned()),
        _ => Some(name),
    }
}

/// Returns what a pool's kind word says that the pool holds.
fn held(kind: u64) -> String {
    let version = kind.to_le_bytes().into_iter().find(|&byte| byte != 0 && !byte.is_ascii_uppercase());
    match name_in(kind) {
        _ if kind == 0 => "no index".to_owned(),
        None => format!("an index of the unknown kind {kind:#x}"),
        Some(name) => format!("the index {name}, format {}", version.unwrap_or(0)),
    }
}

/// What to do about a pool with that kind word.
fn instead(kind: u64) -> &'static str {
    if kind == 0 {
        "create one, or open another pool"
    } else {
        "open the pool as that (`--index`), or another pool"
    }
}

impl IndexError {
    /// The error of an operation that found `what` at `addr`.
    pub const fn corrupt(addr: GlobalAddr, what: &'static str) -> Self {
        Self::Corrupt { addr, what }
    }

    /// Returns the name of the index that the pool holds, if that is why this one was refused.
    pub fn held_index(&self) -> Option<String> {
        match self {
            Self::NoIndex { found, .. } => name_in(*found),
            _ => None,
        }
    }

    /// Whether the pool's bytes are at fault: trying again would fail again.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::Pool(PoolError::Damaged { .. }) => true,
            Self::Fabric(error) | Self::Pool(PoolError::Fabric(error)) => error.is_bad_address(),
            _ => false,
        }
    }

    /// Whether the pool was full. Writers find that out before they link anything, so what they had
    /// allocated may be given back. After any other error it may be linked: the CAS may have landed
    /// though its reply was lost.
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
