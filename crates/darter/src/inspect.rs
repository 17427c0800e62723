//! Inspection of a store: counts and sizes, checks, repairs.
//!
//! A check is two walks that must agree: the index's, from its roots to every leaf, and the pool's,
//! over every block. What the pool holds and the index does not reach is leaked; a repair gives it
//! back. A repair frees only when the index's walk found nothing wrong: what a broken walk did not
//! reach may be alive.

use crate::open_index::OpenIndex;
use crate::{Error, Store};
use darter_fabric::{Fabric, block_on};
use darter_index::{Census, CheckReport, IndexStats, OrderedIndex, Swept};
use darter_pool::{Client, PoolUsage};

/// Counts and sizes of a store.
#[derive(Clone, Debug)]
pub struct Stats {
    /// The index's, by a walk of it.
    pub index: IndexStats,
    /// The pool's.
    pub pool: PoolUsage,
    /// Bytes this process caches for the index.
    pub cache_used_bytes: u64,
    /// Prefix lengths in bytes at which the skip table has entries (DART, section 3.1).
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

impl<F: Fabric> Store<F> {
    /// Counts and sizes, by a walk of the whole index.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails.
    pub fn stats(&self) -> Result<Stats, Error> {
        let mut client = self.pool().client()?;
        block_on(async {
            Ok(Stats {
                index: self.index().stats(&mut client).await?,
                pool: self.pool().usage(&mut client).await?,
                cache_used_bytes: self.index().cache_used_bytes(),
                prefix_list: self.index().prefix_list(),
            })
        })
    }

    /// Counts one more part of the index, a few thousand inner nodes; returns the sums after the
    /// last part. So a large index can be counted again and again beside everything else.
    ///
    /// # Errors
    /// Fails as [`Store::stats`] does; the same part is then counted again.
    pub fn count_some(&self, census: &mut Census) -> Result<Option<IndexStats>, Error> {
        let mut client = self.pool().client()?;
        Ok(block_on(self.index().count_some(&mut client, census))?)
    }

    /// Returns how much of the pool each member uses. Cheap: it reads tables, not the index.
    ///
    /// # Errors
    /// Fails if the pool fails.
    pub fn usage(&self) -> Result<PoolUsage, Error> {
        let mut client = self.pool().client()?;
        Ok(block_on(self.pool().usage(&mut client))?)
    }

    /// Walks index and pool, verifies every invariant, and counts what is leaked. Operations of
    /// this process must rest meanwhile, or what they have in hand counts as leaked; other
    /// processes may go on.
    ///
    /// # Errors
    /// Fails if a walk cannot go on. What it merely finds wrong is in the result.
    pub fn check(&self) -> Result<Check, Error> {
        let mut client = self.pool().client()?;
        block_on(check(self.open_index(), &mut client))
    }

    /// Gives back what dead processes left behind, then checks. Does nothing but report when an
    /// invariant is broken.
    ///
    /// # Errors
    /// Fails as [`Store::check`] does. What was not given back stays leaked, and another repair can
    /// be tried.
    pub fn repair(&self) -> Result<Check, Error> {
        let mut client = self.pool().client()?;
        block_on(repair(self.open_index(), &mut client))
    }
}

async fn check<F: Fabric>(open: &OpenIndex<F>, client: &mut Client<F>) -> Result<Check, Error> {
    open.settle(client).await?;
    let CheckReport { mut violations, mut remarks, reachable, stats, stale_hints: _ } =
        open.index.check(client).await?;
    let audit = open.pool.audit(client, &reachable).await?;
    let usage = open.pool.usage(client).await?;
    violations.extend(audit.violations);
    if usage.bad_frees > 0 {
        violations.push(format!("{} frees named no object in use", usage.bad_frees));
    }
    if audit.dead_blocks > 0 {
        remarks.push(format!(
            "{} blocks were left by processes that died; a repair sweeps them",
            audit.dead_blocks
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

async fn repair<F: Fabric>(open: &OpenIndex<F>, client: &mut Client<F>) -> Result<Check, Error> {
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
            after.repaired_bytes = report.reclaimed_bytes;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_counted_in_steps_as_at_once() {
        let store = Store::open("mem:64M").unwrap();
        let mut session = store.session().unwrap();
        // Spread, so that there are more inner nodes than one step counts.
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        for number in 0..60_000 {
            session.put(key(number), b"value").unwrap();
        }
        let (mut census, mut steps) = (Census::default(), 1);
        let counted = loop {
            if let Some(stats) = store.count_some(&mut census).unwrap() {
                break stats;
            }
            assert!(census.nodes() > 0);
            steps += 1;
        };
        assert!(steps > 1 && census.nodes() == 0, "{steps} steps");
        let whole = store.stats().unwrap().index;
        assert_eq!(
            (counted.keys, counted.kv_bytes, &counted.levels),
            (60_000, whole.kv_bytes, &whole.levels)
        );
        let bytes =
            |stats: &IndexStats| stats.nodes.iter().map(|node| (node.count, node.bytes)).collect::<Vec<_>>();
        assert_eq!(bytes(&counted), bytes(&whole));

        let before = store.index().samples();
        for number in 0..6_400 {
            session.get(key(number)).unwrap();
        }
        let after = store.index().samples();
        let (searches, express) = (after.searches - before.searches, after.express - before.express);
        assert!(searches >= 99, "one of 64: {searches}");
        assert!(express * 2 > searches && express <= searches, "{express} of {searches} led past the root");
    }
}
