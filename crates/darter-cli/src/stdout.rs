//! Standard output that is closed when the program starts, as by `>&-` in a shell.
//!
//! Rust's runtime opens `/dev/null` in its place before `main`: results would be lost without an
//! error. So a function before the runtime finds out, and `main` puts a pipe without a reader there,
//! to which every write fails.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the functions of this section are called once with arguments that this one does not take,
// by the loader, before the runtime of Rust is there; this one makes a system call and stores a byte.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
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

/// Writes what is left in the buffer of stdout.
pub(crate) fn finish() -> io::Result<()> {
    io::stdout().flush()
}
