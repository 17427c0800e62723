//! A memory node that is one replica of a memory group: the driver of the state machine of
//! [`darter_group`].
//!
//! The serving thread executes clients' frames through the state machine, receives other replicas'
//! messages, and at the end of each turn sends the resulting messages and replies. Two kinds of
//! threads do the blocking work: one makes requests to the store of views (`view_keeper.rs`), and
//! one per other replica connects to it (`links.rs`). Both ring a bell that the event loop watches.
//!
//! A replica draws a new random name each time it starts, and starts with zeroed memory or with the
//! state that its log restores (`disk.rs`). The first in the list of replicas founds the group, once
//! it has reached the other future members.

mod disk;
mod links;
mod options;
mod view_keeper;

pub use options::{GroupOptions, Views};

use crate::bell::Bell;
use crate::error::MemNodeError;
use crate::group_metrics::GroupMetrics;
use crate::log_metrics::LogMetrics;
use crate::redo_log::{Journal, OpenLog};
use crate::sessions::Sessions;
use darter_fabric::wire::{self, FrameVerbs, FramedHead, GroupStatus, Secrets};
use darter_fabric::{Local, TcpOptions, lease_clock, random_word};
use darter_group::{
    Answers, FrameId, Logged, Memory, Message, Outcome, Output, Region, Replica, ReplicaId, Request, Role,
    Start, StoreReply, StoreRequest, View,
};
use disk::Disk;
use links::Links;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};
use view_keeper::ViewKeeper;

/// Time without a connection after which a session is fenced. Clients wait for a group much less
/// long.
const ABSENCE: Duration = Duration::from_secs(900);
/// The interval between checks for such sessions.
const ABSENCE_LOOK: Duration = Duration::from_secs(60);
/// The interval between checks of a replica that waits for the group's first view.
const FOUNDING_LOOK: Duration = Duration::from_millis(50);

/// A reply for a client.
#[derive(Debug)]
pub(crate) struct GroupReply {
    /// The key of its connection.
    pub(crate) peer: u64,
    /// The request's id.
    pub(crate) id: u64,
    pub(crate) outcome: Outcome,
}

/// A replica, with its connections to its group.
#[derive(Debug)]
pub(crate) struct Group {
    me: ReplicaId,
    options: GroupOptions,
    /// When it started, by the clock of leases.
    began: Duration,
    /// `None` before the group's first view; its memory is then in `memory`.
    replica: Option<Replica<Region>>,
    memory: Option<Region>,
    /// `None` if it keeps no log.
    disk: Option<Disk>,
    links: Links,
    keeper: ViewKeeper,
    bell: Arc<Bell>,
    next_tick: Instant,
    /// When the store was last requested for the first view.
    looked: Option<Instant>,
    /// The newest connection of each other replica.
    attempts: HashMap<ReplicaId, u32>,
    /// Sessions that have recorded frames and no connection, with the time since when.
    absent: HashMap<u64, Instant>,
    next_absence_look: Instant,
    metrics: Arc<GroupMetrics>,
    /// The view and role last logged.
    told: Option<(u64, Role)>,
    warned: Warned,
}

/// The warnings that were logged and still hold.
#[derive(Debug, Default)]
struct Warned {
    of_views: bool,
    of_members: bool,
}

impl Group {
    /// Starts a replica of a region, with its log if it keeps one. It connects to the others with
    /// these options.
    ///
    /// # Errors
    /// Fails if the system has no thread or descriptor left, the options are invalid, or the log
    /// cannot be written.
    pub(crate) fn start(
        options: GroupOptions,
        memory: &Local,
        log: Option<((OpenLog, Logged), Arc<LogMetrics>)>,
        token: &Secrets,
        metrics: Arc<GroupMetrics>,
    ) -> Result<Self, MemNodeError> {
        options.verify().map_err(|what| MemNodeError::GroupOptions { what })?;
        let me = random_word().max(1);
        let disk = log.map(|(log, metrics)| Disk::start(me, log, memory, metrics)).transpose()?;
        let bell = Arc::new(Bell::new("create a descriptor for the group's threads")?);
        let tcp = TcpOptions { token: token.clone(), tls: options.tls.clone(), ..TcpOptions::default() };
        let links = Links::new(me, options.others(), tcp, Arc::clone(&bell));
        let keeper = ViewKeeper::start(options.views.clone(), Arc::clone(&bell))?;
        let now = Instant::now();
        Ok(Self {
            me,
            options,
            began: lease_clock(),
            replica: None,
            memory: Some(Region::new(memory)?),
            disk,
            links,
            keeper,
            bell,
            next_tick: now,
            looked: None,
            attempts: HashMap::new(),
            absent: HashMap::new(),
            next_absence_look: now + ABSENCE_LOOK,
            metrics,
            told: None,
            warned: Warned::default(),
        })
    }

    /// Returns the descriptor for the event loop to watch: it is readable when a thread of the
    /// group has a result.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.descriptor()
    }

    /// Returns the descriptor that is readable when more of the log is durable.
    pub(crate) fn log_bell(&self) -> Option<BorrowedFd<'_>> {
        self.disk.as_ref().map(Disk::bell)
    }

    /// Returns whether the replica keeps a log.
    pub(crate) fn is_durable(&self) -> bool {
        self.disk.is_some()
    }

    /// Ends the replica. Returns its log.
    pub(crate) fn into_journal(self) -> Option<Journal> {
        self.disk.map(Disk::into_journal)
    }

    /// Returns how long the event loop may sleep.
    pub(crate) fn nap(&self) -> Duration {
        let is_amid = self.links.has_waiting();
        let nap = if is_amid { Duration::from_millis(1) } else { self.tick_interval() };
        self.next_copy().map_or(nap, |due| nap.min(due.saturating_sub(self.clock())))
    }

    /// Returns when to send the next part of its memory to a new replica, if there is one.
    fn next_copy(&self) -> Option<Duration> {
        self.replica.as_ref().and_then(Replica::next_copy)
    }

    fn tick_interval(&self) -> Duration {
        self.options.times.lease / 8
    }

    /// Quiets the bell, before the results are taken.
    pub(crate) fn quiet(&self) {
        self.bell.quiet();
    }

    /// Returns whether a turn without requests has work to end.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let has_copies = || self.next_copy().is_some_and(|due| due <= self.clock());
        self.replica.is_none() || now >= self.next_tick || self.links.is_due(now) || has_copies()
    }

    /// Adds the replica's description to the welcome of a client.
    pub(crate) fn introduce(&self, welcome: &mut wire::Welcome) {
        let view = self.replica.as_ref().and_then(Replica::view);
        welcome.flags |= wire::IS_REPLICA;
        if self.role() == Some(Role::Primary) {
            welcome.flags |= wire::SERVES_GROUP;
        }
        welcome.replica = self.me;
        welcome.view = view.map_or(0, |view| view.number);
        welcome.boot_id = view.map_or(0, |view| view.group);
        welcome.patience_ms = u32::try_from(self.options.times.patience.as_millis()).unwrap_or(u32::MAX);
    }

    fn role(&self) -> Option<Role> {
        self.replica.as_ref().map(Replica::role)
    }

    /// Returns whether the replica serves.
    pub(crate) fn serves(&self) -> bool {
        self.role() == Some(Role::Primary)
    }

    /// Returns whether clients' requests must wait, since other replicas or the disk are too far
    /// behind.
    pub(crate) fn is_full(&self) -> bool {
        if self.disk.as_ref().is_some_and(Disk::is_full) {
            return true;
        }
        let serves = |replica: &&Replica<Region>| replica.role() == Role::Primary;
        let is_full = |replica: &Replica<Region>| replica.log_bytes() > self.options.times.log_bytes_max;
        self.replica.as_ref().filter(serves).is_some_and(is_full)
    }

    /// Returns whether a session is fenced.
    pub(crate) fn is_fenced(&self, session: u64) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.is_fenced(session))
    }

    /// Executes a client's frame; the reply comes at the end of this turn or later. Returns the
    /// outcome if it is known at once.
    pub(crate) fn request(
        &mut self,
        (connection, attempt): (u64, u32),
        frame: FrameId,
        head: FramedHead,
        verbs: FrameVerbs<'_>,
    ) -> Option<Outcome> {
        let Some(replica) = &mut self.replica else { return Some(Outcome::View(None)) };
        let request = Request { connection, attempt: attempt.into(), view: head.view, frame };
        replica.request(&request, verbs);
        None
    }

    /// Replies to a request about sessions after it is certain that this replica served, and after
    /// the sessions fenced for it are fenced on all replicas. Returns the outcome if it is known at
    /// once.
    pub(crate) fn settle(
        &mut self,
        connection: u64,
        frame: FrameId,
        fenced: impl IntoIterator<Item = u64>,
    ) -> Option<Outcome> {
        let Some(replica) = &mut self.replica else { return Some(Outcome::View(None)) };
        let view = replica.view().map_or(0, |view| view.number);
        let request = Request { connection, attempt: 0, view, frame };
        match fenced.into_iter().next() {
            // A request fences one session at most.
            Some(session) => replica.fence(&request, session),
            _ => replica.confirm(&request),
        }
        None
    }

    /// Processes a message of another replica, received on the sender's `attempt`-th connection.
    /// Returns whether the connection is the newest.
    pub(crate) fn receive(&mut self, from: ReplicaId, attempt: u32, message: Message) -> bool {
        let newest = self.attempts.entry(from).or_default();
        if attempt < *newest {
            return false;
        }
        *newest = attempt;
        let now = self.clock();
        if let Message::View(view) | Message::Attach { view, .. } | Message::Heartbeat { view, .. } = &message
        {
            // The store has the view by now.
            self.begin(view);
        }
        if let Some(replica) = &mut self.replica {
            replica.receive(from, message, now);
        }
        true
    }

    /// Handles the end of a client's connection.
    pub(crate) fn disconnected(&mut self, connection: u64) {
        if let Some(replica) = &mut self.replica {
            replica.disconnected(connection);
        }
    }

    /// Hands over to a replica, if this one serves and that one is a backup. Returns whether it
    /// does.
    pub(crate) fn hand_over(&mut self, to: ReplicaId) -> bool {
        let now = self.clock();
        self.replica.as_mut().is_some_and(|replica| replica.hand_over(to, now))
    }

    /// Leaves the view, since the node is about to stop. Returns whether that takes longer.
    pub(crate) fn leave(&mut self) -> bool {
        let now = self.clock();
        self.replica.as_mut().is_some_and(|replica| replica.leave(now))
    }

    /// Returns the state of the replica and its group, as a reply's payload.
    pub(crate) fn status(&self) -> Vec<u8> {
        let replica = self.replica.as_ref();
        let view = replica.and_then(Replica::view);
        let status = GroupStatus {
            replica: self.me,
            view: view.map_or(0, |view| view.number),
            primary: view.map_or(0, |view| view.primary),
            role: self.role().map_or(2, |role| role as u64),
            lsn: replica.map_or(0, Replica::lsn),
            everywhere: replica.map_or(0, Replica::everywhere_lsn),
            held: replica.map_or(0, |replica| replica.held_replies() as u64),
            log_bytes: replica.map_or(0, |replica| replica.log_bytes() as u64),
        };
        wire::as_bytes(&status).to_vec()
    }

    /// Returns the digest of a part of its region, if it is a member and there is such a part.
    pub(crate) fn digest(&self, offset: u64) -> Option<wire::Digest> {
        let replica = self.replica.as_ref().filter(|replica| replica.role() != Role::Learner)?;
        let memory = replica.memory();
        let bytes = memory.bytes().checked_sub(offset)?.min(wire::DIGEST_BYTES);
        if !offset.is_multiple_of(wire::DIGEST_BYTES) {
            return None;
        }
        let mut part = vec![0; bytes as usize];
        memory.copy(offset, &mut part);
        Some(wire::Digest { lsn: replica.lsn(), digest: crc32fast::hash(&part).into() })
    }

    /// Ends a turn: does the work that is due, and sends the results. Returns the replies for
    /// clients; most of them are in `answers`.
    pub(crate) fn end_turn(&mut self, sessions: &Sessions, answers: &mut Answers) -> Vec<GroupReply> {
        let now = Instant::now();
        self.take_views();
        for lost in self.links.turn(now) {
            if let Some(replica) = &mut self.replica {
                replica.parted(lost);
            }
        }
        if self.replica.is_none() {
            self.found(now);
        }
        let is_due = now >= self.next_tick;
        if is_due {
            self.next_tick = now + self.tick_interval();
            self.search_absent(now, sessions);
        }
        // Read after the execution of all frames of the turn.
        let clock = self.clock();
        let Some(replica) = &mut self.replica else { return Vec::new() };
        if let Some(disk) = &mut self.disk {
            disk.begin_turn(replica);
        }
        if is_due {
            replica.tick(clock);
        }
        replica.end_turn(clock);
        replica.take_answers(answers);
        let mut replies = Vec::new();
        for output in replica.take_outputs() {
            match output {
                Output::Reply { connection, id, outcome } => {
                    replies.push(GroupReply { peer: connection, id, outcome });
                }
                Output::Send { to, message } => {
                    if !self.links.send(to, &message)
                        && let Some(replica) = &mut self.replica
                    {
                        replica.parted(to);
                    }
                }
                Output::SendAll(message) => self.links.send_all(&message),
                Output::Log(entry) => self.disk.iter_mut().for_each(|disk| disk.add(&entry)),
                Output::Store(request) => self.keeper.ask(request),
            }
        }
        if let (Some(disk), Some(replica)) = (&mut self.disk, &self.replica) {
            disk.end_turn(now, replica);
        }
        for lost in self.links.flush() {
            if let Some(replica) = &mut self.replica {
                replica.parted(lost);
            }
        }
        self.tell(now);
        replies
    }

    /// Returns the time by which leases are granted and end. A primary that was suspended must
    /// notice that its lease is over.
    fn clock(&self) -> Duration {
        lease_clock().saturating_sub(self.began)
    }

    /// Processes the replies of the store.
    fn take_views(&mut self) {
        for answer in self.keeper.answers() {
            match answer {
                Ok(Some(reply)) => match &mut self.replica {
                    Some(replica) => replica.store_replied(&reply, lease_clock().saturating_sub(self.began)),
                    None => self.begin(&reply.view),
                },
                // There is no view yet.
                Ok(None) => self.warn_of_lost_views(),
                Err(why) => {
                    self.metrics.store_errors.add(1);
                    warn!(%why, "a request to the store of views failed; the group goes on without it");
                }
            }
        }
    }

    /// Warns once if the store has no view, although there is a log of a member.
    fn warn_of_lost_views(&mut self) {
        let has_log = self.disk.as_ref().is_some_and(|disk| !disk.is_new());
        if has_log && !std::mem::replace(&mut self.warned.of_views, true) {
            warn!(
                "the store of views has no view of this group, although the log is that of a member; waits for it: \
                 restore the store of views, or move the logs of all replicas away and restore a backup"
            );
        }
    }

    /// Warns once if too few members are left to serve.
    fn warn_of_lost_members(&mut self) {
        let lacks_members = self.replica.as_ref().is_some_and(Replica::lacks_members);
        if lacks_members && !std::mem::replace(&mut self.warned.of_members, true) {
            warn!(
                members_min = self.options.times.members_min,
                "too few members of the group's last view are there with their logs; waits for the others: start \
                 them, or, if their logs are damaged or lost for good, restart this replica with --members-min 1 \
                 until the others have copied its memory"
            );
        }
        self.warned.of_members &= lacks_members;
    }

    /// Requests to create the group's first view, or to read it if it exists by now.
    fn found(&mut self, now: Instant) {
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < FOUNDING_LOOK) {
            return;
        }
        let is_first_look = self.looked.replace(now).is_none();
        let is_new = self.disk.as_ref().is_none_or(Disk::is_new);
        if is_first_look && !is_new {
            info!("the log is that of a member of a group; waits for the group's view from the store");
        }
        let others = self.links.first_reached(self.options.members() - 1);
        let others = others.filter(|_| self.options.is_founder() && is_new);
        self.keeper.ask(match others {
            Some(others) => StoreRequest::Set(Arc::new(View::bootstrap(self.me, others))),
            None => StoreRequest::Read,
        });
    }

    /// Starts with the first view that it receives. Its memory is unchanged, so it is a sound
    /// member of the group's first view if it is named in it.
    fn begin(&mut self, view: &Arc<View>) {
        let Some(memory) = self.memory.take() else { return };
        let now = self.clock();
        let is_bootstrap = view.number == 1 && view.members().any(|id| id == self.me);
        let logged = self.disk.as_mut().and_then(Disk::take_restored);
        let start = match logged {
            Some(logged) => Start::Logged(Box::new(logged)),
            None if is_bootstrap => Start::Bootstrap(Arc::clone(view)),
            None => Start::Empty,
        };
        let knows_view = matches!(start, Start::Bootstrap(_));
        let mut replica = Replica::new(self.me, self.options.times.clone(), memory, start, now);
        if !knows_view {
            replica.store_replied(&StoreReply { view: Arc::clone(view) }, now);
        }
        self.replica = Some(replica);
    }

    /// Fences sessions that have had no connection for very long, so that their frames need not be
    /// remembered any longer.
    fn search_absent(&mut self, now: Instant, sessions: &Sessions) {
        if now < self.next_absence_look {
            return;
        }
        self.next_absence_look = now + ABSENCE_LOOK;
        let Some(replica) = self.replica.as_mut().filter(|replica| replica.role() == Role::Primary) else {
            return self.absent.clear();
        };
        let known = replica.sessions();
        self.absent.retain(|session, _| known.contains(session) && !sessions.is_connected(*session));
        for session in known.into_iter().filter(|&session| !sessions.is_connected(session)) {
            let since = *self.absent.entry(session).or_insert(now);
            if now.saturating_duration_since(since) >= ABSENCE {
                replica.shut_out(session);
            }
        }
    }

    /// Updates the metrics, and logs changes.
    fn tell(&mut self, now: Instant) {
        self.warn_of_lost_members();
        let Some(replica) = &self.replica else { return };
        let (view, role) = (replica.view().map_or(0, |view| view.number), replica.role());
        self.metrics.note(view, role, replica);
        if self.told == Some((view, role)) {
            return;
        }
        let served = self.told.is_some_and(|(_, role)| role == Role::Primary);
        if role == Role::Primary && !served {
            self.metrics.began_to_serve(view, now);
        }
        self.told = Some((view, role));
        let primary = replica.view().map_or(0, |view| view.primary);
        let backups = replica.view().map_or(0, |view| view.backups.len());
        let me = format_args!("{:#x}", self.me);
        match role {
            Role::Primary => info!(view, replica = me, backups, "serves the group"),
            Role::Backup => info!(view, replica = me, primary = format_args!("{primary:#x}"), "is a backup"),
            Role::Learner => {
                info!(
                    view,
                    replica = me,
                    primary = format_args!("{primary:#x}"),
                    "is not a member yet, and copies the region"
                );
            }
        }
    }
}
