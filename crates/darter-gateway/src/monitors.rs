//! `MONITOR`: clients that see each command of this gateway's clients.

use super::clock::now_us;
use super::mailbox::{HeldBytes, Mailbox, Message};
use super::request::Arguments;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest line: of a longer command the rest is left out.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The clients that see each command.
#[derive(Debug)]
pub(super) struct Monitors {
    /// Their number, which can be read without a lock.
    count: AtomicUsize,
    mailboxes: Mutex<Vec<Arc<Mailbox>>>,
    held: HeldBytes,
}

/// The right of a client to see each command, until it is dropped.
#[derive(Debug)]
pub(super) struct Monitoring {
    monitors: Arc<Monitors>,
    mailbox: Arc<Mailbox>,
}

impl Monitors {
    /// Creates an empty list.
    pub(super) fn new(held: HeldBytes) -> Self {
        Self { count: AtomicUsize::new(0), mailboxes: Mutex::default(), held }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Mailbox>>> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there are such clients.
    #[inline]
    pub(super) fn are_there(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Adds a client, whose mailbox gets each command from now on.
    pub(super) fn add(self: &Arc<Self>, mailbox: &Arc<Mailbox>) -> Monitoring {
        let mut mailboxes = self.lock();
        mailboxes.push(Arc::clone(mailbox));
        self.count.store(mailboxes.len(), Ordering::Relaxed);
        Monitoring { monitors: Arc::clone(self), mailbox: Arc::clone(mailbox) }
    }

    /// Shows a command of a client with this address, or of a script, in a database. Secret arguments
    /// are left out.
    pub(super) fn show(
        &self,
        (database, origin): (u8, &dyn Display),
        args: &Arguments<'_>,
        is_secret: impl Fn(usize) -> bool,
    ) {
        let now = now_us();
        let mut line = Vec::new();
        let mut text = String::new();
        let _ = write!(text, "+{}.{:06} [{database} {origin}]", now / 1_000_000, now % 1_000_000);
        line.extend_from_slice(text.as_bytes());
        for (at, argument) in args.from(0).enumerate() {
            if line.len() > LINE_BYTES_MAX {
                line.extend_from_slice(b" ...");
                break;
            }
            line.extend_from_slice(b" \"");
            quote(&mut line, if is_secret(at) { b"(redacted)" } else { argument });
            line.push(b'"');
        }
        line.extend_from_slice(b"\r\n");
        let message = Message::new(line, &self.held);
        for mailbox in &*self.lock() {
            mailbox.put(&message);
        }
    }
}

/// Appends an argument in the form of Redis's `sdscatrepr`, without the quotes around it.
fn quote(line: &mut Vec<u8>, argument: &[u8]) {
    for &byte in &argument[..argument.len().min(LINE_BYTES_MAX)] {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(byte),
            _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}

impl Drop for Monitoring {
    fn drop(&mut self) {
        let mut mailboxes = self.monitors.lock();
        mailboxes.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
        self.monitors.count.store(mailboxes.len(), Ordering::Relaxed);
    }
}
