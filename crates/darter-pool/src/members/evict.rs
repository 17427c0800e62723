//! Eviction: how members that are gone are detected and ended (`member`).

use darter_fabric::{Fabric, FabricError, FenceOutcome, Suspect};

use super::member::{MemberLine, MemberTable, end, read_line, read_table};
use super::silence::Silence;
use crate::blocks::MemberId;
use crate::error::PoolError;

/// The result of an attempt to evict members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evictions {
    /// Some were ended.
    pub any: bool,
    /// For some it is unknown whether they are alive.
    pub unsure: bool,
}

/// Ends those of the given members, read as live, that are gone, or that have lapsed and can be
/// shut out. Each is given by its slot, its line, and whether the line has not changed for a lease
/// up to now.
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
        let lapsed = lapsed && now.heartbeat == line.heartbeat;
        match fabric.fence(Suspect { slot, holder: line.holder, lapsed }) {
            Ok(FenceOutcome::Alive) => {}
            // At all nodes that this process knows. If there are more, a member that knows them
            // must do it.
            Ok(FenceOutcome::Fenced) => {
                let nodes = usize::from(read_table(endpoint, 0).await?.nodes);
                if nodes > fabric.nodes() {
                    evictions.unsure = true;
                } else {
                    end(endpoint, MemberId { member: slot as u8, incarnation: line.incarnation }).await?;
                    evictions.any = true;
                }
            }
            Err(FabricError::Fenced) => return Err(FabricError::Fenced.into()),
            // An absent memory node can shut it out later; until then the member is not ended.
            Ok(FenceOutcome::Unknown) | Err(_) => evictions.unsure = true,
        }
    }
    Ok(evictions)
}

/// Returns which of the given members, as for [`evict_gone`], node 0 does not shut out: their slots and
/// process ids. Other nodes need not be reached for that, so a member that is not returned may not have
/// ended yet.
pub(crate) fn at_work<F: Fabric>(
    fabric: &F,
    suspects: impl Iterator<Item = (u32, MemberLine, bool)>,
) -> Result<Vec<(u32, u64)>, PoolError> {
    let mut at_work = Vec::new();
    for (slot, line, lapsed) in suspects {
        match fabric.fence(Suspect { slot, holder: line.holder, lapsed }) {
            Ok(FenceOutcome::Alive | FenceOutcome::Unknown) => at_work.push((slot, line.pid)),
            // If another node cannot be reached, node 0 has decided before.
            Ok(FenceOutcome::Fenced)
            | Err(
                FabricError::Unreachable { node: 1.. }
                | FabricError::Lost { node: 1.. }
                | FabricError::Disconnected { node: 1.. },
            ) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(at_work)
}

/// This process's observations of the others' lines.
#[derive(Debug, Default)]
pub(crate) struct LastSeen {
    /// By slot: how long the line's incarnation and heartbeat have been the same.
    silences: Vec<Silence<(u32, u64)>>,
}

impl LastSeen {
    /// Adds a table that was read at `now_ms` or before.
    pub(crate) fn note(&mut self, table: &MemberTable, now_ms: u64, lease_ms: u64) {
        for (silence, line) in self.silences.iter_mut().zip(&table.lines) {
            silence.observe((line.incarnation, line.heartbeat), now_ms, lease_ms);
        }
        for line in table.lines.iter().skip(self.silences.len()) {
            self.silences.push(Silence::new((line.incarnation, line.heartbeat), now_ms));
        }
    }

    /// Milliseconds for which a line had not changed, as of the last observation.
    pub(crate) fn silent_ms(&self, slot: u32, line: &MemberLine) -> u64 {
        let silence = self.silences.get(slot as usize);
        silence.map_or(0, |silence| silence.of((line.incarnation, line.heartbeat)))
    }
}
