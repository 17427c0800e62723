//! The open pool behind a Python object: closed once, and opened again in a child process.

use crate::{errors, options};
use darter::engine::{Engine, KeySpace, Worker};
use darter::{Error, PoolUrl, Scheme, Store, StoreOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of forks between the process that first imported the module and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The time between two checks for signals while a call runs in another thread.
const SIGNAL_CHECKS: Duration = Duration::from_millis(50);
/// Maximum number of idle workers for transactions.
const SPARE_MAX: usize = 16;

/// The message about an operation after `close`.
pub(crate) const CLOSED: &str = "the store is closed; open it again";

/// Records, in a child process, that it was forked. Python calls it after `fork`.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of forks so far.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// An open store, and the process that has opened it.
struct Opened {
    /// `None` once dropped.
    store: Option<Store>,
    /// Idle workers, for transactions.
    spare: Vec<Worker>,
    forks: u32,
}

impl Drop for Opened {
    /// Closes the store in another thread, since that can take a second. In a child process the
    /// locks may be held by threads that only the parent has, so the store is never dropped.
    fn drop(&mut self) {
        let parts = (self.store.take(), std::mem::take(&mut self.spare));
        if self.forks != forks() {
            std::mem::forget(parts);
        } else if parts.0.is_some() {
            let _ = std::thread::Builder::new().name("darter-close".to_owned()).spawn(move || drop(parts));
        }
    }
}

/// A pool that is open, or was. Its lock is held for short moments only, and never without the GIL,
/// so that no other thread holds it while a process forks.
pub(crate) struct Handle {
    pub(crate) url: PoolUrl,
    /// The options that open the same pool again, for Python and for this module.
    pub(crate) arguments: Py<PyDict>,
    again: StoreOptions,
    state: Mutex<Option<Opened>>,
}

impl Handle {
    /// Opens a pool.
    ///
    /// # Errors
    /// Fails as `StoreOptions::open` does, and with the exception of a signal's handler.
    pub(crate) fn open(py: Python<'_>, url: &str, arguments: &Bound<'_, PyDict>) -> PyResult<Self> {
        let url = options::absolute(url)?;
        let first = options::from_arguments(arguments)?;
        let arguments = options::existing(arguments)?;
        let again = options::from_arguments(&arguments)?;
        let name = url.clone();
        let store = in_a_thread(py, move || first.open(name))?;
        let state = Mutex::new(Some(Opened { store: Some(store), spare: Vec::new(), forks: forks() }));
        Ok(Self { url, arguments: arguments.unbind(), again, state })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Opened>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the store, which is opened again in a child process.
    ///
    /// # Errors
    /// Fails if the handle is closed, or if the pool cannot be opened again.
    #[inline]
    pub(crate) fn store(&self, py: Python<'_>) -> PyResult<Store> {
        match &*self.lock() {
            None => return Err(errors::closed(CLOSED)),
            Some(opened) if opened.forks == forks() => {
                return opened.store.clone().ok_or_else(|| errors::closed(CLOSED));
            }
            Some(_) => {}
        }
        self.reopen(py)
    }

    #[cold]
    fn reopen(&self, py: Python<'_>) -> PyResult<Store> {
        if matches!(self.url.scheme(), Scheme::Memory) {
            return Err(errors::forked(&self.url.to_string()));
        }
        let (options, url) = (self.again.clone(), self.url.clone());
        let store = in_a_thread(py, move || options.open(url))?;
        let opened = Opened { store: Some(store.clone()), spare: Vec::new(), forks: forks() };
        let mut state = self.lock();
        match &*state {
            None => Err(errors::closed(CLOSED)),
            Some(other) if other.forks == forks() => Ok(other.store.clone().unwrap_or(store)),
            Some(_) => {
                *state = Some(opened);
                Ok(store)
            }
        }
    }

    /// Runs an operation without the GIL.
    ///
    /// # Errors
    /// Fails as the operation does.
    #[inline]
    pub(crate) fn run<R: Send>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&Store) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let store = self.store(py)?;
        py.detach(move || operation(&store)).map_err(errors::raise)
    }

    /// Runs an operation that may be long in another thread, so that a signal ends the wait for it.
    ///
    /// # Errors
    /// Fails as the operation does, and with the exception of a signal's handler; the operation
    /// then goes on.
    pub(crate) fn run_long<R: Send + 'static>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&Store) -> Result<R, Error> + Send + 'static,
    ) -> PyResult<R> {
        let store = self.store(py)?;
        in_a_thread(py, move || operation(&store))
    }

    /// Returns a worker for a transaction.
    ///
    /// # Errors
    /// Fails if the handle is closed or a memory node cannot be reached.
    pub(crate) fn worker(&self, py: Python<'_>) -> PyResult<Worker> {
        let store = self.store(py)?;
        let spare = self.lock().as_mut().and_then(|opened| opened.spare.pop());
        match spare {
            Some(worker) => Ok(worker),
            None => py.detach(move || store.worker_in(KeySpace::Program)).map_err(errors::raise),
        }
    }

    /// Keeps a worker that has no transaction, if it belongs to the open store.
    pub(crate) fn give_back(&self, worker: Worker, born: u32) {
        if born != forks() {
            std::mem::forget(worker);
            return;
        }
        match &mut *self.lock() {
            Some(opened) if opened.forks == born && opened.spare.len() < SPARE_MAX => {
                opened.spare.push(worker);
            }
            _ => {}
        }
    }

    /// Closes the store. Operations in progress complete.
    pub(crate) fn close(&self, py: Python<'_>) {
        let Some(mut opened) = self.lock().take() else { return };
        if opened.forks == forks() {
            let parts = (opened.store.take(), std::mem::take(&mut opened.spare));
            py.detach(move || drop(parts));
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_none()
    }
}

/// Runs `work` in a new thread, and waits until it is done or a signal's handler raises.
fn in_a_thread<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> PyResult<R> {
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("darter-call".to_owned())
        .spawn(move || {
            // Fails if a signal has ended the wait.
            let _ = sender.send(work());
        })
        .map_err(|error| errors::raise(Error::Thread(error)))?;
    let receiver = Mutex::new(receiver);
    loop {
        let waits = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SIGNAL_CHECKS);
        match py.detach(waits) {
            Ok(result) => return result.map_err(errors::raise),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(errors::usage("the call failed: its thread has panicked".to_owned()));
            }
        }
    }
}
