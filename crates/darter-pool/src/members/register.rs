//! Registration: how a process takes a member line and goes live (`member`).

use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, Identity};

use super::evict::evict_gone;
use super::member::{
    MemberTable, Publication, first_heartbeat, line_addr, publication_addr, read_table, state_word,
};
use super::roster::Roster;
use crate::blocks::MemberId;
use crate::error::PoolError;
use crate::region::{LINES_AT, MEMBERS};
use crate::round_trip::{Swap, cas, post, submit};

/// The result of a registration.
pub(crate) struct Registration {
    pub me: MemberId,
    pub identity: Box<dyn Identity>,
    pub epoch: u64,
    /// The word of the open snapshot, read after this process had gone live.
    pub snapshot: u64,
    /// Number of nodes when this process had gone live, and of those that all members could reach.
    pub nodes: u8,
    pub usable: u8,
    /// The nodes, read after this process had gone live.
    pub roster: Roster,
    /// Whether members that may have left blocks were ended.
    pub has_evicted: bool,
    /// The process may change nothing but its line.
    pub reads_only: bool,
}

/// Takes a slot for this process, after ending the members that are gone, unless it may only read.
pub(crate) async fn register<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    nodes: u8,
) -> Result<Registration, PoolError> {
    let reads_only = fabric.capabilities().reads_only;
    let table = read_table(endpoint, 1).await?;
    let gone = table.live().filter(|_| !reads_only).map(|(slot, line)| (slot, *line, false));
    let evictions = evict_gone(fabric, endpoint, gone).await?;
    let table = read_table(endpoint, table.lines.len() as u32).await?;
    let is_live = |slot: u32| table.lines.get(slot as usize).is_some_and(|line| line.live);
    for slot in (0..MEMBERS).filter(|&slot| !is_live(slot)) {
        let identity = match fabric.claim(slot) {
            Ok(identity) => identity,
            Err(FabricError::IdentityTaken { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        // From the claim on, no other process goes live in this slot.
        let name = (identity.holder(), nodes);
        let began = match go_live(endpoint, slot, name, first_heartbeat(reads_only)).await {
            // Another replica of memory node 0 serves since the claim, and does not know of it.
            Err(PoolError::Fabric(FabricError::ReadOnly { .. })) if reads_only => continue,
            began => began?,
        };
        if let Some((me, table)) = began {
            let (epoch, nodes, usable) = (table.epoch, table.nodes, table.reached_by_all());
            let (snapshot, roster, has_evicted) = (table.snapshot, table.roster, evictions.any);
            return Ok(Registration {
                me,
                identity,
                epoch,
                snapshot,
                nodes,
                usable,
                roster,
                has_evicted,
                reads_only,
            });
        }
    }
    Err(PoolError::MembersFull { max: MEMBERS })
}

async fn go_live<E: Endpoint>(
    endpoint: &mut E,
    slot: u32,
    (holder, nodes): (u64, u8),
    heartbeat: u64,
) -> Result<Option<(MemberId, MemberTable)>, PoolError> {
    raise_used(endpoint, slot + 1).await?;
    let table = read_table(endpoint, slot + 1).await?;
    let Some(line) = table.lines.get(slot as usize).copied() else { return Ok(None) };
    if line.live {
        // A process went live here since the read, and holds no claim: others will determine
        // whether it is gone.
        return Ok(None);
    }
    let me = MemberId { member: slot as u8, incarnation: line.incarnation.wrapping_add(1) };
    let publication = Publication {
        published: table.epoch,
        flushed: table.epoch,
        heartbeat,
        has_garbage: false,
        wants_room: false,
        holder,
        // It follows no roster yet.
        nodes: nodes.into(),
    };
    let mut batch = endpoint.batch();
    batch.write(publication_addr(me), &publication.words());
    let found = state_word(false, line.incarnation);
    let cas = batch.cas(line_addr(slot), found, state_word(true, me.incarnation));
    if !submit(endpoint, batch).await?.swapped(cas) {
        return Ok(None);
    }
    // Read both again, now that others see this process.
    let before = table.epoch;
    let table = read_table(endpoint, slot + 1).await?;
    if table.epoch < before {
        return Err(PoolError::Damaged { node: 0, what: "its epoch went backwards" });
    }
    let epochs = [table.epoch, table.epoch];
    post(endpoint, |batch| batch.write(publication_addr(me), &epochs)).await?;
    Ok(Some((me, table)))
}

/// Makes other members read at least `used` member lines.
async fn raise_used<E: Endpoint>(endpoint: &mut E, used: u32) -> Result<(), PoolError> {
    let addr = GlobalAddr::new(0, LINES_AT);
    let mut known = 0;
    // The word only grows, at most to the number of lines, so this ends.
    while known < u64::from(used) {
        let Swap { swapped, found } = cas(endpoint, addr, known, used.into()).await?;
        if swapped {
            break;
        }
        if found <= known {
            return Err(PoolError::Damaged { node: 0, what: "its count of members went backwards" });
        }
        known = found;
    }
    Ok(())
}
