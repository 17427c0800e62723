//! The node directory: a pool's memory nodes and their addresses, and how a node is added while the
//! pool is in use.
//!
//! ```text
//! line, word 0   0 free | READY | REMOVED | member + 1 << 32 | incarnation: being added by that member
//!            1   bytes of the node
//!            2   bytes of its address        3 … 14   the address, as a pool URL gives it
//!           15   the id of its memory, 0 if the provider has none
//! ```
//!
//! *Adding.* A member takes the line after the last by CAS on its first word (from free, or from a
//! member that has died), writes superblock and block table on the new node, completes the line,
//! and raises the count of nodes in use. Any member that finds a READY line beyond the count raises
//! the count: that is all its adder had left to do.
//!
//! A claim names the member and not the attempt. So a process adds one node at a time, and none
//! while verbs of a cancelled addition are in flight: they could complete the line with the words
//! that another attempt has written there.
//!
//! *Using.* No member may meet an address on a node that it cannot reach. So each member publishes
//! how many nodes it can reach, and allocates only on those that every live member can reach. A
//! member that joins reads the count again after it went live: before that, a member that missed
//! its line may have used nodes up to the count; after it, no member uses further nodes without it.
//! A dead member is shut out at all nodes: the count is read once more after node 0 has shut it
//! out, since it cannot have used a node that was not counted by then.
//!
//! *Leaving.* `removal` says how a node leaves. Its line becomes REMOVED and stays: numbers of nodes
//! are never used again. A process that opens the pool needs nothing of such a node but its line.

use darter_fabric::{Batch, Endpoint, ExpectedNode, Fabric, FabricError};

use super::addition::Adding;
use super::lines::{READY, has_left, line_addr, line_words, look_up, read_line, removed};
use super::member::{self, MemberTable};
use super::membership::Members;
use super::roster::{Roster, Stage};
use super::superblock::{self, Found, Superblock};
use crate::blocks::{Blocks, Layout, MemberId, NodeUse};
use crate::error::PoolError;
use crate::round_trip::{cas, post, submit};

/// A line's word 0 while a member adds the node; also the word of the member that rebalances.
pub(super) fn claimed_by(owner: MemberId) -> u64 {
    (u64::from(owner.member) + 1) << 32 | u64::from(owner.incarnation)
}

/// Whether such a word names a live member. Reads the member after the word, since it may have
/// joined just before it claimed the line.
pub(super) async fn is_claimed<E: Endpoint>(endpoint: &mut E, word: u64) -> Result<bool, PoolError> {
    let member = (word >> 32).checked_sub(1).and_then(|member| u8::try_from(member).ok());
    let Some(member) = member else { return Ok(false) };
    member::is_live(endpoint, MemberId { member, incarnation: word as u32 }).await
}

/// How to use the nodes that are laid out.
pub(crate) struct Uses(Vec<(u8, NodeUse, ExpectedNode)>);

impl Uses {
    /// Makes the fabric and the layout use the nodes in this way.
    pub(crate) fn apply<F: Fabric>(self, fabric: &F, layout: &Layout) -> Result<(), PoolError> {
        for (node, used, expected) in self.0 {
            if layout.is_removed(node) {
                continue;
            }
            layout.set_use(node, used);
            if used == NodeUse::Removed {
                fabric.remote_nodes().retire_node(node, &expected)?;
            }
        }
        Ok(())
    }
}

/// Returns how a roster says to use the nodes that are laid out.
pub(crate) async fn uses_of<E: Endpoint>(
    endpoint: &mut E,
    layout: &Layout,
    roster: Roster,
) -> Result<Uses, PoolError> {
    let mut uses = Vec::new();
    let known = Roster { count: roster.count.min(layout.node_count()), ..roster };
    let removed = removed(endpoint, known).await?;
    for (node, is_removed) in (0..).zip(removed) {
        let leaving = roster.leaving.filter(|(leaving, _)| *leaving == node).map(|(_, stage)| stage);
        let used = match leaving {
            _ if is_removed => NodeUse::Removed,
            None => NodeUse::Whole,
            Some(Stage::Moving) => NodeUse::Leaving,
            Some(Stage::Empty) => NodeUse::Forgotten,
            Some(Stage::Gone) => NodeUse::Removed,
        };
        let expected = if used == NodeUse::Removed {
            look_up(endpoint, node).await?
        } else {
            ExpectedNode { address: String::new(), bytes: 0, id: 0 }
        };
        uses.push((node, used, expected));
    }
    Ok(Uses(uses))
}

/// Writes the first lines of a new pool's directory, for the nodes whose addresses the fabric
/// knows. The caller writes the count.
pub(crate) async fn write_directory<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    layout: &Layout,
) -> Result<(), PoolError> {
    for node in 0..layout.node_count() {
        let (Some(address), Some(laid_out)) = (fabric.remote_nodes().node_address(node), layout.node(node))
        else {
            continue;
        };
        let words = line_words(laid_out.bytes, &address, fabric.remote_nodes().node_id(node))?;
        let write = |batch: &mut Batch| {
            batch.write(line_addr(node).plus(8), &words);
            batch.write(line_addr(node), &[READY]);
        };
        post(endpoint, write).await?;
    }
    Ok(())
}

/// Makes the fabric expect a node that cannot be reached. Fails if the directory has no id that
/// tells the node's memory from any other.
fn expect<F: Fabric>(fabric: &F, node: u8, expected: &ExpectedNode) -> Result<(), PoolError> {
    if expected.id == 0 {
        return Err(FabricError::Unreachable { node }.into());
    }
    Ok(fabric.remote_nodes().expect_node(node, expected)?)
}

/// Makes the fabric expect the nodes that were named to it and that it could not reach. Replaces
/// their sizes, which are 0, by those in the directory.
pub(crate) async fn expect_absent<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    sizes: &mut [u64],
) -> Result<(), PoolError> {
    for (node, bytes) in (0..).zip(sizes).filter(|(_, bytes)| **bytes == 0) {
        let expected = look_up(endpoint, node).await?;
        expect(fabric, node, &expected)?;
        *bytes = expected.bytes;
    }
    Ok(())
}

/// How to treat a node that the directory names and that cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// As an error: a live member uses nodes that it has reached.
    Refused,
    /// It is expected to come back: all the pool's members know it, and a process that opens the
    /// pool needs it only for some keys.
    Expected,
}

/// Adds a node to the layout that has left.
fn retire<F: Fabric>(
    fabric: &F,
    layout: &Layout,
    node: u8,
    expected: &ExpectedNode,
) -> Result<(), PoolError> {
    fabric.remote_nodes().retire_node(node, expected)?;
    layout.add_node(usize::from(node), expected.bytes)?;
    layout.set_use(node, NodeUse::Removed);
    Ok(())
}

/// Makes the fabric reach all of the first `count` nodes, and adds them to the layout. Several
/// threads may do so at once.
pub(crate) async fn learn<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    superblock: &Superblock,
    layout: &Layout,
    count: u8,
    absent: Absent,
) -> Result<(), PoolError> {
    for node in layout.node_count()..count {
        let expected = look_up(endpoint, node).await?;
        if has_left(endpoint, node).await? {
            retire(fabric, layout, node, &expected)?;
            continue;
        }
        if usize::from(node) >= fabric.nodes() {
            let added = fabric.remote_nodes().add_node(node, &expected.address);
            // Unless another thread was faster.
            if usize::from(node) >= fabric.nodes() {
                if absent == Absent::Refused || !matches!(added, Err(FabricError::Io(_))) {
                    added?;
                }
                expect(fabric, node, &expected)?;
                layout.add_node(usize::from(node), expected.bytes)?;
                continue;
            }
        }
        let bytes = expected.bytes;
        let found = superblock::read_or_disown(fabric, endpoint, node, fabric.node_bytes(node)).await?;
        let found = match found {
            Found::Superblock(found) => found,
            Found::Left => {
                retire(fabric, layout, node, &expected)?;
                continue;
            }
            Found::Lost if absent == Absent::Refused => {
                fabric.remote_nodes().forget_node(node);
                return Err(FabricError::Lost { node }.into());
            }
            Found::Lost => {
                expect(fabric, node, &expected)?;
                layout.add_node(usize::from(node), bytes)?;
                continue;
            }
        };
        if found != *superblock || fabric.node_bytes(node) != bytes {
            return Err(PoolError::NodeMismatch { node, what: "it belongs to another pool" });
        }
        layout.add_node(usize::from(node), bytes)?;
    }
    Ok(())
}

/// Raises the count of nodes from one number to the next, unless it is another one.
async fn raise_count<E: Endpoint>(endpoint: &mut E, from: u8) -> Result<(), PoolError> {
    let mut roster = Roster::read(endpoint).await?;
    // A CAS that fails has lost to a change of the node that is leaving, or to one of the count.
    while roster.count == from {
        roster = roster.replace(endpoint, Roster { count: from + 1, ..roster }).await?;
    }
    Ok(())
}

impl Members {
    /// Learns the nodes that a table counts, and uses those that all its live members can reach. A
    /// node that cannot be reached now is tried again in a later round. Follows the roster.
    pub(crate) async fn follow_nodes<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        table: &MemberTable,
    ) -> Result<(), PoolError> {
        let layout = blocks.layout();
        let learnt = if table.nodes > layout.node_count() {
            learn(blocks.fabric(), endpoint, self.superblock(), layout, table.nodes, Absent::Refused).await
        } else {
            Ok(())
        };
        // Even after an error: nodes before the one that failed are laid out, as are those that
        // another thread or a cancelled call has learned.
        blocks.take_nodes_in();
        match learnt {
            Ok(()) | Err(PoolError::Fabric(_)) => {}
            Err(error) => return Err(error),
        }
        self.raise_usable(table.reached_by_all());
        if table.roster.is_after(self.roster()) {
            let uses = uses_of(endpoint, layout, table.roster).await?;
            self.follow(table.roster, || uses.apply(blocks.fabric(), layout))?;
        }
        Ok(())
    }

    /// Adds the memory node at `address` to the pool. Returns its number. `epoch` returns the
    /// process epoch.
    pub(crate) async fn add_node<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        epoch: impl Fn() -> u64,
        address: &str,
    ) -> Result<u8, PoolError> {
        line_words(0, address, None)?;
        let adding = Adding::begin(self.addition(), endpoint.orphans())?;
        let (node, claim) = self.claim_line(endpoint, blocks, epoch).await?;
        let bytes = match self.prepare_node(endpoint, blocks, node, address).await {
            Ok(bytes) => bytes,
            Err(error) => {
                blocks.fabric().remote_nodes().forget_node(node);
                cas(endpoint, line_addr(node), claim, 0).await?;
                return Err(error);
            }
        };
        let mut batch = endpoint.batch();
        batch.write(
            line_addr(node).plus(8),
            &line_words(bytes, address, blocks.fabric().remote_nodes().node_id(node))?,
        );
        let cas = batch.cas(line_addr(node), claim, READY);
        if !submit(endpoint, batch).await?.swapped(cas) {
            blocks.fabric().remote_nodes().forget_node(node);
            return Err(PoolError::Evicted);
        }
        raise_count(endpoint, node).await?;
        adding.end();
        Ok(node)
    }

    /// Takes the first free line for this process. Returns its node and the new value of its first
    /// word.
    async fn claim_line<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        epoch: impl Fn() -> u64,
    ) -> Result<(u8, u64), PoolError> {
        let claim = claimed_by(self.me());
        loop {
            let table = self.read(endpoint, blocks, epoch()).await?;
            self.follow_nodes(endpoint, blocks, &table).await?;
            let node = table.nodes;
            let reached = blocks.layout().node_count();
            if node != reached {
                let what = "one of its nodes cannot be reached, so none can be added";
                return Err(PoolError::NodeMismatch { node: reached, what });
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
            if cas(endpoint, line_addr(node), line[0], claim).await?.swapped {
                return Ok((node, claim));
            }
        }
    }

    /// Reaches a new node and lays it out. Returns its size in bytes.
    async fn prepare_node<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        node: u8,
        address: &str,
    ) -> Result<u64, PoolError> {
        blocks.fabric().remote_nodes().add_node(node, address)?;
        let bytes = blocks.fabric().node_bytes(node);
        match superblock::read_node(endpoint, node, bytes).await {
            Err(PoolError::NotAPool { .. }) => {}
            // A member died after it had written the superblock and before it added the node.
            Ok(found) if found == *self.superblock() => {}
            Err(PoolError::Fabric(error)) => return Err(error.into()),
            Ok(_) | Err(_) => return Err(PoolError::AlreadyAPool { node }),
        }
        let count = blocks.layout().lay_out(node, bytes)?.blocks;
        superblock::write_node(endpoint, self.superblock(), node, bytes, count).await?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{poll, slow};
    use crate::{Pool, PoolOptions};
    use darter_fabric::block_on;
    use darter_fabric::decorate::Delaying;
    use darter_sim::Sim;
    use std::pin::pin;

    /// A simulation of three nodes of which all processes reach only the first, with a pool on it.
    fn one_node_of_three() -> (Sim, Pool<Delaying<Sim>>) {
        let sim = Sim::new(3, 2 << 20);
        (0..3).for_each(|process| sim.process(process).limit_nodes(1));
        let options = PoolOptions { block_bytes: Some(256 << 10), ..PoolOptions::default() };
        let pool = block_on(Pool::create(slow(&sim, 0), &options)).unwrap();
        (sim, pool)
    }

    fn is_done(future: std::pin::Pin<&mut impl Future>) -> bool {
        poll(future).is_ready()
    }

    /// A member joins and claims the line at any point of another's addition.
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
            let claim = claimed_by(other.member());
            let mut batch = endpoint.batch();
            let cas = batch.cas(line_addr(1), 0, claim);
            let claimed = block_on(endpoint.submit(batch)).unwrap().swapped(cas);
            if !claimed {
                assert!(polls > 3, "members, the line and members again are read first");
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
        let (fabric, layout) = (other.fabric(), other.process.blocks.layout());
        let superblock = other.process.members.superblock();
        let (mut one, mut two) = (fabric.endpoint().unwrap(), fabric.endpoint().unwrap());
        let mut first = pin!(learn(fabric, &mut one, superblock, layout, 2, Absent::Refused));
        let mut second = pin!(learn(fabric, &mut two, superblock, layout, 2, Absent::Refused));
        while !is_done(first.as_mut()) {
            assert!(!is_done(second.as_mut()));
        }
        block_on(second).unwrap();
        assert_eq!(layout.node_count(), 2);
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
        let blocks = &other.process.blocks;
        assert_eq!(blocks.layout().node_count(), 2);
        assert!(blocks.can_cut_from_a_block_on(1));
    }
}
