//! The serving thread's part of the log: it records the changes of frames, and computes for each
//! reply the position up to which the log must be durable before the reply may be sent.

use super::chunks::ChunkSet;
use super::record::{Draft, HEAD_BYTES, Kind};
use darter_fabric::FabricError;
use darter_fabric::effects::{EffectsObserver, Lines, VolatileEffects, effects};
use darter_fabric::local::LocalEndpoint;
use darter_fabric::wire::FrameVerbs;
use darter_group::{Content, Entry};

/// Records that are not handed over yet, and information about changes that are not durable yet.
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
    /// Effects of one frame that no reply waits for.
    volatile: VolatileEffects,
}

impl Recorder {
    /// Starts at a position, before which everything is durable. Chunks in `changed` are not in the
    /// newest checkpoint.
    pub(super) fn new(position: u64, changed: ChunkSet) -> Self {
        let (lines, volatile) = (Lines::default(), VolatileEffects::default());
        Self { records: Vec::new(), position, durable: position, lines, changed, volatile }
    }

    /// Returns the position of the next record.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the position before which everything is durable.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// Records that everything before a position is durable.
    pub(super) fn set_durable(&mut self, position: u64) {
        self.durable = self.durable.max(position);
    }

    /// Takes the chunks that have changed since the last call.
    pub(super) fn take_changed(&mut self) -> ChunkSet {
        self.changed.take()
    }

    /// Executes a frame's verbs, and appends their results to `out`. Returns the position up to
    /// which the log must be durable before a client may receive the results: the end of the
    /// frame's own record, or, if all changes of the frame are volatile, the end of the last record
    /// that changed what it has read.
    ///
    /// Fails with the errors of [`LocalEndpoint::execute_frame`]; nothing was executed then.
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
        self.volatile.clear();
        let volatile = Some(&mut self.volatile);
        let mut observer = EffectsObserver { effects: &mut self.records, lines, need: 0, volatile };
        let executed = endpoint.execute_frame_observed(verbs, out, &mut observer);
        let need = observer.need;
        if executed.is_err() || draft.is_empty(&self.records) {
            draft.cancel(&mut self.records);
            executed?;
            return Ok(need);
        }
        let payload = at + HEAD_BYTES..self.records.len();
        self.end(draft, Kind::Effects);
        for (number, (offset, bytes)) in effects(&self.records[payload]).flatten().enumerate() {
            self.changed.add_range(offset, bytes.len());
            if !self.volatile.has(number) {
                self.lines.changed(offset, bytes.len(), self.position);
            }
        }
        if self.volatile.are_all() {
            return Ok(need);
        }
        Ok(self.position)
    }

    /// Records a fact.
    pub(super) fn note(&mut self, kind: Kind, session: Option<u64>) {
        let draft = Draft::begin(&mut self.records);
        self.records.extend_from_slice(session.map(u64::to_le_bytes).as_ref().map_or(&[], |word| &word[..]));
        self.end(draft, kind);
    }

    /// Records an entry of a replica's log, and the changes of the region that it has brought.
    pub(super) fn enter(&mut self, entry: &Entry) {
        let draft = Draft::begin(&mut self.records);
        entry.put(&mut self.records);
        self.end(draft, Kind::Entry);
        match entry {
            Entry::Record(record) => {
                if let Content::Frame { effects: changed, .. } = &record.content {
                    for (offset, bytes) in effects(changed).flatten() {
                        self.changed.add_range(offset, bytes.len());
                    }
                }
            }
            Entry::Part { offset, content } if !content.is_empty() => {
                self.changed.add_range(*offset, content.len());
            }
            _ => {}
        }
    }

    fn end(&mut self, draft: Draft, kind: Kind) {
        self.position += draft.end(&mut self.records, kind, self.position, self.durable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_fabric::wire::{self, FRAME_BYTES_MAX};
    use darter_fabric::{Batch, Fabric, GlobalAddr, Local};

    const BYTES: u64 = 1 << 16;

    /// A recorder over zeroed memory, of which only the beginning of the log is durable.
    struct Scene {
        recorder: Recorder,
        endpoint: LocalEndpoint,
    }

    impl Scene {
        fn new() -> Self {
            let endpoint = Local::memory(BYTES, 1).unwrap().endpoint().unwrap();
            Self { recorder: Recorder::new(8, ChunkSet::new(1)), endpoint }
        }

        /// Executes a batch. Returns the position that its reply needs, and the position after its
        /// record.
        fn execute(&mut self, fill: impl FnOnce(&mut Batch)) -> (u64, u64) {
            let (mut batch, mut frame) = (Batch::new(), Vec::new());
            fill(&mut batch);
            let (verbs, data) = batch.parts_mut();
            for verb in verbs {
                wire::put_verb(&mut frame, verb, data);
            }
            let verbs = FrameVerbs::new(&frame, verbs.len() as u16, FRAME_BYTES_MAX).unwrap();
            let need = self.recorder.execute(&mut self.endpoint, verbs, &mut Vec::new()).unwrap();
            (need, self.recorder.position())
        }
    }

    fn at(word: u64) -> GlobalAddr {
        GlobalAddr::new(0, word * 8)
    }

    #[test]
    fn replies_do_not_wait_for_volatile_words_alone() {
        let mut scene = Scene::new();
        let (need, locked) = scene.execute(|batch| _ = batch.volatile().cas(at(0), 0, 7));
        assert_eq!(need, 0);
        assert!(locked > 8, "it is in the log nevertheless");
        // Neither a client that reads the word, in any way, nor a client that changes it again has
        // to wait.
        assert_eq!(scene.execute(|batch| _ = batch.read(at(0), 8)), (0, locked));
        assert_eq!(scene.execute(|batch| _ = batch.volatile().cas(at(0), 0, 9)), (0, locked));
        assert_eq!(scene.execute(|batch| batch.volatile().write(at(0), &[0])).0, 0);
        assert_eq!(scene.execute(|batch| _ = batch.volatile().faa(at(0), 1)).0, 0);
    }

    #[test]
    fn replies_wait_for_words_written_with_volatile_ones() {
        let mut scene = Scene::new();
        let (need, written) = scene.execute(|batch| {
            batch.volatile().write(at(0), &[1]);
            batch.write(at(8), &[2, 3]);
            batch.volatile().cas(at(0), 1, 0);
        });
        assert_eq!(need, written);
        // The line written by the frame is tracked, and the line of the lock is not.
        assert_eq!(scene.execute(|batch| _ = batch.read(at(9), 1)), (written, written));
        assert_eq!(scene.execute(|batch| _ = batch.read(at(0), 1)), (0, written));
        // A lock, and in the same batch a READ of a line that is not durable.
        let (need, _) = scene.execute(|batch| {
            batch.volatile().cas(at(0), 0, 7);
            batch.read(at(8), 1);
        });
        assert_eq!(need, written);
    }
}
