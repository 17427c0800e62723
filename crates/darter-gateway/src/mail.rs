//! The mailbox of a client, which any task can reach and create.

use super::mailbox::Mailbox;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

/// The way for messages to a client.
#[derive(Debug, Default)]
pub(super) struct Mail {
    mailbox: OnceLock<Arc<Mailbox>>,
    /// Wakes the client's task.
    waker: OnceLock<Waker>,
}

impl Mail {
    /// Must be called by the client's task when it begins.
    pub(super) fn begins(&self, waker: &Waker) {
        let _ = self.waker.set(waker.clone());
        fence(Ordering::SeqCst);
    }

    /// Returns the client's mailbox, if there may be messages.
    #[inline]
    pub(super) fn messages(&self) -> Option<&Arc<Mailbox>> {
        self.mailbox.get()
    }

    /// Returns the client's mailbox, which is created if there is none. The client is cut off when more
    /// bytes of messages wait.
    pub(super) fn mailbox(&self, bytes_max: usize) -> &Arc<Mailbox> {
        let mut is_new = false;
        let mailbox = self.mailbox.get_or_init(|| {
            is_new = true;
            Mailbox::new(bytes_max)
        });
        if is_new {
            // The task finds the mailbox when it begins, or waits for messages from now on.
            fence(Ordering::SeqCst);
            self.waker.get().into_iter().for_each(Waker::wake_by_ref);
        }
        mailbox
    }
}
