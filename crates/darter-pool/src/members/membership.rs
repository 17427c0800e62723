//! A process's own membership: its identity, what it has published, and what it has read about
//! others.

use darter_fabric::{Batch, Endpoint, Fabric, GlobalAddr, Identity};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::addition::Addition;
use super::evict::{Evictions, LastSeen, at_work, evict_gone};
use super::member::{
    self, MemberLine, MemberTable, Publication, first_heartbeat, heartbeat_addr, publication_addr, read_table,
};
use super::register::Registration;
use super::roster::Roster;
use super::superblock::Superblock;
use crate::blocks::{BlockId, Blocks, MemberId};
use crate::error::PoolError;
use crate::region::EPOCH_AT;
use crate::round_trip::post;
use crate::sync::lock;

/// This process among the members of the pool.
pub(crate) struct Members {
    superblock: Superblock,
    me: MemberId,
    /// The provider's name for this process.
    holder: u64,
    /// This process may change nothing but its line.
    reads_only: bool,
    /// Proof of life, until the membership ends.
    identity: Mutex<Option<Box<dyn Identity>>>,
    /// Nodes that every live member can reach.
    usable: AtomicU8,
    /// The word of the nodes that this process follows.
    followed: AtomicU64,
    /// Held while the process begins to follow another one.
    following: Mutex<()>,
    addition: Mutex<Addition>,
    /// This process moves objects between nodes.
    pub(super) is_balancing: AtomicBool,
    /// Member lines in use, as last read.
    lines: AtomicU32,
    last_seen: Mutex<LastSeen>,
    /// The last heartbeat taken.
    heartbeat: AtomicU64,
    /// When the lease was last renewed, by this process's clock.
    renewed_ms: AtomicU64,
    /// When the fabric was last queried about silent members.
    asked_ms: AtomicU64,
    /// Members were evicted since [`Members::take_evicted`] was last called.
    has_evicted: AtomicBool,
    /// Blocks that this process is sweeping.
    in_sweep: Arc<Mutex<BTreeSet<BlockId>>>,
}

/// The state that a member publishes in a round of upkeep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct News {
    /// No client is pinned below this epoch, nor will be.
    pub published: u64,
    /// Every object unlinked in an earlier epoch is freed for good.
    pub flushed: u64,
    /// Objects wait for the epoch to advance.
    pub has_garbage: bool,
    /// A client waits for room.
    pub wants_room: bool,
    /// Nodes that this process can reach, and the roster that it follows.
    pub nodes: u64,
    /// Whether to advance the global epoch in the same batch.
    pub advance: bool,
}

impl Members {
    /// The membership that a registration has just begun, in a pool of which `nodes` nodes are
    /// known.
    pub(crate) fn new(superblock: Superblock, registration: Registration, nodes: u8, now_ms: u64) -> Self {
        Self {
            me: registration.me,
            holder: registration.identity.holder(),
            reads_only: registration.reads_only,
            identity: Mutex::new(Some(registration.identity)),
            usable: AtomicU8::new(registration.usable.min(nodes)),
            followed: AtomicU64::new(registration.roster.word()),
            following: Mutex::default(),
            addition: Mutex::default(),
            is_balancing: AtomicBool::new(false),
            lines: AtomicU32::new(0),
            last_seen: Mutex::default(),
            heartbeat: AtomicU64::new(first_heartbeat(registration.reads_only)),
            renewed_ms: AtomicU64::new(now_ms),
            asked_ms: AtomicU64::new(now_ms),
            has_evicted: AtomicBool::new(registration.has_evicted),
            in_sweep: Arc::default(),
            superblock,
        }
    }

    /// The pool's superblock.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// This incarnation of this member.
    pub(crate) fn me(&self) -> MemberId {
        self.me
    }

    /// Whether this process may change nothing but its line.
    #[inline]
    pub(crate) fn reads_only(&self) -> bool {
        self.reads_only
    }

    /// Fails if this process may only read.
    #[inline]
    pub(crate) fn verify_may_write(&self) -> Result<(), PoolError> {
        if self.reads_only { Err(PoolError::ReadOnly) } else { Ok(()) }
    }

    /// How long a process may be silent, in milliseconds.
    pub(crate) fn lease_ms(&self) -> u64 {
        self.superblock.lease_ms
    }

    /// Nodes on which this process may allocate: those that every live member can reach.
    pub(crate) fn usable_nodes(&self) -> u8 {
        self.usable.load(Ordering::Acquire)
    }

    /// Allows allocation on the first `nodes` nodes.
    pub(super) fn raise_usable(&self, nodes: u8) {
        self.usable.fetch_max(nodes, Ordering::AcqRel);
    }

    /// The nodes of the pool as this process follows them.
    pub(crate) fn roster(&self) -> Roster {
        // Only valid words are stored.
        let none = Roster { count: 1, leaving: None, changes: 0 };
        Roster::parse(self.followed.load(Ordering::Acquire)).unwrap_or(none)
    }

    /// Follows a roster by `apply`, unless another thread has followed a later one.
    pub(super) fn follow(
        &self,
        roster: Roster,
        apply: impl FnOnce() -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let _one_at_a_time = lock(&self.following);
        if roster.is_after(self.roster()) {
            apply()?;
            self.followed.store(roster.word(), Ordering::Release);
        }
        Ok(())
    }

    /// The addition of a node by this process.
    pub(super) fn addition(&self) -> &Mutex<Addition> {
        &self.addition
    }

    /// Blocks that this process is sweeping.
    pub(super) fn in_sweep(&self) -> &Arc<Mutex<BTreeSet<BlockId>>> {
        &self.in_sweep
    }

    /// Member lines in use, as last read.
    pub(crate) fn lines(&self) -> u32 {
        self.lines.load(Ordering::Relaxed)
    }

    /// Whether members were evicted since the last call.
    pub(crate) fn take_evicted(&self) -> bool {
        self.has_evicted.swap(false, Ordering::Relaxed)
    }

    /// Gives up the proof of life.
    pub(crate) fn drop_identity(&self) {
        lock(&self.identity).take();
    }

    /// Gives up the member line, after this process's last verb.
    pub(crate) async fn end<E: Endpoint>(&self, endpoint: &mut E) -> Result<(), PoolError> {
        member::end(endpoint, self.me).await
    }

    /// Reads the epoch and the members, and fails if this process is no longer one of them.
    /// `known_epoch` is an epoch that the process had seen before this call.
    pub(crate) async fn read<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        known_epoch: u64,
    ) -> Result<MemberTable, PoolError> {
        let table = read_table(endpoint, self.lines()).await?;
        self.lines.store(table.lines.len() as u32, Ordering::Relaxed);
        if table.nodes < blocks.layout().node_count() {
            return Err(PoolError::Damaged { node: 0, what: "its count of nodes went backwards" });
        }
        if table.epoch < known_epoch {
            return Err(PoolError::Damaged { node: 0, what: "its epoch went backwards" });
        }
        if !table.is_live(self.me) {
            return Err(PoolError::Evicted);
        }
        lock(&self.last_seen).note(&table, endpoint.now_ms(), self.lease_ms());
        // Lines are reused, so more than one line means that two members were live at the same
        // time.
        if table.lines.len() > 1 {
            blocks.note_others();
        }
        Ok(table)
    }

    /// Writes this process's line if its news are not there yet, if its lease is due for renewal,
    /// or if the epoch must be advanced. Returns whether it did.
    pub(crate) async fn publish<E: Endpoint>(
        &self,
        endpoint: &mut E,
        table: &MemberTable,
        News { published, flushed, has_garbage, wants_room, nodes, advance }: News,
    ) -> Result<bool, PoolError> {
        let lease_ms = self.lease_ms();
        let now = endpoint.now_ms();
        let mine = table.lines.get(usize::from(self.me.member));
        let is_told = mine.is_some_and(|line| {
            (line.published, line.flushed, line.has_garbage) == (published, flushed, has_garbage)
                && line.wants_room == wants_room
                && line.followed == nodes
        });
        let is_due = self.unrenewed_ms(now) > lease_ms / 4;
        let is_news = !is_told || is_due;
        if !is_news && !advance {
            return Ok(false);
        }
        let heartbeat = self.beat();
        let holder = self.holder;
        let publication =
            Publication { published, flushed, heartbeat, has_garbage, wants_room, holder, nodes };
        let write = |batch: &mut Batch| {
            // After a power failure all members are dead, whatever their lines say.
            batch.volatile().write(publication_addr(self.me), &publication.words());
            if advance {
                batch.cas(GlobalAddr::new(0, EPOCH_AT), table.epoch, table.epoch + 1);
            }
        };
        post(endpoint, write).await?;
        self.renewed_ms.fetch_max(now, Ordering::Relaxed);
        Ok(true)
    }

    /// Returns how long the lease has not been renewed, at `now` by this process's clock.
    fn unrenewed_ms(&self, now: u64) -> u64 {
        now.saturating_sub(self.renewed_ms.load(Ordering::Relaxed))
    }

    /// Returns a heartbeat that this process has never written.
    fn beat(&self) -> u64 {
        self.heartbeat.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Renews the lease if half of it is over, whether or not a round of upkeep is under way. Such
    /// a round may later publish a smaller heartbeat: others only check whether it changes.
    pub(crate) async fn renew<E: Endpoint>(&self, endpoint: &mut E) -> Result<(), PoolError> {
        let now = endpoint.now_ms();
        if self.unrenewed_ms(now) <= self.lease_ms() / 2 {
            return Ok(());
        }
        let heartbeat = self.beat();
        post(endpoint, |batch| batch.volatile().write(heartbeat_addr(self.me), &[heartbeat])).await?;
        self.renewed_ms.fetch_max(now, Ordering::Relaxed);
        Ok(())
    }

    /// Returns for how many milliseconds a line has not changed, as far as this process has
    /// observed it.
    pub(crate) fn silent_ms(&self, slot: u32, line: &MemberLine) -> u64 {
        lock(&self.last_seen).silent_ms(slot, line)
    }

    /// Evicts members that have been silent for half a lease and are gone, or that have lapsed and
    /// can be shut out, and searches for absent nodes. Does so once every quarter of a lease, and
    /// otherwise nothing. A process that may only read leaves evictions to others.
    pub(crate) async fn evict_when_due<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        table: &MemberTable,
    ) -> Result<(), PoolError> {
        let now = endpoint.now_ms();
        if now.saturating_sub(self.asked_ms.load(Ordering::Relaxed)) > self.lease_ms() / 4 {
            self.asked_ms.store(now, Ordering::Relaxed);
            blocks.fabric().remote_nodes().search_absent();
            if !self.reads_only {
                self.evict_silent(endpoint, blocks, table, self.lease_ms() / 2).await?;
            }
        }
        Ok(())
    }

    /// Evicts members that have been silent for at least `silent_ms_min` and are gone, or that have
    /// lapsed and can be shut out.
    pub(crate) async fn evict_silent<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        table: &MemberTable,
        silent_ms_min: u64,
    ) -> Result<Evictions, PoolError> {
        let suspects = self.suspects(table, silent_ms_min);
        let evictions = evict_gone(blocks.fabric(), endpoint, suspects.into_iter()).await?;
        if evictions.any {
            self.has_evicted.store(true, Ordering::Relaxed);
        }
        Ok(evictions)
    }

    /// Returns the slots and process ids of the other members that node 0 does not shut out.
    pub(crate) fn others_at_work<F: Fabric>(
        &self,
        fabric: &F,
        table: &MemberTable,
    ) -> Result<Vec<(u32, u64)>, PoolError> {
        at_work(fabric, self.suspects(table, 0).into_iter())
    }

    /// The other members that have been silent for at least `silent_ms_min`, each with its line and
    /// whether its lease has run out.
    fn suspects(&self, table: &MemberTable, silent_ms_min: u64) -> Vec<(u32, MemberLine, bool)> {
        let others = table.live().filter(|(slot, _)| *slot != u32::from(self.me.member));
        let silent = others.map(|(slot, line)| (slot, line, self.silent_ms(slot, line)));
        silent
            .filter(|(_, _, silent)| *silent >= silent_ms_min)
            .map(|(slot, line, silent)| (slot, *line, silent > self.lease_ms()))
            .collect()
    }
}
