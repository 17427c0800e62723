//! A replica that does not serve: it follows its primary's stream.

use super::disk::Entry;
use super::memory::{Memory, is_zero};
use super::message::{Beside, Message};
use super::record::{Record, StreamId};
use super::replica::Replica;
use super::view::{ReplicaId, View};
use std::sync::Arc;
use std::time::Duration;

impl<M: Memory> Replica<M> {
    /// Handles the start of a stream from the primary.
    pub(super) fn attach(&mut self, stream: StreamId, view: &Arc<View>, now: Duration) {
        self.adopt(view, now);
        if !self.is_current(stream.view) {
            return self.correct(stream.primary);
        }
        let is_old = self.follower.stream.is_some_and(|(known, _)| known.number >= stream.number);
        let is_gone = self.leaves && !view.backups.contains(&self.me);
        if self.primary.is_some() || self.follower.suspects || is_old || is_gone {
            return;
        }
        self.follower.stream = Some((stream, false));
        let last = self.is_whole.then_some(self.beside.last);
        self.send(stream.primary, Message::Attached { stream, last });
    }

    /// Continues with the records after the last one of this replica's log.
    pub(super) fn resume(&mut self, stream: StreamId) {
        if let Some((known, has_begun)) = self.follower.stream.as_mut().filter(|(known, _)| *known == stream)
        {
            *has_begun = true;
            let stream = *known;
            self.is_sound = true;
            self.acknowledge(stream);
        }
    }

    /// Starts a full copy: the stream will bring the whole state.
    pub(super) fn begin(&mut self, stream: StreamId, state: &Arc<Beside>) {
        if let Some((known, has_begun)) = self.follower.stream.as_mut().filter(|(known, _)| *known == stream)
        {
            *has_begun = true;
            debug_assert_eq!(known.view, stream.view);
            (self.is_sound, self.is_whole) = (false, false);
            self.log = super::log::Log::default();
            self.beside = Beside::clone(state);
            self.follower.copies = 0;
            self.names = [self.me].into();
            if let Some(written) = &mut self.written {
                written.restart();
            }
            // The old names first: they must not outlive the old state.
            self.note_names();
            self.note(|| Entry::Began(Arc::clone(state)));
        }
    }

    /// Returns whether this replica follows the stream.
    fn follows(&self, stream: StreamId) -> bool {
        self.follower.stream == Some((stream, true)) && !self.follower.suspects
    }

    /// Applies received records.
    pub(super) fn follow(&mut self, stream: StreamId, records: &[Arc<Record>], everywhere: u64) {
        if !self.follows(stream) {
            return;
        }
        for record in records {
            let is_next = record.position.lsn == self.beside.last.lsn + 1;
            if !is_next || !self.apply(record) {
                return self.lose(stream);
            }
        }
        self.drop_until(everywhere);
        self.acknowledge(stream);
    }

    /// Drops the records that all replicas have.
    fn drop_until(&mut self, everywhere: u64) {
        self.log.settle(everywhere.min(self.beside.last.lsn), self.options.kept_bytes_max);
        self.beside.trim(self.log.first().unwrap_or(self.beside.last.lsn));
    }

    /// Applies a record. Returns whether it is the next one of the log.
    pub(super) fn apply(&mut self, record: &Arc<Record>) -> bool {
        let (beside, memory) = (&mut self.beside, &mut self.memory);
        if !beside.apply(record, |offset, bytes| memory.store(offset, bytes)) {
            return false;
        }
        self.log.push(Arc::clone(record));
        self.note(|| Entry::Record(Arc::clone(record)));
        true
    }

    /// Stores a received part of the memory.
    pub(super) fn copied(
        &mut self,
        stream: StreamId,
        is_next: bool,
        (offset, bytes): (u64, u64),
        content: Option<Box<[u8]>>,
        is_last: bool,
    ) {
        if !self.follows(stream) {
            return;
        }
        let is_stored = is_next
            && match content {
                Some(content) if content.len() as u64 == bytes && self.memory.store(offset, &content) => {
                    self.note(|| Entry::Part { offset, content });
                    true
                }
                Some(_) => false,
                None => self.clear(offset, bytes as usize),
            };
        if !is_stored {
            return self.lose(stream);
        }
        self.follower.copies += 1;
        if is_last {
            (self.is_sound, self.is_whole) = (true, true);
            self.note(|| Entry::Whole);
        }
        self.acknowledge(stream);
    }

    /// Zeroes a part of the memory. Memory that is already zero is not written, so that the system
    /// need not provide pages for it.
    fn clear(&mut self, offset: u64, bytes: usize) -> bool {
        if offset.checked_add(bytes as u64).is_none_or(|end| end > self.memory.bytes()) {
            return false;
        }
        let mut content = vec![0; bytes];
        self.memory.copy(offset, &mut content);
        if !is_zero(&content) {
            content.fill(0);
            if !self.memory.store(offset, &content) {
                return false;
            }
            self.note(|| Entry::Part { offset, content: content.into() });
        }
        true
    }

    /// Stops following the stream: nothing after a missing part may be applied.
    fn lose(&mut self, stream: StreamId) {
        if let Some((_, has_begun)) = &mut self.follower.stream {
            *has_begun = false;
        }
        self.send(stream.primary, Message::Lost { stream });
    }

    /// Acknowledges everything so far, or once it is durable.
    fn acknowledge(&mut self, stream: StreamId) {
        let (lsn, copies) = (self.beside.last.lsn, self.follower.copies);
        if let Some(written) = &mut self.written {
            written.mark(lsn, copies);
            if !written.is_even() {
                return;
            }
        }
        self.send(stream.primary, Message::Acknowledge { stream, lsn, copies });
    }

    /// Notes that this number of entries of the log is durable, counted from the replica's start.
    /// The end of the turn sends the replies that waited for them.
    pub fn logged(&mut self, entries: u64) {
        let Some(written) = &mut self.written else { return };
        let (has_more, (lsn, copies)) = (written.advance(entries), written.reached());
        if let Some((stream, true)) = self.follower.stream.filter(|_| has_more && self.primary.is_none())
            && !self.follower.suspects
        {
            self.send(stream.primary, Message::Acknowledge { stream, lsn, copies });
        }
    }

    /// Handles a heartbeat of the primary.
    pub(super) fn heartbeat(
        &mut self,
        from: ReplicaId,
        view: &Arc<View>,
        sent: Duration,
        everywhere: u64,
        now: Duration,
    ) {
        self.adopt(view, now);
        if !self.is_current(view.number) {
            return self.correct(from);
        }
        if self.follower.suspects || self.primary.is_some() {
            return;
        }
        self.heard = now;
        if self.is_sound {
            self.drop_until(everywhere);
        }
        if self.is_sound && !self.is_stalled() {
            self.send(from, Message::Granted { view: view.number, sent });
        }
    }
}
