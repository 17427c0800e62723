//! The clocks of simulated processes. They start an hour or ten years apart, and may run at
//! different rates: code that compares readings of two processes fails.

/// Milliseconds per hour and per year.
const HOUR_MS: u64 = 3_600_000;
const YEAR_MS: u64 = 365 * 24 * HOUR_MS;
/// Initial readings of the processes' clocks, assigned round-robin.
const BEGINNINGS_MS: [u64; 5] =
    [20 * YEAR_MS, 20 * YEAR_MS + HOUR_MS, 10 * YEAR_MS, 20 * YEAR_MS - HOUR_MS, 30 * YEAR_MS];
/// Sixteenths of the common time that pass on the clocks of drifting processes, assigned
/// round-robin.
const RATES: [u64; 3] = [16, 17, 15];

/// The common time of a simulation, from which the processes' clocks are derived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// Milliseconds since the beginning of the run. No process sees them.
    pub common_ms: u64,
    /// How far the time advances when a task has waited for it.
    pub pause_ms: u64,
    /// Whether the clocks run at different rates.
    pub drift: bool,
}

impl Default for Clocks {
    fn default() -> Self {
        Self { common_ms: 0, pause_ms: 1, drift: false }
    }
}

impl Clocks {
    /// Returns the reading of a process's clock, in milliseconds.
    pub(super) fn of(&self, process: u32) -> u64 {
        let process = process as usize;
        let rate = if self.drift { RATES[process % RATES.len()] } else { 16 };
        BEGINNINGS_MS[process % BEGINNINGS_MS.len()] + self.common_ms * rate / 16
    }

    /// Advances the time for a task that waited.
    pub(super) fn pause(&mut self) {
        self.common_ms += self.pause_ms;
    }
}
