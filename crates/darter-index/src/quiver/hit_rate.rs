//! How often something turns out as hoped, lately.
//!
//! A put may post its CAS before it has seen the record (`blind.rs`). Where most keys are new, or
//! most records were changed before, that CAS is in vain, so clients stop posting it; each put shows
//! whether it would have won, posted or not.

use std::sync::atomic::{AtomicU32, Ordering};

/// The rate of certainty.
const ONE: u32 = 1 << 16;
/// The rate changes by one part in so many of what it lacks.
const INERTIA: u32 = 32;
/// A rate that is worth a try. A CAS in vain costs the memory node an atomic verb and the client no
/// round trip; one that wins saves a round trip.
const WORTHWHILE: u32 = ONE / 8;

/// A moving average, begun at one half. Threads may lose each other's notes.
#[derive(Debug)]
pub(super) struct HitRate(AtomicU32);

impl HitRate {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(ONE / 2))
    }

    /// Whether another try is worth its cost.
    pub(super) fn is_worthwhile(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= WORTHWHILE
    }

    /// Counts a try, or what it would have been.
    pub(super) fn note(&self, is_hit: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let after = if is_hit { before + (ONE - before) / INERTIA } else { before - before / INERTIA };
        // At either end nothing is stored, so threads do not take the word from each other.
        if after != before {
            self.0.store(after, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_stop_soon_after_they_are_in_vain_and_begin_again() {
        let rate = HitRate::new();
        let vain = (0..10_000).take_while(|_| rate.is_worthwhile()).map(|_| rate.note(false)).count();
        assert!((16..64).contains(&vain), "{vain} in vain");
        (0..10_000).for_each(|_| rate.note(false));
        let missed = (0..10_000).take_while(|_| !rate.is_worthwhile()).map(|_| rate.note(true)).count();
        assert!(missed < 8, "{missed} missed");
        (0..10_000).for_each(|_| rate.note(true));
        assert!(rate.0.load(Ordering::Relaxed) <= ONE);
    }
}
