//! Sweeping in the background what dead processes left, so that nobody has to ask for a repair.
//!
//! The process that ended a dead one's membership does it, a lease later: by then a command that only looked in is gone, and
//! others that died with it have been found. A sweep walks the whole index, so it runs in a thread of its own beside the
//! upkeep, and after one that could not finish the next waits ten times as long as it took.

use crate::store::Shared;
use darter_fabric::{Fabric, block_on};
use darter_index::{IndexError, OrderedIndex, Swept};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much longer than a sweep took to wait for the next, when it has to be tried again.
const REST: u32 = 10;

/// The sweeps of a process.
pub(crate) struct Sweeper<F: Fabric> {
    shared: Arc<Shared<F>>,
    stop: Arc<AtomicBool>,
    /// When the next one is due.
    due: Option<Instant>,
    /// The one under way; it answers whether all is done, and how long it took.
    running: Option<JoinHandle<(bool, Duration)>>,
}

impl<F: Fabric> Sweeper<F> {
    pub(crate) fn new(shared: Arc<Shared<F>>) -> Self {
        Self { shared, stop: Arc::default(), due: None, running: None }
    }

    /// Begins a sweep when one is due, and takes note of one that has ended.
    pub(crate) fn tend(&mut self) {
        let now = Instant::now();
        if self.shared.pool.take_buried() {
            self.due.get_or_insert(now + self.shared.pool.lease());
        }
        if let Some(running) = self.running.take_if(|running| running.is_finished()) {
            // A panic over there was reported there, and is not worth another.
            let (is_done, took) = running.join().unwrap_or((true, Duration::ZERO));
            if !is_done {
                self.due = Some(now + took * REST + self.shared.pool.lease());
            }
        }
        if self.running.is_none() && self.due.is_some_and(|due| due <= now) {
            self.due = None;
            let (shared, stop) = (Arc::clone(&self.shared), Arc::clone(&self.stop));
            let sweep = move || {
                let begin = Instant::now();
                let is_done = block_on(unless(&stop, sweep(&shared)));
                (is_done.is_none_or(|done| done.unwrap_or(false)), begin.elapsed())
            };
            // Without a thread it is left to another process, or to a repair.
            self.running = std::thread::Builder::new().name("darter-sweep".to_owned()).spawn(sweep).ok();
        }
    }
}

impl<F: Fabric> Drop for Sweeper<F> {
    /// What a sweep cut short has adopted stays with this process until it ends, and is the next one's then.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

/// Sweeps if there is anything; answers whether that is done with.
async fn sweep<F: Fabric>(shared: &Shared<F>) -> Result<bool, IndexError> {
    let mut client = shared.pool.client()?;
    let usage = shared.pool.usage(&mut client).await?;
    if usage.nodes.iter().all(|node| node.dead + node.sweeping == 0) {
        return Ok(true);
    }
    Ok(match shared.index.sweep_dead(&mut client).await? {
        Swept::Done(report) => report.finished,
        // A check will say what is broken; trying again will not mend it.
        Swept::Refused(_) => true,
    })
}

/// The future's output, or nothing when it is to stop at one of its awaits.
async fn unless<T>(stop: &AtomicBool, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        if stop.load(Ordering::Relaxed) {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}
