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
//! A claim names the member and not the attempt. So a process adds one node at a time, and none while
//! verbs of an addition that was cancelled are on their way: they could complete the line with what
//! another attempt has written there.
//!
//! *Using.* Nobody may meet an address on a node that it cannot reach. So each member publishes how many nodes it can reach,
//! and allocates only on those that every live member can. A member that joins reads the count again after it went
//! live: before that, whoever missed its line may have gone as far as the count said; after it, nobody goes on without it.
//! Somebody dead is shut out at all nodes there are: the count is read once more after node 0 has shut it out, since it
//! can have used no node that was not counted by then.

use darter_fabric::{Endpoint, Fabric, GlobalAddr, Orphans, mutant};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::PoolError;
use crate::block::Owner;
use crate::epoch::lock;
use crate::layout::{DIRECTORY_AT, Layout, NODE_LINE_BYTES, NODES_AT};
use crate::member::{self, MemberTable, read_table};
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

/// Whether a line's word 0 names a member that is still there. Looks at the member after the word
/// was read, since it may have joined just before it claimed the line.
async fn is_claimed<E: Endpoint>(endpoint: &mut E, word: u64) -> Result<bool, PoolError> {
    let member = (word >> 32).checked_sub(1).and_then(|member| u8::try_from(member).ok());
    let Some(member) = member else { return Ok(false) };
    member::is_live(endpoint, Owner { member, incarnation: word as u32 }).await
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

/// Makes the fabric reach, and the layout know, all of the first `count` nodes. Several threads may
/// do so at once.
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
            let added = fabric.add_node(node, &address);
            // Unless another thread was faster.
            if usize::from(node) >= fabric.nodes() {
                added?;
            }
        }
        let found = superblock::read_node(endpoint, node, fabric.node_bytes(node)).await?;
        if found != *superblock || fabric.node_bytes(node) != bytes {
            return Err(PoolError::NodeMismatch { node, what: "it belongs to another pool" });
        }
        layout.add_node(usize::from(node), bytes)?;
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
    /// What dropped operations of the last one's endpoint have posted, unless it came to its end.
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
        let learnt = if table.nodes > self.layout.node_count() {
            learn(&self.fabric, endpoint, &self.superblock, &self.layout, table.nodes).await
        } else {
            Ok(())
        };
        // In every case: nodes before one that could not be learnt are laid out, and those that
        // another thread has learnt, or that a cancelled call has.
        lock(&self.heap).take_nodes_in();
        match learnt {
            Ok(()) | Err(PoolError::Fabric(_)) => {}
            Err(error) => return Err(error),
        }
        let usable = if mutant!("node-used-before-all-reach-it") {
            self.layout.node_count()
        } else {
            table.reached_by_all()
        };
        self.usable.fetch_max(usable, Ordering::AcqRel);
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
                let free = if mutant!("node-line-kept-after-an-error") { claim } else { 0 };
                batch.cas(line_addr(node), claim, free);
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
            if line[0] != claim && is_claimed(endpoint, line[0]).await? {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockState, BlockWord};
    use crate::heap::OwnBlock;
    use crate::layout::BlockId;
    use crate::{AllocKind, Pool, PoolOptions};
    use darter_fabric::decorate::{Delay, Delaying};
    use darter_fabric::{Sim, block_on};
    use std::pin::pin;
    use std::task::{Context, Waker};

    /// A simulation of three nodes of which all processes reach only the first, with a pool on
    /// that.
    fn one_node_of_three() -> (Sim, Pool<Delaying<Sim>>) {
        let sim = Sim::new(3, 2 << 20);
        (0..3).for_each(|process| sim.process(process).limit_nodes(1));
        let options = PoolOptions { block_bytes: Some(256 << 10), ..PoolOptions::default() };
        let pool = block_on(Pool::create(slow(&sim, 0), &options)).unwrap();
        (sim, pool)
    }

    /// A process's fabric that is pending once before each batch.
    fn slow(sim: &Sim, process: u32) -> Delaying<Sim> {
        Delaying::new(sim.process(process), Delay { pending_before: 1, ..Delay::default() })
    }

    fn is_done(future: std::pin::Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// A member joins and claims the line at any moment of another's addition.
    #[test]
    fn a_line_claimed_by_a_member_that_has_just_joined_is_not_taken() {
        for polls in 0.. {
            let (sim, pool) = one_node_of_three();
            let mut client = pool.client().unwrap();
            block_on(pool.maintain(&mut client)).unwrap();
            let mut adding = pin!(pool.add_node(&mut client, "sim:1"));
            let is_added = (0..polls).any(|_| is_done(adding.as_mut()));
            assert!(!is_added, "a line is claimed before its node is added");
            let other = block_on(Pool::open(sim.process(1))).unwrap();
            let mut endpoint = other.fabric().endpoint().unwrap();
            let claim = claimed_by(other.shared.me);
            let mut batch = endpoint.batch();
            let cas = batch.cas(line_addr(1), 0, claim);
            let claimed = block_on(endpoint.submit(batch)).unwrap().swapped(cas);
            if !claimed {
                assert!(polls > 3, "members, the line and members again are read before");
                return;
            }
            assert!(matches!(block_on(adding), Err(PoolError::Options(_))), "after {polls} polls");
            assert_eq!(block_on(read_line(&mut endpoint, 1)).unwrap()[0], claim);
        }
    }

    #[test]
    fn two_threads_that_learn_of_a_node_lay_it_out_once() {
        let (sim, pool) = one_node_of_three();
        let other = block_on(Pool::open(slow(&sim, 1))).unwrap();
        block_on(pool.add_node(&mut pool.client().unwrap(), "sim:1")).unwrap();
        let shared = &other.shared;
        let (mut one, mut two) = (shared.fabric.endpoint().unwrap(), shared.fabric.endpoint().unwrap());
        let mut first = pin!(learn(&shared.fabric, &mut one, &shared.superblock, &shared.layout, 2));
        let mut second = pin!(learn(&shared.fabric, &mut two, &shared.superblock, &shared.layout, 2));
        while !is_done(first.as_mut()) {
            assert!(!is_done(second.as_mut()));
        }
        block_on(second).unwrap();
        assert_eq!(shared.layout.node_count(), 2);
    }

    #[test]
    fn a_node_learnt_before_an_error_has_a_place_in_the_heap() {
        let (sim, pool) = one_node_of_three();
        let other = block_on(Pool::open(slow(&sim, 1))).unwrap();
        let mut client = pool.client().unwrap();
        for (node, address) in [(1, "sim:1"), (2, "sim:2")] {
            assert_eq!(block_on(pool.add_node(&mut client, address)).unwrap(), node);
        }
        let mut batch = client.batch();
        batch.write(line_addr(2), &[0]);
        block_on(client.submit(batch)).unwrap();
        let learnt = block_on(other.maintain(&mut other.client().unwrap()));
        assert!(matches!(learnt, Err(PoolError::Damaged { .. })));
        let Shared { layout, heap, me, .. } = &*other.shared;
        assert_eq!(layout.node_count(), 2);
        let word = BlockWord::decode(0).unwrap().next(BlockState::Owned, AllocKind::Leaf, *me);
        let block = BlockId { node: 1, index: 0 };
        lock(heap).add(block, OwnBlock::empty(layout, word));
        assert!(lock(heap).begin_cut(1, AllocKind::Leaf, 0).is_some());
    }
}
