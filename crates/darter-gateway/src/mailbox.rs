//! Messages on their way to one receiver: a client, or another gateway. Any thread can put
//! messages into a mailbox; the receiver's task takes them out, and is woken when the first one
//! arrives.
//!
//! A receiver that does not take its messages is cut off when too many bytes wait for it: the
//! messages are freed at once, and the receiver's task ends its connection. Messages for several
//! receivers are in memory once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Bytes that count for a message besides its own.
const MESSAGE_BYTES: usize = 64;
/// Places for messages that an empty mailbox keeps.
const PLACES_KEPT: usize = 64;

/// The bytes of the waiting messages of a gateway. They are part of the bytes of all buffers.
#[derive(Clone, Debug)]
pub(super) struct HeldBytes {
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl HeldBytes {
    /// Begins to count in `bytes`. If they exceed `bytes_max`, receivers that let messages wait are
    /// cut off; if they exceed twice as many, all receivers of messages.
    pub(super) fn new(bytes: Arc<AtomicUsize>, bytes_max: usize) -> Self {
        Self { bytes, bytes_max }
    }

    fn are_too_many_for(&self, is_waiting: bool) -> bool {
        let most = if is_waiting { self.bytes_max } else { self.bytes_max.saturating_mul(2) };
        self.bytes.load(Ordering::Relaxed) > most
    }
}

/// How a message is sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is: to another gateway, or to a client that monitors.
    Whole,
    /// To a subscriber. The first byte is missing, which depends on the protocol.
    Push,
    /// To a client that tracks keys, or to the one to which it has redirected its invalidations. The
    /// bytes are those of an array of keys; none stand for all keys.
    Invalidation {
        /// It goes to another client than the one that tracks the keys.
        is_redirected: bool,
    },
    /// The client to which invalidations were redirected has gone. The bytes are its id.
    BrokenRedirection,
}

/// A message, in the form in which it is sent.
#[derive(Debug)]
pub(super) struct Message {
    /// The bytes.
    pub(super) bytes: Vec<u8>,
    pub(super) form: Form,
    held: HeldBytes,
}

impl Message {
    /// Creates a message that counts as long as it is in memory.
    pub(super) fn new(bytes: Vec<u8>, held: &HeldBytes) -> Arc<Self> {
        Self::of(bytes, Form::Whole, held)
    }

    /// Creates a push, from the bytes after the first one.
    pub(super) fn push(bytes: Vec<u8>, held: &HeldBytes) -> Arc<Self> {
        Self::of(bytes, Form::Push, held)
    }

    /// Creates a message of any form.
    pub(super) fn of(bytes: Vec<u8>, form: Form, held: &HeldBytes) -> Arc<Self> {
        held.bytes.fetch_add(bytes.capacity() + MESSAGE_BYTES, Ordering::Relaxed);
        Arc::new(Self { bytes, form, held: held.clone() })
    }

    /// Returns the bytes that count for a receiver.
    fn counted(&self) -> usize {
        self.bytes.len() + MESSAGE_BYTES
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.held.bytes.fetch_sub(self.bytes.capacity() + MESSAGE_BYTES, Ordering::Relaxed);
    }
}

/// The receiver was cut off: too many bytes waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CutOff;

/// The messages that wait for one receiver.
#[derive(Debug)]
pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    /// Bytes of messages beyond which the receiver is cut off.
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Arc<Message>>,
    bytes: usize,
    is_cut_off: bool,
    /// The receiver's task, if it waits.
    waker: Option<std::task::Waker>,
}

impl Mailbox {
    /// Creates an empty mailbox for a receiver that is cut off when more bytes wait.
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), bytes_max })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether more than half of the bytes wait beyond which the receiver is cut off.
    pub(super) fn is_crowded(&self) -> bool {
        self.lock().bytes > self.bytes_max / 2
    }

    /// Adds a message, or cuts the receiver off.
    pub(super) fn put(&self, message: &Arc<Message>) {
        let mut waiting = self.lock();
        if waiting.is_cut_off {
            return;
        }
        let was_empty = waiting.messages.is_empty();
        let bytes = waiting.bytes + message.counted();
        if bytes > self.bytes_max || message.held.are_too_many_for(!was_empty) {
            *waiting = Waiting { is_cut_off: true, waker: waiting.waker.take(), ..Waiting::default() };
        } else {
            waiting.bytes = bytes;
            waiting.messages.push_back(Arc::clone(message));
        }
        let waker = if was_empty || waiting.is_cut_off { waiting.waker.take() } else { None };
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Passes messages to `send`, until it returns false or none is left. Ready if there was one;
    /// otherwise the task is woken when one arrives.
    ///
    /// # Errors
    /// [`CutOff`].
    pub(super) fn poll_take(
        &self,
        context: &Context<'_>,
        mut send: impl FnMut(&Message) -> bool,
    ) -> Poll<Result<(), CutOff>> {
        let mut waiting = self.lock();
        if waiting.is_cut_off {
            return Poll::Ready(Err(CutOff));
        }
        if waiting.messages.is_empty() {
            waiting.await_first(context);
            return Poll::Pending;
        }
        while let Some(message) = waiting.pop()
            && send(&message)
        {}
        Poll::Ready(Ok(()))
    }

    /// Lets the task be woken if the receiver is cut off.
    ///
    /// # Errors
    /// [`CutOff`].
    pub(super) fn poll_cut_off(&self, context: &Context<'_>) -> Result<(), CutOff> {
        let mut waiting = self.lock();
        waiting.await_first(context);
        if waiting.is_cut_off { Err(CutOff) } else { Ok(()) }
    }

    /// Passes all messages to `send`.
    pub(super) fn take_all(&self, mut send: impl FnMut(&Message)) {
        let mut waiting = self.lock();
        while let Some(message) = waiting.pop() {
            send(&message);
        }
    }
}

impl Waiting {
    fn pop(&mut self) -> Option<Arc<Message>> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.counted();
        if self.messages.is_empty() && self.messages.capacity() > PLACES_KEPT {
            self.messages = VecDeque::new();
        }
        Some(message)
    }

    fn await_first(&mut self, context: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn held(bytes_max: usize) -> HeldBytes {
        HeldBytes::new(Arc::default(), bytes_max)
    }

    fn message(held: &HeldBytes, bytes: usize) -> Arc<Message> {
        Message::new(vec![b'x'; bytes], held)
    }

    #[test]
    fn the_first_message_wakes_the_receiver_and_the_order_is_kept() {
        let (woken, held) = (Arc::new(Woken::default()), held(1 << 20));
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        let mailbox = Mailbox::new(1 << 20);
        let mut taken = Vec::new();
        assert!(mailbox.poll_take(&context, |_| true).is_pending());
        for bytes in 1..4 {
            mailbox.put(&message(&held, bytes));
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let polled = mailbox.poll_take(&context, |message| {
            taken.push(message.bytes.len());
            taken.len() < 2
        });
        assert_eq!(polled, Poll::Ready(Ok(())));
        mailbox.take_all(|message| taken.push(message.bytes.len()));
        assert_eq!(taken, [1, 2, 3]);
        assert_eq!(held.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_receiver_for_which_too_much_waits_is_cut_off() {
        let (woken, held) = (Arc::new(Woken::default()), held(1 << 20));
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        let mailbox = Mailbox::new(1000);
        let large = message(&held, 400);
        mailbox.put(&large);
        mailbox.put(&large);
        assert_eq!((mailbox.poll_cut_off(&context), mailbox.is_crowded()), (Ok(()), true));
        mailbox.put(&large);
        assert!(!mailbox.is_crowded());
        assert_eq!((mailbox.poll_cut_off(&context), woken.0.load(Ordering::Relaxed)), (Err(CutOff), 1));
        mailbox.put(&message(&held, 1));
        assert_eq!(mailbox.poll_take(&context, |_| true), Poll::Ready(Err(CutOff)));
        drop(large);
        assert_eq!(held.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn if_memory_is_scarce_receivers_that_let_messages_wait_are_cut_off_first() {
        let held = held(1000);
        let (quick, slow) = (Mailbox::new(1 << 20), Mailbox::new(1 << 20));
        let context = Context::from_waker(Waker::noop());
        slow.put(&message(&held, 10));
        let large = message(&held, 1200);
        for mailbox in [&quick, &slow] {
            mailbox.put(&large);
        }
        assert_eq!(quick.poll_cut_off(&context), Ok(()));
        assert_eq!(slow.poll_cut_off(&context), Err(CutOff));
        quick.take_all(|_| {});
        quick.put(&message(&held, 1000));
        assert_eq!(quick.poll_cut_off(&context), Err(CutOff));
    }
}
