//! The streams of a primary to the other replicas: records, and between them parts of the memory.

use super::interface::Output;
use super::memory::Memory;
use super::message::Message;
use super::peer::{Peer, Stage};
use super::primary::Primary;
use super::record::{Position, StreamId};
use super::replica::Replica;
use super::view::ReplicaId;
use std::sync::Arc;
use std::time::Duration;

impl<M: Memory> Replica<M> {
    /// Returns how many parts the memory has.
    pub(super) fn parts(&self) -> u64 {
        self.memory.bytes().div_ceil(self.options.copy_bytes as u64)
    }

    /// Begins streams to those that have none.
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
                // One that was forgotten and comes again has known the numbers of before.
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

    /// A replica says where its log ends.
    pub(super) fn attached(&mut self, from: ReplicaId, stream: StreamId, last: Option<Position>) {
        let is_mine = self.is_mine(stream);
        let fits = last.filter(|last| {
            let is_kept = self.log.after(last.lsn, self.beside.last.lsn).is_some();
            (self.beside.contains(*last) || crate::mutant!("group-suffix-kept")) && is_kept
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
        } else {
            let sent = self.beside.last.lsn;
            peer.stage = Stage::Copying { sent, next: 0, copies: 0, acknowledged: 0 };
            // What it had acknowledged before is gone.
            peer.acked = 0;
            let state = Arc::new(self.beside.clone());
            self.send(from, Message::Begin { stream, state });
        }
    }

    /// A replica has applied a part of its stream.
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

    /// Sends what is new to everybody who follows.
    pub(super) fn ship(&mut self) {
        let Some(mut primary) = self.primary.take() else { return };
        let everywhere = self.everywhere(&primary);
        let view = self.view.as_ref().map_or(0, |view| view.number);
        for (&id, peer) in &mut primary.peers {
            let stream = StreamId { view, primary: self.me, number: peer.stream };
            let (Stage::Following(sent) | Stage::Copying { sent, .. }) = &mut peer.stage else { continue };
            let skipped = u64::from(crate::mutant!("group-gap-in-the-log") && *sent + 2 <= self.lsn());
            let rest = self.log.after(*sent, self.beside.last.lsn);
            let records: Vec<_> = rest.into_iter().flatten().skip(skipped as usize).cloned().collect();
            *sent = self.beside.last.lsn;
            if !records.is_empty() {
                let message = Message::Records { stream, records, everywhere };
                self.out.push(Output::Send { to: id, message });
            }
            self.copy(id, stream, &mut peer.stage);
        }
        self.trim(&primary);
        self.primary = Some(primary);
    }

    /// Sends parts of the memory, as it is behind the records that were sent.
    fn copy(&mut self, to: ReplicaId, stream: StreamId, stage: &mut Stage) {
        let Stage::Copying { next, copies, acknowledged, .. } = stage else { return };
        let total = self.memory.bytes();
        while *next < total && *copies - *acknowledged < self.options.copies_under_way {
            let offset = *next;
            let bytes = (total - offset).min(self.options.copy_bytes as u64);
            let mut content = vec![0; bytes as usize].into_boxed_slice();
            self.memory.copy(offset, &mut content);
            let content = content.iter().any(|byte| *byte != 0).then_some(content);
            let number = *copies;
            *next += bytes;
            *copies += 1;
            let is_last = *next == total;
            self.send(to, Message::Copy { stream, number, offset, bytes, content, is_last });
        }
    }

    /// Forgets the records that nobody lacks who may still follow.
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
        self.log.trim(needed);
        self.beside.trim(self.log.first().unwrap_or(self.beside.last.lsn));
    }

    /// A connection to another replica was lost, and with it a part of the stream.
    pub fn parted(&mut self, other: ReplicaId) {
        if let Some(peer) = self.primary.as_mut().and_then(|primary| primary.peers.get_mut(&other))
            && peer.stage != Stage::Misfit
        {
            peer.stage = Stage::Detached;
        }
    }
}
