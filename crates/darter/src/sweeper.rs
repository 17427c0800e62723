//! Background sweeps of what dead processes left, so that no repair is needed.
//!
//! The process that ended a dead one's membership sweeps, one lease later: by then a short-lived
//! command has exited, and other processes that died at the same time have been found. A sweep
//! walks the whole index, so it runs in a thread of its own beside the upkeep. After a sweep that
//! could not finish, the next one waits ten times as long as that one took.

use crate::open_index::OpenIndex;
use darter_fabric::{Fabric, block_on};
use darter_index::{IndexError, OrderedIndex, Swept};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many times as long as a sweep took to wait before it is tried again.
const REST: u32 = 10;

/// The sweeps of a process.
pub(crate) struct Sweeper<F: Fabric> {
    open: Arc<OpenIndex<F>>,
    stop: Arc<AtomicBool>,
    /// When the next one is due.
    due: Option<Instant>,
    /// The one under way. Its thread returns whether all is done, and how long that took.
    running: Option<JoinHandle<(bool, Duration)>>,
}

impl<F: Fabric> Sweeper<F> {
    pub(crate) fn new(open: Arc<OpenIndex<F>>) -> Self {
        Self { open, stop: Arc::default(), due: None, running: None }
    }

    /// Begins a sweep if one is due, and records the end of the last one.
    pub(crate) fn tend(&mut self) {
        let now = Instant::now();
        if self.open.pool.take_evicted() {
            self.due.get_or_insert(now + self.open.pool.lease());
        }
        if let Some(running) = self.running.take_if(|running| running.is_finished()) {
            // A panic of the thread was reported by the thread.
            let (is_done, took) = running.join().unwrap_or((true, Duration::ZERO));
            if !is_done {
                self.due = Some(now + took * REST + self.open.pool.lease());
            }
        }
        if self.running.is_none() && self.due.is_some_and(|due| due <= now) {
            self.due = None;
            let (open, stop) = (Arc::clone(&self.open), Arc::clone(&self.stop));
            let sweep = move || {
                let begin = Instant::now();
                let is_done = block_on(unless(&stop, sweep(&open)));
                (is_done.is_none_or(|done| done.unwrap_or(false)), begin.elapsed())
            };
            // Without a thread, the sweep is left to another process or to a repair.
            self.running = std::thread::Builder::new().name("darter-sweep".to_owned()).spawn(sweep).ok();
        }
    }
}

impl<F: Fabric> Drop for Sweeper<F> {
    /// What an interrupted sweep has adopted stays with this process until it ends, then another
    /// process sweeps it.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

/// Sweeps if there is anything to sweep; returns whether all is done.
async fn sweep<F: Fabric>(open: &OpenIndex<F>) -> Result<bool, IndexError> {
    let mut client = open.pool.client()?;
    let usage = open.pool.usage(&mut client).await?;
    if usage.nodes.iter().all(|node| node.dead + node.sweeping == 0) {
        return Ok(true);
    }
    Ok(match open.index.sweep_dead(&mut client).await? {
        Swept::Done(report) => report.finished,
        // A check reports what is broken; another sweep would not repair it.
        Swept::Refused(_) => true,
    })
}

/// Returns the future's output, or nothing when it is to stop at one of its awaits.
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
