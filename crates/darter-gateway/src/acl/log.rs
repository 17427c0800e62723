//! The last requests and passwords that were refused, for `ACL LOG`.

use std::collections::VecDeque;

/// Most entries.
const ENTRIES_MAX: usize = 128;
/// The last entries among which an equal one is searched.
const COMPARED: usize = 10;
/// Equal refusals within this time are one entry.
const TOGETHER_MS: u64 = 60_000;
/// Most bytes of an object that are kept.
const OBJECT_BYTES_MAX: usize = 1024;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub(crate) count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub(crate) reason: &'static str,
    /// `toplevel`, `multi` or `lua`.
    pub(crate) context: &'static str,
    /// The command, key or channel.
    pub(crate) object: Vec<u8>,
    pub(crate) user: String,
    /// When it was last refused, in ms since the Unix epoch.
    pub(crate) time: u64,
    /// The client, as `CLIENT LIST` shows it.
    pub(crate) client: String,
}

/// The entries, newest first.
#[derive(Debug, Default)]
pub(crate) struct AccessLog(VecDeque<LogEntry>);

impl AccessLog {
    /// Adds an entry, or counts an equal one again.
    pub(crate) fn note(&mut self, mut entry: LogEntry) {
        entry.object.truncate(OBJECT_BYTES_MAX);
        let is_equal = |other: &LogEntry| {
            (other.reason, other.context) == (entry.reason, entry.context)
                && (&other.object, &other.user) == (&entry.object, &entry.user)
                && other.time.abs_diff(entry.time) <= TOGETHER_MS
        };
        let equal = self.0.iter().take(COMPARED).position(is_equal);
        if let Some(known) = equal.and_then(|at| self.0.remove(at)) {
            entry.count += known.count;
        }
        self.0.push_front(entry);
        self.0.truncate(ENTRIES_MAX);
    }

    /// Returns the last entries, newest first.
    pub(crate) fn last(&self, count: usize) -> Vec<LogEntry> {
        self.0.iter().take(count).cloned().collect()
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
