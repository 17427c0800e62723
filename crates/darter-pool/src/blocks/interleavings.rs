//! Tests of races for blocks, pages and freed bits, with schedules driven by hand.

use darter_fabric::{Fabric, OpKind, block_on};
use darter_sim::Sim;
use darter_sim::{Executor, WordOrder};
use std::pin::pin;

use super::block::{BlockState, BlockWord, MemberId};
use super::heap::{Claim, ClaimFilter, Heap, OwnBlock, Page};
use super::layout::{BlockId, Layout, PageId};
use super::object::AllocKind;
use super::reachable::ReachableSet;
use super::size_class::class_of;
use crate::Pool;
use crate::fixtures::{add_to, create, is_pending_after, open, open_first, options, poll, slow, word_at};

/// A client is dropped with a verb in flight, and its process closes.
#[test]
fn no_block_is_closed_under_late_verbs() {
    let sim = Sim::new(1, 4 << 20);
    let pool = create(&sim);
    let mut client = pool.client().unwrap();
    let addr = block_on(client.alloc(0, 64, AllocKind::Leaf)).unwrap();
    let block = pool.process.blocks.layout().page_of(addr).unwrap().block;
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

/// The block is read after each verb of its close. Others have freed an object in it, which its
/// owner has not fetched.
#[test]
fn a_block_says_closed_when_its_books_are_there_and_keeps_what_others_freed() {
    let sim = Sim::new(1, 4 << 20);
    let pool = create(&sim);
    let mut client = pool.client().unwrap();
    let addrs = [0; 3].map(|_| block_on(client.alloc(0, 64, AllocKind::Leaf)).unwrap());
    client.free_unpublished(addrs[0], 64, AllocKind::Leaf);
    client.flush_magazines();
    let page = pool.process.blocks.layout().page_of(addrs[1]).unwrap();
    let class = class_of(64).unwrap();
    let (bitmap, words) = pool.process.blocks.layout().bitmap_of(page, class);
    let (freed, bit) = pool.process.blocks.layout().freed_bit(addrs[1], class).unwrap();
    add_to(&sim, freed, bit);
    let block_word = Layout::block_word(page.block);
    let page_word = pool.process.blocks.layout().block_addr(page.block).plus(u64::from(page.page) * 8);
    let books = || {
        let bits: Vec<u64> = (0..words as u64).map(|at| word_at(&sim, bitmap.plus(at * 8))).collect();
        (bits, word_at(&sim, page_word))
    };
    let mut executor = Executor::new(&sim);
    let (handle, mut endpoint) = (pool.clone(), sim.endpoint().unwrap());
    executor
        .spawn(0, async move { handle.process.blocks.close_block(&mut endpoint, page.block).await.unwrap() });
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

/// A bit is set after a bitmap is read and before the CAS that clears the bits found.
#[test]
fn freed_bits_are_won_once() {
    let sim = Sim::new(1, 4 << 20);
    let pool = block_on(Pool::create(slow(&sim, 0), &options())).unwrap();
    let mut client = pool.client().unwrap();
    let addrs = [0; 2].map(|_| block_on(client.alloc(0, 64, AllocKind::Leaf)).unwrap());
    let class = class_of(64).unwrap();
    let [one, two] = addrs.map(|addr| pool.process.blocks.layout().freed_bit(addr, class).unwrap());
    assert_eq!(one.0, two.0);
    add_to(&sim, one.0, one.1);
    let page = pool.process.blocks.layout().page_of(addrs[0]).unwrap();
    let mut endpoint = pool.fabric().endpoint().unwrap();
    let claims = [Claim { page, class }];
    let mut fetching = pin!(pool.process.blocks.fetch_bits(&mut endpoint, &claims));
    // The bitmap is read and about to be cleared.
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
    let owner = MemberId { member: 1, incarnation: 1 };
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
    heap.finish_slab(cut);
    let mut run = Vec::new();
    assert!(heap.take(0, AllocKind::Leaf, class, 1, &mut run));
    heap.free(run[0], class);
    assert_eq!(heap.block(cut.page.block).unwrap().free_pages, layout.pages);
}

/// A process that was never live together with another one takes over a block while its frees of
/// objects in that block are in flight.
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
        let blocks = &pool.process.blocks;
        let mut client = pool.client().unwrap();
        block_on(client.pin(OpKind::Delete)).unwrap().retire(addrs[0], 64, AllocKind::Leaf);
        let block = blocks.layout().page_of(addrs[0]).unwrap().block;
        let (word, bit) = blocks.layout().freed_bit(addrs[0], class_of(64).unwrap()).unwrap();
        for _ in 0..8 {
            let mut round = pin!(pool.maintain(&mut client));
            if is_pending_after(round.as_mut(), polls) && pool.garbage() == 0 {
                let mut endpoint = pool.fabric().endpoint().unwrap();
                let found = BlockWord::decode(word_at(&sim, Layout::block_word(block))).unwrap();
                if word_at(&sim, word) & bit == 0 && found.state == BlockState::Closed {
                    met = true;
                    assert!(block_on(blocks.reopen(&mut endpoint, block, found)).unwrap());
                }
            }
            while poll(round.as_mut()).is_pending() {}
            if met {
                break;
            }
        }
        if met {
            assert!(blocks.has_met_others());
        }
        drop(client);
        pool.abandon();
        if met {
            return;
        }
    }
    panic!("no block was taken over while frees were in flight to it");
}

/// A member takes over a closed block, frees and allocates in it, at each point of another's audit.
#[test]
fn an_audit_does_not_take_a_reopened_block_for_damaged() {
    for polls in 1.. {
        let sim = Sim::new(1, 4 << 20);
        let first = open_first(&sim, 0);
        let mut client = first.client().unwrap();
        let addrs = [64, 64, 5000].map(|bytes| block_on(client.alloc(0, bytes, AllocKind::Leaf)).unwrap());
        client.free_unpublished(addrs[0], 64, AllocKind::Leaf);
        drop(client);
        block_on(first.close()).unwrap();
        let auditor = block_on(Pool::open(slow(&sim, 1))).unwrap();
        let mut client = auditor.client().unwrap();
        let reachable = ReachableSet::new();
        let report = {
            let mut audit = pin!(auditor.audit(&mut client, &reachable));
            if !is_pending_after(audit.as_mut(), polls) {
                assert!(polls > 3, "the audit is interrupted nowhere");
                break;
            }
            let other = open(&sim, 2);
            let mut client = other.client().unwrap();
            for bytes in [64, 64, 1000, 20_000] {
                block_on(client.alloc(0, bytes, AllocKind::Leaf)).unwrap();
            }
            let block = other.process.blocks.layout().page_of(addrs[2]).unwrap().block;
            assert!(other.process.blocks.owns(block));
            block_on(audit).unwrap()
        };
        assert_eq!(report.violations, Vec::<String>::new(), "after {polls} polls");
    }
}
