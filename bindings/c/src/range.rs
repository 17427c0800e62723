//! Iterations over pairs in the order of their keys, from both ends.

use crate::arguments::{Output, bytes, darter_bytes, exclusive, handle, reclaim};
use crate::status::darter_status::{DARTER_NOT_FOUND, DARTER_OK};
use crate::status::{Failure, call, darter_status};
use crate::store::darter_store;
use darter::{KeyValue, Range};
use std::ffi::c_void;
use std::ops::Bound;

/// An iteration over the pairs of a range.
pub struct darter_range {
    range: Range<'static>,
    /// The pair that the caller has pointers to.
    current: KeyValue,
}

impl darter_range {
    fn new(range: Range<'static>) -> Self {
        Self { range, current: KeyValue::default() }
    }
}

/// Begins an iteration over the keys from `from`, included, to `to`, excluded. If `from` is NULL,
/// it begins with the smallest key; if `to` is NULL, it ends with the largest. Sets `*range`, which
/// `darter_range_free` frees. Keys can be put and removed during the iteration: it returns every
/// key that is present from its beginning to its end, and none that is absent for that time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_range_open(
    store: *const darter_store,
    from: *const c_void,
    from_length: usize,
    to: *const c_void,
    to_length: usize,
    range: *mut *mut darter_range,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let output = Output::new("range", range)?;
        output.set(std::ptr::null_mut());
        let (first, end) = (bytes("from", from, from_length)?, bytes("to", to, to_length)?);
        let end = if to.is_null() { Bound::Unbounded } else { Bound::Excluded(end) };
        output.give(darter_range::new(handle("store", store)?.store.range((Bound::Included(first), end))));
        Ok(DARTER_OK)
    })
}

/// Begins an iteration over the keys that begin with `prefix`, as `darter_range_open` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_prefix_open(
    store: *const darter_store,
    prefix: *const c_void,
    prefix_length: usize,
    range: *mut *mut darter_range,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let output = Output::new("range", range)?;
        output.set(std::ptr::null_mut());
        let prefix = bytes("prefix", prefix, prefix_length)?;
        output.give(darter_range::new(handle("store", store)?.store.prefix(prefix)));
        Ok(DARTER_OK)
    })
}

/// Takes a pair from one end of a range.
///
/// # Safety
/// As of [`darter_range_next`].
unsafe fn take(
    range: *mut darter_range,
    key: *mut darter_bytes,
    value: *mut darter_bytes,
    next: impl FnOnce(&mut Range<'static>) -> Option<Result<KeyValue, darter::Error>>,
) -> Result<darter_status, Failure> {
    // SAFETY: as promised to this function.
    let (range, outputs) =
        unsafe { (exclusive("range", range)?, [Output::new("key", key)?, Output::new("value", value)?]) };
    let mut found = next(&mut range.range).transpose();
    let is_pair = matches!(found, Ok(Some(_)));
    let pointed = |bytes: &Vec<u8>| darter_bytes {
        data: if is_pair { bytes.as_ptr().cast() } else { std::ptr::null() },
        length: bytes.len(),
    };
    range.current =
        found.as_mut().map_or_else(|_| KeyValue::default(), |pair| pair.take().unwrap_or_default());
    outputs[0].set(pointed(&range.current.0));
    outputs[1].set(pointed(&range.current.1));
    found?;
    Ok(if is_pair { DARTER_OK } else { DARTER_NOT_FOUND })
}

/// Moves to the next pair, in ascending order, and sets `*key` and `*value` to its bytes. They are
/// valid until the next call with this range. Returns DARTER_NOT_FOUND after the last pair; both
/// are then NULL, as after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_range_next(
    range: *mut darter_range,
    key: *mut darter_bytes,
    value: *mut darter_bytes,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe { take(range, key, value, Iterator::next) })
}

/// Moves to the next pair from the end of the range, in descending order, as `darter_range_next`
/// does. Both directions together return each pair once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_range_next_back(
    range: *mut darter_range,
    key: *mut darter_bytes,
    value: *mut darter_bytes,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe { take(range, key, value, DoubleEndedIterator::next_back) })
}

/// Ends an iteration; does nothing if it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_range_free(range: *mut darter_range) {
    // SAFETY: the caller gives the handle up.
    call(|| unsafe {
        drop(reclaim(range));
        Ok(DARTER_OK)
    });
}
