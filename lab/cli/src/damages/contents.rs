//! The contents of the damaged pools, and the process that fills and reads them.

use clap::ValueEnum;
use darter::{Error, PoolUrl, Session, Store};
use darter_cli::{Answer, Failure};
use darter_fabric::{ReplicaGroups, ReplicaRole, Tcp, TcpOptions};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

/// The hidden command of the process.
pub(crate) const CLIENT_COMMAND: &str = "damages-client";
/// Bytes of a block of a pool file.
pub(super) const BLOCK_BYTES: u64 = 512 << 10;
/// Number of keys ever put.
const KEYS: usize = 900;
/// Number of times that all keys are put, so that there are freed objects, and checkpoints of logs.
const ROUNDS: usize = 10;
/// Number of changes that are sent at a time.
const CHUNK: usize = 100;
/// Longer than any replica takes to become a member again, even on a busy machine.
const SETTLES_AFTER: Duration = Duration::from_secs(120);
/// The longest list of errors that a reader prints.
const LINES_MAX: usize = 20;

/// Each key, with the values that it may have.
type Allowed = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// What the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Task {
    /// Creates the pool, writes everything, and ends in order
    Fill,
    /// Creates the pool, writes everything, and ends as if killed
    FillAndDie,
    /// Reads everything, writes, and reads again
    Read,
}

/// Fills or reads a pool, for `damages`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  darter-lab damages-client --task read --pool file:./a.pool")]
pub(crate) struct ClientCommand {
    #[arg(long, value_name = "URL")]
    pool: PoolUrl,
    #[arg(long, value_enum, value_name = "TASK")]
    task: Task,
}

fn key(n: usize) -> Vec<u8> {
    let tail = if n.is_multiple_of(9) { "/a long tail of a key" } else { "" };
    format!("user:{:05}{tail}", n * 7919 % 10_007).into_bytes()
}

fn value(n: usize, round: usize) -> Vec<u8> {
    let length = match n % 23 {
        0 => 3000,
        7 => 700,
        _ => n % 40,
    };
    format!("{n:x}.{round}{}", "v".repeat(length)).into_bytes()
}

/// Calls a function with the puts and removals of each round, in order.
fn each_round<E>(
    mut change: impl FnMut(&[(Vec<u8>, Vec<u8>)], &[Vec<u8>]) -> Result<(), E>,
) -> Result<(), E> {
    for round in 0..ROUNDS {
        let puts: Vec<_> = (0..KEYS).map(|n| (key(n), value(n, round))).collect();
        let removals: Vec<_> = (0..KEYS).filter(|n| n % 11 == round).map(key).collect();
        change(&puts, &removals)?;
    }
    Ok(())
}

fn written() -> Allowed {
    let mut all = Allowed::new();
    let changed = each_round(|puts, removals| {
        all.extend(puts.iter().map(|(key, value)| (key.clone(), vec![Some(value.clone())])));
        all.extend(removals.iter().map(|key| (key.clone(), vec![None])));
        Ok::<(), std::convert::Infallible>(())
    });
    match changed {
        Ok(()) => all,
    }
}

/// The findings of a reader.
#[derive(Default)]
struct Findings {
    /// Wrong results.
    wrong: Vec<String>,
    /// Errors.
    named: Vec<String>,
}

impl Findings {
    fn error(&mut self, place: &str, error: &Error) {
        self.named.push(format!("{place}: {error}"));
    }

    fn wrong(&mut self, text: String) {
        self.wrong.push(text);
    }

    /// Reads everything in every way.
    fn read(&mut self, session: &Session, allowed: &Allowed, when: &str) {
        for (key, values) in allowed {
            match session.get(key) {
                Ok(found) if values.contains(&found) => {}
                Ok(found) => self.wrong(format!("{when}get {}: {}", text(key), shown(found.as_deref()))),
                Err(error) => self.error("get", &error),
            }
        }
        for n in 0..200 {
            let key = format!("user:{:05}~", n * 7919 % 10_007);
            match session.get(&key) {
                Ok(None) => {}
                Ok(found) => self.wrong(format!("{when}get {key}, absent: {}", shown(found.as_deref()))),
                Err(error) => self.error("get", &error),
            }
        }
        let mut forwards = allowed.iter();
        self.scan(session.range(..), &mut forwards, &format!("{when}scan"));
        let mut backwards = allowed.iter().rev();
        self.scan(session.range(..).rev(), &mut backwards, &format!("{when}reverse scan"));
    }

    fn scan<'a>(
        &mut self,
        pairs: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>,
        allowed: &mut impl Iterator<Item = (&'a Vec<u8>, &'a Vec<Option<Vec<u8>>>)>,
        place: &str,
    ) {
        for pair in pairs {
            let (key, value) = match pair {
                Ok((key, value)) => (key, Some(value)),
                Err(error) => return self.error(place, &error),
            };
            // Keys that may be absent can be skipped.
            let found = allowed.find(|(right, values)| **right == key || !values.contains(&None));
            match found {
                Some((right, values)) if *right == key && values.contains(&value) => {}
                Some((right, _)) => {
                    let (right, value) = (text(right), shown(value.as_deref()));
                    return self
                        .wrong(format!("{place}: {} has {value}, at the place of {right}", text(&key)));
                }
                None => return self.wrong(format!("{place}: {}, beyond the last key", text(&key))),
            }
        }
        if let Some((key, _)) = allowed.find(|(_, values)| !values.contains(&None)) {
            self.wrong(format!("{place}: ends before {}", text(key)));
        }
    }

    /// Changes some keys, and notes what they may be now.
    fn write(&mut self, session: &Session, allowed: &mut Allowed) {
        let changes = (0..60).map(|n| (format!("new:{n:03}").into_bytes(), Some(value(n * 23, 9))));
        let updates = (0..KEYS).step_by(17).map(|n| (key(n), Some(value(n, 8))));
        let removals = (5..KEYS).step_by(31).map(|n| (key(n), None));
        for (key, value) in changes.chain(updates).chain(removals) {
            let done = match &value {
                Some(value) => session.put(&key, value).map(drop),
                None => session.discard(&key).map(drop),
            };
            let before = allowed.entry(key).or_insert_with(|| vec![None]);
            match done {
                Ok(()) => *before = vec![value],
                // It may have taken effect.
                Err(error) => {
                    before.push(value);
                    self.error("write", &error);
                }
            }
        }
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn shown(value: Option<&[u8]>) -> String {
    value.map_or("no value".to_owned(), |value| {
        let start = text(&value[..value.len().min(24)]);
        format!("{} bytes, \"{}\"", value.len(), start.escape_debug())
    })
}

impl ClientCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let options = Store::options();
        if self.task != Task::Read {
            let store = options.create(true).block_bytes(BLOCK_BYTES).open(&self.pool);
            let store = store.map_err(Failure::failed)?;
            let session = store.session().map_err(Failure::failed)?;
            let filled = each_round(|puts, removals| {
                for puts in puts.chunks(CHUNK) {
                    session.put_many(puts)?;
                }
                session.remove_many(removals).map(drop)
            });
            filled.map_err(Failure::failed)?;
            if self.task == Task::FillAndDie {
                // Without dropping the store, whose blocks stay granted.
                std::process::exit(0);
            }
            return Ok(Answer::Done);
        }
        let mut found = Findings::default();
        match options.create(false).open(&self.pool) {
            Ok(store) => self.read(&store, &mut found),
            Err(error) => found.error("open", &error),
        }
        let mut out = std::io::stdout().lock();
        let Findings { mut wrong, mut named } = found;
        for (kind, lines) in [("wrong", &mut wrong), ("named", &mut named)] {
            lines.dedup();
            for line in lines.iter().take(LINES_MAX) {
                writeln!(out, "{kind} {}", line.replace('\n', " "))?;
            }
        }
        writeln!(out, "end")?;
        Ok(Answer::Done)
    }

    fn read(&self, store: &Store, found: &mut Findings) {
        let mut allowed = written();
        let session = match store.session() {
            Ok(session) => session,
            Err(error) => return found.error("open", &error),
        };
        found.read(&session, &allowed, "");
        let errors = found.named.len();
        match store.check() {
            Ok(check) => {
                found.named.extend(check.violations.iter().map(|violation| format!("check: {violation}")));
                if errors > 0 && check.violations.is_empty() {
                    found.wrong(format!("check finds nothing, although {}", found.named[0]));
                }
            }
            Err(error) => found.error("check", &error),
        }
        found.write(&session, &mut allowed);
        found.read(&session, &allowed, "after writes, ");
        drop(session);
        let address = self.pool.addresses().and_then(|nodes| nodes.first().cloned());
        let Some(group) = address.filter(|address| address.contains('+')) else { return };
        if let Err(why) = settle(&group) {
            return found.wrong(why);
        }
        match store.check() {
            Ok(check) => found.named.extend(check.violations.iter().map(|text| format!("check: {text}"))),
            Err(error) => found.error("check", &error),
        }
    }
}

/// Waits until all replicas are members of one view.
fn settle(address: &str) -> Result<(), String> {
    let tcp =
        Tcp::connect(&[address.to_owned()], TcpOptions::default()).map_err(|error| error.to_string())?;
    let end = Instant::now() + SETTLES_AFTER;
    loop {
        let replicas = tcp.replicas(0);
        let is_member = |role| matches!(role, ReplicaRole::Primary | ReplicaRole::Backup);
        if replicas.iter().all(|replica| replica.state.is_some_and(|state| is_member(state.role))) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("not all replicas become members: {replicas:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
