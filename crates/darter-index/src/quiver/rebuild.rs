//! The replacement of a page by what its live pairs call for (`docs/quiver.md`, "Rebuild").

use super::build::{Builder, Homes};
use super::content::Content as Pairs;
use super::descent::{Descent, End, Purpose, Spot, Via};
use super::holes::QuiverHole;
use super::nibble::EDGES;
use super::node::{self, Content, Slot};
use super::operation::Operation;
use super::page::{PageRef, Shape};
use super::pair::{Maker, Place};
use super::plan::{Kind, Part, plan};
use super::situations;
use crate::Result;
use crate::checker::note;
use crate::radix::seal::{SEAL, seal_all};
use darter_fabric::{Fabric, mutant};
use darter_pool::AllocKind;

/// A page that is being replaced.
struct Old {
    /// The slot that points to it.
    via: Via,
    page: PageRef,
    shape: Shape,
    pairs: Pairs,
}

/// A part that is made, and what is to be linked.
struct MadePart {
    part: Part,
    maker: Maker,
    slot: Slot,
}

impl<F: Fabric> Operation<'_, F> {
    /// Replaces the page of a key, which was found by what the process remembers, if it has no room
    /// or is being replaced.
    pub(super) async fn rebuild_remembered(&mut self, key: &[u8]) -> Result<()> {
        let mut descent = Descent::by_nodes(self.shared, key, Purpose::Write, self.client.epoch());
        match self.run(&mut descent).await? {
            End::Page(found) => {
                let is_due = found.head.is_sealed
                    || match &found.spot {
                        Spot::Absent { vacancy } => vacancy.is_none_or(|(_, word)| word.is_sealed()),
                        Spot::Record { word, .. } | Spot::Delta { word, .. } => word.is_sealed(),
                    };
                match found.from {
                    Some(from) if is_due => self.rebuild(from, found.head.page).await,
                    _ => Ok(()),
                }
            }
            End::Sealed { .. } => self.help_above(key).await,
            _ => Ok(()),
        }
    }

    /// Replaces the page that a slot points to, or finishes its replacement.
    ///
    /// All that follows the page is made before the first seal: a pool that is full leaves the page
    /// as it was. What another client changes in between is made anew.
    pub(super) async fn rebuild(&mut self, via: Via, page: PageRef) -> Result<()> {
        let (shape, mut words) = self.read_page(page).await?;
        let mut old = self.old_page(via, page, shape, &words).await?;
        let mut made = self.make_all(&old).await?;
        let before = words.clone();
        self.seal_words(page, &shape, &mut words).await?;
        let is_changed =
            (0..words.len()).any(|at| shape.is_sealable(at) && (words[at] ^ before[at]) & !SEAL != 0);
        if is_changed && !mutant!("quiver-copy-made-before-the-seals") {
            self.discard_all(made);
            old = self.old_page(via, page, shape, &words).await?;
            made = self.make_all(&old).await?;
        }
        self.link_all(&old, made).await
    }

    async fn old_page(&mut self, via: Via, page: PageRef, shape: Shape, words: &[u64]) -> Result<Old> {
        let pairs = Pairs::read(&mut self.client, page, &shape, words).await?;
        Ok(Old { via, page, shape, pairs })
    }

    /// Makes all parts of a page, nothing linked.
    async fn make_all(&mut self, old: &Old) -> Result<Vec<MadePart>> {
        let edges = old.pairs.edges(old.shape.depth);
        let mut made: Vec<MadePart> = Vec::new();
        for part in plan(&edges, old.shape.lo, old.shape.hi, self.shared.geometry.records) {
            let mut maker = Maker::new(self.shared, self.client.epoch());
            match self.make(&mut maker, old, &part).await {
                Ok(slot) => made.push(MadePart { part, maker, slot }),
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

    /// Reads all words of a page.
    pub(super) async fn read_page(&mut self, page: PageRef) -> Result<(Shape, Vec<u64>)> {
        let mut words = self.client.read(page.addr, (page.bytes() / 8) as usize).await?;
        let shape = Shape::of(page, &words)?;
        words.truncate(shape.words());
        Ok((shape, words))
    }

    async fn seal_words(&mut self, page: PageRef, shape: &Shape, words: &mut [u64]) -> Result<()> {
        let is_last = |at: usize| at > 0 && at == shape.record_at(shape.records.saturating_sub(1));
        let spares_last = self.shared.holes.has(QuiverHole::CopyUnsealed);
        let seals = |at: usize, _| shape.is_sealable(at) && !(spares_last && is_last(at));
        seal_all(&mut self.client, page.addr, words, seals).await
    }

    /// Links the parts from the last to the first, as far as they are not there.
    async fn link_all(&mut self, old: &Old, mut made: Vec<MadePart>) -> Result<()> {
        let is_parted = made.len() > 1;
        let kind = made[0].part.kind;
        if !self.shared.holes.has(QuiverHole::FirstPartFirst) {
            made.reverse();
        }
        let slots = if is_parted {
            let words = self.read_node(old.via.node).await?;
            node::slots(&words)
        } else {
            [Slot::EMPTY; EDGES]
        };
        let mut is_going = true;
        let mut parts = Vec::new();
        for MadePart { part, mut maker, slot } in made {
            let is_first = part.lo == old.shape.lo;
            let at = node::slot_addr(old.via.node.addr, part.lo);
            let there = slots[usize::from(part.lo)].content();
            if !is_going || !is_first && there != Content::Empty {
                if is_going {
                    note(situations::PART_FOUND);
                }
                maker.discard(&mut self.client);
            } else {
                let expected = if is_first { old.via.at.slot } else { Slot::EMPTY };
                let found = Slot(maker.link(&mut self.client, at, expected.0, slot.0).await?);
                // A sealed slot says that the node is being replaced.
                is_going = if is_first { found == expected } else { !found.is_sealed() };
            }
            parts.push(part);
        }
        if !is_going {
            note(situations::REBUILD_LOST);
            return Ok(());
        }
        note_outcome(kind, is_parted);
        self.retire_page(old, &parts).await
    }

    /// Makes a part. Returns the slot that is to point to it.
    async fn make(&mut self, maker: &mut Maker, old: &Old, part: &Part) -> Result<Slot> {
        let pairs = &old.pairs.pairs[part.pairs.clone()];
        let home = old.via.node.addr.node();
        match part.kind {
            Kind::None => Ok(Slot::none(part.hi)),
            Kind::Page => {
                let place = Place {
                    identity: old.via.identity,
                    depth: old.shape.depth,
                    lo: part.lo,
                    hi: part.hi,
                    home,
                };
                let page = maker.page(&mut self.client, place, pairs).await?;
                Ok(Slot::page(part.hi, page.class, page.addr))
            }
            Kind::Node => {
                let records = self.shared.geometry.records;
                let taken = std::mem::replace(maker, Maker::dry(self.shared));
                let mut builder = Builder::new(taken, records, Homes::One(home), false);
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
                slot
            }
        }
    }

    /// Hands over a page that this operation has unlinked, and the leaves that no part has.
    async fn retire_page(&mut self, old: &Old, parts: &[Part]) -> Result<()> {
        let mut dry = Maker::dry(self.shared);
        for part in parts {
            self.make(&mut dry, old, part).await?;
        }
        let leaves = dry.left.into_iter().chain(old.pairs.strays.iter().copied());
        for leaf in leaves {
            self.retire_leaf(leaf);
        }
        self.retire(old.page.addr, old.page.bytes(), AllocKind::Inner);
        Ok(())
    }
}

fn note_outcome(first: Kind, is_parted: bool) {
    note(match first {
        _ if is_parted => situations::PARTED,
        Kind::None => situations::EMPTIED,
        Kind::Page => situations::COPIED,
        Kind::Node => situations::DESCENDED,
    });
}
