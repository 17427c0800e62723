//! The pointers of callers: every read and write through one of them.

use crate::status::{Failure, darter_status, done_or};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::slice;

/// The bytes of an array's element: a key or value of the caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct darter_bytes {
    /// The bytes; NULL only if `length` is 0.
    pub data: *const c_void,
    /// Their number.
    pub length: usize,
}

/// A value that the library has allocated. `darter_value_free` frees it.
#[repr(C)]
pub struct darter_value {
    /// The bytes; NULL if the value is absent. A value of length 0 is not NULL.
    pub data: *mut u8,
    /// Their number.
    pub length: usize,
}

impl darter_value {
    pub(crate) const NONE: Self = Self { data: std::ptr::null_mut(), length: 0 };

    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        Self { data: Box::into_raw(bytes.into_boxed_slice()).cast(), length }
    }

    pub(crate) fn of(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::NONE, Self::new)
    }

    /// Frees the bytes.
    ///
    /// # Safety
    /// The value was made by [`Self::new`] or [`Self::of`] and was not freed.
    unsafe fn free(self) {
        if !self.data.is_null() {
            let bytes = std::ptr::slice_from_raw_parts_mut(self.data, self.length);
            // SAFETY: `new` made these parts of a boxed slice, and the caller frees them once.
            drop(unsafe { Box::from_raw(bytes) });
        }
    }
}

/// Frees the bytes of a value and sets it to NULL and 0. Does nothing if `value` is NULL or holds
/// NULL. `value` must have been written by this library and not been changed since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_value_free(value: *mut darter_value) {
    if let Some(value) = NonNull::new(value) {
        // SAFETY: the caller passes a value of this library, which is replaced before it is freed.
        unsafe { value.replace(darter_value::NONE).free() };
    }
}

/// Returns the bytes of an argument.
///
/// # Safety
/// `data` is NULL or valid for `length` bytes during the call of the interface.
pub(crate) unsafe fn bytes<'a>(name: &str, data: *const c_void, length: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: as promised to this function.
    unsafe { array(name, data.cast(), length) }
}

/// Returns the elements of an array.
///
/// # Safety
/// `data` is NULL or valid for `length` elements during the call of the interface.
pub(crate) unsafe fn array<'a, T>(name: &str, data: *const T, length: usize) -> Result<&'a [T], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::argument(format!("{name} is NULL, but its length is {length}")));
    }
    if length > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::argument(format!("{name}: length {length} exceeds the address space")));
    }
    // SAFETY: the caller promises valid elements; their number is possible.
    Ok(unsafe { slice::from_raw_parts(data, length) })
}

/// Returns the text of a string that NUL ends; `None` for NULL.
///
/// # Safety
/// `text` is NULL or a string during the call of the interface.
pub(crate) unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises a string.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|error| Failure::argument(format!("{name} is not UTF-8: {error}")));
    text.map(Some)
}

/// Returns what a handle points to.
///
/// # Safety
/// `handle` is NULL or a handle of this library that was not closed.
pub(crate) unsafe fn handle<'a, T>(name: &str, handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller promises a handle that is open.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::argument(format!("{name} is NULL")))
}

/// Returns what a handle points to, for a handle that only one thread may use at a time.
///
/// # Safety
/// `handle` is NULL or a handle of this library that was not freed and that no other call uses.
pub(crate) unsafe fn exclusive<'a, T>(name: &str, handle: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller promises a handle that is open and used by this call only.
    unsafe { handle.as_mut() }.ok_or_else(|| Failure::argument(format!("{name} is NULL")))
}

/// Takes a handle back from the caller.
///
/// # Safety
/// `handle` is NULL or a handle of this library that was not freed, and the caller gives it up.
pub(crate) unsafe fn reclaim<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: handles are made by `Box::into_raw`, and the caller gives each up once.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// A place of the caller that a call writes to. It may be uninitialized.
pub(crate) struct Output<T>(NonNull<T>);

impl<T> Output<T> {
    /// # Safety
    /// `place` is NULL or valid for writes of a `T` during the call of the interface.
    pub(crate) unsafe fn new(name: &str, place: *mut T) -> Result<Self, Failure> {
        NonNull::new(place).map(Self).ok_or_else(|| Failure::argument(format!("{name} is NULL")))
    }

    /// # Safety
    /// As of [`Self::new`].
    pub(crate) unsafe fn optional(place: *mut T) -> Option<Self> {
        NonNull::new(place).map(Self)
    }

    pub(crate) fn set(&self, content: T) {
        // SAFETY: the place is valid for writes, as promised to `new`.
        unsafe { self.0.write(content) };
    }
}

impl Output<darter_value> {
    /// Gives a value to the caller, or none. Returns [`DARTER_NOT_FOUND`](darter_status) for none.
    pub(crate) fn fill(&self, value: Option<Vec<u8>>) -> darter_status {
        let is_present = value.is_some();
        self.set(darter_value::of(value));
        done_or(is_present, darter_status::DARTER_NOT_FOUND)
    }
}

impl<T> Output<*mut T> {
    /// Gives a new handle to the caller.
    pub(crate) fn give(&self, content: T) {
        self.set(Box::into_raw(Box::new(content)));
    }
}
