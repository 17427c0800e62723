//! What the serving thread does for the log: it records what frames change, and knows for each
//! reply up to which position the log must be durable before it may be sent.

use super::chunks::ChunkSet;
use super::record::{Draft, HEAD_BYTES, Kind};
use darter_fabric::effects::{EffectsObserver, Lines, effects};
use darter_fabric::local::LocalEndpoint;
use darter_fabric::wire::FrameVerbs;
use darter_fabric::{FabricError, mutant};

/// Records that are not handed over yet, and what is not durable yet.
#[derive(Debug)]
pub(super) struct Recorder {
    /// Records of this turn.
    pub(super) records: Vec<u8>,
    /// The position of the next record.
    position: u64,
    /// Everything before this position is durable.
    durable: u64,
    lines: Lines,
    /// The chunks that have changed since the last checkpoint began.
    changed: ChunkSet,
}

impl Recorder {
    /// Begins at a position, before which everything is durable. Chunks in `changed` are not in the
    /// newest checkpoint.
    pub(super) fn new(position: u64, changed: ChunkSet) -> Self {
        Self { records: Vec::new(), position, durable: position, lines: Lines::default(), changed }
    }

    /// Returns the position of the next record.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the position before which everything is durable.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// Notes that everything before a position is durable.
    pub(super) fn set_durable(&mut self, position: u64) {
        self.durable = self.durable.max(position);
    }

    /// Takes the chunks that have changed since this was called last.
    pub(super) fn take_changed(&mut self) -> ChunkSet {
        self.changed.take()
    }

    /// Executes a frame's verbs, and appends their results to `out`. Returns the position up to
    /// which the log must be durable before anyone may see the results: behind the frame's own
    /// record, or behind the last one that changed what it has read.
    ///
    /// # Errors
    /// Those of [`LocalEndpoint::execute_frame`]; nothing was done then.
    pub(super) fn execute(
        &mut self,
        endpoint: &mut LocalEndpoint,
        verbs: FrameVerbs<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, FabricError> {
        let at = self.records.len();
        let draft = Draft::begin(&mut self.records);
        let lines = (self.position > self.durable).then_some(&self.lines);
        let mut observer = EffectsObserver { effects: &mut self.records, lines, need: 0 };
        let executed = endpoint.execute_frame_observed(verbs, out, &mut observer);
        let need = observer.need;
        if executed.is_err() || draft.is_empty(&self.records) {
            draft.cancel(&mut self.records);
            executed?;
            return Ok(if mutant!("log-read-shown-early") { 0 } else { need });
        }
        let payload = at + HEAD_BYTES..self.records.len();
        self.end(draft, Kind::Effects);
        for (offset, bytes) in effects(&self.records[payload]).flatten() {
            self.lines.changed(offset, bytes.len(), self.position);
            self.changed.add_range(offset, bytes.len());
        }
        Ok(if mutant!("log-write-acknowledged-early") { 0 } else { self.position })
    }

    /// Records a fact.
    pub(super) fn note(&mut self, kind: Kind, session: Option<u64>) {
        let draft = Draft::begin(&mut self.records);
        self.records.extend_from_slice(session.map(u64::to_le_bytes).as_ref().map_or(&[], |word| &word[..]));
        self.end(draft, kind);
    }

    fn end(&mut self, draft: Draft, kind: Kind) {
        self.position += draft.end(&mut self.records, kind, self.position, self.durable);
    }
}
