//! A picture of the top of the tree, for `darter tree` and the status page.

use super::Dart;
use super::descend_any::keys_below;
use super::frontier::Place;
use super::leaf;
use super::node::{Content, NodeRef, Slot, children_in_order};
use super::operation::Operation;
use crate::radix::limits::{Limits, Standing};
use crate::{IndexError, Result, ScanRange, TreeEdge, TreeView};
use darter_fabric::{Fabric, OpKind};
use darter_pool::Client;

/// A subtree that is still to be shown.
struct Todo {
    slot: Slot,
    edge: TreeEdge,
    depth: usize,
    levels: usize,
    parent: usize,
}

impl<F: Fabric> Dart<F> {
    /// Returns the tree below `prefix`: the node that covers it, `levels` levels down, at most
    /// `width` children of each node.
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
        let mut operation = Operation::pin(&self.shared, client, OpKind::Scan).await?;
        let top = operation.covering_node(prefix).await?;
        let slot = Slot::node(0, top.ty, 0, top.addr);
        // Views in the order of creation, each with its parent; assembled bottom-up at the end.
        let mut views: Vec<(usize, TreeEdge, TreeView)> = Vec::new();
        let mut todo = vec![Todo { slot, edge: TreeEdge::End, depth: top.depth, levels, parent: usize::MAX }];
        while let Some(next) = todo.pop() {
            let at = views.len();
            let (view, children) = operation.view_of(&next, prefix, width).await?;
            views.push((next.parent, next.edge, view));
            if next.levels > 0 {
                todo.extend(children.into_iter().rev().map(|slot| {
                    let depth = match slot.content() {
                        Content::Node { skip, .. } => next.depth + 1 + usize::from(skip),
                        _ => next.depth,
                    };
                    let byte = slot.edge().and_then(|edge| u8::try_from(edge).ok());
                    let edge = byte.map_or(TreeEdge::End, TreeEdge::Byte);
                    Todo { slot, edge, depth, levels: next.levels - 1, parent: at }
                }));
            }
        }
        Ok(TreeView::assemble(views))
    }
}

impl<F: Fabric> Operation<'_, F> {
    async fn view_of(&mut self, todo: &Todo, prefix: &[u8], width: usize) -> Result<(TreeView, Vec<Slot>)> {
        match todo.slot.content() {
            Content::Node { addr, ty, .. } => {
                let node = NodeRef { addr, ty, depth: todo.depth };
                let words = self.read_node(node).await?;
                let mut live = children_in_order(ty, &words);
                if todo.parent == usize::MAX && prefix.len() > node.depth {
                    let wanted = u16::from(prefix[node.depth]);
                    live.retain(|slot| slot.edge() == Some(wanted));
                }
                let key = keys_below(&mut self.client, &[node]).await?.pop().flatten().unwrap_or_default();
                let more = live.len().saturating_sub(width) as u64;
                live.truncate(width);
                let shown = if todo.levels > 0 { live.into_vec() } else { Vec::new() };
                let view = TreeView {
                    label: ty.name().to_owned(),
                    prefix: key[..node.depth.min(key.len())].to_vec(),
                    addr,
                    children: Vec::new(),
                    more,
                    value_bytes: None,
                };
                Ok((view, shown))
            }
            Content::Leaf { addr, class } => {
                let words = self.client.read(addr, leaf::class_words(class)).await?;
                let leaf = leaf::parse(addr, &words)?;
                let view = TreeView {
                    label: "leaf".to_owned(),
                    prefix: leaf.key.to_vec(),
                    addr,
                    children: Vec::new(),
                    more: 0,
                    value_bytes: Some(leaf.value.len() as u64),
                };
                Ok((view, Vec::new()))
            }
            _ => Err(IndexError::corrupt(todo.slot.addr(), "slot of unknown type")),
        }
    }

    /// The first node on the path of `prefix` whose own prefix is at least as long, or else the
    /// last node on the path.
    async fn covering_node(&mut self, prefix: &[u8]) -> Result<NodeRef> {
        let range = ScanRange::prefix(prefix);
        let mut limits = Limits::new(self.shared.keys, &range);
        let mut node = self.read_root().await?;
        let mut touches = limits.whole();
        while node.depth < prefix.len() {
            let words = self.read_node(node).await?;
            let standing = match limits.standing(touches, |key| node.is_on_path(key, words[0])) {
                Standing::Known(touches) => Some(touches),
                Standing::Unknown => {
                    let key = keys_below(&mut self.client, &[node]).await?.pop().flatten();
                    key.and_then(|key| limits.standing_by_key(node.depth, &key, touches))
                }
            };
            let Some(now) = standing else { break };
            let mut children = Vec::new();
            super::frontier::children(&limits, node, &words, now, (), &mut children);
            let wanted = u16::from(prefix[node.depth]);
            let next = children_in_order(node.ty, &words).into_iter().find(|s| s.edge() == Some(wanted));
            let Some(Content::Node { addr, .. }) = next.map(Slot::content) else { break };
            let Some((child, child_touches)) = children.iter().find_map(|item| match item.place {
                Place::Node(child) if child.addr == addr => Some((child, item.touches)),
                _ => None,
            }) else {
                break;
            };
            (node, touches) = (child, child_touches);
        }
        Ok(node)
    }
}
