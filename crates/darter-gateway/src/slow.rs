//! The last commands that took long, as `SLOWLOG` tells of them. Passwords are left out, and of long commands most.

use super::clients::ClientInfo;
use super::request::Arguments;
use super::table::Command;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Arguments kept of a command; the last of them tells how many there were more.
const ARGUMENTS_MAX: usize = 32;
/// Bytes kept of an argument.
const ARGUMENT_BYTES_MAX: usize = 128;

/// A command that took long.
#[derive(Debug)]
pub(super) struct SlowEntry {
    /// Its number, never given twice by this gateway.
    pub(super) id: u64,
    /// When it ended, in seconds since the epoch.
    pub(super) time: i64,
    /// How long it took, in microseconds.
    pub(super) micros: u64,
    /// The command, as it was given.
    pub(super) arguments: Vec<Vec<u8>>,
    /// Whose it was.
    pub(super) client: Arc<ClientInfo>,
    /// What that was called at the time.
    pub(super) name: String,
}

/// Keeps the last of them.
#[derive(Debug)]
pub(super) struct SlowLog {
    /// What takes as long or longer is kept.
    pub(super) threshold: Duration,
    entries_max: usize,
    /// The next one's number; newest first.
    kept: Mutex<(u64, VecDeque<Arc<SlowEntry>>)>,
}

/// What is kept of an argument.
fn shortened(argument: &[u8]) -> Vec<u8> {
    match argument.split_at_checked(ARGUMENT_BYTES_MAX) {
        None | Some((_, [])) => argument.to_vec(),
        Some((kept, rest)) => [kept, format!("... ({} more bytes)", rest.len()).as_bytes()].concat(),
    }
}

/// What is kept of a command.
fn kept(command: &Command, args: &Arguments<'_>) -> Vec<Vec<u8>> {
    if command.is_for_strangers() && args.len() > 1 {
        return vec![args.get(0).to_vec(), b"(redacted)".to_vec()];
    }
    if args.len() <= ARGUMENTS_MAX {
        return args.from(0).map(shortened).collect();
    }
    let mut arguments: Vec<_> = args.from(0).take(ARGUMENTS_MAX - 1).map(shortened).collect();
    arguments.push(format!("... ({} more arguments)", args.len() - arguments.len()).into_bytes());
    arguments
}

impl SlowLog {
    pub(super) fn new(threshold: Duration, entries_max: usize) -> Self {
        Self { threshold, entries_max, kept: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<Arc<SlowEntry>>)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command took long.
    pub(super) fn note(
        &self,
        command: &Command,
        args: &Arguments<'_>,
        took: Duration,
        client: &Arc<ClientInfo>,
    ) {
        if self.entries_max == 0 {
            return;
        }
        let arguments = kept(command, args);
        let name = client.names().name.clone();
        let mut kept = self.lock();
        let entry = SlowEntry {
            id: kept.0,
            time: clock_gettime(ClockId::RealtimeCoarse).tv_sec,
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            arguments,
            client: Arc::clone(client),
            name,
        };
        kept.0 += 1;
        kept.1.push_front(Arc::new(entry));
        kept.1.truncate(self.entries_max);
    }

    /// The last ones, newest first.
    pub(super) fn last(&self, count: usize) -> Vec<Arc<SlowEntry>> {
        self.lock().1.iter().take(count).cloned().collect()
    }

    /// How many are kept.
    pub(super) fn count(&self) -> usize {
        self.lock().1.len()
    }

    /// Keeps none of those that are there.
    pub(super) fn reset(&self) {
        self.lock().1.clear();
    }
}
