//! A replica: its state, and the dispatch of its inputs.

use super::answers::Answers;
use super::disk::{Entry, Logged, Written};
use super::interface::{Options, Output, Role, Start};
use super::log::Log;
use super::memory::Memory;
use super::message::{Beside, Message};
use super::primary::Primary;
use super::record::StreamId;
use super::view::{ReplicaId, StoreReply, StoreRequest, View};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A non-serving replica's knowledge of its primary.
#[derive(Debug, Default)]
pub(super) struct Follower {
    /// The stream that it follows, and whether the stream has begun.
    pub(super) stream: Option<(StreamId, bool)>,
    /// Number of parts of the memory that were copied.
    pub(super) copies: u64,
    /// It acknowledges and grants nothing in this view: for good once it has requested the next one.
    pub(super) suspects: bool,
    /// When it last replied to a candidate's survey.
    pub(super) surveyed: Option<Duration>,
    /// Backups that have replied to its survey, and the deadline for further replies.
    pub(super) survey: Option<(BTreeSet<ReplicaId>, Duration)>,
    /// Replicas that were sent its survey.
    pub(super) asked: BTreeSet<ReplicaId>,
    /// The replicas that have restarted with their logs, by their earlier names.
    pub(super) stand_ins: BTreeMap<ReplicaId, ReplicaId>,
    /// Too few members have replied to its last survey.
    pub(super) lacks_members: bool,
}

/// A replica of a group.
#[derive(Debug)]
pub struct Replica<M> {
    pub(super) me: ReplicaId,
    pub(super) options: Options,
    pub(super) memory: M,
    pub(super) view: Option<Arc<View>>,
    /// It has every record on which a reply was ever based.
    pub(super) is_sound: bool,
    /// Its memory is that after the last record of some log.
    pub(super) is_whole: bool,
    /// Its name, and the earlier ones under which its log has acknowledged records.
    pub(super) names: BTreeSet<ReplicaId>,
    /// How far its log is durable; `None` if it keeps none.
    pub(super) written: Option<Written>,
    /// When it last announced that it has restarted with its log.
    pub(super) announced: Option<Duration>,
    pub(super) beside: Beside,
    pub(super) log: Log,
    /// No record after this one was ever the basis of a reply.
    pub(super) told: u64,
    /// When the primary's last message arrived, and when the view was adopted.
    pub(super) heard: Duration,
    pub(super) follower: Follower,
    pub(super) primary: Option<Primary>,
    /// The view that it requested from the store, and when it last did so.
    pub(super) proposal: Option<(Arc<View>, Duration)>,
    /// When it last requested the current view from the store.
    pub(super) looked: Option<Duration>,
    /// It is about to stop, and leaves the view.
    pub(super) leaves: bool,
    pub(super) out: Vec<Output>,
    pub(super) answers: Answers,
    /// The changes made by the frame that is being executed.
    pub(super) changed: Vec<u8>,
}

impl<M: Memory> Replica<M> {
    /// Returns a replica with the given initial state.
    pub fn new(me: ReplicaId, options: Options, memory: M, start: Start, now: Duration) -> Self {
        let mut replica = Self {
            me,
            options,
            memory,
            view: None,
            is_sound: false,
            is_whole: false,
            names: [me].into(),
            written: None,
            announced: None,
            beside: Beside::default(),
            log: Log::default(),
            told: 0,
            heard: now,
            follower: Follower::default(),
            primary: None,
            proposal: None,
            looked: None,
            leaves: false,
            out: Vec::new(),
            answers: Answers::default(),
            changed: Vec::new(),
        };
        match start {
            Start::Bootstrap(view) => {
                (replica.is_sound, replica.is_whole) = (true, true);
                replica.adopt(&view, now);
            }
            Start::Empty => replica.request_view(now),
            Start::Logged(logged) => {
                let Logged { names, is_whole, beside, recent } = *logged;
                replica.names.extend(names);
                replica.written = Some(Written::new(beside.last.lsn, now));
                (replica.is_whole, replica.told) = (is_whole, beside.last.lsn);
                (replica.beside, replica.log) = (beside, recent);
                replica.request_view(now);
            }
        }
        replica
    }

    /// Returns whether it has every record on which a reply was ever based.
    pub fn is_sound(&self) -> bool {
        self.is_sound
    }

    /// Returns the state that the entries of its log so far restore.
    pub fn restored(&self) -> Logged {
        let (names, beside) = (self.names.clone(), self.beside.clone());
        Logged { names, is_whole: self.is_whole, beside, ..Logged::default() }
    }

    /// Adds an entry to its log, if it keeps one.
    pub(super) fn note(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(written) = &mut self.written {
            written.add();
            self.out.push(Output::Log(entry()));
        }
    }

    pub(super) fn note_names(&mut self) {
        let names = self.names.clone();
        self.note(|| Entry::Names(names));
    }

    /// Returns whether its disk has stalled for as long as a silent replica is waited for.
    pub(super) fn is_stalled(&self) -> bool {
        self.written.as_ref().is_some_and(|written| written.waits() >= self.options.patience)
    }

    /// Returns whether the current view has it under an earlier name.
    pub(super) fn stands_in(&self) -> bool {
        let names_it = |view: &Arc<View>| {
            let mut members = view.members();
            members.all(|id| id != self.me) && view.members().any(|id| self.names.contains(&id))
        };
        self.is_whole && self.view.as_ref().is_some_and(names_it)
    }

    /// Returns its current view.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }

    /// Returns its role.
    pub fn role(&self) -> Role {
        let is_backup = self.view.as_ref().is_some_and(|view| view.backups.contains(&self.me));
        match (&self.primary, is_backup && self.is_sound) {
            (Some(_), _) => Role::Primary,
            (None, true) => Role::Backup,
            (None, false) => Role::Learner,
        }
    }

    /// Returns whether it would serve, but has not found enough members of its view that are alive
    /// and have their logs ([`Options::members_min`]). It continues when they return.
    pub fn lacks_members(&self) -> bool {
        self.follower.lacks_members
    }

    /// Returns the number of its last record.
    pub fn lsn(&self) -> u64 {
        self.beside.last.lsn
    }

    /// Returns the number of the last record that all replicas of the view are known to have.
    pub fn everywhere_lsn(&self) -> u64 {
        self.primary.as_ref().map_or(self.beside.last.lsn, |primary| self.everywhere(primary))
    }

    /// Returns the bytes of the records that not all replicas of the view have.
    pub fn log_bytes(&self) -> usize {
        self.log.unsettled_bytes()
    }

    /// Returns whether a session is fenced, as far as this replica knows.
    pub fn is_fenced(&self, session: u64) -> bool {
        self.beside.fenced.contains(&session)
    }

    /// Returns its name.
    pub fn id(&self) -> ReplicaId {
        self.me
    }

    /// Returns its memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Removes and returns the pending outputs, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// Moves the replies of this turn that are not among the outputs into `into`, and reuses its
    /// memory.
    pub fn take_answers(&mut self, into: &mut Answers) {
        into.clear();
        std::mem::swap(&mut self.answers, into);
    }

    /// Handles a message from another replica.
    pub fn receive(&mut self, from: ReplicaId, message: Message, now: Duration) {
        match message {
            Message::View(view) => {
                if from == view.primary && self.is_current(view.number) {
                    self.heard = now;
                }
                self.adopt(&view, now);
            }
            Message::Return { view, names } => self.returned(from, view, &names, now),
            Message::Join => self.joined_by(from, now),
            Message::Leave => self.left_by(from),
            Message::Attach { stream, view } => self.attach(stream, &view, now),
            Message::Attached { stream, last } => self.attached(from, stream, last),
            Message::Resume { stream } => self.resume(stream),
            Message::Begin { stream, state } => self.begin(stream, &state),
            Message::Records { stream, records, everywhere } => self.follow(stream, &records, everywhere),
            Message::Copy { stream, number, offset, bytes, content, is_last } => {
                let is_next = number == self.follower.copies && bytes <= self.options.copy_bytes as u64;
                self.copied(stream, is_next, (offset, bytes), content, is_last);
            }
            Message::Lost { stream } if self.is_mine(stream) => self.parted(from),
            Message::Lost { .. } => {}
            Message::Acknowledge { stream, lsn, copies } => {
                self.acknowledged(from, stream, lsn, copies, now);
            }
            Message::Heartbeat { view, sent, everywhere } => {
                self.heartbeat(from, &view, sent, everywhere, now);
            }
            Message::Granted { view, sent } => self.granted(from, view, sent, now),
            Message::Survey { view, last } => self.surveyed_by(from, view, last, now),
            Message::Surveyed { view, last, fits, records } => {
                self.surveyed(from, view, last, fits, &records, now);
            }
        }
    }

    /// Handles a reply of the store.
    pub fn store_replied(&mut self, reply: &StoreReply, now: Duration) {
        self.adopt(&reply.view, now);
    }

    /// Does periodic work. Call it a few times in each lease.
    pub fn tick(&mut self, now: Duration) {
        if let Some(written) = &mut self.written {
            written.tick(now);
        }
        if let Some((view, sent)) = &mut self.proposal
            && now.saturating_sub(*sent) >= self.options.patience / 2
        {
            *sent = now;
            let request = StoreRequest::Set(Arc::clone(view));
            self.out.push(Output::Store(request));
        }
        if self.primary.is_some() {
            self.lead(now);
            self.end_turn(now);
        } else {
            self.watch(now);
        }
    }

    pub(super) fn send(&mut self, to: ReplicaId, message: Message) {
        self.out.push(Output::Send { to, message });
    }

    /// Requests the current view from the store.
    pub(super) fn request_view(&mut self, now: Duration) {
        self.looked = Some(now);
        self.out.push(Output::Store(StoreRequest::Read));
    }

    /// Sends the current view to a replica that uses an older one.
    pub(super) fn correct(&mut self, other: ReplicaId) {
        if let Some(view) = self.view.clone().filter(|_| other != self.me) {
            self.send(other, Message::View(view));
        }
    }

    pub(super) fn is_current(&self, number: u64) -> bool {
        self.view.as_ref().is_some_and(|view| view.number == number)
    }
}
