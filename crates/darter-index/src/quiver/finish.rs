//! Quiver's part in a sweep: replacements and transactions that dead clients have left unfinished.
//!
//! Clients that write nearby would finish them, and no operation waits for them. But until then a
//! page whose parts are linked keeps its memory, and so do intents and their status words.

use super::Quiver;
use super::descent::NodeAt;
use super::node::{self, Content};
use super::operation::Operation;
use super::page::PageRef;
use super::parent_slot::ParentSlot;
use super::situations;
use crate::Result;
use crate::checker::note;
use crate::radix::{TURNS_MAX, no_progress};
use darter_fabric::{Fabric, OpKind};
use darter_pool::Client;
use std::collections::HashSet;

impl<F: Fabric> Quiver<F> {
    /// Finishes every replacement of a page or a node that was begun, and settles every intent, if
    /// the pool has room: a sweep, which makes room, must not fail for lack of it. Returns whether
    /// there was any. Transactions that are being installed are aborted, and run again.
    pub(super) async fn finish_replacements(&self, client: &mut Client<F>) -> Result<bool> {
        let mut has_settled = false;
        for turn in 0..TURNS_MAX {
            let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
            match operation.finish_one(&mut has_settled).await {
                Ok(true) => {}
                Err(error) if !error.is_out_of_space() => {
                    return Err(error);
                }
                Ok(false) | Err(_) => return Ok(turn > 0 || has_settled),
            }
        }
        Err(no_progress(self.shared.words.root))
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Finishes the first replacement found by a walk. Returns whether there was one.
    async fn finish_one(&mut self, has_settled: &mut bool) -> Result<bool> {
        let (root, parent, _) = self.read_root().await?;
        let mut nodes = vec![(root, parent)];
        let mut seen = HashSet::new();
        while let Some((node, parent)) = nodes.pop() {
            if !seen.insert(node.addr) {
                continue;
            }
            let words = self.read_node(node).await?;
            if node::is_sealed(&words) {
                self.replace_node(node, parent).await?;
                return Ok(true);
            }
            if self.finish_pages(node, &words, Some(has_settled)).await? {
                return Ok(true);
            }
            for (edge, skip, addr) in node::children(&node::slots(&words)) {
                nodes.push((
                    NodeAt { addr, depth: node.depth + 1 + skip },
                    ParentSlot::of(node, &words, edge),
                ));
            }
        }
        Ok(false)
    }

    /// Finishes the replacement of a page of a node. Returns whether one was begun. Before that,
    /// settles the intents of the pages, if `settled` is to say so.
    pub(super) async fn finish_pages(
        &mut self,
        node: NodeAt,
        words: &[u64],
        mut settled: Option<&mut bool>,
    ) -> Result<bool> {
        for (slot, edge) in node::slots(words).into_iter().zip(0..) {
            let Content::Page { class, addr, .. } = slot.content() else { continue };
            let page = PageRef { addr, class };
            let (shape, page_words) = self.read_page(page).await?;
            if shape.has_seal(&page_words) {
                self.rebuild(ParentSlot::of(node, words, edge), page).await?;
                return Ok(true);
            }
            if let Some(settled) = &mut settled
                && self.settle_page(&shape, &page_words).await?
            {
                note(situations::INTENT_SWEPT);
                **settled = true;
            }
        }
        Ok(false)
    }
}
