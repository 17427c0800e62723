//! A store and its operations on single keys.

use crate::arguments::{Output, bytes, darter_value, handle, reclaim, text};
use crate::options::{self, darter_options};
use crate::status::darter_status::{DARTER_NOT_FOUND, DARTER_OK, DARTER_REFUSED};
use crate::status::{Failure, call, darter_status, done_or};
use darter::Store;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// An open pool with its index.
pub struct darter_store {
    /// Ranges and transactions keep it open too.
    pub(crate) store: Arc<Store>,
}

/// Opens the pool that `url` names, a string that NUL ends: "mem:64M", "file:PATH?size=64M" or
/// "tcp://HOST:PORT,HOST:PORT". Sets `*store`, which `darter_close` closes. `options` can be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_open(
    url: *const c_char,
    options: *const darter_options,
    store: *mut *mut darter_store,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let output = Output::new("store", store)?;
        output.set(std::ptr::null_mut());
        let url = text("url", url)?.ok_or_else(|| Failure::argument("url is NULL"))?;
        let store = Arc::new(options::read(options)?.open(url)?);
        output.give(darter_store { store });
        Ok(DARTER_OK)
    })
}

/// Closes a store; does nothing if it is NULL. The pool is left when the ranges and transactions of
/// the store have ended too. This can take a second if other processes hold back freed memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_close(store: *mut darter_store) {
    // SAFETY: the caller gives the handle up.
    call(|| unsafe {
        drop(reclaim(store));
        Ok(DARTER_OK)
    });
}

/// Reads the value of a key into `*value`, which `darter_value_free` frees. Returns
/// DARTER_NOT_FOUND if the key is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_get(
    store: *const darter_store,
    key: *const c_void,
    key_length: usize,
    value: *mut darter_value,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let output = Output::new("value", value)?;
        output.set(darter_value::NONE);
        Ok(output.fill(handle("store", store)?.store.get(bytes("key", key, key_length)?)?))
    })
}

/// Stores a value under a key, whether or not the key is present.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_put(
    store: *const darter_store,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let (key, value) = (bytes("key", key, key_length)?, bytes("value", value, value_length)?);
        handle("store", store)?.store.put(key, value)?;
        Ok(DARTER_OK)
    })
}

/// Stores a value under a key if the key is absent. Returns DARTER_REFUSED if it is present.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_try_insert(
    store: *const darter_store,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let (key, value) = (bytes("key", key, key_length)?, bytes("value", value, value_length)?);
        Ok(done_or(handle("store", store)?.store.try_insert(key, value)?, DARTER_REFUSED))
    })
}

/// Replaces the value of a key if it equals `expected`. Returns DARTER_REFUSED if it does not, or
/// the key is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_compare_exchange(
    store: *const darter_store,
    key: *const c_void,
    key_length: usize,
    expected: *const c_void,
    expected_length: usize,
    value: *const c_void,
    value_length: usize,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let (key, value) = (bytes("key", key, key_length)?, bytes("value", value, value_length)?);
        let expected = bytes("expected", expected, expected_length)?;
        Ok(done_or(handle("store", store)?.store.compare_exchange(key, expected, value)?, DARTER_REFUSED))
    })
}

/// Removes a key. Returns DARTER_NOT_FOUND if it is absent. `value`, which can be NULL, receives
/// the value that was removed; `darter_value_free` frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_remove(
    store: *const darter_store,
    key: *const c_void,
    key_length: usize,
    value: *mut darter_value,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let Some(output) = Output::optional(value) else {
            let key = bytes("key", key, key_length)?;
            return Ok(done_or(handle("store", store)?.store.discard(key)?, DARTER_NOT_FOUND));
        };
        output.set(darter_value::NONE);
        Ok(output.fill(handle("store", store)?.store.remove(bytes("key", key, key_length)?)?))
    })
}

/// Removes a key if its value equals `expected`. Returns DARTER_REFUSED if it does not, or the key
/// is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_compare_remove(
    store: *const darter_store,
    key: *const c_void,
    key_length: usize,
    expected: *const c_void,
    expected_length: usize,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let key = bytes("key", key, key_length)?;
        let expected = bytes("expected", expected, expected_length)?;
        let removed = handle("store", store)?.store.remove_if(key, |value| value == expected)?;
        Ok(done_or(removed, DARTER_REFUSED))
    })
}

/// Makes everything stored so far survive a power failure, if the medium can.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_persist(store: *const darter_store) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        handle("store", store)?.store.persist()?;
        Ok(DARTER_OK)
    })
}
