//! Transactions: several keys that are read and changed at one moment.

use crate::arguments::{Output, bytes, darter_value, exclusive, handle, reclaim};
use crate::status::darter_status::DARTER_OK;
use crate::status::{Failure, call, darter_status};
use crate::store::darter_store;
use darter::{Store, Transaction, TransactionError};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::{self, ThreadId};

/// A transaction that has begun and not ended.
pub struct darter_transaction {
    part: Part,
    thread: ThreadId,
}

/// The transaction behind a handle.
enum Part {
    /// That of `darter_begin`. The transaction refers to the store, and is dropped before it.
    Own(Transaction<'static>, #[allow(dead_code, reason = "keeps the store")] Arc<Store>),
    /// That of `darter_transact`, which ends it.
    Lent(NonNull<Transaction<'static>>),
}

impl Part {
    fn transaction(&mut self) -> &mut Transaction<'static> {
        match self {
            Self::Own(transaction, _) => transaction,
            // SAFETY: `darter_transact` keeps the transaction until its handle has gone, and does not
            // use it until then.
            Self::Lent(transaction) => unsafe { transaction.as_mut() },
        }
    }
}

/// A function that reads and changes keys in a transaction of `darter_transact`.
pub type darter_transaction_body =
    Option<unsafe extern "C" fn(transaction: *mut darter_transaction, context: *mut c_void) -> darter_status>;

impl darter_transaction {
    /// Fails if this is not the thread that began the transaction.
    fn check_thread(&self) -> Result<(), Failure> {
        if self.thread == thread::current().id() {
            Ok(())
        } else {
            Err(Failure::argument("the transaction belongs to the thread that began it; use it only there"))
        }
    }
}

/// Returns a transaction that this thread may use.
///
/// # Safety
/// `transaction` is NULL or has not ended.
unsafe fn of_this_thread<'a>(
    transaction: *mut darter_transaction,
) -> Result<&'a mut Transaction<'static>, Failure> {
    // SAFETY: only the thread is read before the check, and it never changes.
    unsafe { handle("transaction", transaction)? }.check_thread()?;
    // SAFETY: other threads do not get further than the line above.
    Ok(unsafe { exclusive("transaction", transaction)? }.part.transaction())
}

/// Takes a transaction back that this thread may end.
///
/// # Safety
/// `transaction` is NULL or has not ended.
unsafe fn ended(transaction: *mut darter_transaction) -> Result<Box<darter_transaction>, Failure> {
    // SAFETY: as in `of_this_thread`.
    let found = unsafe { handle("transaction", transaction)? };
    found.check_thread()?;
    if matches!(found.part, Part::Lent(_)) {
        return Err(Failure::argument(
            "darter_transact ends this transaction, when its function has returned",
        ));
    }
    // SAFETY: the caller gives the handle up, and it is not NULL.
    unsafe { reclaim(transaction) }.ok_or_else(|| Failure::argument("transaction is NULL"))
}

/// Begins a transaction and sets `*transaction`. `darter_commit` or `darter_rollback` ends it, in
/// the same thread. Pools with the index DART have no transactions: DARTER_ERROR_OTHER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_begin(
    store: *const darter_store,
    transaction: *mut *mut darter_transaction,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let output = Output::new("transaction", transaction)?;
        output.set(std::ptr::null_mut());
        let store = Arc::clone(&handle("store", store)?.store);
        // The `Arc` next to the transaction keeps the store at its address until the transaction has
        // been dropped.
        let lasting: &'static Store = &*Arc::as_ptr(&store);
        let transaction = lasting.transaction()?;
        let part = Part::Own(transaction, store);
        output.give(darter_transaction { part, thread: thread::current().id() });
        Ok(DARTER_OK)
    })
}

/// Reads the value of a key in a transaction, with the transaction's own changes, into `*value`,
/// which `darter_value_free` frees. Returns DARTER_NOT_FOUND if the key is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_transaction_get(
    transaction: *mut darter_transaction,
    key: *const c_void,
    key_length: usize,
    value: *mut darter_value,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let output = Output::new("value", value)?;
        output.set(darter_value::NONE);
        Ok(output.fill(of_this_thread(transaction)?.get(bytes("key", key, key_length)?)?))
    })
}

/// Stores a value under a key when the transaction commits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_transaction_put(
    transaction: *mut darter_transaction,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let (key, value) = (bytes("key", key, key_length)?, bytes("value", value, value_length)?);
        of_this_thread(transaction)?.put(key, value)?;
        Ok(DARTER_OK)
    })
}

/// Removes a key when the transaction commits. Returns DARTER_OK also if the key is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_transaction_remove(
    transaction: *mut darter_transaction,
    key: *const c_void,
    key_length: usize,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        of_this_thread(transaction)?.discard(bytes("key", key, key_length)?)?;
        Ok(DARTER_OK)
    })
}

/// Commits a transaction: all of its changes take effect at one moment, or none does. Ends it in
/// either case, except for DARTER_ERROR_ARGUMENT. After DARTER_ERROR_CONFLICT, begin a new one,
/// after a short random pause if conflicts repeat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_commit(transaction: *mut darter_transaction) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        if let Part::Own(transaction, _store) = ended(transaction)?.part {
            transaction.commit()?;
        }
        Ok(DARTER_OK)
    })
}

/// Ends a transaction without its changes. Returns DARTER_OK for NULL too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_rollback(transaction: *mut darter_transaction) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        if !transaction.is_null() {
            drop(ended(transaction)?);
        }
        Ok(DARTER_OK)
    })
}

/// Begins a transaction, calls `body` with it and with `context`, and commits it if `body` returns
/// DARTER_OK. After a conflict calls `body` again, at most a thousand times, with a growing pause; a
/// transaction that was run more often goes before others that it meets. If `body` returns anything
/// else, nothing changes, and that is returned. `body` must not end the transaction, nor jump out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_transact(
    store: *const darter_store,
    body: darter_transaction_body,
    context: *mut c_void,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let body = body.ok_or_else(|| Failure::argument("body is NULL"))?;
        let store = &handle("store", store)?.store;
        let mut refused = None;
        let result = store.transact(|transaction| {
            let lent = NonNull::from(transaction).cast();
            let mut handle = darter_transaction { part: Part::Lent(lent), thread: thread::current().id() };
            match body(&raw mut handle, context) {
                DARTER_OK => Ok(()),
                status => {
                    refused = Some(status);
                    Err(TransactionError::Conflict.into())
                }
            }
        });
        match refused {
            Some(status) => Ok(status),
            None => result.map(|()| DARTER_OK).map_err(Failure::from),
        }
    })
}
