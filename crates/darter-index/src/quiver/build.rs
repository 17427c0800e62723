//! Builds nodes and pages from pairs in key order, bottom-up, in one pass: for a bulk load, or for
//! a page that has too many pairs under one edge.
//!
//! The frames of the last key's path are on a stack, one for each depth at which neighbours
//! diverge. When the next key diverges from the last one, all deeper frames are complete. A
//! complete frame of few pairs goes into the page of the frame above; a larger one becomes a node.

use super::hint::PageHint;
use super::nibble::{EDGES, END, EdgeRange, LAST, common, edge, identity_of, nibble};
use super::node::{self, SKIP_MAX, Slot};
use super::pair::{Maker, Pair, Place};
use crate::Result;
use crate::radix::prefix_hash::HashKeys;
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Client;

/// A future node, or a part of a page.
struct Frame {
    depth: usize,
    /// A key with the node's prefix.
    key: Vec<u8>,
    /// The memory node for the node and its pages.
    home: u8,
    slots: [Slot; EDGES],
    /// Pairs under the edges from `lo` on that are not yet in a page.
    run: Vec<Pair>,
    /// The first edge without a slot; greater than the last edge if all have one.
    lo: u8,
    /// The pages that the slots point to.
    pages: Vec<PageHint>,
}

impl Frame {
    fn new(depth: usize, key: &[u8], home: u8) -> Self {
        Self {
            depth,
            key: key.to_vec(),
            home,
            slots: [Slot::EMPTY; EDGES],
            run: Vec::new(),
            lo: END,
            pages: Vec::new(),
        }
    }

    fn is_node(&self) -> bool {
        self.lo > END
    }

    fn is_empty(&self) -> bool {
        self.lo == END && self.run.is_empty()
    }
}

/// A build in progress.
pub(super) struct Builder {
    pub(super) maker: Maker,
    frames: Vec<Frame>,
    /// The last pair; the next pair determines its frame.
    last: Option<Pair>,
    /// Most pairs in a page.
    records_max: usize,
    /// The memory nodes to spread over.
    homes: Vec<u8>,
    /// The memory node for the first node of each depth, if these stay with the node above.
    stem: Option<u8>,
}

/// The memory node, out of `homes`, for the node of a key's prefix of this depth and for its pages:
/// round-robin for prefixes that differ in their last byte, otherwise by a hash. A node and its
/// children are linked together.
fn home_of(keys: HashKeys, key: &[u8], depth: usize, homes: &[u8]) -> u8 {
    let (Some(above), false) = (depth.checked_sub(1), homes.is_empty()) else { return 0 };
    let hash = identity_of(keys, key, above & !1) >> 32;
    let turns: u64 = (above & !1..depth).filter_map(|at| nibble(key, at)).map(u64::from).sum();
    homes[((hash + turns) % homes.len() as u64) as usize]
}

impl Builder {
    /// Creates a builder for a subtree that is spread over the memory nodes `homes`. With a *stem* the
    /// first node of each depth goes to that memory node.
    pub(super) fn new(maker: Maker, records_max: usize, homes: Vec<u8>, stem: Option<u8>) -> Self {
        Self { maker, frames: Vec::new(), last: None, records_max, homes, stem }
    }

    /// Creates a builder for a whole tree: there is a node at depth 0, on the first memory node.
    /// Nodes that all keys share are also there, so that no key depends on more memory nodes than
    /// necessary.
    pub(super) fn of_tree(maker: Maker, records_max: usize, homes: Vec<u8>) -> Self {
        let mut builder = Self::new(maker, records_max, homes, Some(0));
        builder.open(0, &[]);
        builder
    }

    /// Adds a pair; its key must be greater than all earlier ones.
    ///
    /// # Errors
    /// Those of the pool and the fabric.
    pub(super) async fn push<F: Fabric>(&mut self, client: &mut Client<F>, pair: Pair) -> Result<()> {
        if let Some(last) = self.last.take() {
            let parting = common(&last.key, &pair.key);
            self.open(parting, &last.key);
            self.settle(client, last).await?;
            while let Some(frame) = self.frames.pop_if(|frame| frame.depth > parting) {
                self.open(parting, &frame.key);
                self.close(client, frame).await?;
            }
        }
        self.last = Some(pair);
        Ok(())
    }

    /// Ends the build. Returns the node of all pairs and its depth; all words have been posted.
    ///
    /// # Errors
    /// Those of the pool and the fabric.
    pub(super) async fn finish<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<(GlobalAddr, usize)> {
        if let Some(last) = self.last.take() {
            self.open(0, &last.key);
            self.settle(client, last).await?;
        }
        while self.frames.len() > 1
            && let Some(frame) = self.frames.pop()
        {
            self.close(client, frame).await?;
        }
        let root = self.frames.pop().unwrap_or_else(|| Frame::new(0, &[], 0));
        let depth = root.depth;
        Ok((self.complete(client, root).await?, depth))
    }

    /// Ends the build of a subtree below a node of depth `above`. Returns the slot that points to it.
    ///
    /// # Errors
    /// Those of the pool and the fabric.
    pub(super) async fn finish_below<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        above: usize,
    ) -> Result<Slot> {
        let key = self.last.as_ref().map(|pair| pair.key.clone()).unwrap_or_default();
        let top = self.finish(client).await?;
        let (addr, depth) = self.chain(client, &key, above, top).await?;
        Ok(Slot::node(depth - above - 1, addr))
    }

    /// Opens a frame of this depth unless a frame at least as deep is open.
    fn open(&mut self, depth: usize, key: &[u8]) {
        if self.frames.last().is_none_or(|frame| frame.depth < depth) {
            let is_first = self.frames.iter().all(Frame::is_empty);
            let home = self.stem.filter(|_| is_first);
            let hashed = || home_of(self.maker.keys, key, depth, &self.homes);
            self.frames.push(Frame::new(depth, key, home.unwrap_or_else(hashed)));
        }
    }

    /// Puts a pair into the deepest frame.
    async fn settle<F: Fabric>(&mut self, client: &mut Client<F>, pair: Pair) -> Result<()> {
        let Some(mut frame) = self.frames.pop() else { return Ok(()) };
        let edge = edge(&pair.key, frame.depth);
        self.add(client, &mut frame, edge, vec![pair]).await?;
        self.frames.push(frame);
        Ok(())
    }

    /// Puts a complete frame into the one above it.
    async fn close<F: Fabric>(&mut self, client: &mut Client<F>, frame: Frame) -> Result<()> {
        let Some(mut above) = self.frames.pop() else {
            self.frames.push(frame);
            return Ok(());
        };
        let edge = edge(&frame.key, above.depth);
        if frame.is_node() {
            let (key, depth) = (frame.key.clone(), frame.depth);
            let addr = self.complete(client, frame).await?;
            self.add_node(client, &mut above, &key, (addr, depth)).await?;
        } else {
            self.add(client, &mut above, edge, frame.run).await?;
        }
        self.frames.push(above);
        Ok(())
    }

    fn place(&self, frame: &Frame, hi: u8) -> Place {
        let identity = identity_of(self.maker.keys, &frame.key, frame.depth);
        Place { identity, depth: frame.depth, edges: EdgeRange { lo: frame.lo, hi }, home: frame.home }
    }

    /// Adds the pairs under one edge; a page must be able to hold them.
    async fn add<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        frame: &mut Frame,
        edge: u8,
        pairs: Vec<Pair>,
    ) -> Result<()> {
        if frame.run.len() + pairs.len() > self.records_max && !frame.run.is_empty() {
            self.cut(client, frame, edge - 1).await?;
        }
        frame.run.extend(pairs);
        Ok(())
    }

    /// Gives the edges from the first without a slot up to `hi` a slot: a page of the run, or NONE.
    async fn cut<F: Fabric>(&mut self, client: &mut Client<F>, frame: &mut Frame, hi: u8) -> Result<()> {
        if frame.lo > hi {
            return Ok(());
        }
        let run = std::mem::take(&mut frame.run);
        frame.slots[usize::from(frame.lo)] = if run.is_empty() {
            Slot::none(hi)
        } else {
            let page = self.maker.page(client, self.place(frame, hi), &run).await?;
            let slot = Slot::of(&page);
            frame.pages.push(page);
            slot
        };
        frame.lo = hi + 1;
        Ok(())
    }

    /// Adds a child node, with chain nodes before it if it is too deep.
    async fn add_node<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        frame: &mut Frame,
        key: &[u8],
        child: (GlobalAddr, usize),
    ) -> Result<()> {
        let (addr, depth) = self.chain(client, key, frame.depth, child).await?;
        let own = edge(key, frame.depth);
        self.cut_before(client, frame, own).await?;
        frame.slots[usize::from(own)] = Slot::node(depth - frame.depth - 1, addr);
        frame.lo = own + 1;
        Ok(())
    }

    /// Puts nodes with one child above a node until an edge of a node of depth `above` can skip the
    /// rest.
    async fn chain<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        key: &[u8],
        above: usize,
        (mut addr, mut depth): (GlobalAddr, usize),
    ) -> Result<(GlobalAddr, usize)> {
        while depth - above - 1 > SKIP_MAX {
            let mut link = Frame::new(depth - 1 - SKIP_MAX, key, addr.node());
            let only = edge(key, link.depth);
            self.cut_before(client, &mut link, only).await?;
            link.slots[usize::from(only)] = Slot::node(SKIP_MAX, addr);
            link.lo = only + 1;
            depth = link.depth;
            addr = self.complete(client, link).await?;
        }
        Ok((addr, depth))
    }

    async fn cut_before<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        frame: &mut Frame,
        own: u8,
    ) -> Result<()> {
        match own.checked_sub(1) {
            Some(hi) => self.cut(client, frame, hi).await,
            None => Ok(()),
        }
    }

    /// Writes a frame's node.
    async fn complete<F: Fabric>(&mut self, client: &mut Client<F>, mut frame: Frame) -> Result<GlobalAddr> {
        self.cut(client, &mut frame, LAST).await?;
        let place = self.place(&frame, LAST);
        let born = self.maker.born;
        let image = |addr| node::image(addr, place.identity, born, frame.depth, &frame.slots, &frame.pages);
        self.maker.node(client, place.home, image).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quiver::{Quiver, QuiverOptions};
    use crate::{Condition, OrderedIndex};
    use darter_fabric::{Local, OpKind, block_on};
    use darter_pool::{Pool, PoolOptions};

    /// Siblings whose prefixes have the same whole bytes were all on one memory node.
    #[test]
    fn siblings_are_on_all_memory_nodes_alike() {
        let keys = HashKeys::new([5, 6, 7, 8]);
        for depth in 1..=6 {
            let mut taken = [0; 4];
            for sibling in 0..16_u8 {
                let low = if depth % 2 == 1 { sibling << 4 } else { sibling };
                let mut key = *b"pear";
                key[(depth - 1) / 2] = low;
                taken[usize::from(home_of(keys, &key, depth, &[0, 1, 2, 3]))] += 1;
            }
            assert_eq!(taken, [4; 4], "depth {depth}");
        }
    }

    /// The number of pages that can be read with only the first memory node, and of all pages.
    async fn pages(quiver: &Quiver<Local>, client: &mut Client<Local>) -> (usize, usize) {
        let mut client = client.pin(OpKind::Maintain).await.unwrap();
        let [root] = client.read_words(quiver.shared.words.root).await.unwrap();
        let node::Content::Node { addr, .. } = Slot::from_root_word(root).content() else {
            panic!("no root")
        };
        let (mut without, mut all, mut nodes) = (0, 0, vec![(addr, true)]);
        while let Some((addr, above)) = nodes.pop() {
            let on_first = above && addr.node() == 0;
            let slots = node::slots(&client.read(addr, node::NODE_WORDS).await.unwrap());
            let count = node::pages(&slots).count();
            (without, all) = (without + if on_first { count } else { 0 }, all + count);
            nodes.extend(node::children(&slots).map(|(_, _, addr)| (addr, on_first)));
        }
        (without, all)
    }

    /// The node of a prefix shared by all keys was on any memory node, so a client that could not
    /// reach that memory node lost all keys.
    #[test]
    fn what_all_keys_share_is_on_the_first_memory_node() {
        for (seed, grows) in (0..8).flat_map(|seed| [(seed, true), (seed, false)]) {
            let options = PoolOptions { secret: Some([seed; 4]), ..PoolOptions::default() };
            let pool = block_on(Pool::create(Local::memory(4 << 20, 3).unwrap(), &options)).unwrap();
            let mut client = pool.client().unwrap();
            let options = QuiverOptions { page_records: 8, page_delta: 3, ..QuiverOptions::default() };
            let quiver = block_on(Quiver::open_or_create(&mut client, options)).unwrap();
            let keys = (0..900).map(|number| format!("pear-{number:05}").into_bytes());
            if grows {
                for key in keys {
                    block_on(quiver.put(&mut client, &key, b"green", Condition::Always)).unwrap();
                }
            } else {
                let mut pairs = keys.map(|key| (key, b"green".to_vec()));
                block_on(quiver.bulk_load(&mut client, &mut pairs)).unwrap();
            }
            let (without, all) = block_on(pages(&quiver, &mut client));
            assert!(0 < without && without < all, "{without} of {all} pages, grown: {grows}");
        }
    }
}
