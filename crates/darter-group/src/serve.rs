//! A replica that serves: frames, the dependencies of their replies, and periodic work.

use super::disk::Entry;
use super::duplicates::Known;
use super::held::Leave;
use super::interface::{Outcome, Output, Request};
use super::lease;
use super::memory::Memory;
use super::message::Message;
use super::peer::{NOBODY, Peer, Stage};
use super::primary::Primary;
use super::record::{Content, Position, Record};
use super::replica::Replica;
use super::view::ReplicaId;
use darter_fabric::effects::{EffectsObserver, effects};
use darter_fabric::wire::FrameVerbs;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

impl<M: Memory> Replica<M> {
    /// Returns whether it can take requests. It executes none while it hands over or while other
    /// replicas lack too many records.
    pub fn takes_requests(&self) -> bool {
        let is_full = self.log.unsettled_bytes() > self.options.log_bytes_max;
        self.primary.as_ref().is_some_and(|primary| primary.handing.is_none()) && !is_full
    }

    /// Returns the number of replies that wait.
    pub fn held_replies(&self) -> usize {
        self.primary.as_ref().map_or(0, |primary| primary.held.len())
    }

    /// Executes a client's frame if it serves in the client's view. The reply leaves at the end of
    /// this turn or later.
    pub fn request(&mut self, request: &Request, verbs: FrameVerbs<'_>) {
        let takes = self.takes_requests();
        let is_current = self.is_current(request.view);
        let Some(primary) = self.primary.as_mut().filter(|_| is_current) else {
            return self.reply(request, Outcome::View(self.view.clone()));
        };
        if !takes {
            return self.reply(request, Outcome::Later);
        }
        let last = self.beside.last.lsn;
        let attempt = primary.attempts.entry((request.frame.session, request.frame.channel)).or_default();
        if request.attempt < *attempt {
            return;
        }
        *attempt = request.attempt;
        if self.beside.fenced.contains(&request.frame.session) {
            return self.hold(request, last, Leave::WithItsRecord, Outcome::Fenced);
        }
        match self.beside.duplicates.find(&request.frame) {
            Known::Executed(results, lsn) => {
                self.hold(request, lsn, Leave::WithItsRecord, Outcome::Done(results));
            }
            Known::Over => {}
            Known::New if self.beside.duplicates.kept(&request.frame) >= self.options.channel_frames_max => {
                // After the replies that it waits for: then fewer of them are left when the client
                // retries.
                self.hold(request, last, Leave::WithItsRecord, Outcome::Later);
            }
            Known::New => self.execute(request, verbs),
        }
    }

    fn execute(&mut self, request: &Request, verbs: FrameVerbs<'_>) {
        // Then all records may be shown: every later view contains only members that have them.
        let may_show_all = self.told >= self.lsn();
        let Some(primary) = &mut self.primary else { return };
        let changed = &mut self.changed;
        changed.clear();
        let start = primary.held.words().len();
        let lines = (!may_show_all).then_some(&primary.lines);
        // If a successor did not know of a lock, another client could take it: all words must last.
        let mut observer = EffectsObserver { effects: changed, lines, need: primary.floor, volatile: None };
        let executed = self.memory.execute(verbs, primary.held.words(), &mut observer);
        let need = observer.need;
        if executed.is_err() {
            primary.held.words().truncate(start);
            self.reply(request, Outcome::OutOfBounds);
        } else if changed.is_empty() {
            let need = primary.need(need);
            primary.held.hold_words(request.connection, request.frame.id, need, start);
        } else {
            let results = primary.held.take_words(start);
            let lsn = self.beside.last.lsn + 1;
            for (offset, bytes) in effects(changed).flatten() {
                primary.lines.changed(offset, bytes.len(), lsn);
            }
            self.beside.duplicates.executed(&request.frame, lsn, Arc::clone(&results));
            let effects = changed[..].into();
            self.append(Content::Frame { frame: request.frame, results: Arc::clone(&results), effects });
            self.hold(request, lsn, Leave::WithItsRecord, Outcome::Done(results));
        }
    }

    /// Fences a session, at all replicas before any client is notified.
    pub fn fence(&mut self, request: &Request, session: u64) {
        if self.primary.is_none() || !self.is_current(request.view) {
            return self.reply(request, Outcome::View(self.view.clone()));
        }
        if !self.takes_requests() {
            return self.reply(request, Outcome::Later);
        }
        self.record_fence(session);
        let last = self.beside.last.lsn;
        self.hold(request, last, Leave::WithItsRecord, Outcome::Done([].into()));
    }

    /// Replies when it is certain that it served, in the request's view, when the request arrived.
    pub fn confirm(&mut self, request: &Request) {
        if self.primary.is_none() || !self.is_current(request.view) {
            return self.reply(request, Outcome::View(self.view.clone()));
        }
        let last = self.beside.last.lsn;
        self.hold(request, last, Leave::Executed, Outcome::Done([].into()));
    }

    /// Fences a session whose client has been disconnected long enough to count as gone, so that
    /// its frames can be dropped. If the client returns after all, it gets an error.
    pub fn shut_out(&mut self, session: u64) {
        if self.takes_requests() {
            self.record_fence(session);
        }
    }

    fn record_fence(&mut self, session: u64) {
        if self.beside.fenced.insert(session) {
            self.beside.duplicates.forget(session);
            self.append(Content::Fenced(session));
        }
    }

    /// Returns the sessions that have recorded frames.
    pub fn sessions(&self) -> BTreeSet<u64> {
        self.beside.duplicates.channels().map(|((session, _), ..)| session).collect()
    }

    /// Drops the replies to a connection that has ended.
    pub fn disconnected(&mut self, connection: u64) {
        if let Some(primary) = &mut self.primary {
            primary.held.end(connection);
        }
    }

    fn append(&mut self, content: Content) {
        let view = self.view.as_ref().map_or(0, |view| view.number);
        let position = Position { view, lsn: self.beside.last.lsn + 1 };
        self.beside.advance(position);
        let record = Arc::new(Record { position, content });
        self.log.push(Arc::clone(&record));
        self.note(|| Entry::Record(record));
    }

    fn hold(&mut self, request: &Request, need: u64, leave: Leave, outcome: Outcome) {
        if let Some(primary) = &mut self.primary {
            let need = primary.need(need);
            primary.held.hold(request.connection, request.frame.id, need, leave, outcome);
        }
    }

    fn reply(&mut self, request: &Request, outcome: Outcome) {
        let (connection, id) = (request.connection, request.frame.id);
        self.out.push(Output::Reply { connection, id, outcome });
    }

    /// Ends a turn: sends the new records, and the replies that no longer wait. `clock` was read
    /// after the execution of all the turn's frames.
    pub fn end_turn(&mut self, clock: Duration) {
        self.ship(clock);
        let Some(mut primary) = self.primary.take() else { return };
        if let Some(written) = &mut self.written {
            written.mark(self.beside.last.lsn, 0);
        }
        let everywhere = self.everywhere(&primary);
        self.told = self.told.max(everywhere);
        let (is_alone, end) = (self.awaited(&primary).next().is_none(), self.lease_end(&primary));
        let covers = |moment| is_alone || end.is_some_and(|end| moment <= end);
        primary.held.executed(clock, everywhere, covers, &mut self.answers);
        primary.held.release(everywhere, covers, &mut self.out);
        self.primary = Some(primary);
    }

    /// Returns the replicas whose acknowledgements count.
    pub(super) fn awaited<'p>(&'p self, primary: &'p Primary) -> impl Iterator<Item = &'p Peer> {
        let backups = self.view.iter().flat_map(|view| &view.backups);
        let ids = backups.chain(&primary.extra);
        // A peer with unknown progress has no records.
        ids.map(|id| primary.peers.get(id).unwrap_or(&NOBODY))
    }

    /// Returns the last record that all awaited replicas have, this one included.
    pub(super) fn everywhere(&self, primary: &Primary) -> u64 {
        let own = self.written.as_ref().map_or(self.beside.last.lsn, |written| written.reached().0);
        let is_enough = 1 + self.awaited(primary).count() >= self.options.members_min;
        let most = if is_enough { own } else { own.min(self.told) };
        self.elsewhere(primary).min(most)
    }

    /// Returns the last record that all awaited replicas have.
    pub(super) fn elsewhere(&self, primary: &Primary) -> u64 {
        self.awaited(primary).map(|peer| peer.acked).min().unwrap_or(self.beside.last.lsn)
    }

    fn lease_end(&self, primary: &Primary) -> Option<Duration> {
        lease::end(self.awaited(primary).map(|peer| peer.granted), self.options.lease)
    }

    /// Handles a lease granted by a replica.
    pub(super) fn granted(&mut self, from: ReplicaId, view: u64, sent: Duration, now: Duration) {
        let is_current = self.is_current(view);
        let peers = self.primary.as_mut().filter(|_| is_current).map(|primary| &mut primary.peers);
        if let Some(peer) = peers.and_then(|peers| peers.get_mut(&from)) {
            peer.heard = now;
            peer.granted = peer.granted.max(Some(sent));
        }
    }

    /// Does periodic work: heartbeats, streams, silent replicas, learners that are complete.
    pub(super) fn lead(&mut self, now: Duration) {
        let Some((view, primary)) = self.view.clone().zip(self.primary.as_mut()) else { return };
        if now >= primary.heartbeat {
            primary.heartbeat = now + self.options.lease / 4;
            self.attach_all(now);
            let everywhere = self.primary.as_ref().map_or(0, |primary| self.everywhere(primary));
            for to in self.others() {
                let view = Arc::clone(&view);
                self.send(to, Message::Heartbeat { view, sent: now, everywhere });
            }
        }
        self.look_after_backups(now);
        self.look_after_learners(now);
        self.look_after_disk(now);
        self.see_handover(now);
    }

    /// Hands over if its disk has stalled.
    fn look_after_disk(&mut self, now: Duration) {
        let to = self.view.as_ref().and_then(|view| view.backups.first().copied());
        if let Some(to) = to.filter(|_| self.is_stalled()) {
            self.hand_over(to, now);
        }
    }

    /// Returns the backups and the learners.
    pub(super) fn others(&self) -> Vec<ReplicaId> {
        self.primary.iter().flat_map(|primary| primary.peers.keys().copied()).collect()
    }

    /// Requests a view without the backups that are silent or whose log diverges.
    fn look_after_backups(&mut self, now: Duration) {
        let (Some(view), Some(primary), None) = (&self.view, &self.primary, &self.proposal) else { return };
        let patience = self.options.patience;
        let is_lost = |peer: &Peer| peer.stage == Stage::Misfit || now.saturating_sub(peer.heard) >= patience;
        let is_misfit = |peer: &Peer| peer.stage == Stage::Misfit;
        let without = |is_lost: &dyn Fn(&Peer) -> bool| -> BTreeSet<_> {
            let is_kept = |id: &&ReplicaId| !primary.peers.get(id).is_some_and(is_lost);
            view.backups.iter().filter(is_kept).copied().collect()
        };
        let mut kept = without(&is_lost);
        let is_too_few = 1 + kept.len() < self.options.members_min;
        if is_too_few {
            // Silent members have everything that this one has acknowledged, and may return.
            kept = without(&is_misfit);
        }
        if kept.len() < view.backups.len() {
            let next = view.next(self.me, kept);
            self.propose(next, now);
        } else if is_too_few && self.looked.is_none_or(|when| now.saturating_sub(when) >= patience) {
            // They may have a view without this one.
            self.request_view(now);
        }
    }

    /// Awaits learners that are complete, then requests a view in which they are backups.
    fn look_after_learners(&mut self, now: Duration) {
        let parts = self.parts();
        let (Some(view), Some(primary), None) = (&self.view, &mut self.primary, &self.proposal) else {
            return;
        };
        if primary.handing.is_some() {
            return;
        }
        let (patience, told) = (self.options.patience, self.told);
        let is_silent = |peer: &Peer| now.saturating_sub(peer.heard) >= patience;
        primary.peers.retain(|id, peer| view.backups.contains(id) || !is_silent(peer));
        let peers = &primary.peers;
        let is_whole = |id: &ReplicaId| peers.get(id).is_some_and(|peer| peer.is_whole(parts));
        let learners = peers.keys().filter(|id| !view.backups.contains(id));
        let whole: BTreeSet<_> = learners.filter(|id| is_whole(id)).copied().collect();
        let has_told = |id: &ReplicaId| peers.get(id).is_some_and(|peer| peer.acked >= told);
        let ready: Vec<_> = whole.iter().filter(|id| has_told(id) && primary.extra.contains(id)).collect();
        let formers = ready.iter().filter_map(|id| peers.get(id).and_then(|peer| peer.former));
        let formers: BTreeSet<_> = formers.collect();
        let others = view.backups.iter().filter(|id| !formers.contains(id));
        let backups: BTreeSet<_> = others.chain(ready).copied().collect();
        primary.extra = whole;
        if backups != view.backups {
            primary.extra.retain(|id| backups.contains(id));
            let next = view.next(self.me, backups);
            self.propose(next, now);
        }
    }
}
