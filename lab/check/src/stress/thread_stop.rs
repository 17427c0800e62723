//! Stops of single threads. SIGSTOP stops a whole process, whichever of its threads receives it;
//! here one thread stops and the others continue, as if the system gave that thread no processor
//! for a while.
//!
//! A worker installs a handler for a real-time signal ([`install`]). The coordinator sends that
//! signal to one thread (`stop`) with a duration in it, and the handler sleeps for that duration.
//! The system runs the handler when the thread is about to continue in user mode: between any two
//! of its instructions, or in place of a sleep or a wait for a socket, which then ends early. The
//! thread therefore stops with everything it holds: locks of the process, half a batch, a pinned
//! epoch, its lease.
//!
//! It needs no rights other than those to signal the process, and unlike ptrace it has no effect on
//! other signals, on debuggers, or on which process reaps which.

use super::StressError;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Prefix of the names of those threads of a worker that are not under test.
pub(super) const SPARED: &str = "stress-";

/// Stops since the process began.
static STOPS: AtomicU64 = AtomicU64::new(0);
/// Total nanoseconds of the stops.
static STOPPED_NS: AtomicU64 = AtomicU64::new(0);

/// Returns how often threads of this process were stopped, and the total duration.
pub fn counts() -> (u64, Duration) {
    (STOPS.load(Ordering::Relaxed), Duration::from_nanos(STOPPED_NS.load(Ordering::Relaxed)))
}

/// The signal, far enough above the first real-time signal that other code hardly uses it.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 7
}

/// Sleeps for the microseconds that the signal carries. Calls only functions that POSIX lists as
/// async-signal-safe, and restores `errno`.
extern "C" fn sleep_in_handler(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the system passes a valid `siginfo_t`; the value is there whichever
    // process queued the signal, and any bits are a number. `__errno_location` returns this
    // thread's `errno`, valid as long as the thread.
    let (carried, errno) =
        unsafe { ((*info).si_value().sival_ptr as usize as u64, libc::__errno_location()) };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let time = libc::timespec {
        tv_sec: (carried / 1_000_000).cast_signed(),
        tv_nsec: (carried % 1_000_000 * 1000).cast_signed(),
    };
    let mut left = time;
    // SAFETY: both pointers are to `left`, a valid `timespec`; the system allows them to be the
    // same.
    while unsafe { libc::nanosleep(&raw const left, &raw mut left) } != 0 {
        // SAFETY: as above.
        if unsafe { *errno } != libc::EINTR {
            break;
        }
    }
    // SAFETY: as above.
    unsafe { *errno = before };
    STOPS.fetch_add(1, Ordering::Relaxed);
    STOPPED_NS.fetch_add(carried * 1000, Ordering::Relaxed);
}

/// Allows the threads of this process to be stopped from now on.
///
/// # Errors
/// Fails if the system refuses the handler.
pub fn install() -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = sleep_in_handler;
    // SAFETY: zeros are a valid `sigaction`: no flags, no signals blocked while the handler runs.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: `action` is valid, its handler has the signature that SA_SIGINFO requires and calls
    // only async-signal-safe functions; the old action is not requested.
    let outcome = unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the threads of a process that can be stopped: none before it has called [`install`], and
/// none if it is gone.
pub(super) fn threads(process: u32) -> Vec<u32> {
    if !is_installed(process) {
        return Vec::new();
    }
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let numbers = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    let is_spared = |thread: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/comm")).unwrap_or_default();
        *thread == process || name.starts_with(SPARED)
    };
    let mut threads: Vec<u32> = numbers.filter(|thread| !is_spared(thread)).collect();
    threads.sort_unstable();
    threads
}

/// Whether a process catches the signal. Without a handler the signal would kill it.
fn is_installed(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught >> (signal() - 1) & 1 == 1
}

/// The layout of `siginfo_t` for a signal that is queued with a value; 128 bytes on every 64-bit
/// Linux.
#[repr(C)]
struct Queued {
    signal: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    padding: libc::c_int,
    process: libc::pid_t,
    user: libc::uid_t,
    value: u64,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());

/// Stops one thread of a process for a duration, starting when it next runs. Returns whether the
/// thread exists.
pub(super) fn stop(process: u32, thread: u32, time: Duration) -> Result<bool, StressError> {
    let queued = Queued {
        signal: signal(),
        errno: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        process: std::process::id().cast_signed(),
        user: rustix::process::getuid().as_raw(),
        value: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
        rest: [0; 12],
    };
    // SAFETY: the system reads 128 bytes at the pointer, which is the size of `Queued` (asserted
    // above), and keeps no reference.
    let outcome = unsafe {
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, queued.signal, &raw const queued)
    };
    match outcome {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            error => Err(StressError::system("stop a thread", error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stress::clock::now_ns;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    /// The named thread stops for the duration while another continues, and `stop` returns `false`
    /// for a number that is not a thread.
    #[test]
    fn one_thread_stops_and_the_others_go_on() {
        const STOP: Duration = Duration::from_millis(60);
        install().unwrap();
        let process = std::process::id();
        let (done, before) = (AtomicBool::new(false), counts());
        let (tell, told) = mpsc::channel();
        let gap = std::thread::scope(|scope| {
            let stopped = scope.spawn(|| {
                // The stop may come before the first iteration, and the end right after it.
                let (mut last, mut longest) = (now_ns(), 0);
                tell.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
                loop {
                    let is_last = done.load(Ordering::Relaxed);
                    let now = now_ns();
                    (longest, last) = (longest.max(now - last), now);
                    if is_last {
                        return longest;
                    }
                }
            });
            let thread = told.recv().unwrap();
            assert!(threads(process).contains(&thread));
            assert!(stop(process, thread, STOP).unwrap());
            // This thread is not the one that sleeps, so it sees the count change.
            while counts().0 == before.0 {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
            stopped.join().unwrap()
        });
        assert!(gap >= STOP.as_nanos() as u64, "{gap} ns");
        assert!(counts().1 >= before.1 + STOP);
        assert!(!stop(process, u32::MAX >> 1, STOP).unwrap());
    }

    #[test]
    fn a_process_without_the_handler_has_no_threads_to_stop() {
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(threads(other.id()).is_empty());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
