//! Eviction: how members that are gone are found and ended (`member`).

use darter_fabric::{Fabric, FabricError, FenceOutcome, Suspect, mutant};

use super::member::{MemberLine, MemberTable, end, read_line, read_table};
use crate::blocks::MemberId;
use crate::error::PoolError;

/// What came of an attempt to evict members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evictions {
    /// Some were ended.
    pub any: bool,
    /// Of some it is not known whether they live.
    pub unsure: bool,
}

/// Ends those members, read as live, that are gone, or that have lapsed and can be shut out. Of
/// each: slot, line, and whether the line has said the same for a lease's time up to now.
pub(crate) async fn evict_gone<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    suspects: impl Iterator<Item = (u32, MemberLine, bool)>,
) -> Result<Evictions, PoolError> {
    let mut evictions = Evictions::default();
    for (slot, line, lapsed) in suspects {
        let now = read_line(endpoint, slot).await?;
        if !now.live || now.incarnation != line.incarnation {
            continue;
        }
        let lapsed =
            lapsed && (now.deadline_ms == line.deadline_ms || mutant!("bury-though-the-lease-was-renewed"));
        let holder = if mutant!("bury-whoever-the-line-names-now") { now.holder } else { line.holder };
        let suspect = Suspect { slot, holder, lapsed };
        match fabric.fence(suspect) {
            Ok(FenceOutcome::Alive) => {}
            // At all nodes that this process knows; if there are more, a member that knows them has
            // to do it.
            Ok(FenceOutcome::Fenced) => {
                let nodes = usize::from(read_table(endpoint, 0).await?.nodes);
                if nodes > fabric.nodes() && !mutant!("bury-without-the-nodes-that-came-since") {
                    evictions.unsure = true;
                } else {
                    end(endpoint, MemberId { member: slot as u8, incarnation: line.incarnation }).await?;
                    evictions.any = true;
                }
            }
            Err(FabricError::Fenced) => return Err(FabricError::Fenced.into()),
            // A memory node that is away can be told later, and until then the member is not ended.
            Ok(FenceOutcome::Unknown) | Err(_) => evictions.unsure = true,
        }
    }
    Ok(evictions)
}

/// What this process has seen of the others' lines, and since when.
#[derive(Debug, Default)]
pub(crate) struct LastSeen {
    /// By slot: the line's incarnation and deadline, and when it was first seen to say so.
    seen: Vec<(u32, u64, u64)>,
}

impl LastSeen {
    /// Takes a table into account that was read at `now_ms` or before.
    pub(crate) fn note(&mut self, table: &MemberTable, now_ms: u64) {
        self.seen.resize(table.lines.len().max(self.seen.len()), (0, 0, now_ms));
        for (seen, line) in self.seen.iter_mut().zip(&table.lines) {
            if (seen.0, seen.1) != (line.incarnation, line.deadline_ms) {
                *seen = (line.incarnation, line.deadline_ms, now_ms);
            }
        }
    }

    /// Milliseconds that a line had said the same when the clock showed `now_ms`.
    pub(crate) fn silent_ms(&self, slot: u32, line: &MemberLine, now_ms: u64) -> u64 {
        match self.seen.get(slot as usize) {
            Some(&(incarnation, deadline, since))
                if (incarnation, deadline) == (line.incarnation, line.deadline_ms) =>
            {
                now_ms.saturating_sub(since)
            }
            _ => 0,
        }
    }
}
