//! Tests the heap against a model: random takes, frees, claims, trims and returns, with every
//! object accounted for, over pages of each size.

use darter_fabric::GlobalAddr;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

use super::block::{BlockState, BlockWord, MemberId};
use super::heap::{ClaimFilter, Freed, Heap, OwnBlock, Page};
use super::layout::{BlockId, Layout};
use super::object::AllocKind;
use super::size_class::{class_bytes, class_of};

#[derive(Clone, Debug)]
enum HeapStep {
    Take { size: usize, kind: bool, want: usize },
    Free { which: usize },
    FreeNonsense { offset: u64, size: usize },
    FreeDuringClaim { which: usize },
    Claim { which: usize },
    Trim,
    Return,
    Reload,
}

const SIZES: [u64; 11] = [16, 100, 1000, 1024, 3000, 5000, 10_000, 14_000, 20_000, 40_000, 100_000];
/// Block sizes whose pages have 8, 8, 16, 32 and 64 KiB.
const BLOCKS: [u64; 5] = [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Blocks per node.
const BLOCKS_PER_NODE: u64 = 7;

fn step() -> impl Strategy<Value = HeapStep> {
    prop_oneof![
        6 => (0..SIZES.len(), any::<bool>(), 1..200usize).prop_map(|(size, kind, want)| HeapStep::Take { size, kind, want }),
        6 => any::<usize>().prop_map(|which| HeapStep::Free { which }),
        1 => (0..16u64 << 20, 0..SIZES.len()).prop_map(|(offset, size)| HeapStep::FreeNonsense { offset, size }),
        2 => any::<usize>().prop_map(|which| HeapStep::Claim { which }),
        2 => any::<usize>().prop_map(|which| HeapStep::FreeDuringClaim { which }),
        1 => Just(HeapStep::Trim),
        1 => Just(HeapStep::Return),
        1 => Just(HeapStep::Reload),
    ]
}

struct Model {
    layout: Layout,
    heap: Heap,
    /// Objects in use, with their class and kind.
    used: BTreeMap<GlobalAddr, (u8, AllocKind)>,
    free_blocks: Vec<BlockId>,
}

fn word(kind: AllocKind) -> BlockWord {
    let owner = MemberId { member: 1, incarnation: 1 };
    BlockWord { state: BlockState::Owned, kind, member: 1, sequence: 0, low: owner.incarnation }
}

impl Model {
    fn new(block_bytes: u64) -> Self {
        let layout = Layout::new(&[block_bytes * (BLOCKS_PER_NODE + 1)], block_bytes).unwrap();
        let free_blocks = (0..layout.blocks(0)).map(|index| BlockId { node: 0, index }).collect();
        Self { heap: Heap::new(layout.clone()), layout, used: BTreeMap::new(), free_blocks }
    }

    fn add(&mut self, addr: GlobalAddr, class: u8, kind: AllocKind) {
        let end = addr.bits() + class_bytes(class);
        if let Some((before, (class, _))) = self.used.range(..=addr).next_back() {
            assert!(before.bits() + class_bytes(*class) <= addr.bits(), "{before} overlaps {addr}");
        }
        if let Some((after, _)) = self.used.range(addr..).next() {
            assert!(end <= after.bits(), "{addr} overlaps {after}");
        }
        self.used.insert(addr, (class, kind));
    }

    fn take(&mut self, class: u8, kind: AllocKind, want: usize) {
        loop {
            let mut out = Vec::new();
            if self.heap.take(0, kind, class, want, &mut out) {
                assert!(!out.is_empty() && out.len() <= want);
                for addr in out {
                    self.add(addr, class, kind);
                }
                return;
            }
            if let Some(cut) = self.heap.begin_cut(0, kind, class) {
                self.heap.finish_slab(cut);
                continue;
            }
            let Some(block) = self.free_blocks.pop() else { return };
            self.heap.add(block, OwnBlock::empty(&self.layout, word(kind)));
        }
    }

    fn nth(&self, which: usize) -> Option<(GlobalAddr, u8)> {
        let at = which.checked_rem(self.used.len())?;
        self.used.iter().nth(at).map(|(&addr, &(class, _))| (addr, class))
    }

    /// Claims an object that others freed, by the bit that a claim would find.
    fn claim(&mut self, addr: GlobalAddr, class: u8) {
        let spot = self.layout.spot(addr, class).unwrap();
        let all = ClaimFilter { node: None, kind: None, class: None, block: None };
        let claims = self.heap.begin_claims(all, usize::MAX, usize::MAX);
        let mut found = false;
        for claim in claims {
            let won = [(spot.slot as usize / 64, 1 << (spot.slot % 64))];
            let is_it = claim.page == spot.page;
            found |= is_it;
            let freed = self.heap.finish_claim(claim, if is_it { &won } else { &[] });
            assert_eq!(freed, usize::from(is_it));
        }
        assert!(found);
        self.used.remove(&addr);
    }

    /// Frees an object while freed bits are being fetched; the fetch finds none.
    fn free_during_claim(&mut self, addr: GlobalAddr, class: u8) {
        let all = ClaimFilter { node: None, kind: None, class: None, block: None };
        let claims = self.heap.begin_claims(all, usize::MAX, usize::MAX);
        assert_eq!(self.heap.free(addr, class), Freed::Here);
        assert_ne!(self.heap.free(addr, class), Freed::Here);
        self.used.remove(&addr);
        self.check();
        for claim in claims {
            assert_eq!(self.heap.finish_claim(claim, &[]), 0);
        }
    }

    fn return_blocks(&mut self) {
        self.heap.trim();
        for (block, word) in self.heap.begin_return(0) {
            self.heap.finish_return(block, word);
            self.free_blocks.push(block);
        }
    }

    /// Closes cleanly and reopens the blocks in another heap.
    fn reload(&mut self) {
        let mut next = Heap::new(self.layout.clone());
        for (&block, books) in self.heap.blocks() {
            let words = Heap::page_words(&self.layout, books);
            next.add(block, OwnBlock::from_page_words(&self.layout, books.word, &words));
            let here = ClaimFilter { node: None, kind: None, class: None, block: Some(block) };
            for claim in next.begin_claims(here, usize::MAX, usize::MAX) {
                let Page::Slab(slab) = &books.pages[claim.page.page as usize] else { unreachable!() };
                let won: Vec<_> = slab.free_bits().iter().copied().enumerate().collect();
                next.finish_claim(claim, &won);
            }
        }
        self.heap = next;
    }

    fn check(&self) {
        let bytes: u64 = self.used.values().map(|&(class, _)| class_bytes(class)).sum();
        assert_eq!(self.heap.object_bytes(), bytes);
        for (&addr, &(class, kind)) in &self.used {
            let block = self.layout.spot(addr, class).unwrap().page.block;
            assert_eq!(self.heap.block(block).unwrap().kind, kind);
        }
        for (_, block) in self.heap.blocks() {
            let mut further = 0;
            for page in &block.pages {
                assert_eq!(matches!(page, Page::Tail), further > 0);
                further = if let Page::Slab(slab) = page { slab.pages - 1 } else { further.max(1) - 1 };
            }
            let free = block.pages.iter().filter(|page| matches!(page, Page::Free)).count();
            assert_eq!((free, further), (block.free_pages as usize, 0));
        }
    }

    /// No two objects have the same freed bit, and no bit lies in an object.
    fn check_freed_bits(&self) {
        let mut bits = HashSet::new();
        for (&addr, &(class, _)) in &self.used {
            let (word, bit) = self.layout.freed_bit(addr, class).unwrap();
            assert!(bits.insert((word, bit)), "{addr}");
            if let Some((before, (class, _))) = self.used.range(..=word).next_back() {
                assert!(
                    before.bits() + class_bytes(*class) <= word.bits(),
                    "{before} holds the bit of {addr}"
                );
            }
        }
    }
}

/// A large object that is freed while its block is searched for objects that others freed is
/// available once the search ends. If the search also wins a freed bit for it, that is a second
/// free.
#[test]
fn a_large_object_freed_during_a_claim_comes_back() {
    let class = class_of(100_000).unwrap();
    let all = ClaimFilter { node: None, kind: None, class: None, block: None };
    for (won, bad_frees) in [(&[][..], 0), (&[(0, 1)][..], 1)] {
        let mut model = Model::new(512 << 10);
        model.take(class, AllocKind::Leaf, 1);
        let (addr, _) = model.nth(0).unwrap();
        let claims = model.heap.begin_claims(all, usize::MAX, usize::MAX);
        assert_eq!(claims.len(), 1);
        assert_eq!(model.heap.free(addr, class), Freed::Here);
        assert_eq!((model.heap.object_bytes(), model.heap.bad_frees()), (0, 0));

        // The pages are not used for anything else while the claim's verbs are in flight.
        let books = model.heap.block(model.layout.page_of(addr).unwrap().block).unwrap();
        assert_eq!(books.free_pages, model.layout.pages - model.layout.slab_pages(class));
        assert!(Heap::page_words(&model.layout, books).iter().all(|&word| word == 0));
        assert!(model.heap.begin_return(0).is_empty());

        assert_eq!(model.heap.finish_claim(claims[0], won), 0);
        assert_eq!(model.heap.bad_frees(), bad_frees);
        model.used.clear();
        model.check();
        model.return_blocks();
        assert_eq!(model.free_blocks.len(), model.layout.blocks(0) as usize);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 300 }, ..ProptestConfig::default() })]

    #[test]
    fn objects_never_overlap_and_all_come_back(
        block_bytes in prop::sample::select(&BLOCKS[..]),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut model = Model::new(block_bytes);
        for step in steps {
            match step {
                HeapStep::Take { size, kind, want } => {
                    let kind = if kind { AllocKind::Leaf } else { AllocKind::Inner };
                    model.take(class_of(SIZES[size]).unwrap(), kind, want);
                }
                HeapStep::Free { which } => {
                    let Some((addr, class)) = model.nth(which) else { continue };
                    assert_eq!(model.heap.free(addr, class), Freed::Here);
                    assert_ne!(model.heap.free(addr, class), Freed::Here);
                    model.used.remove(&addr);
                }
                HeapStep::FreeNonsense { offset, size } => {
                    let (addr, class) = (GlobalAddr::new(0, offset), class_of(SIZES[size]).unwrap());
                    if model.used.get(&addr).is_none_or(|&(found, _)| found != class) {
                        assert_ne!(model.heap.free(addr, class), Freed::Here);
                    }
                }
                HeapStep::Claim { which } => {
                    let Some((addr, class)) = model.nth(which) else { continue };
                    model.claim(addr, class);
                }
                HeapStep::FreeDuringClaim { which } => {
                    let Some((addr, class)) = model.nth(which) else { continue };
                    model.free_during_claim(addr, class);
                }
                HeapStep::Trim => model.heap.trim(),
                HeapStep::Return => model.return_blocks(),
                HeapStep::Reload => model.reload(),
            }
            model.check();
        }
        model.check_freed_bits();
        let all: Vec<_> = model.used.iter().map(|(&addr, &(class, _))| (addr, class)).collect();
        for (addr, class) in all {
            assert_eq!(model.heap.free(addr, class), Freed::Here);
        }
        model.return_blocks();
        assert_eq!(model.free_blocks.len(), model.layout.blocks(0) as usize);
        assert_eq!(model.heap.object_bytes(), 0);
    }
}
