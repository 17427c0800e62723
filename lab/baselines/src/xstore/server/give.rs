//! Leaves that go to another memory node, when the one of a range is full: the upper half of the
//! range becomes a range of its own (rule X11).
//!
//! The server holds the locks of all leaves that go, and of the one on their left. It writes copies
//! on the other node, with all that they lead to, and a descriptor for them. Then the leaves go into
//! a motion that never ends, and one CAS leads from the table of ranges to another one, in which the
//! copies are a range: that is the moment at which their keys are the other server's. Behind it the
//! leaf on the left leads nowhere any more, the generation ends, and what was copied is retired.
//!
//! A server that dies before the CAS leaves leaves in motion, which the next one brings to rest, and
//! copies that nothing leads to, for the sweep. One that dies behind it leaves a leaf that leads to
//! leaves of no range: the next one cuts that, and the sweep frees them.

use super::super::descriptor::{DESCRIPTOR_BYTES, Descriptor, alloc_leaf};
use super::super::leaf::{Bound, Head, Header, Leaf, NEW, Pointer, SLOTS};
use super::super::record::Record;
use super::super::table::{Entry, RANGES_MAX, Table};
use super::{Operation, Owner, Tree};
use crate::compute_node::LocalGuard;
use crate::sync::lock;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::Result;
use darter_index::radix::drafts::Drafts;
use darter_index::radix::leaf::class_words;
use darter_index::radix::writes::Writes;
use darter_pool::AllocKind;
use darter_pool::size_class::class_bytes;

/// Leaves that go at a time. While they do, nobody writes them.
const GIVEN_MAX: usize = 1 << 16;
/// Leaves that are read, or put into motion, in one round trip.
const GROUP: usize = 64;
/// Upkeep gives leaves away when fewer than one in so many blocks of the node are free.
const FREE_SHARE: u64 = 16;
/// A node takes leaves if more than one in so many of its blocks are free.
const ROOM_SHARE: u64 = 8;
/// Epochs after which what was given away is free. They pass for its sake, and no more do.
const EPOCHS: u64 = 2;
/// Tables that others put in the place of the one that was read.
const TRIES: u32 = 100;

/// Why leaves are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Reason {
    /// Upkeep asks whether the node is almost full.
    AlmostFull,
    /// There was no room for a leaf.
    Full,
    /// Somebody wants it.
    Asked,
}

/// A leaf whose lock is held.
type Held = (LocalGuard<()>, u32);

/// The copy of a leaf, to be written when the place of the next one is known.
struct Open {
    number: u32,
    low: Bound,
    keys: Vec<u64>,
    records: Vec<Record>,
}

/// What is given away.
#[derive(Default)]
struct Gift {
    drafts: Drafts,
    writes: Writes,
    open: Option<Open>,
    /// The bound below it, and the number of the first copy.
    low: Option<Bound>,
    first: u32,
    /// The leaves' headers.
    headers: Vec<(u32, Header)>,
    /// What is retired when they are another server's.
    stale: Vec<(GlobalAddr, u64, AllocKind)>,
    keys: u64,
}

impl Tree {
    /// The low bounds of the leaf on the left of the upper half, and of the first leaf in it.
    fn upper_half(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let count = (self.by_low.len() / 2).min(GIVEN_MAX);
        let mut behind = self.by_low.keys().rev();
        let first = behind.nth(count.checked_sub(1)?)?.clone();
        Some((behind.next()?.clone(), first))
    }

    /// The leaves from this bound on are another server's.
    fn give(&mut self, bound: Bound, low: &[u8]) {
        for number in self.by_low.split_off(low).into_values() {
            self.numbers.remove(&number);
        }
        if let Some(span) = &mut self.span {
            span.high = (bound, Some(low.to_vec()));
        }
    }
}

impl<F: Fabric> Owner<F> {
    /// Whether leaves may go again: what has gone is free, and upkeep has seen the range grow since.
    fn may_give(&self, reason: Reason, epoch: u64) -> bool {
        let Some((gave, kept)) = *lock(&self.gave) else { return true };
        let has_grown = self.tree().by_low.len() * 4 > kept * 5;
        let is_free = epoch >= gave + EPOCHS;
        match reason {
            Reason::AlmostFull => is_free && has_grown,
            Reason::Full => is_free,
            Reason::Asked => true,
        }
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Gives the upper half of the range to another memory node if there is a reason to, and one that
    /// has room. Returns whether it did.
    ///
    /// # Errors
    /// Damage, those of the fabric.
    pub(in super::super) async fn give(&mut self, reason: Reason) -> Result<bool> {
        let owner = self.shared;
        let held = owner.index.held_nodes();
        if held.end.min(self.client.pool().nodes()) <= held.start + 1 {
            return Ok(false);
        }
        let _guard = self.lock_training().await;
        let epoch = self.client.epoch();
        if !owner.may_give(reason, epoch) {
            return Ok(false);
        }
        let Some(node) = self.taker(reason).await? else { return Ok(false) };
        let Some((left, low)) = owner.tree().upper_half() else { return Ok(false) };
        let held = self.lock_from(&left).await?;
        let mut gift = Gift::default();
        match self.copy(&mut gift, node, &held).await {
            Ok(true) => {}
            Ok(false) => {
                gift.drafts.discard(&mut self.client);
                return Ok(false);
            }
            Err(error) => {
                gift.drafts.discard(&mut self.client);
                return if error.is_out_of_space() { Ok(false) } else { Err(error) };
            }
        }
        let has_given = self.hand_over(&mut gift, node, &low).await?;
        if has_given {
            let kept = owner.tree().by_low.len();
            *lock(&owner.gave) = Some((epoch, kept));
            let ended = self.end_gift(gift, &held).await;
            if ended.is_err() {
                // The next owner ends it.
                owner.lose();
            }
            ended?;
        }
        Ok(has_given)
    }

    /// The node that is to take leaves, if there is one.
    async fn taker(&mut self, reason: Reason) -> Result<Option<u8>> {
        let Descriptor { node: own, .. } = self.shared.descriptor;
        let held = self.shared.index.held_nodes();
        let usage = self.shared.pool.usage(&mut self.client).await?;
        let is_other = |node: u8| node != own && held.contains(&node);
        let others = usage.nodes.iter().filter(|usage| is_other(usage.node) && !usage.is_absent);
        let Some(best) = others.min_by_key(|usage| (std::cmp::Reverse(usage.free), usage.node)) else {
            return Ok(None);
        };
        let own = usage.nodes.iter().find(|usage| usage.node == own);
        let (free, blocks) = own.map_or((0, 0), |own| (own.free, own.blocks));
        let has_room = best.free * ROOM_SHARE > best.blocks && best.free > free;
        let is_due = match reason {
            Reason::AlmostFull => free * FREE_SHARE < blocks && has_room,
            Reason::Full => has_room,
            Reason::Asked => true,
        };
        Ok(is_due.then_some(best.node))
    }

    /// Locks all leaves from the one with this low bound on, from left to right.
    async fn lock_from(&mut self, low: &[u8]) -> Result<Vec<Held>> {
        let (owner, mut held, mut next) = (self.shared, Vec::new(), Some(low.to_vec()));
        while let Some(low) = next {
            let number = owner.locate(&low)?;
            let guard = owner.locks.lock(u64::from(number)).await;
            if owner.locate(&low)? == number {
                held.push((guard, number));
                next = owner.bound_behind(&low);
            } else {
                next = Some(low);
            }
        }
        Ok(held)
    }

    /// Reads leaves whose locks are held, and mends what is not sound.
    async fn sound_leaves(&mut self, numbers: &[u32]) -> Result<Vec<Leaf>> {
        let layout = self.shared.descriptor.layout;
        let mut batch = self.client.batch();
        let reads: Vec<_> =
            numbers.iter().map(|&number| batch.read(self.word_of(number, 0), layout.words())).collect();
        let done = self.client.submit(batch).await?;
        let read: Vec<_> = reads.iter().map(|&read| Leaf::parse(layout, done.words(read))).collect();
        self.client.recycle(done);
        let mut leaves = Vec::with_capacity(numbers.len());
        for (&number, leaf) in numbers.iter().zip(read) {
            leaves.push(match leaf.filter(|leaf| self.is_sound(leaf)) {
                Some(leaf) => leaf,
                None => self.sound_leaf(number).await?,
            });
        }
        Ok(leaves)
    }

    /// Writes copies of all held leaves but the first to a node. Returns whether they are all that
    /// there are.
    async fn copy(&mut self, gift: &mut Gift, node: u8, held: &[Held]) -> Result<bool> {
        let numbers: Vec<u32> = held.iter().map(|&(_, number)| number).collect();
        let mut expected = numbers.get(1..).unwrap_or_default().iter().copied().chain([0]);
        let mut is_left = true;
        for numbers in numbers.chunks(GROUP) {
            for (&number, leaf) in numbers.iter().zip(self.sound_leaves(numbers).await?) {
                // One that has split by a write that failed has another neighbour.
                if expected.next() != Some(leaf.head.header.next) {
                    return Ok(false);
                }
                if !std::mem::take(&mut is_left) {
                    self.copy_leaf(gift, node, (number, &leaf)).await?;
                }
            }
        }
        let high = self.shared.high();
        self.end_copy(gift, node, high, 0).await?;
        gift.writes.flush(&mut self.client).await?;
        Ok(gift.first != 0)
    }

    /// Begins the copy of a leaf, and ends the one before.
    async fn copy_leaf(&mut self, gift: &mut Gift, node: u8, (number, leaf): (u32, &Leaf)) -> Result<()> {
        let layout = self.shared.descriptor.layout;
        let copy = alloc_leaf(&mut self.client, &mut gift.drafts, node, layout).await?;
        let mut low = leaf.head.low.clone();
        if gift.low.is_none() {
            // The bound between the ranges is both's, and the table's.
            (gift.low, gift.first) = (Some(low.clone()), copy);
        } else if let Bound::Blob(addr, class) = low {
            let word = self.copy_blob(gift, node, (addr, class)).await?;
            gift.stale.push((addr, class_bytes(class), AllocKind::Leaf));
            low = Bound::Blob(word, class);
        }
        self.end_copy(gift, node, low.clone(), copy).await?;
        let (mut keys, mut records) = (leaf.head.counted().to_vec(), Vec::new());
        for (slot, word) in keys.iter_mut().enumerate() {
            if layout.is_inline() {
                let record = leaf.record(slot).ok_or(self.shared.damage("a torn record"))?;
                records.push(Record { version: NEW, ..record.clone() });
            } else if let Some(pointer) = Pointer::from_word(*word) {
                let blob = (pointer.addr(), pointer.class());
                *word = *word & !Pointer::ADDRESS | self.copy_blob(gift, node, blob).await?.bits();
                gift.stale.push((pointer.addr(), pointer.bytes(), AllocKind::Leaf));
            }
        }
        gift.keys += keys.len() as u64;
        gift.headers.push((number, leaf.head.header));
        gift.stale.push((self.word_of(number, 0), layout.bytes(), AllocKind::Inner));
        gift.open = Some(Open { number: copy, low, keys, records });
        Ok(())
    }

    /// Writes the copy that is open, with what is on its right.
    async fn end_copy(&mut self, gift: &mut Gift, node: u8, high: Bound, next: u32) -> Result<()> {
        let Some(Open { number, low, keys, records }) = gift.open.take() else { return Ok(()) };
        let mut all = [0; SLOTS];
        all[..keys.len()].copy_from_slice(&keys);
        let header = Header { incarnation: NEW, count: keys.len() as u8, next };
        let head = Head { header, low, high, keys: all };
        let image = Leaf::image(self.shared.descriptor.layout, &head, &records);
        let addr = super::super::leaf::address(node, number);
        gift.writes.write(&mut self.client, addr, &image).await
    }

    async fn copy_blob(
        &mut self,
        gift: &mut Gift,
        node: u8,
        (addr, class): (GlobalAddr, u8),
    ) -> Result<GlobalAddr> {
        let words = self.client.read(addr, class_words(class)).await?;
        let copy = gift.drafts.alloc(&mut self.client, node, class_bytes(class), AllocKind::Leaf).await?;
        gift.writes.write(&mut self.client, copy, &words).await?;
        Ok(copy)
    }

    /// Makes the copies a range of the index: the keys are another server's then.
    async fn hand_over(&mut self, gift: &mut Gift, node: u8, low: &[u8]) -> Result<bool> {
        let (owner, mut tables) = (self.shared, Drafts::new());
        let bound = gift.low.clone().unwrap_or(Bound::None);
        for at_rest in std::iter::once(true).chain(std::iter::repeat_n(false, TRIES as usize)) {
            let (old, new) = match self.draft_range(gift, &mut tables, node, &bound).await {
                Ok(Some(tables)) => tables,
                other => {
                    tables.discard(&mut self.client);
                    gift.drafts.discard(&mut self.client);
                    return match other {
                        Err(error) if !error.is_out_of_space() => Err(error),
                        _ => Ok(false),
                    };
                }
            };
            if at_rest && let Err(error) = self.stop_given(gift).await {
                // Those in motion are mended when they are met.
                tables.discard(&mut self.client);
                gift.drafts.discard(&mut self.client);
                return Err(error);
            }
            let swapped = self.cas_or_lose(owner.index.ranges(), old.addr.bits(), new.bits()).await;
            if !matches!(swapped, Ok(false)) {
                tables.keep();
                gift.drafts.keep();
            }
            if swapped? {
                if !old.addr.is_null() {
                    gift.stale.push((old.addr, old.bytes(), AllocKind::Inner));
                }
                owner.tree().give(bound, low);
                owner.emptied.forget_from(low);
                owner.learning.discount(gift.keys);
                return Ok(true);
            }
            // Another range has given leaves meanwhile.
            tables.discard(&mut self.client);
        }
        gift.drafts.discard(&mut self.client);
        Ok(false)
    }

    /// Writes the descriptor of the copies, and a table with them in it. `None` if there are too many
    /// ranges.
    async fn draft_range(
        &mut self,
        gift: &Gift,
        tables: &mut Drafts,
        node: u8,
        bound: &Bound,
    ) -> Result<Option<(Table, GlobalAddr)>> {
        let owner = self.shared;
        let old = Table::read(&mut self.client, &owner.index).await?;
        let at = old.find(owner.descriptor.addr).ok_or(owner.moved())?;
        if old.entries.len() >= RANGES_MAX {
            return Ok(None);
        }
        let server = owner.index.server_of(node);
        let descriptor = tables.alloc(&mut self.client, node, DESCRIPTOR_BYTES, AllocKind::Inner).await?;
        let words = owner.index.of_range(descriptor, (node, server)).words(gift.first);
        let mut new = Table { number: old.number + 1, ..old.clone() };
        new.entries.insert(at + 1, Entry { low: bound.clone(), node, server, descriptor });
        let addr = tables.alloc(&mut self.client, owner.index.node, new.bytes(), AllocKind::Inner).await?;
        let mut batch = self.client.batch();
        batch.write(descriptor, &words);
        batch.write(addr, &new.words());
        self.client.complete(batch).await?;
        Ok(Some((old, addr)))
    }

    /// Puts the leaves that go into a motion that never ends: nobody proves anything by them.
    async fn stop_given(&mut self, gift: &Gift) -> Result<()> {
        for headers in gift.headers.chunks(GROUP) {
            let mut batch = self.client.batch();
            let cas = headers.iter().map(|&(number, header)| {
                batch.cas(self.word_of(number, 0), header.word(), header.stepped().word())
            });
            let cas: Vec<_> = cas.collect();
            let done = self.client.submit(batch).await?;
            let are_done = cas.iter().all(|&cas| done.swapped(cas));
            self.client.recycle(done);
            if !are_done {
                return Err(self.shared.damage("somebody else wrote a leaf's header"));
            }
        }
        Ok(())
    }

    /// Cuts the range off from what it has given away, and retires that.
    async fn end_gift(&mut self, mut gift: Gift, held: &[Held]) -> Result<()> {
        gift.writes.flush(&mut self.client).await?;
        if let Some(&(_, left)) = held.first() {
            let leaf = self.sound_leaf(left).await?;
            self.cut(left, &leaf).await?;
        }
        self.end_generation().await?;
        for (addr, bytes, kind) in gift.stale {
            self.client.retire(addr, bytes, kind);
        }
        Ok(())
    }

    /// Has the last leaf of the range lead nowhere, by a motion.
    ///
    /// # Errors
    /// Damage, those of the fabric.
    pub(super) async fn cut(&mut self, number: u32, leaf: &Leaf) -> Result<()> {
        let kept: Vec<usize> = (0..leaf.head.counted().len()).collect();
        let moving = Header { next: 0, ..leaf.head.header.stepped() };
        self.change(number, leaf, moving, &kept, &leaf.head.high).await
    }
}
