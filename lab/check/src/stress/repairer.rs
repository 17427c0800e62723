//! Repairs of the pool at random moments while others use it. They run in a thread of the
//! coordinator, since a repair may have to wait for a worker that only the coordinator can
//! continue.

use super::Site;
use crate::dice::Dice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two checks whether to end.
const LOOK: Duration = Duration::from_millis(10);

/// The results of repairs so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Repairs {
    pub(super) count: u64,
    pub(super) repaired_bytes: u64,
    /// Violations they found.
    pub(super) findings: Vec<String>,
}

/// Repairs the pool repeatedly until `stop` is set.
pub(super) fn repair_often(
    site: &Site,
    per_second: f64,
    seed: u64,
    stop: &AtomicBool,
    repairs: &Mutex<Repairs>,
) {
    let mut dice = Dice::new(seed);
    while let Some(wait) = next_in(&mut dice, per_second) {
        let due = Instant::now() + wait;
        while Instant::now() < due {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(LOOK.min(due.saturating_duration_since(Instant::now())));
        }
        let outcome = site.open().and_then(|store| store.repair());
        let mut repairs = repairs.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(check) => {
                repairs.count += 1;
                repairs.repaired_bytes += check.repaired_bytes;
                let said = check.violations.into_iter();
                repairs.findings.extend(said.map(|what| format!("a concurrent repair: {what}")));
            }
            // A repair needs some space itself, and others may have taken it all; and it can be
            // shut out like any process.
            Err(error) if error.is_out_of_space() || error.is_disconnected() || error.is_shut_out() => {}
            Err(error) => repairs.findings.push(format!("a concurrent repair failed: {error}")),
        }
        if !repairs.findings.is_empty() {
            return;
        }
    }
}

/// Returns the time until the next of events that happen `per_second` on average; `None` if there
/// is none.
pub(super) fn next_in(dice: &mut Dice, per_second: f64) -> Option<Duration> {
    // Independent events: exponentially distributed gaps. A day counts as for ever.
    const FOREVER_S: f64 = 86_400.0;
    (per_second > 0.0).then(|| Duration::from_secs_f64((-dice.fraction().ln() / per_second).min(FOREVER_S)))
}
