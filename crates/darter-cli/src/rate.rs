//! The rate to which commands that write or move much keep.

use crate::failure::Failure;
use crate::signals::Interrupt;
use darter::ByteSize;
use std::time::{Duration, Instant};

/// Longest sleep before a signal is noticed.
const SLEEP: Duration = Duration::from_millis(100);

/// Fails if nothing could ever be done at a rate.
pub(crate) fn verify(rate: Option<ByteSize>) -> Result<(), Failure> {
    if rate.is_some_and(|rate| rate.0 == 0) {
        return Err(Failure::usage("--rate 0 would take for ever; leave it out for no limit"));
    }
    Ok(())
}

/// Waits until `bytes` bytes since `begin` are no more than a rate allows. Returns false if a signal has
/// come.
pub(crate) fn keeps_to(rate: Option<ByteSize>, begin: Instant, bytes: u64, interrupt: &Interrupt) -> bool {
    loop {
        if interrupt.has_come() {
            return false;
        }
        let Some(rate) = rate else { return true };
        let due = Duration::from_secs_f64(bytes as f64 / rate.0 as f64);
        let ahead = due.saturating_sub(begin.elapsed());
        if ahead.is_zero() {
            return true;
        }
        std::thread::sleep(ahead.min(SLEEP));
    }
}
