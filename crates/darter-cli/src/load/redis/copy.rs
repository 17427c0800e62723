//! Stores keys of Redis in a pool, by several threads, and counts them.
//!
//! A thread reads the source and passes batches on. Each key appears whole or not at all. A key that
//! cannot be stored is reported, and the others are stored. A failure of the pool or of the source ends
//! the work, as a signal does: the same command then goes on, and finds the keys that were stored.

use crate::failure::{Answer, Failure, complain};
use crate::notation::{Notation, printable};
use crate::signals::{Interrupt, in_a_thread};
use darter::Store;
use darter_fabric::counted;
use darter_gateway::{Database, DatabaseError, Payload, Restored};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Most threads that store keys.
const THREADS_MAX: usize = 4;
/// Most keys of a batch, and the bytes beyond which it is passed on.
const BATCH_KEYS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// Interval of checks for a signal.
const LOOK: Duration = Duration::from_millis(20);
/// Most keys that are reported one by one.
const SHOWN_MAX: u64 = 20;

/// A key to store.
pub(super) struct Key {
    pub(super) database: u64,
    pub(super) name: Vec<u8>,
    /// When it expires, in ms since the Unix epoch.
    pub(super) expiry: Option<u64>,
    /// The position of its value in the source, if that is a file.
    pub(super) offset: Option<u64>,
    /// Its value, or why it cannot be stored.
    pub(super) value: Result<Payload, String>,
}

type Batch = Result<Vec<Key>, Failure>;

/// The end of a source's thread, which collects batches.
pub(super) struct Sink {
    to: SyncSender<Batch>,
    batch: Vec<Key>,
    bytes: usize,
}

impl Sink {
    /// Adds a key. Returns false if no more keys are wanted.
    pub(super) fn add(&mut self, key: Key) -> bool {
        self.bytes += key.name.len() + key.value.as_ref().map_or(0, Payload::bytes);
        self.batch.push(key);
        if self.batch.len() < BATCH_KEYS && self.bytes < BATCH_BYTES {
            return true;
        }
        self.pass()
    }

    fn pass(&mut self) -> bool {
        self.bytes = 0;
        self.to.send(Ok(std::mem::take(&mut self.batch))).is_ok()
    }
}

/// How keys are stored, and the counts so far.
pub(super) struct Copier<'c> {
    pub(super) store: &'c Store,
    pub(super) source: String,
    pub(super) bar: &'c ProgressBar,
    pub(super) interrupt: &'c Interrupt,
    /// Existing keys are replaced.
    pub(super) replaces: bool,
    /// The first key that cannot be stored ends the work.
    pub(super) is_strict: bool,
    /// Most bytes of memory that the value of a key may take.
    pub(super) value_memory: usize,
}

/// The counts of keys, and the failure that ends the work.
#[derive(Default)]
struct Tally {
    stored: u64,
    kept: u64,
    expired: u64,
    bad: u64,
    ends: bool,
    failure: Option<Failure>,
}

impl Copier<'_> {
    /// Stores the keys that `read` adds to its sink, in a separate thread.
    pub(super) fn copy(
        &self,
        read: impl FnOnce(&mut Sink) -> Result<(), Failure> + Send + 'static,
    ) -> Result<Answer, Failure> {
        let (to, from) = mpsc::sync_channel(THREADS_MAX);
        in_a_thread("source", move || {
            let mut sink = Sink { to, batch: Vec::new(), bytes: 0 };
            let read = read(&mut sink);
            // The keys before a failure are complete.
            if sink.pass()
                && let Err(failure) = read
            {
                let _ = sink.to.send(Err(failure));
            }
        })?;
        let (from, tally) = (Mutex::new(from), Mutex::new(Tally::default()));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| self.work(&from, &tally));
            }
        });
        let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.summarize(&tally);
        match tally.failure {
            Some(failure) => Err(failure.within(&self.source)),
            None if self.interrupt.has_come() => Err(Failure::Interrupted(format!(
                "{}: interrupted; run the command again to go on, existing keys are kept unless --replace is given",
                self.source
            ))),
            None if tally.bad > 0 => Ok(Answer::No),
            None => Ok(Answer::Done),
        }
    }

    /// Stores batches until the last one.
    fn work(&self, from: &Mutex<Receiver<Batch>>, tally: &Mutex<Tally>) {
        let mut databases = BTreeMap::new();
        let ended = |failure| {
            let mut tally = locked(tally);
            tally.ends = true;
            tally.failure.get_or_insert(failure);
        };
        while !self.interrupt.has_come() && !locked(tally).ends {
            let received = locked(from).recv_timeout(LOOK);
            let batch = match received {
                Ok(Ok(batch)) => batch,
                Ok(Err(failure)) => return ended(failure),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for key in batch {
                if self.interrupt.has_come() || locked(tally).ends {
                    return;
                }
                if let Err(failure) = self.store(&mut databases, &key, tally) {
                    return ended(failure);
                }
            }
            let stored = locked(tally).stored;
            self.bar.set_message(counted(stored, "key"));
        }
    }

    /// Stores a key.
    fn store(
        &self,
        databases: &mut BTreeMap<u64, Database>,
        key: &Key,
        tally: &Mutex<Tally>,
    ) -> Result<(), Failure> {
        let payload = match &key.value {
            Ok(payload) => payload,
            Err(why) => return self.report(key, why, tally),
        };
        let database = match databases.entry(key.database) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let number = u8::try_from(key.database).ok();
                let opened =
                    number.map(|number| Database::numbered(self.store.clone(), number)).transpose()?;
                let Some(database) = opened.flatten() else {
                    let most = Database::COUNT - 1;
                    return self.report(key, &format!("gateways have the databases 0 to {most}"), tally);
                };
                entry.insert(database)
            }
        };
        let restored = database.restore(&key.name, payload, key.expiry, self.replaces, self.value_memory);
        match restored {
            Ok(Restored::Stored) => locked(tally).stored += 1,
            Ok(Restored::Kept) => locked(tally).kept += 1,
            Ok(Restored::Expired) => locked(tally).expired += 1,
            Err(DatabaseError::Store(error)) if !error.is_too_long() => return Err(error.into()),
            Err(error) => return self.report(key, &error.to_string(), tally),
            Ok(_) => {}
        }
        Ok(())
    }

    /// Reports a key that cannot be stored, above the progress bar if there is one.
    fn report(&self, key: &Key, why: &str, tally: &Mutex<Tally>) -> Result<(), Failure> {
        let mut tally = locked(tally);
        tally.bad += 1;
        let at = key.offset.map(|offset| format!(", whose value is at byte {offset}")).unwrap_or_default();
        let name = Notation::Escaped.write(&key.name);
        let text = format!("key {name} of database {}{at}: {}", key.database, printable(why));
        if self.is_strict {
            return Err(Failure::failed(format_args!("{text}; stopped because of --strict")));
        }
        if tally.bad <= SHOWN_MAX {
            self.bar.suspend(|| {
                // If stderr is closed, the message cannot be reported.
                let _ = writeln!(std::io::stderr(), "{}: {text}", self.source);
            });
        }
        Ok(())
    }

    /// Reports the counts.
    fn summarize(&self, tally: &Tally) {
        self.bar.finish_and_clear();
        let source = &self.source;
        let hidden = tally.bad.saturating_sub(SHOWN_MAX);
        if hidden > 0 {
            complain(format_args!("{source}: {}, not shown", counted(hidden, "more bad key")));
        }
        let (stored, bad) = (counted(tally.stored, "key"), counted(tally.bad, "bad key"));
        let (kept, expired) = (tally.kept, tally.expired);
        complain(format_args!(
            "{source}: {stored} stored, {kept} kept because they exist, {expired} expired, {bad}"
        ));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
