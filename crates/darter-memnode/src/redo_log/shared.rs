//! State shared by the serving thread, the thread that writes the log and the thread that makes
//! checkpoints.
//!
//! The serving thread hands over records and goes on; the writing thread takes all records handed
//! over, writes them, waits for one sync, and publishes the position up to which the log is
//! durable. So one sync serves all replies that wait during it.

use super::checkpoint::{CheckpointRequest, Checkpointer, Source};
use super::scrub::{Found, Scrubber};
use super::segment::{self, SegmentWriter};
use crate::bell::Bell;
use crate::error::MemNodeError;
use crate::log_metrics::LogMetrics;
use darter_fabric::local::LocalEndpoint;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Maximum number of characters of a failure's text.
const FAILURE_CHARS_MAX: usize = 200;
/// Maximum time between two parts of a scrub, and the time between two scrubs.
const SCRUB_PAUSE: Duration = Duration::from_secs(1);
/// The interval between attempts during a shortage.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);
/// How long requests wait for a shortage to end, before they are refused.
const SHORTAGE_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Signals that there are records to write, or that the node stops.
    has_records: Condvar,
    /// Signals that the log is durable further, or never will be; that a checkpoint is requested;
    /// that a position is replied; or that the node stops.
    has_news: Condvar,
    /// Everything before this position is durable.
    durable: AtomicU64,
    /// Why every request is refused, permanently or for now.
    failure: Mutex<Option<Arc<str>>>,
    /// Whether there is such a reason.
    is_refusing: AtomicBool,
    /// Whether it is permanent.
    has_failed: AtomicBool,
    /// Whether the medium is damaged, and no checkpoint has replaced the damaged part yet.
    is_damaged: AtomicBool,
    /// Rung for the serving thread when the log is durable further, or never will be.
    pub(super) bell: Bell,
    pub(super) metrics: Arc<LogMetrics>,
}

#[derive(Debug, Default)]
struct State {
    /// Records that are handed over and not yet taken.
    records: Vec<u8>,
    /// The position of the first of them.
    position: u64,
    is_closed: bool,
    checkpoint: Checkpoint,
}

/// The state of a checkpoint.
#[derive(Debug, Default)]
enum Checkpoint {
    #[default]
    None,
    Wanted(Box<CheckpointRequest>),
    Running,
    /// It requests the log's position.
    Asks,
    Answered(u64),
    /// It was made, or failed.
    Over,
}

/// The result of waiting for a request of a checkpoint.
enum Wanted {
    Checkpoint(Box<CheckpointRequest>),
    /// The time has passed.
    Nothing,
    /// The node stops.
    Stop,
}

impl Shared {
    pub(super) fn new(position: u64, metrics: Arc<LogMetrics>) -> Result<Self, MemNodeError> {
        Ok(Self {
            state: Mutex::new(State { position, ..State::default() }),
            has_records: Condvar::new(),
            has_news: Condvar::new(),
            durable: AtomicU64::new(position),
            failure: Mutex::default(),
            is_refusing: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
            bell: Bell::new("create a descriptor for the log's thread")?,
            metrics,
        })
    }

    /// A panic elsewhere leaves the state consistent, so the poison is ignored.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Returns why nothing becomes durable, permanently or until a shortage ends; `None` if the log
    /// works.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        if !self.is_refusing.load(Ordering::Acquire) {
            return None;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, why: &str) {
        warn!(why, "the log has failed; every request is refused from now on");
        self.has_failed.store(true, Ordering::Release);
        self.refuse(Some(why));
    }

    /// Refuses requests for a reason, or serves them again.
    fn refuse(&self, why: Option<&str>) {
        // The reason is sent to clients, in frames with limited room.
        let why = why.map(|why| why.chars().take(FAILURE_CHARS_MAX).collect::<String>().into());
        self.metrics.has_failed.set(u64::from(why.is_some()));
        let is_refusing = why.is_some();
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
        self.is_refusing.store(is_refusing, Ordering::Release);
        self.ring();
    }

    /// Waits while the system is short of a resource that the log needs. Requests wait too, and are
    /// refused after a while. Returns false if the node stops.
    fn wait_out(&self, shortage: &mut Option<Instant>, error: &io::Error) -> bool {
        let since = *shortage.get_or_insert_with(|| {
            warn!(%error, "the log cannot be written for now; retrying");
            Instant::now()
        });
        if since.elapsed() > SHORTAGE_PATIENCE && !self.is_refusing.load(Ordering::Relaxed) {
            warn!(%error, "the log cannot be written for now; requests are refused until it can");
            self.refuse(Some(&format!("cannot write the log for now: {error}; the node retries")));
        }
        let state = self.lock();
        let waited = self.has_records.wait_timeout_while(state, SHORTAGE_PAUSE, |state| !state.is_closed);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.is_closed
    }

    /// Notifies the other threads of a change.
    fn ring(&self) {
        self.bell.ring();
        // A waiting thread has checked under the lock, or checks after this.
        drop(self.lock());
        self.has_news.notify_all();
    }

    /// Hands over records, and leaves an empty buffer.
    pub(super) fn hand_over(&self, records: &mut Vec<u8>) {
        let mut state = self.lock();
        if state.records.is_empty() {
            std::mem::swap(&mut state.records, records);
        } else {
            state.records.extend_from_slice(records);
        }
        records.clear();
        drop(state);
        self.has_records.notify_one();
    }

    /// Waits until the log is durable beyond a position, or never will be, or this time has passed.
    pub(super) fn wait_beyond(&self, position: u64, time: Duration) {
        let state = self.lock();
        let waits = |_: &mut State| self.durable() <= position && self.failure().is_none();
        drop(self.has_news.wait_timeout_while(state, time, waits));
    }

    /// Stops the threads; the writing thread stops after it has written everything.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.has_records.notify_all();
        self.has_news.notify_all();
    }

    /// Returns whether a checkpoint has ended, and no other was requested since.
    pub(super) fn take_over(&self) -> bool {
        let mut state = self.lock();
        let has_ended = matches!(state.checkpoint, Checkpoint::Over);
        if has_ended {
            state.checkpoint = Checkpoint::None;
        }
        has_ended
    }

    /// Returns whether a checkpoint is needed because the medium is damaged.
    pub(super) fn needs_checkpoint(&self) -> bool {
        self.is_damaged.load(Ordering::Acquire)
    }

    /// Requests a checkpoint.
    pub(super) fn want_checkpoint(&self, request: CheckpointRequest) {
        self.lock().checkpoint = Checkpoint::Wanted(Box::new(request));
        self.has_news.notify_all();
    }

    /// Replies to a checkpoint that requests the log's position.
    pub(super) fn answer(&self, position: u64) {
        let mut state = self.lock();
        if matches!(state.checkpoint, Checkpoint::Asks) {
            state.checkpoint = Checkpoint::Answered(position);
            drop(state);
            self.has_news.notify_all();
        }
    }

    /// Writes records until the node stops or the log fails.
    pub(super) fn write(&self, mut writer: SegmentWriter) {
        let _alarm = Alarm(self);
        let mut records = Vec::new();
        loop {
            let mut state = self.lock();
            while state.records.is_empty() && !state.is_closed {
                state = self.has_records.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.records.is_empty() {
                return;
            }
            std::mem::swap(&mut state.records, &mut records);
            let position = state.position;
            let end = position + records.len() as u64;
            state.position = end;
            drop(state);
            let began = Instant::now();
            let mut shortage = None;
            if let Err(error) =
                writer.commit(&mut records, position, |error| self.wait_out(&mut shortage, error))
            {
                return self
                    .fail(&format!("cannot write the log: {error}; check its disk, then restart the node"));
            }
            if let Some(since) = shortage {
                info!(took = ?since.elapsed(), "the log can be written again");
                self.refuse(None);
            }
            self.metrics.synced(records.len(), began.elapsed());
            self.durable.store(end, Ordering::Release);
            self.ring();
            writer.mark_durable(end);
            records.clear();
        }
    }

    /// Makes checkpoints on request, and spare segments, until the node stops. In between it scrubs
    /// this number of bytes a second.
    pub(super) fn keep(
        &self,
        mut checkpointer: Checkpointer,
        mut memory: RegionSource<'_>,
        mut spare: impl FnMut() -> io::Result<()>,
        scrub_rate: u64,
    ) {
        let mut scrubber = Scrubber::default();
        // Frequent checkpoints must not put it off.
        let mut next_scrub = (scrub_rate > 0).then(|| Instant::now() + SCRUB_PAUSE);
        loop {
            if let Err(error) = spare() {
                warn!(%error, "cannot prepare a segment of the log; it will be created when it is needed");
            }
            let request = match self.wanted(next_scrub) {
                Wanted::Checkpoint(request) => request,
                Wanted::Nothing => {
                    let pause = self.scrub(&mut scrubber, &mut checkpointer, scrub_rate);
                    next_scrub = Some(Instant::now() + pause);
                    continue;
                }
                Wanted::Stop => return,
            };
            let (began, position) = (Instant::now(), request.position);
            match checkpointer.run(*request, &mut memory) {
                Ok(Some(done)) => {
                    self.is_damaged.store(false, Ordering::Release);
                    self.metrics.checkpointed(done.bytes, true);
                    let took = began.elapsed();
                    info!(position = done.position, bytes = done.bytes, ?took, "checkpoint made");
                }
                Ok(None) => return,
                Err(error) => {
                    // The next scrub finds the damage again.
                    self.is_damaged.store(false, Ordering::Release);
                    self.metrics.checkpointed(0, false);
                    warn!(position, %error, "cannot make a checkpoint; the log grows until one is made");
                }
            }
            self.lock().checkpoint = Checkpoint::Over;
        }
    }

    /// Reads the next part of the medium. Returns the time until the part after it.
    fn scrub(&self, scrubber: &mut Scrubber, checkpointer: &mut Checkpointer, rate: u64) -> Duration {
        if self.needs_checkpoint() {
            return SCRUB_PAUSE;
        }
        let bytes = match scrubber.step(checkpointer, self.durable()) {
            Ok(Found::Sound(bytes)) => bytes,
            Ok(Found::AllSound) => {
                self.metrics.scrubs.add(1);
                return SCRUB_PAUSE;
            }
            Ok(Found::Damaged(file, what)) => {
                warn!(file, what, "the log's medium is damaged: writes what it should have from memory");
                self.metrics.damages.add(1);
                checkpointer.void_images();
                self.is_damaged.store(true, Ordering::Release);
                return SCRUB_PAUSE;
            }
            Err(error) => {
                warn!(%error, "cannot read the log's medium to verify it");
                return SCRUB_PAUSE;
            }
        };
        Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1)).min(SCRUB_PAUSE)
    }

    /// Waits for a request of a checkpoint, at most until `end` if it is given.
    fn wanted(&self, end: Option<Instant>) -> Wanted {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return Wanted::Stop;
            }
            match std::mem::replace(&mut state.checkpoint, Checkpoint::Running) {
                Checkpoint::Wanted(request) => return Wanted::Checkpoint(request),
                other => state.checkpoint = other,
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return Wanted::Nothing,
                Some(left) => {
                    let waited = self.has_news.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.has_news.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// Reports a panic of the writing thread, since replies would wait for ever.
struct Alarm<'s>(&'s Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("the thread that writes the log has panicked; restart the node");
        }
    }
}

/// The region of a node that goes on serving.
pub(super) struct RegionSource<'s> {
    pub(super) endpoint: LocalEndpoint,
    pub(super) shared: &'s Shared,
}

impl Source for RegionSource<'_> {
    fn copy(&mut self, offset: u64, buffer: &mut [u8]) {
        // Chunks are inside the region.
        let copied = self.endpoint.copy_words(offset, buffer);
        debug_assert!(copied.is_ok(), "a chunk of the region");
    }

    /// The serving thread replies between two turns. Everything copied was stored before this
    /// request, and each word was loaded with Acquire; so it has recorded all of that.
    fn position(&mut self) -> Option<u64> {
        let mut state = self.shared.lock();
        state.checkpoint = Checkpoint::Asks;
        loop {
            if let Checkpoint::Answered(position) = state.checkpoint {
                state.checkpoint = Checkpoint::Running;
                return Some(position);
            }
            if state.is_closed {
                return None;
            }
            state = self.shared.has_news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wait_until_durable(&mut self, position: u64) -> bool {
        let mut state = self.shared.lock();
        while self.shared.durable() < position {
            if state.is_closed || self.shared.has_failed.load(Ordering::Acquire) {
                return false;
            }
            state = self.shared.has_news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

/// Returns a function that creates a spare segment if there is none.
pub(super) fn spare_maker(
    medium: std::sync::Arc<dyn super::medium::Medium>,
    segment_bytes: u64,
) -> impl FnMut() -> io::Result<()> {
    move || segment::prepare_spare(&*medium, segment_bytes)
}
