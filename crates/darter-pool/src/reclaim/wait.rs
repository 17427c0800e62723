//! Rounds of upkeep until a condition holds, or for a limited time.

use darter_fabric::{Endpoint, Fabric, GlobalAddr};

use super::upkeep::Reclamation;
use crate::blocks::Blocks;
use crate::error::PoolError;
use crate::members::{MemberLine, MemberTable, Members};
use crate::region::EPOCH_AT;
use crate::round_trip::read_words;

/// Pauses between two queries about members that the provider does not know.
const PAUSES_BEFORE_ASKING: u32 = 20;
/// Milliseconds that [`Reclamation::settle`] waits without progress, and in total.
const SETTLE_QUIET_MS: u64 = 250;
const SETTLE_LIMIT_MS: u64 = 5000;
/// Milliseconds that a sweep waits for the others, beyond their lease.
const PATIENCE_MS: u64 = 1000;

impl Reclamation {
    /// Runs rounds until limbo is empty or they make no progress.
    pub(crate) async fn settle<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
    ) -> Result<(), PoolError> {
        let start = endpoint.now_ms();
        let mut moved = start;
        let mut seen = (usize::MAX, 0);
        loop {
            let ran = self.round(endpoint, blocks, members).await?.is_some();
            let waiting = self.limbo.ripening();
            if ran && waiting == 0 {
                return Ok(());
            }
            let now = endpoint.now_ms();
            if (waiting, self.epoch()) == seen {
                if now.saturating_sub(moved) > SETTLE_QUIET_MS {
                    return Ok(());
                }
                endpoint.pause().await;
            } else {
                moved = now;
            }
            seen = (waiting, self.epoch());
            if now.saturating_sub(start) > SETTLE_LIMIT_MS {
                return Ok(());
            }
        }
    }

    /// Evicts all members that are gone, however short their silence. If the provider cannot tell,
    /// waits until they give a sign of life, or have lapsed.
    pub(crate) async fn evict_gone<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
    ) -> Result<(), PoolError> {
        let patience_ends = endpoint.now_ms() + members.lease_ms() * 2;
        loop {
            // A round renews this process's own lease too.
            let table = match self.round(endpoint, blocks, members).await? {
                Some(table) => table,
                None => members.read(endpoint, blocks, self.epoch()).await?,
            };
            let evictions = members.evict_silent(endpoint, blocks, &table, 0).await?;
            if !evictions.unsure || endpoint.now_ms() > patience_ends {
                return Ok(());
            }
            for _ in 0..PAUSES_BEFORE_ASKING {
                endpoint.pause().await;
            }
        }
    }

    /// Waits until no other member is at work, for a lease and a second at most: that long, a member
    /// that has died may seem alive. Returns the slots and process ids of the members at work.
    pub(crate) async fn await_leave<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
    ) -> Result<Vec<(u32, u64)>, PoolError> {
        let patience_ends = endpoint.now_ms() + PATIENCE_MS + members.lease_ms();
        loop {
            self.round(endpoint, blocks, members).await?;
            let table = members.read(endpoint, blocks, self.epoch()).await?;
            let at_work = members.others_at_work(blocks.fabric(), &table)?;
            if at_work.is_empty() || endpoint.now_ms() > patience_ends {
                return Ok(at_work);
            }
            for _ in 0..PAUSES_BEFORE_ASKING {
                endpoint.pause().await;
            }
        }
    }

    /// Runs rounds until this process knows that these nodes have left the pool, for a lease and a second
    /// at most. Returns whether it does.
    pub(crate) async fn follow_departure<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
        nodes: &[u8],
    ) -> Result<bool, PoolError> {
        let patience_ends = endpoint.now_ms() + PATIENCE_MS + members.lease_ms();
        while !nodes.iter().all(|&node| blocks.layout().is_removed(node)) {
            if endpoint.now_ms() > patience_ends {
                return Ok(false);
            }
            // Another thread's round may be under way, which follows too.
            if self.round(endpoint, blocks, members).await?.is_none() {
                endpoint.pause().await;
            }
        }
        Ok(true)
    }

    /// Waits until every live member has freed for good the objects that it had unlinked. Returns
    /// the members that did not in time.
    pub(crate) async fn wait_until_flushed<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
    ) -> Result<Vec<u32>, PoolError> {
        let _demand = self.demand_epochs();
        let [now] = read_words(endpoint, GlobalAddr::new(0, EPOCH_AT)).await?;
        let patience_ends = endpoint.now_ms() + PATIENCE_MS + members.lease_ms();
        let me = u32::from(members.me().member);
        let mut late = vec![me];
        while !late.is_empty() && endpoint.now_ms() < patience_ends {
            let table = self.round(endpoint, blocks, members).await?;
            let seen = self.epoch();
            if let Some(table) = &table {
                late = self.late(table, me, now);
            }
            // Alone, each round advances the epoch; other members need time for their rounds.
            if !late.is_empty() && table.is_none_or(|table| table.live().count() > 1 || table.epoch == seen) {
                endpoint.pause().await;
            }
        }
        Ok(late)
    }

    /// The members, including this process in slot `me`, that have not flushed an epoch.
    pub(crate) fn late(&self, table: &MemberTable, me: u32, epoch: u64) -> Vec<u32> {
        let flushed = |slot: u32, flushed: u64| if slot == me { self.flushed() } else { flushed };
        let late = table.live().filter(|(slot, line)| flushed(*slot, line.flushed) <= epoch);
        late.map(|(slot, _)| slot).collect()
    }

    /// Runs rounds until all members follow the roster, or for `patience_ms`. Returns the slots of
    /// the members that do not.
    pub(crate) async fn await_roster<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
        patience_ms: u64,
    ) -> Result<Vec<u32>, PoolError> {
        let is_behind = |table: &MemberTable, line: &MemberLine| !table.roster.is_followed_by(line.followed);
        self.await_members(endpoint, blocks, members, patience_ms, is_behind).await
    }

    /// Runs rounds until all members can reach all nodes, or for `patience_ms`. Returns the slots
    /// of the members that cannot.
    pub(crate) async fn await_nodes<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
        patience_ms: u64,
    ) -> Result<Vec<u32>, PoolError> {
        let is_behind = |table: &MemberTable, line: &MemberLine| line.nodes < u64::from(table.nodes);
        let behind = self.await_members(endpoint, blocks, members, patience_ms, is_behind).await?;
        if behind.is_empty() {
            self.round(endpoint, blocks, members).await?;
        }
        Ok(behind)
    }

    /// Runs rounds until no live member is behind, or for `patience_ms`. Returns the slots of the
    /// members that are.
    async fn await_members<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
        patience_ms: u64,
        is_behind: impl Fn(&MemberTable, &MemberLine) -> bool,
    ) -> Result<Vec<u32>, PoolError> {
        let ends = endpoint.now_ms().saturating_add(patience_ms);
        loop {
            self.round(endpoint, blocks, members).await?;
            let table = members.read(endpoint, blocks, self.epoch()).await?;
            let behind = table.live().filter(|(_, line)| is_behind(&table, line));
            let behind: Vec<u32> = behind.map(|(slot, _)| slot).collect();
            if behind.is_empty() || endpoint.now_ms() >= ends {
                return Ok(behind);
            }
            endpoint.pause().await;
        }
    }
}
