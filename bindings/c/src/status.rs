//! Results of calls: codes, and the message of each thread's last error.

use darter::{Error, ErrorKind};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum darter_status {
    /// The call has done its work.
    DARTER_OK = 0,
    /// The key is absent, or the range has no more pairs.
    DARTER_NOT_FOUND = 1,
    /// The condition of the write does not hold; nothing has changed.
    DARTER_REFUSED = 2,
    /// An argument is invalid: NULL, a length without bytes, an unknown flag, a transaction of
    /// another thread.
    DARTER_ERROR_ARGUMENT = -1,
    /// The pool cannot be opened as requested: its name is malformed, it does not exist or exists
    /// already, or the file is not a pool.
    DARTER_ERROR_USAGE = -2,
    /// The key or the value can never be stored in this pool.
    DARTER_ERROR_TOO_LONG = -3,
    /// The pool is full. Everything stored is intact, and keys can be removed.
    DARTER_ERROR_FULL = -4,
    /// The pool is full until a stopped process, which the message names, continues or ends.
    DARTER_ERROR_HELD_BACK = -5,
    /// The store was opened with DARTER_READ_ONLY, or its token is a read-only one.
    DARTER_ERROR_READ_ONLY = -6,
    /// Another client changed a key of the transaction. Nothing has changed; run it again.
    DARTER_ERROR_CONFLICT = -7,
    /// The transaction has too many keys or bytes; split it.
    DARTER_ERROR_TRANSACTION_SIZE = -8,
    /// A memory node cannot be reached; try again later.
    DARTER_ERROR_DISCONNECTED = -9,
    /// The pool has ended this process's membership. The store joins it again by itself.
    DARTER_ERROR_SHUT_OUT = -10,
    /// The process has forked since the pool was opened, and this is the child; open it again.
    DARTER_ERROR_FORKED = -11,
    /// The pool has the format or the index of another version of darter.
    DARTER_ERROR_VERSION = -12,
    /// The pool is damaged; restore it from a copy.
    DARTER_ERROR_DAMAGED = -13,
    /// Any other error, most often of the operating system.
    DARTER_ERROR_OTHER = -14,
    /// A defect of the library. The operation may have taken effect or not.
    DARTER_ERROR_PANIC = -15,
    /// A backup cannot begin at this moment, or the pool has become too full for it; try again later.
    DARTER_ERROR_SNAPSHOT = -16,
}
use darter_status::{
    DARTER_ERROR_ARGUMENT, DARTER_ERROR_CONFLICT, DARTER_ERROR_DAMAGED, DARTER_ERROR_DISCONNECTED,
    DARTER_ERROR_FORKED, DARTER_ERROR_FULL, DARTER_ERROR_HELD_BACK, DARTER_ERROR_OTHER, DARTER_ERROR_PANIC,
    DARTER_ERROR_READ_ONLY, DARTER_ERROR_SHUT_OUT, DARTER_ERROR_SNAPSHOT, DARTER_ERROR_TOO_LONG,
    DARTER_ERROR_TRANSACTION_SIZE, DARTER_ERROR_USAGE, DARTER_ERROR_VERSION, DARTER_OK,
};

/// Returns [`DARTER_OK`] if a condition held.
pub(crate) fn done_or(held: bool, otherwise: darter_status) -> darter_status {
    if held { DARTER_OK } else { otherwise }
}

/// An error on its way to the caller.
pub(crate) struct Failure {
    status: darter_status,
    message: String,
    is_unsent: bool,
}

impl Failure {
    /// Returns the error of an invalid argument.
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self { status: DARTER_ERROR_ARGUMENT, message: message.into(), is_unsent: true }
    }

    /// Returns the error of a pool with violated invariants.
    pub(crate) fn damaged(message: String) -> Self {
        Self { status: DARTER_ERROR_DAMAGED, message, is_unsent: true }
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        Self { status: status(&error), message: error.to_string(), is_unsent: error.is_unsent() }
    }
}

/// Returns the code of an error.
fn status(error: &Error) -> darter_status {
    match error.kind() {
        ErrorKind::Usage | ErrorKind::Missing | ErrorKind::Exists | ErrorKind::NotAPool => DARTER_ERROR_USAGE,
        ErrorKind::ReadOnly => DARTER_ERROR_READ_ONLY,
        ErrorKind::TooLong => DARTER_ERROR_TOO_LONG,
        ErrorKind::Full => DARTER_ERROR_FULL,
        ErrorKind::HeldBack => DARTER_ERROR_HELD_BACK,
        ErrorKind::Conflict => DARTER_ERROR_CONFLICT,
        ErrorKind::TransactionSize => DARTER_ERROR_TRANSACTION_SIZE,
        ErrorKind::Disconnected => DARTER_ERROR_DISCONNECTED,
        ErrorKind::ShutOut | ErrorKind::Interrupted => DARTER_ERROR_SHUT_OUT,
        ErrorKind::Forked => DARTER_ERROR_FORKED,
        ErrorKind::Version => DARTER_ERROR_VERSION,
        ErrorKind::Damaged => DARTER_ERROR_DAMAGED,
        ErrorKind::Snapshot => DARTER_ERROR_SNAPSHOT,
        _ => DARTER_ERROR_OTHER,
    }
}

/// The last error of a thread.
struct Last {
    message: CString,
    is_unsent: bool,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { message: CString::default(), is_unsent: false });
}

/// Keeps an error for [`darter_message`]. Returns its code.
fn record(failure: Failure) -> darter_status {
    let Failure { status, message, is_unsent } = failure;
    let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
    // While the thread ends there may be no place for it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Last { message, is_unsent });
    status
}

/// Runs a function of the interface. Returns its result as a code.
pub(crate) fn call(body: impl FnOnce() -> Result<darter_status, Failure>) -> darter_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => record(failure),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            let message = format!("darter panicked, please report it: {text}");
            record(Failure { status: DARTER_ERROR_PANIC, message, is_unsent: false })
        }
    }
}

/// Returns the message of the last error of this thread: what was wrong, and what to do. The string
/// is valid until this thread's next call of the library that returns an error; it is empty before
/// the first.
#[unsafe(no_mangle)]
pub extern "C" fn darter_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().message.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns 1 if the operation of this thread's last error has not taken effect and can be repeated
/// safely, otherwise 0: then an operation that changes data may have taken effect or not.
#[unsafe(no_mangle)]
pub extern "C" fn darter_is_unsent() -> i32 {
    i32::from(LAST.try_with(|last| last.borrow().is_unsent).unwrap_or(false))
}
