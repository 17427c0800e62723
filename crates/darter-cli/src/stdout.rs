//! Standard output that is closed when the program starts, for example by `>&-` in a shell.
//!
//! Rust's runtime opens `/dev/null` in its place before `main`, so results would be lost without an
//! error. Therefore a function that runs before the runtime checks for it, and `main` replaces
//! stdout by a pipe without a reader, to which every write fails.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls the functions of this section once, before Rust's runtime starts, with
// arguments that this one does not take; this one makes a system call and stores a byte.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = check_stdout;

extern "C" fn check_stdout() {
    // SAFETY: the call only returns flags of the descriptor, or an error if it is closed.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    WAS_CLOSED.store(rustix::io::fcntl_getfd(stdout).is_err(), Ordering::Relaxed);
}

/// Returns whether stdout was closed when the program started.
pub(crate) fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// Makes all writes to stdout fail if it was closed.
pub(crate) fn fail_if_closed() -> io::Result<()> {
    if was_closed() {
        let (_, writer) = io::pipe()?;
        rustix::stdio::dup2_stdout(&writer)?;
    }
    Ok(())
}

/// Flushes the buffer of stdout.
pub(crate) fn finish() -> io::Result<()> {
    io::stdout().flush()
}
