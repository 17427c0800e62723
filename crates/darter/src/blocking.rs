//! Runs blocking work on a separate thread, so that it can be awaited without blocking an executor.

use crate::Error;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// The result of the thread, or the task that waits for it.
enum Progress<T> {
    Running(Option<Waker>),
    Over(std::thread::Result<T>),
    Taken,
}

/// Runs `work` on a new thread and returns its result. Dropping the future does not stop the work;
/// its result is then dropped too.
///
/// # Errors
/// Fails if `work` does, or the system has no thread left.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let progress = Arc::new(Mutex::new(Progress::Running(None)));
    let theirs = Arc::clone(&progress);
    let run = move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let before = std::mem::replace(&mut *lock(&theirs), Progress::Over(result));
        if let Progress::Running(Some(waker)) = before {
            waker.wake();
        }
    };
    std::thread::Builder::new().name("darter-open".to_owned()).spawn(run).map_err(Error::Thread)?;
    let result = poll_fn(|context| {
        let mut progress = lock(&progress);
        if let Progress::Running(waker) = &mut *progress {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(std::mem::replace(&mut *progress, Progress::Taken))
    });
    match result.await {
        Progress::Over(Ok(result)) => result,
        Progress::Over(Err(panic)) => std::panic::resume_unwind(panic),
        Progress::Running(_) | Progress::Taken => unreachable!("the future ends once, after the thread"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
