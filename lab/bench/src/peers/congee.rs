//! congee: an adaptive radix tree with optimistic lock coupling, 8-byte keys to 8-byte words.
//!
//! It holds words only, so the word is the address of a boxed value. A value never changes once
//! published; an update publishes a new box and leaves the old one to congee's own epoch scheme,
//! which frees it when no pinned reader can hold it.

use super::{VALUE_BYTES, Value, integer, value};
use ::congee::epoch::Guard;
use ::congee::{Congee, DefaultAllocator};
use darter_bench::BenchError;
use darter_bench::target::{Target, TargetSession};
use darter_bench::ycsb::SCAN_RECORDS_MAX;

/// The tree; its words are addresses of boxed values that it owns.
pub(super) struct CongeeTarget {
    tree: Congee<usize, usize>,
}

impl CongeeTarget {
    /// An empty tree.
    pub(super) fn new() -> Self {
        let drainer = |_key: usize, word: usize| {
            // SAFETY: the drainer runs once for each word still in the tree when the tree is
            // dropped, and each such word came from `Box::into_raw` in `boxed` and was not
            // replaced, and therefore not freed.
            drop(unsafe { Box::from_raw(word as *mut Value) });
        };
        Self { tree: Congee::new_with_drainer(DefaultAllocator {}, drainer) }
    }
}

/// Moves a value to the heap and gives its address.
fn boxed(bytes: &[u8]) -> usize {
    Box::into_raw(Box::new(value(bytes))) as usize
}

/// Copies out the value at an address found under `guard`.
#[inline]
fn copy_out(word: usize, _guard: &Guard, out: &mut Vec<u8>) {
    // SAFETY: the word was found in the tree while the guard was pinned, so it is the address of a
    // box from `boxed` that is freed, if at all, after the guard is gone; and no one writes to a
    // published box.
    out.extend_from_slice(unsafe { &*(word as *const Value) });
}

impl Target for CongeeTarget {
    type Session<'a> = CongeeSession<'a>;

    fn name(&self) -> &'static str {
        "congee"
    }

    fn session(&self) -> Result<CongeeSession<'_>, BenchError> {
        Ok(CongeeSession { tree: &self.tree, found: [(0, 0); SCAN_RECORDS_MAX as usize] })
    }
}

/// A borrower of the tree.
pub(super) struct CongeeSession<'a> {
    tree: &'a Congee<usize, usize>,
    found: [(usize, usize); SCAN_RECORDS_MAX as usize],
}

impl CongeeSession<'_> {
    /// Stores a value. Returns whether the key was there.
    fn put(&self, key: &[u8], bytes: &[u8]) -> Result<bool, BenchError> {
        let guard = self.tree.pin();
        let old = self
            .tree
            .insert(integer(key) as usize, boxed(bytes), &guard)
            .map_err(|error| BenchError::WrongAnswer { index: "congee", what: error.to_string() })?;
        if let Some(word) = old {
            // SAFETY: `insert` took this word out of the tree and gave it to no one else, so only
            // readers pinned by now can still hold it, and the guard defers the call until they are
            // gone. It came from `Box::into_raw` in `boxed`.
            unsafe { guard.defer_unchecked(move || drop(Box::from_raw(word as *mut Value))) };
        }
        Ok(old.is_some())
    }
}

impl TargetSession for CongeeSession<'_> {
    #[inline]
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let guard = self.tree.pin();
        value.clear();
        let found = self.tree.get(&(integer(key) as usize), &guard);
        if let Some(word) = found {
            copy_out(word, &guard, value);
        }
        Ok(found.is_some())
    }

    #[inline]
    async fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        self.put(key, value)
    }

    #[inline]
    async fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        Ok(!self.put(key, value)?)
    }

    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError> {
        let guard = self.tree.pin();
        let limit = limit.min(self.found.len());
        let found = &mut self.found[..limit];
        // The upper bound is exclusive; no key of a dataset is the largest integer.
        let count = self.tree.range(&(integer(from) as usize), &usize::MAX, found, &guard);
        values.clear();
        values.reserve(count * VALUE_BYTES);
        for &(_, word) in &found[..count] {
            copy_out(word, &guard, values);
        }
        Ok(count)
    }
}
