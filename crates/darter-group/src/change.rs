//! View changes: suspicion, candidates, proposals to the store, adoption.

use super::interface::{Outcome, Output};
use super::log::Log;
use super::memory::Memory;
use super::message::{Beside, Message};
use super::peer::{Peer, Stage};
use super::primary::Primary;
use super::record::{Position, Record};
use super::replica::{Follower, Replica};
use super::view::{ReplicaId, StoreRequest, View};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

impl<M: Memory> Replica<M> {
    /// Adopts a view if it is newer than the current one.
    pub(super) fn adopt(&mut self, view: &Arc<View>, now: Duration) {
        if self.view.as_ref().is_some_and(|known| known.number >= view.number) {
            return;
        }
        self.view = Some(Arc::clone(view));
        let resumes = self.resumes.take().is_some();
        self.proposal = None;
        self.follower = Follower::default();
        self.heard = now;
        let served = self.primary.take();
        if view.primary == self.me {
            // No other replica has this name: this replica requested the view or was handed it.
            self.is_sound |= resumes;
            if !self.is_sound {
                // The other replicas will notice that no primary serves.
                return;
            }
            let primary = served.map_or_else(
                || {
                    let last = self.beside.last.lsn;
                    self.told = last;
                    Primary::new(last, now)
                },
                |primary| primary.goes_on(now),
            );
            self.primary = Some(primary);
            self.tick(now);
            return;
        }
        if let Some(mut primary) = served {
            primary.held.refuse(&Outcome::View(Some(Arc::clone(view))), &mut self.out);
            for to in view.members().filter(|to| *to != self.me).collect::<Vec<_>>() {
                self.send(to, Message::View(Arc::clone(view)));
            }
        }
        if !view.backups.contains(&self.me) {
            // Its log may differ from the new primary's, and records cannot be undone.
            self.is_sound = false;
            (self.beside, self.log) = (Beside::default(), Log::default());
        }
        if !view.backups.contains(&self.me) && !self.leaves {
            self.send(view.primary, Message::Join);
        }
    }

    /// Handles a replica that is not a member and wants to be brought up. A spare repeats this.
    pub(super) fn joined_by(&mut self, from: ReplicaId, now: Duration) {
        let Some(primary) = &mut self.primary else { return self.correct(from) };
        let has_room = 1 + primary.peers.len() < self.options.members_max;
        if has_room {
            primary.peers.entry(from).or_insert_with(|| Peer::new(now));
        }
    }

    /// Makes a replica that is about to stop leave the view: a primary hands over to a backup, a
    /// backup requests a view without it, so that the primary need not first detect its absence.
    /// Call it repeatedly until it returns `false`: then the replica is no longer a member, or is
    /// the only one.
    pub fn leave(&mut self, now: Duration) -> bool {
        self.leaves = true;
        let Some(view) = self.view.clone() else { return false };
        if self.primary.is_some() {
            let next = view.backups.first().copied();
            return next.is_some_and(|to| self.hand_over(to, now) || self.primary.is_some());
        }
        let is_backup = view.backups.contains(&self.me);
        if is_backup {
            self.send(view.primary, Message::Leave);
        }
        is_backup
    }

    /// Handles a replica that is about to stop.
    pub(super) fn left_by(&mut self, from: ReplicaId) {
        if let Some(peer) = self.primary.as_mut().and_then(|primary| primary.peers.get_mut(&from)) {
            peer.stage = Stage::Misfit;
        }
    }

    /// Requests the store to replace the current view with this one.
    pub(super) fn propose(&mut self, view: View, now: Duration) {
        let view = Arc::new(view);
        self.proposal = Some((Arc::clone(&view), now));
        self.out.push(Output::Store(StoreRequest::Set(view)));
    }

    /// Does the periodic work of a replica that does not serve: suspects a silent primary.
    pub(super) fn watch(&mut self, now: Duration) {
        let silent = now.saturating_sub(self.heard);
        let looked = self.looked.map_or(silent, |when| now.saturating_sub(when));
        if silent >= self.options.patience && looked >= self.options.patience {
            self.request_view(now);
            let is_out = |view: &&Arc<View>| !view.backups.contains(&self.me) && !self.leaves;
            if let Some(view) = self.view.as_ref().filter(is_out) {
                self.send(view.primary, Message::Join);
            }
        }
        let Some(view) = self.view.clone() else { return };
        let may_promote = view.backups.contains(&self.me) && self.is_sound;
        if !may_promote || silent < self.options.patience || self.proposal.is_some() {
            return;
        }
        self.follower.suspects = true;
        if self.follower.survey.is_none() {
            let last = self.beside.last;
            let until = now + self.options.patience / 4;
            self.follower.survey = Some((BTreeSet::new(), until));
            for &to in view.backups.iter().filter(|&&to| to != self.me).collect::<Vec<_>>() {
                self.send(to, Message::Survey { view: view.number, last });
            }
        }
        if let Some((answered, until)) = &self.follower.survey
            && (now >= *until || answered.len() + 1 == view.backups.len())
        {
            let next = view.next(self.me, answered.clone());
            self.propose(next, now);
        }
    }

    /// Replies to a candidate's survey. From now on this replica accepts no record of this view.
    pub(super) fn surveyed_by(&mut self, from: ReplicaId, view: u64, last: Position) {
        if !self.is_current(view) || self.primary.is_some() {
            return self.correct(from);
        }
        let is_member = self.view.as_ref().is_some_and(|view| view.backups.contains(&self.me));
        if !is_member || !self.is_sound {
            return;
        }
        self.follower.suspects = true;
        let mine = self.beside.last;
        let rest = self.log.after(last.lsn, mine.lsn).filter(|_| self.beside.contains(last));
        let is_longer = mine.lsn > last.lsn;
        let fits = rest.is_some() || !is_longer;
        let records = rest.into_iter().flatten().cloned().collect();
        self.send(from, Message::Surveyed { view, last: mine, fits, records });
    }

    /// Handles a backup's reply to a survey.
    pub(super) fn surveyed(
        &mut self,
        from: ReplicaId,
        view: u64,
        last: Position,
        fits: bool,
        records: &[Arc<Record>],
        now: Duration,
    ) {
        if !self.is_current(view) || self.proposal.is_some() || self.primary.is_some() {
            return;
        }
        let Some((mut answered, until)) = self.follower.survey.take() else { return };
        let mut is_whole = true;
        for record in records {
            if record.position.lsn == self.beside.last.lsn + 1 {
                is_whole &= self.apply(record);
            }
        }
        if fits && is_whole && self.beside.contains(last) {
            answered.insert(from);
        }
        self.follower.survey = Some((answered, until));
        self.watch(now);
    }

    /// Hands over to a backup: executes nothing more, waits until all backups have all records,
    /// then requests a view in which that backup serves, and follows it. Returns whether it has
    /// started to.
    pub fn hand_over(&mut self, to: ReplicaId, now: Duration) -> bool {
        let is_backup = self.view.as_ref().is_some_and(|view| view.backups.contains(&to));
        let is_free = self.proposal.is_none();
        let Some(primary) = self.primary.as_mut().filter(|primary| primary.handing.is_none()) else {
            return false;
        };
        if is_backup && is_free {
            primary.extra.clear();
            primary.handing = Some((to, now + self.options.patience));
        }
        is_backup && is_free
    }

    pub(super) fn see_handover(&mut self, now: Duration) {
        let Some(view) = self.view.clone().filter(|_| self.proposal.is_none()) else { return };
        let Some(primary) = &self.primary else { return };
        let Some((to, until)) = primary.handing else { return };
        let has_all = self.everywhere(primary) == self.beside.last.lsn;
        if has_all {
            let backups = view.backups.iter().copied().chain([self.me]).filter(|id| *id != to).collect();
            self.propose(view.next(to, backups), now);
        } else if now >= until
            && let Some(primary) = &mut self.primary
        {
            primary.handing = None;
        }
    }
}
