//! Iterators over the pairs of a range. They fetch pages of pairs into one buffer, and check for
//! signals between pages.

use crate::bytes::to_python;
use crate::errors;
use crate::handle::Handle;
use darter::{Error, ScanRange, Store};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ops::Bound as End;
use std::sync::Arc;

/// Number of pairs in the first page if there is no limit.
const PAGE_FIRST: usize = 16;
/// Maximum number of pairs in a page.
const PAGE_MAX: usize = 512;
/// Target size of a page in bytes, estimated from the page before.
const PAGE_BYTES: usize = 1 << 20;

/// What an iterator returns for a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Keys,
    Values,
    Items,
}

/// Pairs in one buffer, in the order of their range.
#[derive(Default)]
struct Page {
    bytes: Vec<u8>,
    /// The ends of each key and its value in `bytes`.
    ends: Vec<(usize, usize)>,
}

impl Page {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((middle, self.bytes.len()));
    }

    fn pair(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let &(middle, end) = self.ends.get(at)?;
        let start = if at == 0 { 0 } else { self.ends[at - 1].1 };
        Some((&self.bytes[start..middle], &self.bytes[middle..end]))
    }

    /// Replaces the contents by the first `limit` pairs of a range.
    fn fetch(&mut self, store: &Store, range: &ScanRange, limit: usize) -> Result<(), Error> {
        let fetched = self.scan(store, range, limit);
        match fetched {
            // A chunk is also fetched after the store has joined its pool again.
            Err(error) if error.is_shut_out() || error.is_disconnected() => {
                let pairs = store.scan_chunk(range, limit)?;
                self.clear();
                for (key, value) in &pairs {
                    self.push(key, value);
                }
                Ok(())
            }
            fetched => fetched,
        }
    }

    fn scan(&mut self, store: &Store, range: &ScanRange, limit: usize) -> Result<(), Error> {
        self.clear();
        store.scan_with(range, limit, |key, value| self.push(key, value)).map(drop)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// The rest of a range, page by page.
pub(crate) struct Pages {
    handle: Arc<Handle>,
    range: ScanRange,
    /// Number of pairs that may still be fetched.
    limit: usize,
    page: Page,
    /// Number of pairs in the next page; 0 after the last one.
    next: usize,
}

impl Pages {
    pub(crate) fn new(handle: Arc<Handle>, range: ScanRange, limit: usize) -> Self {
        let next = if limit < PAGE_MAX { limit } else { PAGE_FIRST };
        Self { handle, range, limit, page: Page::default(), next }
    }

    /// Fetches the next page. Returns whether there are more pairs.
    ///
    /// # Errors
    /// Fails as a scan does, or with the exception of a signal's handler.
    fn turn(&mut self, py: Python<'_>) -> PyResult<bool> {
        let asked = self.next.min(self.limit);
        if asked == 0 {
            self.page.clear();
            return Ok(false);
        }
        py.check_signals()?;
        let store = self.handle.store(py)?;
        let (page, range) = (&mut self.page, &self.range);
        py.detach(move || page.fetch(&store, range, asked)).map_err(errors::raise)?;
        let found = self.page.ends.len();
        self.limit -= found;
        if let Some((last, _)) = found.checked_sub(1).and_then(|last| self.page.pair(last)) {
            let last = End::Excluded(last.to_vec());
            if self.range.reverse { self.range.to = last } else { self.range.from = last }
        }
        let fitting = PAGE_BYTES / (self.page.bytes.len() / found.max(1)).max(1);
        self.next = if found < asked { 0 } else { (asked * 2).min(PAGE_MAX).min(fitting).max(1) };
        Ok(found > 0)
    }

    /// Returns the number of pairs that are left.
    ///
    /// # Errors
    /// Fails as a scan does, or with the exception of a signal's handler.
    pub(crate) fn count(mut self, py: Python<'_>) -> PyResult<usize> {
        let mut count = 0;
        self.next = PAGE_MAX;
        while self.turn(py)? {
            count += self.page.ends.len();
        }
        Ok(count)
    }

    /// Removes the pairs that are left. Returns their number.
    ///
    /// # Errors
    /// Fails as a removal does, or with the exception of a signal's handler.
    pub(crate) fn remove(mut self, py: Python<'_>) -> PyResult<u64> {
        let mut count = 0;
        while self.turn(py)? {
            let keys: Vec<_> = (0..).map_while(|at| self.page.pair(at)).map(|(key, _)| key).collect();
            count += self.handle.run(py, |store| store.remove_many(&keys))?;
        }
        Ok(count)
    }
}

/// An iterator over the keys, values or pairs of a range.
#[pyclass(module = "darter._darter")]
pub(crate) struct Pairs {
    pages: Pages,
    at: usize,
    part: Part,
}

impl Pairs {
    pub(crate) fn new(pages: Pages, part: Part) -> Self {
        Self { pages, at: 0, part }
    }
}

#[pymethods]
impl Pairs {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.at == self.pages.page.ends.len() {
            self.at = 0;
            if !self.pages.turn(py)? {
                return Ok(None);
            }
        }
        let Some((key, value)) = self.pages.page.pair(self.at) else { return Ok(None) };
        self.at += 1;
        Ok(Some(match self.part {
            Part::Keys => to_python(py, key).into_any(),
            Part::Values => to_python(py, value).into_any(),
            Part::Items => PyTuple::new(py, [to_python(py, key), to_python(py, value)])?.into_any().unbind(),
        }))
    }
}
