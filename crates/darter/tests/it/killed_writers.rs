//! Writers killed by SIGKILL at random moments, again and again: their acknowledged writes must be
//! there, the write in progress must have taken effect wholly or not at all, and the memory that
//! they left can be recovered.
//!
//! A child follows a script that its seed determines, and acknowledges each step over a pipe. So
//! the parent knows exactly what the store must hold: all acknowledged steps, and perhaps the next
//! one. A child that is started again repeats that step and continues.

use crate::adversary::{Model, assert_sound, brief};
use darter::{ScanRange, Session};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

const CHILDREN: u64 = 3;
const ROUNDS: u64 = 10;
/// Steps of a child that is killed soon after its start.
const WRITES_OF_A_SHORT_LIFE: u64 = 150;
/// Keys of one child; few, so that they are overwritten and deleted often.
const KEYS: u64 = 300;

enum WriterStep {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

/// Returns step `step` of child `child`. Each child has its own keys, in the same nodes.
fn script(child: u64, step: u64) -> WriterStep {
    let mut dice = Pcg64Mcg::seed_from_u64(child << 40 | step);
    let n = dice.random_range(0..KEYS);
    let mut key = match n % 4 {
        0 => vec![0; (n / 4) as usize],
        1 => [vec![b'p'; 30], n.to_be_bytes()[6..].to_vec()].concat(),
        2 => n.to_be_bytes()[6..].to_vec(),
        _ => n.to_string().into_bytes(),
    };
    key.push(b'0' + child as u8);
    // Now and then a long run of deletes, so that nodes collapse.
    if dice.random_range(0..3) == 0 || step % 1000 > 700 {
        return WriterStep::Delete(key);
    }
    let mut value = step.to_be_bytes().to_vec();
    value.resize(8 + dice.random_range(0..500_usize), n as u8);
    WriterStep::Put(key, value)
}

fn apply(model: &mut Model, step: WriterStep) {
    match step {
        WriterStep::Put(key, value) => drop(model.insert(key, value)),
        WriterStep::Delete(key) => drop(model.remove(&key)),
    }
}

/// The child process; does nothing in a plain test run.
#[test]
fn child_process() {
    let Ok(url) = std::env::var("DARTER_KILLED_POOL") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (child, first) = (number("DARTER_KILLED_CHILD"), number("DARTER_KILLED_STEP"));
    let session = crate::options().open(&url).unwrap().session().unwrap();
    let mut out = std::io::stdout().lock();
    // The test runner has begun a line.
    writeln!(out).unwrap();
    for step in first.. {
        match script(child, step) {
            WriterStep::Put(key, value) => drop(session.put(key, value).unwrap()),
            WriterStep::Delete(key) => drop(session.discard(key).unwrap()),
        }
        // One write to the pipe: an acknowledgement is whole or absent.
        writeln!(out, "done {step}").unwrap();
    }
}

/// A child process and its progress.
struct Writer {
    number: u64,
    /// Steps acknowledged so far, over all its lives.
    acknowledged: u64,
    model: Model,
}

impl Writer {
    fn new(number: u64) -> Self {
        Self { number, acknowledged: 0, model: Model::new() }
    }

    fn start(&self, url: &str) -> (Child, BufReader<ChildStdout>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_writers::child_process", "--nocapture"])
            .env("DARTER_KILLED_POOL", url)
            .env("DARTER_KILLED_CHILD", self.number.to_string())
            .env("DARTER_KILLED_STEP", self.acknowledged.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (child, out)
    }

    /// One life: lets the child acknowledge `steps` steps, kills it, and applies all steps that it
    /// acknowledged until it was dead.
    fn live_and_die(&mut self, url: &str, steps: u64) {
        let (mut child, out) = self.start(url);
        let begin = self.acknowledged;
        if steps == 0 {
            // In the middle of starting, opening, joining.
            child.kill().unwrap();
        }
        for line in out.split(b'\n') {
            let line = String::from_utf8_lossy(&line.unwrap()).into_owned();
            let Some(step) = line.strip_prefix("done ").and_then(|step| step.parse::<u64>().ok()) else {
                continue;
            };
            assert_eq!(step, self.acknowledged, "acknowledgements come in order");
            apply(&mut self.model, script(self.number, step));
            self.acknowledged += 1;
            if self.acknowledged - begin == steps {
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        assert!(!status.success());
        assert!(self.acknowledged - begin >= steps, "the child ended by itself: {status}");
    }

    /// Checks that the store holds this child's pairs, with the step in progress done or not.
    fn assert_present(&self, session: &Session) {
        let suffix = b'0' + self.number as u8;
        let found: Model = session
            .range(ScanRange::all())
            .map(Result::unwrap)
            .filter(|(key, _)| key.last() == Some(&suffix))
            .collect();
        if found == self.model {
            return;
        }
        let mut after = self.model.clone();
        apply(&mut after, script(self.number, self.acknowledged));
        if found == after {
            return;
        }
        for (key, value) in &self.model {
            let lost = found.get(key) != Some(value) && after.get(key) == Some(value);
            assert!(!lost, "child {}: acknowledged write to {} is lost", self.number, brief(key));
        }
        panic!("child {}: {} keys, should be {}", self.number, found.len(), self.model.len());
    }
}

#[test]
fn acknowledged_writes_outlive_their_writers() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("pool").display());
    // A short lease, so that live members notice sooner. It never decides whether a process is
    // dead.
    let options = crate::options().block_bytes(1 << 20).lease(Duration::from_millis(100));
    let store = options.open(format!("{url}?size=192M&nodes=2")).unwrap();
    let session = store.session().unwrap();
    let mut writers: Vec<Writer> = (1..=CHILDREN).map(Writer::new).collect();
    let mut dice = Pcg64Mcg::seed_from_u64(7);
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let steps = if dice.random_range(0..6) == 0 { 0 } else { dice.random_range(0..1500_u64) };
                let url = &url;
                scope.spawn(move || writer.live_and_die(url, steps));
            }
            // The survivor continues to work.
            for n in 0..500_u64 {
                session.put([&n.to_be_bytes()[5..], b"0"].concat(), round.to_string()).unwrap();
            }
        });
        for writer in &writers {
            writer.assert_present(&session);
        }
        // The process that swept blocks does not keep them, so any member can take them.
        let mine: u64 = store.usage().unwrap().nodes.iter().map(|node| node.mine).sum();
        assert!(mine < 30, "round {round}: {mine} blocks");
        let check = if round % 3 == 2 { store.repair() } else { store.check() }.unwrap();
        assert!(check.is_sound(), "round {round}: {:#?}", check.violations);
    }
    // All memory of the dead is recovered, including objects that they had deleted in blocks that
    // this process had adopted.
    drop((session, store));
    let store = crate::options().open(&url).unwrap();
    let session = store.session().unwrap();
    let check = store.repair().unwrap();
    assert!(check.is_sound(), "{:#?}", check.violations);
    assert_eq!(check.leaked_bytes, 0, "{:?}", check.remarks);
    for writer in &writers {
        writer.assert_present(&session);
    }
    let keys: Vec<_> = session.range(..).map(|pair| pair.unwrap().0).collect();
    for key in keys {
        assert!(session.discard(key).unwrap());
    }
    drop(session);
    assert_sound(&store, 0);
}

#[test]
fn what_the_dead_left_is_swept_in_the_background() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("pool").display());
    let options = crate::options().block_bytes(1 << 20).lease(Duration::from_millis(100)).sweep(true);
    let store = options.open(format!("{url}?size=192M&nodes=2")).unwrap();
    let mut writer = Writer::new(1);
    writer.live_and_die(&url, 1000);
    let is_swept = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let usage = store.usage().unwrap();
        let is_alone = usage.members.len() == 1;
        is_alone && usage.nodes.iter().all(|node| node.dead + node.sweeping == 0)
    });
    assert!(is_swept, "{:#?}", store.usage().unwrap());
    // This happens without a repair.
    let check = store.check().unwrap();
    assert!(check.is_sound() && check.leaked_bytes == 0, "{check:#?}");
    writer.assert_present(&store.session().unwrap());
}

/// Rounds of start, writes and SIGKILL on a pool of 64 MiB, which holds blocks for about fifteen
/// such lives at a time.
fn rounds_of_death(rounds: u64) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("pool").display());
    drop(crate::options().open(format!("{url}?size=64M")).unwrap());
    let mut writer = Writer::new(1);
    for _ in 0..rounds {
        writer.live_and_die(&url, WRITES_OF_A_SHORT_LIFE);
    }
    // A repair must recover exactly the bytes that a check reports as leaked.
    let observer = crate::options().sweep(false).open(&url).unwrap();
    let check = observer.check().unwrap();
    assert!(check.is_sound() && check.leaked_bytes > 0, "{check:#?}");
    drop(observer);
    let store = crate::options().sweep(false).open(&url).unwrap();
    let repair = store.repair().unwrap();
    assert_eq!((repair.repaired_bytes, repair.leaked_bytes), (check.leaked_bytes, 0));
    drop(store);
    writer.live_and_die(&url, WRITES_OF_A_SHORT_LIFE);
    let store = crate::options().open(&url).unwrap();
    let check = store.check().unwrap();
    assert!(check.is_sound(), "{:#?}", check.violations);
    assert_eq!(check.leaked_bytes, 0, "{:?}", check.remarks);
    assert_eq!(store.repair().unwrap().repaired_bytes, 0);
    writer.assert_present(&store.session().unwrap());
}

#[test]
fn writers_killed_again_and_again_leave_room_for_the_next() {
    rounds_of_death(40);
}

#[test]
#[ignore = "takes minutes: a thousand rounds"]
fn a_thousand_killed_writers_leave_room_for_the_next() {
    let rounds = std::env::var("DARTER_ROUNDS").map_or(1000, |rounds| rounds.parse().unwrap());
    rounds_of_death(rounds);
}
