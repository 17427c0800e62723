//! Inspection of a store: counts and sizes, checks, repairs.
//!
//! A check is two walks that must agree: the index's, from its roots to every leaf, and the pool's,
//! over every block. What the pool holds and the index does not reach is leaked; a repair gives it
//! back. A repair frees only when the index's walk found nothing wrong: what a broken walk did not
//! reach may be alive.

use crate::Error;
use crate::open_index::OpenIndex;
use crate::parts::StoreClient;
use darter_fabric::{Fabric, counted};
use darter_index::{CheckReport, IndexStats, OrderedIndex, Swept};
use darter_pool::PoolUsage;

/// Counts and sizes of a store.
#[derive(Clone, Debug)]
pub struct Stats {
    /// The index's name.
    pub name: &'static str,
    /// The index's, by a walk of it.
    pub index: IndexStats,
    /// The pool's.
    pub pool: PoolUsage,
    /// Bytes this process caches for the index.
    pub cache_used_bytes: u64,
    /// Prefix lengths in bytes at which the skip table has entries (DART, section 3.1); empty for an
    /// index without one.
    pub prefix_list: Vec<u8>,
}

/// What a check found.
#[derive(Clone, Debug)]
pub struct Check {
    /// Broken invariants, in words a person can act on. Empty when index and pool are sound.
    pub violations: Vec<String>,
    /// Things worth knowing that break nothing.
    pub remarks: Vec<String>,
    /// Bytes that no client can reach or will free; a repair frees them.
    pub leaked_bytes: u64,
    /// Bytes of reachable objects in blocks of other live processes, whose free space only those
    /// know.
    pub unverified_bytes: u64,
    /// Bytes that a repair gave back; 0 from a plain check.
    pub repaired_bytes: u64,
    /// The index's counts and sizes.
    pub stats: IndexStats,
    /// The pool's.
    pub usage: PoolUsage,
}

impl Check {
    /// Returns whether no invariant is broken. Leaks waste space and break nothing.
    pub fn is_sound(&self) -> bool {
        self.violations.is_empty()
    }
}

pub(crate) async fn stats(open: &OpenIndex, client: &mut StoreClient) -> Result<Stats, Error> {
    let index = open.index.stats(client).await?;
    let prefix_list = index.est.as_ref().map(|est| est.prefix_list.clone()).unwrap_or_default();
    Ok(Stats {
        name: open.index.name(),
        index,
        pool: open.pool.usage(client).await?,
        cache_used_bytes: open.index.cache_used_bytes(),
        prefix_list,
    })
}

pub(crate) async fn check(open: &OpenIndex, client: &mut StoreClient) -> Result<Check, Error> {
    open.settle(client).await?;
    let CheckReport { mut violations, mut remarks, reachable, stats, stale_hints: _ } =
        open.index.check(client).await?;
    let audit = open.pool.audit(client, &reachable).await?;
    let usage = open.pool.usage(client).await?;
    violations.extend(audit.violations);
    let fabric = open.pool.fabric();
    for node in (0..fabric.nodes()).map(|node| node as u8) {
        let compared = fabric.replica_groups().compare_replicas(node);
        violations.extend(compared.differences);
        remarks.extend(compared.remarks);
    }
    if usage.bad_frees > 0 {
        violations.push(format!("{} named no object in use", counted(usage.bad_frees, "free")));
    }
    if audit.dead_blocks > 0 {
        remarks.push(format!(
            "processes that died left {}, to be swept by a repair",
            counted(audit.dead_blocks, "block")
        ));
    }
    if audit.own_leaked_bytes > 0 {
        remarks.push(format!(
            "{} bytes in blocks of this process belong to nobody: operations were cut short, or processes died before \
             they freed what they had deleted; a repair gives them back once this process has ended",
            audit.own_leaked_bytes
        ));
    }
    Ok(Check {
        violations,
        remarks,
        leaked_bytes: audit.leaked_bytes,
        unverified_bytes: audit.unverified_bytes,
        repaired_bytes: 0,
        stats,
        usage,
    })
}

pub(crate) async fn repair(open: &OpenIndex, client: &mut StoreClient) -> Result<Check, Error> {
    let mut before = check(open, client).await?;
    if !before.is_sound() {
        before.remarks.push("nothing was repaired: what the walk did not reach may be alive".to_owned());
        return Ok(before);
    }
    let swept = open.index.sweep_dead(client).await?;
    let mut after = check(open, client).await?;
    match swept {
        Swept::Refused(violations) => after.violations.extend(violations),
        Swept::Done(report) => {
            // By the same account as what leaks: blocks that were swept had free space before.
            after.repaired_bytes = before.leaked_bytes.saturating_sub(after.leaked_bytes);
            after.violations.extend(report.violations);
            if !report.finished {
                after.remarks.push(format!(
                    "the repair is not finished: the processes of client slots {:?} do not move on; end them, or try again",
                    report.waiting_for
                ));
            }
        }
    }
    Ok(after)
}
