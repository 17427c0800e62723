//! Inspection of a store: counts and sizes, checks, repairs.
//!
//! A check compares two walks: of the index, from its roots to every leaf, and of the pool, over
//! every block. Objects that the pool has and the index does not reach are leaked; a repair frees
//! them. A repair frees memory only if the index's walk found no violation: objects that a failed
//! walk did not reach may be in use.

use crate::Error;
use crate::open_index::OpenIndex;
use crate::parts::StoreClient;
use darter_fabric::{Fabric, counted};
use darter_index::{CheckReport, IndexStats, OrderedIndex, Swept};
use darter_pool::PoolUsage;

/// Counts and sizes of a store.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// store.put_many(&[("pear", "green"), ("plum", "blue")])?;
/// let stats: darter::report::Stats = store.stats()?;
/// assert_eq!((stats.name, stats.index.keys), ("quiver", 2));
/// println!("{} of {} bytes in use", stats.pool.used_bytes(), stats.pool.bytes());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Stats {
    /// The index's name.
    pub name: &'static str,
    /// Counts and sizes of the index, by a walk.
    pub index: IndexStats,
    /// The use of the pool.
    pub pool: PoolUsage,
    /// Bytes that this process caches for the index.
    pub cache_used_bytes: u64,
    /// Prefix lengths in bytes at which the skip table has entries (DART, section 3.1); empty for
    /// an index without one.
    pub prefix_list: Vec<u8>,
}

/// The result of a check.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// store.put("pear", "green")?;
/// let check: darter::report::Check = store.check()?;
/// for remark in check.violations.iter().chain(&check.remarks) {
///     println!("{remark}");
/// }
/// assert_eq!(check.leaked_bytes, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Check {
    /// Violated invariants, described for operators. Empty if index and pool are sound.
    pub violations: Vec<String>,
    /// Remarks that are not violations.
    pub remarks: Vec<String>,
    /// Bytes that no client can reach or will free; a repair frees them.
    pub leaked_bytes: u64,
    /// Bytes of reachable objects in blocks of other live processes. Only those processes know the
    /// free space in their blocks.
    pub unverified_bytes: u64,
    /// Bytes that a repair has freed; 0 from a check alone.
    pub repaired_bytes: u64,
    /// The index's counts and sizes.
    pub stats: IndexStats,
    /// The use of the pool.
    pub usage: PoolUsage,
}

impl Check {
    /// Returns whether no invariant is violated. Leaks waste space, but violate none.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// assert!(store.check()?.is_sound());
    /// # Ok(())
    /// # }
    /// ```
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
            "processes that died left {}, which a repair will sweep",
            counted(audit.dead_blocks, "block")
        ));
    }
    if audit.own_leaked_bytes > 0 {
        remarks.push(format!(
            "{} bytes in blocks of this process have no owner: operations were cut short, or processes died before \
             they freed deleted objects; a repair frees them after this process has ended",
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
        before
            .remarks
            .push("nothing was repaired: objects that the walk did not reach may be in use".to_owned());
        return Ok(before);
    }
    let swept = open.index.sweep_dead(client).await?;
    let mut after = check(open, client).await?;
    match swept {
        Swept::Refused(violations) => after.violations.extend(violations),
        Swept::Done(report) => {
            // Computed like the leaks, since blocks that were swept had free space before.
            after.repaired_bytes = before.leaked_bytes.saturating_sub(after.leaked_bytes);
            after.violations.extend(report.violations);
            if !report.finished {
                after.remarks.push(format!(
                    "the repair is not finished: the processes of client slots {:?} make no progress; end them, or try again",
                    report.waiting_for
                ));
            }
        }
    }
    Ok(after)
}
