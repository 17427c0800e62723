//! Lua scripts and functions, as in Redis 7.0. A script runs as one transaction of the index.
//!
//! A script can call commands within Lua's `pcall`, which cannot be suspended. So Lua runs in
//! its own threads (`machine.rs`): for each command, the thread asks the client's task, which
//! executes it in its transaction and answers (`run.rs`). Scripts do not share a Lua state, so that
//! they cannot affect each other; a thread keeps the state of a script for its next run, unless the
//! script might find traces of the last one there. A conflict can repeat a script from its beginning.
//!
//! A script is stopped when it takes too long, when it needs too much memory, when it is killed, or
//! when its client's task has ended. Its changes are then discarded.
//!
//! `api.rs` has the functions of `redis`, `cache.rs` keeps the scripts for `EVALSHA`, `library.rs`
//! and the files that use it are the libraries of scripts, `replies.rs` converts replies, and
//! `prelude.lua` is the sandbox.

mod api;
mod bits;
mod cache;
mod json;
mod json_parser;
mod library;
mod machine;
mod msgpack;
mod numbers;
mod pack;
mod replies;
mod run;
mod task;
mod words;

pub(super) use api::wrong_name;
pub(super) use cache::{Flags, Script, digest};
pub(super) use machine::COMPILE_ERROR;
pub(super) use run::run;
pub(super) use task::{Invocation, Loaded, Outcome, Purpose, Task};
pub(super) use words::Words;

use crate::options::GatewayOptions;
use cache::Cache;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most libraries whose code is kept.
const CODES_MAX: usize = 256;
/// Threads' stack: the matcher of patterns recurses.
pub(super) const STACK_BYTES: usize = 16 << 20;

/// The reason why a script is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// By `SCRIPT KILL` or `FUNCTION KILL`.
    Killed = 1,
    /// It has exceeded its time.
    Late,
    /// It has exceeded its memory.
    Memory,
    /// The client's task has ended.
    Abandoned,
}

/// A running script, as others see and stop it.
#[derive(Debug)]
pub(super) struct Control {
    /// The digest of the script, or the name of the function.
    pub(super) name: String,
    pub(super) is_function: bool,
    pub(super) since: Instant,
    limit: Duration,
    stop: AtomicU8,
}

impl Control {
    /// Stops the script, unless it is already stopped.
    fn stop(&self, why: Stop) {
        let _ = self.stop.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns why the script must stop, if it must.
    fn stopped(&self) -> Option<Stop> {
        if self.since.elapsed() > self.limit {
            self.stop(Stop::Late);
        }
        match self.stop.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Stop::Killed),
            2 => Some(Stop::Late),
            3 => Some(Stop::Memory),
            _ => Some(Stop::Abandoned),
        }
    }
}

/// The right to use a thread for scripts.
pub(super) type Slot = OwnedSemaphorePermit;

/// The scripts of a gateway.
#[derive(Debug)]
pub(super) struct Scripts {
    cache: Mutex<Cache>,
    /// The code of libraries of functions, by digest.
    codes: Mutex<BTreeMap<String, Arc<Vec<u8>>>>,
    running: Mutex<BTreeMap<u64, Arc<Control>>>,
    runs: AtomicU64,
    slots: Arc<Semaphore>,
    limit: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scripts {
    pub(super) fn new(options: &GatewayOptions) -> Self {
        Self {
            cache: Mutex::default(),
            codes: Mutex::default(),
            running: Mutex::default(),
            runs: AtomicU64::new(0),
            slots: Arc::new(Semaphore::new(options.script_threads.max(1))),
            limit: options.script_time,
        }
    }

    /// Waits for the right to use a thread. Returns `None` if all are in use for long: scripts in
    /// them cannot be stopped, because they are in functions of Lua that are not divided.
    pub(super) async fn slot(&self) -> Option<Slot> {
        let slot = Arc::clone(&self.slots).acquire_owned();
        let patience = self.limit * 2 + Duration::from_secs(5);
        tokio::time::timeout(patience, slot).await.ok()?.ok()
    }

    /// Returns the scripts that `EVALSHA` finds.
    pub(super) fn cache(&self) -> MutexGuard<'_, Cache> {
        lock(&self.cache)
    }

    /// Returns the code of a library, if it is known.
    pub(super) fn code(&self, digest: &str) -> Option<Arc<Vec<u8>>> {
        lock(&self.codes).get(digest).cloned()
    }

    /// Keeps the code of a library.
    pub(super) fn keep_code(&self, digest: &str, code: &Arc<Vec<u8>>) {
        let mut codes = lock(&self.codes);
        if codes.len() == CODES_MAX {
            codes.clear();
        }
        codes.insert(digest.to_owned(), Arc::clone(code));
    }

    /// Stops the script, or function, that has been running longest. Returns whether there is one.
    pub(super) fn kill(&self, is_function: bool) -> bool {
        let oldest = self.oldest(is_function);
        if let Some(control) = &oldest {
            control.stop(Stop::Killed);
        }
        oldest.is_some()
    }

    /// Returns the script, or function, that has been running longest.
    pub(super) fn oldest(&self, is_function: bool) -> Option<Arc<Control>> {
        let running = lock(&self.running);
        let mut controls = running.values().filter(|control| control.is_function == is_function);
        controls.find(|control| control.stopped().is_none()).cloned()
    }

    /// Registers a run, until the returned value is dropped.
    fn enter(&self, name: String, is_function: bool) -> Running<'_> {
        let (since, stop) = (Instant::now(), AtomicU8::new(0));
        let control = Arc::new(Control { name, is_function, since, limit: self.limit, stop });
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        lock(&self.running).insert(number, Arc::clone(&control));
        Running { scripts: self, number, control }
    }
}

/// A registered run. Dropping it stops the script.
struct Running<'s> {
    scripts: &'s Scripts,
    number: u64,
    control: Arc<Control>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.control.stop(Stop::Abandoned);
        lock(&self.scripts.running).remove(&self.number);
    }
}
