//! How much of a pool each member holds.

use darter_fabric::{Durability, Fabric, ReplicaStatus, member_lines};

use crate::blocks::{AllocKind, BlockState, BlockWord, MemberId};
use crate::error::PoolError;
use crate::process::Process;

/// The holder of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockHolder {
    /// No member, and it holds no objects.
    Free,
    /// The live member in this slot.
    Member(u32),
    /// No member: the one that closed it ended cleanly, with exact books.
    Closed,
    /// A dead member, until a sweep.
    Dead,
    /// This process, for an unfinished sweep.
    Sweeping,
    /// Unknown: its word is not one that a program writes.
    Damaged,
}

/// Neighbouring blocks with the same holder and the same kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// Their holder.
    pub holder: BlockHolder,
    /// The kind of objects they are for, if they hold any.
    pub kind: Option<AllocKind>,
    /// The number of blocks.
    pub blocks: u64,
}

/// Whether a node belongs to the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeStanding {
    /// It does.
    #[default]
    InUse,
    /// It is leaving: no new objects are placed on it.
    Leaving,
    /// It has left.
    Removed,
}

/// One node's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// The node.
    pub node: u8,
    /// Its address, if the provider gives nodes addresses.
    pub address: Option<String>,
    /// Its replicas, if it is a memory group and they were queried: a query opens a connection to
    /// each and waits for their replies ([`darter_fabric::ReplicaGroups::replicas`]).
    pub replicas: Vec<ReplicaStatus>,
    /// Bytes of its region.
    pub bytes: u64,
    /// It cannot be reached: nothing else is known about it.
    pub is_absent: bool,
    /// It is absent because it was restarted without its contents, which are lost.
    pub is_lost: bool,
    /// Whether it is leaving the pool, or has left.
    pub standing: NodeStanding,
    /// Number of blocks.
    pub blocks: u64,
    /// Blocks without an owner and without objects.
    pub free: u64,
    /// Blocks of this process.
    pub mine: u64,
    /// Blocks of other live members.
    pub others: u64,
    /// Blocks left by members that ended cleanly, with exact books.
    pub closed: u64,
    /// Blocks of dead members, which need a sweep.
    pub dead: u64,
    /// Blocks adopted by this process for an unfinished sweep.
    pub sweeping: u64,
    /// Block words that are not ones a program writes.
    pub damaged: u64,
    /// Free bytes in closed blocks when they were closed.
    pub closed_room_bytes: u64,
    /// All blocks in the order of their addresses.
    pub runs: Vec<BlockRun>,
}

impl NodeUsage {
    /// Whether no new objects are placed on it, because it is leaving the pool.
    pub fn is_leaving(&self) -> bool {
        self.standing == NodeStanding::Leaving
    }

    /// Whether it has left the pool: it holds nothing, and is not contacted.
    pub fn is_removed(&self) -> bool {
        self.standing == NodeStanding::Removed
    }

    /// Counts the next block.
    fn add(&mut self, holder: BlockHolder, kind: Option<AllocKind>, me: MemberId) {
        *match holder {
            BlockHolder::Free => &mut self.free,
            BlockHolder::Member(slot) if slot == u32::from(me.member) => &mut self.mine,
            BlockHolder::Member(_) => &mut self.others,
            BlockHolder::Closed => &mut self.closed,
            BlockHolder::Dead => &mut self.dead,
            BlockHolder::Sweeping => &mut self.sweeping,
            BlockHolder::Damaged => &mut self.damaged,
        } += 1;
        match self.runs.last_mut() {
            Some(last) if last.holder == holder && last.kind == kind => last.blocks += 1,
            _ => self.runs.push(BlockRun { holder, kind, blocks: 1 }),
        }
    }
}

/// One live member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberUsage {
    /// Its slot.
    pub slot: u32,
    /// Number of times the slot was taken.
    pub incarnation: u32,
    /// Its process id, as the member wrote it.
    pub pid: u64,
    /// The epoch that it has published.
    pub epoch: u64,
    /// Milliseconds left of its lease as observed by this process: the whole lease at the first
    /// observation, no matter when the member renewed it; negative if the lease has run out.
    pub lease_left_ms: i64,
    /// Whether it has garbage waiting.
    pub has_garbage: bool,
    /// Number of memory nodes that it can reach; a node is used once all members can reach it.
    pub nodes: u64,
    /// Whether it only reads, since its token is a read-only one.
    pub reads_only: bool,
    /// Whether it is this process.
    pub is_me: bool,
}

/// How much of the pool each member holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The global epoch.
    pub epoch: u64,
    /// When data written to the pool survives a power failure.
    pub durability: Durability,
    /// Blocks, by node.
    pub nodes: Vec<NodeUsage>,
    /// Live members.
    pub members: Vec<MemberUsage>,
    /// Bytes of the objects in use in this process's blocks, including garbage but not magazines.
    pub object_bytes: u64,
    /// Bytes of free objects in this process's magazines.
    pub magazine_bytes: u64,
    /// Objects of this process that wait to be freed.
    pub garbage_objects: u64,
    /// Frees that named no object in use: a sign of damage.
    pub bad_frees: u64,
}

impl PoolUsage {
    /// Bytes of all regions.
    pub fn bytes(&self) -> u64 {
        self.nodes.iter().filter(|node| !node.is_removed()).map(|node| node.bytes).sum()
    }

    /// Bytes of blocks that have an owner or hold objects: all that are not free for any use.
    pub fn used_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| (node.blocks - node.free) * self.block_bytes).sum()
    }
}

/// Counts the blocks of a pool by their state, and lists its live members.
pub(crate) async fn usage<F: Fabric>(
    process: &Process<F>,
    endpoint: &mut F::Endpoint,
) -> Result<PoolUsage, PoolError> {
    let Process { blocks, reclamation, .. } = process;
    let me = process.members.me();
    let mut tables = Vec::new();
    for node in 0..blocks.layout().node_count() {
        let table = match blocks.read_block_table(endpoint, node).await {
            Ok(table) => Some(table),
            Err(_) if node > 0 && blocks.fabric().remote_nodes().is_absent(node) => None,
            Err(error) => return Err(error),
        };
        tables.push(table);
    }
    let members = process.read_members(endpoint).await?;
    let nodes = (0u8..).zip(&tables).map(|(node, table)| {
        let mut usage = NodeUsage {
            node,
            bytes: blocks.layout().node(node).map_or(0, |node| node.bytes),
            address: blocks.fabric().remote_nodes().node_address(node),
            blocks: table.as_ref().map_or(0, Vec::len) as u64,
            is_absent: table.is_none(),
            standing: match members.roster.leaving {
                _ if blocks.layout().is_removed(node) => NodeStanding::Removed,
                Some((leaving, _)) if leaving == node => NodeStanding::Leaving,
                _ => NodeStanding::InUse,
            },
            is_lost: table.is_none() && blocks.fabric().remote_nodes().is_lost(node),
            ..NodeUsage::default()
        };
        for &word in table.iter().flatten() {
            let Some(word) = BlockWord::decode(word) else {
                usage.add(BlockHolder::Damaged, None, me);
                continue;
            };
            let holder = match (word.state, word.owner()) {
                (BlockState::Free, _) => BlockHolder::Free,
                (BlockState::Closed, _) => {
                    usage.closed_room_bytes += word.closed_room();
                    BlockHolder::Closed
                }
                (BlockState::Owned, Some(owner)) if owner == me => BlockHolder::Member(me.member.into()),
                (BlockState::Sweeping, Some(owner)) if owner == me => BlockHolder::Sweeping,
                (_, Some(owner)) if members.is_live(owner) => BlockHolder::Member(owner.member.into()),
                _ => BlockHolder::Dead,
            };
            usage.add(holder, (word.state != BlockState::Free).then_some(word.kind), me);
        }
        usage
    });
    let nodes = nodes.collect();
    let left = |silent_ms: u64| process.members.lease_ms().cast_signed() - silent_ms.cast_signed();
    let lines = members.live().map(|(slot, line)| MemberUsage {
        slot,
        incarnation: line.incarnation,
        pid: line.pid,
        epoch: line.published,
        lease_left_ms: left(process.members.silent_ms(slot, line)),
        has_garbage: line.has_garbage,
        nodes: line.nodes,
        reads_only: line.heartbeat & member_lines::READS_ONLY != 0,
        is_me: slot == u32::from(me.member),
    });
    let magazine_bytes = blocks.magazine_bytes();
    Ok(PoolUsage {
        block_bytes: blocks.layout().block_bytes,
        epoch: members.epoch,
        durability: blocks.fabric().capabilities().durability,
        nodes,
        members: lines.collect(),
        object_bytes: blocks.object_bytes().saturating_sub(magazine_bytes),
        magazine_bytes,
        garbage_objects: reclamation.garbage() as u64,
        bad_frees: blocks.bad_frees(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_holder_and_kind_are_one_run() {
        let me = MemberId { member: 3, incarnation: 1 };
        let (inner, leaf) = (Some(AllocKind::Inner), Some(AllocKind::Leaf));
        let (mine, other) = (BlockHolder::Member(3), BlockHolder::Member(4));
        let mut usage = NodeUsage::default();
        let blocks = [
            (mine, inner),
            (mine, leaf),
            (mine, leaf),
            (BlockHolder::Free, None),
            (mine, leaf),
            (other, leaf),
        ];
        for (holder, kind) in blocks {
            usage.add(holder, kind, me);
        }
        assert_eq!((usage.mine, usage.others, usage.free), (4, 1, 1));
        let runs: Vec<_> = usage.runs.iter().map(|run| (run.holder, run.kind, run.blocks)).collect();
        let free = (BlockHolder::Free, None, 1);
        assert_eq!(runs, [(mine, inner, 1), (mine, leaf, 2), free, (mine, leaf, 1), (other, leaf, 1)]);
    }
}
