//! Rare situations of an index's protocol, counted per thread. An exploration is meaningful only if
//! it has met them.
//!
//! A thread counts once it has requested its counts. On any other thread, for example a
//! benchmark's, a situation costs the check of a flag.

use std::fmt;

/// A situation that an exploration should meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Situation {
    /// A node of one type was replaced by one of another type.
    Switch(&'static str, &'static str),
    /// A situation identified by its name.
    Met(&'static str),
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(from, to) => write!(f, "{from} -> {to}"),
            Self::Met(what) => f.write_str(what),
        }
    }
}

/// Defines situations of an index as constants, and all of them as `ALL`.
#[doc(hidden)]
#[macro_export]
macro_rules! situations {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub(super) const $name: $crate::checker::Situation =
            $crate::checker::Situation::Met($text);)*
        #[cfg(feature = "checker")]
        const ALL: &[$crate::checker::Situation] = &[$($name),*];
    };
}

/// Counts a situation. Does nothing without the feature `checker`.
#[cfg(not(feature = "checker"))]
#[inline]
pub const fn note(_: Situation) {}

#[cfg(feature = "checker")]
pub use counted::{note, take_situations, take_trail, trail_len, without_situations};

#[cfg(feature = "checker")]
mod counted {
    //! The counts.

    use super::Situation;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;

    thread_local! {
        /// Whether the thread counts.
        static COUNTS_HERE: Cell<bool> = const { Cell::new(false) };
        static COUNTS: RefCell<BTreeMap<Situation, u64>> = const { RefCell::new(BTreeMap::new()) };
        /// The situations met since the last [`take_trail`], each once, in the order in which they
        /// were first met.
        static TRAIL: RefCell<Vec<Situation>> = const { RefCell::new(Vec::new()) };
    }

    /// Counts a situation, if this thread has taken its counts before.
    #[inline]
    pub fn note(situation: Situation) {
        if COUNTS_HERE.get() {
            count(situation);
        }
    }

    #[cold]
    fn count(situation: Situation) {
        COUNTS.with_borrow_mut(|counts| *counts.entry(situation).or_default() += 1);
        TRAIL.with_borrow_mut(|trail| {
            if !trail.contains(&situation) {
                trail.push(situation);
            }
        });
    }

    /// Runs `act` without counting its situations.
    pub fn without_situations<R>(act: impl FnOnce() -> R) -> R {
        let (counts, trail) = (COUNTS.take(), TRAIL.take());
        let result = act();
        COUNTS.set(counts);
        TRAIL.set(trail);
        result
    }

    /// Returns the situations that this thread has met since the last call, with their counts. The
    /// first call starts the count.
    pub fn take_situations() -> BTreeMap<Situation, u64> {
        COUNTS_HERE.set(true);
        COUNTS.take()
    }

    /// Returns the number of situations that this thread has met since the last [`take_trail`].
    pub fn trail_len() -> usize {
        TRAIL.with_borrow(Vec::len)
    }

    /// Returns the situations that this thread has met since the last call, in the order in which
    /// they were first met. The first call starts the count.
    pub fn take_trail() -> Vec<Situation> {
        COUNTS_HERE.set(true);
        TRAIL.take()
    }
}
