//! Operations on several keys, which share round trips to memory nodes.

use crate::arguments::{Output, array, bytes, darter_bytes, darter_value, handle};
use crate::status::{Failure, call, darter_status};
use crate::store::darter_store;
use darter_status::DARTER_OK;

/// A key with its value, in an array of the caller.
#[repr(C)]
pub struct darter_pair {
    /// The key.
    pub key: darter_bytes,
    /// The value.
    pub value: darter_bytes,
}

/// Returns the bytes of an element.
///
/// # Safety
/// They are valid during the call of the interface.
unsafe fn element<'a>(name: &str, number: usize, from: darter_bytes) -> Result<&'a [u8], Failure> {
    if from.length > 0 && from.data.is_null() {
        return Err(Failure::argument(format!("{name} {number} is NULL, but its length is {}", from.length)));
    }
    // SAFETY: as promised to this function.
    unsafe { bytes(name, from.data, from.length) }
}

/// Reads the values of `count` keys into `values`, which has room for as many. The value of an
/// absent key is NULL. `darter_value_free` frees each of the others. If the call fails, all are
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_get_many(
    store: *const darter_store,
    keys: *const darter_bytes,
    count: usize,
    values: *mut darter_value,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let keys = array("keys", keys, count)?;
        if keys.is_empty() {
            return Ok(DARTER_OK);
        }
        let outputs = (0..count).map(|number| Output::new("values", values.wrapping_add(number)));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        for output in &outputs {
            output.set(darter_value::NONE);
        }
        let keys = keys.iter().enumerate().map(|(number, key)| element("key", number, *key));
        let found = handle("store", store)?.store.get_many(&keys.collect::<Result<Vec<_>, _>>()?)?;
        for (output, value) in outputs.iter().zip(found) {
            output.set(darter_value::of(value));
        }
        Ok(DARTER_OK)
    })
}

/// Stores `count` pairs. Each put is atomic by itself, all of them together are not; a transaction
/// is. Of pairs with the same key the last one takes effect last. If the call fails, each pair is
/// stored or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_put_many(
    store: *const darter_store,
    pairs: *const darter_pair,
    count: usize,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let pairs = array("pairs", pairs, count)?.iter().enumerate().map(|(number, pair)| {
            Ok((element("key", number, pair.key)?, element("value", number, pair.value)?))
        });
        handle("store", store)?.store.put_many(&pairs.collect::<Result<Vec<_>, Failure>>()?)?;
        Ok(DARTER_OK)
    })
}
