//! A part of the cache: blocks in a log, and the table that finds them.
//!
//! When room is needed, the block at the front is checked. It moves to the back with its items that
//! were used since it was last at the front. Pages that were not used are forgotten. Child nodes
//! and nodes are forgotten only if no page is left to forget, since they save more round trips per
//! byte. Hot words take the remaining room, and yield it first.

use super::block::{Block, Draft, Item};
use super::hot::HotTable;
use super::log::Log;
use super::table::Table;
use crate::quiver::hint::{HotWord, NodeHint};
use darter_fabric::GlobalAddr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Largest size of a shard in bytes: positions in its log are 32 bits.
const BYTES_MAX: u64 = 1 << 32;
/// Dead units that are always tolerated.
const DEAD_UNITS_MIN: usize = 64;
/// At most one unit in this many may be dead.
const DEAD_SHARE: usize = 16;
/// When memory is short, one offer in this many is taken.
const OFFERS: u32 = 32;
/// Memory is short if less than one part in this many is free.
const FULL_PARTS: usize = 16;

/// Hot words leave one part in this many free, so that new blocks rarely have to displace them.
const SLACK_PARTS: usize = 16;

/// Nodes remembered at each depth.
pub(super) type Depths = [AtomicU32];

#[derive(Debug, Default)]
pub(super) struct Shard {
    log: Log,
    table: Table,
    pub(super) hot: HotTable,
    budget: usize,
    /// Units of blocks that the table does not point to.
    dead: usize,
    /// Units that passed the front since the last page was forgotten there.
    idle: usize,
    /// Offers since the last accepted offer.
    declined: u32,
}

impl Shard {
    /// Creates a shard that takes at most `budget` bytes.
    pub(super) fn new(budget: u64) -> Self {
        Self { budget: budget.min(BYTES_MAX) as usize, ..Self::default() }
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        (self.log.bytes() + self.table.bytes() + self.hot.bytes()) as u64
    }

    /// Returns the block that is remembered for an identity.
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

    /// Forgets the items of a block for which `is_stale` returns true.
    pub(super) fn forget(&mut self, block: &Block, depths: &Depths, is_stale: impl Fn(Item) -> bool) {
        if block.items(&self.log).any(&is_stale) {
            self.change((block.identity, block.node), depths, |item| !is_stale(item), |_| true);
        }
    }

    /// Rebuilds the block of a node: from the items that `stays` accepts, and those that `add`
    /// adds. Forgets the block if the result cannot be remembered. Drops items of another life of
    /// the node.
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

    /// Bytes available to blocks and hot words.
    fn room(&self) -> usize {
        self.budget.saturating_sub(self.table.bytes_with_another())
    }

    fn add(&mut self, identity: u64, node: NodeHint, units: &[u32], depths: &Depths) {
        let at = self.log.append(units, self.room().saturating_sub(self.hot.bytes()));
        let log = &self.log;
        self.table.insert(hash(identity), at, |at| hash(log.pair(at)));
        depths[node.depth].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether to accept an item of little use: always while there is room, then one in [`OFFERS`],
    /// so that frequently used items get in.
    pub(super) fn takes_offer(&mut self) -> bool {
        let room = self.room();
        let is_full = self.log.len() * size_of::<u32>() * FULL_PARTS >= room * (FULL_PARTS - 1);
        self.declined = if is_full { (self.declined + 1) % OFFERS } else { 0 };
        self.declined == 0
    }

    /// Forgets unused items until a block of `units` units fits. Returns whether it fits.
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

    /// Whether moving the live units costs less than forgetting them, because many are dead.
    fn has_much_dead(&self) -> bool {
        self.dead > DEAD_UNITS_MIN && self.dead * DEAD_SHARE > self.log.len()
    }

    /// Moves the block at the front to the back, unless it is dead. If memory is short, keeps only
    /// the items that were used.
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

    /// The part of a block at the front that stays; `None` if nothing does.
    fn trim(&mut self, block: &Block) -> Option<Vec<u32>> {
        let mut draft = Draft::new(block.identity, block.node);
        // After a whole turn without a page to forget, other unused items are dropped too.
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

/// The hash under which the table finds a block.
fn hash(identity: u64) -> u64 {
    identity.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
