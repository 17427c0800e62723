//! The slow log: the last slow commands, as `SLOWLOG` shows them. It keeps no passwords, and only
//! the beginning of long commands.

use super::clients::ClientInfo;
use super::clock::now_ms;
use super::request::Arguments;
use super::table::{Command, CommandId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most arguments kept of a command; the last one gives the number of those left out.
const ARGUMENTS_MAX: usize = 32;
/// Most bytes kept of an argument.
pub(super) const ARGUMENT_BYTES_MAX: usize = 128;

/// An entry of the slow log.
#[derive(Debug)]
pub(super) struct SlowEntry {
    /// The entry's id, never reused by this gateway.
    pub(super) id: u64,
    /// When the command ended, in seconds since the Unix epoch.
    pub(super) time: i64,
    /// How long the command took, in microseconds.
    pub(super) micros: u64,
    /// The command's name and arguments, shortened.
    pub(super) arguments: Vec<Vec<u8>>,
    /// The number of arguments that the command had.
    pub(super) arguments_all: usize,
    /// The number of the database that the client had selected.
    pub(super) database: u8,
    /// The client that sent it.
    pub(super) client: Arc<ClientInfo>,
    /// The client's name at that time.
    pub(super) name: String,
}

/// The last slow commands.
#[derive(Debug)]
pub(super) struct SlowLog {
    /// The duration in microseconds from which a command is kept; if negative, none is.
    threshold: AtomicI64,
    entries_max: AtomicUsize,
    /// The next id, and the entries, newest first.
    kept: Mutex<(u64, VecDeque<Arc<SlowEntry>>)>,
}

/// Returns the part of an argument that is kept.
fn shortened(argument: &[u8]) -> Vec<u8> {
    match argument.split_at_checked(ARGUMENT_BYTES_MAX) {
        None | Some((_, [])) => argument.to_vec(),
        Some((kept, rest)) => [kept, format!("... ({} more bytes)", rest.len()).as_bytes()].concat(),
    }
}

/// Returns the part of a command that is kept.
fn kept(command: &Command, args: &Arguments<'_>) -> Vec<Vec<u8>> {
    if (command.is_for_strangers() || command.id == CommandId::Acl) && args.len() > 1 {
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
        let threshold = i64::try_from(threshold.as_micros()).unwrap_or(i64::MAX);
        Self { threshold: threshold.into(), entries_max: entries_max.into(), kept: Mutex::default() }
    }

    /// Returns the duration in microseconds from which a command is kept; if negative, none is.
    pub(super) fn threshold(&self) -> i64 {
        self.threshold.load(Ordering::Relaxed)
    }

    /// Sets that duration.
    pub(super) fn set_threshold(&self, micros: i64) {
        self.threshold.store(micros, Ordering::Relaxed);
    }

    /// Returns whether a command that took as long is kept.
    pub(super) fn is_slow(&self, took: Duration) -> bool {
        u128::try_from(self.threshold()).is_ok_and(|micros| took.as_micros() >= micros)
    }

    /// Returns the most entries.
    pub(super) fn entries_max(&self) -> usize {
        self.entries_max.load(Ordering::Relaxed)
    }

    /// Sets the most entries. The oldest ones beyond it are removed by the next slow command.
    pub(super) fn set_entries_max(&self, entries: usize) {
        self.entries_max.store(entries, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<Arc<SlowEntry>>)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a command.
    pub(super) fn note(
        &self,
        command: &Command,
        args: &Arguments<'_>,
        took: Duration,
        client: &Arc<ClientInfo>,
    ) {
        let entries_max = self.entries_max();
        if entries_max == 0 {
            return;
        }
        let arguments = kept(command, args);
        let name = client.names().name.clone();
        let mut kept = self.lock();
        let entry = SlowEntry {
            id: kept.0,
            time: (now_ms() / 1000).cast_signed(),
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            arguments,
            arguments_all: args.len(),
            database: client.database(),
            client: Arc::clone(client),
            name,
        };
        kept.0 += 1;
        kept.1.push_front(Arc::new(entry));
        kept.1.truncate(entries_max);
    }

    /// Returns the last entries, newest first.
    pub(super) fn last(&self, count: usize) -> Vec<Arc<SlowEntry>> {
        self.lock().1.iter().take(count).cloned().collect()
    }

    /// Returns the number of entries.
    pub(super) fn count(&self) -> usize {
        self.lock().1.len()
    }

    /// Removes all entries.
    pub(super) fn reset(&self) {
        self.lock().1.clear();
    }
}
