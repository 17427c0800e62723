//! The thread that does what is due on nobody's behalf: leases, epochs, reclamation, scrubbing, adjustment.
//!
//! It must never hold the store: the store's last owner stops it and waits for it.

use crate::Error;
use crate::store::Shared;
use crate::sweeper::Sweeper;
use darter_fabric::{Fabric, block_on};
use darter_index::OrderedIndex;
use darter_pool::Client;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two rounds when all is well.
const INTERVAL: Duration = Duration::from_millis(50);
/// Between two rounds after many failures in a row.
const INTERVAL_MAX: Duration = Duration::from_secs(5);

/// A running thread; stopped and joined when dropped.
pub(crate) struct Upkeep {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// Tells the thread to end.
#[derive(Default)]
struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Sleeps for `interval` or until asked; answers whether asked.
    fn wait(&self, interval: Duration) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(asked, interval, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Upkeep {
    pub(crate) fn start<F: Fabric>(shared: Arc<Shared<F>>, adjust: bool, sweep: bool) -> Result<Self, Error> {
        let stop = Arc::new(Stop::default());
        let client = shared.pool.client()?;
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("darter-upkeep".to_owned())
            .spawn(move || {
                let sweeper = sweep.then(|| Sweeper::new(Arc::clone(&shared)));
                keep_up(&shared, client, sweeper, &told, adjust);
            })
            .map_err(Error::Thread)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            // A panic over there was reported there, and there is nothing left to do about it here.
            let _ = thread.join();
        }
    }
}

fn keep_up<F: Fabric>(
    shared: &Shared<F>,
    mut client: Client<F>,
    mut sweeper: Option<Sweeper<F>>,
    stop: &Stop,
    adjust: bool,
) {
    // However much fails, the lease is to be renewed.
    let interval_max = INTERVAL_MAX.min(shared.pool.lease() / 8).max(INTERVAL);
    let mut interval = INTERVAL;
    while !stop.wait(interval) {
        let outcome = block_on(round(shared, &mut client, adjust));
        interval = if outcome.is_ok() { INTERVAL } else { (interval * 2).min(interval_max) };
        if let Some(sweeper) = &mut sweeper {
            sweeper.tend();
        }
        shared.note_upkeep(outcome.err().as_ref());
    }
}

/// Everything that is due, once.
pub(crate) async fn round<F: Fabric>(
    shared: &Shared<F>,
    client: &mut Client<F>,
    adjust: bool,
) -> Result<(), Error> {
    shared.pool.maintain(client).await?;
    shared.index.maintain(client).await?;
    if adjust && shared.index.wants_adjust() {
        shared.index.adjust(client).await?;
    }
    Ok(())
}
