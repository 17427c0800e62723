//! A part of the cache: blocks in a log, and the table that finds them.
//!
//! The block at the front is looked at when room is needed. It goes to the back with what was used
//! since it was last at the front; pages that were not used are forgotten, child nodes and nodes
//! only if no page is left to be forgotten, since they save more round trips a byte. Hot words take
//! the room that is left, and yield it first.

use super::block::{Block, Draft, Item};
use super::hot::HotTable;
use super::log::Log;
use super::table::Table;
use crate::quiver::hint::{HotWord, NodeHint};
use darter_fabric::GlobalAddr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most bytes of a shard: positions in its log are 32 bits.
const BYTES_MAX: u64 = 1 << 32;
/// Units of which as many as like may be dead.
const DEAD_UNITS_MIN: usize = 64;
/// Of so many units one may be dead.
const DEAD_SHARE: usize = 16;
/// Of so many offers one is taken when memory is short.
const OFFERS: u32 = 32;
/// Memory is short when less than one of so many parts is free.
const FULL_PARTS: usize = 16;

/// Hot words leave one of so many parts free, so that blocks do not come for each other's room.
const SLACK_PARTS: usize = 16;

/// Nodes remembered at each depth.
pub(super) type Depths = [AtomicU32];

#[derive(Debug, Default)]
pub(super) struct Shard {
    log: Log,
    table: Table,
    pub(super) hot: HotTable,
    budget: usize,
    /// Units of blocks that nothing leads to.
    dead: usize,
    /// Units that went by at the front since the last page was forgotten there.
    idle: usize,
    /// Offers since the last one that was taken.
    declined: u32,
}

impl Shard {
    /// One that takes so many bytes at most.
    pub(super) fn new(budget: u64) -> Self {
        Self { budget: budget.min(BYTES_MAX) as usize, ..Self::default() }
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> u64 {
        (self.log.bytes() + self.table.bytes() + self.hot.bytes()) as u64
    }

    /// Returns what is remembered under an identity.
    #[inline]
    pub(super) fn find(&self, identity: u64) -> Option<Block> {
        let is_it = |at| self.log.pair(at) == identity;
        self.table.find(hash(identity), is_it).map(|at| Block::read(&self.log, at))
    }

    /// Returns the page, or the child, that is responsible for an edge.
    #[inline]
    pub(super) fn item_for(&self, block: &Block, edge: u8) -> Option<Item> {
        block.items(&self.log).find(|item| item.edges().contains(edge))
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    /// Marks a block, and one of its items, as used.
    pub(super) fn touch(&mut self, block: &Block, item: Option<Item>) {
        block.touch(&mut self.log);
        if let Some(item) = item {
            item.touch(&mut self.log);
        }
    }

    /// Forgets a block.
    pub(super) fn remove(&mut self, block: &Block, depths: &Depths) {
        self.unlink(block, depths);
        block.kill(&mut self.log);
        self.dead += block.units;
    }

    fn unlink(&mut self, block: &Block, depths: &Depths) {
        let log = &self.log;
        self.table.remove(hash(block.identity), block.at, |at| hash(log.pair(at)));
        depths[block.node.depth].fetch_sub(1, Ordering::Relaxed);
    }

    /// Forgets the items of a block that `is_stale` is true of.
    pub(super) fn forget(&mut self, block: &Block, depths: &Depths, is_stale: impl Fn(Item) -> bool) {
        if block.items(&self.log).any(&is_stale) {
            self.change((block.identity, block.node), depths, |item| !is_stale(item), |_| true);
        }
    }

    /// Makes the block of a node anew: of its items those that stay, and what `add` adds. Forgets it
    /// if that cannot be remembered. Items of another life of the node go.
    pub(super) fn change(
        &mut self,
        (identity, node): (u64, NodeHint),
        depths: &Depths,
        stays: impl Fn(Item) -> bool,
        add: impl FnOnce(&mut Draft) -> bool,
    ) {
        let mut draft = Draft::new(identity, node);
        let old = self.find(identity);
        if let Some(old) = &old
            && old.node == node
        {
            for item in old.items(&self.log).filter(|item| stays(*item)) {
                draft.copy(&self.log, item);
            }
        }
        let is_good = add(&mut draft);
        if let Some(old) = &old {
            self.remove(old, depths);
        }
        let Some(units) = draft.finish().filter(|_| is_good) else { return };
        if self.make_room(units.len(), depths) {
            self.add(identity, node, &units, depths);
        }
    }

    /// Remembers a word of a page of this life, if there is room.
    pub(super) fn learn_hot(&mut self, (page, born): (GlobalAddr, u32), hot: HotWord) {
        let taken = self.log.bytes() + self.budget / SLACK_PARTS;
        self.hot.learn(page, born, hot, self.room().saturating_sub(taken));
    }

    /// Bytes for blocks and hot words.
    fn room(&self) -> usize {
        self.budget.saturating_sub(self.table.bytes_with_another())
    }

    fn add(&mut self, identity: u64, node: NodeHint, units: &[u32], depths: &Depths) {
        let at = self.log.append(units, self.room().saturating_sub(self.hot.bytes()));
        let log = &self.log;
        self.table.insert(hash(identity), at, |at| hash(log.pair(at)));
        depths[node.depth].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether to take what it would be of little use to remember: always while there is room, then
    /// one in [`OFFERS`], so that what is used much gets in.
    pub(super) fn takes_offer(&mut self) -> bool {
        let room = self.room();
        let is_full = self.log.len() * size_of::<u32>() * FULL_PARTS >= room * (FULL_PARTS - 1);
        self.declined = if is_full { (self.declined + 1) % OFFERS } else { 0 };
        self.declined == 0
    }

    /// Forgets what was not used until a block of so many units has room. Returns whether it has.
    fn make_room(&mut self, units: usize, depths: &Depths) -> bool {
        let room = self.room();
        let most = (room / size_of::<u32>()).saturating_sub(units);
        if most < 4 * units {
            return false;
        }
        while self.log.len() > most {
            self.turn(!self.has_much_dead(), depths);
        }
        while self.has_much_dead() {
            self.turn(false, depths);
        }
        self.hot.shrink_to(room.saturating_sub((self.log.len() + units) * size_of::<u32>()));
        let room = room.saturating_sub(self.hot.bytes());
        if self.log.bytes() > room {
            self.log.shrink_to(room);
        }
        true
    }

    /// Whether so much is dead that moving what is not costs less than forgetting it.
    fn has_much_dead(&self) -> bool {
        self.dead > DEAD_UNITS_MIN && self.dead * DEAD_SHARE > self.log.len()
    }

    /// Takes the block at the front to the back, unless it is dead; if memory is short, with what of
    /// it was used.
    fn turn(&mut self, is_short: bool, depths: &Depths) {
        let block = Block::read(&self.log, self.log.first());
        let units = match (block.is_dead, is_short) {
            (true, _) => {
                self.dead -= block.units;
                None
            }
            (false, false) => Some(self.log.units(block.at, block.units).into_owned()),
            (false, true) => self.trim(&block),
        };
        match units {
            Some(units) => {
                self.log.drop_first(block.units);
                let at = self.log.append(&units, self.budget);
                self.table.replace(hash(block.identity), block.at, at);
            }
            None if block.is_dead => self.log.drop_first(block.units),
            None => {
                self.unlink(&block, depths);
                self.log.drop_first(block.units);
            }
        }
    }

    /// What stays of a block at the front; none if nothing does.
    fn trim(&mut self, block: &Block) -> Option<Vec<u32>> {
        let mut draft = Draft::new(block.identity, block.node);
        // A whole turn without a page to forget: what else was not used goes, too.
        let is_last = self.idle > self.log.len();
        self.idle += block.units;
        for item in block.items(&self.log) {
            if item.is_used() || !item.is_page() && !is_last {
                draft.copy(&self.log, item);
            } else if item.is_page() {
                self.idle = 0;
            }
        }
        let stays = draft.has_items() || block.is_used;
        draft.finish().filter(|_| stays)
    }
}

/// The hash of what a block is found by.
fn hash(identity: u64) -> u64 {
    identity.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
