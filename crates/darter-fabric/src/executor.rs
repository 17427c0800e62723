//! The smallest executor: one future, on the calling thread.
//!
//! Providers whose verbs complete at once never return `Pending`, so the first poll is made with a waker that does
//! nothing and costs nothing. Only a future that does return `Pending` gets a real one, which unparks this thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Runs a future to its end on this thread, parking while it waits.
#[inline]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => parked(future),
    }
}

/// Wakes a parked thread. The flag tells a wake-up from a stray unpark, and outlives a park inside the future itself.
struct ThreadWaker {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

/// The rest of [`block_on`] once the future has been pending. It is polled again first: the waker it saw was deaf.
#[cold]
fn parked<F: Future>(mut future: std::pin::Pin<&mut F>) -> F::Output {
    let signal = Arc::new(ThreadWaker { thread: thread::current(), woken: AtomicBool::new(true) });
    let waker = Waker::from(Arc::clone(&signal));
    let mut context = Context::from_waker(&waker);
    loop {
        while !signal.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::task::Waker;
    use std::time::Duration;

    #[test]
    fn a_ready_future_is_polled_once() {
        assert_eq!(block_on(async { 7 }), 7);
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_until_ready() {
        let mut left = 5;
        let polled = std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready("done");
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        });
        assert_eq!(block_on(polled), "done");
    }

    #[test]
    fn another_thread_wakes_it() {
        let state: Arc<Mutex<(bool, Option<Waker>)>> = Arc::default();
        let theirs = Arc::clone(&state);
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            let mut state = theirs.lock().unwrap();
            state.0 = true;
            if let Some(waker) = state.1.take() {
                waker.wake();
            }
        });
        block_on(std::future::poll_fn(|context| {
            let mut state = state.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        }));
        other.join().unwrap();
    }
}
