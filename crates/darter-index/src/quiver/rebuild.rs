//! The replacement of a page by what its live pairs call for (`docs/quiver.md`, "Rebuild").

use super::build::{Builder, Homes};
use super::content::Content as Pairs;
use super::descent::{Descent, End, Purpose, Spot};
use super::holes::QuiverHole;
use super::map_copy::Copied;
use super::node::{self, Slot};
use super::operation::Operation;
use super::page::{PageRef, Shape};
use super::pair::{Maker, Place};
use super::plan::{Kind, Part, plan};
use super::situations;
use super::via::Via;
use crate::checker::note;
use crate::radix::seal::{SEAL, seal_all};
use crate::{IndexError, Result};
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
        let pairs = Pairs::read(&mut self.client, page, &shape, words, via.edges.hi).await?;
        Ok(Old { via, page, shape, pairs })
    }

    /// Makes the parts of a page that are not linked, and links nothing.
    async fn make_all(&mut self, old: &Old) -> Result<Vec<MadePart>> {
        let mut made: Vec<MadePart> = Vec::new();
        let mut copied = old.via.copied;
        for part in plan(&old.pairs.edges, old.shape.edges, self.shared.geometry.records) {
            if part.edges.lo > old.via.edges.hi {
                note(situations::PART_FOUND);
                continue;
            }
            let mut maker = Maker::new(self.shared, self.client.epoch());
            match self.make(&mut maker, old, &part, &mut copied).await {
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

    async fn seal_words(&mut self, page: PageRef, shape: &Shape, words: &mut [u64]) -> Result<()> {
        let is_last = |at: usize| at > 0 && at == shape.record_at(shape.records.saturating_sub(1));
        let spares_last = self.shared.holes.has(QuiverHole::CopyUnsealed);
        let seals = |at: usize, _| shape.is_sealable(at) && !(spares_last && is_last(at));
        seal_all(&mut self.client, page.addr, words, seals).await
    }

    /// Links the parts from the last to the first, as far as they are not there. Who links a part
    /// hands over the leaves of the page that the part does not name.
    async fn link_all(&mut self, old: &Old, mut made: Vec<MadePart>) -> Result<()> {
        let is_parted = made.iter().any(|made| made.part.edges != old.shape.edges);
        let first = made.first().map(|made| made.part.kind);
        if !self.shared.holes.has(QuiverHole::FirstPartFirst) {
            made.reverse();
        }
        let mut is_going = true;
        for MadePart { part, mut maker, slot } in made {
            if !is_going {
                maker.discard(&mut self.client);
                continue;
            }
            let is_first = part.edges.lo == old.shape.edges.lo;
            let at = node::slot_addr(old.via.node.addr, part.edges.lo);
            let expected = if is_first { old.via.at.slot } else { Slot::EMPTY };
            let found = Slot(maker.link(&mut self.client, at, expected.0, slot.0).await?);
            if found == expected || mutant!("quiver-leaves-of-a-found-part-retired") {
                let strays = old.pairs.strays.iter().filter(|(edge, _)| part.edges.contains(*edge));
                for leaf in maker.left.iter().chain(strays.map(|(_, leaf)| leaf)) {
                    self.retire_leaf(*leaf);
                }
            } else if !is_first && !found.is_sealed() {
                note(situations::PART_FOUND);
            } else {
                // The page is unlinked, or a sealed slot says that the node is being replaced.
                is_going = false;
            }
        }
        if !is_going {
            note(situations::REBUILD_LOST);
            return Ok(());
        }
        note_outcome(first, is_parted);
        self.retire(old.page.addr, old.page.bytes(), AllocKind::Inner);
        Ok(())
    }

    /// Makes a part. Returns the slot that is to point to it.
    async fn make(&mut self, maker: &mut Maker, old: &Old, part: &Part, copied: &mut Copied) -> Result<Slot> {
        let Some(pairs) = old.pairs.pairs.get(part.pairs.clone()) else {
            return Err(IndexError::corrupt(old.page.addr, "page parted otherwise than its pairs call for"));
        };
        let home = old.via.node.addr.node();
        match part.kind {
            Kind::None => Ok(Slot::none(part.edges.hi)),
            Kind::Page => {
                let place =
                    Place { identity: old.via.identity, depth: old.shape.depth, edges: part.edges, home };
                let page = maker.page(&mut self.client, place, pairs).await?;
                maker.copy_map(old.via.node.addr, copied, &page);
                Ok(Slot::of(&page))
            }
            Kind::Node => {
                let records = self.shared.geometry.records;
                let taken = std::mem::replace(maker, Maker::new(self.shared, self.client.epoch()));
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
}

fn note_outcome(first: Option<Kind>, is_parted: bool) {
    note(match first {
        _ if is_parted => situations::PARTED,
        Some(Kind::Page) => situations::COPIED,
        Some(Kind::Node) => situations::DESCENDED,
        Some(Kind::None) | None => situations::EMPTIED,
    });
}
