//! A rate: an account that fills with time, up to a tenth of a second's worth, and that may be
//! overdrawn by one request.

use std::time::{Duration, Instant};

/// Unused allowance is kept for one request after a pause of this length.
const BURST: Duration = Duration::from_millis(100);

/// An account of one kind of load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Units per second; `None` for no limit.
    rate: Option<f64>,
    balance: f64,
    at: Instant,
}

impl Bucket {
    /// Returns a full account.
    pub(super) fn new(rate: Option<u64>, now: Instant) -> Self {
        let rate = rate.map(|rate| rate as f64);
        Self { rate, balance: rate.unwrap_or_default() * BURST.as_secs_f64(), at: now }
    }

    /// Changes the rate. Debts stay.
    pub(super) fn change(&mut self, rate: Option<u64>, now: Instant) {
        self.fill(now);
        let fresh = Self::new(rate, now);
        *self = Self { balance: self.balance.min(fresh.balance), ..fresh };
        if self.rate.is_none() {
            self.balance = 0.0;
        }
    }

    fn fill(&mut self, now: Instant) {
        if let Some(rate) = self.rate {
            let passed = now.saturating_duration_since(self.at).as_secs_f64();
            self.balance = (self.balance + passed * rate).min(rate * BURST.as_secs_f64());
        }
        self.at = self.at.max(now);
    }

    /// Takes units, possibly more than there are.
    pub(super) fn take(&mut self, units: u64) {
        if self.rate.is_some() {
            self.balance -= units as f64;
        }
    }

    /// Returns how long a request waits until the account is no longer overdrawn.
    pub(super) fn wait(&mut self, now: Instant) -> Duration {
        self.fill(now);
        match self.rate {
            Some(rate) if self.balance < 0.0 => Duration::from_secs_f64(-self.balance / rate),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debts_are_paid_with_time() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut bucket = Bucket::new(Some(1000), begin);
        assert_eq!(bucket.wait(begin), Duration::ZERO);
        bucket.take(100);
        assert_eq!(bucket.wait(begin), Duration::ZERO, "a tenth of a second's worth is free");
        bucket.take(500);
        assert_eq!(bucket.wait(begin), Duration::from_millis(500));
        assert_eq!(bucket.wait(at(400)), Duration::from_millis(100));
        assert_eq!(bucket.wait(at(500)), Duration::ZERO);
        // A long pause does not collect more than the burst.
        assert_eq!(bucket.wait(at(100_000)), Duration::ZERO);
        bucket.take(300);
        assert_eq!(bucket.wait(at(100_000)), Duration::from_millis(200));
        bucket.change(Some(2000), at(100_000));
        assert_eq!(bucket.wait(at(100_000)), Duration::from_millis(100));
        bucket.change(None, at(100_000));
        bucket.take(1 << 40);
        assert_eq!(bucket.wait(at(100_000)), Duration::ZERO);
    }
}
