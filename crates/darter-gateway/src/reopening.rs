//! Opens a gateway's pool again when the pool has ended this process's membership.
//!
//! A memory node with a log that crashes ends the sessions of before, and other members end one that
//! was silent beyond its lease. What the store had in memory (cache, epochs, pins) belongs to that
//! membership, and all its verbs are refused. So a thread opens the pool anew, as another member,
//! and the serving threads take the new store for the next requests of their clients, whose
//! connections stay. The thread drops the old store after they did, since that can wait for a memory
//! node.

use super::state::{GatewayState, LogLine};
use darter_fabric::mutant;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// The pause after the first attempt to open the pool; later ones are twice as long as the one
/// before.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The interval of checks whether the gateway stops, or the old store is in use.
const CHECK: Duration = Duration::from_millis(50);
/// How long the thread waits until the old store is out of use.
const OLD_IN_USE: Duration = Duration::from_secs(60);

/// Opens the pool again in a separate thread, if that is needed and no thread does it.
pub(super) fn keep_open(shared: &Arc<GatewayState>) {
    if mutant!("gateway-stays-shut-out") || !shared.current.begin_reopening() {
        return;
    }
    let mine = Arc::clone(shared);
    let work = move || {
        reopen(&mine);
        mine.current.end_reopening();
    };
    if std::thread::Builder::new().name("darter-reopen".to_owned()).spawn(work).is_err() {
        shared.current.end_reopening();
    }
}

/// Opens the pool again, as often as it takes.
fn reopen(shared: &GatewayState) {
    let old = shared.current.get();
    warn!("the pool has ended this gateway's membership; opening the pool again");
    let mut pause = PAUSE;
    let mut old = loop {
        match old.store.reopen() {
            Ok(new) if new.pool().id() == old.store.pool().id() => {
                drop(old);
                break shared.current.replace(new);
            }
            Ok(_) => error!("the memory nodes hold another pool now; start the gateway again to serve that"),
            Err(error) => {
                if shared.may_log(LogLine::Failed) {
                    warn!(%error, "the pool cannot be opened again; trying on");
                }
            }
        }
        if !rest(shared, pause) {
            return;
        }
        pause = (pause * 2).min(PAUSE_MAX);
    };
    info!("the pool is open again, with another membership");
    // Serving threads must not be those that close the old one.
    let end = Instant::now() + OLD_IN_USE;
    while !old.is_unused() && Instant::now() < end && rest(shared, CHECK) {}
}

/// Waits. Returns whether the gateway goes on.
fn rest(shared: &GatewayState, pause: Duration) -> bool {
    let end = Instant::now() + pause;
    while Instant::now() < end && !shared.is_stopping.load(Ordering::SeqCst) {
        std::thread::sleep(CHECK.min(pause));
    }
    !shared.is_stopping.load(Ordering::SeqCst)
}
