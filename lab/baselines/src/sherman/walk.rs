//! The way to a node: down from the cache or the root, and to the right if a node has split.
//!
//! A [`Walk`] is a state machine, so that several walks share round trips: [`Walk::post`] adds the
//! READ it needs, [`Walk::absorb`] processes the result. A node found by a hint is accepted only by
//! its birth tag and fences. A node that stays inconsistent after some READs was left half done:
//! the walk then returns it to be locked and repaired.

use super::bound::{self, Bound};
use super::cache::Copy;
use super::page::{Aim, Link, Page, Position};
use super::{Operation, Shared, situations};
use darter_fabric::{Batch, Fabric, ReadId};
use darter_index::checker::note;
use darter_index::{IndexError, Result};
use darter_pool::Client;
use std::sync::Arc;

/// Inconsistent READs of a node before it is checked under its lock.
const TORN_MAX: u32 = 16;
/// Dead ends before a lock is taken to find the cause.
const DEAD_ENDS_MAX: u32 = 4;
/// More steps than any sound tree needs.
const STEPS_MAX: u32 = 1 << 16;

/// How the node being read was reached.
#[derive(Debug)]
enum ReachedBy {
    /// From the tree's root, or a node read by this walk.
    Tree,
    /// From a cached copy.
    Copy(Arc<Copy>),
    /// From its left neighbour.
    Sibling(Link),
}

#[derive(Debug)]
enum WalkState {
    Start,
    Node(Link),
    /// A node whose bounds have to be fetched.
    Bounds(Box<Page>),
    Reading(Link, ReadId),
    ReadingBounds(Box<Page>, Vec<Option<ReadId>>),
}

/// The end of a walk.
#[derive(Debug)]
pub(crate) enum WalkEnd {
    /// The link to the target node, which was not read.
    Link(Link),
    /// The target node.
    Page(Box<Page>),
    /// The tree has no such level.
    TooLow,
    /// This node has to be locked and repaired before a new walk.
    Stuck(Link),
}

/// A walk in progress.
#[derive(Debug)]
pub(crate) struct Walk<'k> {
    aim: Aim<'k>,
    /// The target level.
    level: u8,
    /// Whether the target node is read too.
    reads: bool,
    stage: WalkState,
    via: ReachedBy,
    /// The walk ends at the link to a node of the target level, unless that is the root.
    stops_above: bool,
    /// The right neighbour of the node at the walk's end, as listed by the node above.
    sibling: Option<Link>,
    /// Cached copies are no longer used.
    fresh: bool,
    torn: u32,
    dead_ends: u32,
    steps: u32,
}

impl<'k> Walk<'k> {
    pub(crate) fn new(aim: Aim<'k>, level: u8, reads: bool, fresh: bool) -> Self {
        let (stage, via) = (WalkState::Start, ReachedBy::Tree);
        let (stops_above, sibling) = (!reads, None);
        Self { aim, level, reads, stage, via, stops_above, sibling, fresh, torn: 0, dead_ends: 0, steps: 0 }
    }

    /// Creates a walk to the link of a leaf, which reads the leaf only if it is the root.
    pub(crate) fn above_leaf(aim: Aim<'k>, fresh: bool) -> Self {
        Self { stops_above: true, ..Self::new(aim, 0, true, fresh) }
    }

    /// Returns the right neighbour of the node at the walk's end, as listed by the node above, if
    /// known.
    pub(crate) fn sibling(&self) -> Option<Link> {
        self.sibling
    }

    /// Reads the target node again in the next step.
    pub(crate) fn again(&mut self, page: &Page) -> Option<Link> {
        self.stage = WalkState::Node(page.link());
        self.torn += 1;
        (self.torn > TORN_MAX).then(|| page.link())
    }

    /// Adds the READs that the next step needs. Returns the end if it needs none.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    pub(crate) fn post(&mut self, shared: &Shared, batch: &mut Batch) -> Result<Option<WalkEnd>> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(IndexError::corrupt(shared.root.addr(), "no path to a key's leaf"));
        }
        if matches!(self.stage, WalkState::Start) {
            let copy = if self.fresh { None } else { shared.cache.find(self.aim, self.level + 1) };
            let mut link = shared.root;
            self.via = ReachedBy::Tree;
            if let Some(copy) = copy {
                let at = copy.page.towards(self.aim);
                link = copy.page.child(at);
                let child_level = copy.page.level - 1;
                let ends = child_level == self.level && self.stops_above;
                if ends {
                    self.sibling = shared.sibling_of_child(&copy.page, at);
                }
                self.via = ReachedBy::Copy(copy);
                if ends {
                    return Ok(Some(WalkEnd::Link(link)));
                }
            }
            self.stage = WalkState::Node(link);
        }
        self.stage = match std::mem::replace(&mut self.stage, WalkState::Start) {
            WalkState::Node(link) => {
                WalkState::Reading(link, batch.read(link.addr(), shared.format.words_of(link)))
            }
            WalkState::Bounds(mut page) => {
                let reads = page.bounds_mut().map(|bound| bound.post(batch)).collect();
                WalkState::ReadingBounds(page, reads)
            }
            other => other,
        };
        Ok(None)
    }

    /// Processes the results of the READs. Returns the end once it is reached.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    pub(crate) fn absorb(&mut self, shared: &Shared, done: &Batch) -> Result<Option<WalkEnd>> {
        match std::mem::replace(&mut self.stage, WalkState::Start) {
            WalkState::Reading(link, read) => {
                match Page::parse(&shared.format, link.addr(), done.words(read)) {
                    Some(page) if page.tag == link.tag() && !page.is_dead() => {
                        self.arrive(shared, Box::new(page))
                    }
                    Some(_) => Ok(self.dead_end(shared, link)),
                    None => {
                        self.torn += 1;
                        if self.torn <= TORN_MAX {
                            self.stage = WalkState::Node(link);
                            return Ok(None);
                        }
                        self.torn = 0;
                        // A link of a copy may lead to memory that is not a node; a link of the
                        // tree leads to a node.
                        Ok(match self.via {
                            ReachedBy::Copy(_) => self.dead_end(shared, link),
                            _ => Some(WalkEnd::Stuck(link)),
                        })
                    }
                }
            }
            WalkState::ReadingBounds(mut page, reads) => {
                for (bound, read) in page.bounds_mut().zip(reads) {
                    if let Some(read) = read {
                        bound.absorb(done.words(read))?;
                    }
                }
                self.arrive(shared, page)
            }
            other => {
                self.stage = other;
                Ok(None)
            }
        }
    }

    /// Continues from a node that was read.
    fn arrive(&mut self, shared: &Shared, mut page: Box<Page>) -> Result<Option<WalkEnd>> {
        let Some(place) = page.place(self.aim) else {
            self.stage = WalkState::Bounds(page);
            return Ok(None);
        };
        let is_root = page.addr == shared.root.addr();
        match place {
            Position::Below => return Ok(self.dead_end(shared, page.link())),
            Position::Beyond => {
                if let ReachedBy::Copy(copy) = &self.via {
                    shared.cache.drop_copy(copy);
                }
                if page.sibling.is_none() {
                    return Err(IndexError::corrupt(page.addr, "an upper fence without a sibling"));
                }
                self.via = ReachedBy::Sibling(page.link());
                self.stage = WalkState::Node(page.sibling);
                return Ok(None);
            }
            Position::Within => {}
        }
        if page.level == self.level {
            return Ok(Some(if self.reads { WalkEnd::Page(page) } else { WalkEnd::Link(page.link()) }));
        }
        if is_root && page.level < self.level {
            return Ok(Some(WalkEnd::TooLow));
        }
        if page.level < self.level || page.children() == 0 {
            return Ok(self.dead_end(shared, page.link()));
        }
        if page.bounds_mut().any(|bound| bound.whole().is_none()) {
            self.stage = WalkState::Bounds(page);
            return Ok(None);
        }
        let at = page.towards(self.aim);
        let (link, level) = (page.child(at), page.level - 1);
        let ends = level == self.level && self.stops_above;
        if ends {
            self.sibling = shared.sibling_of_child(&page, at);
        }
        self.via = ReachedBy::Tree;
        if is_root {
            shared.cache.keep_root(*page);
        } else {
            shared.cache.keep(*page);
        }
        if ends {
            return Ok(Some(WalkEnd::Link(link)));
        }
        self.stage = WalkState::Node(link);
        Ok(None)
    }

    /// Starts over without copies, because the node at `link` is not the expected one.
    fn dead_end(&mut self, shared: &Shared, link: Link) -> Option<WalkEnd> {
        self.dead_ends += 1;
        self.fresh = true;
        self.stage = WalkState::Start;
        let via = std::mem::replace(&mut self.via, ReachedBy::Tree);
        if let ReachedBy::Copy(copy) = &via {
            note(situations::COPY_MISLED);
            shared.cache.drop_copy(copy);
        }
        if self.dead_ends <= DEAD_ENDS_MAX {
            return None;
        }
        Some(WalkEnd::Stuck(if let ReachedBy::Sibling(left) = via { left } else { link }))
    }
}

impl Shared {
    /// Returns the right neighbour of a node's child according to copies: the node's next child, or
    /// the first child of the node's right neighbour.
    fn sibling_of_child(&self, page: &Page, at: usize) -> Option<Link> {
        self.format.span?;
        if at + 1 < page.children() {
            return Some(page.child(at + 1));
        }
        let Some(high) = &page.high else { return Some(Link::NONE) };
        let next = self.cache.find(Aim::At(high.whole()?), page.level)?;
        let begins_there = next.page.level == page.level && next.page.low.whole() == high.whole();
        (begins_there && next.page.children() > 0).then(|| next.page.child(0))
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Walks to the target node, or to its link.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`]; errors of the pool and the fabric.
    pub(crate) async fn walk(&mut self, mut walk: Walk<'_>) -> Result<WalkEnd> {
        self.walk_on(&mut walk).await
    }

    /// Continues a walk to its end.
    ///
    /// # Errors
    /// Errors of [`Sherman::walk`].
    pub(crate) async fn walk_on(&mut self, walk: &mut Walk<'_>) -> Result<WalkEnd> {
        let mut repaired = 0;
        loop {
            let mut batch = self.client.batch();
            let mut end = walk.post(self.shared, &mut batch)?;
            if end.is_none() {
                let done = self.client.submit(batch).await?;
                end = walk.absorb(self.shared, &done)?;
                self.client.recycle(done);
            } else {
                self.client.recycle(batch);
            }
            match end {
                None => {}
                Some(WalkEnd::Stuck(link)) => {
                    self.repair_stuck(link, &mut repaired).await?;
                    let stops_above = walk.stops_above;
                    *walk = Walk { stops_above, ..Walk::new(walk.aim, walk.level, walk.reads, true) };
                }
                Some(end) => return Ok(end),
            }
        }
    }

    /// Returns the link to the target node of `level`; `None` if the tree has no such level.
    ///
    /// # Errors
    /// Errors of [`Sherman::walk`].
    pub(crate) async fn link_to(&mut self, aim: Aim<'_>, level: u8, fresh: bool) -> Result<Option<Link>> {
        match self.walk(Walk::new(aim, level, false, fresh)).await? {
            WalkEnd::Link(link) | WalkEnd::Stuck(link) => Ok(Some(link)),
            WalkEnd::Page(page) => Ok(Some(page.link())),
            WalkEnd::TooLow => Ok(None),
        }
    }

    /// Returns the link to the leaf of a key.
    ///
    /// # Errors
    /// Errors of [`Sherman::walk`].
    pub(crate) async fn leaf_of(&mut self, key: &[u8]) -> Result<Link> {
        Ok(self.link_to(Aim::At(key), 0, false).await?.unwrap_or(self.shared.root))
    }

    /// Returns the target node of `level`; `None` if the tree has no such level.
    ///
    /// # Errors
    /// Errors of [`Sherman::walk`].
    pub(crate) async fn page_at(
        &mut self,
        aim: Aim<'_>,
        level: u8,
        fresh: bool,
    ) -> Result<Option<Box<Page>>> {
        match self.walk(Walk::new(aim, level, true, fresh)).await? {
            WalkEnd::Page(page) => Ok(Some(page)),
            _ => Ok(None),
        }
    }

    /// Repairs the node at which a walk was stuck. The number of repairs is limited, since a sound
    /// tree needs one for each change left half done.
    pub(crate) async fn repair_stuck(&mut self, link: Link, repaired: &mut u32) -> Result<()> {
        *repaired += 1;
        if *repaired > 1000 {
            return Err(IndexError::corrupt(link.addr(), "a node that cannot be repaired"));
        }
        self.repair(link).await
    }
}

/// Fetches all bounds of a node.
///
/// # Errors
/// Errors of [`bound::fetch`].
pub(crate) async fn fetch_bounds<F: Fabric>(client: &mut Client<F>, page: &mut Page) -> Result<()> {
    if page.bounds().all(|bound: &Bound| bound.whole().is_some()) {
        return Ok(());
    }
    bound::fetch(client, page.bounds_mut()).await
}
