//! Silence: how long a process that must change a word now and then has not done so.
//!
//! Silence is measured by observations of the word. An observation can take long, since it waits
//! for a memory node that is absent for a while, and during that time no process can change a word
//! of that node. The first process to observe the word afterwards would take all others for silent.
//! So one observation raises a silence to two thirds of the lease at most, unless it was longer
//! before: the others have the rest of the lease for a sign of life.

/// The silence of a process that must change a word before a lease is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence<T> {
    said: T,
    observed_ms: u64,
    silent_ms: u64,
}

impl<T: Copy + PartialEq> Silence<T> {
    /// Begins with a first observation, at `now_ms`.
    pub(super) fn new(says: T, now_ms: u64) -> Self {
        Self { said: says, observed_ms: now_ms, silent_ms: 0 }
    }

    /// Adds an observation that ended at `now_ms`.
    pub(super) fn observe(&mut self, says: T, now_ms: u64, lease_ms: u64) {
        if says != self.said {
            *self = Self::new(says, now_ms);
            return;
        }
        let silent_ms = self.silent_ms + now_ms.saturating_sub(self.observed_ms);
        let limit_ms = lease_ms - lease_ms / 3;
        self.silent_ms = if self.silent_ms < limit_ms {
            silent_ms.min(limit_ms)
        } else {
            silent_ms.min(self.silent_ms + limit_ms)
        };
        self.observed_ms = now_ms;
    }

    /// Milliseconds for which the word has been `says`, as of the last observation.
    pub(super) fn of(&self, says: T) -> u64 {
        if says == self.said { self.silent_ms } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::Silence;

    const LEASE_MS: u64 = 900;

    fn silent_after(looks: &[u64]) -> u64 {
        let mut silence = Silence::new(7, 0);
        for &now_ms in looks {
            silence.observe(7, now_ms, LEASE_MS);
        }
        silence.of(7)
    }

    #[test]
    fn looks_in_quick_succession_count_the_time_between_them() {
        let looks: Vec<u64> = (0..=50).map(|look| look * 20).collect();
        assert_eq!(silent_after(&looks), 1000);
    }

    #[test]
    fn one_observation_ends_no_member_and_two_do_however_far_apart() {
        assert_eq!(silent_after(&[10_000]), 600);
        assert_eq!(silent_after(&[500, 10_000]), 600);
        assert!(silent_after(&[500, 10_000, 10_301]) > LEASE_MS);
        assert!(silent_after(&[10_000, 20_000]) > LEASE_MS);
    }

    #[test]
    fn a_sign_of_life_ends_a_silence() {
        let mut silence = Silence::new(7, 0);
        silence.observe(7, 10_000, LEASE_MS);
        silence.observe(8, 10_100, LEASE_MS);
        assert_eq!((silence.of(8), silence.of(7)), (0, 0));
        silence.observe(8, 10_150, LEASE_MS);
        assert_eq!(silence.of(8), 50);
    }
}
