//! Races that few schedules meet, driven by hand: one process stops between two of its round trips, and others go on.

use darter_fabric::decorate::{Delay, Delaying};
use darter_fabric::sim::{EventKind, Executor, WordOrder};
use darter_fabric::{Endpoint, Fabric, GlobalAddr, OpKind, Sim, block_on};
use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use crate::block::{BlockState, BlockWord, Owner};
use crate::heap::{ClaimFilter, Heap, OwnBlock, Page};
use crate::layout::{BlockId, EPOCH_AT, Layout, PageId};
use crate::limbo::{Limbo, Retired, Ring};
use crate::member::{self, MemberLine, MemberTable};
use crate::size_class::class_of;
use crate::{AllocKind, Client, Pool, PoolOptions, ReachableSet};

const NEVER: u64 = u64::MAX;
const LEASE_MS: u64 = 100;

type SlowPool = Pool<Delaying<Sim>>;

/// A process's fabric that is pending once before each batch.
fn slow(sim: &Sim, process: u32) -> Delaying<Sim> {
    Delaying::new(sim.process(process), Delay { pending_before: 1, ..Delay::default() })
}

fn options() -> PoolOptions {
    PoolOptions { block_bytes: Some(256 << 10), lease_ms: LEASE_MS, ..PoolOptions::default() }
}

fn create(sim: &Sim) -> Pool<Sim> {
    block_on(Pool::create(sim.clone(), &options())).unwrap()
}

fn open(sim: &Sim, process: u32) -> Pool<Sim> {
    block_on(Pool::open(sim.process(process))).unwrap()
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a future so often; whether it has not ended.
fn is_pending_after<F: Future>(mut future: Pin<&mut F>, polls: usize) -> bool {
    (0..polls).all(|_| poll(future.as_mut()).is_pending())
}

fn maintain<F: Fabric>(pool: &Pool<F>, rounds: usize) {
    let mut client = pool.client().unwrap();
    for _ in 0..rounds {
        block_on(pool.maintain(&mut client)).unwrap();
    }
}

fn word_at(sim: &Sim, addr: GlobalAddr) -> u64 {
    let mut endpoint = sim.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let read = batch.read(addr, 1);
    block_on(endpoint.submit(batch)).unwrap().words(read)[0]
}

fn add_to(sim: &Sim, addr: GlobalAddr, bits: u64) {
    let mut endpoint = sim.endpoint().unwrap();
    let mut batch = endpoint.batch();
    batch.faa(addr, bits);
    block_on(endpoint.submit(batch)).unwrap();
}

fn line() -> MemberLine {
    MemberLine {
        live: true,
        incarnation: 1,
        published: 9,
        flushed: 9,
        deadline_ms: 0,
        pid: 0,
        has_garbage: false,
        holder: 0,
        nodes: 1,
    }
}

#[test]
fn the_oldest_in_a_ring_counts() {
    let (limbo, ring) = (Limbo::new(), Mutex::new(Ring::default()));
    let object = |offset| Retired::new(GlobalAddr::new(0, offset), 5);
    limbo.retire(&ring, object(64), 3);
    limbo.retire(&ring, object(128), 9);
    assert_eq!(Limbo::oldest_in(&ring), 3);
    // It moves from the ring to limbo after the first look at limbo and before the look at the ring.
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
    limbo.unlink(&ring, crate::Unlinked { addr, bytes: 80, kind, note: [].into(), born: 3, hand: None });
    limbo.stamp(limbo.mark(), 3, drop);
    limbo.ripen(5, drop, |_| Vec::new());
    let taken = limbo.take_graced(&ring);
    assert_eq!(taken.len(), 1);
    limbo.retire(&ring, Retired::new(addr, 5), 9);
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
    pool.shared.clients.observe(epoch + 1);
    pinned.retire(addr, 64, AllocKind::Leaf);
    let oldest = pool.shared.clients.all().iter().map(|client| Limbo::oldest_in(&client.ring)).min();
    assert_eq!(oldest, Some(epoch));
    drop(pinned);
    drop(client);
    pool.abandon();
}

#[test]
fn a_pin_holds_back_what_counts_as_flushed() {
    let pool = create(&Sim::new(1, 2 << 20));
    let mut client = pool.client().unwrap();
    let _moving = pool.shared.upkeep.wait_for_epochs();
    let pinned = block_on(client.pin(OpKind::Get)).unwrap();
    maintain(&pool, 4);
    assert_eq!(pool.epoch(), pinned.epoch() + 1);
    assert_eq!(pool.shared.upkeep.flushed(), pinned.epoch());
}

#[test]
fn a_sweep_waits_until_all_have_flushed_its_epoch() {
    let pool = create(&Sim::new(1, 2 << 20));
    let shared = &pool.shared;
    let table = |published, flushed| MemberTable {
        epoch: 9,
        nodes: 1,
        lines: vec![line(), MemberLine { published, flushed, ..line() }],
    };
    let own = shared.upkeep.flushed();
    assert_eq!(shared.late(&table(own + 1, own), own), [0, 1], "neither has flushed the epoch itself");
    assert_eq!(shared.late(&table(own + 1, own + 1), own), [0], "this process has not");
}

#[test]
fn frees_that_may_land_late_hold_sweeps_back() {
    let mut met = false;
    for (rounds, polls) in (1..8).flat_map(|rounds| (1..6).map(move |polls| (rounds, polls))) {
        let sim = Sim::new(1, 4 << 20);
        let owner = create(&sim);
        let addr = block_on(owner.client().unwrap().alloc(0, 64, AllocKind::Leaf)).unwrap();
        let other: SlowPool = block_on(Pool::open(slow(&sim, 1))).unwrap();
        let mut client = other.client().unwrap();
        let shared = &other.shared;
        let mut pinned = block_on(client.pin(OpKind::Delete)).unwrap();
        let born = pinned.epoch();
        pinned.retire(addr, 64, AllocKind::Leaf);
        drop(pinned);
        for _ in 0..rounds {
            maintain(&owner, 1);
            block_on(other.maintain(&mut client)).unwrap();
        }
        let is_cut = is_pending_after(pin!(other.maintain(&mut client)), polls);
        let (word, bit) = shared.layout.freed_bit(addr, class_of(64).unwrap()).unwrap();
        if is_cut && other.garbage() == 0 && word_at(&sim, word) & bit == 0 {
            met = true;
            assert!(shared.upkeep.stuck() <= born, "{rounds} rounds and {polls} polls");
        }
        other.abandon();
        owner.abandon();
    }
    assert!(met, "no round was cut short before its frees landed");
}

#[test]
fn members_that_renew_their_leases_are_not_shut_out() {
    let sim = Sim::new(1, 4 << 20);
    let pools = [create(&sim), open(&sim, 1)];
    for _ in 0..20 {
        sim.advance_ms(LEASE_MS / 4 + 1);
        for pool in &pools {
            maintain(pool, 1);
        }
    }
}

#[test]
fn who_renewed_its_lease_after_the_first_look_has_not_lapsed() {
    let sim = Sim::new(1, 4 << 20);
    let (one, two) = (create(&sim), open(&sim, 1));
    let mut endpoint = sim.endpoint().unwrap();
    let stale = block_on(member::read_table(&mut endpoint, 2)).unwrap().lines[1];
    sim.advance_ms(LEASE_MS / 2);
    maintain(&two, 1);
    let burials = block_on(member::bury_dead(&sim, &mut endpoint, [(1, stale, true)].into_iter())).unwrap();
    assert!(!burials.any && !sim.process(1).is_fenced());
    drop((one, two));
}

/// The second look at a dead member's line tears: its end belongs to the next member in that slot.
#[test]
fn the_next_in_a_slot_is_not_shut_out_for_the_one_before() {
    let sim = Sim::new(1, 4 << 20);
    let (one, two) = (create(&sim), open(&sim, 1));
    let mut endpoint = sim.process(0).endpoint().unwrap();
    let stale = block_on(member::read_table(&mut endpoint, 2)).unwrap().lines[1];
    two.abandon();
    sim.process(1).kill();
    let mut executor = Executor::new(&sim);
    let fabric = sim.process(0);
    executor.spawn(0, async move {
        let _ = member::bury_dead(&fabric, &mut endpoint, [(1, stale, true)].into_iter()).await;
    });
    let mut events = Vec::new();
    for _ in 0..3 {
        executor.events(&mut events);
        // The state, then state, epochs and deadline, and not the holder yet.
        executor.perform(events[0], 4, WordOrder::Ascending);
    }
    sim.schedule(false);
    let next = open(&sim, 2);
    assert_eq!(next.shared.me.member, 1);
    sim.schedule(true);
    loop {
        executor.events(&mut events);
        let Some(&event) = events.first() else { break };
        executor.perform(event, 0, WordOrder::Ascending);
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    }
    sim.schedule(false);
    assert!(!sim.process(2).is_fenced());
    drop((one, next));
}

/// A READ of the member lines tears: its last word comes from before a member went live, the others from after.
#[test]
fn who_is_seen_live_is_seen_with_words_of_its_own() {
    let sim = Sim::new(1, 4 << 20);
    let one = create(&sim);
    let mut endpoint = sim.process(0).endpoint().unwrap();
    let read = RefCell::new(None);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, async {
        *read.borrow_mut() = Some(member::read_table(&mut endpoint, 2).await.unwrap());
    });
    let mut events = Vec::new();
    loop {
        executor.events(&mut events);
        let event = events[0];
        if matches!(event.kind, EventKind::Execute { verb: 2, .. }) {
            executor.perform(event, 1, WordOrder::Descending);
            break;
        }
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    }
    sim.schedule(false);
    let two = open(&sim, 1);
    sim.schedule(true);
    while read.borrow().is_none() {
        executor.events(&mut events);
        executor.perform(events[0], u32::MAX, WordOrder::Ascending);
    }
    sim.schedule(false);
    let table = read.borrow_mut().take().unwrap();
    for (slot, line) in table.live() {
        assert!(line.nodes == 1 && line.holder != 0, "slot {slot}: {line:?}");
    }
    drop(executor);
    drop((one, two));
}

#[test]
fn nobody_is_ended_who_may_write_to_nodes_that_are_not_known() {
    let sim = Sim::new(2, 4 << 20);
    (0..3).for_each(|process| sim.process(process).limit_nodes(1));
    let (one, two) = (create(&sim), open(&sim, 1));
    block_on(one.add_node(&mut one.client().unwrap(), "sim:1")).unwrap();
    let mut endpoint = sim.process(2).endpoint().unwrap();
    let line = block_on(member::read_table(&mut endpoint, 2)).unwrap().lines[1];
    two.abandon();
    sim.process(1).kill();
    let fabric = sim.process(2);
    let burials = block_on(member::bury_dead(&fabric, &mut endpoint, [(1, line, true)].into_iter())).unwrap();
    assert!(burials.unsure && !burials.any);
    drop(one);
}

#[test]
fn whoever_joins_during_an_addition_reaches_the_node_before_others_use_it() {
    for polls in 0.. {
        let sim = Sim::new(2, 4 << 20);
        (0..2).for_each(|process| sim.process(process).limit_nodes(1));
        let one = create(&sim);
        let mut opening = pin!(Pool::open(slow(&sim, 1)));
        let is_open = !is_pending_after(opening.as_mut(), polls);
        if is_open {
            assert!(polls > 3, "a process joins in several round trips");
            break;
        }
        block_on(one.add_node(&mut one.client().unwrap(), "sim:1")).unwrap();
        maintain(&one, 3);
        let two = block_on(opening).unwrap();
        assert!(one.nodes() == 1 || two.shared.layout.node_count() == 2, "after {polls} polls");
        two.abandon();
        one.abandon();
    }
}

#[test]
fn whoever_joins_is_at_most_an_epoch_behind() {
    for polls in 0.. {
        let sim = Sim::new(1, 4 << 20);
        let one = create(&sim);
        let moving = one.shared.upkeep.wait_for_epochs();
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

/// Another process joins, pins and moves the epoch between the verbs in which a round reads epoch and lines.
#[test]
fn whoever_joins_within_a_round_holds_the_epoch() {
    for verbs in 0..3 {
        let sim = Sim::new(1, 4 << 20);
        let one = create(&sim);
        maintain(&one, 1);
        let moving = one.shared.upkeep.wait_for_epochs();
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
        let also_moving = two.shared.upkeep.wait_for_epochs();
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

/// An object is unlinked after a round has read the epoch, which has moved by then.
#[test]
fn what_is_unlinked_within_a_round_has_no_stamp_of_it() {
    let pool = block_on(Pool::create(slow(&Sim::new(1, 4 << 20), 0), &options())).unwrap();
    let mut own = pool.client().unwrap();
    let addr = block_on(own.alloc(0, 64, AllocKind::Inner)).unwrap();
    let mut client = pool.client().unwrap();
    {
        let mut round = pin!(pool.maintain(&mut client));
        assert!(poll(round.as_mut()).is_pending());
        own.unlink(addr, 64, AllocKind::Inner, [].into());
        while poll(round.as_mut()).is_pending() {}
    }
    let mut graces = 0;
    pool.shared.limbo.ripen(NEVER / 2, |_| graces += 1, |_| Vec::new());
    assert_eq!(graces, 0);
    drop((own, client));
    pool.abandon();
}

#[test]
fn the_block_of_a_member_that_joins_during_a_look_round_is_not_swept() {
    for polls in 0.. {
        let sim = Sim::new(1, 4 << 20);
        let one = block_on(Pool::create(slow(&sim, 0), &options())).unwrap();
        let mut client = one.client().unwrap();
        let mut adopting = pin!(one.adopt(&mut client));
        if !is_pending_after(adopting.as_mut(), polls) {
            assert!(polls > 3, "members and blocks are read one after the other");
            break;
        }
        let two = open(&sim, 1);
        let mut other = two.client().unwrap();
        block_on(other.alloc(0, 64, AllocKind::Leaf)).unwrap();
        assert_eq!(block_on(adopting).unwrap().blocks(), 0, "after {polls} polls");
        drop(other);
        two.abandon();
        one.abandon();
    }
}

/// An object that the walk met is freed after it.
#[test]
fn what_is_freed_after_the_walk_of_a_sweep_is_free() {
    let sim = Sim::new(1, 4 << 20);
    let dead = open_first(&sim, 1);
    let addr = block_on(dead.client().unwrap().alloc(0, 64, AllocKind::Leaf)).unwrap();
    let sweeper = open(&sim, 0);
    let mut client = sweeper.client().unwrap();
    dead.abandon();
    sim.process(1).kill();
    let adoption = block_on(sweeper.adopt(&mut client)).unwrap();
    assert_eq!(adoption.dead_blocks(), 1);
    let mut met = ReachableSet::new();
    assert!(met.insert(addr, 64));
    block_on(client.pin(OpKind::Delete)).unwrap().retire(addr, 64, AllocKind::Leaf);
    let report = block_on(sweeper.finish_adoption(&mut client, adoption, &met)).unwrap();
    assert!(report.finished && report.violations.is_empty());
    let audit = block_on(sweeper.audit(&mut client, &ReachableSet::new())).unwrap();
    assert_eq!((report.kept_bytes, audit.leaked_bytes), (0, 0));
}

fn open_first(sim: &Sim, process: u32) -> Pool<Sim> {
    block_on(Pool::create(sim.process(process), &options())).unwrap()
}

/// A client is dropped with a verb on its way, and its process closes.
#[test]
fn no_block_is_closed_under_late_verbs() {
    let sim = Sim::new(1, 4 << 20);
    let pool = create(&sim);
    let mut client = pool.client().unwrap();
    let addr = block_on(client.alloc(0, 64, AllocKind::Leaf)).unwrap();
    let block = pool.shared.layout.page_of(addr).unwrap().block;
    sim.schedule(true);
    {
        let mut pinned = block_on(client.pin(OpKind::Insert)).unwrap();
        let mut batch = pinned.batch();
        batch.write(addr, &[1]);
        assert!(poll(pin!(pinned.submit(batch))).is_pending());
    }
    drop(client);
    sim.schedule(false);
    block_on(pool.close()).unwrap();
    let word = BlockWord::decode(word_at(&sim, Layout::block_word(block))).unwrap();
    assert_eq!(word.state, BlockState::Owned);
}

/// A block is looked at after each verb of its close; others have freed an object in it, which nobody has fetched.
#[test]
fn a_block_says_closed_when_its_books_are_there_and_keeps_what_others_freed() {
    let sim = Sim::new(1, 4 << 20);
    let pool = create(&sim);
    let mut client = pool.client().unwrap();
    let addrs = [0; 3].map(|_| block_on(client.alloc(0, 64, AllocKind::Leaf)).unwrap());
    client.free_unpublished(addrs[0], 64, AllocKind::Leaf);
    client.flush_magazines();
    let page = pool.shared.layout.page_of(addrs[1]).unwrap();
    let class = class_of(64).unwrap();
    let (bitmap, words) = pool.shared.bitmap_of(page, class);
    let (freed, bit) = pool.shared.layout.freed_bit(addrs[1], class).unwrap();
    add_to(&sim, freed, bit);
    let block_word = Layout::block_word(page.block);
    let page_word = pool.shared.layout.block_addr(page.block).plus(u64::from(page.page) * 8);
    let books = || {
        let bits: Vec<u64> = (0..words as u64).map(|at| word_at(&sim, bitmap.plus(at * 8))).collect();
        (bits, word_at(&sim, page_word))
    };
    let mut executor = Executor::new(&sim);
    let (handle, mut endpoint) = (pool.clone(), sim.endpoint().unwrap());
    executor.spawn(0, async move { handle.shared.close_block(&mut endpoint, page.block).await.unwrap() });
    let (mut events, mut closed) = (Vec::new(), None);
    loop {
        executor.events(&mut events);
        let Some(&event) = events.first() else { break };
        executor.perform(event, u32::MAX, WordOrder::Ascending);
        sim.schedule(false);
        let word = BlockWord::decode(word_at(&sim, block_word)).unwrap();
        if word.state == BlockState::Closed {
            closed.get_or_insert_with(books);
        }
        sim.schedule(true);
    }
    sim.schedule(false);
    let after = books();
    assert_eq!(closed.as_ref(), Some(&after));
    assert_eq!(word_at(&sim, freed) & bit, bit);
    drop(client);
    pool.abandon();
}

/// A bit is set between the look at a bitmap and the CAS that clears what was found.
#[test]
fn freed_bits_are_won_once() {
    let sim = Sim::new(1, 4 << 20);
    let pool = block_on(Pool::create(slow(&sim, 0), &options())).unwrap();
    let mut client = pool.client().unwrap();
    let addrs = [0; 2].map(|_| block_on(client.alloc(0, 64, AllocKind::Leaf)).unwrap());
    let class = class_of(64).unwrap();
    let [one, two] = addrs.map(|addr| pool.shared.layout.freed_bit(addr, class).unwrap());
    assert_eq!(one.0, two.0);
    add_to(&sim, one.0, one.1);
    let page = pool.shared.layout.page_of(addrs[0]).unwrap();
    let mut endpoint = pool.shared.fabric.endpoint().unwrap();
    let claims = [crate::heap::Claim { page, class }];
    let mut fetching = pin!(pool.shared.fetch_bits(&mut endpoint, &claims));
    // Read, and about to clear.
    assert!(is_pending_after(fetching.as_mut(), 2));
    add_to(&sim, two.0, two.1);
    let won = block_on(fetching).unwrap();
    let bits: Vec<u64> = won[0].iter().map(|&(_, bits)| bits).collect();
    assert_eq!((bits, word_at(&sim, one.0)), (vec![one.1 | two.1], 0));
    drop(client);
    pool.abandon();
}

fn heap_of_one_block() -> (Layout, Heap) {
    let layout = Layout::new(&[4 << 20], 512 << 10).unwrap();
    let mut heap = Heap::new(layout.clone());
    let owner = Owner { member: 1, incarnation: 1 };
    let word = BlockWord::decode(0).unwrap().next(BlockState::Owned, AllocKind::Leaf, owner);
    heap.add(BlockId { node: 0, index: 0 }, OwnBlock::empty(&layout, word));
    (layout, heap)
}

#[test]
fn a_slab_under_a_claim_stays_a_slab() {
    let (_, mut heap) = heap_of_one_block();
    let class = class_of(64).unwrap();
    let cut = heap.begin_cut(0, AllocKind::Leaf, class).unwrap();
    heap.finish_slab(cut);
    let mut taken = Vec::new();
    assert!(heap.take(0, AllocKind::Leaf, class, 1, &mut taken));
    let all = ClaimFilter { node: None, kind: None, class: None, block: None };
    let claims = heap.begin_claims(all, usize::MAX, usize::MAX);
    assert_eq!(claims.len(), 1);
    heap.free(taken[0], class);
    heap.trim();
    let PageId { block, page } = cut.page;
    assert!(matches!(heap.block(block).unwrap().pages[page as usize], Page::Slab(_)));
    heap.finish_claim(claims[0], &[]);
    heap.trim();
    assert!(matches!(heap.block(block).unwrap().pages[page as usize], Page::Free));
}

#[test]
fn nothing_is_cut_from_a_block_on_its_way_back() {
    let (_, mut heap) = heap_of_one_block();
    assert_eq!(heap.begin_return(0).len(), 1);
    assert!(heap.begin_cut(0, AllocKind::Leaf, class_of(64).unwrap()).is_none());
}

#[test]
fn all_pages_of_a_freed_run_are_free() {
    let (layout, mut heap) = heap_of_one_block();
    let class = class_of(100_000).unwrap();
    let cut = heap.begin_cut(0, AllocKind::Leaf, class).unwrap();
    let run = heap.finish_run(cut).unwrap();
    heap.free(run, class);
    assert_eq!(heap.block(cut.page.block).unwrap().free_pages, layout.pages);
}

/// A process that was never seen with another one takes a block over while its frees of objects in it are on their way.
#[test]
fn objects_freed_in_a_block_just_taken_over_are_fetched() {
    let mut met = false;
    for polls in 1..6 {
        let sim = Sim::new(1, 4 << 20);
        let former = open_first(&sim, 1);
        let addrs = {
            let mut client = former.client().unwrap();
            [0; 2].map(|_| block_on(client.alloc(0, 64, AllocKind::Leaf)).unwrap())
        };
        block_on(former.close()).unwrap();
        let pool = block_on(Pool::open(slow(&sim, 0))).unwrap();
        let shared = &pool.shared;
        let mut client = pool.client().unwrap();
        block_on(client.pin(OpKind::Delete)).unwrap().retire(addrs[0], 64, AllocKind::Leaf);
        let block = shared.layout.page_of(addrs[0]).unwrap().block;
        let (word, bit) = shared.layout.freed_bit(addrs[0], class_of(64).unwrap()).unwrap();
        for _ in 0..8 {
            let mut round = pin!(pool.maintain(&mut client));
            if is_pending_after(round.as_mut(), polls) && shared.limbo.waiting() == 0 {
                let mut endpoint = shared.fabric.endpoint().unwrap();
                let found = BlockWord::decode(word_at(&sim, Layout::block_word(block))).unwrap();
                if word_at(&sim, word) & bit == 0 && found.state == BlockState::Closed {
                    met = true;
                    assert!(block_on(shared.reopen(&mut endpoint, block, found)).unwrap());
                }
            }
            while poll(round.as_mut()).is_pending() {}
            if met {
                break;
            }
        }
        if met {
            assert!(shared.had_company.load(Ordering::Relaxed));
        }
        drop(client);
        pool.abandon();
        if met {
            return;
        }
    }
    panic!("no block was taken over while frees were on their way into it");
}

/// Ends a process whose verbs nobody executes, or closing its pool would wait for them for ever.
struct Ended(Sim);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.schedule(false);
        self.0.kill();
    }
}

/// A cancelled operation's hold, with the client in its next operation and a verb still on its way.
#[test]
fn a_hold_is_not_over_in_the_next_operation_while_a_verb_is_on_its_way() {
    let sim = Sim::new(1, 4 << 20);
    let pool = create(&sim);
    let (mut one, mut two) = (pool.client().unwrap(), pool.client().unwrap());
    let _at_the_end = Ended(sim.clone());
    sim.schedule(true);
    let word = {
        let mut pinned = block_on(one.pin(OpKind::Insert)).unwrap();
        let hold = pinned.hold().unwrap();
        let mut batch = pinned.batch();
        batch.write(pool.root_word(60), &[7]);
        assert!(poll(pin!(pinned.submit(batch))).is_pending());
        hold.word()
    };
    let is_over = |two: &mut Client<Sim>| {
        sim.schedule(false);
        let is_over = block_on(two.is_over(word)).unwrap();
        sim.schedule(true);
        is_over
    };
    let pinned = block_on(one.pin(OpKind::Insert)).unwrap();
    assert!(!is_over(&mut two));
    drop(pinned);
    assert!(!is_over(&mut two) && !is_over(&mut two));
    pool.abandon();
}
