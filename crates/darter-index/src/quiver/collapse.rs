//! The replacement of a node by what remains in it: a page, its only child, nothing, or a copy
//! (`docs/quiver.md`, "Collapse"); and the cleanup after deletes.

use super::content::Content as Pairs;
use super::descent::{Descent, NodeAt, PageSearchEnd};
use super::nibble::{EDGES, END};
use super::node::{self, Content, NODE_BYTES, SKIP_MAX, Slot};
use super::operation::Operation;
use super::page::{Head, PageRef};
use super::pair::{Maker, Pair, Place};
use super::parent_slot::ParentSlot;
use super::situations;
use super::word::{State, Word};
use crate::Result;
use crate::checker::note;
use crate::radix::{TURNS_MAX, no_progress};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::AllocKind;

/// The content of a node without children.
#[derive(Default)]
struct Left {
    pairs: Vec<Pair>,
    pages: Vec<PageRef>,
    /// Leaves that belong to no pair.
    strays: Vec<(GlobalAddr, u8)>,
}

impl<F: Fabric> Operation<'_, F> {
    /// Finishes the replacement of the highest sealed node on a key's path.
    pub(super) async fn help_above(&mut self, key: &[u8]) -> Result<()> {
        let mut descent = self.descent_from_root(key);
        if let PageSearchEnd::Sealed { node } = self.run(&mut descent).await?
            && let Some(parent) = descent.incoming
        {
            note(situations::NODE_HELPED);
            self.replace_node(node, parent).await?;
        }
        Ok(())
    }

    /// Removes pages and nodes that deletes have left empty or nearly empty, from a key's page
    /// upwards.
    pub(super) async fn tidy(&mut self, key: &[u8]) -> Result<()> {
        for _ in 0..TURNS_MAX {
            let mut descent = self.descent_from_root(key);
            let end = self.run(&mut descent).await?;
            let node = match end {
                PageSearchEnd::Sealed { .. } => {
                    self.help_above(key).await?;
                    continue;
                }
                PageSearchEnd::Page(found) => {
                    let Some(from) = found.from else { return Ok(()) };
                    if found.head.is_thin(found.head.live_about()) && self.is_thin(found.head.page).await? {
                        self.rebuild(from, found.head.page).await?;
                        continue;
                    }
                    from.node
                }
                PageSearchEnd::Vacant { parent } => parent.node,
                PageSearchEnd::Diverged { .. }
                | PageSearchEnd::Value(_)
                | PageSearchEnd::Standing(..)
                | PageSearchEnd::Hot(_) => return Ok(()),
            };
            if !self.collapse(node, &descent).await? {
                return Ok(());
            }
        }
        Err(no_progress(self.shared.words.root))
    }

    /// Whether a page that is thin by its count really has few live pairs.
    async fn is_thin(&mut self, page: PageRef) -> Result<bool> {
        let (_, words) = self.read_page(page).await?;
        let Ok(head) = Head::parse(page, &words)? else { return Ok(false) };
        let is_live = |&at: &usize| matches!(Word(words[at]).state(), State::Inline | State::Leaf { .. });
        // The first one is the guard.
        let live = head.shape.sealable().skip(1).filter(is_live).count();
        Ok(head.is_thin(live as u64))
    }

    /// Replaces the node where a key's path ended if it is almost empty. Returns whether there may
    /// be more to do.
    ///
    /// The pages' own counts decide whether to read the pairs. A count can be wrong for as long as
    /// the page lives, since a delete is counted even if another one was faster. So the pairs are
    /// counted before the first seal, and a node that had to be copied is left to another delete.
    async fn collapse(&mut self, node: NodeAt, descent: &Descent<'_>) -> Result<bool> {
        let Some(parent) = descent.incoming.filter(|parent| !parent.is_root()) else { return Ok(false) };
        let words = self.read_node(node).await?;
        let slots = node::slots(&words);
        let children = node::children(&slots).count();
        let pages: Vec<PageRef> = pages(&slots).collect();
        let few = self.shared.geometry.records / 4;
        let is_likely = match (children, pages.len()) {
            (0, _) => self.live_about(&pages).await? <= few as u64,
            (1, 0) => only_child(&slots).is_some_and(|(skip, _)| skip_of(parent) + 1 + skip <= SKIP_MAX),
            _ => false,
        };
        let is_due = is_likely
            && (children == 1
                || self.what_is_left(&slots, false).await?.is_some_and(|left| left.pairs.len() <= few));
        Ok(is_due && self.replace_node(node, parent).await?)
    }

    async fn live_about(&mut self, pages: &[PageRef]) -> Result<u64> {
        if pages.is_empty() {
            return Ok(0);
        }
        let delta = self.shared.geometry.delta;
        let mut batch = self.client.batch();
        let reads: Vec<_> =
            pages.iter().map(|page| (page, batch.read(page.addr, page.head_words(delta)))).collect();
        let done = self.client.submit(batch).await?;
        let mut live = 0;
        for (page, read) in reads {
            live += match Head::parse(*page, done.words(read))? {
                Ok(head) => head.live_about(),
                Err(_) => u64::from(u8::MAX),
            };
        }
        self.client.recycle(done);
        Ok(live)
    }

    /// Seals a node and replaces it by what remains in it. Returns false if that is a copy.
    pub(super) async fn replace_node(&mut self, node: NodeAt, parent: ParentSlot) -> Result<bool> {
        self.replace_node_on(node, parent, None).await
    }

    /// As [`Self::replace_node`]; a copy is placed on the memory node `to`, if that is given.
    pub(super) async fn replace_node_on(
        &mut self,
        node: NodeAt,
        parent: ParentSlot,
        to: Option<u8>,
    ) -> Result<bool> {
        let mut words = self.read_node(node).await?;
        // Allocates a copy before the first seal, so that a full pool leaves the node unchanged.
        let mut copy = Maker::new(self.shared, self.client.epoch());
        let home = to.unwrap_or_else(|| self.home_instead(node.addr.node(), words[0]));
        let born = copy.born;
        let image =
            |addr, words: &[u64]| node::image(addr, words[0], born, node.depth, &node::slots(words), &[]);
        let copy_addr = copy.node(&mut self.client, home, |addr| image(addr, &words)).await?;
        self.seal_node(node, &mut words).await?;
        let mut maker = Maker::new(self.shared, self.client.epoch());
        let mut is_copy = false;
        let (slot, left) = match self.successor(&mut maker, &words, parent).await {
            Ok(Some(successor)) => {
                copy.discard(&mut self.client);
                successor
            }
            Err(error) if !error.is_out_of_space() => {
                maker.discard(&mut self.client);
                return Err(error);
            }
            _ => {
                note(situations::NODE_COPIED);
                maker.discard(&mut self.client);
                copy.rewrite(copy_addr, &image(copy_addr, &words));
                maker = copy;
                is_copy = true;
                (Slot::node(skip_of(parent), copy_addr), Left::default())
            }
        };
        let expected = parent.stored(parent.at.slot);
        let found = maker.link(&mut self.client, parent.at.addr, expected, parent.stored(slot)).await?;
        if found != expected {
            return Ok(true);
        }
        for leaf in maker.left.drain(..).chain(left.strays) {
            self.retire_leaf(leaf);
        }
        for page in left.pages {
            self.retire(page.addr, page.bytes(), AllocKind::Inner);
        }
        self.retire(node.addr, NODE_BYTES, AllocKind::Inner);
        Ok(!is_copy)
    }

    /// Makes the replacement of a sealed node. Returns the slot for it, and the node's content if
    /// that is unlinked with it; `None` if the node has to be copied.
    async fn successor(
        &mut self,
        maker: &mut Maker,
        words: &[u64],
        parent: ParentSlot,
    ) -> Result<Option<(Slot, Left)>> {
        if parent.is_root() {
            return Ok(None);
        }
        let slots = node::slots(words);
        if let Some((skip, addr)) = only_child(&slots)
            && skip_of(parent) + 1 + skip <= SKIP_MAX
        {
            note(situations::COLLAPSE_TO_NODE);
            return Ok(Some((Slot::node(skip_of(parent) + 1 + skip, addr), Left::default())));
        }
        // Makes the page before the others are sealed, so that a full pool leaves them unchanged.
        let Some(before) = self.what_is_left(&slots, false).await? else { return Ok(None) };
        let mut slot = self.page_of(maker, &before, parent).await?;
        let Some(left) = self.what_is_left(&slots, true).await? else { return Ok(None) };
        if left.pairs != before.pairs {
            maker.discard(&mut self.client);
            *maker = Maker::new(self.shared, self.client.epoch());
            slot = self.page_of(maker, &left, parent).await?;
        }
        note(if left.pairs.is_empty() {
            situations::COLLAPSE_TO_NOTHING
        } else {
            situations::COLLAPSE_TO_PAGE
        });
        Ok(Some((slot, left)))
    }

    /// Makes a page of a node's remaining pairs, for the slot that points to the node.
    async fn page_of(&mut self, maker: &mut Maker, left: &Left, parent: ParentSlot) -> Result<Slot> {
        let edges = parent.edges;
        if left.pairs.is_empty() {
            return Ok(Slot::none(edges.hi));
        }
        let home = parent.at.addr.node();
        let place = Place { identity: parent.identity, depth: parent.node.depth, edges, home };
        let page = maker.page(&mut self.client, place, &left.pairs).await?;
        maker.copy_map(parent.node.addr, &mut parent.copied.clone(), &page);
        Ok(Slot::of(&page))
    }

    /// Reads the pairs of a node's pages, and seals the pages first if `seals` is true. Returns
    /// `None` if there are more pairs than a page holds, if the node has a child, or if the parts
    /// of a page are being linked.
    async fn what_is_left(&mut self, slots: &[Slot; EDGES], seals: bool) -> Result<Option<Left>> {
        let all: Vec<PageRef> = pages(slots).collect();
        let records = self.shared.geometry.records;
        if node::children(slots).next().is_some() || self.live_about(&all).await? > records as u64 {
            return Ok(None);
        }
        let mut left = Left::default();
        let mut lo = END;
        for page in all {
            let (shape, words) =
                if seals { self.seal_page(page).await? } else { self.read_page(page).await? };
            // A page whose later parts are linked also has their pairs.
            let edges = shape.edges;
            if edges.lo < lo || edges.hi > node::last_edge(slots, edges.lo) {
                return Ok(None);
            }
            lo = edges.hi;
            let Pairs { pairs, strays, .. } =
                Pairs::read(&mut self.client, self.shared.keys, page, (&shape, &words), edges.hi).await?;
            left.pairs.extend(pairs);
            left.strays.extend(strays.into_iter().map(|(_, leaf)| leaf));
            left.pages.push(page);
        }
        Ok((left.pairs.len() <= records).then_some(left))
    }

    /// Removes the lowest node from a subtree without keys, whose prefix can no longer be found
    /// out.
    pub(super) async fn remove_empty(&mut self, mut node: NodeAt, mut parent: ParentSlot) -> Result<()> {
        loop {
            if node.depth > crate::KEY_BYTES_MAX * 2 {
                return Err(node::too_deep(node.addr));
            }
            let words = self.read_node(node).await?;
            let slots = node::slots(&words);
            // A remaining child is in the way; under a sealed node it no longer changes.
            let child = node::children(&slots).next().filter(|_| !node::is_sealed(&words));
            let Some((edge, skip, addr)) = child else {
                // Pages with some parts linked would prevent the removal of the node.
                if !node::is_sealed(&words) && self.finish_pages(node, &words, None).await? {
                    return Ok(());
                }
                return self.replace_node(node, parent).await.map(drop);
            };
            parent = ParentSlot::of(node, &words, edge);
            node = NodeAt { addr, depth: node.depth + 1 + skip };
        }
    }
}

/// Nibbles that the edge to a child node skips.
fn skip_of(parent: ParentSlot) -> usize {
    match parent.at.slot.content() {
        Content::Node { skip, .. } => skip,
        _ => 0,
    }
}

fn pages(slots: &[Slot; EDGES]) -> impl Iterator<Item = PageRef> {
    node::pages(slots).map(|(_, page)| page)
}

/// The only child of a node that has nothing else.
fn only_child(slots: &[Slot; EDGES]) -> Option<(usize, GlobalAddr)> {
    let mut all = node::children(slots);
    let (_, skip, addr) = all.next()?;
    (all.next().is_none() && pages(slots).next().is_none()).then_some((skip, addr))
}

#[cfg(test)]
mod tests {
    use super::super::page::REMOVAL;
    use super::super::{Quiver, QuiverOptions};
    use super::*;
    use crate::OrderedIndex;
    use crate::fixtures::{process, verify};
    use darter_fabric::{OpKind, block_on};
    use darter_pool::Client;
    use darter_sim::Sim;

    /// Counts of deletes said that almost no pairs were left, and a delete copied the node 50,000
    /// times.
    #[test]
    fn a_node_whose_pages_count_too_many_deletes_stays() {
        let options = QuiverOptions { page_records: 8, cache_bytes: 0, ..QuiverOptions::default() };
        let keys: Vec<[u8; 2]> = (0..64).map(|last| [b'a', last * 4]).collect();
        let refs: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let (pool, quiver) = process::<Quiver<Sim>>(options, &[]);
        let pairs = keys.iter().map(|key| (key.to_vec(), b"true".to_vec()));
        block_on(quiver.bulk_load(&mut pool.client().unwrap(), pairs)).unwrap();
        // The node above a key's page; sets the page's count of deletes to its number of records.
        let spoil = async |client: &mut Client<Sim>, key: &[u8]| {
            let mut operation = Operation::begin(&quiver.shared, client, OpKind::Maintain).await.unwrap();
            let mut descent = operation.descent_from_root(key);
            let PageSearchEnd::Page(found) = operation.run(&mut descent).await.unwrap() else {
                panic!("{key:?} is in no page");
            };
            let mut batch = operation.client.batch();
            batch.faa(found.head.page.removals_addr(), found.head.shape.records as u64 * REMOVAL);
            operation.client.submit(batch).await.unwrap();
            found.from.unwrap().node.addr
        };
        block_on(async {
            let mut client = pool.client().unwrap();
            let mut nodes = Vec::new();
            for key in &refs {
                nodes.push(spoil(&mut client, key).await);
            }
            assert!(quiver.delete(&mut client, refs[5]).await.unwrap());
            assert_eq!(spoil(&mut client, refs[6]).await, nodes[6], "the node was copied");
        });
        verify(&pool, &quiver, &[refs[4], refs[6], refs[63]]);
    }
}
