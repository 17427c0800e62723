//! The check: a walk of everything reachable from the root words that verifies every invariant of
//! the format. The same walk counts for the statistics, without reading leaves.
//!
//! It verifies that identities match the keys below and key bytes their slots, an edge has one
//! slot, in its own bucket, leaves hold the key that their path spells, depths increase, and no
//! object is reached twice. Other clients may work at the same time: the walk stays pinned, so the
//! objects it reaches cannot be reused.

use super::Art;
use super::node::{self, Content, Header, NodeType, Part, Slot};
use super::scan::check_depth;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::path::{Path, PathStep};
use darter_index::radix::seal::SEAL;
use darter_index::radix::slot::END;
use darter_index::radix::tally::Tally;
use darter_index::{CheckReport, IndexStats, Result};
use darter_pool::Client;

/// A walk in progress.
struct Inspection {
    report: CheckReport,
    tally: Tally,
    path: Path<Slot>,
    /// Whether to read leaves and verify everything, or only to count.
    verifies: bool,
}

impl<F: Fabric> Art<F> {
    /// Walks and verifies everything.
    pub(super) async fn check_all(&self, client: &mut Client<F>) -> Result<CheckReport> {
        self.walk(client, true).await
    }

    /// Counts everything without reading a leaf.
    pub(super) async fn collect_stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        Ok(self.walk(client, false).await?.stats)
    }

    async fn walk(&self, client: &mut Client<F>, verifies: bool) -> Result<CheckReport> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let mut walk = Inspection {
            report: CheckReport::default(),
            tally: Tally::new(self.shared.layout.iter().map(|ty| ty.name())),
            path: Path::new(self.shared.keys, !SEAL),
            verifies,
        };
        let root = self.shared.read_root(&mut client).await?;
        self.inspect_node(&mut client, &mut walk, root).await?;
        while let Some(child) = walk.path.next_child() {
            self.inspect_node(&mut client, &mut walk, child).await?;
        }
        walk.report.stats = walk.tally.finish();
        self.shared.hocl.report(&mut client, &mut walk.report).await?;
        Ok(walk.report)
    }

    /// Reads the node that a slot points to, verifies it and its leaves, and pushes it onto the
    /// path.
    async fn inspect_node(&self, client: &mut Client<F>, walk: &mut Inspection, slot: Slot) -> Result<()> {
        let Content::Node { addr, ty, .. } = slot.content() else { return Ok(()) };
        if !walk.report.reach(addr, ty.pool_bytes(), "inner node") {
            return Ok(());
        }
        let words = match client.read(addr, ty.words()).await {
            Ok(words) => words,
            Err(error) => {
                return walk.report.unreadable(format_args!("{} at {addr}", ty.name()), error);
            }
        };
        let header = Header::new(&words);
        if let Err(error) = check_depth(addr, header.depth(), walk.path.depth()) {
            walk.report.violation(error.to_string());
            return Ok(());
        }
        let live = Part::whole(ty, &words).children();
        walk.tally.note_node(ty.name(), ty.pool_bytes(), live.len());
        if walk.verifies {
            verify_node(walk, addr, ty, &words, live.len());
        }
        let is_node = |slot: &&Slot| matches!(slot.content(), Content::Node { .. });
        let children = live.iter().filter(is_node).map(|&slot| (slot.edge().unwrap_or(END), slot));
        let step = PathStep { addr, name: ty.name(), depth: header.depth(), identity: header.identity() };
        walk.path.enter(step, children);
        let Inspection { report, tally, path, verifies } = walk;
        path.visit_leaves(client, (report, tally), &live, *verifies).await
    }
}

fn verify_node(walk: &mut Inspection, addr: GlobalAddr, ty: NodeType, words: &[u64], live: usize) {
    let name = ty.name();
    let whole = Part::whole(ty, words);
    if let Err(error) = node::verify_edges(addr, ty, words) {
        walk.report.violation(format!("{name}: {error}"));
    }
    let (mut held, mut sealed) = (0, u32::from(whole.header.is_sealed()));
    for (_, slot) in node::slots(ty, words) {
        held += usize::from(slot.is_live());
        sealed += u32::from(slot.is_sealed());
    }
    if held != live {
        walk.report
            .violation(format!("{name} at {addr}: {held} slots hold children, {live} of them can be found"));
    }
    if sealed > 0 {
        walk.report.remarks.push(format!(
            "{name} at {addr}: {sealed} words sealed by an unfinished replacement; the next writer finishes it"
        ));
    }
    if live < 2 && walk.path.levels() > 0 {
        walk.report.remarks.push(format!(
            "{name} at {addr}: live children: {live}; left by a client that died, or by many deletes at a time; \
             the next delete near it takes it out"
        ));
    }
}
