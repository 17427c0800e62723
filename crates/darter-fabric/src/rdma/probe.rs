//! Tests of a device's behaviour that the specification leaves open: executed on two pairs of
//! queues of the device with itself, whose other end is a region of this process.

use super::Adapter;
use super::device::{Device, Use};
use super::lane::{Lane, Posted, Target};
use super::name::DeviceName;
use super::queue::{CompletionQueue, Queue};
use crate::{Batch, FabricError, GlobalAddr, Local};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the region.
const REGION_BYTES: u64 = 1 << 20;
/// Repetitions of each test.
const TRIES: u64 = 5000;
/// Timeout of one verb.
const PATIENCE: Duration = Duration::from_secs(10);
/// Words of the READs that are checked for torn words: 1 KiB.
const LONG_WORDS: usize = 128;

/// A number of occurrences out of a number of trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of occurrences.
    pub count: u64,
    /// Number of trials.
    pub of: u64,
}

/// Properties and behaviour of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// The device, its port and address.
    pub device: String,
    /// READs and atomics that a queue may have outstanding.
    pub reads_in_flight: u32,
    /// Bytes of a WRITE that are sent inside its work request.
    pub inline_bytes: usize,
    /// Maximum bytes that one work request moves.
    pub message_bytes_max: usize,
    /// darter holds back fenced requests until the requests before them have completed.
    pub holds_fenced: bool,
    /// Lost additions by two queues to one word. Any makes the device useless here.
    pub lost_between_queues: Share,
    /// Additions lost when the processor adds to the same word.
    pub lost_beside_processor: Share,
    /// Completed WRITEs that were lost to concurrent failing CASes.
    pub writes_vanished: Share,
    /// Words torn in READs during the processor's stores. Any makes the device useless here.
    pub words_torn: Share,
}

impl ProbeReport {
    /// Returns whether the device has the properties that darter requires.
    pub fn is_fit(&self) -> bool {
        self.lost_between_queues.count == 0 && self.words_torn.count == 0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.count, self.of)
    }
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.device)?;
        writeln!(f, "READs and atomics outstanding      {}", self.reads_in_flight)?;
        writeln!(f, "bytes inside a work request        {}", self.inline_bytes)?;
        writeln!(f, "bytes of the longest message       {}", self.message_bytes_max)?;
        writeln!(f, "fenced requests held back here     {}", if self.holds_fenced { "yes" } else { "no" })?;
        writeln!(f, "additions of two queues lost       {}  (must be none)", self.lost_between_queues)?;
        writeln!(f, "words torn in READs                {}  (must be none)", self.words_torn)?;
        writeln!(
            f,
            "additions lost to the processor's  {}  (so nodes add nothing themselves)",
            self.lost_beside_processor
        )?;
        write!(
            f,
            "WRITEs undone by failing CASes     {}  (so no word is changed by both)",
            self.writes_vanished
        )
    }
}

/// A queue of the device with itself.
struct Prober {
    lane: Lane<()>,
    completions: Arc<CompletionQueue>,
    adapter: Adapter,
    /// The other end.
    _served: Queue,
}

impl Prober {
    fn new(device: &Arc<Device>, adapter: &Adapter, target: Target) -> Result<Self, FabricError> {
        let completions = Arc::new(CompletionQueue::new(device)?);
        let (ours, theirs) = (Queue::new(&completions)?, Queue::new(&completions)?);
        ours.connect(&theirs.pairing(), false)?;
        theirs.connect(&ours.pairing(), true)?;
        Ok(Self { lane: Lane::new(ours, target, 1), completions, adapter: adapter.clone(), _served: theirs })
    }

    /// Executes one batch.
    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        let lost = || FabricError::Disconnected { node: 0 };
        if !batch.lend_from(&self.adapter.buffers) {
            return Err(lost());
        }
        let mut is_done = self.lane.post((), batch)? == Posted::Done;
        let end = Instant::now() + PATIENCE;
        while !is_done {
            let (mut completed, mut failed) = (0, self.lane.is_broken());
            let drained = self.completions.drain(|_, has_succeeded| {
                completed += 1;
                failed |= !has_succeeded;
            });
            if failed || drained.is_err() || Instant::now() > end {
                return Err(lost());
            }
            for _ in 0..completed {
                self.lane.completed();
            }
            while self.lane.next_waiting().is_some() {
                self.lane.post_waiting(batch);
            }
            is_done = !self.lane.is_busy();
        }
        Ok(())
    }
}

/// Tests a device, for a few seconds.
///
/// # Errors
/// Fails if the device cannot be used, or loses a verb.
pub fn probe(name: &DeviceName) -> Result<ProbeReport, FabricError> {
    let adapter = Adapter::open(name)?;
    let device = Arc::clone(&adapter.device);
    let registration = device.register(Local::memory(REGION_BYTES, 1)?, Use::Region)?;
    let target =
        Target { node: 0, base: registration.base(), bytes: REGION_BYTES, key: registration.remote_key() };
    let words = registration.words();
    let queue = Queue::new(&Arc::new(CompletionQueue::new(&device)?))?;
    let mut one = Prober::new(&device, &adapter, target)?;
    let mut other = Prober::new(&device, &adapter, target)?;
    Ok(ProbeReport {
        device: device.describe(),
        reads_in_flight: device.limits.max_qp_init_rd_atom.min(device.limits.max_qp_rd_atom).max(0) as u32,
        inline_bytes: queue.inline_bytes,
        message_bytes_max: device.message_bytes_max(),
        holds_fenced: device.forgets_fences(),
        lost_between_queues: lost_between_queues(&mut one, &mut other, &words[512])?,
        lost_beside_processor: lost_beside_processor(&mut one, &words[520])?,
        writes_vanished: writes_vanished(&mut one, &mut other)?,
        words_torn: words_torn(&mut one, &words[1024..1024 + LONG_WORDS])?,
    })
}

/// Adds one, this number of times.
fn add(prober: &mut Prober, at: u64) -> Result<(), FabricError> {
    let mut batch = Batch::new();
    for _ in 0..TRIES {
        batch.clear();
        batch.faa(GlobalAddr::new(0, at), 1);
        prober.run(&mut batch)?;
    }
    Ok(())
}

fn lost_between_queues(one: &mut Prober, other: &mut Prober, word: &AtomicU64) -> Result<Share, FabricError> {
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| add(other, 512 * 8));
        add(one, 512 * 8)?;
        theirs.join().unwrap_or(Err(FabricError::Disconnected { node: 0 }))
    })?;
    let of = 2 * TRIES;
    Ok(Share { count: of.saturating_sub(word.load(Ordering::SeqCst)), of })
}

fn lost_beside_processor(one: &mut Prober, word: &AtomicU64) -> Result<Share, FabricError> {
    let ends = AtomicBool::new(false);
    let added = std::thread::scope(|scope| {
        let processor = scope.spawn(|| {
            let mut added = 0;
            while !ends.load(Ordering::Relaxed) {
                word.fetch_add(1, Ordering::SeqCst);
                added += 1;
            }
            added
        });
        let outcome = add(one, 520 * 8);
        ends.store(true, Ordering::Relaxed);
        outcome.map(|()| processor.join().unwrap_or(0))
    })?;
    let of = added + TRIES;
    Ok(Share { count: of.saturating_sub(word.load(Ordering::SeqCst)), of })
}

fn writes_vanished(one: &mut Prober, other: &mut Prober) -> Result<Share, FabricError> {
    let at = GlobalAddr::new(0, 528 * 8);
    let ends = AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = Batch::new();
            while !ends.load(Ordering::Relaxed) {
                batch.clear();
                batch.cas(at, u64::MAX, 0);
                if other.run(&mut batch).is_err() {
                    return;
                }
            }
        });
        let mut write = || {
            let (mut count, mut batch) = (0, Batch::new());
            for n in 1..=TRIES {
                batch.clear();
                batch.write(at, &[n]);
                one.run(&mut batch)?;
                batch.clear();
                let read = batch.read(at, 1);
                one.run(&mut batch)?;
                count += u64::from(batch.words(read) != [n]);
            }
            Ok::<u64, FabricError>(count)
        };
        let count = write();
        ends.store(true, Ordering::Relaxed);
        count
    })?;
    Ok(Share { count, of: TRIES })
}

fn words_torn(one: &mut Prober, words: &[AtomicU64]) -> Result<Share, FabricError> {
    let ends = AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0_u8;
            while !ends.load(Ordering::Relaxed) {
                byte = byte.wrapping_add(1);
                for word in words {
                    word.store(u64::from_ne_bytes([byte; 8]), Ordering::Release);
                }
            }
        });
        let mut read = || {
            let (mut count, mut batch) = (0, Batch::new());
            for _ in 0..TRIES {
                batch.clear();
                let read = batch.read(GlobalAddr::new(0, 1024 * 8), LONG_WORDS);
                one.run(&mut batch)?;
                let is_torn = |word: &&u64| word.to_ne_bytes() != [word.to_ne_bytes()[0]; 8];
                count += batch.words(read).iter().filter(is_torn).count() as u64;
            }
            Ok::<u64, FabricError>(count)
        };
        let count = read();
        ends.store(true, Ordering::Relaxed);
        count
    })?;
    Ok(Share { count, of: TRIES * LONG_WORDS as u64 })
}
