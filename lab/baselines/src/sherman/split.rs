//! Splits: the new right node is written, the split node rewritten, its lock released, and then the
//! parent updated.
//!
//! Until the parent is updated, or forever if the writer dies before that, the sibling link leads
//! to the new node. The root splits in place: its contents move to two new nodes, so that its
//! address stays the same and no parent has to be updated.

use super::bound::{Bound, separator};
use super::entry::{Entry, Words, key_words};
use super::format::Format;
use super::nodes::{Change, is_harmless};
use super::page::{Body, Draft, LEVELS_MAX, Link, Page};
use super::search::entry_key;
use super::{Operation, Sherman, hopscotch, situations};
use crate::hocl::Locked;
use darter_fabric::{Fabric, OpKind};
use darter_index::checker::note;
use darter_index::radix::common_prefix;
use darter_index::radix::leaf as pair;
use darter_index::{IndexError, Result};
use darter_pool::{Client, PoolError};

/// Words of a block that are read for its key's length; they usually include the key.
const HEAD_WORDS: usize = 32;

/// A new node that its parent does not list yet, with its lower bound.
pub(crate) type Parted = (Vec<u8>, Link);

/// An entry with its whole key.
pub(crate) type Item = (Vec<u8>, Entry);

/// Returns the length of the prefix that digests omit between two fences.
fn prefix_between(format: &Format, low: &Bound, high: Option<&Bound>) -> usize {
    match high {
        Some(high) if format.key.is_none() && format.span.is_none() => {
            common_prefix(low.bytes(), high.bytes())
        }
        _ => 0,
    }
}

/// Returns a leaf's body between two fences.
pub(crate) fn leaf_body(format: &Format, low: &Bound, high: Option<&Bound>, items: &[Item]) -> Body {
    let prefix = prefix_between(format, low, high);
    let entry = |(key, entry): &Item| Entry { key: key_words(format, key, prefix), ..entry.clone() };
    Body::Leaf { prefix, entries: items.iter().map(entry).collect() }
}

impl Format {
    /// Returns the position at which a leaf's entries are split.
    fn middle(&self, items: &[Item]) -> usize {
        let Some(layout) = self.layout() else { return items.len() / 2 };
        let home = |(key, _): &Item| hopscotch::home_of(self, layout, &key_words(self, key, 0));
        hopscotch::middle(layout, &items.iter().map(home).collect::<Vec<_>>())
    }
}

/// Returns the position at which an inner node's children are split into halves of similar size.
fn middle(children: &[(Bound, Link)]) -> usize {
    let bytes = |(low, _): &(Bound, Link)| 9 + Bound::stored_bytes(low.code()).unwrap_or(0);
    let half = children.iter().map(bytes).sum::<usize>() / 2;
    let mut sum = 0;
    let at = children.iter().position(|child| {
        sum += bytes(child);
        sum > half
    });
    at.unwrap_or(0).clamp(1, children.len().saturating_sub(1).max(1))
}

impl<F: Fabric> Sherman<F> {
    /// Updates parents that may not list a node, because this compute node did not update them or a
    /// dead one did not.
    ///
    /// # Errors
    /// Errors of [`Sherman::post_separator`].
    pub(crate) async fn tell_parents(&self, client: &mut Client<F>) -> Result<()> {
        let untold = std::mem::take(&mut *self.shared.untold());
        for (level, parted, _) in untold {
            let mut operation = Operation::pin(&*self.shared, client, OpKind::Maintain).await?;
            operation.post_separator(level, Some(parted)).await?;
        }
        Ok(())
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Returns the keys in the blocks of some entries.
    async fn keys_of(&mut self, entries: &[Entry]) -> Result<Vec<Vec<u8>>> {
        let mut heads = Vec::with_capacity(entries.len());
        let mut batch = self.client.batch();
        let reads: Vec<_> = entries
            .iter()
            .map(|entry| batch.read(entry.block().addr, entry.block().words().min(HEAD_WORDS)))
            .collect();
        let done = self.client.submit(batch).await?;
        heads.extend(reads.iter().map(|&read| done.words(read).to_vec()));
        self.client.recycle(done);
        let mut batch = self.client.batch();
        let mut more = Vec::new();
        for (at, (head, entry)) in heads.iter().zip(entries).enumerate() {
            let (first, key) = pair::key_place(head).unwrap_or((usize::MAX / 2, 0));
            let words = (first + key).div_ceil(8);
            if words > entry.block().words() {
                let addr = entry.block().addr;
                return Err(IndexError::corrupt(addr, "a key longer than its block"));
            }
            if words > head.len() {
                more.push((at, batch.read(entry.block().addr, words)));
            }
        }
        if more.is_empty() {
            self.client.recycle(batch);
        } else {
            let done = self.client.submit(batch).await?;
            for (at, read) in more {
                heads[at] = done.words(read).to_vec();
            }
            self.client.recycle(done);
        }
        let key = |head: &Vec<u64>| {
            let (first, key) = pair::key_place(head).unwrap_or_default();
            bytemuck::cast_slice::<u64, u8>(head)[first..first + key].to_vec()
        };
        Ok(heads.iter().map(key).collect())
    }

    /// Returns a leaf's entries with their keys, in order.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`]; errors of the fabric.
    pub(crate) async fn items(&mut self, page: &Page) -> Result<Vec<Item>> {
        let format = &self.shared.format;
        let entries: Vec<Entry> = page.entries(format).collect();
        let keys = match format.key {
            Some(_) => entries.iter().filter_map(|entry| entry_key(format, entry)).collect(),
            None if entries.is_empty() => Vec::new(),
            None => self.keys_of(&entries).await?,
        };
        let mut items: Vec<Item> = keys.into_iter().zip(entries).collect();
        items.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(items)
    }

    /// Splits a full leaf, with one more entry, and unlocks it. Returns the node that the parent
    /// must list.
    ///
    /// # Errors
    /// Errors of the pool before any visible change; errors of the fabric.
    pub(crate) async fn split_leaf(
        &mut self,
        locked: &mut Locked,
        page: &Page,
        (key, payload): (&[u8], &Words),
    ) -> Result<Option<Parted>> {
        let mut items = self.items(page).await?;
        let at = items.partition_point(|(other, _)| &other[..] < key);
        let entry = Entry { key: Words::new(), payload: payload.clone(), lost: false };
        items.insert(at, (key.to_vec(), entry));
        let right = items.split_off(self.shared.format.middle(&items));
        let (Some((below, _)), Some((above, _))) = (items.last(), right.first()) else {
            return Err(IndexError::corrupt(page.addr, "a full leaf of one entry"));
        };
        let parts = separator(below, above).to_vec();
        let mut change = Change::default();
        let format = &self.shared.format;
        let split = async {
            let upper = Bound::make(&mut self.client, &mut change.fresh, &mut change.batch, &parts).await?;
            let lower = Bound::make(&mut self.client, &mut change.fresh, &mut change.batch, &parts).await?;
            let bodies = (
                leaf_body(format, &page.low, Some(&upper), &items),
                leaf_body(format, &lower, page.high.as_ref(), &right),
            );
            self.part(&mut change, locked, page, (bodies.0, upper), (bodies.1, lower)).await
        };
        let parted = split.await;
        if parted.as_ref().is_err_and(is_harmless) {
            change.fresh.discard(&mut self.client);
        }
        parted
    }

    /// Splits an inner node whose children no longer fit, and unlocks it.
    async fn split_inner(
        &mut self,
        change: &mut Change,
        locked: &mut Locked,
        page: &Page,
        mut children: Vec<(Bound, Link)>,
    ) -> Result<Option<Parted>> {
        let right = children.split_off(middle(&children));
        let lower = right.first().map_or_else(Bound::least, |(low, _)| low.clone());
        let upper =
            Bound::make(&mut self.client, &mut change.fresh, &mut change.batch, lower.bytes()).await?;
        let (left, right) = ((Body::Inner(children), upper), (Body::Inner(right), lower));
        self.part(change, locked, page, left, right).await
    }

    /// Writes the two halves of a node: the left one with its upper fence, the right one with its
    /// lower fence.
    async fn part(
        &mut self,
        change: &mut Change,
        locked: &mut Locked,
        page: &Page,
        (left, upper): (Body, Bound),
        (right, lower): (Body, Bound),
    ) -> Result<Option<Parted>> {
        let unfit = IndexError::corrupt(page.addr, "half of a split node does not fit in a node");
        let level = page.level;
        let parts = lower.bytes().to_vec();
        let right_link = self.shared.new_node(&mut self.client, &mut change.fresh, level).await?;
        let (high, sibling) = (page.high.clone(), page.sibling);
        let right = Draft { level, low: lower, high, sibling, body: right };
        let left = Draft { level, low: page.low.clone(), high: Some(upper), sibling: right_link, body: left };
        if self.shared.write_new(change, right_link, &right).is_none() {
            return Err(unfit);
        }
        let is_root = page.addr == self.shared.root.addr();
        let draft = if is_root {
            if level == LEVELS_MAX {
                return Err(IndexError::corrupt(page.addr, "the tree is too high"));
            }
            let left_link = self.shared.new_node(&mut self.client, &mut change.fresh, level).await?;
            if self.shared.write_new(change, left_link, &left).is_none() {
                return Err(unfit);
            }
            let bound = Bound::make(&mut self.client, &mut change.fresh, &mut change.batch, &parts).await?;
            let body = Body::Inner(vec![(Bound::least(), left_link), (bound, right_link)]);
            Draft { level: level + 1, low: Bound::least(), high: None, sibling: Link::NONE, body }
        } else {
            left
        };
        if !self.rewrite(change, page, &draft, vec![locked]).await? {
            return Err(unfit);
        }
        note(if is_root { situations::ROOT_SPLIT } else { situations::SPLIT });
        Ok((!is_root).then_some((parts, right_link)))
    }

    /// Adds the new node to the parents of a split node of `level`. If the pool has no room for
    /// that, the sibling link has to suffice.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`]; errors of the fabric.
    pub(crate) async fn post_separator(&mut self, mut level: u8, mut parted: Option<Parted>) -> Result<()> {
        while let Some((parts, link)) = parted {
            level += 1;
            let Some((mut locked, page, alive)) = self.lock_covering(&parts, level, None, Some(link)).await?
            else {
                return Ok(());
            };
            let known = page.child_low(page.last_child(|low| low <= &parts[..])) == parts;
            if known || !alive {
                // Another client has updated the parent, or has merged the node in between.
                return locked.end(&mut self.client).await;
            }
            let mut change = Change::default();
            match self.add_child(&mut change, &mut locked, &page, &parts, link).await {
                Ok(next) => {
                    locked.end(&mut self.client).await?;
                    parted = next;
                }
                Err(error) => {
                    if is_harmless(&error) {
                        change.fresh.discard(&mut self.client);
                    }
                    return match self.give_up(locked, error).await {
                        Err(IndexError::Pool(PoolError::OutOfSpace { .. })) => {
                            self.shared.note_untold(level - 1, (parts, link), true);
                            Ok(())
                        }
                        other => other,
                    };
                }
            }
        }
        Ok(())
    }

    async fn add_child(
        &mut self,
        change: &mut Change,
        locked: &mut Locked,
        page: &Page,
        parts: &[u8],
        link: Link,
    ) -> Result<Option<Parted>> {
        let bound = Bound::make(&mut self.client, &mut change.fresh, &mut change.batch, parts).await?;
        let mut draft = page.draft(&self.shared.format);
        let Body::Inner(children) = &mut draft.body else {
            return Err(IndexError::corrupt(page.addr, "a leaf above a leaf"));
        };
        children.insert(page.last_child(|low| low <= parts) + 1, (bound, link));
        let children = children.clone();
        if self.rewrite(change, page, &draft, vec![locked]).await? {
            return Ok(None);
        }
        self.split_inner(change, locked, page, children).await
    }
}
