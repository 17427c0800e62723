//! Bulk load: fills an empty index from strictly ascending keys, bottom up.
//!
//! A node is written when the first key after it is known, which determines its upper fence. The
//! topmost node's contents become the root's by one rewrite. Nothing is visible before, so a failed
//! load frees everything.

use super::bound::{Bound, separator};
use super::entry::{Block, Entry, Words, key_words};
use super::format::HEADER_WORDS;
use super::nodes::{Change, Seen, is_harmless};
use super::page::{Body, Draft, Link, Page};
use super::split::{Item, leaf_body};
use super::{Operation, Sherman, hopscotch};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::leaf as pair;
use darter_index::radix::writes::Backlog;
use darter_index::{IndexError, KeyValue, Result};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client};
use smallvec::SmallVec;

/// Consecutive pairs on one memory node.
const PAIR_RUN: u64 = 64;

/// An inner node whose last child is not known yet.
struct Open {
    link: Link,
    low: Vec<u8>,
    children: Vec<(Vec<u8>, Link)>,
    bytes: usize,
}

struct Builder<'s, F: Fabric> {
    sherman: &'s Sherman<F>,
    change: Change,
    backlog: Backlog,
    /// The leaf being filled.
    leaf: Link,
    low: Vec<u8>,
    items: Vec<Item>,
    /// The inner nodes being filled, from level 1 up.
    inner: Vec<Open>,
    /// Nodes that were written, and nodes that were not yet.
    nodes: Vec<Link>,
    unwritten: Vec<Link>,
    /// Blocks of bounds that belong to no written node.
    loose: Vec<(GlobalAddr, u64)>,
    count: u64,
}

/// Returns the bytes that a bound takes in a node.
fn stored_bytes(key: &[u8]) -> usize {
    Bound::stored_bytes(Bound::short(key).code()).unwrap_or(0)
}

impl<F: Fabric> Sherman<F> {
    /// Fills an empty index.
    pub(crate) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        {
            let mut operation = Operation::pin(&*self.shared, client, OpKind::Load).await?;
            let locked = operation.lock_root().await?;
            let empty = operation.empty_root().await;
            locked.end(&mut operation.client).await?;
            empty?;
        }
        let mut builder = Builder {
            sherman: self,
            change: Change::default(),
            backlog: Backlog::default(),
            leaf: Link::NONE,
            low: Vec::new(),
            items: Vec::new(),
            inner: Vec::new(),
            nodes: Vec::new(),
            unwritten: Vec::new(),
            loose: Vec::new(),
            count: 0,
        };
        let outcome = match builder.run(client, sorted).await {
            Ok(draft) => self.publish_root(client, &draft).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => Ok(builder.count),
            Err(error) => {
                if is_harmless(&error) {
                    builder.give_back(client).await?;
                }
                Err(error)
            }
        }
    }

    async fn publish_root(&self, client: &mut Client<F>, draft: &Draft) -> Result<()> {
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Load).await?;
        let mut locked = operation.lock_root().await?;
        let published = async {
            let page = operation.empty_root().await?;
            operation.rewrite(&mut Change::default(), &page, draft, vec![&mut locked]).await
        };
        match published.await {
            Ok(_) => locked.end(&mut operation.client).await,
            Err(error) => operation.give_up(locked, error).await,
        }
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Returns the root, which the caller has locked, if it is a leaf without entries.
    async fn empty_root(&mut self) -> Result<Box<Page>> {
        match self.read_locked(self.shared.root, false).await? {
            Seen::Alive(page) if page.is_leaf() && page.is_empty(&self.shared.format) => Ok(page),
            Seen::Alive(_) => Err(IndexError::NotEmpty),
            _ => Err(IndexError::corrupt(self.shared.root.addr(), "the root is dead")),
        }
    }
}

impl<F: Fabric> Builder<'_, F> {
    /// Adds all keys. Returns the contents for the root.
    async fn run<I>(&mut self, client: &mut Client<F>, sorted: I) -> Result<Draft>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        self.leaf = self.new_node(client, 0).await?;
        for (key, value) in sorted {
            self.sherman.check_sizes(&key, Some(&value))?;
            if let Some((previous, _)) = self.items.last() {
                if key <= *previous {
                    return Err(IndexError::NotSorted { at: self.count });
                }
                let parts = separator(previous, &key).to_vec();
                if self.items.len() >= self.room(&parts) {
                    self.close_leaf(client, self.items.len(), parts).await?;
                }
            }
            let payload = self.payload(client, &key, &value).await?;
            self.items.push((key, Entry { key: Words::new(), payload, lost: false }));
            self.count += 1;
        }
        let root = self.finish(client).await?;
        self.backlog.send(client, &mut self.change.batch).await?;
        Ok(root)
    }

    /// Returns the number of entries for the leaf being filled, given this upper fence.
    fn room(&self, parts: &[u8]) -> usize {
        let format = &self.sherman.shared.format;
        if let Some(span) = format.span {
            return self.filled(span).max(1);
        }
        let fences = stored_bytes(&self.low).div_ceil(8) + stored_bytes(parts).div_ceil(8);
        let slots = format.node_words.saturating_sub(HEADER_WORDS + fences) / format.entry_words();
        self.filled(slots).max(1)
    }

    fn filled(&self, whole: usize) -> usize {
        whole * usize::from(self.sherman.shared.options.fill_percent.clamp(10, 100)) / 100
    }

    async fn payload(&mut self, client: &mut Client<F>, key: &[u8], value: &[u8]) -> Result<Words> {
        let format = &self.sherman.shared.format;
        if format.is_inline() {
            let mut words: Words = SmallVec::from_elem(0, format.payload_words());
            bytemuck::cast_slice_mut(&mut words)[..value.len()].copy_from_slice(value);
            return Ok(words);
        }
        let class = pair::class_within(client.pool().object_bytes_max(), key.len(), value.len())?;
        let node = (self.count / PAIR_RUN % u64::from(client.pool().nodes())) as u8;
        let addr = client.alloc(node, class_bytes(class), AllocKind::Leaf).await?;
        let image = pair::image(key, value);
        self.change.batch.write(addr, &image);
        self.backlog.add(client, &mut self.change.batch, image.len()).await?;
        Ok(SmallVec::from_slice(&[Block { addr, class }.word()]))
    }

    /// Allocates a node that is not visible to other clients.
    async fn new_node(&mut self, client: &mut Client<F>, level: u8) -> Result<Link> {
        let link = self.sherman.shared.new_node(client, &mut self.change.fresh, level).await?;
        self.change.fresh.keep();
        self.unwritten.push(link);
        Ok(link)
    }

    /// Writes the leaf being filled, which ends before `parts`, and begins the next. If the fences
    /// take more room than before, it becomes two leaves.
    async fn close_leaf(&mut self, client: &mut Client<F>, count: usize, parts: Vec<u8>) -> Result<()> {
        let mut fences = vec![(count, parts)];
        while let Some((count, parts)) = fences.pop() {
            let next = self.new_node(client, 0).await?;
            let upper = self.bound(client, &parts).await?;
            let lower = self.bound(client, &self.low.clone()).await?;
            let body = leaf_body(&self.sherman.shared.format, &lower, Some(&upper), &self.items[..count]);
            let draft = Draft { level: 0, low: lower, high: Some(upper), sibling: next, body };
            if self.write_node(client, self.leaf, &draft).await? {
                self.items.drain(..count);
                let child =
                    (std::mem::replace(&mut self.low, parts), std::mem::replace(&mut self.leaf, next));
                self.push_child(client, 0, child).await?;
                continue;
            }
            self.unwritten.retain(|link| *link != next);
            self.free_node(client, next);
            self.free_loose(client);
            let half = count / 2;
            if half == 0 {
                return Err(IndexError::corrupt(self.leaf.addr(), "an entry too large for a leaf"));
            }
            let between = separator(&self.items[half - 1].0, &self.items[half].0).to_vec();
            fences.push((count - half, parts));
            fences.push((half, between));
        }
        Ok(())
    }

    async fn bound(&mut self, client: &mut Client<F>, key: &[u8]) -> Result<Bound> {
        let Change { fresh, batch } = &mut self.change;
        let bound = Bound::make(client, fresh, batch, key).await?;
        fresh.keep();
        self.loose.extend(bound.object());
        Ok(bound)
    }

    fn free_loose(&mut self, client: &mut Client<F>) {
        for (addr, bytes) in self.loose.drain(..) {
            client.free_unpublished(addr, bytes, AllocKind::Leaf);
        }
    }

    fn free_node(&self, client: &mut Client<F>, link: Link) {
        let bytes = self.sherman.shared.format.bytes_of(link);
        client.free_unpublished(link.addr(), bytes, AllocKind::Inner);
    }

    /// Writes a node. Returns whether its contents fit.
    async fn write_node(&mut self, client: &mut Client<F>, link: Link, draft: &Draft) -> Result<bool> {
        if self.sherman.shared.write_new(&mut self.change, link, draft).is_none() {
            return Ok(false);
        }
        self.nodes.push(link);
        self.unwritten.retain(|unwritten| *unwritten != link);
        self.loose.clear();
        let words = self.sherman.shared.format.words_of(link);
        self.backlog.add(client, &mut self.change.batch, words).await?;
        Ok(true)
    }

    /// Adds a finished child of level `at` to the node being filled above it.
    async fn push_child(&mut self, client: &mut Client<F>, at: usize, child: (Vec<u8>, Link)) -> Result<()> {
        let (mut at, mut child) = (at, child);
        loop {
            if self.inner.len() == at {
                let link = self.new_node(client, at as u8 + 1).await?;
                let low = child.0.clone();
                self.inner.push(Open { link, low, children: vec![child], bytes: 8 });
                return Ok(());
            }
            let room = self.filled(self.sherman.shared.format.node_bytes() as usize - HEADER_WORDS * 8);
            let more = 9 + stored_bytes(&child.0);
            let open = &self.inner[at];
            let fences = stored_bytes(&open.low) + stored_bytes(&child.0) + 16;
            if open.children.len() < 2 || open.bytes + more + fences <= room {
                let open = &mut self.inner[at];
                open.bytes += more;
                open.children.push(child);
                return Ok(());
            }
            let next = self.new_node(client, at as u8 + 1).await?;
            let fresh = Open { link: next, low: child.0.clone(), bytes: 8, children: vec![child.clone()] };
            let full = std::mem::replace(&mut self.inner[at], fresh);
            let (low, link) = (full.low.clone(), full.link);
            let draft = self.inner_draft(client, at, full, Some((child.0, next))).await?;
            if !self.write_node(client, link, &draft).await? {
                return Err(IndexError::corrupt(link.addr(), "two children too large for a node"));
            }
            (at, child) = (at + 1, (low, link));
        }
    }

    async fn inner_draft(
        &mut self,
        client: &mut Client<F>,
        at: usize,
        open: Open,
        next: Option<(Vec<u8>, Link)>,
    ) -> Result<Draft> {
        let low = self.bound(client, &open.low).await?;
        let mut children: Vec<(Bound, Link)> = Vec::new();
        for (index, (key, link)) in open.children.iter().enumerate() {
            let bound = if index == 0 { Bound::least() } else { self.bound(client, key).await? };
            children.push((bound, *link));
        }
        let (high, sibling) = match next {
            Some((key, link)) => (Some(self.bound(client, &key).await?), link),
            None => (None, Link::NONE),
        };
        Ok(Draft { level: at as u8 + 1, low, high, sibling, body: Body::Inner(children) })
    }

    /// Returns half of the last leaf's entries if they do not fit in one hopscotch table.
    fn half_of_the_last(&self) -> Option<usize> {
        let format = &self.sherman.shared.format;
        let layout = format.layout()?;
        let home = |(key, _): &Item| hopscotch::home_of(format, layout, &key_words(format, key, 0));
        let homes: Vec<usize> = self.items.iter().map(home).collect();
        (hopscotch::places(layout, &homes).is_none() && homes.len() > 1).then_some(homes.len() / 2)
    }

    /// Writes the remaining nodes. Returns the contents for the root. The topmost node's own memory
    /// is not needed.
    async fn finish(&mut self, client: &mut Client<F>) -> Result<Draft> {
        while let Some(half) = self.half_of_the_last() {
            let between = separator(&self.items[half - 1].0, &self.items[half].0).to_vec();
            self.close_leaf(client, half, between).await?;
        }
        let items = std::mem::take(&mut self.items);
        let lower = self.bound(client, &self.low.clone()).await?;
        let body = leaf_body(&self.sherman.shared.format, &lower, None, &items);
        let mut draft = Draft { level: 0, low: lower, high: None, sibling: Link::NONE, body };
        let (mut link, mut low) = (self.leaf, self.low.clone());
        let mut at = 0;
        while at < self.inner.len() {
            if !self.write_node(client, link, &draft).await? {
                return Err(IndexError::corrupt(link.addr(), "a node that does not fit"));
            }
            self.push_child(client, at, (low, link)).await?;
            let placeholder = Open { link: Link::NONE, low: Vec::new(), children: Vec::new(), bytes: 0 };
            let open = std::mem::replace(&mut self.inner[at], placeholder);
            (link, low) = (open.link, open.low.clone());
            draft = self.inner_draft(client, at, open, None).await?;
            at += 1;
        }
        self.unwritten.retain(|unwritten| *unwritten != link);
        self.free_node(client, link);
        Ok(draft)
    }

    /// Frees everything built, none of which was ever visible.
    async fn give_back(mut self, client: &mut Client<F>) -> Result<()> {
        self.backlog.send(client, &mut self.change.batch).await?;
        let format = &self.sherman.shared.format;
        let free_pair = |client: &mut Client<F>, entry: &Entry| {
            if !format.is_inline() {
                client.free_unpublished(entry.block().addr, entry.block().bytes(), AllocKind::Leaf);
            }
        };
        for (_, entry) in &self.items {
            free_pair(client, entry);
        }
        for &link in &self.nodes {
            let addr = link.addr();
            let words = client.read(addr, format.words_of(link)).await?;
            let page = Page::parse(format, addr, &words);
            let Some(page) = page else { continue };
            if let Body::Leaf { entries, .. } = page.draft(format).body {
                for entry in &entries {
                    free_pair(client, entry);
                }
            }
            for (addr, bytes) in page.bounds().filter_map(Bound::object) {
                client.free_unpublished(addr, bytes, AllocKind::Leaf);
            }
            client.free_unpublished(link.addr(), format.bytes_of(link), AllocKind::Inner);
        }
        for link in std::mem::take(&mut self.unwritten) {
            self.free_node(client, link);
        }
        self.free_loose(client);
        Ok(())
    }
}
