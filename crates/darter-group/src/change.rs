//! View changes: suspicion, candidates, proposals to the store, adoption.

use super::interface::{Outcome, Output};
use super::memory::Memory;
use super::message::Message;
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
        self.proposal = None;
        self.follower = Follower::default();
        self.heard = now;
        let served = self.primary.take();
        if view.members().any(|id| id == self.me) {
            // No later view has an earlier name.
            if self.names.len() > 1 {
                self.names = [self.me].into();
                self.note_names();
            }
            // A group begins with empty memories.
            self.is_sound |= view.number == 1 && self.is_whole && self.lsn() == 0;
        }
        if view.primary == self.me {
            // No other replica has this name: this replica requested the view or was handed it.
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
        if view.backups.contains(&self.me) {
            return;
        }
        // Otherwise its log may differ from the new primary's, which compares them.
        self.is_sound = self.stands_in();
        if !self.is_sound && !self.leaves {
            self.send(view.primary, Message::Join);
        }
    }

    /// Handles a replica that has restarted with its log.
    pub(super) fn returned(
        &mut self,
        from: ReplicaId,
        view: u64,
        names: &BTreeSet<ReplicaId>,
        now: Duration,
    ) {
        if !self.is_current(view) {
            return self.correct(from);
        }
        let Some(view) = self.view.clone() else { return };
        let Some(primary) = &mut self.primary else {
            self.follower.stand_ins.extend(names.iter().map(|&name| (name, from)));
            return;
        };
        // At most one of its names is that of a member.
        if let Some(&former) = view.backups.iter().find(|id| names.contains(id)) {
            let peer = primary.peers.entry(from).or_insert_with(|| Peer::new(now));
            peer.former = Some(former);
        }
        // It need not request a view: this replica serves.
        self.correct(from);
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
        if view.members().count() <= self.options.members_min {
            // The others could not serve. With its log it may return as the member that it is.
            return false;
        }
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
        let is_over = |when: Duration| now.saturating_sub(when) >= 2 * self.options.patience;
        if self.follower.surveyed.is_some_and(is_over) && self.proposal.is_none() {
            // The candidate has not succeeded. Nothing is acknowledged without it either, unless it
            // has given up.
            (self.follower.suspects, self.follower.surveyed) = (false, None);
        }
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
        let stands_in = self.stands_in();
        if stands_in {
            self.announce(view.number, now);
        }
        let is_alone = stands_in && view.members().all(|id| self.names.contains(&id));
        // Its earlier self may have granted a lease. A member that lives comes first.
        let patience = match stands_in {
            _ if is_alone => Duration::ZERO,
            true => 2 * self.options.patience,
            false => self.options.patience,
        };
        let may_promote = (view.backups.contains(&self.me) || stands_in) && self.is_sound;
        if !may_promote || silent < patience || self.proposal.is_some() {
            return;
        }
        self.follower.suspects = true;
        let others = self.others_to_ask(&view);
        let last = self.beside.last;
        for &to in &others {
            if self.follower.asked.insert(to) {
                self.send(to, Message::Survey { view: view.number, last });
            }
        }
        let until = now + self.options.patience / 4;
        let (answered, until) = self.follower.survey.get_or_insert((BTreeSet::new(), until));
        if now < *until && answered.len() < others.len() {
            return;
        }
        if 1 + answered.len() >= self.options.members_min.min(view.members().count()) {
            let next = view.next(self.me, answered.clone());
            self.propose(next, now);
        } else {
            // Others may still return, or the primary.
            self.heard = now;
            let follower = &mut self.follower;
            follower.lacks_members = true;
            follower.suspects = follower.surveyed.is_some();
            (follower.survey, follower.asked) = Default::default();
        }
    }

    /// Tells the others from time to time that it has restarted with its log.
    fn announce(&mut self, view: u64, now: Duration) {
        let is_due = |when: Duration| now.saturating_sub(when) >= self.options.patience / 4;
        if self.announced.is_none_or(is_due) {
            self.announced = Some(now);
            let names = self.names.clone();
            self.out.push(Output::SendAll(Message::Return { view, names }));
        }
    }

    /// Returns the members that a candidate asks: the backups, under their new names if they have
    /// restarted, and a primary that has restarted.
    fn others_to_ask(&self, view: &View) -> BTreeSet<ReplicaId> {
        let members = view.members().filter(|id| !self.names.contains(id));
        let now_named = |id: ReplicaId| {
            let stand_in = self.follower.stand_ins.get(&id).copied();
            stand_in.or_else(|| (id != view.primary).then_some(id))
        };
        members.filter_map(now_named).collect()
    }

    /// Replies to a candidate's survey. From now on this replica accepts no record of this view, until
    /// the candidate should have succeeded.
    pub(super) fn surveyed_by(&mut self, from: ReplicaId, view: u64, last: Position, now: Duration) {
        if !self.is_current(view) || self.primary.is_some() {
            return self.correct(from);
        }
        let is_backup = self.view.as_ref().is_some_and(|view| view.backups.contains(&self.me));
        let is_member = is_backup || self.stands_in();
        if !is_member || !self.is_sound {
            return;
        }
        self.follower.suspects = true;
        self.follower.surveyed = Some(now);
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
        // Its own disk may have stalled.
        let has_all = self.elsewhere(primary) == self.beside.last.lsn;
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
