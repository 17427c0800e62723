//! Transactions: a worker in its transaction mode.

use crate::bytes::{Bytes, to_python};
use crate::errors;
use crate::handle::{CLOSED, Handle, forks};
use crate::store::{Store, in_batches, key};
use darter::engine::Worker;
use darter::{Error, TransactionError, block_on};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Changes of several keys that take effect at one moment; `darter.Transaction` completes it.
#[pyclass(module = "darter._darter", subclass)]
pub(crate) struct Transaction {
    handle: Arc<Handle>,
    /// `None` once it has ended. Only reached by `get_mut`: a worker cannot be shared by threads.
    worker: Mutex<Option<Worker>>,
    forks: u32,
}

impl Transaction {
    fn run<R: Send>(
        &mut self,
        py: Python<'_>,
        operation: impl FnOnce(&mut Worker) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        if self.handle.is_closed() {
            return Err(errors::closed(CLOSED));
        }
        if self.forks != forks() {
            return Err(errors::closed("the transaction belongs to the parent process; begin another"));
        }
        let Some(worker) = self.worker.get_mut().unwrap_or_else(PoisonError::into_inner) else {
            return Err(errors::closed("the transaction has ended; begin another"));
        };
        py.detach(move || operation(worker)).map_err(errors::raise)
    }

    fn end(&mut self) {
        let worker = self.worker.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut worker) = worker {
            if self.forks == forks() {
                worker.roll_back();
            }
            self.handle.give_back(worker, self.forks);
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.end();
    }
}

#[pymethods]
impl Transaction {
    /// Begins a transaction that was run before this often.
    #[new]
    #[pyo3(signature = (store, attempt=0))]
    fn new(py: Python<'_>, store: PyRef<'_, Store>, attempt: u16) -> PyResult<Self> {
        let handle = Arc::clone(&store.handle);
        let mut worker = handle.worker(py)?;
        worker.begin_transaction(attempt);
        Ok(Self { handle, worker: Mutex::new(Some(worker)), forks: forks() })
    }

    /// Whether the transaction was committed or rolled back.
    #[getter]
    fn ended(&mut self) -> bool {
        self.worker.get_mut().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Returns the value of a key as the transaction sees it, or a default.
    #[pyo3(signature = (key, default=None))]
    fn get(&mut self, py: Python<'_>, key: Bytes, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let value = self.run(py, |worker| block_on(worker.get(&key)))?;
        Ok(value.map(|value| to_python(py, value).into_any()).or(default))
    }

    /// Returns the values of several keys, read together.
    ///
    /// >>> with db.transaction() as tx:
    /// ...     tx[b"pear"] = b"green"
    /// ...     tx.get_many([b"pear", b"plum"])
    /// [b'green', None]
    fn get_many(&mut self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<Py<PyBytes>>>> {
        let mut values = Vec::new();
        in_batches(py, keys, key, |batch| {
            let found = self.run(py, |worker| block_on(worker.get_many(&batch)))?;
            values.extend(found.into_iter().map(|value| value.map(|value| to_python(py, value))));
            Ok(())
        })?;
        Ok(values)
    }

    /// Stores a value under a key at the commit. The key is not read.
    fn put(&mut self, py: Python<'_>, key: Bytes, value: Bytes) -> PyResult<()> {
        self.run(py, |worker| worker.write_blind(&key, Some(value.as_ref().to_vec())))
    }

    /// Removes a key at the commit, if it is present then. The key is not read.
    fn discard(&mut self, py: Python<'_>, key: Bytes) -> PyResult<()> {
        self.run(py, |worker| worker.write_blind(&key, None))
    }

    /// Removes a key at the commit. Returns its value; `None` if it is absent.
    ///
    /// >>> db[b"pear"] = b"green"
    /// >>> db.transact(lambda tx: tx.remove(b"pear"))
    /// b'green'
    fn remove(&mut self, py: Python<'_>, key: Bytes) -> PyResult<Option<Py<PyBytes>>> {
        let value = self.run(py, |worker| block_on(worker.remove(&key)))?;
        Ok(value.map(|value| to_python(py, value)))
    }

    fn __getitem__(&mut self, py: Python<'_>, key: Bytes) -> PyResult<Py<PyBytes>> {
        match self.run(py, |worker| block_on(worker.get(&key)))? {
            Some(value) => Ok(to_python(py, value)),
            None => Err(PyKeyError::new_err((to_python(py, key),))),
        }
    }

    fn __setitem__(&mut self, py: Python<'_>, key: Bytes, value: Bytes) -> PyResult<()> {
        self.put(py, key, value)
    }

    fn __delitem__(&mut self, py: Python<'_>, key: Bytes) -> PyResult<()> {
        match self.run(py, |worker| block_on(worker.remove(&key)))? {
            Some(_) => Ok(()),
            None => Err(PyKeyError::new_err((to_python(py, key),))),
        }
    }

    fn __contains__(&mut self, py: Python<'_>, key: Bytes) -> PyResult<bool> {
        self.run(py, |worker| block_on(worker.get(&key))).map(|value| value.is_some())
    }

    /// Commits the changes, and ends the transaction. Raises `ConflictError` if another client has
    /// changed a key that was read; nothing has changed then.
    ///
    /// >>> tx = db.transaction()
    /// >>> tx[b"pear"] = b"green"
    /// >>> tx.commit()
    /// >>> db[b"pear"]
    /// b'green'
    fn commit(&mut self, py: Python<'_>) -> PyResult<()> {
        let done = self.run(py, |worker| block_on(worker.commit_transaction()));
        self.end();
        if done? { Ok(()) } else { Err(errors::raise(TransactionError::Conflict.into())) }
    }

    /// Ends the transaction without a change.
    fn rollback(&mut self) {
        self.end();
    }
}
