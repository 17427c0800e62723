//! Steps that change views, and steps in which replicas die and return.

use crate::state::{CLIENTS, Flaw, REPLICAS, Replica, State, View};
use crate::step::{GroupStep, Turn};

fn bit(replica: usize) -> u8 {
    1 << replica
}

impl Turn<'_> {
    /// Takes all steps of this file.
    pub(crate) fn change(&mut self) {
        for replica in 0..REPLICAS {
            self.land(replica);
            self.adopt(replica);
            self.die(replica);
            self.come_back(replica);
            self.suspect(replica);
            for other in (0..REPLICAS).filter(|&other| other != replica) {
                self.learn(replica, other);
                self.remove(replica, other);
                self.survey(replica, other);
            }
        }
    }

    /// Whether a replica may ask the store for another view.
    fn may_propose(&self, replica: &Replica) -> bool {
        !replica.has_proposed && replica.view.number < self.scenario.views_max
    }

    fn propose(&mut self, step: GroupStep, by: usize, mut state: State, view: View) {
        let replica = &mut state.replicas[by];
        replica.has_proposed = true;
        replica.proposal = Some(View { number: replica.view.number + 1, ..view });
        self.push(step, state);
    }

    /// A compare-and-set arrives at the store.
    fn land(&mut self, replica: usize) {
        let Some(view) = self.state.replicas[replica].proposal else { return };
        let mut state = self.state;
        state.replicas[replica].proposal = None;
        if view.number == state.store().number + 1 {
            state.current += 1;
            state.views[usize::from(state.current)] = view;
        }
        self.push(GroupStep::Land { replica }, state);
    }

    /// A replica receives a view, not always the newest.
    fn adopt(&mut self, me: usize) {
        let old = self.state.replicas[me];
        for number in old.view.number + 1..=self.state.store().number {
            if !old.is_alive {
                return;
            }
            let view = self.state.views[usize::from(number) - 1];
            let mut state = self.state;
            let replica = &mut state.replicas[me];
            let was_primary = old.is_primary(me);
            *replica = Replica {
                view,
                suspects: false,
                answered: 0,
                resumes: false,
                has_proposed: false,
                is_stopped: false,
                has_lease: false,
                extra: 0,
                attached: 0,
                acked: [0; REPLICAS],
                ..old
            };
            if usize::from(view.primary) == me {
                // No other replica has its name: it requested this view, or was handed it.
                replica.is_sound |= old.resumes;
                if !was_primary {
                    replica.told = replica.log.len();
                }
            } else {
                replica.held = [None; CLIENTS];
                let is_member = view.backups >> me & 1 != 0 || replica.stands_in();
                if !is_member && self.scenario.is_durable {
                    // The new primary may have the log's beginning, and the records after it.
                    replica.is_sound &= self.has(Flaw::LogOfEarlierView);
                } else if !is_member && !self.has(Flaw::SuffixKept) {
                    replica.log.truncate(0);
                    replica.is_sound = false;
                }
            }
            self.push(GroupStep::Adopt { replica: me, view: number }, state);
        }
    }

    fn die(&mut self, me: usize) {
        if self.state.deaths == 0 || !self.state.replicas[me].is_alive {
            return;
        }
        // A power failure may leave some of the records that were not synced.
        let old = self.state.replicas[me];
        let kept = if self.scenario.is_durable { old.synced.min(old.log.len()) } else { old.log.len() };
        for kept in kept..=old.log.len() {
            self.die_with(me, kept);
        }
    }

    fn die_with(&mut self, me: usize, kept: u8) {
        let mut state = self.state;
        state.deaths -= 1;
        let replica = &mut state.replicas[me];
        replica.log.truncate(kept);
        replica.synced = kept;
        replica.is_alive = false;
        replica.held = [None; CLIENTS];
        if !self.scenario.returns {
            *replica = Replica { proposal: replica.proposal, ..Replica::default() };
        }
        (0..CLIENTS).for_each(|client| {
            (0..2).for_each(|index| state.requests &= !State::request(me, client, index));
        });
        self.push(GroupStep::Die { replica: me }, state);
    }

    /// A replica returns under a new name, since it has forgotten which replicas it suspected and
    /// what it requested from the store. Its memory is worthless unless it was alone in its view.
    fn come_back(&mut self, me: usize) {
        let old = self.state.replicas[me];
        if self.scenario.is_durable {
            return self.come_back_with_log(me);
        }
        let spare = self.scenario.replicas;
        // The remaining name is given only once.
        let is_free = me < spare && spare < REPLICAS && self.state.replicas[spare] == Replica::default();
        if !old.is_alive && self.scenario.returns && me < spare && self.has(Flaw::OldServes) {
            let mut state = self.state;
            state.replicas[me].is_alive = true;
            self.push(GroupStep::Back { replica: me }, state);
        } else if !old.is_alive && self.scenario.returns && is_free {
            let mut state = self.state;
            state.replicas[spare] = Replica { is_alive: true, ..Replica::default() };
            if old.is_sound && old.is_alone(me) {
                let Replica { view, log, .. } = old;
                state.replicas[spare] = Replica { view, log, resumes: true, ..state.replicas[spare] };
            }
            self.push(GroupStep::Back { replica: me }, state);
        }
        // It was alone in the view that is still the current one: it continues under its own name.
        let is_current = old.view.number == self.state.store().number;
        if old.is_alive && old.resumes && is_current && self.may_propose(&old) {
            let view = View { number: 0, primary: me as u8, backups: 0 };
            self.propose(GroupStep::Resume { replica: me }, me, self.state, view);
        }
    }

    /// A durable replica returns under a new name. It stands in for itself in a view that names it
    /// under an earlier one, once the store or another replica has told it of that view.
    fn come_back_with_log(&mut self, me: usize) {
        let old = self.state.replicas[me];
        if old.is_alive || old.view.number == 0 || !self.scenario.returns {
            return;
        }
        if self.has(Flaw::OldServes) {
            let mut state = self.state;
            state.replicas[me].is_alive = true;
            self.push(GroupStep::Back { replica: me }, state);
            return;
        }
        let is_free = |replica: &Replica| *replica == Replica::default();
        let first = self.scenario.replicas;
        let Some(spare) = (first..REPLICAS).find(|&spare| is_free(&self.state.replicas[spare])) else {
            return;
        };
        let mut state = self.state;
        state.replicas[me] = Replica { proposal: old.proposal, ..Replica::default() };
        state.replicas[spare] = Replica {
            is_alive: true,
            is_sound: old.is_sound,
            view: View { number: old.view.number - 1, ..View::default() },
            log: old.log,
            synced: old.synced,
            formers: old.formers | bit(me),
            ..Replica::default()
        };
        self.push(GroupStep::Back { replica: me }, state);
    }

    fn suspect(&mut self, me: usize) {
        let replica = self.state.replicas[me];
        let is_old = self.has(Flaw::LogOfEarlierView) && replica.is_alive && replica.formers != 0;
        let is_member = replica.is_backup(me) || replica.stands_in() || is_old;
        if !is_member || !replica.is_sound || replica.is_primary(me) {
            return;
        }
        let names = if self.has(Flaw::LeaseForgotten) { bit(me) } else { bit(me) | replica.formers };
        let grants = |(index, other): (usize, &Replica)| {
            other.is_primary(index) && other.has_lease && other.awaited() & names != 0
        };
        let has_granted = self.state.replicas.iter().enumerate().any(grants);
        if !replica.suspects && (!has_granted || self.has(Flaw::NoLease)) {
            let mut state = self.state;
            state.replicas[me].suspects = true;
            self.push(GroupStep::Suspect { backup: me }, state);
        }
        // A candidate that gives up, and a replica that it has surveyed.
        if replica.suspects && !replica.has_proposed {
            let mut state = self.state;
            (state.replicas[me].suspects, state.replicas[me].answered) = (false, 0);
            self.push(GroupStep::Trust { backup: me }, state);
        }
        // A candidate's survey is not a reason to become a candidate too: the replica's own
        // patience must have expired.
        if replica.suspects && self.may_propose(&replica) && (!has_granted || self.has(Flaw::NoLease)) {
            let view = View { number: 0, primary: me as u8, backups: replica.answered };
            self.propose(GroupStep::Promote { candidate: me }, me, self.state, view);
        }
    }

    /// A candidate surveys another backup. That backup accepts no more records in this view, and
    /// the candidate takes the rest of the longer log from it.
    fn survey(&mut self, me: usize, other: usize) {
        let (candidate, backup) = (self.state.replicas[me], self.state.replicas[other]);
        let is_member = |replica: &Replica, me| replica.is_backup(me) || replica.stands_in();
        let is_asking = is_member(&candidate, me) && candidate.suspects && !candidate.has_proposed;
        let is_same = candidate.view == backup.view && is_member(&backup, other) && backup.is_sound;
        if !is_asking || !is_same || candidate.answered & bit(other) != 0 {
            return;
        }
        let mut state = self.state;
        state.replicas[other].suspects = true;
        if backup.log.is_begun_by(&candidate.log) {
            state.replicas[me].log = backup.log;
            state.replicas[me].answered |= bit(other);
        } else if candidate.log.is_begun_by(&backup.log) {
            state.replicas[me].answered |= bit(other);
        }
        self.push(GroupStep::Survey { candidate: me, backup: other }, state);
    }

    fn remove(&mut self, me: usize, other: usize) {
        let replica = self.state.replicas[me];
        if !self.scenario.changes
            || !replica.is_primary(me)
            || !self.may_propose(&replica)
            || replica.view.backups & bit(other) == 0
        {
            return;
        }
        let View { primary, backups, .. } = replica.view;
        let without = View { number: 0, primary, backups: backups & !bit(other) };
        self.propose(GroupStep::Remove { primary: me, backup: other }, me, self.state, without);
        let has_all = (0..REPLICAS)
            .all(|other| replica.awaited() & bit(other) == 0 || replica.acked[other] == replica.log.len());
        if self.scenario.hands_over && has_all && replica.extra == 0 {
            let mut state = self.state;
            state.replicas[me].is_stopped = true;
            let backups = backups & !bit(other) | bit(me);
            let view = View { number: 0, primary: other as u8, backups };
            self.propose(GroupStep::HandOff { primary: me, to: other }, me, state, view);
        }
    }

    /// A primary brings a learner up, then requests a view in which it is a backup.
    fn learn(&mut self, me: usize, other: usize) {
        let (primary, learner) = (self.state.replicas[me], self.state.replicas[other]);
        let is_learner =
            self.scenario.changes && primary.is_primary(me) && primary.view.backups & bit(other) == 0;
        if !is_learner || !learner.is_alive || learner.view.number != primary.view.number {
            return;
        }
        let is_attached = primary.attached & bit(other) != 0;
        if !is_attached {
            let mut state = self.state;
            state.replicas[me].attached |= bit(other);
            let fits = self.scenario.is_durable && primary.log.is_begun_by(&learner.log);
            let learner = &mut state.replicas[other];
            if fits {
                // The records after its last one are enough.
                learner.is_sound = true;
            } else if !self.has(Flaw::SuffixKept) {
                learner.log.truncate(0);
                learner.is_sound = false;
            }
            learner.synced = learner.synced.min(learner.log.len());
            learner.formers = 0;
            self.push(GroupStep::Join { primary: me, learner: other }, state);
            return;
        }
        if !learner.is_sound {
            let mut state = self.state;
            state.replicas[other].log = primary.log;
            state.replicas[other].is_sound = true;
            self.push(GroupStep::Copied { primary: me, learner: other }, state);
        } else if primary.extra & bit(other) == 0 {
            let mut state = self.state;
            state.replicas[me].extra |= bit(other);
            // The learner's grant is missing.
            state.replicas[me].has_lease = false;
            self.push(GroupStep::Include { primary: me, learner: other }, state);
        }
        let is_ready = primary.extra & bit(other) != 0 && primary.acked[other] >= primary.told;
        let is_early =
            self.has(Flaw::LearnerPromoted) || self.has(Flaw::LearnerUnawaited) && learner.is_sound;
        if (is_ready || is_early) && self.may_propose(&primary) {
            let mut state = self.state;
            if self.has(Flaw::LearnerPromoted) {
                state.replicas[other].is_sound = true;
            }
            let view = View { backups: primary.view.backups | bit(other), ..primary.view };
            self.propose(GroupStep::Add { primary: me, learner: other }, me, state, view);
        }
    }
}
