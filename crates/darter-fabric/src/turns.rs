//! Turns of tasks that share a thread with others.
//!
//! The verbs of a pool in this machine's memory complete at once, so a task that posts many of
//! them, or long ones, would monopolize its thread. An executor that gives each poll of a task a
//! turn ([`take`]) limits that: work is counted in bytes copied, or in bytes that take equally long
//! to copy. The first point at which a turn may end, after its work is used up, returns
//! [`Poll::Pending`]. Nothing wakes the task then: [`Turn::is_over`] tells the executor to poll it
//! again after the other tasks.
//!
//! Without such an executor, nothing is limited and nothing returns `Pending`.

use std::cell::Cell;
use std::task::{Context, Poll};

/// Work of a verb, in bytes, in addition to the bytes that it transfers.
pub(crate) const VERB_BYTES: usize = 1 << 10;
/// Bytes of a verb, or of a computation over a value, between two points at which a turn may end.
pub const PORTION_BYTES: usize = 128 << 10;

thread_local! {
    /// The work of the current turn, in bytes.
    static WORK: Cell<usize> = const { Cell::new(0) };
    /// The limit after which it ends; `usize::MAX` if the thread takes no turns.
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
}

/// Outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The work counted, in bytes.
    pub work: usize,
    /// The task has ended its turn, and waits for nothing else.
    pub is_over: bool,
}

/// Gives a poll a turn of `most` bytes of work. Returns the poll's result and the outcome of the
/// turn.
pub fn take<T>(most: usize, poll: impl FnOnce() -> T) -> (T, Turn) {
    let before = (WORK.replace(0), MOST.replace(most), IS_OVER.replace(false));
    let result = poll();
    let turn = Turn { work: WORK.replace(before.0), is_over: IS_OVER.replace(before.2) };
    MOST.set(before.1);
    (result, turn)
}

/// Runs a loop of tasks within a turn, which the tasks must not end.
pub(crate) fn suspended(run: &mut dyn FnMut()) {
    let most = MOST.replace(usize::MAX);
    run();
    MOST.set(most);
}

/// Returns whether the thread takes turns.
#[inline]
pub fn are_taken() -> bool {
    MOST.get() != usize::MAX
}

/// Counts work without ending the turn.
#[inline]
pub fn count(bytes: usize) {
    WORK.set(WORK.get().wrapping_add(bytes));
}

/// Returns the work of the current turn so far, in bytes.
#[inline]
pub fn work() -> usize {
    WORK.get()
}

/// Counts work, and ends the turn if the limit is reached.
#[inline]
pub async fn worked(bytes: usize) {
    count(bytes);
    if WORK.get() >= MOST.get() {
        end().await;
    }
}

/// Counts one pass over a value, and ends the turn if the value is long.
#[inline]
pub async fn passed_over(value: &[u8]) {
    if value.len() >= PORTION_BYTES {
        worked(value.len()).await;
    }
}

/// Ends the turn, if the thread takes turns.
pub async fn end() {
    let mut is_over = !are_taken();
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { poll_end(context) }
    })
    .await;
}

/// Ends the turn within a poll. Without turns, the task is woken at once.
pub fn poll_end<T>(context: &Context<'_>) -> Poll<T> {
    if are_taken() {
        IS_OVER.set(true);
    } else {
        context.waker().wake_by_ref();
    }
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Local;
    use crate::{Endpoint, Fabric, GlobalAddr, block_on};
    use std::future::Future;
    use std::pin::pin;
    use std::task::Waker;

    const MOST: usize = 256 << 10;

    /// Runs a future in turns; returns its output, and the work of each turn.
    fn in_turns<F: Future>(future: F) -> (F::Output, Vec<usize>) {
        let (mut future, mut works) = (pin!(future), Vec::new());
        loop {
            let poll = || future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let (polled, turn) = take(MOST, poll);
            works.push(turn.work);
            match polled {
                Poll::Ready(output) => return (output, works),
                Poll::Pending => assert!(turn.is_over, "nothing else is waited for"),
            }
        }
    }

    #[test]
    fn long_verbs_of_local_memory_take_turns() {
        const WORDS: usize = 1 << 20;
        let fabric = Local::memory(2 * WORDS as u64 * 8, 1).unwrap();
        let mut endpoint = fabric.endpoint().unwrap();
        let addr = GlobalAddr::new(0, 4096);
        let written: Vec<u64> = (0..WORDS as u64).collect();
        let (read, works) = in_turns(async {
            let mut batch = endpoint.batch();
            batch.write(addr, &written);
            endpoint.submit(batch).await.unwrap();
            let mut batch = endpoint.batch();
            let read = batch.read(addr, WORDS);
            endpoint.submit(batch).await.unwrap().words(read).to_vec()
        });
        assert!(read == written);
        assert!(works.len() >= 2 * WORDS * 8 / (MOST + PORTION_BYTES), "{} turns", works.len());
        assert!(works.iter().all(|&work| work <= MOST + PORTION_BYTES + VERB_BYTES), "{works:?}");
    }

    #[test]
    fn many_short_verbs_take_turns() {
        let fabric = Local::memory(1 << 20, 1).unwrap();
        let mut endpoint = fabric.endpoint().unwrap();
        let (sum, works) = in_turns(async {
            let mut found = 0;
            for _ in 0..10 {
                let mut batch = endpoint.batch();
                let adds: Vec<_> = (0..200).map(|_| batch.faa(GlobalAddr::new(0, 4096), 1)).collect();
                let done = endpoint.submit(batch).await.unwrap();
                found = adds.iter().map(|&add| done.fetched(add)).max().unwrap();
                endpoint.recycle(done);
            }
            found
        });
        assert_eq!(sum, 1999);
        assert!(works.len() >= 2000 * VERB_BYTES / MOST, "{} turns", works.len());
        assert!(works.iter().all(|&work| work <= MOST + 2 * VERB_BYTES), "{works:?}");
    }

    #[test]
    fn a_loop_within_a_turn_ends() {
        let ((), works) = in_turns(async {
            block_on(async {
                for _ in 0..10 {
                    worked(MOST).await;
                }
            });
        });
        assert_eq!(works.len(), 1);
    }

    #[test]
    fn without_turns_nothing_ends() {
        let mut future = pin!(worked(usize::MAX / 2));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
