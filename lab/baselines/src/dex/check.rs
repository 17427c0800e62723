//! The check: a walk of all pages by READs, level by level, after the owner's changes were written.
//!
//! A page whose fences differ from its parent's is remarked, not a violation: another owner has not
//! written it yet, or has died before it did. Its keys count as the parent says.

use super::node::{Fences, NODE_BYTES, NODE_WORDS, Node};
use super::pages::block_of;
use super::{DESCRIPTOR_WORDS, Operation};
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::leaf as pair;
use darter_index::{CheckReport, NodeTypeStats, Result};

/// Pages read in one round trip.
const BATCH: usize = 256;

/// A page to read, with the keys that its parent gives it.
type Expected = (GlobalAddr, Fences);

impl<F: Fabric> Operation<'_, F> {
    /// Walks and verifies everything; without pairs it does not read the blocks of values.
    pub(super) async fn inspect(&mut self, reads_pairs: bool) -> Result<CheckReport> {
        self.flush().await?;
        let mut report = CheckReport::default();
        let descriptor = (DESCRIPTOR_WORDS + self.shared.owners.highs.len()) as u64 * 8;
        report.reach(self.shared.descriptor, descriptor, "descriptor");
        report.stats.index_bytes += descriptor;
        let root = self.read_page(self.shared.root, self.shared.owners.count() > 1).await?;
        let mut level = root.level();
        let mut expected: Vec<Expected> = vec![(root.addr(), Fences::ALL)];
        let mut nodes = ["leaf", "inner"].map(|name| NodeTypeStats { name, count: 0, bytes: 0, children: 0 });
        loop {
            let (mut below, kind) = (Vec::new(), usize::from(level > 0));
            for chunk in expected.chunks(BATCH) {
                let pages = self.read_pages(&mut report, chunk).await?;
                for (mut page, fences) in pages {
                    self.inspect_page(&mut report, &mut page, (level, fences));
                    nodes[kind].children += page.count() as u64;
                    if level > 0 {
                        below.extend((0..page.count()).map(|at| (page.child(at), page.range(at))));
                    } else {
                        self.inspect_leaf(&mut report, &page, reads_pairs).await?;
                    }
                }
            }
            let (count, bytes) = (expected.len() as u64, expected.len() as u64 * NODE_BYTES);
            let is_index = level > 0 || self.shared.has_blocks();
            *(if is_index { &mut report.stats.index_bytes } else { &mut report.stats.kv_bytes }) += bytes;
            nodes[kind].count += count;
            nodes[kind].bytes += bytes;
            if level == 0 {
                break;
            }
            report.stats.depth_max += 1;
            (expected, level) = (below, level - 1);
        }
        report.stats.keys = nodes[0].children;
        report.stats.levels = vec![0; report.stats.depth_max + 1];
        report.stats.levels[report.stats.depth_max] = nodes[0].count;
        report.stats.nodes = nodes.into();
        Ok(report)
    }

    /// Reads pages in one round trip, and those again that are being written.
    async fn read_pages(
        &mut self,
        report: &mut CheckReport,
        expected: &[Expected],
    ) -> Result<Vec<(Node, Fences)>> {
        let mut batch = self.client.batch();
        let reads: Vec<_> = expected.iter().map(|(addr, _)| batch.read(*addr, NODE_WORDS)).collect();
        let words: Vec<Option<Node>> = match self.client.complete(batch).await {
            Ok(done) => {
                let pages = expected.iter().zip(reads);
                pages.map(|((addr, _), read)| Node::from_words(*addr, done.words(read))).collect()
            }
            Err(error) => {
                report.unreadable(format_args!("pages read with that at {}", expected[0].0), error)?;
                vec![None; expected.len()]
            }
        };
        let mut pages = Vec::new();
        for (&(addr, fences), page) in expected.iter().zip(words) {
            if !report.reach(addr, NODE_BYTES, "page") {
                continue;
            }
            let page = if let Some(page) = page {
                Ok(page)
            } else {
                let io = self.lock_page(addr).await?;
                let page = self.read_page(addr, false).await;
                io.finish();
                page
            };
            match page {
                Ok(page) => pages.push((page, fences)),
                Err(error) => report.unreadable(format_args!("page at {addr}"), error)?,
            }
        }
        Ok(pages)
    }

    /// Verifies a page, and gives it the keys that its parent says.
    fn inspect_page(&self, report: &mut CheckReport, page: &mut Node, (level, fences): (u8, Fences)) {
        let addr = page.addr();
        if page.level() != level {
            report.violation(format!("page at {addr}: its level is {}, not {level}", page.level()));
            *page = Node::new(addr, 0, fences, false);
            return;
        }
        if page.fences() != fences {
            report.remark(format!("page at {addr}: its fences are not those in its parent"));
            page.clamp(fences);
        } else if page.is_shared() != self.shared.owners.share(fences) {
            report.violation(format!("page at {addr}: wrongly marked as shared or private"));
        }
        let is_sorted = match level {
            0 => {
                let keys: Vec<u64> = page.entries().map(|(key, _)| key).collect();
                keys.windows(2).all(|pair| pair[0] < pair[1]) && keys.iter().all(|&key| fences.contains(key))
            }
            _ => (0..page.count()).all(|at| page.range(at).low < page.range(at).high),
        };
        if !is_sorted {
            report.violation(format!("page at {addr}: its keys are out of order or outside its fences"));
        }
    }

    /// Verifies the blocks of a leaf's values.
    async fn inspect_leaf(&mut self, report: &mut CheckReport, leaf: &Node, reads_pairs: bool) -> Result<()> {
        if !self.shared.has_blocks() {
            return Ok(());
        }
        let mut blocks = Vec::new();
        for (key, word) in leaf.entries() {
            let (addr, class) = block_of(word);
            let words = pair::class_words(class);
            if report.reach(addr, words as u64 * 8, "block of a value") {
                report.stats.kv_bytes += words as u64 * 8;
                blocks.push(((key, addr), addr, words));
            }
        }
        if reads_pairs {
            let verify = |report: &mut CheckReport, &(key, addr): &(u64, GlobalAddr), words: &[u64]| {
                match pair::parse(addr, words) {
                    Ok(held) if held.key == key.to_be_bytes() => {}
                    Ok(_) => report.violation(format!("block at {addr}: belongs to another key")),
                    Err(error) => report.violation(error.to_string()),
                }
            };
            report.verify_each(&mut self.client, &blocks, verify).await?;
        }
        Ok(())
    }
}
