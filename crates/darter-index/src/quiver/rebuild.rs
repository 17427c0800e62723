//! The replacement of a page according to its live pairs (`docs/quiver.md`, "Rebuild").

use super::build::Builder;
use super::content::{Content as Pairs, LostLeaf};
use super::descent::{Lookup, PageSearchEnd};
use super::hint::PageHint;
use super::map_copy::Copied;
use super::nibble::{EdgeRange, NibbleKey, edge};
use super::node::{self, Content, NodeAt, Slot};
use super::operation::Operation;
use super::page::{PageRef, Shape};
use super::pair::{Maker, Pair, Place};
use super::parent_slot::ParentSlot;
use super::plan::{Kind, Part, plan};
use super::situations;
use crate::checker::note;
use crate::ordered::LostNodes;
use crate::radix::seal::{SEAL, seal_at};
use crate::{IndexError, Result};
use darter_fabric::Fabric;
use darter_pool::AllocKind;

/// A page that is being replaced.
pub(super) struct Old {
    /// The slot that points to it.
    parent: ParentSlot,
    page: PageRef,
    shape: Shape,
    pub(super) pairs: Pairs,
    /// The memory node for the pages that replace it.
    home: u8,
}

/// A part that was made, and the slot to link.
struct MadePart {
    part: Part,
    maker: Maker,
    slot: Slot,
    /// The part's page, if it is one.
    page: Option<PageHint>,
}

impl Old {
    /// Adds pairs to the content for the new page if it need not be cut. Returns whether they were
    /// added.
    fn add(&mut self, added: &[Pair], records_max: usize) -> bool {
        let may_add = !added.is_empty() && added.len() <= self.room(records_max);
        may_add && self.pairs.add(added, self.shape.depth)
    }

    /// The number of live pairs.
    pub(super) fn len(&self) -> usize {
        self.pairs.pairs.len()
    }

    /// The number of pairs that can be added without cutting the page; 0 if it is being replaced.
    pub(super) fn room(&self, records_max: usize) -> usize {
        let edges = self.shape.edges;
        if self.parent.edges != edges {
            return 0;
        }
        // The pairs of a single edge are never cut: they become a node.
        let max = if edges.lo == edges.hi { usize::MAX } else { records_max };
        max.saturating_sub(self.len())
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Replaces the page of a key, which was found by a hint, if it has no room or is already being
    /// replaced.
    pub(super) async fn rebuild_remembered(&mut self, key: &[u8], page: PageRef) -> Result<()> {
        if let Some((parent, words)) = self.read_remembered(key, page).await? {
            return self.rebuild_read(parent, page, page.parse(words)?).await;
        }
        let mut descent = self.descent_by_nodes(key);
        match self.run(&mut descent).await? {
            PageSearchEnd::Page(found) => {
                let is_due = found.head.is_sealed
                    || match &found.spot {
                        Lookup::Absent { vacancy } => vacancy.is_none_or(|(_, word)| word.is_sealed()),
                        Lookup::Record { word, .. } | Lookup::Delta { word, .. } => word.is_sealed(),
                    };
                match found.from {
                    Some(from) if is_due => self.rebuild(from, found.head.page).await,
                    _ => Ok(()),
                }
            }
            PageSearchEnd::Sealed { .. } => self.help_above(key).await,
            _ => Ok(()),
        }
    }

    /// The words of a live page, and the slot that points to it, found by the remembered node;
    /// `None` if that node does not point to it.
    pub(super) async fn read_remembered(
        &mut self,
        key: &[u8],
        page: PageRef,
    ) -> Result<Option<(ParentSlot, Vec<u64>)>> {
        let mut path = NibbleKey::new(self.shared.keys, key);
        let Some(hit) = self.shared.cache.find(&mut path) else { return Ok(None) };
        let node = NodeAt::from(hit.node);
        let mut batch = self.client.batch();
        let node_read = batch.read(node.addr, node::NODE_WORDS);
        let page_read = batch.read(page.addr, page.words());
        let done = self.client.submit(batch).await?;
        let (words, page_words) = (done.words(node_read).to_vec(), done.words(page_read).to_vec());
        self.client.recycle(done);
        let lives = words[0] == hit.identity
            && node::proves(words[node::GUARD_AT], hit.node.born)
            && !node::is_sealed(&words);
        if !lives {
            return Ok(None);
        }
        node::verify(node, &words)?;
        let (lo, slot) = node::responsible(node.addr, &node::slots(&words), edge(key, node.depth))?;
        let is_present = matches!(slot.content(), Content::Page { addr, .. } if addr == page.addr);
        Ok(is_present.then(|| (ParentSlot::of(node, &words, lo), page_words)))
    }

    /// Replaces the page that a slot points to, or finishes its replacement.
    ///
    /// All parts are made before the first seal, so that a full pool leaves the page unchanged.
    /// Parts that another client's change invalidates are made again.
    pub(super) async fn rebuild(&mut self, parent: ParentSlot, page: PageRef) -> Result<()> {
        let read = self.read_page(page).await?;
        self.rebuild_read(parent, page, read).await
    }

    /// As [`Self::rebuild`], for a page whose words were read.
    pub(super) async fn rebuild_read(
        &mut self,
        parent: ParentSlot,
        page: PageRef,
        (shape, words): (Shape, Vec<u64>),
    ) -> Result<()> {
        let old = self.old_page(parent, page, shape, &words).await?;
        self.replace(old, words).await
    }

    /// As [`Self::rebuild_read`], and the pages that replace it are placed on the memory node `to`, unless
    /// other clients make them.
    pub(super) async fn rebuild_on(
        &mut self,
        to: u8,
        parent: ParentSlot,
        page: PageRef,
        (shape, words): (Shape, Vec<u64>),
    ) -> Result<()> {
        let old = self.old_page(parent, page, shape, &words).await?;
        self.replace(Old { home: to, ..old }, words).await
    }

    /// As [`Self::rebuild`], for a page whose pairs were also read.
    pub(super) async fn replace(&mut self, old: Old, words: Vec<u64>) -> Result<()> {
        self.replace_adding(old, words, &[]).await.map(drop)
    }

    /// As [`Self::replace`], and adds pairs of keys that the page is responsible for. Returns
    /// whether they were added: not if the page has one of the keys, if another client has replaced
    /// the page, or if it would have to be cut, since all clients that replace a page must cut it
    /// in the same places.
    pub(super) async fn replace_adding(&mut self, old: Old, words: Vec<u64>, added: &[Pair]) -> Result<bool> {
        let (_, is_linked, adds) = self.replace_and_return(old, words, added, LostNodes::NONE).await?;
        let are_added = is_linked && adds;
        if !added.is_empty() {
            note(if are_added { situations::INTENTS_ADDED } else { situations::INTENTS_NOT_ADDED });
        }
        Ok(are_added)
    }

    /// Replaces a page whose words were read by one without its leaves on lost memory nodes. Returns
    /// these leaves, unless another client has replaced the page.
    pub(super) async fn rebuild_around(
        &mut self,
        parent: ParentSlot,
        page: PageRef,
        (shape, words): (Shape, Vec<u64>),
        lost: LostNodes,
    ) -> Result<Vec<LostLeaf>> {
        let old = self.old_page_around(parent, page, shape, &words, lost).await?;
        let (old, is_linked, _) = self.replace_and_return(old, words, &[], lost).await?;
        Ok(if is_linked { old.pairs.lost } else { Vec::new() })
    }

    /// Replaces a page that was read around lost memory nodes, and adds pairs. Returns its final
    /// content, whether this client has linked the first part, and whether that has the added pairs.
    async fn replace_and_return(
        &mut self,
        mut old: Old,
        mut words: Vec<u64>,
        added: &[Pair],
        lost: LostNodes,
    ) -> Result<(Old, bool, bool)> {
        let Old { parent, page, shape, .. } = old;
        let records = self.shared.geometry.records;
        let mut adds = old.add(added, records);
        let mut made = self.make_all(&old).await?;
        let before = words.clone();
        self.seal_words(page, &shape, &mut words).await?;
        let is_changed = shape.sealable().any(|at| (words[at] ^ before[at]) & !SEAL != 0);
        if is_changed {
            self.discard_all(made);
            let home = old.home;
            old = Old { home, ..self.old_page_around(parent, page, shape, &words, lost).await? };
            adds = old.add(added, records);
            made = self.make_all(&old).await?;
        }
        let is_linked = self.link_all(&old, made).await?;
        Ok((old, is_linked, adds))
    }

    /// The content to replace, from the page's words.
    pub(super) async fn old_page(
        &mut self,
        parent: ParentSlot,
        page: PageRef,
        shape: Shape,
        words: &[u64],
    ) -> Result<Old> {
        self.old_page_around(parent, page, shape, words, LostNodes::NONE).await
    }

    /// As [`Self::old_page`], without the leaves on lost memory nodes.
    async fn old_page_around(
        &mut self,
        parent: ParentSlot,
        page: PageRef,
        shape: Shape,
        words: &[u64],
        lost: LostNodes,
    ) -> Result<Old> {
        let (keys, hi) = (self.shared.keys, parent.edges.hi);
        let pairs = Pairs::read_around(&mut self.client, keys, page, (&shape, words), hi, lost).await?;
        let home = self.home_instead(page.addr.node(), parent.identity);
        Ok(Old { parent, page, shape, pairs, home })
    }

    /// Makes the parts of a page that are not linked yet, without linking them.
    async fn make_all(&mut self, old: &Old) -> Result<Vec<MadePart>> {
        let mut made: Vec<MadePart> = Vec::new();
        let mut copied = old.parent.copied;
        for part in plan(&old.pairs.edges, old.shape.edges, self.shared.geometry.records) {
            if part.edges.lo > old.parent.edges.hi {
                note(situations::PART_FOUND);
                continue;
            }
            let mut maker = Maker::new(self.shared, self.client.epoch());
            match self.make(&mut maker, old, &part, &mut copied).await {
                Ok((slot, page)) => made.push(MadePart { part, maker, slot, page }),
                Err(error) => {
                    maker.discard(&mut self.client);
                    self.discard_all(made);
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    fn discard_all(&mut self, made: Vec<MadePart>) {
        for mut part in made {
            part.maker.discard(&mut self.client);
        }
    }

    /// Seals a page. Returns its final words.
    pub(super) async fn seal_page(&mut self, page: PageRef) -> Result<(Shape, Vec<u64>)> {
        let (shape, mut words) = self.read_page(page).await?;
        self.seal_words(page, &shape, &mut words).await?;
        Ok((shape, words))
    }

    async fn seal_words(&mut self, page: PageRef, shape: &Shape, words: &mut [u64]) -> Result<()> {
        seal_at(&mut self.client, page.addr, words, shape.sealable()).await
    }

    /// Links the parts that are not linked yet, from the last to the first. The client that links a
    /// part retires the leaves of the page that the part does not name. Returns whether this client
    /// linked the first part.
    async fn link_all(&mut self, old: &Old, made: Vec<MadePart>) -> Result<bool> {
        let is_parted = made.iter().any(|made| made.part.edges != old.shape.edges);
        let first = made.first().map(|made| made.part.kind);
        let mut is_going = true;
        for MadePart { part, mut maker, slot, page } in made.into_iter().rev() {
            if !is_going {
                maker.discard(&mut self.client);
                continue;
            }
            let is_first = part.edges.lo == old.shape.edges.lo;
            let at = node::slot_addr(old.parent.node.addr, part.edges.lo);
            let stored = |slot: Slot| slot.stored(old.parent.identity, part.edges.lo);
            let expected = stored(if is_first { old.parent.at.slot } else { Slot::EMPTY });
            let found = maker.link(&mut self.client, at, expected, stored(slot)).await?;
            if let Some(page) = page.filter(|_| found == expected) {
                let (parent, epoch) = (&old.parent, self.client.epoch());
                self.shared.cache.renew_page(parent.identity, parent.node.addr, &page, epoch);
            }
            if found == expected {
                let strays = old.pairs.strays.iter().filter(|(edge, _)| part.edges.contains(*edge));
                for leaf in maker.left.iter().chain(strays.map(|(_, leaf)| leaf)) {
                    self.retire_leaf(*leaf);
                }
            } else if !is_first && found & SEAL == 0 {
                note(situations::PART_FOUND);
            } else {
                // The page is unlinked, or a sealed slot shows that the node is being replaced.
                is_going = false;
            }
        }
        if !is_going {
            note(situations::REBUILD_LOST);
            return Ok(false);
        }
        note_outcome(first, is_parted);
        self.retire(old.page.addr, old.page.bytes(), AllocKind::Inner);
        Ok(true)
    }

    /// Makes a part. Returns the slot for it, and the page if it is one.
    async fn make(
        &mut self,
        maker: &mut Maker,
        old: &Old,
        part: &Part,
        copied: &mut Copied,
    ) -> Result<(Slot, Option<PageHint>)> {
        // The plan counts the pairs whose leaves are lost, so that all helpers cut in the same places.
        let (kind, pairs) = if old.pairs.lost.is_empty() {
            (part.kind, old.pairs.pairs.get(part.pairs.clone()))
        } else {
            let left = old.pairs.within(part.edges, old.shape.depth);
            (Kind::of(left.len(), self.shared.geometry.records), Some(left))
        };
        let Some(pairs) = pairs else {
            return Err(IndexError::corrupt(
                old.page.addr,
                "page was split differently than its pairs require",
            ));
        };
        match kind {
            Kind::None => Ok((Slot::none(part.edges.hi), None)),
            Kind::Page => {
                let place = Place {
                    identity: old.parent.identity,
                    depth: old.shape.depth,
                    edges: part.edges,
                    home: old.home,
                };
                let page = maker.page(&mut self.client, place, pairs).await?;
                maker.copy_map(old.parent.node.addr, copied, &page);
                Ok((Slot::of(&page), Some(page)))
            }
            Kind::Node => {
                let records = self.shared.geometry.records;
                let taken = std::mem::replace(maker, Maker::new(self.shared, self.client.epoch()));
                // All keys of the node above share this path: the nodes below spread them.
                let above = self.home_instead(old.parent.node.addr.node(), old.parent.identity);
                let stem = (old.shape.edges == EdgeRange::ALL).then_some(above);
                let mut builder = Builder::new(taken, records, self.client.pool().homes(), stem);
                let mut built = Ok(());
                for pair in pairs {
                    built = builder.push(&mut self.client, pair.clone()).await;
                    if built.is_err() {
                        break;
                    }
                }
                let slot = match built {
                    Ok(()) => builder.finish_below(&mut self.client, old.shape.depth).await,
                    Err(error) => Err(error),
                };
                *maker = builder.maker;
                slot.map(|slot| (slot, None))
            }
        }
    }
}

fn note_outcome(first: Option<Kind>, is_parted: bool) {
    note(match first {
        _ if is_parted => situations::PARTED,
        Some(Kind::Page) => situations::COPIED,
        Some(Kind::Node) => situations::DESCENDED,
        Some(Kind::None) | None => situations::EMPTIED,
    });
}
