//! The operations of a store.

use crate::backup;
use crate::bytes::{Bytes, to_python};
use crate::errors;
use crate::handle::{CLOSED, Handle};
use crate::pairs::{Pages, Pairs, Part};
use darter::{Change, Condition, PutOutcome, ScanRange, Scheme};
use pyo3::exceptions::{PyKeyError, PyOverflowError, PyRecursionError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::cell::Cell;
use std::ops::Bound as End;
use std::path::PathBuf;
use std::sync::Arc;

/// Number of keys or pairs that `get_many`, `put_many` and `remove_many` hold at a time.
const BATCH: usize = 4096;
/// Maximum number of calls of `modify` inside each other's functions: each takes much of the stack,
/// of which Python's own limit knows nothing.
const NESTED_MAX: u32 = 16;

thread_local! {
    /// Number of calls of `modify` that this thread is in.
    static NESTED: Cell<u32> = const { Cell::new(0) };
}

/// A call of `modify` in this thread.
struct Nested;

impl Nested {
    /// # Errors
    /// Fails if the thread is in too many calls already.
    fn enter() -> PyResult<Self> {
        let before = NESTED.get();
        if before == NESTED_MAX {
            let message = format!(
                "modify was called by its own function {NESTED_MAX} times: return the new value instead"
            );
            return Err(PyRecursionError::new_err(message));
        }
        NESTED.set(before + 1);
        Ok(Self)
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        NESTED.set(NESTED.get() - 1);
    }
}

/// An open pool; `darter.Store` adds the methods that need no Rust.
#[pyclass(module = "darter._darter", subclass, weakref)]
pub(crate) struct Store {
    pub(crate) handle: Arc<Handle>,
}

/// Returns the range from one key to before another.
pub(crate) fn range(from: Option<Bytes>, to: Option<Bytes>, reverse: bool) -> ScanRange {
    let end = |key: Bytes| key.as_ref().to_vec();
    ScanRange {
        from: from.map_or(End::Unbounded, |key| End::Included(end(key))),
        to: to.map_or(End::Unbounded, |key| End::Excluded(end(key))),
        reverse,
    }
}

type Found = Option<Py<PyBytes>>;
type Pair = (Py<PyBytes>, Py<PyBytes>);

impl Store {
    fn pages(&self, range: ScanRange, limit: Option<usize>) -> Pages {
        Pages::new(Arc::clone(&self.handle), range, limit.unwrap_or(usize::MAX))
    }

    fn end(&self, py: Python<'_>, last: bool) -> PyResult<Option<Pair>> {
        let pair = self.handle.run(py, |store| if last { store.last() } else { store.first() })?;
        Ok(pair.map(|(key, value)| (to_python(py, key), to_python(py, value))))
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (url, **options))]
    fn new(py: Python<'_>, url: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let Ok(name) = url.cast::<PyString>() else {
            return Err(PyTypeError::new_err(format!(
                "a pool's name is a str such as `file:/dev/shm/fruit.pool?size=64M`, not {}",
                url.get_type().name()?
            )));
        };
        let options = options.cloned().unwrap_or_else(|| PyDict::new(py));
        Ok(Self { handle: Arc::new(Handle::open(py, name.to_str()?, &options)?) })
    }

    /// The name of the pool, with an absolute path.
    #[getter]
    fn url(&self) -> String {
        self.handle.url.to_string()
    }

    /// Whether the store was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// The options that open the same pool in another process.
    #[getter]
    fn _options(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let url = &self.handle.url;
        if self.handle.is_closed() {
            return Err(errors::closed(CLOSED));
        }
        if matches!(url.scheme(), Scheme::Memory) {
            return Err(errors::usage(format!(
                "pool `{url}` is in the memory of this process and cannot be passed to another; open a `file:` pool"
            )));
        }
        Ok(self.handle.arguments.clone_ref(py))
    }

    /// Closes the store. Operations in progress complete; later ones raise `ClosedError`.
    ///
    /// >>> db = darter.open("mem:16M")
    /// >>> db.close()
    /// >>> db.closed
    /// True
    fn close(&self, py: Python<'_>) {
        self.handle.close(py);
    }

    fn __getitem__(&self, py: Python<'_>, key: Bytes) -> PyResult<Py<PyBytes>> {
        match self.handle.run(py, |store| store.get(&key))? {
            Some(value) => Ok(to_python(py, value)),
            None => Err(PyKeyError::new_err((to_python(py, key),))),
        }
    }

    fn __setitem__(&self, py: Python<'_>, key: Bytes, value: Bytes) -> PyResult<()> {
        self.handle.run(py, |store| store.put(&key, &value)).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: Bytes) -> PyResult<()> {
        if self.handle.run(py, |store| store.discard(&key))? {
            return Ok(());
        }
        Err(PyKeyError::new_err((to_python(py, key),)))
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes) -> PyResult<bool> {
        self.handle.run(py, |store| store.contains_key(&key))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.pages(ScanRange::all(), None).count(py)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.run(py, |store| store.is_empty().map(|empty| !empty))
    }

    fn __iter__(&self) -> Pairs {
        Pairs::new(self.pages(ScanRange::all(), None), Part::Keys)
    }

    fn __reversed__(&self) -> Pairs {
        Pairs::new(self.pages(ScanRange::all().reversed(), None), Part::Keys)
    }

    /// Returns the value of a key, or a default.
    ///
    /// >>> db[b"pear"] = b"green"
    /// >>> db.get(b"pear"), db.get(b"plum"), db.get(b"plum", b"?")
    /// (b'green', None, b'?')
    #[pyo3(signature = (key, default=None))]
    fn get(&self, py: Python<'_>, key: Bytes, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let value = self.handle.run(py, |store| store.get(&key))?;
        Ok(value.map(|value| to_python(py, value).into_any()).or(default))
    }

    /// Returns the values of several keys, in the order of the keys.
    ///
    /// >>> db[b"pear"] = b"green"
    /// >>> db.get_many([b"pear", b"plum"])
    /// [b'green', None]
    #[pyo3(signature = (keys, default=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let values = PyList::empty(py);
        in_batches(py, keys, key, |batch| {
            for value in self.handle.run(py, |store| store.get_many(&batch))? {
                match value {
                    Some(value) => values.append(to_python(py, value))?,
                    None => values.append(&default)?,
                }
            }
            Ok(())
        })?;
        Ok(values)
    }

    /// Returns the pair with the smallest key; `None` if the store is empty.
    ///
    /// >>> db.update({b"b": b"2", b"a": b"1"})
    /// >>> db.first()
    /// (b'a', b'1')
    fn first(&self, py: Python<'_>) -> PyResult<Option<Pair>> {
        self.end(py, false)
    }

    /// Returns the pair with the largest key; `None` if the store is empty.
    ///
    /// >>> db.update({b"b": b"2", b"a": b"1"})
    /// >>> db.last()
    /// (b'b', b'2')
    fn last(&self, py: Python<'_>) -> PyResult<Option<Pair>> {
        self.end(py, true)
    }

    /// Stores a value if the key is absent. Returns whether it was.
    ///
    /// >>> db.insert(b"lock", b"process 1"), db.insert(b"lock", b"process 2")
    /// (True, False)
    fn insert(&self, py: Python<'_>, key: Bytes, value: Bytes) -> PyResult<bool> {
        self.handle.run(py, |store| store.try_insert(&key, &value))
    }

    /// Stores a value. Returns the former one; `None` if the key was absent.
    ///
    /// >>> db.swap(b"pear", b"green"), db.swap(b"pear", b"yellow")
    /// (None, b'green')
    fn swap(&self, py: Python<'_>, key: Bytes, value: Bytes) -> PyResult<Found> {
        let old = self.handle.run(py, |store| store.insert(&key, &value))?;
        Ok(old.map(|old| to_python(py, old)))
    }

    /// Stores a value if the key is absent, at one moment. Returns the value of the key.
    ///
    /// >>> db.setdefault(b"pear", b"green"), db.setdefault(b"pear", b"yellow")
    /// (b'green', b'green')
    fn setdefault(&self, py: Python<'_>, key: Bytes, default: Bytes) -> PyResult<Py<PyBytes>> {
        let value = self.handle.run(py, |store| {
            loop {
                if let Some(value) = store.get(&key)? {
                    return Ok(Some(value));
                }
                if store.try_insert(&key, &default)? {
                    return Ok(None);
                }
            }
        })?;
        Ok(value.map_or_else(|| to_python(py, default), |value| to_python(py, value)))
    }

    /// Replaces a value if it is `expected`. Returns whether it was. `None` stands for an absent key:
    /// as `expected`, and as the new value, which removes the key.
    ///
    /// >>> db.compare_exchange(b"lock", None, b"me")
    /// True
    /// >>> db.compare_exchange(b"lock", b"you", None), db.compare_exchange(b"lock", b"me", None)
    /// (False, True)
    fn compare_exchange(
        &self,
        py: Python<'_>,
        key: Bytes,
        expected: Option<Bytes>,
        value: Option<Bytes>,
    ) -> PyResult<bool> {
        self.handle.run(py, |store| match (&expected, &value) {
            (None, None) => store.contains_key(&key).map(|present| !present),
            (None, Some(value)) => store.try_insert(&key, value),
            (Some(expected), None) => store.remove_if(&key, |value| value == expected.as_ref()),
            (Some(expected), Some(value)) => {
                let outcome = store.put_if(&key, value, Condition::Equals(expected.as_ref()))?;
                Ok(outcome != PutOutcome::Refused)
            }
        })
    }

    /// Replaces a value by the result of a function, which gets the value, or `None` if the key is
    /// absent. Returns the result; `None` removes the key. The function is called again if another
    /// client changes the key in between; its last result counts. If it raises, nothing changes.
    ///
    /// >>> count = lambda old: b"%d" % (int(old or b"0") + 1)
    /// >>> db.modify(b"visits", count), db.modify(b"visits", count)
    /// (b'1', b'2')
    fn modify(&self, py: Python<'_>, key: Bytes, function: Py<PyAny>) -> PyResult<Found> {
        let _nested = Nested::enter()?;
        let mut last: PyResult<Option<Bytes>> = Ok(None);
        let decide = |old: Option<&[u8]>| {
            let result = Python::attach(|py| {
                let new = function.call1(py, (old.map(|old| to_python(py, old)),))?;
                new.extract::<Option<Bytes>>(py)
            });
            let change = match &result {
                Ok(Some(new)) if Some(new.as_ref()) == old => Change::Keep,
                Ok(Some(new)) => Change::Put(new.as_ref().to_vec()),
                Ok(None) => Change::Remove,
                Err(_) => Change::Keep,
            };
            last = result;
            change
        };
        self.handle.run(py, |store| store.update(&key, decide))?;
        Ok(last?.map(|value| to_python(py, value)))
    }

    /// Removes a key. Returns its value; `None` if it was absent.
    ///
    /// >>> db[b"pear"] = b"green"
    /// >>> db.remove(b"pear"), db.remove(b"pear")
    /// (b'green', None)
    fn remove(&self, py: Python<'_>, key: Bytes) -> PyResult<Found> {
        let value = self.handle.run(py, |store| store.remove(&key))?;
        Ok(value.map(|value| to_python(py, value)))
    }

    /// Removes a key. Returns whether it was present.
    ///
    /// >>> db.discard(b"pear")
    /// False
    fn discard(&self, py: Python<'_>, key: Bytes) -> PyResult<bool> {
        self.handle.run(py, |store| store.discard(&key))
    }

    /// Removes the pair with the largest key, or the smallest, and returns it.
    ///
    /// >>> db.update({b"b": b"2", b"a": b"1"})
    /// >>> db.popitem(), db.popitem(last=False)
    /// ((b'b', b'2'), (b'a', b'1'))
    #[pyo3(signature = (last=true))]
    fn popitem(&self, py: Python<'_>, last: bool) -> PyResult<Pair> {
        let pair = self.handle.run(py, |store| {
            loop {
                let Some((key, _)) = (if last { store.last()? } else { store.first()? }) else {
                    return Ok(None);
                };
                if let Some(value) = store.remove(&key)? {
                    return Ok(Some((key, value)));
                }
            }
        })?;
        let (key, value) = pair.ok_or_else(|| PyKeyError::new_err("popitem(): the store is empty"))?;
        Ok((to_python(py, key), to_python(py, value)))
    }

    /// Stores the pairs of a mapping or an iterable. Others may see some of them before the rest.
    ///
    /// >>> db.put_many({b"a": b"1", b"b": b"2"})
    /// >>> db.put_many((b"%d" % number, b"") for number in range(1000))
    /// >>> len(db)
    /// 1002
    fn put_many(&self, py: Python<'_>, pairs: &Bound<'_, PyAny>) -> PyResult<()> {
        let pairs = if pairs.hasattr("items")? { pairs.call_method0("items")? } else { pairs.clone() };
        in_batches(py, &pairs, pair, |batch| self.handle.run(py, |store| store.put_many(&batch)).map(drop))
    }

    /// Removes several keys. Returns how many were present.
    ///
    /// >>> db[b"pear"] = b"green"
    /// >>> db.remove_many([b"pear", b"plum"])
    /// 1
    fn remove_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        let mut removed = 0;
        in_batches(py, keys, key, |batch| {
            removed += self.handle.run(py, |store| store.remove_many(&batch))?;
            Ok(())
        })?;
        Ok(removed)
    }

    /// Removes the keys from `start` to before `stop`. Returns their number.
    ///
    /// >>> db.update({b"log/1": b"", b"log/2": b"", b"log/3": b""})
    /// >>> db.remove_range(b"log/2")
    /// 2
    #[pyo3(signature = (start=None, stop=None))]
    fn remove_range(&self, py: Python<'_>, start: Option<Bytes>, stop: Option<Bytes>) -> PyResult<u64> {
        self.pages(range(start, stop, false), None).remove(py)
    }

    /// Removes all keys. Those that others insert during the call may remain.
    ///
    /// >>> db[b"pear"] = b"green"
    /// >>> db.clear()
    /// >>> bool(db)
    /// False
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.pages(ScanRange::all(), None).remove(py).map(drop)
    }

    /// Returns the pairs from the key `start` to before the key `stop`, in ascending or descending
    /// order; with `part="keys"` or `part="values"` only those.
    ///
    /// >>> db.update({b"a": b"1", b"b": b"2", b"c": b"3"})
    /// >>> list(db.range(b"a", b"c"))
    /// [(b'a', b'1'), (b'b', b'2')]
    /// >>> list(db.range(reverse=True, limit=2, part="keys"))
    /// [b'c', b'b']
    #[pyo3(signature = (start=None, stop=None, *, reverse=false, limit=None, part="items"))]
    fn range(
        &self,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        reverse: bool,
        limit: Option<Limit>,
        part: &str,
    ) -> PyResult<Pairs> {
        let limit = limit.map(|limit| limit.0);
        Ok(Pairs::new(self.pages(range(start, stop, reverse), limit), part_of(part)?))
    }

    /// Returns the pairs whose keys begin with `prefix`, as `range` does.
    ///
    /// >>> db.update({b"fig": b"", b"pear": b"", b"plum": b""})
    /// >>> list(db.prefix(b"p", part="keys"))
    /// [b'pear', b'plum']
    #[pyo3(signature = (prefix, *, reverse=false, limit=None, part="items"))]
    fn prefix(&self, prefix: Bytes, reverse: bool, limit: Option<Limit>, part: &str) -> PyResult<Pairs> {
        let limit = limit.map(|limit| limit.0);
        let range = ScanRange { reverse, ..ScanRange::prefix(prefix.as_ref()) };
        Ok(Pairs::new(self.pages(range, limit), part_of(part)?))
    }

    /// Returns the number of keys from `start` to before `stop`, by a walk over them.
    ///
    /// >>> db.update({b"a": b"1", b"b": b"2"})
    /// >>> db.count(b"b")
    /// 1
    #[pyo3(signature = (start=None, stop=None))]
    fn count(&self, py: Python<'_>, start: Option<Bytes>, stop: Option<Bytes>) -> PyResult<usize> {
        self.pages(range(start, stop, false), None).count(py)
    }

    /// The length of the largest value that this pool can store, under an empty key.
    #[getter]
    fn max_value_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.handle.store(py)?.max_value_bytes())
    }

    /// Returns remarks for operators: failing upkeep, and the like.
    ///
    /// >>> type(db.notes())
    /// <class 'list'>
    fn notes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.handle.run(py, |store| Ok(store.notes()))
    }

    /// Makes everything stored so far survive a power failure, if the medium can.
    fn persist(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.run_long(py, darter::Store::persist)
    }

    /// Returns counts and sizes, by a walk of the whole index.
    ///
    /// >>> db[b"pear"] = b"green"
    /// >>> db.stats()["keys"]
    /// 1
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.handle.run_long(py, darter::Store::stats)?;
        let dict = PyDict::new(py);
        dict.set_item("index", stats.name)?;
        dict.set_item("keys", stats.index.keys)?;
        dict.set_item("pair_bytes", stats.index.kv_bytes)?;
        dict.set_item("index_bytes", stats.index.index_bytes)?;
        dict.set_item("cache_bytes", stats.cache_used_bytes)?;
        dict.set_item("pool_bytes", stats.pool.bytes())?;
        dict.set_item("used_bytes", stats.pool.used_bytes())?;
        dict.set_item("members", stats.pool.members.iter().map(|member| member.pid).collect::<Vec<_>>())?;
        Ok(dict)
    }

    /// Verifies every invariant by a walk of the index and the pool, and counts leaked bytes, which
    /// `repair` frees. Operations of this process must pause during the call.
    ///
    /// >>> check = db.check()
    /// >>> check["sound"], check["violations"], check["leaked_bytes"]
    /// (True, [], 0)
    #[pyo3(signature = (*, repair=false))]
    fn check<'py>(&self, py: Python<'py>, repair: bool) -> PyResult<Bound<'py, PyDict>> {
        let check =
            self.handle.run_long(py, move |store| if repair { store.repair() } else { store.check() })?;
        let dict = PyDict::new(py);
        dict.set_item("sound", check.is_sound())?;
        dict.set_item("violations", &check.violations)?;
        dict.set_item("remarks", &check.remarks)?;
        dict.set_item("keys", check.stats.keys)?;
        dict.set_item("leaked_bytes", check.leaked_bytes)?;
        dict.set_item("unverified_bytes", check.unverified_bytes)?;
        dict.set_item("repaired_bytes", check.repaired_bytes)?;
        Ok(dict)
    }

    /// Writes a backup to a file, for `darter.Store.backup`.
    #[pyo3(name = "_backup")]
    fn backup<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
        backup::backup(&self.handle, py, path)
    }

    /// Stores all pairs of a backup in this pool, which must be empty. The pool may have another size
    /// and index than the one that was backed up. The pairs appear at one moment.
    ///
    /// >>> import darter, tempfile
    /// >>> db[b"pear"] = b"green"
    /// >>> with tempfile.TemporaryDirectory() as folder:
    /// ...     db.backup(folder + "/fruit.backup")["pairs"]
    /// ...     with darter.open("mem:16M") as copy:
    /// ...         copy.restore(folder + "/fruit.backup")["pairs"], copy[b"pear"]
    /// 1
    /// (1, b'green')
    #[pyo3(signature = (path, /))]
    fn restore<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
        backup::restore(&self.handle, py, path)
    }
}

/// Maximum number of pairs of a range.
struct Limit(usize);

impl<'py> FromPyObject<'_, 'py> for Limit {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        object.extract::<usize>().map(Self).map_err(|error| {
            if error.is_instance_of::<PyOverflowError>(object.py()) {
                let message = format!("limit={}: use a number of pairs from 0 on, or None for all", *object);
                return PyValueError::new_err(message);
            }
            error
        })
    }
}

/// Returns the key that an object is.
pub(crate) fn key(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    object.extract()
}

/// Returns the key and the value of a tuple.
fn pair(object: &Bound<'_, PyAny>) -> PyResult<(Bytes, Bytes)> {
    match object.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => {
            Ok((pair.get_borrowed_item(0)?.extract()?, pair.get_borrowed_item(1)?.extract()?))
        }
        _ => {
            let found = object.repr()?.to_string();
            let found: String = found.chars().take(80).collect();
            Err(PyTypeError::new_err(format!(
                "put_many takes a mapping, or tuples of a key and a value such as `(b'pear', b'green')`, not {found}"
            )))
        }
    }
}

/// Calls `each` with batches of what an iterator returns, and checks for signals between them.
pub(crate) fn in_batches<T>(
    py: Python<'_>,
    objects: &Bound<'_, PyAny>,
    convert: fn(&Bound<'_, PyAny>) -> PyResult<T>,
    mut each: impl FnMut(Vec<T>) -> PyResult<()>,
) -> PyResult<()> {
    let mut objects = objects.try_iter()?;
    loop {
        let batch =
            objects.by_ref().take(BATCH).map(|object| convert(&object?)).collect::<PyResult<Vec<T>>>()?;
        if batch.is_empty() {
            return Ok(());
        }
        py.check_signals()?;
        each(batch)?;
    }
}

fn part_of(name: &str) -> PyResult<Part> {
    Ok(match name {
        "items" => Part::Items,
        "keys" => Part::Keys,
        "values" => Part::Values,
        _ => return Err(PyTypeError::new_err(format!("part `{name}`: use items, keys or values"))),
    })
}
