//! Upkeep: the work that every member does now and then to recover memory (DART, section 4.4).
//!
//! One round takes these steps, in this order. Only one client of a process runs a round at a time.
//!
//! 1. Collect the objects that clients have retired, and mark the position in limbo.
//! 2. READ the global epoch, then the member lines. Stamp everything before the mark with that
//!    epoch.
//! 3. Adopt the epoch as the process epoch. Free objects stamped two epochs ago: own objects into
//!    the heap, those in other members' blocks by FAA on their freed bits.
//! 4. If no client is pinned below the epoch, publish it. If every live member's line, read in step
//!    2, showed it too, and some member has garbage, advance the global epoch by one with a CAS, in
//!    the same batch.
//! 5. Query the fabric about members that have been silent for half a lease. Evict those that are
//!    gone, and those silent for a whole lease that it can shut out.
//!
//! A member that may only read publishes its epoch, and leaves the advance and step 5 to the others.
//!
//! Objects and blocks on a memory node that does not respond wait until it does: a member must
//! renew its lease nevertheless.
//!
//! A round that is cancelled anywhere does no harm: its late writes are a publication or an epoch
//! that was true when it was composed, and both only grow stale on the safe side. Only freed bits
//! in flight must not be taken for landed: their birth then stays in [`Reclamation::stuck`] and
//! holds sweeps back.

use darter_fabric::{Fabric, GlobalAddr, ObjectState, Orphans};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use std::sync::{Arc, Mutex};

use super::epoch::{ClientState, Clients};
use super::extension::{Extension, Extensions};
use super::hand_over::HandOver;
use super::limbo::Limbo;
use super::snapshot_word::SnapshotCopy;
use crate::blocks::{Blocks, MagazineList};
use crate::error::PoolError;
use crate::laggard::Laggard;
use crate::members::{MemberTable, Members, News};
use crate::sync::lock;

/// Wholly free blocks a process keeps between rounds.
const EMPTY_BLOCKS_KEPT: usize = 2;

/// The pins of this process's clients, what they have unlinked, and the state of upkeep.
pub(crate) struct Reclamation {
    pub(super) clients: Clients,
    pub(super) limbo: Limbo,
    extensions: Extensions,
    /// A round is under way.
    busy: AtomicBool,
    published: AtomicU64,
    flushed: AtomicU64,
    /// More than one round is requested at the next opportunity.
    pressure: AtomicBool,
    /// Callers that wait for the epoch to advance.
    waiting: AtomicU32,
    /// Callers that wait for room.
    room_requests: AtomicU32,
    /// Another member waits for room.
    is_asked: AtomicBool,
    /// This process has waited for room as long as a request takes, and has found none since.
    is_my_turn: AtomicBool,
    /// How far this process has got with the blocks that it hands over.
    hand_over: Mutex<HandOver>,
    /// The member that the epoch waited for in the last round.
    laggard: Mutex<Option<Laggard>>,
    /// The oldest birth among freed bits whose landing is unknown.
    stuck: AtomicU64,
    pub(super) snapshot: SnapshotCopy,
    /// Changes under way that hold a snapshot back without a pin.
    unpinned_changes: AtomicU32,
}

/// The right to run a round; given back when dropped.
struct RoundGuard<'a>(&'a AtomicBool);

impl Drop for RoundGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// While it exists, the epoch advances without garbage, or the other members make room.
pub(crate) struct EpochDemand<'a>(&'a AtomicU32);

impl Drop for EpochDemand<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Notes freed bits as stuck unless they were seen to land.
struct UnconfirmedFrees<'a> {
    stuck: &'a AtomicU64,
    born: u64,
}

impl Drop for UnconfirmedFrees<'_> {
    fn drop(&mut self) {
        self.stuck.fetch_min(self.born, Ordering::SeqCst);
    }
}

impl Reclamation {
    /// A process without clients, registered at `epoch`, after which it has read the snapshot's word.
    pub(crate) fn new(epoch: u64, snapshot: u64) -> Self {
        Self {
            clients: Clients::new(epoch),
            limbo: Limbo::new(),
            extensions: Extensions::default(),
            busy: AtomicBool::new(false),
            published: AtomicU64::new(epoch),
            flushed: AtomicU64::new(epoch),
            pressure: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            room_requests: AtomicU32::new(0),
            is_asked: AtomicBool::new(false),
            is_my_turn: AtomicBool::new(false),
            hand_over: Mutex::default(),
            laggard: Mutex::default(),
            stuck: AtomicU64::new(u64::MAX),
            snapshot: SnapshotCopy::new(snapshot),
            unpinned_changes: AtomicU32::new(0),
        }
    }

    /// The process epoch.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.clients.epoch()
    }

    /// Objects that wait to be freed, without those that clients still keep.
    pub(crate) fn garbage(&self) -> usize {
        self.limbo.waiting()
    }

    /// Returns all objects that wait to be freed, in limbo or in the hands of a client.
    pub(crate) fn in_limbo(&self) -> HashSet<GlobalAddr> {
        // Limbo is read before and after the rings: an object moves from limbo to a ring's owner
        // and back.
        let mut objects: HashSet<_> = self.limbo.contents().into_iter().collect();
        for client in self.clients.all() {
            objects.extend(Limbo::ring_contents(&client.ring));
        }
        objects.extend(self.limbo.contents());
        objects
    }

    /// Whether verbs of a dropped operation keep a pin alive, as far as the process knows.
    pub(crate) fn has_lingering_pins(&self) -> bool {
        self.clients.all().iter().any(|client| client.is_lingering())
    }

    /// Returns the extension of a type.
    pub(crate) fn extension<T: Extension + Default>(&self) -> Arc<T> {
        self.extensions.get()
    }

    /// Adds a client, unpinned.
    pub(super) fn add_client(
        &self,
        orphans: Option<Arc<dyn Orphans>>,
        magazines: &Arc<MagazineList>,
    ) -> Arc<ClientState> {
        self.clients.add(orphans, magazines)
    }

    fn begin_round(&self) -> Option<RoundGuard<'_>> {
        // Made only by the caller that takes the flag: the end of a guard clears it.
        (!self.busy.swap(true, Ordering::Acquire)).then(|| RoundGuard(&self.busy))
    }

    /// Requests more than one round at the next opportunity.
    pub(super) fn set_pressure(&self) {
        self.pressure.store(true, Ordering::Relaxed);
    }

    /// Whether more than one round was requested since the last call.
    pub(super) fn take_pressure(&self) -> bool {
        self.pressure.swap(false, Ordering::Relaxed)
    }

    /// Makes the epoch advance while the value lives.
    pub(crate) fn demand_epochs(&self) -> EpochDemand<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        EpochDemand(&self.waiting)
    }

    /// Requests room from the other members while the value lives.
    pub(super) fn request_room(&self) -> EpochDemand<'_> {
        self.room_requests.fetch_add(1, Ordering::Relaxed);
        EpochDemand(&self.room_requests)
    }

    /// Begins, or ends, to hold snapshots back. Begin while pinned for a change.
    pub(crate) fn hold_snapshots_back(&self, begins: bool) {
        if begins {
            self.unpinned_changes.fetch_add(1, Ordering::SeqCst);
        } else {
            self.unpinned_changes.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Returns whether another member waits for room, as of the last round.
    pub(crate) fn is_asked_for_room(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Returns whether this process leaves the pool's blocks to members that wait for room. Otherwise
    /// one that reuses its own memory, and so never waits for long, would take all blocks that are
    /// handed over.
    pub(crate) fn defers_to_others(&self) -> bool {
        self.is_asked_for_room() && !self.is_my_turn.load(Ordering::Relaxed)
    }

    /// Notes whether this process may take blocks although others wait.
    pub(crate) fn note_turn(&self, is_mine: bool) {
        self.is_my_turn.store(is_mine, Ordering::Relaxed);
    }

    /// Returns whether any object waits to be freed, including those that clients still keep.
    pub(crate) fn has_garbage(&self) -> bool {
        self.limbo.waiting() > 0 || self.clients.all().iter().any(|client| !Limbo::is_empty(&client.ring))
    }

    /// Returns the member that the epoch waited for in the last round.
    pub(super) fn laggard(&self) -> Option<Laggard> {
        *lock(&self.laggard)
    }

    /// The epoch before which every object that this process unlinked is freed for good, as of the
    /// last round.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// The oldest birth among freed bits whose landing is unknown.
    pub(crate) fn stuck(&self) -> u64 {
        self.stuck.load(Ordering::SeqCst)
    }

    /// Runs one round; returns `None` if one is under way.
    pub(crate) async fn round<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
    ) -> Result<Option<MemberTable>, PoolError> {
        let Some(_guard) = self.begin_round() else { return Ok(None) };
        for client in self.clients.all() {
            self.limbo.collect(&client.ring);
            self.clients.reap(&client);
            client.settle_leftovers();
        }
        let mark = self.limbo.mark();
        let table = members.read(endpoint, blocks, self.epoch()).await?;
        // Before the epoch is adopted (`snapshot`).
        self.snapshot.store(table.snapshot);
        self.free_ripe(blocks, mark, table.epoch);
        self.send_frees(endpoint, blocks).await?;
        self.give_back(endpoint, blocks, members, &table).await?;
        self.publish(endpoint, blocks, members, &table).await?;
        self.extensions.upkeep(endpoint).await?;
        // Steps that may have to wait for a memory node come after the lease is renewed.
        members.follow_nodes(endpoint, blocks, &table).await?;
        members.evict_when_due(endpoint, blocks, &table).await?;
        if !members.reads_only() {
            self.tend_snapshot(endpoint, &table).await?;
        }
        Ok(Some(table))
    }

    /// Gives surplus blocks back. While another member waits for room, also claims the objects that
    /// others freed, gives back all empty blocks, and hands over others, before it publishes this
    /// round's epoch, on which that member relies. While a node is leaving, hands over all blocks on
    /// it.
    async fn give_back<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
        table: &MemberTable,
    ) -> Result<(), PoolError> {
        let me = u32::from(members.me().member);
        let is_asked = table.live().any(|(slot, line)| slot != me && line.wants_room);
        self.is_asked.store(is_asked, Ordering::Relaxed);
        let is_leaving = members.roster().leaving.is_some();
        if is_asked || is_leaving && blocks.has_blocks_to_clear() {
            blocks.claim_and_trim(endpoint).await?;
        }
        blocks.return_blocks(endpoint, if is_asked { 0 } else { EMPTY_BLOCKS_KEPT }).await?;
        let must_close =
            lock(&self.hand_over).go_on(&self.clients, blocks, (is_asked, is_leaving), table.epoch);
        if must_close {
            blocks.finish_hand_over(endpoint).await?;
        }
        Ok(())
    }

    /// Stamps the objects that were in limbo at `mark` with the global epoch, makes that the
    /// process epoch, and frees the objects that are ripe.
    fn free_ripe<F: Fabric>(&self, blocks: &Blocks<F>, mark: u64, global: u64) {
        self.limbo.stamp(mark, global, |object| blocks.note(object, ObjectState::Retired(global)));
        self.clients.observe(global);
        let graced = |stamp| blocks.fabric().memory_observer().note_grace(stamp);
        self.limbo.ripen(global, graced, |objects| blocks.free(objects));
    }

    /// Frees objects that lie in other members' blocks, except on nodes that are away.
    async fn send_frees<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
    ) -> Result<(), PoolError> {
        let (mut objects, born) = self.limbo.take_remote(|node| blocks.is_away(node));
        objects.retain(|object| !blocks.layout().is_removed(object.addr().node()));
        if objects.is_empty() {
            return Ok(());
        }
        let unconfirmed = UnconfirmedFrees { stuck: &self.stuck, born };
        let freed_in = blocks.blocks_of(&objects);
        blocks.send_frees(endpoint, objects).await?;
        std::mem::forget(unconfirmed);
        blocks.note_landed(&freed_in);
        Ok(())
    }

    /// Returns a node that is away and has objects or blocks that this process is to free, if there is one.
    pub(crate) fn awaits<F: Fabric>(&self, blocks: &Blocks<F>) -> Option<u8> {
        self.limbo.awaits(|node| blocks.is_away(node)).or_else(|| blocks.awaited_by_blocks())
    }

    /// The epoch before which every object that this process unlinked is freed for good, at most
    /// `epoch`.
    fn flushed_before(&self, epoch: u64) -> u64 {
        let clients = || {
            let pinned = self.clients.oldest_pin().unwrap_or(u64::MAX);
            let rings = self.clients.all();
            rings.iter().fold(pinned, |oldest, client| {
                if client.pinned().is_none() {
                    Limbo::settle_hand(&client.ring);
                }
                oldest.min(Limbo::oldest_in(&client.ring))
            })
        };
        let stuck = self.stuck.load(Ordering::SeqCst);
        self.limbo.oldest(clients).min(stuck).min(epoch)
    }

    /// Publishes the current state and helps advance the global epoch.
    async fn publish<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
        table: &MemberTable,
    ) -> Result<(), PoolError> {
        let epoch = table.epoch;
        let flushed = self.flushed_before(epoch);
        self.flushed.store(flushed, Ordering::Release);
        let is_current = self.clients.oldest_pin().is_none_or(|pin| pin >= epoch);
        // A change that is under way without a pin holds an epoch back only for a snapshot.
        let is_changing = self.holds_changes() && self.unpinned_changes.load(Ordering::SeqCst) > 0;
        let is_current = is_current && !is_changing;
        let published = if is_current { epoch } else { self.published.load(Ordering::Relaxed) };
        let has_garbage = self.limbo.ripening() > 0 || self.waiting.load(Ordering::Relaxed) > 0;

        let others = || table.live().filter(|(slot, _)| *slot != u32::from(members.me().member));
        let advance = is_current
            && !members.reads_only()
            && others().all(|(_, line)| line.published == epoch)
            && (has_garbage || others().any(|(_, line)| line.has_garbage));
        let late = others().find(|(_, line)| line.published < epoch);
        let late = late.map(|(member, line)| Laggard { member, pid: line.pid, is_me: false, for_ms: 0 });
        let mine = || Laggard {
            member: members.me().member.into(),
            pid: std::process::id().into(),
            is_me: true,
            for_ms: 0,
        };
        *lock(&self.laggard) = late.or_else(|| (!is_current).then(mine));
        let wants_room = self.room_requests.load(Ordering::Relaxed) > 0;
        let nodes = members.roster().followed(blocks.layout().node_count());
        let news = News { published, flushed, has_garbage, wants_room, nodes, advance };
        if members.publish(endpoint, table, news).await? {
            self.published.store(published, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::leftovers::Task;
    use super::*;
    use crate::{AllocKind, Client, Pool, PoolOptions, ReachableSet};
    use darter_fabric::{Local, OpKind, block_on};
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    fn pool_and_client() -> (Pool<Local>, Client<Local>) {
        let pool =
            block_on(Pool::create(Local::memory(1 << 20, 1).unwrap(), &PoolOptions::default())).unwrap();
        let client = pool.client().unwrap();
        (pool, client)
    }

    /// A second round at the same time could store an older word of the snapshot than the first one has
    /// read, and changes would not preserve their values.
    #[test]
    fn an_attempt_during_a_round_does_not_end_it() {
        let (pool, _client) = pool_and_client();
        let reclamation = &pool.process.reclamation;
        let round = reclamation.begin_round().unwrap();
        assert!((0..3).all(|_| reclamation.begin_round().is_none()));
        drop(round);
        assert!(reclamation.begin_round().is_some());
    }

    /// An object that is handed out for scrubbing, then unlinked again or put back, bounds the
    /// flushed epoch as before.
    #[test]
    fn what_is_unlinked_again_keeps_its_birth() {
        let (pool, mut client) = pool_and_client();
        let maintain = |client: &mut Client<Local>| {
            for _ in 0..6 {
                block_on(pool.maintain(client)).unwrap();
            }
        };
        let addr = block_on(client.alloc(0, 64, AllocKind::Inner)).unwrap();
        let born = {
            let mut pinned = block_on(client.pin(OpKind::Insert)).unwrap();
            pinned.unlink(addr, 64, AllocKind::Inner, [7].into());
            pinned.epoch()
        };
        for is_put_back in [true, false, true] {
            maintain(&mut client);
            assert_eq!(pool.process.reclamation.flushed(), born);
            if is_put_back {
                let taken = client.take_graced();
                assert_eq!(taken.len(), 1);
                for object in taken {
                    client.put_back(object);
                }
                continue;
            }
            let mut pinned = block_on(client.pin(OpKind::Maintain)).unwrap();
            assert!(pinned.epoch() > born);
            for object in pinned.take_graced() {
                pinned.unlink(object.addr, object.bytes, object.kind, object.note);
            }
        }
        maintain(&mut client);
        assert_eq!(pool.process.reclamation.flushed(), born);

        // In hand, the object is garbage to an audit, not leaked.
        let mut other = pool.client().unwrap();
        let mut audit = || {
            let audit = block_on(pool.audit(&mut other, &ReachableSet::default())).unwrap();
            (audit.garbage_bytes, audit.leaked_bytes)
        };
        let mut pinned = block_on(client.pin(OpKind::Maintain)).unwrap();
        let taken = pinned.take_graced();
        assert_eq!((taken.len(), audit()), (1, (64, 0)));
        for object in taken {
            pinned.retire(object.addr, object.bytes, object.kind);
            assert_eq!(audit(), (64, 0));
        }
        drop(pinned);
        assert_eq!(audit(), (64, 0));
        maintain(&mut client);
        assert_eq!(pool.process.reclamation.flushed(), pool.epoch());
        assert_eq!(audit(), (0, 0));
    }

    /// Reports these verbs as in flight once, then none. Runs a closure directly after the first
    /// report.
    struct AfterTheLook {
        in_flight: AtomicUsize,
        then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl std::fmt::Debug for AfterTheLook {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("AfterTheLook")
        }
    }

    impl Orphans for AfterTheLook {
        fn in_flight(&self) -> usize {
            let found = self.in_flight.swap(0, Ordering::SeqCst);
            if let Some(then) = lock(&self.then).take() {
                then();
            }
            found
        }
    }

    /// A client with verbs in flight.
    fn client_with_verbs(pool: &Pool<Local>, in_flight: usize) -> (Arc<ClientState>, Arc<AfterTheLook>) {
        let in_flight = AtomicUsize::new(in_flight);
        let orphans = Arc::new(AfterTheLook { in_flight, then: Mutex::default() });
        let state = pool
            .process
            .reclamation
            .clients
            .add(Some(Arc::clone(&orphans) as Arc<dyn Orphans>), &Arc::default());
        (state, orphans)
    }

    /// Work that an operation leaves, and whether it was done.
    fn work() -> (Vec<Task>, Arc<AtomicBool>) {
        let is_done = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&is_done);
        (vec![Box::new(move || noted.store(true, Ordering::SeqCst))], is_done)
    }

    /// Directly after the check for late verbs, the client drops another operation with verbs in
    /// flight and begins the next.
    #[test]
    fn work_left_after_the_check_for_late_verbs_is_not_done() {
        let (pool, _client) = pool_and_client();
        let (state, orphans) = client_with_verbs(&pool, 0);
        let ((mut work_before, before), (mut work_after, after)) = (work(), work());
        state.leftovers.put_back(&mut work_before);
        let owner = Arc::clone(&state);
        *lock(&orphans.then) = Some(Box::new(move || owner.leftovers.put_back(&mut work_after)));
        state.settle_leftovers();
        assert!(before.load(Ordering::SeqCst) && !after.load(Ordering::SeqCst));
        state.settle_leftovers();
        assert!(after.load(Ordering::SeqCst));
    }

    /// The client is gone, and its last verb lands directly after the check for late verbs.
    #[test]
    fn work_of_a_client_forgotten_during_the_check_for_late_verbs_is_done() {
        let (pool, _client) = pool_and_client();
        let (state, orphans) = client_with_verbs(&pool, 1);
        let (mut left, is_done) = work();
        state.leftovers.put_back(&mut left);
        let (ended, process) = (Arc::clone(&state), Arc::downgrade(&pool.process));
        *lock(&orphans.then) = Some(Box::new(move || {
            ended.gone.store(true, Ordering::SeqCst);
            let clients = &process.upgrade().unwrap().reclamation.clients;
            clients.end_pin(&ended, &mut lock(&ended.lingering));
        }));
        state.settle_leftovers();
        assert_eq!(pool.process.reclamation.clients.all().len(), 1);
        assert!(is_done.load(Ordering::SeqCst));
    }
}
