//! Power failures at every operation on the medium, with every subset of the unsynced changes,
//! complete and torn: everything that was acknowledged, written or read, is there after recovery,
//! and the recovered memory is a state that it once had.

use super::checkpoint::{CheckpointRequest, Checkpointer, Source};
use super::chunks::ChunkSet;
use super::manifest::{CHUNK_BYTES, Manifest, SessionFacts, chunk_count};
use super::medium::Medium;
use super::record::{ENDS_BYTES, Kind};
use super::recorder::Recorder;
use super::recovery::{Recovered, Target, Unrecoverable, recover};
use super::segment::{self, SegmentWriter};
use super::simulated::{FATES, Fate, SimulatedDisk};
use darter_fabric::local::LocalEndpoint;
use darter_fabric::wire::{self, FRAME_BYTES_MAX, FrameVerbs};
use darter_fabric::{Batch, Fabric, GlobalAddr, Local};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io;
use std::sync::Arc;

/// Two chunks and a part of a third.
pub(super) const REGION_BYTES: u64 = 2 * CHUNK_BYTES + 4096;
/// Enough for a few records.
const SEGMENT_BYTES: u64 = 4096 + 400 + ENDS_BYTES as u64;
const BOOT_ID: u64 = 77;
/// Maximum number of outcomes tried for one point of failure.
const OUTCOMES_MAX: usize = 400;

/// A step of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) enum LogStep {
    /// Writes three words, after and before a chunk's end, and swaps one.
    Write(u64),
    /// Adds to a word.
    Add,
    /// Reads the words that the other steps change.
    Read,
    /// Hands over the records, and waits until they are durable.
    Commit,
    /// Makes a checkpoint, during which this number of the next steps are done.
    Checkpoint(usize),
    /// Makes a file ready for the next segment.
    Spare,
    /// A session is admitted.
    Enter(u64),
    /// The node stops in order.
    Stop,
}
use LogStep::{Add, Checkpoint, Commit, Enter, Read, Spare, Stop, Write};

/// The workload: records in several segments, two checkpoints while it goes on, all kinds of
/// frames.
pub(super) const WORKLOAD: &[LogStep] = &[
    Enter(5),
    Write(1),
    Read,
    Commit,
    Add,
    Read,
    Write(2),
    Commit,
    Checkpoint(2),
    Write(3),
    Write(4),
    Read,
    Commit,
    Spare,
    Write(5),
    Add,
    Commit,
    Checkpoint(3),
    Add,
    Write(6),
    Read,
    Commit,
    Write(7),
    Read,
    Commit,
    Write(8),
    Add,
    Write(9),
    Commit,
    Write(10),
    Write(11),
    Commit,
];

/// Memory that recovery fills, and the chunks that have changed since the newest checkpoint.
pub(super) struct Bytes(Vec<u8>, ChunkSet);

impl Bytes {
    /// Returns zeros.
    pub(super) fn new() -> Self {
        Self(vec![0; REGION_BYTES as usize], ChunkSet::new(chunk_count(REGION_BYTES)))
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Target for Bytes {
    fn store(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let at = offset as usize;
        self.1.add_range(offset, bytes.len());
        let room = self.0.get_mut(at..at + bytes.len());
        room.map(|room| room.copy_from_slice(bytes)).is_some()
    }

    fn image_is_loaded(&mut self) {
        self.1.clear();
    }
}

/// A reply that waits: the position that it needs, and the state of memory that it reveals to the
/// client.
#[derive(Clone, Copy, Debug)]
struct Reply {
    need: u64,
    /// The number of the state that the client knows of; at least this one must survive.
    state: usize,
}

/// A memory node without its sockets and threads.
pub(super) struct Machine<'s> {
    memory: Local,
    endpoint: LocalEndpoint,
    recorder: Recorder,
    writer: SegmentWriter,
    medium: Arc<SimulatedDisk>,
    /// The memory after each frame that changed it; the first is the initial memory.
    states: Vec<Vec<u8>>,
    waiting: Vec<Reply>,
    /// The newest state in a reply to a client.
    acknowledged: usize,
    /// The same when the last records were not durable yet.
    before_last: usize,
    sessions: SessionFacts,
    next: std::slice::Iter<'s, LogStep>,
    /// Number of steps to do while a checkpoint runs.
    during: usize,
}

fn offsets() -> [u64; 3] {
    [CHUNK_BYTES - 8, 512, 2 * CHUNK_BYTES + 4096 - 8]
}

impl<'s> Machine<'s> {
    /// Starts on a medium, as [`super::open`] does.
    fn start(
        medium: &Arc<SimulatedDisk>,
        steps: &'s [LogStep],
    ) -> Result<(Self, Checkpointer), Unrecoverable> {
        let shared: Arc<dyn Medium> = Arc::new(Arc::clone(medium));
        let mut memory = Bytes::new();
        let manifest = if let Some(manifest) = Manifest::find(&*shared)? {
            manifest
        } else {
            let manifest = Manifest::new(BOOT_ID, REGION_BYTES);
            manifest.publish(&*shared)?;
            manifest
        };
        let recovered = recover(&*shared, manifest, &mut memory)?;
        let local = Local::memory(REGION_BYTES, 1).unwrap();
        let endpoint = local.endpoint().unwrap();
        endpoint.store_words(0, &memory.0).unwrap();
        let Recovered { mut manifest, position, sessions, was_stopped, .. } = recovered;
        let writer = SegmentWriter::begin(Arc::clone(&shared), BOOT_ID, position, SEGMENT_BYTES)?;
        manifest.note_segment(&*shared)?;
        let mut machine = Machine {
            memory: local,
            endpoint,
            recorder: Recorder::new(position, memory.1),
            writer,
            medium: Arc::clone(medium),
            states: vec![memory.0],
            waiting: Vec::new(),
            acknowledged: 0,
            before_last: 0,
            sessions,
            next: steps.iter(),
            during: 0,
        };
        if !was_stopped {
            machine.recorder.note(Kind::Recovered, None);
            let known = std::mem::take(&mut machine.sessions.known);
            machine.sessions.fenced.extend(known);
        }
        Ok((machine, Checkpointer::new(shared, &manifest)))
    }

    fn run(&mut self, checkpointer: &mut Checkpointer) -> io::Result<()> {
        while let Some(step) = self.next.next() {
            match step {
                Checkpoint(during) => {
                    self.during = *during;
                    self.commit()?;
                    let request = CheckpointRequest {
                        position: self.recorder.position(),
                        changed: self.recorder.take_changed(),
                        sessions: self.sessions.clone(),
                    };
                    checkpointer.run(request, self)?;
                }
                step => self.step(*step)?,
            }
        }
        Ok(())
    }

    fn step(&mut self, step: LogStep) -> io::Result<()> {
        let [first, second, third] = offsets();
        let count = self.states.len() as u64;
        let mut batch = Batch::new();
        match step {
            Write(value) => {
                batch.write(GlobalAddr::new(0, first), &[value, !value]);
                batch.write(GlobalAddr::new(0, third), &[value << 32]);
                batch.cas(GlobalAddr::new(0, second), self.word(second), value);
            }
            Add => {
                batch.faa(GlobalAddr::new(0, second + 64), 1 + count);
            }
            Read => {
                for offset in [first, second, second + 64, third] {
                    batch.read(GlobalAddr::new(0, offset), 1);
                }
                // This one fails, and returns the word.
                batch.cas(GlobalAddr::new(0, second), u64::MAX, 0);
            }
            Commit => return self.commit(),
            Spare => return segment::prepare_spare(&Arc::clone(&self.medium), SEGMENT_BYTES),
            Enter(session) => {
                self.recorder.note(Kind::Entered, Some(session));
                self.sessions.known.push(session);
                return Ok(());
            }
            Stop => {
                self.recorder.note(Kind::Stopped, None);
                return self.commit();
            }
            Checkpoint(_) => unreachable!("checkpoints do not overlap"),
        }
        self.execute(batch);
        Ok(())
    }

    /// Returns the memory in the newest acknowledged state.
    pub(super) fn newest_acknowledged(&self) -> &Vec<u8> {
        &self.states[self.acknowledged]
    }

    /// Returns whether the memory had this state at some time, and no reply that was sent before the last
    /// records were durable reveals a newer one.
    pub(super) fn had(&self, memory: &[u8]) -> bool {
        self.states[self.before_last..].iter().any(|state| state == memory)
    }

    fn word(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.endpoint.copy_words(offset, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn execute(&mut self, mut batch: Batch) {
        let mut frame = Vec::new();
        let (verbs, data) = batch.parts_mut();
        for verb in verbs {
            wire::put_verb(&mut frame, verb, data);
        }
        let count = verbs.len() as u16;
        let verbs = FrameVerbs::new(&frame, count, FRAME_BYTES_MAX).unwrap();
        let need = self.recorder.execute(&mut self.endpoint, verbs, &mut Vec::new()).unwrap();
        let mut memory = vec![0; REGION_BYTES as usize];
        self.endpoint.copy_words(0, &mut memory).unwrap();
        if self.states.last() != Some(&memory) {
            self.states.push(memory);
        }
        // Every read returns the last frame's writes.
        self.waiting.push(Reply { need, state: self.states.len() - 1 });
        self.acknowledge();
    }

    /// Sends the replies that no longer wait.
    fn acknowledge(&mut self) {
        let durable = self.recorder.durable();
        for reply in self.waiting.extract_if(.., |reply| reply.need <= durable) {
            self.acknowledged = self.acknowledged.max(reply.state);
        }
    }

    fn commit(&mut self) -> io::Result<()> {
        let mut records = std::mem::take(&mut self.recorder.records);
        let end = self.recorder.position();
        let start = end - records.len() as u64;
        self.writer.commit(&mut records, start, |_| false)?;
        if end > start {
            self.before_last = self.acknowledged;
        }
        self.recorder.set_durable(end);
        self.writer.mark_durable(end);
        self.acknowledge();
        Ok(())
    }
}

impl Source for Machine<'_> {
    fn copy(&mut self, offset: u64, buffer: &mut [u8]) {
        if self.during > 0
            && let Some(step) = self.next.next()
        {
            self.during -= 1;
            self.step(*step).unwrap();
        }
        self.endpoint.copy_words(offset, buffer).unwrap();
    }

    fn position(&mut self) -> Option<u64> {
        Some(self.recorder.position())
    }

    fn wait_until_durable(&mut self, _: u64) -> bool {
        self.commit().is_ok()
    }
}

/// Returns the outcomes of a power failure: all of them, if they are few.
pub(super) fn outcomes(medium: &SimulatedDisk, dice: &mut Pcg64Mcg) -> Vec<Arc<SimulatedDisk>> {
    let (files, names) = medium.pending();
    let all = 4_usize.saturating_pow(files as u32).saturating_mul(1 << names);
    let mut outcome = |mut number: usize, is_random: bool| {
        let mut draw = |kinds: usize| {
            let fate = if is_random { dice.random_range(0..kinds) } else { number % kinds };
            number /= kinds;
            FATES[fate]
        };
        let files: Vec<Fate> = (0..files).map(|_| draw(4)).collect();
        let names: Vec<Fate> = (0..names).map(|_| draw(2)).collect();
        medium.after_power_failure(&files, &names)
    };
    (0..all.min(OUTCOMES_MAX)).map(|number| outcome(number, all > OUTCOMES_MAX && number > 1)).collect()
}

/// Runs a workload on a medium until its end, or until the power fails.
pub(super) fn run<'s>(medium: &Arc<SimulatedDisk>, steps: &'s [LogStep]) -> Option<Machine<'s>> {
    let (mut machine, mut checkpointer) = Machine::start(medium, steps).ok()?;
    let _ = machine.run(&mut checkpointer);
    Some(machine)
}

/// Returns the memory that recovery finds.
fn recovered(medium: &Arc<SimulatedDisk>) -> Result<Vec<u8>, Unrecoverable> {
    Machine::start(medium, &[]).map(|(machine, _)| machine.states[0].clone())
}

/// Fails unless recovery restores a former state with everything acknowledged.
fn assert_recovers(medium: &Arc<SimulatedDisk>, machine: Option<&Machine<'_>>, what: &str) {
    let after = recovered(&medium.copy(None, None)).unwrap_or_else(|error| panic!("{what}: {error}"));
    match machine {
        Some(machine) => {
            let is_present = machine.states[machine.acknowledged..].contains(&after);
            let found = machine.states.iter().position(|state| *state == after);
            assert!(
                is_present,
                "{what}: recovered state {found:?} of {}, acknowledged was {}",
                machine.states.len(),
                machine.acknowledged
            );
        }
        None => assert!(after.iter().all(|byte| *byte == 0), "{what}: a node that never served"),
    }
}

#[test]
fn acknowledged_writes_survive_power_failures_at_every_operation() {
    let whole = Arc::new(SimulatedDisk::default());
    let machine = run(&whole, WORKLOAD).unwrap();
    assert_eq!(machine.acknowledged, machine.states.len() - 1);
    assert!(segment::starts(&whole).unwrap().len() > 1 && machine.memory.nodes() == 1);
    let mut dice = Pcg64Mcg::seed_from_u64(1);
    let mut tried = 0;
    for at in 0..=whole.operations() {
        let medium = SimulatedDisk::default().copy(Some(at), None);
        let machine = run(&medium, WORKLOAD);
        for (number, after) in outcomes(&medium, &mut dice).iter().enumerate() {
            tried += 1;
            assert_recovers(after, machine.as_ref(), &format!("operation {at}, outcome {number}"));
        }
    }
    assert!(tried > 1000, "{tried}");
}

#[test]
fn a_node_that_goes_on_after_a_power_failure_survives_the_next() {
    let mut dice = Pcg64Mcg::seed_from_u64(2);
    let count = {
        let whole = Arc::new(SimulatedDisk::default());
        run(&whole, WORKLOAD);
        whole.operations()
    };
    for at in 0..count {
        let medium = SimulatedDisk::default().copy(Some(at), None);
        run(&medium, WORKLOAD);
        let outcomes = outcomes(&medium, &mut dice);
        let after = &outcomes[dice.random_range(0..outcomes.len())];
        // The power fails again in recovery or soon after it, several times.
        let mut base = Arc::clone(after);
        for round in 0..3 {
            let fails_at = dice.random_range(0..16);
            let medium = base.copy(Some(fails_at), None);
            let machine = run(&medium, WORKLOAD);
            let outcomes = self::outcomes(&medium, &mut dice);
            let next = &outcomes[dice.random_range(0..outcomes.len())];
            let what = format!("operation {at}, round {round}, operation {fails_at}");
            match &machine {
                Some(_) => assert_recovers(next, machine.as_ref(), &what),
                // The node had not started, so nothing has changed.
                None => assert_eq!(
                    recovered(&next.copy(None, None)).unwrap(),
                    recovered(&base.copy(None, None)).unwrap(),
                    "{what}"
                ),
            }
            base = Arc::clone(next);
        }
    }
}

#[test]
fn a_sync_that_fails_acknowledges_nothing() {
    let whole = Arc::new(SimulatedDisk::default());
    run(&whole, WORKLOAD);
    let mut dice = Pcg64Mcg::seed_from_u64(3);
    for at in 0..whole.operations() {
        let medium = SimulatedDisk::default().copy(None, Some(at));
        let machine = run(&medium, WORKLOAD);
        for (number, after) in outcomes(&medium, &mut dice).iter().enumerate() {
            assert_recovers(after, machine.as_ref(), &format!("sync {at}, outcome {number}"));
        }
    }
}

/// A workload whose last segment holds several groups.
const FEW: &[LogStep] = &[Write(1), Commit, Add, Commit, Write(2), Commit, Add, Commit];

#[test]
fn a_tail_that_is_cut_or_flipped_is_cut_off_or_named() {
    let whole = Arc::new(SimulatedDisk::default());
    let machine = run(&whole, FEW).unwrap();
    let name = segment::name_of(0);
    let content = whole.content(&name);
    let used = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut named = 0;
    for at in 4096..used {
        for (way, change) in [
            ("cut", Box::new(|bytes: &mut Vec<u8>| bytes[at..].fill(0)) as Box<dyn Fn(&mut Vec<u8>)>),
            ("flipped", Box::new(|bytes: &mut Vec<u8>| bytes[at] ^= 0x10)),
        ] {
            let medium = whole.copy(None, None);
            medium.tamper(&name, change);
            match recovered(&medium) {
                Ok(after) => assert!(machine.states.contains(&after), "{way} at {at}"),
                Err(error) => {
                    named += 1;
                    assert!(error.to_string().contains("damaged"), "{way} at {at}: {error}");
                }
            }
        }
    }
    assert!(named > 0, "damage before groups that became durable later");
}

#[test]
fn damage_before_later_durable_records_is_reported() {
    let whole = Arc::new(SimulatedDisk::default());
    run(&whole, WORKLOAD).unwrap();
    let starts = segment::starts(&whole).unwrap();
    let (first, last) = (segment::name_of(starts[0]), segment::name_of(*starts.last().unwrap()));
    let manifest = Manifest::find(&whole).unwrap().unwrap();
    let image = manifest.image.unwrap().name();
    let replayed = (manifest.replayed_from - starts[0]) as usize + segment::SEGMENT_HEAD_BYTES;
    for (name, at, what) in [
        (&*first, replayed + 30, "is damaged"),
        (&last, 20, "head is damaged"),
        (image, 512, "are not those"),
        ("checkpoint", 40, "invalid"),
    ] {
        let medium = whole.copy(None, None);
        medium.tamper(name, |bytes| bytes[at] ^= 1);
        let error = recovered(&medium).map(drop).unwrap_err().to_string();
        assert!(error.contains(what), "{name}: {error}");
    }
    for name in [&*first, &last, image, "checkpoint"] {
        let medium = whole.copy(None, None);
        medium.remove(name).unwrap();
        let error = recovered(&medium).map(drop).unwrap_err().to_string();
        assert!(error.contains("missing") || name == "checkpoint", "{name}: {error}");
    }
}

#[test]
fn sessions_of_before_a_crash_are_shut_out_and_of_before_a_stop_are_not() {
    let medium = Arc::new(SimulatedDisk::default());
    run(&medium, &[Enter(5), Enter(6), Commit, Stop]).unwrap();
    let (machine, _) = Machine::start(&medium.copy(None, None), &[]).unwrap();
    assert_eq!(machine.sessions, SessionFacts { known: vec![5, 6], ..SessionFacts::default() });
    let medium = medium.copy(None, None);
    run(&medium, &[Enter(7), Commit]).unwrap();
    let (machine, _) = Machine::start(&medium.copy(None, None), &[]).unwrap();
    assert_eq!(machine.sessions, SessionFacts { fenced: vec![5, 6, 7], ..SessionFacts::default() });
    // A stop after a crash admits no session again.
    let medium = medium.copy(None, None);
    run(&medium, &[Enter(8), Commit, Checkpoint(0), Stop]).unwrap();
    let (machine, _) = Machine::start(&medium.copy(None, None), &[]).unwrap();
    assert_eq!(
        machine.sessions,
        SessionFacts { fenced: vec![5, 6, 7], known: vec![8], ..SessionFacts::default() }
    );
}
