//! The check of a whole pool.

use crate::arguments::{Output, handle};
use crate::status::darter_status::DARTER_OK;
use crate::status::{Failure, call, darter_status};
use crate::store::darter_store;

/// The figures of a check.
#[repr(C)]
pub struct darter_check_report {
    /// Number of keys.
    pub keys: u64,
    /// Number of violated invariants.
    pub violations: u64,
    /// Bytes that no client can reach or will free; `darter check --repair` frees them.
    pub leaked_bytes: u64,
    /// Bytes of reachable objects in blocks of other live processes, whose free space is unknown.
    pub unverified_bytes: u64,
}

/// Walks index and pool and verifies every invariant. Returns DARTER_ERROR_DAMAGED if one is
/// violated; `darter_message` then lists the violations. Sets `*report` in both cases, unless it is
/// NULL. Other threads of this process must not use the pool during the call; other processes may.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_check(
    store: *const darter_store,
    report: *mut darter_check_report,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let output = Output::optional(report);
        let check = handle("store", store)?.store.check()?;
        if let Some(output) = output {
            output.set(darter_check_report {
                keys: check.stats.keys,
                violations: check.violations.len() as u64,
                leaked_bytes: check.leaked_bytes,
                unverified_bytes: check.unverified_bytes,
            });
        }
        if check.is_sound() { Ok(DARTER_OK) } else { Err(Failure::damaged(check.violations.join("\n"))) }
    })
}
