//! The switch for planted errors, which test what the project's checks find: mutation testing by
//! hand.
//!
//! `darter-lab mutants prepare` copies the sources and plants every error of `lab/check/mutants` in
//! the copy, each as a branch that [`mutant!`] guards by its name. One error takes effect at a time:
//! the one that the environment variable `DARTER_MUTANT` names, which child processes inherit, or
//! the one given to [`plant`]. The sources themselves never use this crate.

use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable that names the error to plant.
pub const VARIABLE: &str = "DARTER_MUTANT";

/// Whether these sources are a prepared copy. `darter-lab mutants prepare` changes this line in the
/// copy.
pub const IS_PREPARED: bool = false;

/// No error is planted.
const NONE: u64 = 0;
/// The environment has not been read yet.
const UNREAD: u64 = u64::MAX;

static PLANTED: AtomicU64 = AtomicU64::new(UNREAD);

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

/// Returns whether the error of this number is planted. Use [`mutant!`].
#[doc(hidden)]
#[inline]
pub fn is_planted(id: u64) -> bool {
    let planted = PLANTED.load(Ordering::Relaxed);
    if planted == UNREAD { read_environment() == id } else { planted == id }
}

#[cold]
fn read_environment() -> u64 {
    let planted = std::env::var(VARIABLE).map_or(NONE, |name| id(&name));
    PLANTED.store(planted, Ordering::Relaxed);
    planted
}

/// Plants the error of this name in the whole process, or none.
pub fn plant(name: Option<&str>) {
    PLANTED.store(name.map_or(NONE, id), Ordering::Relaxed);
}

/// Returns whether the error of this name is planted.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::is_planted(const { $crate::id($name) })
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_planted_error_takes_effect() {
        plant(Some("test-one"));
        assert_eq!((mutant!("test-one"), mutant!("test-two")), (true, false));
        plant(None);
        assert!(!mutant!("test-one"));
    }
}
