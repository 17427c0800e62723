//! Operations at memory nodes (paper, section 6).
//!
//! If an inner node is missing, the owner can call the memory node that holds it, which descends from
//! there to the leaf. The published rule calls for a node of level L if
//!
//! ```text
//! cost of a call < (L + 1) · (cost of a READ + search in a page, 40 ns) · 1.2
//! ```
//!
//! and does the contrary in 1% of the cases, so that the tree below can enter the cache at all. Only
//! nodes of levels 1 to 3 under a private parent are considered, once the cache is full. A memory node
//! returns the operation if a page is on another node, if the leaf has no room, or if it does not find
//! whole pages with matching fences. If it has no such procedure, all pages are fetched from then on.
//!
//! Request: kind of operation, address and level of the page, key, value, guard, and its word. Reply:
//! status, whether there was a value, the value, the leaf's address.
//!
//! While a memory node writes a leaf, the owner holds the lock of the missing page, so no other client
//! can reach the leaf. The memory node takes no lock, as published.

use super::Operation;
use super::cache::Missing;
use super::node::{Applied, Change, Guard, NODE_WORDS, Node};
use super::options::Offload;
use super::pages::Doubt;
use crate::sync::lock;
use darter_fabric::{CallFault, Endpoint, Fabric, FabricError, GlobalAddr, Procedures};
use darter_index::Result;
use std::collections::VecDeque;
use std::time::Instant;

/// The procedure's number.
const RUN: u64 = 0x4445_0001;
/// Levels of missing nodes below which a memory node may be called.
const LEVELS: std::ops::RangeInclusive<u8> = 1..=3;
/// The search in a page, the paper's `l_s`.
const SEARCH_NS: f64 = 40.0;
/// The paper's c.
const FACTOR: f64 = 1.2;
/// Probability, in percent, that the contrary of the rule is done.
const CONTRARY: u8 = 1;
/// Samples of an average, and decisions for each before the rule is used.
const SAMPLES: usize = 50;
/// READs of a page that is being written.
const READS_MAX: u32 = 8;

const GET: u64 = 0;
const PUT: u64 = 1;
const REMOVE: u64 = 2;

const DONE: u64 = 0;
const REFUSED: u64 = 1;
const FULL: u64 = 2;
/// The owner has to do it.
const RETURNED: u64 = 3;

/// Measured costs, and the number of decisions made before there were enough.
#[derive(Debug, Default)]
pub(super) struct Costs {
    calls: VecDeque<f64>,
    reads: VecDeque<f64>,
    decisions: usize,
    /// A memory node has no such procedure.
    is_unserved: bool,
}

impl Costs {
    /// Decides by averages; the first decisions fetch, and the next ones call.
    fn decide(&mut self, level: u8) -> bool {
        let average = |samples: &VecDeque<f64>| samples.iter().sum::<f64>() / samples.len().max(1) as f64;
        if self.decisions < 2 * SAMPLES {
            self.decisions += 1;
            return self.decisions > SAMPLES;
        }
        is_cheaper(average(&self.calls), average(&self.reads), level)
    }
}

/// The published rule.
fn is_cheaper(call_ns: f64, read_ns: f64, level: u8) -> bool {
    call_ns < f64::from(level + 1) * (read_ns + SEARCH_NS) * FACTOR
}

impl<F: Fabric> Operation<'_, F> {
    /// Returns whether to call the memory node of a missing page.
    pub(super) fn calls(&self, missing: &Missing) -> bool {
        let mut costs = lock(&self.shared.costs);
        if !LEVELS.contains(&missing.level) || missing.parent_is_shared || costs.is_unserved {
            return false;
        }
        let mut cache = self.cache();
        if self.shared.options.offload == Offload::Off || !cache.was_full() {
            return false;
        }
        let is_contrary = cache.draw(CONTRARY);
        let by_rule = match self.shared.options.offload {
            Offload::Off => false,
            Offload::Fixed { call_ns, read_ns } => is_cheaper(call_ns.into(), read_ns.into(), missing.level),
            Offload::Measured => costs.decide(missing.level),
        };
        by_rule != is_contrary
    }

    /// Returns a key's word as a memory node finds it; `None` if it does not.
    pub(super) async fn call_get(&mut self, key: u64, missing: &Missing) -> Result<Option<Option<u64>>> {
        let request = vec![GET, missing.addr.bits(), missing.level.into(), key, 0, 0, 0];
        let reply = self.call(missing.addr, request).await?;
        Ok(match reply {
            Some([DONE, present, word, _]) => Some((present != 0).then_some(word)),
            _ => None,
        })
    }

    /// Changes a key at a memory node; `None` if it has changed nothing and the page must be fetched.
    pub(super) async fn call_change(
        &mut self,
        (key, change, guard): (u64, Change, Guard),
        missing: &Missing,
    ) -> Result<Option<Applied>> {
        let Some(mut io) = self.begin(key, missing).await? else { return Ok(None) };
        let (kind, value) = match change {
            Change::Put(value) => (PUT, value),
            Change::Remove => (REMOVE, 0),
        };
        let (guard, word) = match guard {
            Guard::Any => (0, 0),
            Guard::Absent => (1, 0),
            Guard::Present => (2, 0),
            Guard::Equals(word) => (3, word),
        };
        let request = vec![kind, missing.addr.bits(), missing.level.into(), key, value, guard, word];
        io.doubt = Some(Doubt::Below(missing.fences));
        let reply = self.call(missing.addr, request).await;
        if let Ok(reply) = &reply {
            io.doubt = None;
            if let Some([DONE, _, _, leaf]) = reply {
                self.cache().forget(GlobalAddr::from_bits(*leaf));
            }
        }
        io.finish();
        Ok(match reply? {
            Some([status @ (DONE | REFUSED), present, word, _]) => {
                let old = (present != 0).then_some(word);
                if status == DONE {
                    self.retire_old(old);
                }
                Some(if status == DONE { Applied::Done(old) } else { Applied::Refused(old) })
            }
            _ => None,
        })
    }

    async fn call(&mut self, addr: GlobalAddr, request: Vec<u64>) -> Result<Option<[u64; 4]>> {
        let begun = Instant::now();
        match self.client.call(addr.node(), RUN, request).await {
            Ok(reply) => {
                self.note(begun, true);
                Ok(reply.try_into().ok())
            }
            Err(FabricError::Call(error))
                if matches!(
                    error.fault,
                    CallFault::NoServer | CallFault::Unknown | CallFault::Unsupported
                ) =>
            {
                lock(&self.shared.costs).is_unserved = true;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Records how long a call, or a READ of a page, took.
    pub(super) fn note(&self, begun: Instant, is_call: bool) {
        if self.shared.options.offload == Offload::Measured {
            let mut costs = lock(&self.shared.costs);
            let samples = if is_call { &mut costs.calls } else { &mut costs.reads };
            samples.push_back(begun.elapsed().as_nanos() as f64);
            if samples.len() > SAMPLES {
                samples.pop_front();
            }
        }
    }
}

/// The procedure of a memory node that runs operations of DEX. Needs no state: it finds everything in
/// the request and the pages.
#[derive(Clone, Debug)]
pub struct DexService<F: Fabric> {
    fabric: F,
}

impl<F: Fabric> DexService<F> {
    /// Creates it for the nodes of a fabric, as the node's own process sees them.
    pub fn new(fabric: &F) -> Self {
        Self { fabric: fabric.clone() }
    }

    /// Returns the procedures that owners call.
    pub fn procedures(&self) -> Procedures {
        Procedures::new().with(RUN, &self.fabric, |mut endpoint, words| async move {
            let reply = run(&mut endpoint, &words).await?;
            Ok(reply.unwrap_or([RETURNED, 0, 0, 0]).to_vec())
        })
    }
}

/// Runs an operation; `None` if the owner has to do it.
async fn run<E: Endpoint>(endpoint: &mut E, words: &[u64]) -> Result<Option<[u64; 4]>, FabricError> {
    let &[kind, start, level, key, value, guard, word] = words else { return Ok(None) };
    let (mut addr, mut level) = (GlobalAddr::from_bits(start), level);
    let node = addr.node();
    let mut fences = None;
    let mut leaf = loop {
        let Some(page) = read_whole(endpoint, addr).await? else { return Ok(None) };
        let is_expected =
            u64::from(page.level()) == level && fences.is_none_or(|range| page.fences() == range);
        if !is_expected || !page.fences().contains(key) {
            return Ok(None);
        }
        if level == 0 {
            break page;
        }
        let slot = page.child_for(key);
        (addr, fences, level) = (page.child(slot), Some(page.range(slot)), level - 1);
        if addr.node() != node {
            return Ok(None);
        }
    };
    let reply =
        |status, old: Option<u64>| Ok(Some([status, old.is_some().into(), old.unwrap_or(0), addr.bits()]));
    let change = match kind {
        GET => return reply(DONE, leaf.get(key)),
        PUT => Change::Put(value),
        REMOVE => Change::Remove,
        _ => return Ok(None),
    };
    let guard = match guard {
        0 => Guard::Any,
        1 => Guard::Absent,
        2 => Guard::Present,
        _ => Guard::Equals(word),
    };
    match leaf.apply(key, change, guard) {
        Applied::Done(old) => {
            let mut batch = endpoint.batch();
            batch.write(addr, leaf.sealed());
            let done = endpoint.submit(batch).await?;
            endpoint.recycle(done);
            reply(DONE, old)
        }
        Applied::Refused(old) => reply(REFUSED, old),
        Applied::Full => reply(FULL, None),
    }
}

/// Reads a page; `None` if its words are not a whole image.
async fn read_whole<E: Endpoint>(endpoint: &mut E, addr: GlobalAddr) -> Result<Option<Node>, FabricError> {
    for _ in 0..READS_MAX {
        let mut batch = endpoint.batch();
        let read = batch.read(addr, NODE_WORDS);
        let done = endpoint.submit(batch).await?;
        let node = Node::from_words(addr, done.words(read));
        endpoint.recycle(done);
        if node.is_some() {
            return Ok(node);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_calls_if_the_fetches_cost_more() {
        assert!(is_cheaper(3000.0, 2000.0, 1), "2 fetches");
        assert!(!is_cheaper(5000.0, 2000.0, 1));
        assert!(is_cheaper(5000.0, 2000.0, 2));
    }

    #[test]
    fn the_first_decisions_measure_both_ways() {
        let mut costs = Costs::default();
        let decisions: Vec<_> = (0..2 * SAMPLES).map(|_| costs.decide(1)).collect();
        assert!(decisions[..SAMPLES].iter().all(|calls| !calls));
        assert!(decisions[SAMPLES..].iter().all(|calls| *calls));
        costs.calls.push_back(9000.0);
        costs.reads.push_back(2000.0);
        assert!(!costs.decide(1));
        costs.calls[0] = 1000.0;
        assert!(costs.decide(1));
    }
}
