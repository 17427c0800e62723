//! Hand-made situations that random seeds rarely reach.

use crate::REGION_BYTES;
use darter_fabric::wire::{self, FrameVerbs};
use darter_fabric::{Batch, GlobalAddr};
use darter_group::{
    Answers, FrameId, Logged, Memory, Message, Options, Outcome, Output, ReplicaId, Request, Role, Start,
    StoreReply, StoreRequest, View,
};
use darter_sim::groups::Life;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Replicas whose messages are delivered at once, unless a direction is held.
struct Group {
    lives: Vec<Life>,
    now: Duration,
    store: Arc<View>,
    wires: BTreeMap<(ReplicaId, ReplicaId), VecDeque<Message>>,
    /// Directions that deliver only this number of further messages.
    held: BTreeMap<(ReplicaId, ReplicaId), usize>,
    dead: BTreeSet<ReplicaId>,
    /// Replicas that do no periodic work.
    quiet: BTreeSet<ReplicaId>,
    replies: Vec<(u64, Outcome)>,
    /// The number of the channel's connection that frames arrive on.
    attempt: u64,
}

impl Group {
    fn new(replicas: u64) -> Self {
        Self::with(replicas, 0, &Options::default())
    }

    /// Creates a group of members, and replicas that have nothing.
    fn with(members: u64, others: u64, options: &Options) -> Self {
        let mut group = Self::before(members, others, options);
        group.pass(0);
        group
    }

    /// Like [`Group::with`], before any replica has done anything.
    fn before(members: u64, others: u64, options: &Options) -> Self {
        let store = Arc::new(View::bootstrap(0, 1..members));
        let now = Duration::from_secs(1);
        let live = |id| {
            let start = if id < members { Start::Bootstrap(Arc::clone(&store)) } else { Start::Empty };
            Life::new(id, (options.clone(), REGION_BYTES), start, None, now)
        };
        let lives = (0..members + others).map(live).collect();
        let (wires, held, dead) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let quiet = BTreeSet::new();
        Self { lives, now, store, wires, held, dead, quiet, replies: Vec::new(), attempt: 1 }
    }

    /// Starts replica 1 of two again, as replica 2, with an empty log.
    fn restart_with_log(&mut self) {
        self.dead.insert(1);
        let mut logged = Logged::default();
        logged.rename(1);
        logged.rename(2);
        let start = Start::Logged(Box::new(logged));
        let memory = vec![0; REGION_BYTES];
        self.lives.push(Life::new(2, (Options::default(), REGION_BYTES), start, Some(&memory), self.now));
    }

    /// Lets this number of tenths of a second pass.
    fn pass(&mut self, tenths: u32) {
        for _ in 0..=tenths {
            for at in 0..self.lives.len() {
                let id = at as u64;
                if !self.dead.contains(&id) && !self.quiet.contains(&id) {
                    self.lives[at].replica.tick(self.now);
                }
            }
            self.settle();
            self.now += Duration::from_millis(100);
        }
    }

    /// Delivers all messages that may be delivered.
    fn settle(&mut self) {
        loop {
            for at in 0..self.lives.len() {
                self.collect(at);
            }
            let open = |key: &&(ReplicaId, ReplicaId)| {
                !self.wires[*key].is_empty() && self.held.get(*key).is_none_or(|left| *left > 0)
            };
            let Some(&(from, to)) = self.wires.keys().find(open) else { return };
            let message = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front).unwrap();
            self.held.entry((from, to)).and_modify(|left| *left -= 1);
            if !self.dead.contains(&to) {
                let replica = &mut self.lives[to as usize].replica;
                replica.receive(from, message, self.now);
                replica.end_turn(self.now);
            }
        }
    }

    fn collect(&mut self, at: usize) {
        let id = at as u64;
        let mut answers = Answers::default();
        self.lives[at].replica.take_answers(&mut answers);
        if !self.dead.contains(&id) {
            let done = |words: &[u8]| Outcome::Done(words.into());
            self.replies.extend(answers.iter().map(|(connection, _, words)| (connection, done(words))));
        }
        for output in self.lives[at].replica.take_outputs() {
            match output {
                _ if self.dead.contains(&id) => {}
                Output::Send { to, message } => self.wires.entry((id, to)).or_default().push_back(message),
                Output::Reply { connection, outcome, .. } => self.replies.push((connection, outcome)),
                Output::SendAll(message) => {
                    for to in (0..self.lives.len() as u64).filter(|&to| to != id) {
                        self.wires.entry((id, to)).or_default().push_back(message.clone());
                    }
                }
                // The disk is fast.
                Output::Log(_) => self.lives[at].replica.logged(u64::MAX),
                Output::Store(request) => {
                    if let StoreRequest::Set(view) = request
                        && view.number == self.store.number + 1
                    {
                        self.store = view;
                    }
                    let reply = StoreReply { view: Arc::clone(&self.store) };
                    self.lives[at].replica.store_replied(&reply, self.now);
                }
            }
        }
    }

    /// Gives a replica a frame, in its own turn.
    fn request(&mut self, to: usize, view: u64, id: u64, fill: impl FnOnce(&mut Batch)) {
        self.request_amid(to, view, id, fill);
        self.lives[to].replica.end_turn(self.now);
        self.settle();
    }

    /// Gives a replica a frame without ending the turn.
    fn request_amid(&mut self, to: usize, view: u64, id: u64, fill: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new();
        fill(&mut batch);
        let mut payload = Vec::new();
        let (verbs, data) = batch.parts_mut();
        for verb in verbs {
            wire::put_verb(&mut payload, verb, data);
        }
        let frame = FrameId { session: 1, channel: 0, id, answered: 0 };
        let request = Request { connection: id, attempt: self.attempt, view, frame };
        let verbs = FrameVerbs::new(&payload, verbs.len() as u16, wire::FRAME_BYTES_MAX).unwrap();
        self.lives[to].replica.request(&request, verbs);
    }

    fn reply(&self, id: u64) -> Option<&Outcome> {
        self.replies.iter().find(|(connection, _)| *connection == id).map(|(_, outcome)| outcome)
    }
}

fn word() -> GlobalAddr {
    GlobalAddr::new(0, 64)
}

fn content(life: &Life) -> Vec<u8> {
    let mut content = vec![0; REGION_BYTES];
    life.replica.memory().copy(0, &mut content);
    content
}

fn done(word: u64) -> Outcome {
    Outcome::Done(word.to_le_bytes().into())
}

#[test]
fn a_new_primary_shows_nothing_that_a_backup_lacks() {
    let mut group = Group::new(3);
    // Replica 2 is cut off from the records; replica 1 has them and is surveyed for the next view.
    group.held.insert((0, 2), 0);
    group.request(0, 1, 1, |batch| batch.write(word(), &[7]));
    assert_eq!(group.reply(1), None, "a backup lacks the record");
    group.dead.insert(0);
    group.quiet.insert(2);
    // Replica 2 receives a survey, a stream and a heartbeat, but no record.
    group.held.insert((1, 2), 3);
    for _ in 0..15 {
        if group.lives[1].replica.role() != Role::Primary {
            group.pass(0);
        }
    }
    assert_eq!((group.store.primary, group.lives[1].replica.role()), (1, Role::Primary));
    assert_eq!((group.lives[1].replica.lsn(), group.lives[2].replica.lsn()), (1, 0));
    group.request(1, 2, 2, |batch| _ = batch.read(word(), 1));
    assert_eq!(group.reply(2), None, "replica 2 may be the next primary, and lacks the record");
    group.held.clear();
    group.quiet.clear();
    group.pass(3);
    assert_eq!(group.reply(2), Some(&done(7)));
}

#[test]
fn a_frame_of_another_view_is_void() {
    let mut group = Group::new(2);
    let fill = |batch: &mut Batch| _ = batch.cas(word(), 5, 6);
    group.request(0, 1, 1, fill);
    assert_eq!(group.reply(1), Some(&done(0)), "it swaps nothing, so no replica records it");
    for (from, to) in [(0, 1), (1, 0)] {
        assert!(group.lives[from].replica.hand_over(to, group.now));
        group.pass(3);
        assert_eq!(group.store.primary, to);
    }
    group.request(0, 3, 2, |batch| batch.write(word(), &[5]));
    // The same frame has been delayed in another connection for all that time.
    group.replies.clear();
    group.request(0, 1, 1, fill);
    assert_eq!(group.reply(1), Some(&Outcome::View(Some(Arc::clone(&group.store)))));
    group.request(0, 3, 3, |batch| _ = batch.read(word(), 1));
    group.pass(3);
    assert_eq!(group.reply(3), Some(&done(5)));
}

#[test]
fn a_frame_of_an_older_connection_is_void() {
    let mut group = Group::new(2);
    let fill = |batch: &mut Batch| _ = batch.cas(word(), 5, 6);
    // The frame is still in flight when the channel's next connection delivers it again.
    group.attempt = 2;
    group.request(0, 1, 1, fill);
    assert_eq!(group.reply(1), Some(&done(0)), "it swaps nothing, so no replica records it");
    group.request(0, 1, 2, |batch| batch.write(word(), &[5]));
    group.replies.clear();
    group.attempt = 1;
    group.request(0, 1, 1, fill);
    assert_eq!(group.reply(1), None);
    group.attempt = 2;
    group.request(0, 1, 3, |batch| _ = batch.read(word(), 1));
    assert_eq!(group.reply(3), Some(&done(5)));
}

#[test]
fn a_lease_covers_what_was_executed_before_it_was_granted() {
    let mut group = Group::new(2);
    group.held.insert((1, 0), 0);
    group.pass(7);
    group.request(0, 1, 1, |batch| _ = batch.read(word(), 1));
    assert_eq!(group.reply(1), None, "the lease is over");
    group.held.clear();
    group.pass(2);
    assert_eq!(group.reply(1), Some(&done(0)));
}

#[test]
fn a_lease_counts_from_the_sending_of_the_heartbeat() {
    let mut group = Group::new(2);
    group.pass(2);
    group.held.insert((1, 0), 0);
    group.pass(6);
    // The first of the grants in flight arrives, seven tenths of a second late.
    group.held.insert((1, 0), 1);
    group.pass(1);
    group.request(0, 1, 1, |batch| _ = batch.read(word(), 1));
    assert_eq!(group.reply(1), None, "the backup may be the primary by now");
}

#[test]
fn a_replica_that_returns_with_its_log_keeps_its_promise() {
    let mut group = Group::new(2);
    group.pass(2);
    // Replica 1 has granted a lease. It restarts as replica 2, which hears nothing of the primary.
    group.quiet.insert(0);
    group.held.extend([((0, 2), 0), ((2, 0), 0)]);
    group.restart_with_log();
    group.pass(15);
    assert_eq!(group.store.number, 1, "the primary may still serve");
    group.pass(10);
    assert_eq!((group.store.primary, group.lives[2].replica.role()), (2, Role::Primary));
}

#[test]
fn a_replica_that_returns_with_its_log_catches_up_by_records() {
    let mut group = Group::new(2);
    group.request(0, 1, 1, |batch| batch.write(word(), &[5]));
    group.restart_with_log();
    // It lacks the record, and takes its own place before the primary misses it.
    group.pass(7);
    assert_eq!(group.store.members().collect::<Vec<_>>(), [0, 2]);
    let replica = &group.lives[2].replica;
    assert_eq!((replica.role(), replica.lsn()), (Role::Backup, 1));
    assert_eq!(content(&group.lives[2]), content(&group.lives[0]));
    group.request(0, 2, 2, |batch| _ = batch.read(word(), 1));
    group.pass(2);
    assert_eq!(group.reply(2), Some(&done(5)));
}

#[test]
fn with_too_few_members_nothing_is_acknowledged() {
    let options = Options { members_min: 2, ..Options::default() };
    let mut group = Group::with(3, 0, &options);
    group.dead.insert(2);
    group.pass(20);
    assert_eq!(group.store.members().collect::<Vec<_>>(), [0, 1], "two are enough");
    group.request(0, 2, 1, |batch| batch.write(word(), &[5]));
    assert_eq!(group.reply(1), Some(&Outcome::Done([].into())));
    group.dead.insert(1);
    group.pass(50);
    assert_eq!(group.store.members().collect::<Vec<_>>(), [0, 1], "one is not");
    group.request(0, 2, 2, |batch| batch.write(word(), &[6]));
    group.pass(50);
    assert_eq!(group.reply(2), None);
}

#[test]
fn a_spare_stands_by_until_a_member_is_lost() {
    let options = Options { members_max: 2, ..Options::default() };
    let mut group = Group::with(2, 1, &options);
    group.request(0, 1, 1, |batch| batch.write(word(), &[5]));
    group.pass(50);
    assert_eq!(group.store.members().collect::<Vec<_>>(), [0, 1], "no member is missing");
    group.dead.insert(1);
    group.pass(50);
    assert_eq!(group.store.members().collect::<Vec<_>>(), [0, 2]);
    group.dead.insert(0);
    group.pass(50);
    assert_eq!(group.store.primary, 2);
    group.request(2, group.store.number, 2, |batch| _ = batch.read(word(), 1));
    assert_eq!(group.reply(2), Some(&done(5)));
}

#[test]
fn a_copy_takes_as_long_as_its_rate_wants() {
    let options = Options { copy_bytes: 256, copy_rate: REGION_BYTES as u64 / 4, ..Options::default() };
    let mut group = Group::with(2, 1, &options);
    group.pass(30);
    assert_eq!(group.store.members().count(), 2, "a region takes four seconds");
    group.pass(20);
    assert_eq!(group.store.members().count(), 3);
}

#[test]
fn a_learner_is_heard_of_at_the_lowest_rate() {
    let options = Options { copy_bytes: 512, copy_rate: 1, ..Options::default() };
    let mut group = Group::with(2, 1, &options);
    group.pass(40);
    assert_eq!(group.store.members().count(), 3, "eight parts, and four in a second");
}

#[test]
fn a_turn_sends_a_few_parts_and_the_next_one_goes_on() {
    let options = Options { copy_bytes: 256, copies_under_way: 6, copies_a_turn: 2, ..Options::default() };
    let mut group = Group::before(1, 1, &options);
    // It requests to join and reports that it has no log. Its acknowledgements never arrive.
    group.held.insert((1, 0), 2);
    let mut parts = || {
        group.pass(0);
        group.wires.get(&(1, 0)).map_or(0, VecDeque::len)
    };
    let sent: Vec<_> = (0..7).map(|_| parts()).collect();
    assert_eq!(sent, [0, 0, 2, 4, 6, 6, 6]);
}

#[test]
fn a_read_waits_for_the_learner_that_is_awaited_at_the_end_of_its_turn() {
    let options = Options { copy_bytes: 256, copies_under_way: 99, copies_a_turn: 99, ..Options::default() };
    let mut group = Group::before(1, 1, &options);
    // Replica 1 requests to join, reports that it has no log, and has taken all parts before 0
    // receives anything from it.
    group.held.insert((1, 0), 2);
    group.pass(2);
    group.held.insert((0, 1), 0);
    group.held.remove(&(1, 0));
    group.settle();
    // In one turn the primary, alone, writes and reads, and then awaits replica 1. A heartbeat
    // reaches replica 1, which grants a lease, but no record does.
    group.now += options.lease / 4;
    group.held.insert((0, 1), 1);
    group.request_amid(0, 1, 1, |batch| batch.write(word(), &[7]));
    group.request_amid(0, 1, 2, |batch| _ = batch.read(word(), 1));
    group.lives[0].replica.tick(group.now);
    group.lives[0].replica.end_turn(group.now);
    group.settle();
    assert_eq!(
        (group.reply(1), group.reply(2)),
        (None, None),
        "replica 1 lacks the record that they depend on"
    );
    group.held.clear();
    group.pass(3);
    assert_eq!((group.store.members().count(), group.reply(2)), (2, Some(&done(7))));
}

#[test]
fn a_frame_outside_the_region_changes_nothing() {
    let mut group = Group::new(2);
    group.request(0, 1, 1, |batch| {
        batch.write(word(), &[7]);
        batch.write(GlobalAddr::new(0, 1 << 30), &[7]);
    });
    assert_eq!(group.reply(1), Some(&Outcome::OutOfBounds));
    group.request(0, 1, 2, |batch| _ = batch.read(word(), 1));
    assert_eq!(group.reply(2), Some(&done(0)));
}

#[test]
fn a_session_that_has_left_is_shut_out_everywhere() {
    let mut group = Group::new(2);
    group.request(0, 1, 1, |batch| batch.write(word(), &[7]));
    assert_eq!(group.lives[0].replica.sessions(), BTreeSet::from([1]));
    group.lives[0].replica.shut_out(1);
    group.pass(1);
    assert_eq!(group.lives[1].replica.lsn(), 2);
    assert!(group.lives[0].replica.hand_over(1, group.now));
    group.pass(3);
    // Its frames are no longer recorded, and none of them is executed again.
    assert!(group.lives[1].replica.sessions().is_empty() && group.lives[1].replica.is_fenced(1));
    group.replies.clear();
    group.request(1, 2, 1, |batch| batch.write(word(), &[8]));
    group.pass(2);
    assert_eq!((group.reply(1), group.lives[1].replica.lsn()), (Some(&Outcome::Fenced), 2));
}

#[test]
fn a_primary_confirms_that_it_serves_when_a_lease_covers_it() {
    let mut group = Group::new(2);
    let frame = FrameId { session: 1, channel: 0, id: 9, answered: 0 };
    let request = Request { connection: 9, attempt: 1, view: 1, frame };
    group.pass(2);
    group.held.insert((1, 0), 0);
    group.pass(6);
    group.lives[0].replica.confirm(&request);
    group.pass(0);
    assert_eq!(group.reply(9), None, "another replica may serve by now");
    group.held.clear();
    group.pass(2);
    assert_eq!(group.reply(9), Some(&Outcome::Done([].into())));
}

#[test]
fn a_replica_that_leaves_is_not_missed_first() {
    let mut group = Group::new(3);
    group.pass(2);
    // The primary hands over and then, as a backup, requests a view without itself.
    for _ in 0..4 {
        let now = group.now;
        group.lives[0].replica.leave(now);
        group.pass(0);
    }
    assert!(!group.lives[0].replica.leave(group.now));
    assert_eq!((group.store.number, group.store.primary, group.store.backups.len()), (3, 1, 1));
    group.dead.insert(0);
    group.pass(0);
    group.request(1, 3, 1, |batch| _ = batch.read(word(), 1));
    group.pass(2);
    assert_eq!(group.reply(1), Some(&done(0)));
}

#[test]
fn a_channel_with_too_much_under_way_gets_its_replies_first() {
    let mut group = Group::new(2);
    let frames_max = Options::default().channel_frames_max as u64;
    for id in 1..=frames_max {
        group.request(0, 1, id, |batch| batch.write(word(), &[id]));
    }
    group.replies.clear();
    group.held.insert((1, 0), 0);
    // The client has none of the replies, and sends one more request.
    group.request(0, 1, frames_max, |batch| batch.write(word(), &[frames_max]));
    group.request(0, 1, frames_max + 1, |batch| batch.write(word(), &[0]));
    let outcomes: Vec<_> = group.replies.iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, [&Outcome::Done([].into()), &Outcome::Later]);
}

#[test]
fn a_reply_waits_for_no_other() {
    let mut group = Group::new(2);
    group.pass(2);
    group.held.insert((0, 1), 0);
    group.request(0, 1, 1, |batch| batch.write(word(), &[7]));
    group.request(0, 1, 2, |batch| _ = batch.read(GlobalAddr::new(0, 640), 1));
    assert_eq!((group.reply(1), group.reply(2)), (None, Some(&done(0))));
}

#[test]
fn a_frame_that_is_sent_again_shows_what_it_showed() {
    let mut group = Group::new(2);
    let fill = |batch: &mut Batch| {
        _ = batch.read(word(), 1);
        _ = batch.faa(word(), 2);
    };
    group.request(0, 1, 1, fill);
    assert!(group.lives[0].replica.hand_over(1, group.now));
    group.pass(3);
    group.replies.clear();
    group.request(1, 2, 1, fill);
    assert_eq!(group.reply(1), Some(&Outcome::Done([0; 16].into())));
    assert_eq!(group.lives[1].replica.lsn(), 1);
}
