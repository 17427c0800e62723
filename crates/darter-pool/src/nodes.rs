//! The node directory: which memory nodes a pool has, where they are found, and how one is added while the pool is in use.
//!
//! ```text
//! line, word 0   0 free | READY | member + 1 << 32 | incarnation: being added by that member
//!            1   bytes of the node
//!            2   bytes of its address        3 … 15   the address, as a pool's name would give it
//! ```
//!
//! *Adding.* A member takes the line after the last by CAS on its first word (from free, or from a member that has died),
//! writes superblock and block table on the new node, completes the line, and raises the count of nodes in use. Whoever
//! finds a line READY beyond the count raises it: that is all its adder had left to do.
//!
//! A claim names the member and not the attempt. So a process adds one node at a time, and none while verbs of an addition
//! that was cancelled are on their way: they could complete the line with what another attempt has written there.
//!
//! *Using.* Nobody may meet an address on a node that it cannot reach. So each member publishes how many nodes it can reach,
//! and allocates only on those that every live member can. A member that joins reads the count again after it went
//! live: before that, whoever missed its line may have gone as far as the count said; after it, nobody goes on without it.
//! Somebody dead is shut out at all nodes there are: the count is read once more after node 0 has shut it out, since it
//! can have used no node that was not counted by then.

use darter_fabric::{Endpoint, Fabric, GlobalAddr, Orphans};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::PoolError;
use crate::block::Owner;
use crate::epoch::lock;
use crate::layout::{DIRECTORY_AT, Layout, NODE_LINE_BYTES, NODES_AT};
use crate::member::{MemberTable, read_table};
use crate::pool::Shared;
use crate::superblock::{self, Superblock};

const LINE_WORDS: usize = (NODE_LINE_BYTES / 8) as usize;
/// Bytes of the longest address.
const ADDRESS_BYTES_MAX: usize = (LINE_WORDS - 3) * 8;
const READY: u64 = 1 << 63;

fn line_addr(node: u8) -> GlobalAddr {
    GlobalAddr::new(0, DIRECTORY_AT + u64::from(node) * NODE_LINE_BYTES)
}

/// A line's word 0 while a member adds the node.
fn claimed_by(owner: Owner) -> u64 {
    (u64::from(owner.member) + 1) << 32 | u64::from(owner.incarnation)
}

/// Whether a line's word 0 names a member that is still there.
fn is_claimed(word: u64, table: &MemberTable) -> bool {
    let member = (word >> 32).checked_sub(1).and_then(|member| u8::try_from(member).ok());
    member.is_some_and(|member| table.is_live(Owner { member, incarnation: word as u32 }))
}

/// Words 1 to 15 of a node's line.
fn line_words(bytes: u64, address: &str) -> Result<[u64; LINE_WORDS - 1], PoolError> {
    if address.is_empty() || address.len() > ADDRESS_BYTES_MAX {
        return Err(PoolError::Options("a memory node's address has 1 to 104 bytes"));
    }
    let mut words = [0; LINE_WORDS - 1];
    (words[0], words[1]) = (bytes, address.len() as u64);
    for (word, bytes) in words[2..].iter_mut().zip(address.as_bytes().chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    Ok(words)
}

/// The bytes and the address that a complete line names.
fn parse(words: &[u64]) -> Option<(u64, String)> {
    let length = usize::try_from(words[2]).ok().filter(|length| (1..=ADDRESS_BYTES_MAX).contains(length))?;
    let bytes = words[3..].iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
    let address = String::from_utf8(bytes).ok()?;
    (words[0] == READY).then_some((words[1], address))
}

/// Writes the first lines of a new pool's directory, as far as the fabric tells addresses. The count is the caller's.
pub(crate) async fn write_directory<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    layout: &Layout,
) -> Result<(), PoolError> {
    for node in 0..layout.node_count() {
        let (Some(address), Some(laid_out)) = (fabric.node_address(node), layout.node(node)) else {
            continue;
        };
        let words = line_words(laid_out.bytes, &address)?;
        let mut batch = endpoint.batch();
        batch.write(line_addr(node).plus(8), &words);
        batch.write(line_addr(node), &[READY]);
        let done = endpoint.submit(batch).await?;
        endpoint.recycle(done);
    }
    Ok(())
}

async fn read_line<E: Endpoint>(endpoint: &mut E, node: u8) -> Result<[u64; LINE_WORDS], PoolError> {
    let mut batch = endpoint.batch();
    let read = batch.read(line_addr(node), LINE_WORDS);
    let batch = endpoint.submit(batch).await?;
    let mut words = [0; LINE_WORDS];
    words.copy_from_slice(batch.words(read));
    endpoint.recycle(batch);
    Ok(words)
}

/// Makes the fabric reach, and the layout know, all of the first `count` nodes.
pub(crate) async fn learn<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    superblock: &Superblock,
    layout: &Layout,
    count: u8,
) -> Result<(), PoolError> {
    for node in layout.node_count()..count {
        let line = read_line(endpoint, node).await?;
        let damaged = PoolError::Damaged { node: 0, what: "its directory does not say where a node is" };
        let (bytes, address) = parse(&line).ok_or(damaged)?;
        if usize::from(node) >= fabric.nodes() {
            fabric.add_node(node, &address)?;
        }
        let found = superblock::read_node(endpoint, node, fabric.node_bytes(node)).await?;
        if found != *superblock || fabric.node_bytes(node) != bytes {
            return Err(PoolError::NodeMismatch { node, what: "it belongs to another pool" });
        }
        layout.add_node(bytes)?;
    }
    Ok(())
}

/// Raises the count of nodes in use from one number to the next; answers what it is then.
async fn raise_count<E: Endpoint>(endpoint: &mut E, from: u8) -> Result<u64, PoolError> {
    let mut batch = endpoint.batch();
    let cas = batch.cas(GlobalAddr::new(0, NODES_AT), from.into(), u64::from(from) + 1);
    let batch = endpoint.submit(batch).await?;
    let now = if batch.swapped(cas) { u64::from(from) + 1 } else { batch.found(cas) };
    endpoint.recycle(batch);
    Ok(now)
}

/// Whether this process is adding a node.
#[derive(Debug, Default)]
pub(crate) struct Addition {
    under_way: bool,
    /// What dropped operations of the last one's endpoint have posted, unless that addition came to its end.
    left: Option<Arc<dyn Orphans>>,
}

/// The one addition of this process, until dropped.
struct Adding<'a>(&'a Mutex<Addition>);

impl<'a> Adding<'a> {
    fn begin(addition: &'a Mutex<Addition>, orphans: Option<Arc<dyn Orphans>>) -> Result<Self, PoolError> {
        let mut this = lock(addition);
        if this.under_way {
            return Err(PoolError::Options("this process is adding a memory node; try again"));
        }
        if this.left.as_ref().is_some_and(|left| left.in_flight() > 0) {
            let what = "verbs of a cancelled addition of a memory node are on their way; try again";
            return Err(PoolError::Options(what));
        }
        *this = Addition { under_way: true, left: orphans };
        Ok(Self(addition))
    }

    /// Nothing that it posted is on its way.
    fn end(self) {
        lock(self.0).left = None;
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        lock(self.0).under_way = false;
    }
}

impl<F: Fabric> Shared<F> {
    /// Nodes on which this process may allocate: those that every live member can reach.
    pub(crate) fn usable_nodes(&self) -> u8 {
        self.usable.load(Ordering::Acquire)
    }

    /// Learns of nodes that a table counts, and uses those that all its live members can reach. A node that cannot be
    /// reached now is tried again in a later round.
    pub(crate) async fn follow_nodes(
        &self,
        endpoint: &mut F::Endpoint,
        table: &MemberTable,
    ) -> Result<(), PoolError> {
        if table.nodes > self.layout.node_count() {
            match learn(&self.fabric, endpoint, &self.superblock, &self.layout, table.nodes).await {
                Ok(()) | Err(PoolError::Fabric(_)) => {}
                Err(error) => return Err(error),
            }
            lock(&self.heap).take_nodes_in();
        }
        self.usable.fetch_max(table.reached_by_all(), Ordering::AcqRel);
        Ok(())
    }

    /// Adds the memory node at an address to the pool; answers its number.
    pub(crate) async fn add_node(&self, endpoint: &mut F::Endpoint, address: &str) -> Result<u8, PoolError> {
        line_words(0, address)?;
        let adding = Adding::begin(&self.addition, endpoint.orphans())?;
        let (node, claim) = self.claim_line(endpoint).await?;
        let bytes = match self.prepare_node(endpoint, node, address).await {
            Ok(bytes) => bytes,
            Err(error) => {
                self.fabric.forget_node(node);
                let mut batch = endpoint.batch();
                batch.cas(line_addr(node), claim, 0);
                let done = endpoint.submit(batch).await?;
                endpoint.recycle(done);
                return Err(error);
            }
        };
        let mut batch = endpoint.batch();
        batch.write(line_addr(node).plus(8), &line_words(bytes, address)?);
        let cas = batch.cas(line_addr(node), claim, READY);
        let batch = endpoint.submit(batch).await?;
        let is_ours = batch.swapped(cas);
        endpoint.recycle(batch);
        if !is_ours {
            self.fabric.forget_node(node);
            return Err(PoolError::Evicted);
        }
        raise_count(endpoint, node).await?;
        adding.end();
        Ok(node)
    }

    /// Takes the first free line for this process; answers its node and what its first word says then.
    async fn claim_line(&self, endpoint: &mut F::Endpoint) -> Result<(u8, u64), PoolError> {
        let claim = claimed_by(self.me);
        loop {
            let table = self.read_members(endpoint).await?;
            self.follow_nodes(endpoint, &table).await?;
            let node = table.nodes;
            if node != self.layout.node_count() {
                let what = "one of its nodes cannot be reached, so none can be added";
                return Err(PoolError::NodeMismatch { node: self.layout.node_count(), what });
            }
            if node == u8::MAX {
                return Err(PoolError::Options("a pool has at most 255 memory nodes"));
            }
            let line = read_line(endpoint, node).await?;
            if line[0] == READY {
                raise_count(endpoint, node).await?;
                continue;
            }
            if line[0] != claim && is_claimed(line[0], &table) {
                return Err(PoolError::Options("another process is adding a memory node; try again"));
            }
            let mut batch = endpoint.batch();
            let cas = batch.cas(line_addr(node), line[0], claim);
            let batch = endpoint.submit(batch).await?;
            let is_ours = batch.swapped(cas);
            endpoint.recycle(batch);
            if is_ours {
                return Ok((node, claim));
            }
        }
    }

    /// Reaches a new node and lays it out; answers its bytes.
    async fn prepare_node(
        &self,
        endpoint: &mut F::Endpoint,
        node: u8,
        address: &str,
    ) -> Result<u64, PoolError> {
        self.fabric.add_node(node, address)?;
        let bytes = self.fabric.node_bytes(node);
        match superblock::read_node(endpoint, node, bytes).await {
            Err(PoolError::NotAPool { .. }) => {}
            // Somebody died just before it was this pool's.
            Ok(found) if found == self.superblock => {}
            Err(PoolError::Fabric(error)) => return Err(error.into()),
            Ok(_) | Err(_) => return Err(PoolError::AlreadyAPool { node }),
        }
        let blocks = self.layout.lay_out(node, bytes)?.blocks;
        superblock::write_node(endpoint, &self.superblock, node, bytes, blocks).await?;
        Ok(bytes)
    }

    /// Rounds of upkeep until all members can reach all nodes, or for `patience_ms`; answers the slots of those that
    /// cannot.
    pub(crate) async fn await_nodes(
        &self,
        endpoint: &mut F::Endpoint,
        patience_ms: u64,
    ) -> Result<Vec<u32>, PoolError> {
        let ends = endpoint.now_ms().saturating_add(patience_ms);
        loop {
            self.round(endpoint).await?;
            let table = read_table(endpoint, self.upkeep.lines()).await?;
            let behind = table.live().filter(|(_, line)| line.nodes < u64::from(table.nodes));
            let behind: Vec<u32> = behind.map(|(slot, _)| slot).collect();
            if behind.is_empty() {
                self.round(endpoint).await?;
                return Ok(behind);
            }
            if endpoint.now_ms() >= ends {
                return Ok(behind);
            }
            endpoint.pause().await;
        }
    }
}
