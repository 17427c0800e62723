//! The check: a walk of everything reachable from the root word that verifies every invariant of
//! the format, and counts.
//!
//! Nodes: identity and depth agree with the keys below; slots partition the edges. Pages: made for
//! their node, responsible for the edges of their slot, records in key order, each found by the
//! map, words of the record's own key; the delta filled in order, with keys that are not static,
//! each once. Other clients may write at the same time: their unfinished changes are reported as
//! remarks.

use super::Quiver;
use super::descent::NodeAt;
use super::incremental_stats::{count_page, finish, tally};
use super::nibble::{EDGES, END, EdgeRange, edge, identity_of, nibbles};
use super::node::{self, Content, NODE_BYTES, Slot};
use super::operation::Operation;
use super::page::{Head, PageRef, Shape, standing_whole, verify_word};
use super::parent_slot::ParentSlot;
use super::word::{Print, State, Word};
use crate::radix::intent::{Intent, STATUS_BYTES, Status};
use crate::radix::leaf;
use crate::radix::prefix_hash::HashKeys;
use crate::radix::tally::Tally;
use crate::{CheckReport, Result};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::Client;
use std::collections::BTreeSet;

/// A walk in progress.
struct Walk {
    report: CheckReport,
    tally: Tally,
    /// Nodes to visit, each with the number of levels above it.
    nodes: Vec<(NodeAt, usize)>,
    /// The status words of the transactions whose intents were met.
    statuses: BTreeSet<GlobalAddr>,
}

/// A leaf to compare.
struct Expected {
    word: Word,
    /// The static key of the record that names it.
    own: Option<Vec<u8>>,
    /// The page that names it.
    page: GlobalAddr,
    shape: Shape,
    position: Position,
}

/// A page's position in the tree.
#[derive(Clone, Copy)]
struct Position {
    /// The node's identity.
    identity: u64,
    /// Nibbles of its prefix.
    depth: usize,
    /// The edges that the page is still responsible for.
    edges: EdgeRange,
    levels: usize,
}

impl<F: Fabric> Quiver<F> {
    /// Walks and verifies everything, under one pin.
    pub(super) async fn check_all(&self, client: &mut Client<F>) -> Result<CheckReport> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
        let mut walk = Walk {
            report: CheckReport::default(),
            tally: tally(),
            nodes: Vec::new(),
            statuses: BTreeSet::new(),
        };
        let [root] = operation.client.read_words(self.shared.words.root).await?;
        match ParentSlot::root(&self.shared, root).root_node() {
            Ok(root) => walk.nodes.push((root, 0)),
            Err(error) => walk.report.violation(error.to_string()),
        }
        while let Some((node, levels)) = walk.nodes.pop() {
            operation.inspect_node(&mut walk, node, levels).await?;
        }
        operation.inspect_statuses(&mut walk).await?;
        let est = operation.inspect_table(&mut walk.report).await?;
        let Walk { mut report, tally, .. } = walk;
        report.stats = finish(tally, est);
        Ok(report)
    }
}

impl<F: Fabric> Operation<'_, F> {
    async fn inspect_node(&mut self, walk: &mut Walk, at: NodeAt, levels: usize) -> Result<()> {
        if at.depth > crate::KEY_BYTES_MAX * 2 || !walk.report.reach(at.addr, NODE_BYTES, "node") {
            return Ok(());
        }
        let (words, gap) = match self.read_settled(at).await {
            Ok(read) => read,
            Err(error) => return walk.report.unreadable(format!("node at {}", at.addr), error),
        };
        let slots = node::slots(&words);
        if at.depth == 0 && words[0] != identity_of(self.shared.keys, &[], 0) {
            walk.report.violation(format!("node at {}: not a root", at.addr));
        }
        verify_node(&mut walk.report, at, &words, &slots, gap);
        walk.tally.note_node("node", NODE_BYTES, node::live(&slots));
        for (slot, lo) in slots.iter().zip(0..) {
            match slot.content() {
                Content::Node { skip, addr } => {
                    let depth = at.depth + 1 + skip;
                    walk.nodes.push((NodeAt { addr, depth }, levels + 1));
                }
                Content::Page { class, addr, hi } => {
                    let edges = node::edges_of(&slots, lo);
                    let position =
                        Position { identity: words[0], depth: at.depth, edges, levels: levels + 1 };
                    self.inspect_page(walk, PageRef { addr, class }, hi, position).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn inspect_page(
        &mut self,
        walk: &mut Walk,
        page: PageRef,
        hi: u8,
        position: Position,
    ) -> Result<()> {
        if !walk.report.reach(page.addr, page.bytes(), "page") {
            return Ok(());
        }
        let words = match self.client.read(page.addr, page.words()).await {
            Ok(words) => words,
            Err(error) => return walk.report.unreadable(format!("page at {}", page.addr), error),
        };
        let head = match Head::parse(page, &words) {
            Ok(Ok(head)) => head,
            Ok(Err(_)) => {
                walk.report.violation(format!("page at {}: longer than its size class", page.addr));
                return Ok(());
            }
            Err(error) => {
                walk.report.violation(error.to_string());
                return Ok(());
            }
        };
        let shape = head.shape;
        let edges = EdgeRange { hi, ..position.edges };
        if (head.identity, shape.depth, shape.edges) != (position.identity, position.depth, edges) {
            walk.report.violation(format!("page at {}: not made for the slot that points to it", page.addr));
            return Ok(());
        }
        if position.edges.hi < hi {
            walk.report.remark(format!("page at {}: parts of it are being linked", page.addr));
        }
        if shape.has_seal(&words[..shape.words()]) {
            walk.report.remark(format!("page at {}: sealed by an unfinished replacement", page.addr));
        }
        count_page(&mut walk.tally, &head, &words, position.edges, position.levels);
        let mut leaves = Vec::new();
        self.inspect_records(walk, &head, &words, position, &mut leaves);
        verify_delta(walk, &head, position, &mut leaves);
        self.inspect_leaves(walk, leaves).await
    }

    /// Verifies the records.
    fn inspect_records(
        &mut self,
        walk: &mut Walk,
        head: &Head,
        words: &[u64],
        position: Position,
        leaves: &mut Vec<(Expected, GlobalAddr, usize)>,
    ) {
        let (shape, page) = (head.shape, head.page.addr);
        let mut last = None;
        for rank in 0..shape.records {
            let at = shape.record_at(rank);
            let record = &words[at..at + shape.record_words];
            let word = Word(record[0]);
            let own = match standing_whole(page, record) {
                Ok(own) => own.map(|leaf| leaf.key.to_vec()),
                Err(error) => {
                    walk.report.violation(format!("record {rank}: {error}"));
                    continue;
                }
            };
            let print = own.as_ref().map(|key| Print::new(self.shared.keys, key));
            if let Err(error) = verify_word(head.record_addr(rank), word, shape.born, print) {
                walk.report.violation(format!("record {rank}: {error}"));
                continue;
            }
            if let Some(key) = &own {
                let fits = belongs(self.shared.keys, key, Position { edges: shape.edges, ..position });
                let is_led = shape.rank(&head.map, key) == Some(rank);
                if !fits || !is_led || last.as_ref().is_some_and(|last| last >= key) {
                    walk.report
                        .violation(format!("page at {page}: record {rank} does not have its key's word"));
                }
                last.clone_from(&own);
            }
            let is_ours = position.edges.contains(shape.edge_of(word, own.as_deref()));
            match word.state() {
                State::Leaf { addr, class } if is_ours => {
                    let expected = Expected { word, own, page, shape, position };
                    leaves.push((expected, addr, leaf::class_words(class)));
                }
                // The word was verified, so it is of no other kind.
                _ => {}
            }
        }
    }

    async fn inspect_leaves(
        &mut self,
        walk: &mut Walk,
        mut leaves: Vec<(Expected, GlobalAddr, usize)>,
    ) -> Result<()> {
        leaves.retain(|(_, addr, words)| walk.report.reach(*addr, *words as u64 * 8, "leaf"));
        let keys = self.shared.keys;
        let mut seen = BTreeSet::new();
        let statuses = &mut walk.statuses;
        let verify = |report: &mut CheckReport, expected: &Expected, words: &[u64]| {
            let key = match leaf::parse(expected.page, words) {
                Ok(leaf) => leaf.key.to_vec(),
                Err(error) => return report.violation(error.to_string()),
            };
            let page = expected.page;
            let is_twin = |own: &Vec<u8>| Print::new(keys, own).is_twin_of(Print::new(keys, &key));
            let other = expected.own.as_ref().filter(|own| *own != &key);
            if other.is_some_and(|own| !is_twin(own)) {
                return report.violation(format!("page at {page}: a leaf's key does not match its record"));
            }
            let print = expected.shape.leaf_print(page, &key, Print::new(keys, &key));
            if !expected.word.may_be_leaf_of(print) {
                return report.violation(format!("page at {page}: a leaf's key does not match its word"));
            }
            match Intent::of(words) {
                Ok(intent) if intent.is_some() == expected.word.is_intent() => {
                    statuses.extend(intent.map(|intent| intent.status));
                }
                _ => report.violation(format!("page at {page}: an intent under another kind of word")),
            }
            if other.is_some() {
                return report.remark(format!("page at {page}: a leaf of another key, which is ignored"));
            }
            if !belongs(keys, &key, expected.position) {
                report.violation(format!("page at {page}: a leaf of a key that does not belong there"));
            }
            if !seen.insert(key) {
                report.violation(format!("page at {page}: has a key twice"));
            }
        };
        walk.report.verify_each(&mut self.client, &leaves, verify).await
    }

    /// Verifies the status words of the transactions whose intents were met.
    async fn inspect_statuses(&mut self, walk: &mut Walk) -> Result<()> {
        let statuses: Vec<_> = std::mem::take(&mut walk.statuses).into_iter().map(|at| (at, at, 1)).collect();
        if !statuses.is_empty() {
            walk.report.remark(format!("{} transactions whose keys are not settled", statuses.len()));
        }
        for (at, ..) in &statuses {
            walk.report.reach(*at, STATUS_BYTES, "status word");
        }
        let verify = |report: &mut CheckReport, at: &GlobalAddr, words: &[u64]| {
            if let Err(error) = Status::parse(*at, words[0]) {
                report.violation(error.to_string());
            }
        };
        walk.report.verify_each(&mut self.client, &statuses, verify).await
    }
}

/// Verifies the delta.
fn verify_delta(
    walk: &mut Walk,
    head: &Head,
    position: Position,
    leaves: &mut Vec<(Expected, GlobalAddr, usize)>,
) {
    let mut ended = false;
    for word in &head.delta {
        match word.state() {
            State::Empty => ended = true,
            _ if ended => {
                walk.report.violation(format!("page at {}: a delta slot after an empty one", head.page.addr));
            }
            State::Leaf { addr, class } if position.edges.contains(head.shape.edge_of(*word, None)) => {
                let (page, shape) = (head.page.addr, head.shape);
                let expected = Expected { word: *word, own: None, page, shape, position };
                leaves.push((expected, addr, leaf::class_words(class)));
            }
            State::Leaf { .. } | State::Tomb => {}
            State::Inline | State::Invalid => {
                walk.report.violation(format!("page at {}: a delta slot of unknown kind", head.page.addr));
            }
        }
    }
}

/// Whether a key belongs to a page at this position.
fn belongs(keys: HashKeys, key: &[u8], Position { identity, depth, edges, .. }: Position) -> bool {
    nibbles(key) >= depth && identity_of(keys, key, depth) == identity && edges.contains(edge(key, depth))
}

fn verify_node(report: &mut CheckReport, at: NodeAt, words: &[u64], slots: &[Slot; EDGES], gap: Option<u8>) {
    if let Err(error) = node::verify_head(at, words) {
        report.violation(error.to_string());
    }
    if slots[0].content() == Content::Empty {
        report.violation(format!("node at {}: its first slot is empty", at.addr));
    }
    for (slot, edge) in slots.iter().zip(END..) {
        match slot.content() {
            Content::Invalid => {
                report.violation(format!("node at {}: slot {edge} is of unknown kind", at.addr));
            }
            Content::None { hi } | Content::Page { hi, .. } if hi < edge => {
                report.violation(format!("node at {}: slot {edge}: last edge before the first", at.addr));
            }
            _ => {}
        }
    }
    if let Some(edge) = gap {
        report.violation(format!("node at {}: no slot is responsible for edge {edge}", at.addr));
    }
    if node::is_sealed(words) {
        report.remark(format!("node at {}: sealed by an unfinished replacement", at.addr));
    }
}
