//! Tests of races among pins, limbo and upkeep, with schedules driven by hand.

use darter_fabric::decorate::Delaying;
use darter_fabric::{Batch, GlobalAddr, OpKind, block_on};
use darter_sim::Sim;
use darter_sim::{Executor, WordOrder};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::limbo::{Limbo, Ring, Unlinked};
use crate::blocks::{AllocKind, BlockState, BlockWord, Layout, Object, class_of};
use crate::fixtures::{create, is_pending_after, maintain, open, options, poll, slow, word_at};
use crate::members::{MemberLine, MemberTable, Roster};
use crate::region::EPOCH_AT;
use crate::sync::lock;
use crate::{Client, Extension, Pool, PoolError, Room};

const NEVER: u64 = u64::MAX;

fn line() -> MemberLine {
    MemberLine {
        live: true,
        incarnation: 1,
        published: 9,
        flushed: 9,
        heartbeat: 0,
        pid: 0,
        has_garbage: false,
        wants_room: false,
        holder: 0,
        nodes: 1,
        followed: 1,
    }
}

#[test]
fn the_oldest_in_a_ring_counts() {
    let (limbo, ring) = (Limbo::new(), Mutex::new(Ring::default()));
    let object = |offset| Object::new(GlobalAddr::new(0, offset), 5);
    limbo.retire(&ring, object(64), 3);
    limbo.retire(&ring, object(128), 9);
    assert_eq!(Limbo::oldest_in(&ring), 3);
    // It moves from the ring to limbo after the first read of limbo and before the read of the
    // ring.
    let between = || {
        limbo.collect(&ring);
        Limbo::oldest_in(&ring)
    };
    assert_eq!(limbo.oldest(between), 3);
}

#[test]
fn what_is_retired_while_something_is_in_hand_is_as_old() {
    let (limbo, ring) = (Limbo::new(), Mutex::new(Ring::default()));
    let addr = GlobalAddr::new(0, 4096);
    let kind = AllocKind::Inner;
    limbo.unlink(&ring, Unlinked { addr, bytes: 80, kind, note: [].into(), born: 3, hand: None });
    limbo.stamp(limbo.mark(), 3, drop);
    limbo.ripen(5, drop, |_| Vec::new());
    let taken = limbo.take_graced(&ring);
    assert_eq!(taken.len(), 1);
    limbo.retire(&ring, Object::new(addr, 5), 9);
    drop(taken);
    assert!(Limbo::settle_hand(&ring));
    limbo.collect(&ring);
    assert_eq!(limbo.oldest(|| NEVER), 3);
}

#[test]
fn what_is_unlinked_was_born_when_its_operation_began() {
    let pool = create(&Sim::new(1, 2 << 20));
    let mut client = pool.client().unwrap();
    let addr = block_on(client.alloc(0, 64, AllocKind::Leaf)).unwrap();
    let mut pinned = block_on(client.pin(OpKind::Delete)).unwrap();
    let epoch = pinned.epoch();
    pool.process.reclamation.clients.observe(epoch + 1);
    pinned.retire(addr, 64, AllocKind::Leaf);
    let oldest =
        pool.process.reclamation.clients.all().iter().map(|client| Limbo::oldest_in(&client.ring)).min();
    assert_eq!(oldest, Some(epoch));
    drop(pinned);
    drop(client);
    pool.abandon();
}

#[test]
fn a_pin_holds_back_what_counts_as_flushed() {
    let pool = create(&Sim::new(1, 2 << 20));
    let mut client = pool.client().unwrap();
    let _moving = pool.process.reclamation.demand_epochs();
    let pinned = block_on(client.pin(OpKind::Get)).unwrap();
    maintain(&pool, 4);
    assert_eq!(pool.epoch(), pinned.epoch() + 1);
    assert_eq!(pool.process.reclamation.flushed(), pinned.epoch());
}

#[test]
fn a_sweep_waits_until_all_have_flushed_its_epoch() {
    let pool = create(&Sim::new(1, 2 << 20));
    let reclamation = &pool.process.reclamation;
    let table = |published, flushed| MemberTable {
        epoch: 9,
        nodes: 1,
        roster: Roster { count: 1, leaving: None, changes: 0 },
        snapshot: 0,
        lines: vec![line(), MemberLine { published, flushed, ..line() }],
    };
    let own = reclamation.flushed();
    assert_eq!(
        reclamation.late(&table(own + 1, own), 0, own),
        [0, 1],
        "neither has flushed the epoch itself"
    );
    assert_eq!(reclamation.late(&table(own + 1, own + 1), 0, own), [0], "this process has not");
}

#[test]
fn frees_that_may_land_late_hold_sweeps_back() {
    let mut met = false;
    for (rounds, polls) in (1..8).flat_map(|rounds| (1..6).map(move |polls| (rounds, polls))) {
        let sim = Sim::new(1, 4 << 20);
        let owner = create(&sim);
        let addr = block_on(owner.client().unwrap().alloc(0, 64, AllocKind::Leaf)).unwrap();
        let other: Pool<Delaying<Sim>> = block_on(Pool::open(slow(&sim, 1))).unwrap();
        let mut client = other.client().unwrap();
        let process = &other.process;
        let mut pinned = block_on(client.pin(OpKind::Delete)).unwrap();
        let born = pinned.epoch();
        pinned.retire(addr, 64, AllocKind::Leaf);
        drop(pinned);
        for _ in 0..rounds {
            maintain(&owner, 1);
            block_on(other.maintain(&mut client)).unwrap();
        }
        let is_cut = is_pending_after(pin!(other.maintain(&mut client)), polls);
        let (word, bit) = process.blocks.layout().freed_bit(addr, class_of(64).unwrap()).unwrap();
        if is_cut && other.garbage() == 0 && word_at(&sim, word) & bit == 0 {
            met = true;
            assert!(process.reclamation.stuck() <= born, "{rounds} rounds and {polls} polls");
        }
        other.abandon();
        owner.abandon();
    }
    assert!(met, "no round was cut short before its frees landed");
}

#[test]
fn joining_member_lags_at_most_one_epoch() {
    for polls in 0.. {
        let sim = Sim::new(1, 4 << 20);
        let one = create(&sim);
        let moving = one.process.reclamation.demand_epochs();
        let mut opening = pin!(Pool::open(slow(&sim, 1)));
        if !is_pending_after(opening.as_mut(), polls) {
            assert!(polls > 3, "a process joins in several round trips");
            drop(moving);
            break;
        }
        maintain(&one, 5);
        let two = block_on(opening).unwrap();
        let client = two.client().unwrap();
        maintain(&one, 5);
        assert!(word_at(&sim, GlobalAddr::new(0, EPOCH_AT)) <= client.epoch() + 1, "after {polls} polls");
        drop(client);
        drop(moving);
        two.abandon();
        one.abandon();
    }
}

/// Another process joins, pins and advances the epoch between the verbs by which a round reads the
/// epoch and the lines.
#[test]
fn member_that_joins_within_a_round_holds_the_epoch() {
    for verbs in 0..3 {
        let sim = Sim::new(1, 4 << 20);
        let one = create(&sim);
        maintain(&one, 1);
        let moving = one.process.reclamation.demand_epochs();
        let mut executor = Executor::new(&sim);
        let (pool, mut client) = (one.clone(), one.client().unwrap());
        executor.spawn(0, async move { pool.maintain(&mut client).await.unwrap() });
        let mut events = Vec::new();
        for _ in 0..=verbs {
            executor.events(&mut events);
            executor.perform(events[0], u32::MAX, WordOrder::Ascending);
        }
        sim.schedule(false);
        let two = open(&sim, 1);
        let mut client = two.client().unwrap();
        let also_moving = two.process.reclamation.demand_epochs();
        let pinned = block_on(client.pin(OpKind::Get)).unwrap();
        maintain(&two, 1);
        sim.schedule(true);
        loop {
            executor.events(&mut events);
            let Some(&event) = events.first() else { break };
            executor.perform(event, u32::MAX, WordOrder::Ascending);
        }
        sim.schedule(false);
        let epoch = word_at(&sim, GlobalAddr::new(0, EPOCH_AT));
        assert!(epoch <= pinned.epoch() + 1, "after {verbs} verbs");
        drop((pinned, moving, also_moving));
        two.abandon();
        one.abandon();
    }
}

/// An object is unlinked after a round has read the epoch, which has advanced by then.
#[test]
fn what_is_unlinked_within_a_round_has_no_stamp_of_it() {
    let pool = block_on(Pool::create(slow(&Sim::new(1, 4 << 20), 0), &options())).unwrap();
    let mut own = pool.client().unwrap();
    let addr = block_on(own.alloc(0, 64, AllocKind::Inner)).unwrap();
    let mut client = pool.client().unwrap();
    {
        let mut round = pin!(pool.maintain(&mut client));
        assert!(poll(round.as_mut()).is_pending());
        block_on(own.pin(OpKind::Delete)).unwrap().unlink(addr, 64, AllocKind::Inner, [].into());
        while poll(round.as_mut()).is_pending() {}
    }
    let mut graces = 0;
    pool.process.reclamation.limbo.ripen(NEVER / 2, |_| graces += 1, |_| Vec::new());
    assert_eq!(graces, 0);
    drop((own, client));
    pool.abandon();
}

/// Ends a process whose verbs are never executed. Closing its pool would wait for them for ever.
struct Ended(Sim);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.schedule(false);
        self.0.kill();
    }
}

/// A cancelled operation's leftovers, with the client in its next operation and a verb still in
/// flight.
#[test]
fn leftovers_wait_in_the_next_operation_while_a_verb_is_on_its_way() {
    let sim = Sim::new(1, 4 << 20);
    let pool = create(&sim);
    let (mut one, mut two) = (pool.client().unwrap(), pool.client().unwrap());
    let _at_the_end = Ended(sim.clone());
    sim.schedule(true);
    let is_done = Arc::new(AtomicBool::new(false));
    {
        let mut pinned = block_on(one.pin(OpKind::Insert)).unwrap();
        let mut batch = pinned.batch();
        batch.write(pool.root_word(60), &[7]);
        assert!(poll(pin!(pinned.submit(batch))).is_pending());
        let noted = Arc::clone(&is_done);
        pinned.leftovers().push(move || noted.store(true, Ordering::SeqCst));
    }
    let mut is_done_after_upkeep = || {
        sim.schedule(false);
        two.settle_leftovers();
        block_on(two.maintain()).unwrap();
        sim.schedule(true);
        is_done.load(Ordering::SeqCst)
    };
    let pinned = block_on(one.pin(OpKind::Insert)).unwrap();
    assert!(!is_done_after_upkeep());
    drop(pinned);
    assert!(!is_done_after_upkeep() && !is_done_after_upkeep());
    pool.abandon();
}

/// Adds one to each of its words in a round of upkeep, and forgets the words once that completed.
#[derive(Default)]
struct AddsOne(Arc<Mutex<Vec<GlobalAddr>>>);

impl Extension for AddsOne {
    fn upkeep(&self, batch: &mut Batch) -> Option<Box<dyn FnOnce() + Send>> {
        let words = lock(&self.0).clone();
        for &word in &words {
            batch.faa(word, 1);
        }
        let own = Arc::clone(&self.0);
        (!words.is_empty()).then(|| Box::new(move || lock(&own).clear()) as Box<dyn FnOnce() + Send>)
    }
}

#[test]
fn upkeep_posts_the_verbs_of_an_extension_until_they_have_completed() {
    let sim = Sim::new(1, 4 << 20);
    let pool = block_on(Pool::create(slow(&sim, 0), &options())).unwrap();
    let (extension, word) = (pool.extension::<AddsOne>(), pool.root_word(60));
    maintain(&pool, 2);
    assert_eq!(word_at(&sim, word), 0, "there was nothing to post");
    for polls in 1.. {
        lock(&pool.extension::<AddsOne>().0).push(word);
        let before = word_at(&sim, word);
        let mut client = pool.client().unwrap();
        let is_cut = is_pending_after(pin!(pool.maintain(&mut client)), polls);
        assert!(is_cut || lock(&extension.0).is_empty());
        maintain(&pool, 1);
        assert!(lock(&extension.0).is_empty() && word_at(&sim, word) > before, "after {polls} polls");
        maintain(&pool, 1);
        let after = word_at(&sim, word);
        maintain(&pool, 1);
        assert_eq!(word_at(&sim, word), after, "it is done once");
        if !is_cut {
            break;
        }
    }
}

/// One member holds all blocks, and another has freed everything in them.
#[test]
fn member_that_requests_room_gets_unused_blocks_of_others() {
    let sim = Sim::new(1, 1 << 20);
    let (one, two) = (create(&sim), open(&sim, 1));
    let (mut holder, mut asking) = (one.client().unwrap(), two.client().unwrap());
    let mut objects = Vec::new();
    while let Ok(addr) = block_on(holder.alloc(0, 1000, AllocKind::Leaf)) {
        objects.push(addr);
    }
    {
        let mut pinned = block_on(asking.pin(OpKind::Delete)).unwrap();
        for &addr in &objects {
            pinned.retire(addr, 1000, AllocKind::Leaf);
        }
    }
    let mut request = two.ask_for_room();
    let mut alloc = || block_on(asking.alloc(0, 1000, AllocKind::Leaf));
    assert!(alloc().is_err() && matches!(request.progress(0), Room::NotYet));
    for _ in 0..12 {
        maintain(&two, 1);
        maintain(&one, 1);
    }
    assert!(one.is_asked_for_room() && request.progress(0) == Room::Freed);
    let mut taken = block_on(holder.alloc(0, 1000, AllocKind::Inner));
    assert!(matches!(taken, Err(PoolError::OutOfSpace { .. })), "the other member waits for the free blocks");
    alloc().unwrap();
    drop(request);
    maintain(&two, 1);
    maintain(&one, 1);
    assert!(!one.is_asked_for_room());
    taken = block_on(holder.alloc(0, 1000, AllocKind::Inner));
    taken.unwrap();
    drop((holder, asking));
}

/// What a client holds of a block that is handed over when the other member requests room.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Has {
    /// Free objects in its magazine, and it begins no operation.
    Magazine,
    /// The same, and when the block is closed the client is in an operation that began after the
    /// block was chosen.
    MagazineInAnOperation,
    /// An object in hand, since before the block was chosen.
    Draft,
    /// The same, and it keeps the object beyond the operation.
    Kept,
}

/// The next owner's sweep would treat anything that a client holds of the block as free.
#[test]
fn a_block_is_handed_over_without_anything_that_a_client_has_of_it() {
    for has in [Has::Magazine, Has::MagazineInAnOperation, Has::Draft, Has::Kept] {
        let sim = Sim::new(1, 4 << 20);
        let (one, two) = (create(&sim), open(&sim, 1));
        let (mut client, mut other) = (one.client().unwrap(), one.client().unwrap());
        let blocks = &one.process.blocks;
        let block_of = |addr| blocks.layout().page_of(addr).unwrap().block;
        let alloc = |client: &mut Client<Sim>| {
            let mut pinned = block_on(client.pin(OpKind::Insert)).unwrap();
            block_of(block_on(pinned.alloc(0, 1000, AllocKind::Leaf)).unwrap())
        };
        let block = alloc(&mut client);
        let is_closed = || {
            let word = BlockWord::decode(word_at(&sim, Layout::block_word(block)));
            word.unwrap().state == BlockState::Closed
        };
        let draft =
            matches!(has, Has::Draft | Has::Kept).then(|| block_on(client.pin(OpKind::Insert)).unwrap());
        // Nothing has been taken since the previous round.
        maintain(&one, 1);
        let request = two.ask_for_room();
        maintain(&two, 1);
        maintain(&one, 1);
        assert!(blocks.is_handing_over() && !is_closed(), "{has:?}");
        let older = (has == Has::MagazineInAnOperation).then(|| block_on(other.pin(OpKind::Insert)).unwrap());
        if draft.is_some() || older.is_some() {
            for _ in 0..4 {
                maintain(&two, 1);
                maintain(&one, 1);
            }
            assert!(!is_closed(), "{has:?}: an operation began in the epoch of the choice");
        }
        if has == Has::Kept {
            one.keep_blocks();
        }
        drop(draft);
        let pinned = older.is_some().then(|| block_on(client.pin(OpKind::Insert)).unwrap());
        drop(older);
        maintain(&one, 1);
        assert_eq!(is_closed(), has != Has::Kept, "{has:?}");
        assert!(!blocks.is_handing_over(), "{has:?}");
        drop((pinned, request));
        maintain(&two, 1);
        maintain(&one, 1);
        assert!(blocks.owns(alloc(&mut client)), "{has:?}: the object lies in a block of another member");
    }
}
