//! A picture of the top of the tree, for `darter tree` and the status page: nodes, pages, and the
//! pairs of pages.

use super::Quiver;
use super::content::Content as Pairs;
use super::nibble::{EDGES, END, edge, identity_of, nibbles};
use super::node::{self, Content, NodeAt, Slot};
use super::operation::Operation;
use super::page::{PageRef, Shape};
use super::pair::Pair;
use crate::radix::leaf;
use crate::{IndexError, Result, TreeEdge, TreeView};
use darter_fabric::{Fabric, OpKind};
use darter_pool::Client;

/// What to show next: a node or a page, the edges that lead to it, the levels below it, and its
/// parent view.
struct Todo {
    place: Place,
    edge: TreeEdge,
    levels: usize,
    parent: usize,
}

/// A node, or a page with the last edge that its slot is responsible for.
#[derive(Clone, Copy)]
enum Place {
    Node(NodeAt),
    Page(PageRef, u8),
}

impl<F: Fabric> Quiver<F> {
    /// Returns the tree below `prefix`: the node that covers it, `levels` levels down, at most
    /// `width` children of each node and page.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`].
    pub async fn tree(
        &self,
        client: &mut Client<F>,
        prefix: &[u8],
        levels: usize,
        width: usize,
    ) -> Result<TreeView> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Scan).await?;
        let top = operation.covering_node(prefix).await?;
        // Views in the order they were made, each with its parent; assembled bottom-up at the end.
        let mut views: Vec<(usize, TreeEdge, TreeView)> = Vec::new();
        let place = Place::Node(top);
        let mut todo = vec![Todo { place, edge: TreeEdge::End, levels, parent: usize::MAX }];
        while let Some(next) = todo.pop() {
            let at = views.len();
            let (view, children) = match next.place {
                Place::Node(node) => operation.view_of_node(node, at == 0, prefix, width).await?,
                Place::Page(page, last) => {
                    let shown = if next.levels > 0 { width } else { 0 };
                    (operation.view_of_page((page, last), prefix, shown, width).await?, Vec::new())
                }
            };
            views.push((next.parent, next.edge, view));
            if next.levels > 0 {
                let below = children.into_iter().rev();
                todo.extend(below.map(|(edge, place)| Todo {
                    place,
                    edge,
                    levels: next.levels - 1,
                    parent: at,
                }));
            }
        }
        Ok(TreeView::assemble(views))
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Shows a node; of the top node only the children on the path of `prefix`.
    async fn view_of_node(
        &mut self,
        at: NodeAt,
        is_top: bool,
        prefix: &[u8],
        width: usize,
    ) -> Result<(TreeView, Vec<(TreeEdge, Place)>)> {
        let words = self.read_node(at).await?;
        let slots = node::slots(&words);
        let mut children = children_of(&slots, at.depth);
        if is_top && nibbles(prefix) > at.depth {
            let (lo, _) = node::responsible(at.addr, &slots, edge(prefix, at.depth))?;
            children.retain(|(from, ..)| *from == lo);
        }
        let key = self.key_below(at).await?.unwrap_or_default();
        // A nibble that the prefix, in whole bytes, does not show.
        let half = (at.depth % 2 == 1).then(|| key.get(at.depth / 2).map(|byte| byte >> 4)).flatten();
        let view = TreeView {
            label: half.map_or_else(|| "node".to_owned(), |half| format!("node +{half:x}")),
            prefix: key[..(at.depth / 2).min(key.len())].to_vec(),
            addr: at.addr,
            children: Vec::new(),
            more: children.len().saturating_sub(width) as u64,
            value_bytes: None,
        };
        Ok((view, children.into_iter().take(width).map(|(_, edge, place)| (edge, place)).collect()))
    }

    /// Shows a page with the first `shown` of its pairs below `prefix`. The page is responsible for
    /// the edges up to `last`.
    async fn view_of_page(
        &mut self,
        (page, last): (PageRef, u8),
        prefix: &[u8],
        shown: usize,
        width: usize,
    ) -> Result<TreeView> {
        let (shape, pairs) = self.read_pairs(page, last).await?;
        let below = pairs.iter().filter(|pair| pair.key.starts_with(prefix));
        let mut children = Vec::new();
        for pair in below.clone().take(shown) {
            children.push((TreeEdge::Pair, self.view_of_pair(page, pair).await?));
        }
        Ok(TreeView {
            label: format!("page {}/{}", pairs.len(), shape.records),
            prefix: pairs.first().map(|pair| pair.key.to_vec()).unwrap_or_default(),
            addr: page.addr,
            children,
            more: below.count().saturating_sub(width) as u64,
            value_bytes: None,
        })
    }

    async fn view_of_pair(&mut self, page: PageRef, pair: &Pair) -> Result<TreeView> {
        let lengths = match (&pair.image, pair.leaf) {
            (Some(image), _) => leaf::lengths(image),
            (None, Some((addr, _))) => leaf::lengths(&self.client.read(addr, 2).await?),
            (None, None) => return Err(IndexError::corrupt(page.addr, "pair without a leaf")),
        };
        Ok(TreeView {
            label: if pair.leaf.is_some() { "leaf" } else { "record" }.to_owned(),
            prefix: pair.key.to_vec(),
            addr: pair.leaf.map_or(page.addr, |(addr, _)| addr),
            children: Vec::new(),
            more: 0,
            value_bytes: lengths.map(|(_, value)| value as u64),
        })
    }

    async fn read_pairs(&mut self, page: PageRef, last: u8) -> Result<(Shape, Vec<Pair>)> {
        let (shape, words) = self.read_page(page).await?;
        let content = Pairs::read(&mut self.client, self.shared.keys, page, (&shape, &words), last).await?;
        Ok((shape, content.pairs))
    }

    /// The first node on the path of `prefix` whose own prefix is at least as long, or the last
    /// node on the path.
    async fn covering_node(&mut self, prefix: &[u8]) -> Result<NodeAt> {
        let (mut at, _, mut words) = self.read_root().await?;
        while at.depth < nibbles(prefix) {
            let own = edge(prefix, at.depth);
            let slots = node::slots(&words);
            let (lo, slot) = node::responsible(at.addr, &slots, own)?;
            let Content::Node { skip, addr } = slot.content() else { break };
            let child = NodeAt { addr, depth: at.depth + 1 + skip };
            let read = self.read_node(child).await?;
            let is_on_path = if child.depth <= nibbles(prefix) {
                read[0] == identity_of(self.shared.keys, prefix, child.depth)
            } else {
                self.key_below(child).await?.is_some_and(|key| key.starts_with(prefix))
            };
            if lo != own || !is_on_path {
                break;
            }
            (at, words) = (child, read);
        }
        Ok(at)
    }
}

/// The children of a node in key order, each with its first edge, the edges that lead to it, and
/// its place.
fn children_of(slots: &[Slot; EDGES], depth: usize) -> Vec<(u8, TreeEdge, Place)> {
    let nibble = |edge: u8| (edge != END).then(|| edge - 1);
    let children = slots.iter().zip(0..).filter_map(|(slot, lo)| {
        let edges = node::edges_of(slots, lo);
        let edge = TreeEdge::Nibbles { first: nibble(edges.lo), last: nibble(edges.hi) };
        match slot.content() {
            Content::Node { skip, addr } => {
                Some((lo, edge, Place::Node(NodeAt { addr, depth: depth + 1 + skip })))
            }
            Content::Page { class, addr, .. } => {
                Some((lo, edge, Place::Page(PageRef { addr, class }, edges.hi)))
            }
            _ => None,
        }
    });
    children.collect()
}

#[cfg(test)]
mod tests {
    use super::super::QuiverOptions;
    use super::*;
    use crate::{Condition, OrderedIndex};
    use darter_fabric::{Local, block_on};
    use darter_pool::{Pool, PoolOptions};

    fn pairs_in(view: &TreeView) -> Vec<(Vec<u8>, u64)> {
        let own = view.value_bytes.map(|bytes| (view.prefix.clone(), bytes));
        own.into_iter().chain(view.children.iter().flat_map(|(_, child)| pairs_in(child))).collect()
    }

    /// The whole tree shows every pair once, in order; below a prefix it shows all pairs with that
    /// prefix.
    #[test]
    fn the_tree_shows_nodes_pages_and_pairs() {
        let pool = block_on(Pool::create(Local::memory(64 << 20, 2).unwrap(), &PoolOptions::default()));
        let pool = pool.unwrap();
        let mut client = pool.client().unwrap();
        let options = QuiverOptions { page_records: 4, page_delta: 2, ..QuiverOptions::default() };
        let quiver = block_on(Quiver::open_or_create(&mut client, options)).unwrap();
        let mut expected: Vec<(Vec<u8>, u64)> = Vec::new();
        for number in 0..300_u64 {
            let key = format!(
                "{}{}",
                ["a", "banana-", "banana-split"][number as usize % 3],
                number * number % 1009
            );
            let value = vec![1; if number % 50 == 0 { 5000 } else { number as usize }];
            block_on(quiver.put(&mut client, key.as_bytes(), &value, Condition::Always)).unwrap();
            expected.retain(|(known, _)| known != key.as_bytes());
            expected.push((key.into_bytes(), value.len() as u64));
        }
        expected.sort();
        let whole = block_on(quiver.tree(&mut client, b"", 64, 257)).unwrap();
        assert_eq!(pairs_in(&whole), expected);
        assert_eq!((&whole.label[..], whole.more), ("node", 0));
        for prefix in [&b"b"[..], b"banana-s", b"banana-split1", b"a9"] {
            let below = block_on(quiver.tree(&mut client, prefix, 64, 257)).unwrap();
            let pairs = pairs_in(&below);
            let wanted = expected.iter().filter(|(key, _)| key.starts_with(prefix)).cloned();
            assert_eq!(pairs, wanted.collect::<Vec<_>>(), "below {prefix:?}");
        }
        let narrow = block_on(quiver.tree(&mut client, b"", 2, 1)).unwrap();
        assert!(narrow.more + narrow.children.len() as u64 >= 1 && narrow.children.len() <= 1);
    }
}
