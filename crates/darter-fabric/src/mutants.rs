//! Errors planted in the code on purpose, to see which of the project's checks find them: mutation
//! testing by hand.
//!
//! A planted error is a branch that [`mutant!`](crate::mutant) guards by a name. In a build without
//! the feature `mutants` the guard is `false` at compile time and nothing of the branch is left.
//! With the feature, one error is planted at a time: the one that the environment variable
//! `DARTER_MUTANT` names, which child processes inherit, or the one given to [`plant`].
//!
//! What each name stands for is listed in `darter-check`'s `mutants.rs`, which a test compares with
//! the code.

use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable that names the error to plant.
pub const VARIABLE: &str = "DARTER_MUTANT";

/// No error is planted.
const NONE: u64 = 0;
/// The environment has not been read yet.
const UNREAD: u64 = u64::MAX;

static PLANTED: AtomicU64 = AtomicU64::new(UNREAD);

/// Returns whether this build can plant errors.
pub const fn is_available() -> bool {
    cfg!(feature = "mutants")
}

/// Returns the number of a name: its FNV-1a hash.
#[doc(hidden)]
pub const fn id(name: &str) -> u64 {
    let (bytes, mut hash, mut at) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

/// Returns whether the error of this number is planted. Use [`mutant!`](crate::mutant).
#[doc(hidden)]
#[inline]
pub fn is_planted(id: u64) -> bool {
    if !is_available() {
        return false;
    }
    let planted = PLANTED.load(Ordering::Relaxed);
    if planted == UNREAD { read_environment() == id } else { planted == id }
}

#[cold]
fn read_environment() -> u64 {
    let planted = std::env::var(VARIABLE).map_or(NONE, |name| id(&name));
    PLANTED.store(planted, Ordering::Relaxed);
    planted
}

/// Plants the error of this name in the whole process, or none. Does nothing in a build that cannot
/// plant errors.
pub fn plant(name: Option<&str>) {
    PLANTED.store(name.map_or(NONE, id), Ordering::Relaxed);
}

/// Whether a planted error is to take effect: `true` while the error of this name is planted, in
/// builds with the feature `mutants` of `darter-fabric`; the constant `false` in all others.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutants::is_planted(const { $crate::mutants::id($name) })
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_planted_error_takes_effect() {
        assert!(!mutant!("test-one"));
        plant(Some("test-one"));
        assert_eq!((mutant!("test-one"), mutant!("test-two")), (is_available(), false));
        plant(None);
        assert!(!mutant!("test-one"));
    }
}
