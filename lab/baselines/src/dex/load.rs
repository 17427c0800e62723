//! Bulk load: fills an empty index, of all owners, from strictly ascending keys, bottom up.
//!
//! The first leaf of each owner takes the place of the owner's empty leaf, and the topmost node the
//! place of the root. These are written last, so that nothing is visible before; a failed load frees
//! everything else. An index whose keys have all been deleted keeps its pages, and is loaded by puts. No
//! other client may write during the load. Owners that were opened before the load may go on with their outdated root: open
//! them after it.

use super::node::{CHILDREN_MAX, ENTRIES_MAX, Fences, NODE_BYTES, Node};
use super::write::word_of;
use super::{Operation, number_of};
use crate::lock_token::LockTokens;
use crate::remote_lock::acquire;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::drafts::Drafts;
use darter_index::radix::leaf as pair;
use darter_index::radix::writes::Writes;
use darter_index::{Condition, IndexError, KeyValue, Result, ScanRange};
use darter_pool::AllocKind;
use darter_pool::size_class::class_bytes;

/// A load in progress.
#[derive(Default)]
struct Loading {
    drafts: Drafts,
    writes: Writes,
    /// Pages that replace visible ones.
    last: Vec<Node>,
    /// The empty leaves.
    first: Vec<GlobalAddr>,
    /// The finished pages of the level, each with its high fence.
    made: Vec<(GlobalAddr, u64)>,
    open: Option<Node>,
    owner: usize,
    count: u64,
    last_key: u64,
}

impl<F: Fabric> Operation<'_, F> {
    /// Loads pairs; returns their number.
    pub(super) async fn load(&mut self, sorted: impl Iterator<Item = KeyValue> + Send) -> Result<u64> {
        self.flush().await?;
        let mut root = self.read_page(self.shared.root, self.shared.owners.count() > 1).await?;
        let mut loading = Loading::default();
        if root.level() > 1 || root.count() != self.shared.owners.count() {
            return self.load_by_puts(sorted).await;
        }
        for at in 0..root.count() {
            let leaf = self.read_page(root.child(at), false).await?;
            if leaf.count() > 0 {
                return Err(IndexError::NotEmpty);
            }
            loading.first.push(leaf.addr());
            loading.last.push(leaf);
        }
        let outcome = self.write_all(&mut loading, &mut root, sorted).await;
        match outcome {
            Ok(()) if loading.count > 0 => loading.drafts.keep(),
            _ => loading.drafts.discard(&mut self.client),
        }
        outcome.map(|()| loading.count)
    }

    /// Loads into an index that had keys, by one put per pair.
    async fn load_by_puts(&mut self, sorted: impl Iterator<Item = KeyValue> + Send) -> Result<u64> {
        if self.shared.owners.count() > 1 || !self.scan(&ScanRange::all(), 1).await?.is_empty() {
            return Err(IndexError::NotEmpty);
        }
        let (mut count, mut last) = (0, 0);
        for (key, value) in sorted {
            let number = number_of(&key)?;
            if count > 0 && number <= last {
                return Err(IndexError::NotSorted { at: count });
            }
            self.put(number, &value, Condition::Always).await?;
            (count, last) = (count + 1, number);
        }
        Ok(count)
    }

    async fn write_all(
        &mut self,
        loading: &mut Loading,
        root: &mut Node,
        sorted: impl Iterator<Item = KeyValue> + Send,
    ) -> Result<()> {
        let fill = |max: usize| (max * usize::from(self.shared.options.fill_percent) / 100).clamp(2, max);
        let (entries, children) = (fill(ENTRIES_MAX), fill(CHILDREN_MAX));
        for (key, value) in sorted {
            let number = number_of(&key)?;
            if loading.count > 0 && number <= loading.last_key {
                return Err(IndexError::NotSorted { at: loading.count });
            }
            self.make_leaf(loading, number, (entries, children)).await?;
            let word = if self.shared.has_blocks() {
                self.load_block(loading, &key, &value).await?
            } else {
                word_of(&value)?
            };
            if let Some(open) = &mut loading.open {
                open.push(number, word);
            }
            (loading.last_key, loading.count) = (number, loading.count + 1);
        }
        if loading.count == 0 {
            return Ok(());
        }
        self.end_part(loading, self.shared.owners.count()).await?;
        let mut level = 1;
        while loading.made.len() > CHILDREN_MAX {
            self.make_level(loading, level, children).await?;
            level += 1;
        }
        loading.writes.flush(&mut self.client).await?;
        let mut top = Node::new(root.addr(), level, Fences::ALL, root.is_shared());
        top.set_version(root.version());
        loading.made.iter().for_each(|&(child, high)| top.push_child(child, high));
        self.publish(loading, root.version(), top).await
    }

    /// Makes sure that a leaf is open that may take this key.
    async fn make_leaf(
        &mut self,
        loading: &mut Loading,
        key: u64,
        (entries, children): (usize, usize),
    ) -> Result<()> {
        let owner = self.shared.owners.of(key);
        if loading.open.is_none() || owner != loading.owner {
            self.end_part(loading, owner).await?;
            // The first leaf of an owner takes the place of the empty one.
            let part = self.shared.owners.part(owner);
            loading.open = Some(Node::new(loading.first[owner], 0, part, false));
            loading.owner = owner;
        } else if loading.open.as_ref().is_some_and(|open| open.count() >= entries) {
            let low = loading.last_key;
            self.end_leaf(loading, low).await?;
            let node = self.place(loading.made.len(), 0, children);
            let addr = loading.drafts.alloc(&mut self.client, node, NODE_BYTES, AllocKind::Inner).await?;
            let fences = Fences { low, high: self.shared.owners.part(owner).high };
            loading.open = Some(Node::new(addr, 0, fences, false));
        }
        Ok(())
    }

    /// Ends the open leaf at its owner's bound, and keeps the empty leaves of the owners up to the
    /// next one with keys.
    async fn end_part(&mut self, loading: &mut Loading, next: usize) -> Result<()> {
        let mut owner = 0;
        if let Some(open) = &loading.open {
            let high = open.fences().high;
            owner = loading.owner + 1;
            self.end_leaf(loading, high).await?;
        }
        for empty in owner..next {
            loading.made.push((loading.first[empty], self.shared.owners.part(empty).high));
        }
        Ok(())
    }

    async fn end_leaf(&mut self, loading: &mut Loading, high: u64) -> Result<()> {
        let Some(open) = loading.open.take() else { return Ok(()) };
        let mut leaf = Node::new(open.addr(), 0, Fences { high, ..open.fences() }, false);
        open.entries().for_each(|(key, word)| leaf.push(key, word));
        loading.made.push((leaf.addr(), high));
        if let Some(old) = loading.last.iter_mut().find(|old| old.addr() == leaf.addr()) {
            leaf.set_version(old.version());
            *old = leaf;
            return Ok(());
        }
        loading.writes.write(&mut self.client, leaf.addr(), leaf.sealed()).await
    }

    /// Returns the memory node of a page, the given number of its level: subtrees take turns.
    fn place(&self, number: usize, level: u8, children: usize) -> u8 {
        let below = self.shared.subtree_levels.saturating_sub(level + 1);
        let pages = children.saturating_pow(below.into()).max(1);
        (number / pages % usize::from(self.client.pool().nodes())) as u8
    }

    /// Replaces the pages made last by parents of them.
    async fn make_level(&mut self, loading: &mut Loading, level: u8, children: usize) -> Result<()> {
        let below = std::mem::take(&mut loading.made);
        let mut low = 0;
        for (number, group) in below.chunks(children).enumerate() {
            let node = self.place(number, level, children);
            let addr = loading.drafts.alloc(&mut self.client, node, NODE_BYTES, AllocKind::Inner).await?;
            let high = group[group.len() - 1].1;
            let fences = Fences { low, high };
            let mut inner = Node::new(addr, level, fences, self.shared.owners.share(fences));
            for &(child, high) in group {
                inner.push_child(child, high);
            }
            loading.writes.write(&mut self.client, addr, inner.sealed()).await?;
            loading.made.push((addr, high));
            low = high;
        }
        Ok(())
    }

    async fn load_block(&mut self, loading: &mut Loading, key: &[u8], value: &[u8]) -> Result<u64> {
        let class = pair::class_within(self.client.pool().object_bytes_max(), key.len(), value.len())?;
        let node = loading.open.as_ref().map_or(0, |open| open.addr().node());
        let addr = loading.drafts.alloc(&mut self.client, node, class_bytes(class), AllocKind::Leaf).await?;
        loading.writes.write(&mut self.client, addr, &pair::image(key, value)).await?;
        Ok(addr.bits() | u64::from(class) << 48)
    }

    /// Writes the pages in the places of visible ones, the root last, if no other client has changed
    /// it.
    async fn publish(&mut self, loading: &mut Loading, version: u64, mut top: Node) -> Result<()> {
        let (root, tokens) = (top.addr(), LockTokens::of(self.client.pool()));
        let lock = acquire(&tokens, &mut self.client, (root, Some(root.plus(8)))).await?;
        let fabric = self.client.pool().fabric().clone();
        let is_same = lock.beside == Some(version);
        let mut batch = self.client.batch();
        if is_same {
            // From here on the pages may be visible.
            loading.drafts.keep();
            for leaf in &mut loading.last {
                batch.write(leaf.addr(), leaf.sealed());
            }
            batch.fence().write(root.plus(8), &top.sealed()[1..]);
        }
        lock.token.unlock_in(&fabric, &mut batch, root);
        self.client.complete(batch).await?;
        lock.token.release();
        if !is_same {
            return Err(IndexError::NotEmpty);
        }
        self.cache().reset(top);
        Ok(())
    }
}
