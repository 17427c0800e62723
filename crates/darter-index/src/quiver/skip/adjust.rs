//! Chooses a table's prefix list, and replaces one table by the next.
//!
//! A table is filled before any other client can see it, and becomes current by one CAS of the root
//! word from the table that it replaces. The client that makes the change is pinned since before it
//! read the word, so the table that the word named cannot be freed in the meantime. A builder that
//! dies before the CAS leaves memory that the sweep finds.

use super::table::{self, DESCRIPTOR_BYTES, DESCRIPTOR_WORDS, Image, Size, Table};
use crate::Result;
use crate::checker::note;
use crate::ordered::LostNodes;
use crate::quiver::Quiver;
use crate::quiver::nibble::NibbleKey;
use crate::quiver::node::NODE_BYTES;
use crate::quiver::operation::Operation;
use crate::quiver::pair::Maker;
use crate::quiver::situations;
use crate::quiver::walk::{Met, Walk};
use crate::radix::choose::Summary;
use crate::radix::prefix_list::{AdjustReport, PrefixList};
use crate::radix::{TURNS_MAX, no_progress};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::{AllocKind, Client};

/// Cost of a verb in round trips, for the choice of the list.
const VERB_PRICE: f64 = 0.1;
/// Largest size of a table, in percent of the nodes' bytes.
const BUDGET_PERCENT: u64 = 25;
/// Entries that a table may always have, even if there are few nodes.
const BUDGET_MIN: u64 = 4096;

impl<F: Fabric> Quiver<F> {
    /// Whether sampled searches read too many nodes, so that another skip table would pay off.
    pub fn wants_adjust(&self) -> bool {
        self.shared.skip.sampling.wants_adjust()
    }

    /// Walks all nodes, chooses the prefix list that saves most round trips, and builds a table for
    /// it unless there is one. The lengths that it reports are in nibbles.
    ///
    /// # Errors
    /// Those of the fabric, and out of space: then the old table stays.
    pub async fn adjust(&self, client: &mut Client<F>) -> Result<AdjustReport> {
        self.shared.skip.sampling.adjusted();
        let choose = |summary: &Summary| {
            let budget = Size::entries_within(summary.node_bytes * BUDGET_PERCENT / 100).max(BUDGET_MIN);
            summary.choose(budget, VERB_PRICE)
        };
        self.adjust_by(client, choose, false).await
    }

    /// Builds a table of these lengths, in nibbles, regardless of the current table. Returns
    /// whether the new one became current.
    ///
    /// # Errors
    /// As [`Quiver::adjust`].
    pub async fn adjust_to(&self, client: &mut Client<F>, lengths: &[u8]) -> Result<bool> {
        Ok(self.adjust_by(client, |_| PrefixList::new(lengths), true).await?.rebuilt)
    }

    /// Replaces the current table by another one with the same lengths if any of it is on a memory
    /// node.
    ///
    /// # Errors
    /// Those of the fabric, and out of space.
    pub(in crate::quiver) async fn move_table_off(&self, client: &mut Client<F>, node: u8) -> Result<()> {
        for _ in 0..TURNS_MAX {
            let table = {
                let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
                operation.current_table().await?.1
            };
            let Some((descriptor, table)) = table else { return Ok(()) };
            if table.segments.iter().chain([&descriptor]).all(|part| part.node() != node) {
                return Ok(());
            }
            if table.list == PrefixList::NONE {
                self.replace_table(client, table.list, &Image::new(table.size)).await?;
            } else {
                self.adjust_to(client, &table.list.bytes()).await?;
            }
        }
        Err(no_progress(self.shared.words.skip))
    }

    /// Replaces the current table by one without entries and without lengths, unless it is such a table and
    /// no part of it is on a lost memory node. Upkeep makes another one when searches need it. The root word
    /// must not become zero, since then its versions would begin again.
    ///
    /// # Errors
    /// Those of the fabric, and out of space.
    pub(in crate::quiver) async fn cut_table_off(
        &self,
        client: &mut Client<F>,
        lost: LostNodes,
    ) -> Result<()> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
        let [word] = operation.client.read_words(self.shared.words.skip).await?;
        let Some(descriptor) = table::descriptor_of(word) else { return Ok(()) };
        let mut old = None;
        if !lost.contains(descriptor.node()) {
            let words = operation.client.read(descriptor, DESCRIPTOR_WORDS).await?;
            let table = Table::parse(&self.shared.keys, descriptor, &words)?;
            let is_there = table.segments.iter().all(|segment| !lost.contains(segment.node()));
            if is_there && table.list == PrefixList::NONE {
                return Ok(());
            }
            old = Some(table);
        }
        let is_linked =
            operation.link_table(word, PrefixList::NONE, &Image::new(Size::for_entries(0))).await?;
        if let Some(old) = old.filter(|_| is_linked) {
            operation.retire(descriptor, DESCRIPTOR_BYTES, AllocKind::Inner);
            for &segment in old.segments.iter().filter(|segment| !lost.contains(segment.node())) {
                operation.retire(segment, old.size.segment_bytes(), AllocKind::Inner);
            }
        }
        Ok(())
    }

    /// The prefix lengths of the current table, in nibbles.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    pub async fn prefix_list(&self, client: &mut Client<F>) -> Result<Vec<u8>> {
        let (table, _) = self.table_in_force(client).await?;
        Ok(table.map(|table| table.list.bytes()).unwrap_or_default())
    }

    /// As [`Quiver::adjust`], for maintenance and bulk loads: does not fail if the pool has no room
    /// for a table.
    pub(in crate::quiver) async fn adjust_if_there_is_room(&self, client: &mut Client<F>) -> Result<()> {
        match self.adjust(client).await {
            Err(error) if error.is_out_of_space() => Ok(()),
            adjusted => adjusted.map(drop),
        }
    }

    async fn adjust_by(
        &self,
        client: &mut Client<F>,
        choose: impl FnOnce(&Summary) -> PrefixList + Send,
        is_forced: bool,
    ) -> Result<AdjustReport> {
        let mut summary = Summary::default();
        let mut walk = Walk::new(false);
        let mut count = |met: &Met, _: &[u64]| {
            summary.note_node(met.above, met.node.depth, NODE_BYTES);
            summary.note_keys(met.path, met.page_bytes as f64, 0.0);
        };
        while !self.walk_on(client, &mut walk, &mut count).await? {}
        let list = choose(&summary);
        let size = Size::for_entries(summary.entries(list));
        let (table, epoch) = self.table_in_force(client).await?;
        let before = table.as_ref().map(|table| table.list.bytes()).unwrap_or_default();
        let stays = |table: Table| !is_forced && table.is_fit(list, size, epoch);
        if list == PrefixList::NONE || table.is_some_and(stays) {
            return Ok(AdjustReport { after: before.clone(), before, ..AdjustReport::default() });
        }
        let image = self.fill(client, list, size).await?;
        if self.replace_table(client, list, &image).await? {
            let (after, entries) = (list.bytes(), image.entries);
            return Ok(AdjustReport { before, after, entries, rebuilt: true });
        }
        Ok(AdjustReport { before, after: self.prefix_list(client).await?, ..AdjustReport::default() })
    }

    /// The current table, and the epoch at which it was read.
    async fn table_in_force(&self, client: &mut Client<F>) -> Result<(Option<Table>, u64)> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
        let (_, table) = operation.current_table().await?;
        Ok((table.map(|(_, table)| table), operation.client.epoch()))
    }

    /// The words of a table with all nodes that the list covers.
    async fn fill(&self, client: &mut Client<F>, list: PrefixList, size: Size) -> Result<Image> {
        let mut image = Image::new(size);
        let keys = self.shared.keys;
        let mut enter = |met: &Met, _: &[u64]| {
            let Some(key) = &met.key else { return };
            let mut key = NibbleKey::new(keys, key);
            for len in list.covering(met.above, met.node.depth) {
                image.enter(&keys, keys.express_of(key.identity(len)), len, met.node);
            }
        };
        let mut walk = Walk::new(true);
        while !self.walk_on(client, &mut walk, &mut enter).await? {}
        Ok(image)
    }

    /// One step of a walk, under its own pin.
    async fn walk_on(
        &self,
        client: &mut Client<F>,
        walk: &mut Walk,
        visit: &mut (impl FnMut(&Met, &[u64]) + Send),
    ) -> Result<bool> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
        walk.step(&mut operation, visit).await
    }

    /// Replaces the current table. Returns whether it did: another client may have been faster.
    async fn replace_table(&self, client: &mut Client<F>, list: PrefixList, image: &Image) -> Result<bool> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
        let (word, old) = operation.current_table().await?;
        if !operation.link_table(word, list, image).await? {
            return Ok(false);
        }
        if let Some((descriptor, table)) = old {
            operation.retire_table(descriptor, &table);
        }
        Ok(true)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// The root word, and the table that it names with the address of its descriptor.
    pub(super) async fn current_table(&mut self) -> Result<(u64, Option<(GlobalAddr, Table)>)> {
        let [word] = self.client.read_words(self.shared.words.skip).await?;
        let Some(at) = table::descriptor_of(word) else { return Ok((word, None)) };
        let words = self.client.read(at, DESCRIPTOR_WORDS).await?;
        Ok((word, Some((at, Table::parse(&self.shared.keys, at, &words)?))))
    }

    /// Makes a table, and links it in the place of the one that a root word names. Returns whether it did:
    /// another client may have been faster.
    async fn link_table(&mut self, word: u64, list: PrefixList, image: &Image) -> Result<bool> {
        let born = self.client.epoch();
        let mut maker = Maker::new(self.shared, born);
        let made = self.make_table(&mut maker, (list, born), image).await;
        let (descriptor, table) = match made {
            Ok(made) => made,
            Err(error) => {
                // Memory that a lost connection may have written is left to the sweep.
                if error.is_out_of_space() {
                    maker.discard(&mut self.client);
                }
                return Err(error);
            }
        };
        let at = self.shared.words.skip;
        let new = table::word_after(word, descriptor);
        if maker.link(&mut self.client, at, word, new).await? != word {
            note(situations::SKIP_TABLE_LOST);
            return Ok(false);
        }
        self.shared.skip.learn(new, table, born);
        Ok(true)
    }

    /// Makes the segments of a table, on all memory nodes in turn, and its descriptor. Returns the
    /// descriptor's address.
    async fn make_table(
        &mut self,
        maker: &mut Maker,
        (list, born): (PrefixList, u64),
        image: &Image,
    ) -> Result<(GlobalAddr, Table)> {
        let homes = self.client.pool().homes();
        let mut segments = Vec::new();
        for words in image.words.chunks(image.size.segment_words()) {
            let home = homes[segments.len() % homes.len()];
            segments.push(maker.object(&mut self.client, home, words, AllocKind::Inner).await?);
        }
        let table = Table { list, size: image.size, born, segments: segments.into() };
        let words = table.descriptor(&self.shared.keys);
        let descriptor = maker.object(&mut self.client, 0, &words, AllocKind::Inner).await?;
        Ok((descriptor, table))
    }

    /// Retires a table that is no longer current.
    fn retire_table(&mut self, descriptor: GlobalAddr, table: &Table) {
        let bytes = table.size.segment_bytes();
        let segments = table.segments.iter().map(|&segment| (segment, bytes));
        for (addr, bytes) in segments.chain([(descriptor, DESCRIPTOR_BYTES)]) {
            self.retire(addr, bytes, AllocKind::Inner);
        }
    }
}
