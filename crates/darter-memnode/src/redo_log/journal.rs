//! The serving thread's interface to the log.

use super::LogOptions;
use super::checkpoint::{CheckpointRequest, Checkpointer};
use super::chunks::ChunkSet;
use super::manifest::SessionFacts;
use super::medium::Medium;
use super::record::Kind;
use super::recorder::Recorder;
use super::segment::SegmentWriter;
use super::shared::{RegionSource, Shared, spare_maker};
use crate::error::{MemNodeError, system};
use crate::log_metrics::LogMetrics;
use darter_fabric::local::LocalEndpoint;
use darter_fabric::wire::FrameVerbs;
use darter_fabric::{Fabric, FabricError, Local};
use darter_group::Entry;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval between checks whether the log has failed.
const SYNC_LOOK: Duration = Duration::from_millis(100);

/// A fact about sessions that outlives the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// A session was admitted.
    Entered(u64),
    /// A session was fenced.
    Fenced(u64),
}

/// A log that was recovered, and whose threads have not been started.
#[derive(Debug)]
pub(crate) struct OpenLog {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) writer: SegmentWriter,
    pub(super) checkpointer: Checkpointer,
    pub(super) position: u64,
    /// The position of the newest checkpoint.
    pub(super) checkpointed: u64,
    /// The chunks that the newest checkpoint may lack.
    pub(super) changed: ChunkSet,
    /// Whether the node had crashed.
    pub(super) has_crashed: bool,
    pub(super) options: LogOptions,
}

/// The log of a node that serves.
#[derive(Debug)]
pub(crate) struct Journal {
    recorder: Recorder,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
    /// The position before which all records are handed over.
    handed_over: u64,
    /// The start position of the newest checkpoint that was made or requested.
    checkpointed: u64,
    is_checkpointing: bool,
    /// When the records that are not durable were handed over, with the positions after them.
    waiting_since: VecDeque<(u64, Instant)>,
    /// Connections with waiting replies.
    pub(crate) waiting: Vec<u64>,
    options: LogOptions,
}

impl Journal {
    /// Starts the threads of a log.
    ///
    /// # Errors
    /// Fails if the system has no thread or descriptor left.
    pub(crate) fn start(
        log: OpenLog,
        memory: &Local,
        metrics: Arc<LogMetrics>,
    ) -> Result<Self, MemNodeError> {
        let OpenLog { medium, writer, checkpointer, position, checkpointed, changed, has_crashed, options } =
            log;
        let shared = Shared::new(position, metrics)?;
        let shared = Arc::new(shared);
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(system("start a thread"))
        };
        let theirs = Arc::clone(&shared);
        let writing = spawn("darter-log", Box::new(move || theirs.write(writer)))?;
        let (theirs, endpoint) = (Arc::clone(&shared), memory.endpoint()?);
        let scrub_rate = options.scrub_rate;
        let spare = spare_maker(medium, options.segment_bytes);
        let keeping = move || {
            let source = RegionSource { endpoint, shared: &theirs };
            theirs.keep(checkpointer, source, spare, scrub_rate);
        };
        let keeper = spawn("darter-checkpoint", Box::new(keeping))?;
        let mut recorder = Recorder::new(position, changed);
        if has_crashed {
            recorder.note(Kind::Recovered, None);
        }
        Ok(Self {
            recorder,
            shared,
            writer: Some(writing),
            keeper: Some(keeper),
            handed_over: position,
            checkpointed,
            is_checkpointing: false,
            waiting_since: VecDeque::new(),
            waiting: Vec::new(),
            options,
        })
    }

    /// Returns a descriptor that becomes readable when the log is durable further, or never will
    /// be.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.shared.bell.descriptor()
    }

    /// Returns the reason to refuse every request, if the log has failed or currently cannot be
    /// written.
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.shared.failure()
    }

    /// Executes a frame. Returns the position up to which the log must be durable before its reply
    /// may be sent.
    ///
    /// # Errors
    /// Fails with the errors of [`LocalEndpoint::execute_frame`]; nothing was executed then.
    pub(crate) fn execute(
        &mut self,
        endpoint: &mut LocalEndpoint,
        verbs: FrameVerbs<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, FabricError> {
        let before = self.recorder.position();
        let need = self.recorder.execute(endpoint, verbs, out)?;
        self.shared.metrics.records.add(u64::from(self.recorder.position() != before));
        Ok(need)
    }

    /// Records facts. Returns the position after them.
    pub(crate) fn note(&mut self, facts: impl Iterator<Item = Fact>) -> u64 {
        for fact in facts {
            match fact {
                Fact::Entered(session) => self.recorder.note(Kind::Entered, Some(session)),
                Fact::Fenced(session) => self.recorder.note(Kind::Fenced, Some(session)),
            }
            self.shared.metrics.records.add(1);
        }
        self.recorder.position()
    }

    /// Records an entry of a replica's log.
    pub(crate) fn enter(&mut self, entry: &Entry) {
        self.recorder.enter(entry);
        self.shared.metrics.records.add(1);
    }

    /// Returns the position after all records so far.
    pub(crate) fn position(&self) -> u64 {
        self.recorder.position()
    }

    /// Waits until all records so far are durable.
    ///
    /// # Errors
    /// Fails if the log has failed.
    pub(crate) fn sync(&mut self) -> Result<(), MemNodeError> {
        self.hand_over(Instant::now());
        while self.shared.durable() < self.position() {
            if let Some(why) = self.shared.failure() {
                return Err(MemNodeError::LogFailed { why: why.as_ref().to_owned() });
            }
            self.shared.wait_beyond(self.shared.durable(), SYNC_LOOK);
        }
        self.advance();
        Ok(())
    }

    /// Returns the position before which everything is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.recorder.durable()
    }

    /// Returns whether too many bytes wait for the disk to take more requests.
    pub(crate) fn is_full(&self) -> bool {
        let waits = self.recorder.position() - self.recorder.durable();
        waits > self.options.queue_bytes_max as u64
    }

    /// Waits until the log is durable further, or this time has passed.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.shared.wait_beyond(self.recorder.durable(), time);
    }

    /// Quiets the bell, and updates the durable position. Returns whether it has advanced.
    pub(crate) fn advance(&mut self) -> bool {
        self.shared.bell.quiet();
        let (before, durable) = (self.recorder.durable(), self.shared.durable());
        self.recorder.set_durable(durable);
        while self.waiting_since.front().is_some_and(|(position, _)| *position <= durable) {
            self.waiting_since.pop_front();
        }
        let since = self.waiting_since.front().map(|(_, since)| *since);
        self.shared.metrics.waits_since(since);
        durable > before
    }

    /// Ends a turn: hands over its records, and starts or completes checkpoints.
    pub(crate) fn end_turn(&mut self, now: Instant, sessions: impl FnOnce() -> SessionFacts) {
        self.hand_over(now);
        let position = self.recorder.position();
        if self.is_checkpointing {
            self.shared.answer(position);
            self.is_checkpointing = !self.shared.take_over();
        } else if position - self.checkpointed >= self.options.checkpoint_bytes
            || self.shared.needs_checkpoint()
        {
            self.is_checkpointing = true;
            self.checkpointed = position;
            let changed = self.recorder.take_changed();
            self.shared.want_checkpoint(CheckpointRequest { position, changed, sessions: sessions() });
        }
    }

    fn hand_over(&mut self, now: Instant) {
        let position = self.recorder.position();
        if position > self.handed_over {
            self.shared.hand_over(&mut self.recorder.records);
            self.handed_over = position;
            if self.waiting_since.is_empty() {
                self.shared.metrics.waits_since(Some(now));
            }
            self.waiting_since.push_back((position, now));
        }
    }

    /// Records that the node stops in order, and waits until everything is durable.
    ///
    /// # Errors
    /// Fails if the log has failed.
    pub(crate) fn stop(mut self) -> Result<(), MemNodeError> {
        self.recorder.note(Kind::Stopped, None);
        self.shared.hand_over(&mut self.recorder.records);
        self.end();
        match self.shared.failure() {
            Some(why) => Err(MemNodeError::LogFailed { why: why.as_ref().to_owned() }),
            None => Ok(()),
        }
    }

    fn end(&mut self) {
        self.shared.close();
        for thread in [self.writer.take(), self.keeper.take()].into_iter().flatten() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}
