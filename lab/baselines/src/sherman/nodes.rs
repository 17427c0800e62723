//! Nodes under their locks: reading, repairing what a dead writer left half done, and writing whole
//! nodes.
//!
//! *Redo.* The death of its writer can interrupt the WRITE of a whole node, so the image is first
//! written to a second place:
//!
//! ```text
//! WRITE image → second place     WRITE state ← its address     WRITE words 1.. of the node     WRITE state ← 0     unlock
//! ```
//!
//! These verbs go in one doorbell batch, which executes in order if both places are on one memory
//! node. The next holder of the lock finds a state that names an image and copies the image into
//! place: the change takes effect as a whole or not at all. Readers ignore the state; they check
//! the consistency of the words.

use super::entry::{Entry, EntryState, repaired};
use super::format::{Format, HEADER_WORDS};
use super::hopscotch::{Layout, mark_dead};
use super::page::{
    Aim, DEAD, Draft, Link, Page, Position, is_alive, is_plausible, redo_image, redo_state, state_of,
    tag_with_size,
};
use super::walk::fetch_bounds;
use super::{Operation, Shared, situations};
use crate::hocl::Locked;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_index::checker::note;
use darter_index::radix::drafts::Drafts;
use darter_index::{IndexError, Result};
use darter_pool::{AllocKind, Client, PoolError};

/// The result of a READ under the lock.
pub(crate) enum Seen {
    /// The node, repaired if it was half written.
    Alive(Box<Page>),
    /// A node that is no longer in the tree.
    Dead,
    /// Another node, or none.
    Other,
}

/// A locked node, and whether another node, read with it, is alive.
type Covering = (Locked, Box<Page>, bool);

/// The result of moving right under locks.
enum Locking {
    /// This node's range holds the key.
    Covering(Covering),
    /// There is no such node: this is the last node that led on.
    DeadEnd(Link),
}

/// A change of whole nodes that is not visible yet: the objects allocated for it, and the WRITEs
/// that have to come first.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) fresh: Drafts,
    pub(crate) batch: Batch,
}

impl Change {
    /// Posts the collected WRITEs unless all of them go to `node`: then they may precede another
    /// batch there.
    async fn settle<F: Fabric>(&mut self, client: &mut Client<F>, node: u8) -> Result<()> {
        if self.batch.verbs().iter().any(|verb| verb.addr.node() != node) {
            let next = client.batch();
            client.complete(std::mem::replace(&mut self.batch, next)).await?;
        }
        Ok(())
    }
}

/// Records that a lock was taken over. No other action is needed: a half-done change shows in the
/// node, now or when it is locked next.
pub(crate) fn note_taken_over(locked: &Locked) {
    if locked.is_taken_over {
        note(situations::TAKEN_OVER);
    }
}

/// Returns whether an error occurred before any visible verb was posted.
pub(crate) fn is_harmless(error: &IndexError) -> bool {
    !matches!(error, IndexError::Fabric(_) | IndexError::Pool(PoolError::Fabric(_)))
}

impl Shared {
    /// Allocates a new node on a random memory node.
    ///
    /// # Errors
    /// Errors of the pool.
    pub(crate) async fn new_node<F: Fabric>(
        &self,
        client: &mut Client<F>,
        fresh: &mut Drafts,
        level: u8,
    ) -> Result<Link> {
        let node = (self.random() % u64::from(client.pool().nodes())) as u8;
        let format = &self.format;
        let bytes = if level == 0 { format.leaf_bytes() } else { format.node_bytes() };
        let addr = fresh.alloc(client, node, bytes, AllocKind::Inner).await?;
        Ok(Link::new(addr, tag_with_size(format, self.random(), level == 0)))
    }

    /// Drops the copy that leads to the node of this level whose range holds a key.
    pub(crate) fn drop_copy_above(&self, key: &[u8], level: u8) {
        if let Some(copy) = self.cache.find(Aim::At(key), level + 1) {
            self.cache.drop_copy(&copy);
        }
    }

    /// Adds the WRITE of a new node to a change; `None` if its contents do not fit.
    pub(crate) fn write_new(&self, change: &mut Change, link: Link, draft: &Draft) -> Option<()> {
        let stamp = self.stamp_after(0);
        let image = draft.image(&self.format, link.addr(), link.tag(), stamp)?;
        change.batch.write(link.addr(), &image);
        Some(())
    }
}

/// Marks a node as removed from the tree, atomically by one word. For a hopscotch leaf it then
/// marks all metadata, since they are read without that word. The leaf's contents stay until no
/// reader accepts them.
pub(crate) fn write_dead(format: &Format, batch: &mut Batch, page: &Page) {
    batch.write(page.addr, &[DEAD]);
    if let Some(layout) = format.layout().filter(|_| page.is_leaf()) {
        let mut words = page.words.to_vec();
        mark_dead(layout, &mut words);
        let area = layout.area_at();
        batch.write(page.addr.plus(area as u64 * 8), &words[area..]);
    }
}

/// Adds the WRITE of a node's image without its state. A hopscotch leaf's table is written before
/// its header: while the old header is there, no reader is led past the leaf to entries that it no
/// longer holds.
fn write_image(format: &Format, batch: &mut Batch, page: &Page, image: &[u64]) {
    let layout = format.layout().filter(|_| page.is_leaf());
    let end = layout.map_or(image.len(), Layout::vacancy_at);
    if end < image.len() {
        batch.write(page.addr.plus(end as u64 * 8), &image[end..]);
    }
    batch.write(page.addr.plus(8), &image[1..end]);
}

impl<F: Fabric> Operation<'_, F> {
    /// Reads a node whose lock the caller holds.
    ///
    /// # Errors
    /// [`IndexError::LostInWrite`] and [`IndexError::Corrupt`] for a node that cannot be repaired;
    /// errors of the fabric.
    pub(crate) async fn read_locked(&mut self, link: Link, by_hint: bool) -> Result<Seen> {
        let mut batch = self.client.batch();
        Ok(self.read_locked_with(link, &mut batch, by_hint, None).await?.0)
    }

    /// Locks the root.
    ///
    /// # Errors
    /// Errors of the pool and the fabric.
    pub(crate) async fn lock_root(&mut self) -> Result<Locked> {
        self.shared.locks.lock(&mut self.client, self.shared.root.addr()).await
    }

    /// Reads a node whose lock the caller holds, in a batch that may hold other verbs, and checks
    /// whether the node of a probe is alive.
    ///
    /// # Errors
    /// Errors of [`Sherman::read_locked`].
    pub(crate) async fn read_locked_with(
        &mut self,
        link: Link,
        batch: &mut Batch,
        by_hint: bool,
        probe: Option<Link>,
    ) -> Result<(Seen, bool)> {
        let format = &self.shared.format;
        let addr = link.addr();
        let read = batch.read(addr, format.words_of(link));
        let probe = probe.map(|link| (link, batch.read(link.addr(), HEADER_WORDS)));
        let done = self.client.submit(std::mem::take(batch)).await?;
        let words = done.words(read).to_vec();
        let alive = probe.is_none_or(|(link, read)| is_alive(done.words(read), link));
        self.client.recycle(done);
        let state = state_of(&words);
        let named =
            redo_image(state).filter(|&image| is_plausible(self.client.pool(), image, format.bytes_of(link)));
        let redone = match named {
            Some(image) => self.redo(link, image).await?,
            _ => None,
        };
        let page = match redone.or_else(|| Page::parse(format, addr, &words)) {
            Some(page) => page,
            None if by_hint => return Ok((Seen::Other, alive)),
            None if format.redo => {
                return Err(IndexError::corrupt(addr, "a node with inconsistent words"));
            }
            None => return Err(IndexError::LostInWrite { addr }),
        };
        if page.tag != link.tag() {
            return Ok((Seen::Other, alive));
        }
        let mut page = Box::new(page);
        if page.is_dead() {
            return Ok((Seen::Dead, alive));
        }
        if page.is_leaf() {
            self.repair_entries(&mut page).await?;
        }
        Ok((Seen::Alive(page), alive))
    }

    /// Copies a redo image to its node.
    async fn redo(&mut self, link: Link, image: GlobalAddr) -> Result<Option<Page>> {
        let format = &self.shared.format;
        let words = self.client.read(image, format.words_of(link)).await?;
        let Some(page) = Page::parse(format, link.addr(), &words).filter(|page| page.tag == link.tag())
        else {
            return Ok(None);
        };
        let mut batch = self.client.batch();
        write_image(format, &mut batch, &page, &words);
        batch.write(link.addr(), &[0]);
        self.client.complete(batch).await?;
        self.client.retire(image, format.bytes_of(link), AllocKind::Inner);
        note(situations::REDONE);
        Ok(Some(page))
    }

    /// Repairs inline entries whose writer died.
    async fn repair_entries(&mut self, page: &mut Page) -> Result<()> {
        let format = &self.shared.format;
        if format.span.is_some() {
            return self.repair_table(page).await;
        }
        let torn = |page: &Page, slot| page.entry(format, slot) == EntryState::Torn;
        let slots: Vec<usize> = (0..page.slots(format)).filter(|&slot| torn(page, slot)).collect();
        if slots.is_empty() {
            return Ok(());
        }
        if !format.is_inline() {
            let addr = page.addr;
            return Err(if format.redo {
                IndexError::corrupt(addr, "an entry that does not belong to its node")
            } else {
                IndexError::LostInWrite { addr }
            });
        }
        note(situations::ENTRY_MENDED);
        let mut batch = self.client.batch();
        for slot in slots {
            let entry = repaired(format, page.slot(format, slot));
            let image = Entry::image(format, (page.addr, page.stamp, slot), Some(&entry));
            batch.write(page.slot_addr(format, slot), &image[..1]);
            page.set_slot(format, slot, &image);
        }
        self.client.complete(batch).await?;
        Ok(())
    }

    /// Repairs a hopscotch leaf whose writer died.
    async fn repair_table(&mut self, page: &mut Page) -> Result<()> {
        let format = &self.shared.format;
        let Some(mut table) = page.table(format) else { return Ok(()) };
        if table.is_sound() && table.has_right_vacancy() {
            return Ok(());
        }
        note(situations::ENTRY_MENDED);
        let from = table.layout.vacancy_at();
        table.repair();
        let words = table.into_words();
        let mut batch = self.client.batch();
        batch.write(page.addr.plus(from as u64 * 8), &words[from..]);
        self.client.complete(batch).await?;
        page.words = words.into();
        Ok(())
    }

    /// Locks the leaf whose range holds a key, starting at a link, and reads it in a batch with
    /// other verbs.
    ///
    /// # Errors
    /// Errors of [`Sherman::lock_covering`].
    pub(crate) async fn lock_leaf(
        &mut self,
        key: &[u8],
        first: (Link, Batch),
    ) -> Result<(Locked, Box<Page>)> {
        let locked = self.lock_covering(key, 0, Some(first), None).await?;
        let missing = IndexError::corrupt(self.shared.root.addr(), "a tree without leaves");
        locked.map(|(locked, page, _)| (locked, page)).ok_or(missing)
    }

    /// Locks the node of `level` whose range holds a key, and returns whether the probed node is
    /// alive; `None` if the tree has no such level.
    ///
    /// # Errors
    /// Errors of [`Sherman::walk`] and [`Sherman::read_locked`].
    pub(crate) async fn lock_covering(
        &mut self,
        key: &[u8],
        level: u8,
        first: Option<(Link, Batch)>,
        probe: Option<Link>,
    ) -> Result<Option<Covering>> {
        let (mut hint, mut first) = match first {
            Some((link, batch)) => (Some(link), Some(batch)),
            None => (None, None),
        };
        let (mut dead_ends, mut repaired) = (0, 0);
        loop {
            let by_hint = dead_ends == 0;
            let link = match hint.take() {
                Some(link) => link,
                None => match self.link_to(Aim::At(key), level, !by_hint).await? {
                    Some(link) => link,
                    None => return Ok(None),
                },
            };
            let stuck_at = match self.lock_rightwards((key, level), link, by_hint, &mut first, probe).await? {
                Locking::Covering(covering) => return Ok(Some(covering)),
                Locking::DeadEnd(from) => from,
            };
            self.client.retried();
            dead_ends += 1;
            if dead_ends > 2 {
                self.repair_stuck(stuck_at, &mut repaired).await?;
            }
        }
    }

    /// Locks a node of `level`, then the nodes to its right, one at a time, until the key is in the
    /// range of one.
    ///
    /// # Errors
    /// Errors of [`Sherman::read_locked`].
    async fn lock_rightwards(
        &mut self,
        (key, level): (&[u8], u8),
        mut link: Link,
        by_hint: bool,
        first: &mut Option<Batch>,
        probe: Option<Link>,
    ) -> Result<Locking> {
        let mut left = None;
        loop {
            let locked = self.shared.locks.lock(&mut self.client, link.addr()).await?;
            note_taken_over(&locked);
            let mut batch = first.take().unwrap_or_else(|| self.client.batch());
            let by_hint = by_hint && left.is_none();
            let (seen, alive) = match self.read_locked_with(link, &mut batch, by_hint, probe).await {
                Ok(seen) => seen,
                Err(error) => return self.give_up(locked, error).await,
            };
            let mut right = None;
            if let Seen::Alive(mut page) = seen
                && page.level == level
            {
                fetch_bounds(&mut self.client, &mut page).await?;
                let position = page.place(Aim::At(key));
                let is_beyond = position == Some(Position::Beyond);
                if position == Some(Position::Within) {
                    return Ok(Locking::Covering((locked, page, alive)));
                }
                right = Some(page).filter(|page| is_beyond && !page.sibling.is_none());
            }
            locked.end(&mut self.client).await?;
            let Some(page) = right else { return Ok(Locking::DeadEnd(left.unwrap_or(link))) };
            self.note_moved_right(key, &page);
            left = Some(link);
            link = page.sibling;
            self.client.retried();
        }
    }

    /// Records that the key is to the right of this node, whose parent may not list its right
    /// neighbour.
    fn note_moved_right(&self, key: &[u8], page: &Page) {
        if let Some(high) = &page.high {
            let parted = (high.bytes().to_vec(), page.sibling);
            self.shared.note_untold(page.level, parted, false);
        }
        note(situations::MOVED_RIGHT);
        self.shared.drop_copy_above(key, page.level);
    }

    /// Completes, under the lock, the changes left half done at a node: a redo, torn entries, a
    /// dead right neighbour that is still linked. If the node itself is dead, the root's merge with
    /// its only child may be unfinished.
    ///
    /// # Errors
    /// Errors of [`Sherman::read_locked`].
    pub(crate) async fn repair(&mut self, link: Link) -> Result<()> {
        let locked = self.shared.locks.lock(&mut self.client, link.addr()).await?;
        match self.read_locked(link, false).await {
            Ok(Seen::Alive(page)) => self.absorb_dead_sibling(locked, page).await,
            Ok(_) if link != self.shared.root => {
                locked.end(&mut self.client).await?;
                self.absorb_dead_child().await
            }
            Ok(_) => locked.end(&mut self.client).await,
            Err(error) => self.give_up(locked, error).await,
        }
    }

    /// Ends an operation that failed under a lock. After an error of the fabric its verbs may still
    /// be in flight: then the lock is left to be taken over.
    ///
    /// # Errors
    /// The given error.
    pub(crate) async fn give_up<T>(&mut self, locked: Locked, error: IndexError) -> Result<T> {
        if is_harmless(&error) {
            locked.end(&mut self.client).await?;
        }
        Err(error)
    }

    /// Rewrites a node, with the WRITEs of `change` before it, and unlocks. Returns `false` and
    /// does nothing if the contents do not fit.
    ///
    /// # Errors
    /// Errors of the pool before any visible change; errors of the fabric.
    pub(crate) async fn rewrite(
        &mut self,
        change: &mut Change,
        page: &Page,
        draft: &Draft,
        locked: Vec<&mut Locked>,
    ) -> Result<bool> {
        let format = &self.shared.format;
        let Some(image) = draft.image(format, page.addr, page.tag, self.shared.stamp_after(page.stamp))
        else {
            return Ok(false);
        };
        let mut second = None;
        if format.redo {
            let mut drafts = Drafts::new();
            let node = page.addr.node();
            let bytes = format.bytes_of(page.link());
            let addr = drafts.alloc(&mut self.client, node, bytes, AllocKind::Inner).await?;
            change.batch.write(addr, &image);
            second = Some((addr, drafts));
        }
        change.settle(&mut self.client, page.addr.node()).await?;
        let next = self.client.batch();
        let mut batch = std::mem::replace(&mut change.batch, next);
        if let Some((addr, _)) = &second {
            batch.write(page.addr, &[redo_state(*addr)]);
        }
        write_image(format, &mut batch, page, &image);
        if second.is_some() {
            batch.write(page.addr, &[0]);
        }
        self.submit_and_unlock(batch, locked).await?;
        change.fresh.keep();
        if let Some((_, mut drafts)) = second {
            drafts.discard(&mut self.client);
        }
        Ok(true)
    }

    /// Posts the last batch under some locks, with the unlocking WRITEs if commands are combined.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub(crate) async fn submit_and_unlock(
        &mut self,
        mut batch: Batch,
        locked: Vec<&mut Locked>,
    ) -> Result<()> {
        for locked in locked {
            locked.unlock_in(self.client.pool().fabric(), &mut batch);
        }
        self.client.complete(batch).await?;
        Ok(())
    }

    /// Retires a node that has been replaced in the tree and is dead.
    pub(crate) fn retire_node(&mut self, page: &Page) {
        self.client.retire(page.addr, self.shared.format.bytes_of(page.link()), AllocKind::Inner);
    }
}
