//! The check: a walk of every level along the sibling links that verifies every invariant and the
//! counts.
//!
//! For each node it verifies that the node is alive, its fences meet its neighbours', its parent
//! lists it under its lower fence, its keys are between its fences, its digests match the keys, and
//! no object is reached twice. Changes that a dead client left half done are repaired during the
//! walk, under the locks, and reported as remarks. Other clients may work at the same time.

use super::bound::Bound;
use super::entry::{Entry, EntryState, key_words};
use super::page::{Aim, Link, Page, Position, redo_image, state_of};
use super::search::entry_key;
use super::walk::fetch_bounds;
use super::{DESCRIPTOR_BYTES, Operation, Sherman};
use darter_fabric::{Fabric, OpKind};
use darter_index::radix::leaf as pair;
use darter_index::{CheckReport, NodeTypeStats, Result};
use darter_pool::Client;
use std::collections::HashMap;

/// A walk in progress.
struct Inspection {
    report: CheckReport,
    /// Whether to read pairs.
    reads_pairs: bool,
    /// Children listed by the level above, by link, with their lower bounds.
    listed: HashMap<u64, Vec<u8>>,
    leaves: (u64, u64),
    inner: (u64, u64),
}

impl<F: Fabric> Sherman<F> {
    /// Walks and verifies everything; without pairs it only counts.
    pub(crate) async fn inspect(&self, client: &mut Client<F>, reads_pairs: bool) -> Result<CheckReport> {
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Maintain).await?;
        let format = &self.shared.format;
        let mut walk = Inspection {
            report: CheckReport::default(),
            reads_pairs,
            listed: HashMap::new(),
            leaves: (0, 0),
            inner: (0, 0),
        };
        walk.report.reach(self.shared.descriptor, DESCRIPTOR_BYTES, "descriptor");
        walk.report.stats.index_bytes += DESCRIPTOR_BYTES;
        self.shared.locks.report(&mut operation.client, &mut walk.report).await?;
        let mut first = self.shared.root;
        let mut height = None;
        loop {
            let Some(leftmost) = operation.sound_node(&mut walk, first).await? else { break };
            let level = leftmost.level;
            let inner_levels = usize::from(*height.get_or_insert(level));
            let below = leftmost.children().checked_sub(1).map(|_| leftmost.child(0));
            operation.inspect_level(&mut walk, leftmost).await?;
            if level == 0 {
                walk.report.stats.levels = vec![0; inner_levels + 1];
                walk.report.stats.levels[inner_levels] = walk.report.stats.keys;
                walk.report.stats.depth_max = inner_levels;
                break;
            }
            let Some(link) = below else {
                walk.report.violation(format!("node at {}: no children", first.addr()));
                break;
            };
            first = link;
        }
        let Inspection { mut report, leaves, inner, .. } = walk;
        let bytes = format.node_bytes();
        let is_root = u64::from(format.span.is_some() && inner.0 > 0);
        let of_leaf = format.leaf_bytes();
        // The root has the size of a leaf even if it is an inner node.
        let (of_leaves, of_inner) = (leaves.0 * of_leaf, inner.0 * bytes + is_root * (of_leaf - bytes));
        report.stats.nodes = vec![
            NodeTypeStats { name: "leaf", count: leaves.0, bytes: of_leaves, children: leaves.1 },
            NodeTypeStats { name: "inner", count: inner.0, bytes: of_inner, children: inner.1 },
        ];
        report.stats.index_bytes += of_inner;
        // If pairs are in blocks, leaves count as index; otherwise they hold the keys and values.
        let holds_pairs =
            if format.is_inline() { &mut report.stats.kv_bytes } else { &mut report.stats.index_bytes };
        *holds_pairs += of_leaves;
        Ok(report)
    }

    pub(crate) async fn check_all(&self, client: &mut Client<F>) -> Result<CheckReport> {
        self.inspect(client, true).await
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Reads a node that the tree leads to, and repairs it first if a change was left half done.
    /// `None` after a violation.
    async fn sound_node(&mut self, walk: &mut Inspection, link: Link) -> Result<Option<Box<Page>>> {
        let format = &self.shared.format;
        for attempt in 0..3 {
            let mut batch = self.client.batch();
            let read = batch.read(link.addr(), format.words_of(link));
            let done = match self.client.submit(batch).await {
                Ok(done) => done,
                Err(error) => {
                    walk.report.unreadable(format_args!("node at {}", link.addr()), error)?;
                    return Ok(None);
                }
            };
            let redo = redo_image(state_of(done.words(read))).is_some();
            let page = Page::parse(format, link.addr(), done.words(read));
            self.client.recycle(done);
            match page {
                Some(page)
                    if page.tag == link.tag()
                        && !redo
                        && !(page.is_leaf() && (page.is_torn(format) || !page.has_right_vacancy(format))) =>
                {
                    let mut page = Box::new(page);
                    if let Err(error) = fetch_bounds(&mut self.client, &mut page).await {
                        walk.report.unreadable(format_args!("node at {}", link.addr()), error)?;
                        return Ok(None);
                    }
                    return Ok(Some(page));
                }
                _ if attempt == 2 => break,
                _ => {}
            }
            walk.report.remarks.push(format!("node at {}: a dead client's write was finished", link.addr()));
            if let Err(error) = self.repair(link).await {
                walk.report.unreadable(format_args!("node at {}", link.addr()), error)?;
                return Ok(None);
            }
        }
        walk.report.violation(format!("node at {}: inconsistent words", link.addr()));
        Ok(None)
    }

    /// Walks one level along its sibling links.
    async fn inspect_level(&mut self, walk: &mut Inspection, leftmost: Box<Page>) -> Result<()> {
        let level = leftmost.level;
        let mut listed = std::mem::take(&mut walk.listed);
        let (mut page, mut low) = (leftmost, Vec::new());
        let mut repaired = 0;
        loop {
            if page.is_dead() || page.level != level || page.low.bytes() != &low[..] {
                walk.report.violation(format!(
                    "node at {}: not the right neighbour that its left neighbour names",
                    page.addr
                ));
                return Ok(());
            }
            let next = match page.sibling {
                Link::NONE => None,
                sibling => match self.sound_node(walk, sibling).await? {
                    Some(next) => Some(next),
                    None => return Ok(()),
                },
            };
            if next.as_ref().is_some_and(|next| next.is_dead()) && repaired < 2 {
                repaired += 1;
                walk.report
                    .remarks
                    .push(format!("node at {}: a dead client's merge was finished", page.addr));
                self.repair(page.link()).await?;
                match self.sound_node(walk, page.link()).await? {
                    Some(again) => page = again,
                    None => return Ok(()),
                }
                continue;
            }
            repaired = 0;
            if !walk.report.reach(page.addr, self.shared.format.bytes_of(page.link()), "node") {
                return Ok(());
            }
            match listed.remove(&page.link().word()) {
                Some(bound) if bound == page.low.bytes() => {}
                Some(_) => {
                    walk.report.violation(format!("node at {}: its parent has another bound", page.addr));
                }
                // The root, or a node that its parent does not list yet: its left neighbour leads
                // to it.
                None => {}
            }
            self.inspect_node(walk, &page).await?;
            match (&page.high, next) {
                (None, None) => break,
                (Some(high), Some(next)) if high.bytes() > page.low.bytes() => {
                    low = high.bytes().to_vec();
                    page = next;
                }
                _ => {
                    walk.report.violation(format!("node at {}: fences and sibling do not agree", page.addr));
                    return Ok(());
                }
            }
        }
        for _ in listed {
            walk.report.violation(format!("level {level}: a parent lists a node that no neighbour leads to"));
        }
        Ok(())
    }

    async fn inspect_node(&mut self, walk: &mut Inspection, page: &Page) -> Result<()> {
        for (addr, bytes) in page.bounds().filter_map(Bound::object) {
            walk.report.reach(addr, bytes, "bound");
            walk.report.stats.index_bytes += bytes;
        }
        let all: Vec<usize> = (0..page.slots(&self.shared.format)).collect();
        if page.is_leaf() {
            walk.leaves.0 += 1;
            return self.inspect_entries(walk, page, &all).await;
        }
        walk.inner.0 += 1;
        walk.inner.1 += page.children() as u64;
        for at in 0..page.children() {
            if at > 0 && page.child_low(at) <= page.child_low(at - 1)
                || page.place(Aim::At(page.child_low(at))) != Some(Position::Within)
            {
                walk.report.violation(format!("node at {}: separator {at} is out of order", page.addr));
            }
            walk.listed.insert(page.child(at).word(), page.child_low(at).to_vec());
        }
        Ok(())
    }

    /// Verifies some entries of a leaf.
    async fn inspect_entries(&mut self, walk: &mut Inspection, page: &Page, slots: &[usize]) -> Result<()> {
        let format = &self.shared.format;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut entries = Vec::new();
        for &slot in slots {
            match page.entry(format, slot) {
                EntryState::Empty => {}
                EntryState::Torn => {
                    walk.report
                        .violation(format!("leaf at {}: entry {slot} does not belong to it", page.addr));
                }
                EntryState::Holds(entry) => {
                    if entry.lost {
                        walk.report.remarks.push(format!(
                            "leaf at {}: the value of entry {slot} was lost when its writer died",
                            page.addr
                        ));
                    }
                    keys.extend(entry_key(format, &entry));
                    entries.push(entry);
                }
            }
        }
        walk.report.stats.keys += entries.len() as u64;
        walk.leaves.1 += entries.len() as u64;
        if !format.is_inline() {
            entries.retain(|entry| walk.report.reach(entry.block().addr, entry.block().bytes(), "pair"));
            walk.report.stats.kv_bytes += entries.iter().map(|entry| entry.block().bytes()).sum::<u64>();
        }
        if walk.reads_pairs && !format.is_inline() {
            let pairs = entries.into_iter().map(|entry| {
                let block = entry.block();
                (entry, block.addr, block.words())
            });
            let pairs: Vec<_> = pairs.collect();
            let verify = |report: &mut CheckReport, entry: &Entry, words: &[u64]| {
                let addr = entry.block().addr;
                match pair::parse(addr, words) {
                    Ok(held) if key_words(format, held.key, page.prefix) == entry.key => {
                        keys.extend(format.key.is_none().then(|| held.key.to_vec()));
                    }
                    Ok(_) => {
                        report.violation(format!("pair at {addr}: its key does not match its leaf's entry"));
                    }
                    Err(error) => report.violation(error.to_string()),
                }
            };
            walk.report.verify_each(&mut self.client, &pairs, verify).await?;
        }
        keys.sort();
        if keys.iter().any(|key| page.place(Aim::At(key)) != Some(Position::Within)) {
            walk.report.violation(format!("leaf at {}: a key outside its fences", page.addr));
        }
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            walk.report.violation(format!("leaf at {}: duplicate key", page.addr));
        }
        Ok(())
    }
}
