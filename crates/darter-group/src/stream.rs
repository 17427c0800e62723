//! The streams of a primary to the other replicas: records, interleaved with parts of the memory.

use super::interface::Output;
use super::memory::{Memory, is_zero};
use super::message::Message;
use super::peer::{NOBODY, Peer, Stage};
use super::primary::Primary;
use super::record::{Position, StreamId};
use super::replica::Replica;
use super::view::ReplicaId;
use std::sync::Arc;
use std::time::Duration;

/// How far a copy may lag behind its rate and still catch up.
const COPY_LAG: Duration = Duration::from_millis(100);

impl<M: Memory> Replica<M> {
    /// Returns the number of parts of the memory.
    pub(super) fn parts(&self) -> u64 {
        self.memory.bytes().div_ceil(self.options.copy_bytes as u64)
    }

    /// Begins streams to the replicas that have none.
    pub(super) fn attach_all(&mut self, now: Duration) {
        let (Some(primary), Some(view)) = (&mut self.primary, &self.view) else { return };
        for &id in &view.backups {
            primary.peers.entry(id).or_insert_with(|| Peer::new(now));
        }
        for (&id, peer) in &mut primary.peers {
            let is_due = match peer.stage {
                Stage::Detached => true,
                Stage::Asked(when) => now.saturating_sub(when) >= self.options.lease,
                _ => false,
            };
            if is_due {
                // A replica that was forgotten and returns has used the earlier numbers.
                primary.streams += 1;
                peer.stream = primary.streams;
                peer.stage = Stage::Asked(now);
                let stream = StreamId { view: view.number, primary: self.me, number: peer.stream };
                let message = Message::Attach { stream, view: Arc::clone(view) };
                self.out.push(Output::Send { to: id, message });
            }
        }
    }

    pub(super) fn is_mine(&self, stream: StreamId) -> bool {
        self.primary.is_some() && self.is_current(stream.view) && stream.primary == self.me
    }

    /// Handles a replica's report of the end of its log.
    pub(super) fn attached(&mut self, from: ReplicaId, stream: StreamId, last: Option<Position>) {
        let is_mine = self.is_mine(stream);
        let fits = last.filter(|last| {
            let is_kept = self.log.after(last.lsn, self.beside.last.lsn).is_some();
            self.beside.contains(*last) && is_kept
        });
        let (Some(primary), Some(view)) = (&mut self.primary, &self.view) else { return };
        let Some(peer) = primary.peers.get_mut(&from).filter(|peer| is_mine && peer.stream == stream.number)
        else {
            return;
        };
        if let Some(last) = fits {
            peer.stage = Stage::Following(last.lsn);
            self.send(from, Message::Resume { stream });
        } else if view.backups.contains(&from) {
            peer.stage = Stage::Misfit;
        } else if let Some(former) = peer.former.filter(|former| view.backups.contains(former)) {
            // Its state must be replaced, so it must not be a member while that happens.
            primary.peers.remove(&from);
            primary.peers.entry(former).or_insert_with(|| NOBODY.clone()).stage = Stage::Misfit;
        } else {
            let sent = self.beside.last.lsn;
            peer.stage = Stage::Copying { sent, next: 0, copies: 0, acknowledged: 0, due: Duration::ZERO };
            // Its earlier acknowledgements no longer hold.
            peer.acked = 0;
            let state = Arc::new(self.beside.clone());
            self.send(from, Message::Begin { stream, state });
        }
    }

    /// Handles the acknowledgement of a part of the stream.
    pub(super) fn acknowledged(
        &mut self,
        from: ReplicaId,
        stream: StreamId,
        lsn: u64,
        copies: u64,
        now: Duration,
    ) {
        let (is_mine, parts) = (self.is_mine(stream), self.parts());
        let Some(peer) = self.primary.as_mut().and_then(|primary| primary.peers.get_mut(&from)) else {
            return;
        };
        if !is_mine || peer.stream != stream.number {
            return;
        }
        peer.heard = now;
        if let Stage::Copying { acknowledged, .. } = &mut peer.stage {
            *acknowledged = copies.min(parts);
        }
        if peer.is_whole(parts) {
            peer.acked = peer.acked.max(lsn.min(self.beside.last.lsn));
        }
    }

    /// Sends new records and parts to all followers.
    pub(super) fn ship(&mut self, clock: Duration) {
        let Some(mut primary) = self.primary.take() else { return };
        let everywhere = self.everywhere(&primary);
        let view = self.view.as_ref().map_or(0, |view| view.number);
        for (&id, peer) in &mut primary.peers {
            let stream = StreamId { view, primary: self.me, number: peer.stream };
            let (Stage::Following(sent) | Stage::Copying { sent, .. }) = &mut peer.stage else { continue };
            let rest = self.log.after(*sent, self.beside.last.lsn);
            let records: Vec<_> = rest.into_iter().flatten().cloned().collect();
            *sent = self.beside.last.lsn;
            if !records.is_empty() {
                let message = Message::Records { stream, records, everywhere };
                self.out.push(Output::Send { to: id, message });
            }
            self.copy(id, stream, &mut peer.stage, clock);
        }
        self.trim(&primary);
        self.primary = Some(primary);
    }

    /// Sends parts of the memory, as of the last record sent.
    fn copy(&mut self, to: ReplicaId, stream: StreamId, stage: &mut Stage, clock: Duration) {
        for _ in 0..self.options.copies_a_turn {
            if self.copy_due(stage).is_none_or(|due| clock < due) {
                return;
            }
            let Stage::Copying { next, copies, due, .. } = stage else { return };
            let (total, offset) = (self.memory.bytes(), *next);
            let bytes = (total - offset).min(self.options.copy_bytes as u64);
            let mut content = vec![0; bytes as usize].into_boxed_slice();
            self.memory.copy(offset, &mut content);
            let content = (!is_zero(&content)).then_some(content);
            let number = *copies;
            *next += bytes;
            *copies += 1;
            *due = (*due).max(clock.saturating_sub(COPY_LAG)) + self.time_of(bytes);
            let is_last = *next == total;
            self.send(to, Message::Copy { stream, number, offset, bytes, content, is_last });
        }
    }

    /// Returns when the next part of the memory may be sent to a learner; `None` while it has
    /// enough parts in flight.
    fn copy_due(&self, stage: &Stage) -> Option<Duration> {
        let Stage::Copying { next, copies, acknowledged, due, .. } = *stage else { return None };
        let is_open = next < self.memory.bytes() && copies - acknowledged < self.options.copies_under_way;
        is_open.then_some(due)
    }

    /// Returns the time that `bytes` take at the rate of copies, with an upper limit: the primary
    /// hears from a learner only through the parts that it acknowledges.
    fn time_of(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.options.copy_rate.max(1));
        let wanted = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let most = self.options.patience / 4;
        wanted.min(most)
    }

    /// Returns when the next part of the memory may be sent to any learner; `None` if no learner
    /// could take one. A turn after that time sends it.
    pub fn next_copy(&self) -> Option<Duration> {
        let peers = self.primary.iter().flat_map(|primary| primary.peers.values());
        peers.filter_map(|peer| self.copy_due(&peer.stage)).min()
    }

    /// Drops the records that no replica that can still follow lacks.
    fn trim(&mut self, primary: &Primary) {
        let is_awaited = |id: &ReplicaId| {
            self.view.as_ref().is_some_and(|view| view.backups.contains(id)) || primary.extra.contains(id)
        };
        let needed = primary.peers.iter().filter_map(|(id, peer)| match peer.stage {
            _ if is_awaited(id) => Some(peer.acked),
            Stage::Following(sent) | Stage::Copying { sent, .. } => Some(sent),
            _ => None,
        });
        let needed = needed.min().unwrap_or(self.beside.last.lsn);
        self.log.settle(needed, self.options.kept_bytes_max);
        self.beside.trim(self.log.first().unwrap_or(self.beside.last.lsn));
    }

    /// Handles the loss of a connection to another replica, and of the data in flight on it.
    pub fn parted(&mut self, other: ReplicaId) {
        if let Some(peer) = self.primary.as_mut().and_then(|primary| primary.peers.get_mut(&other))
            && peer.stage != Stage::Misfit
        {
            peer.stage = Stage::Detached;
        }
    }
}
