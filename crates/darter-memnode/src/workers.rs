//! The threads that run procedures, so that the serving thread is never blocked by one.
//!
//! The serving thread hands over a call ([`Workers::submit`]) and goes on. A worker runs the
//! procedure to its end, puts the outcome on a list and rings a bell that the event loop watches.
//! The number of calls that wait for a worker is limited, which also limits the outcomes that wait
//! for the serving thread.

use crate::bell::Bell;
use crate::error::{MemNodeError, system};
use darter_fabric::{CallFault, ProcedureError, Procedures, block_on};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A call to run.
#[derive(Debug)]
pub(crate) struct Call {
    /// The key of its connection.
    pub(crate) peer: u64,
    /// The id of its request.
    pub(crate) id: u64,
    pub(crate) session: u64,
    pub(crate) procedure: u64,
    pub(crate) words: Vec<u64>,
}

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) peer: u64,
    pub(crate) id: u64,
    pub(crate) result: Result<Vec<u64>, CallFault>,
}

/// The threads, and the state shared with the serving thread.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    waiting_max: usize,
}

#[derive(Debug)]
struct Shared {
    procedures: Procedures,
    state: Mutex<State>,
    has_calls: Condvar,
    /// Rung when there are outcomes.
    bell: Bell,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Call>,
    outcomes: Vec<Outcome>,
    /// Whether each thread is running a procedure.
    is_busy: Vec<bool>,
    is_closed: bool,
}

impl Shared {
    /// A panic elsewhere leaves the lists consistent, so the poison is ignored.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, call: Call) -> Outcome {
        let Call { peer, id, procedure, words, .. } = call;
        let run = || block_on(self.procedures.clone().run(procedure, words));
        // A procedure must keep its shared state consistent itself, as across any threads.
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            let message = "the procedure panicked; see the node's log";
            Err(CallFault::Failed(ProcedureError::new(ProcedureError::PANIC, message)))
        });
        Outcome { peer, id, result }
    }

    /// Hands an outcome to the serving thread.
    fn finish(&self, outcome: Outcome) {
        self.lock().outcomes.push(outcome);
        self.bell.ring();
    }

    /// Runs calls until the node stops.
    fn work(&self, thread: usize) {
        let mut state = self.lock();
        while !state.is_closed {
            let Some(call) = state.waiting.pop_front() else {
                state = self.has_calls.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.is_busy[thread] = true;
            drop(state);
            self.finish(self.run(call));
            state = self.lock();
            state.is_busy[thread] = false;
        }
    }
}

impl Workers {
    /// Starts this number of threads.
    ///
    /// # Errors
    /// Fails if the system has no thread or no descriptor left.
    pub(crate) fn start(
        count: usize,
        procedures: Procedures,
        waiting_max: usize,
    ) -> Result<Self, MemNodeError> {
        let bell = Bell::new("create a descriptor for its workers")?;
        let state = State { is_busy: vec![false; count], ..State::default() };
        let shared =
            Arc::new(Shared { procedures, state: Mutex::new(state), has_calls: Condvar::new(), bell });
        let mut workers = Self { shared, threads: Vec::new(), waiting_max };
        for thread in 0..count {
            let shared = Arc::clone(&workers.shared);
            let name = format!("darter-worker-{thread}");
            let spawned = std::thread::Builder::new().name(name).spawn(move || shared.work(thread));
            workers.threads.push(spawned.map_err(system("start a worker"))?);
        }
        Ok(workers)
    }

    /// Returns a descriptor that becomes readable when there are outcomes.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.shared.bell.descriptor()
    }

    /// Runs a call, now or when a worker is free.
    ///
    /// # Errors
    /// [`CallFault::NoServer`] if there are no workers, [`CallFault::Busy`] if too many calls wait.
    pub(crate) fn submit(&self, call: Call) -> Result<(), CallFault> {
        if self.threads.is_empty() {
            return Err(CallFault::NoServer);
        }
        let mut state = self.shared.lock();
        if state.waiting.len() >= self.waiting_max {
            return Err(CallFault::Busy);
        }
        state.waiting.push_back(call);
        drop(state);
        self.shared.has_calls.notify_one();
        Ok(())
    }

    /// Cancels the waiting calls of fenced sessions, so that none of them begins.
    pub(crate) fn forget_fenced(&self, is_fenced: impl Fn(u64) -> bool) {
        if !self.threads.is_empty() {
            self.shared.lock().waiting.retain(|call| !is_fenced(call.session));
        }
    }

    /// Takes the outcomes, and quiets the bell.
    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        // Quiets the bell first, so that a later outcome rings it again.
        self.shared.bell.quiet();
        std::mem::take(&mut self.shared.lock().outcomes)
    }
}

impl Drop for Workers {
    /// Ends the threads. A thread that runs a procedure ends with it; this does not wait for it.
    fn drop(&mut self) {
        let is_busy = {
            let mut state = self.shared.lock();
            state.is_closed = true;
            state.waiting.clear();
            state.is_busy.clone()
        };
        self.shared.has_calls.notify_all();
        for (thread, is_busy) in self.threads.drain(..).zip(is_busy) {
            if !is_busy {
                // A worker catches the panics of procedures.
                let _ = thread.join();
            }
        }
    }
}
