//! Rare situations of an index's protocol, counted for each thread: what an exploration must have
//! met to mean anything.
//!
//! A thread counts once it has asked for its counts. On any other thread, a benchmark's for one, a
//! situation costs a look at a flag.

use std::fmt;

/// A situation worth meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Situation {
    /// A node of one type became one of another.
    Switch(&'static str, &'static str),
    /// Something that has a name.
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

/// Counts a situation; does nothing without the feature `checker`.
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
        /// What was met since the last [`take_trail`], each once, in the order in which it was
        /// first met.
        static TRAIL: RefCell<Vec<Situation>> = const { RefCell::new(Vec::new()) };
    }

    /// Counts a situation, on a thread that has taken its counts before.
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

    /// Does something whose situations do not count.
    pub fn without_situations<R>(act: impl FnOnce() -> R) -> R {
        let (counts, trail) = (COUNTS.take(), TRAIL.take());
        let result = act();
        COUNTS.set(counts);
        TRAIL.set(trail);
        result
    }

    /// What this thread has met since the last call; the first one begins the count.
    pub fn take_situations() -> BTreeMap<Situation, u64> {
        COUNTS_HERE.set(true);
        COUNTS.take()
    }

    /// How many situations this thread has met since the last [`take_trail`].
    pub fn trail_len() -> usize {
        TRAIL.with_borrow(Vec::len)
    }

    /// The situations that this thread has met since the last call, in the order in which it first
    /// met them; the first call begins the count.
    pub fn take_trail() -> Vec<Situation> {
        COUNTS_HERE.set(true);
        TRAIL.take()
    }
}
