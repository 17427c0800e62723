//! Builds nodes and pages from pairs in key order, bottom-up, in one pass: a bulk load, or what
//! follows a page that has too many pairs under one edge.
//!
//! The frames of the last key's path lie on a stack, one for each depth at which neighbours part.
//! Where the next key parts from the last one, all deeper frames are complete. A complete frame of
//! few pairs goes into the page of the frame above; a larger one becomes a node.

use super::hint::PageHint;
use super::nibble::{EDGES, END, EdgeRange, LAST, common, edge, identity_of};
use super::node::{self, SKIP_MAX, Slot};
use super::pair::{Maker, Pair, Place};
use crate::Result;
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::{AllocKind, Client};

/// A node to be, or a part of a page.
struct Frame {
    depth: usize,
    /// A key with the node's prefix.
    key: Vec<u8>,
    slots: [Slot; EDGES],
    /// Pairs under the edges from `lo` on that are in no page yet.
    run: Vec<Pair>,
    /// The first edge without a slot; beyond the last one when all have one.
    lo: u8,
    /// The pages that slots point to.
    pages: Vec<PageHint>,
}

impl Frame {
    fn new(depth: usize, key: &[u8]) -> Self {
        Self {
            depth,
            key: key.to_vec(),
            slots: [Slot::EMPTY; EDGES],
            run: Vec::new(),
            lo: END,
            pages: Vec::new(),
        }
    }

    fn is_node(&self) -> bool {
        self.lo > END
    }
}

/// A build under way.
pub(super) struct Builder {
    pub(super) maker: Maker,
    frames: Vec<Frame>,
    /// The last pair, whose frame the next one decides.
    last: Option<Pair>,
    /// Most pairs of a page.
    records_max: usize,
    /// Memory nodes to spread over, or the one for everything.
    homes: Homes,
}

/// Where what is built goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Homes {
    /// On this memory node.
    One(u8),
    /// Spread over so many, each node with its pages.
    All(u8),
}

impl Builder {
    /// A build of a subtree; of a whole tree if `with_root`: then there is a node at depth 0.
    pub(super) fn new(maker: Maker, records_max: usize, homes: Homes, with_root: bool) -> Self {
        let frames = if with_root { vec![Frame::new(0, &[])] } else { Vec::new() };
        Self { maker, frames, last: None, records_max, homes }
    }

    /// Adds a pair, whose key must be above all before it.
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

    /// Ends the build. Returns the node of all pairs, with its depth, when all its words are posted.
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
        let root = self.frames.pop().unwrap_or_else(|| Frame::new(0, &[]));
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

    /// Opens a frame of this depth unless one as deep is open.
    fn open(&mut self, depth: usize, key: &[u8]) {
        if self.frames.last().is_none_or(|frame| frame.depth < depth) {
            self.frames.push(Frame::new(depth, key));
        }
    }

    /// Puts a pair in the deepest frame.
    async fn settle<F: Fabric>(&mut self, client: &mut Client<F>, pair: Pair) -> Result<()> {
        let Some(mut frame) = self.frames.pop() else { return Ok(()) };
        let edge = edge(&pair.key, frame.depth);
        self.add(client, &mut frame, edge, vec![pair]).await?;
        self.frames.push(frame);
        Ok(())
    }

    /// Puts a complete frame in the one above it.
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

    fn home(&self, frame: &Frame) -> u8 {
        match self.homes {
            Homes::One(node) => node,
            Homes::All(nodes) => {
                let identity = identity_of(self.maker.keys, &frame.key, frame.depth);
                ((identity >> 22) % u64::from(nodes.max(1))) as u8
            }
        }
    }

    fn place(&self, frame: &Frame, hi: u8) -> Place {
        let identity = identity_of(self.maker.keys, &frame.key, frame.depth);
        Place { identity, depth: frame.depth, edges: EdgeRange { lo: frame.lo, hi }, home: self.home(frame) }
    }

    /// Adds the pairs under one edge, at most as many as a page holds.
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

    /// Gives the edges from the first without a slot to `hi` a slot: a page of the run, or NONE.
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

    /// Adds a child node, with chain nodes before it where it is too deep.
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

    /// Puts nodes of one child above a node until an edge of a node of depth `above` can skip what
    /// lies between.
    async fn chain<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        key: &[u8],
        above: usize,
        (mut addr, mut depth): (GlobalAddr, usize),
    ) -> Result<(GlobalAddr, usize)> {
        while depth - above - 1 > SKIP_MAX {
            let mut link = Frame::new(depth - 1 - SKIP_MAX, key);
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
        let image = node::image(place.identity, self.maker.born, frame.depth, &frame.slots, &frame.pages);
        self.maker.object(client, place.home, &image, AllocKind::Inner).await
    }
}
