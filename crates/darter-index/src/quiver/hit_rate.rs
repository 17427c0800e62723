//! How often something has recently succeeded.
//!
//! A put may post its CAS before it has read the record (`blind.rs`). If most keys are new, or most
//! records were changed before, that CAS is wasted, so clients stop posting it. Each put shows
//! whether the CAS would have won, posted or not.

use std::sync::atomic::{AtomicU32, Ordering};

/// The rate of certain success.
const ONE: u32 = 1 << 16;
/// Each result moves the rate by one part in this many of the distance to the limit.
const INERTIA: u32 = 32;
/// A rate that justifies a try. A wasted CAS costs the memory node an atomic verb and the client no
/// round trip; one that wins saves a round trip.
const WORTHWHILE: u32 = ONE / 8;

/// A moving average that begins at one half. Concurrent updates by threads may be lost.
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

    /// Counts the result of a try, real or hypothetical.
    pub(super) fn note(&self, is_hit: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let after = if is_hit { before + (ONE - before) / INERTIA } else { before - before / INERTIA };
        // At either limit nothing is stored, so threads do not contend for the word.
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
        assert!((16..64).contains(&vain), "{vain} wasted");
        (0..10_000).for_each(|_| rate.note(false));
        let missed = (0..10_000).take_while(|_| !rate.is_worthwhile()).map(|_| rate.note(true)).count();
        assert!(missed < 8, "{missed} missed");
        (0..10_000).for_each(|_| rate.note(true));
        assert!(rate.0.load(Ordering::Relaxed) <= ONE);
    }
}
