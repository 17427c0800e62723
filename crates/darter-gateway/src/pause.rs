//! `CLIENT PAUSE`: for a time, the commands of this gateway's clients wait.

use super::table::{Command, CommandId};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// The commands that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Paused {
    /// None.
    Nothing,
    /// Those that change keys or publish.
    Writes,
    /// All.
    Everything,
}

/// The pause of a gateway's clients.
#[derive(Debug)]
pub(super) struct Pause {
    /// What waits, as a [`Paused`]. It can be read without a lock.
    paused: AtomicU8,
    /// What waits, and until when.
    state: Mutex<(Paused, Instant)>,
    /// The pause was ended or changed.
    changed: Notify,
}

impl Default for Pause {
    fn default() -> Self {
        Self {
            paused: AtomicU8::new(Paused::Nothing as u8),
            state: Mutex::new((Paused::Nothing, Instant::now())),
            changed: Notify::new(),
        }
    }
}

/// Returns whether a command can change keys or send messages.
pub(super) fn is_writing(command: &Command) -> bool {
    use CommandId::{Eval, Evalsha, Fcall, Pfcount, Publish, Spublish};
    command.is("write") || matches!(command.id, Eval | Evalsha | Fcall | Pfcount | Publish | Spublish)
}

impl Pause {
    fn lock(&self) -> MutexGuard<'_, (Paused, Instant)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a pause, or extends the current one.
    pub(super) fn begin(&self, paused: Paused, until: Instant) {
        let mut state = self.lock();
        *state = if state.0 != Paused::Nothing && state.1 > Instant::now() {
            (state.0.max(paused), state.1.max(until))
        } else {
            (paused, until)
        };
        self.paused.store(state.0 as u8, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Ends the pause.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.0 = Paused::Nothing;
        self.paused.store(Paused::Nothing as u8, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Returns whether there may be a pause.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.paused.load(Ordering::Acquire) != Paused::Nothing as u8
    }

    /// Returns until when a command must wait, if it must.
    pub(super) fn until(&self, is_writing: bool) -> Option<Instant> {
        let mut state = self.lock();
        if state.1 <= Instant::now() {
            state.0 = Paused::Nothing;
            self.paused.store(Paused::Nothing as u8, Ordering::Release);
        }
        let must_wait = state.0 == Paused::Everything || state.0 == Paused::Writes && is_writing;
        must_wait.then_some(state.1)
    }

    /// Waits as long as a command must.
    pub(super) async fn over(&self, is_writing: bool) {
        loop {
            let changed = self.changed.notified();
            let Some(until) = self.until(is_writing) else { return };
            let _ = tokio::time::timeout_at(until.into(), changed).await;
        }
    }
}
