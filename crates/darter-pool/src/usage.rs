//! Who holds how much of a pool.

use darter_fabric::{Endpoint, Fabric};

use crate::blocks::{BlockState, BlockWord};
use crate::error::PoolError;
use crate::process::Process;

/// One node's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// The node.
    pub node: u8,
    /// Its address, if the provider gives nodes addresses.
    pub address: Option<String>,
    /// Bytes of its region.
    pub bytes: u64,
    /// Blocks there are.
    pub blocks: u64,
    /// Blocks without an owner and without objects.
    pub free: u64,
    /// Blocks of this process.
    pub mine: u64,
    /// Blocks of other live members.
    pub others: u64,
    /// Blocks left by members that ended cleanly, with exact books.
    pub closed: u64,
    /// Blocks of dead members, to be swept.
    pub dead: u64,
    /// Blocks adopted by this process for a sweep that is not finished.
    pub sweeping: u64,
    /// Block words that no program wrote.
    pub damaged: u64,
    /// Free bytes in closed blocks when they were closed.
    pub closed_room_bytes: u64,
}

/// One live member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberUsage {
    /// Its slot.
    pub slot: u32,
    /// How often the slot was taken.
    pub incarnation: u32,
    /// Its process id, as it wrote it.
    pub pid: u64,
    /// The epoch it has published.
    pub epoch: u64,
    /// Milliseconds left of its lease; negative when it has run out.
    pub lease_left_ms: i64,
    /// Whether it has garbage waiting.
    pub has_garbage: bool,
    /// Memory nodes it can reach; a node is used when all members can.
    pub nodes: u64,
    /// Whether it is this process.
    pub is_me: bool,
}

/// Who holds how much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The global epoch.
    pub epoch: u64,
    /// Blocks, by node.
    pub nodes: Vec<NodeUsage>,
    /// Live members.
    pub members: Vec<MemberUsage>,
    /// Bytes of the objects in use in this process's blocks, garbage included, magazines not.
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
        self.nodes.iter().map(|node| node.bytes).sum()
    }

    /// Bytes of blocks that have an owner or hold objects: what is not free for any use.
    pub fn used_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| (node.blocks - node.free) * self.block_bytes).sum()
    }
}

/// Counts the blocks of a pool by their state, and lists its live members.
pub(crate) async fn usage<F: Fabric>(
    process: &Process<F>,
    endpoint: &mut F::Endpoint,
) -> Result<PoolUsage, PoolError> {
    let Process { blocks, grace, .. } = process;
    let me = process.members.me();
    let tables = process.read_block_tables(endpoint).await?;
    let members = process.read_members(endpoint).await?;
    let nodes = (0u8..).zip(&tables).map(|(node, table)| {
        let mut usage = NodeUsage {
            node,
            bytes: blocks.layout().node(node).map_or(0, |node| node.bytes),
            address: blocks.fabric().node_address(node),
            blocks: table.len() as u64,
            ..NodeUsage::default()
        };
        for &word in table {
            let Some(word) = BlockWord::decode(word) else {
                usage.damaged += 1;
                continue;
            };
            *match (word.state, word.owner()) {
                (BlockState::Free, _) => &mut usage.free,
                (BlockState::Closed, _) => {
                    usage.closed_room_bytes += u64::from(word.low) * 16;
                    &mut usage.closed
                }
                (BlockState::Owned, Some(owner)) if owner == me => &mut usage.mine,
                (BlockState::Sweeping, Some(owner)) if owner == me => &mut usage.sweeping,
                (_, Some(owner)) if members.is_live(owner) => &mut usage.others,
                _ => &mut usage.dead,
            } += 1;
        }
        usage
    });
    let nodes = nodes.collect();
    let now = endpoint.now_ms();
    let lines = members.live().map(|(slot, line)| MemberUsage {
        slot,
        incarnation: line.incarnation,
        pid: line.pid,
        epoch: line.published,
        lease_left_ms: i64::from_ne_bytes(line.deadline_ms.wrapping_sub(now).to_ne_bytes()),
        has_garbage: line.has_garbage,
        nodes: line.nodes,
        is_me: slot == u32::from(me.member),
    });
    let magazine_bytes = blocks.magazine_bytes();
    Ok(PoolUsage {
        block_bytes: blocks.layout().block_bytes,
        epoch: members.epoch,
        nodes,
        members: lines.collect(),
        object_bytes: blocks.object_bytes().saturating_sub(magazine_bytes),
        magazine_bytes,
        garbage_objects: grace.garbage() as u64,
        bad_frees: blocks.bad_frees(),
    })
}
