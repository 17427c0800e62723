//! The results of a check: broken invariants, remarks, reachable objects, and counts and sizes.

use crate::{IndexError, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::{Client, ReachableSet};
use std::fmt::Display;

/// The result of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Broken invariants, described so that a person can act on them; empty if the index is sound.
    /// At most 1,000 are kept.
    pub violations: Vec<String>,
    /// Observations that break no invariant, such as work that a dead client left half done.
    pub remarks: Vec<String>,
    /// Hints that name a node that is no longer in the index. There are none if no unlinked object
    /// is waiting to be freed.
    pub stale_hints: u64,
    /// Every object reachable from the index's roots, for the pool's audit.
    pub reachable: ReachableSet,
    /// Counts and sizes.
    pub stats: IndexStats,
}

/// Bytes of leaves that a check reads in one round trip.
const LEAF_BATCH_BYTES: usize = 1 << 20;

/// Maximum number of violations, and of remarks, that are kept.
const FINDINGS_MAX: usize = 1000;

impl CheckReport {
    /// Adds a broken invariant, up to the maximum number that is kept.
    pub fn violation(&mut self, text: String) {
        if self.violations.len() < FINDINGS_MAX {
            self.violations.push(text);
        }
    }

    /// Records that `what` cannot be read because the pool's bytes are damaged.
    ///
    /// # Errors
    /// Returns an error that does not concern the pool's bytes, such as a lost connection: the
    /// check cannot continue after it.
    pub fn unreadable(&mut self, what: impl Display, error: impl Into<IndexError>) -> Result<()> {
        let error = error.into();
        if !error.is_damage() {
            return Err(error);
        }
        self.violation(format!("{what}: {error}"));
        Ok(())
    }

    /// Reads leaves, each given by its address and length in words, up to 1 MiB per round trip, and
    /// passes the words of each to `verify`.
    ///
    /// # Errors
    /// Those of [`CheckReport::unreadable`].
    pub async fn verify_each<F: Fabric, T: Sync>(
        &mut self,
        client: &mut Client<F>,
        leaves: &[(T, GlobalAddr, usize)],
        mut verify: impl FnMut(&mut Self, &T, &[u64]) + Send,
    ) -> Result<()> {
        let mut rest = leaves;
        while let [(_, first, _), ..] = rest {
            let (mut batch, mut reads, mut bytes) = (client.batch(), Vec::new(), 0);
            while let [(leaf, addr, words), tail @ ..] = rest
                && (reads.is_empty() || bytes + words * 8 <= LEAF_BATCH_BYTES)
            {
                reads.push((leaf, batch.read(*addr, *words)));
                bytes += words * 8;
                rest = tail;
            }
            match client.complete(batch).await {
                Ok(done) => reads.iter().for_each(|&(leaf, read)| verify(self, leaf, done.words(read))),
                Err(error) => self.unreadable(format_args!("leaves read with that at {first}"), error)?,
            }
        }
        Ok(())
    }

    /// Adds a remark, up to the maximum number that is kept.
    pub fn remark(&mut self, text: String) {
        if self.remarks.len() < FINDINGS_MAX {
            self.remarks.push(text);
        }
    }

    /// Records an object as reached. Returns whether it is new and overlaps no other; if not, adds
    /// a violation.
    pub fn reach(&mut self, addr: GlobalAddr, bytes: u64, what: &str) -> bool {
        let is_fresh = self.reachable.insert(addr, bytes);
        if !is_fresh {
            self.violation(format!("{what} at {addr}: overlaps another object, or is reached twice"));
        }
        is_fresh
    }
}

/// Counts and sizes of an index.
#[derive(Clone, Debug, Default)]
pub struct IndexStats {
    /// Keys.
    pub keys: u64,
    /// Bytes of leaves: keys, values, headers, rounding.
    pub kv_bytes: u64,
    /// Bytes of everything else: inner nodes and the express skip table; for Quiver, nodes and
    /// pages, including the pairs stored in pages.
    pub index_bytes: u64,
    /// Inner nodes by type name, smallest type first: count, bytes, live children.
    pub nodes: Vec<NodeTypeStats>,
    /// `levels[d]` is the number of leaves with `d` inner nodes above them (index 0 is unused).
    pub levels: Vec<u64>,
    /// Deepest leaf, in inner nodes.
    pub depth_max: usize,
    /// The express skip table, if the index has one.
    pub est: Option<EstStats>,
}

/// Counts and sizes of one inner-node type.
#[derive(Clone, Debug)]
pub struct NodeTypeStats {
    /// `N4`, `N16` and so on.
    pub name: &'static str,
    /// Nodes of this type.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Live children in them.
    pub children: u64,
}

/// The express skip table's state (DART, section 3.1).
#[derive(Clone, Debug, Default)]
pub struct EstStats {
    /// The prefix list, in bytes, ascending.
    pub prefix_list: Vec<u8>,
    /// Entries in the directory.
    pub directory_entries: u64,
    /// Segments.
    pub segments: u64,
    /// Slots in use.
    pub entries: u64,
    /// Total slots.
    pub slots: u64,
    /// Bytes of the directory and the segments.
    pub bytes: u64,
}
