//! Runs futures on the calling thread: one of them ([`block_on`]), or many concurrently
//! ([`run_all`]).
//!
//! A turn of the loop polls the tasks that were woken, then lets each provider that this thread
//! drives send and receive once: everything that the tasks have posted leaves together, as far as
//! the provider has not sent it before, and each reply wakes its task. When nothing moves, the loop
//! spins for as long as the provider's options allow, then sleeps until a socket or another thread
//! wakes it. A waker is a task's number, created once for each thread; a wake from the same thread
//! allocates nothing and takes no lock.
//!
//! An [`ExternalDriver`] does the same for a thread that another executor runs.
//!
//! Providers whose verbs complete at once never return `Pending`, so the first poll of [`block_on`]
//! uses a waker that does nothing and costs nothing.

mod external;
mod thread;

use crate::turns;
pub use external::ExternalDriver;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
#[cfg(feature = "tcp")]
pub(crate) use thread::{Drive, Progress, Signal, adopt, is_driving, posted, signal};
use thread::{Driving, run};

/// Runs a future to its end on this thread.
#[inline]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let _driving = Driving::begin();
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => parked(future),
    }
}

/// The rest of [`block_on`] after the future has returned `Pending`. It is polled again first,
/// since the first waker did nothing.
#[cold]
fn parked<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let mut output = None;
    let mut poll = |_, context: &mut Context<'_>| match future.as_mut().poll(context) {
        Poll::Ready(done) => {
            output = Some(done);
            Poll::Ready(())
        }
        Poll::Pending => Poll::Pending,
    };
    turns::suspended(&mut || run(1, &mut poll));
    output.unwrap_or_else(|| unreachable!("the loop ends when the future has"))
}

/// A task of [`run_all`].
enum Task<F: Future> {
    Runs(Pin<Box<F>>),
    Done(F::Output),
}

/// Runs futures concurrently on this thread until all have ended. Returns their outputs in the same
/// order.
pub fn run_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let _driving = Driving::begin();
    let mut tasks: Vec<Task<F>> = futures.into_iter().map(|future| Task::Runs(Box::pin(future))).collect();
    let (count, mut poll) = (tasks.len(), |number: usize, context: &mut Context<'_>| {
        let Some(Task::Runs(future)) = tasks.get_mut(number) else { return Poll::Pending };
        let Poll::Ready(output) = future.as_mut().poll(context) else { return Poll::Pending };
        tasks[number] = Task::Done(output);
        Poll::Ready(())
    });
    turns::suspended(&mut || run(count, &mut poll));
    let output = |task| match task {
        Task::Done(output) => output,
        Task::Runs(_) => unreachable!("the loop ends when all tasks have"),
    };
    tasks.into_iter().map(output).collect()
}

#[cfg(test)]
mod tests {
    use super::thread::is_driving;
    use super::*;
    use std::cell::RefCell;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// Returns `Pending` this number of times, waking itself each time.
    async fn yields(mut left: usize) {
        std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn a_ready_future_is_polled_once() {
        assert_eq!(block_on(async { 7 }), 7);
        assert!(!is_driving());
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_until_ready() {
        block_on(yields(5));
    }

    /// A value that another thread will deliver.
    #[derive(Default)]
    struct Letter(Mutex<(Option<u32>, Option<Waker>)>);

    impl Letter {
        fn bring(&self, value: u32) {
            let mut state = self.0.lock().unwrap();
            state.0 = Some(value);
            if let Some(waker) = state.1.take() {
                waker.wake();
            }
        }

        async fn read(&self) -> u32 {
            std::future::poll_fn(|context| {
                let mut state = self.0.lock().unwrap();
                state.1 = Some(context.waker().clone());
                state.0.map_or(Poll::Pending, Poll::Ready)
            })
            .await
        }
    }

    #[test]
    fn other_threads_wake_tasks() {
        let letters: Arc<Vec<Letter>> = Arc::new((0..20).map(|_| Letter::default()).collect());
        let theirs = Arc::clone(&letters);
        let other = std::thread::spawn(move || {
            for (at, letter) in theirs.iter().enumerate().rev() {
                std::thread::sleep(Duration::from_millis(1));
                letter.bring(at as u32);
            }
        });
        assert_eq!(run_all(letters.iter().map(Letter::read)), (0..20).collect::<Vec<_>>());
        other.join().unwrap();
        assert_eq!(block_on(letters[3].read()), 3);
    }

    #[test]
    fn tasks_take_turns_and_results_are_in_order() {
        let order = RefCell::new(Vec::new());
        let order = &order;
        let outputs = run_all((0..3).map(|task| async move {
            for _ in 0..3 {
                order.borrow_mut().push(task);
                yields(1).await;
            }
            task * 10
        }));
        assert_eq!(outputs, [0, 10, 20]);
        assert_eq!(*order.borrow(), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert!(run_all(std::iter::empty::<std::future::Ready<()>>()).is_empty());
    }

    #[test]
    fn ended_tasks_are_not_polled_again() {
        let polls = RefCell::new(0);
        run_all((0..2).map(|task| {
            let polls = &polls;
            async move {
                std::future::poll_fn(|context| {
                    *polls.borrow_mut() += 1;
                    context.waker().wake_by_ref();
                    context.waker().wake_by_ref();
                    Poll::Ready(())
                })
                .await;
                yields(task * 5).await;
            }
        }));
        assert_eq!(*polls.borrow(), 2);
    }

    #[test]
    fn loops_nest() {
        let outputs = run_all((0..4).map(|task| async move {
            yields(2).await;
            let inner: usize = run_all((0..5).map(|n| async move {
                yields(n).await;
                block_on(yields(n));
                n
            }))
            .iter()
            .sum();
            yields(2).await;
            task + inner
        }));
        assert_eq!(outputs, [10, 11, 12, 13]);
    }

    #[test]
    fn a_panicking_task_leaves_the_thread_usable() {
        let panics = || {
            run_all([async {
                yields(1).await;
                panic!("as asked")
            }])
        };
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(!is_driving());
        block_on(yields(3));
    }
}
