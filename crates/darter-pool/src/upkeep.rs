//! Upkeep: what every member does now and then so that memory comes back (DART, section 4.4).
//!
//! One round, in this order, by one client of a process at a time:
//!
//! 1. Collect what clients have retired, and mark the place in limbo.
//! 2. READ the global epoch, then the member lines. Stamp everything before the mark with that epoch.
//! 3. Take the epoch over as the process epoch. Free what is stamped two epochs ago: own objects into the heap, those
//!    of other members' blocks by FAA on their freed bits.
//! 4. If no client is pinned below the epoch, publish it. If every live member's line, read in step 2, showed it too,
//!    and somebody has garbage, CAS the global epoch on by one, in the same batch.
//! 5. Ask the fabric about members that have been silent for half a lease; end those that are gone, and those silent for
//!    a whole lease that it can shut out.
//!
//! A round that is cancelled anywhere does no harm: what it may still write late is a publication or an epoch that was
//! true when it was composed, and both only grow stale on the safe side. Only freed bits on their way must not be
//! taken for landed: their birth then stays in [`Upkeep::stuck`] and holds sweeps back.

use darter_fabric::{Endpoint, Fabric, GlobalAddr, ObjectState, mutant};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::PoolError;
use crate::epoch::{ClientState, lock};
use crate::heap::{ClaimFilter, Freed};
use crate::layout::{BlockId, EPOCH_AT, Layout};
use crate::limbo::{Limbo, Retired};
use crate::member::{self, Burials, MemberLine, MemberTable, Publication, Sightings};
use crate::pool::Shared;
use crate::size_class::class_bytes;

/// Wholly free blocks a process keeps between rounds.
const EMPTY_BLOCKS_KEPT: usize = 2;
/// Freed bits sent in one batch.
const FREES_PER_BATCH: usize = 256;
/// Milliseconds between two questions about members of which the provider knows nothing.
const PAUSES_BEFORE_ASKING: u32 = 20;
/// Milliseconds that `settle` waits without progress, and altogether.
const SETTLE_QUIET_MS: u64 = 250;
const SETTLE_LIMIT_MS: u64 = 5000;

/// The state of a process's upkeep.
#[derive(Debug)]
pub(crate) struct Upkeep {
    busy: AtomicBool,
    lease_ms: u64,
    /// Member lines in use, as last seen.
    lines: AtomicU32,
    published: AtomicU64,
    flushed: AtomicU64,
    deadline_ms: AtomicU64,
    asked_ms: AtomicU64,
    sightings: Mutex<Sightings>,
    pressure: AtomicBool,
    /// Sweeps that wait for the epoch to move.
    sweeps: AtomicU32,
    /// The oldest birth among freed bits whose landing is unknown.
    stuck: AtomicU64,
}

/// The right to run a round; given back when dropped.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A sweep that waits; while it does the epoch moves without garbage.
pub(crate) struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Notes freed bits as stuck unless they were seen to land.
struct InFlight<'a> {
    stuck: &'a AtomicU64,
    born: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.stuck.fetch_min(self.born, Ordering::SeqCst);
    }
}

impl Upkeep {
    /// Nothing done since registration at `epoch`, just now.
    pub(crate) fn new(epoch: u64, lease_ms: u64, now_ms: u64) -> Self {
        Self {
            busy: AtomicBool::new(false),
            lease_ms,
            lines: AtomicU32::new(0),
            published: AtomicU64::new(epoch),
            flushed: AtomicU64::new(epoch),
            deadline_ms: AtomicU64::new(now_ms.saturating_add(lease_ms)),
            asked_ms: AtomicU64::new(0),
            sightings: Mutex::default(),
            pressure: AtomicBool::new(false),
            sweeps: AtomicU32::new(0),
            stuck: AtomicU64::new(u64::MAX),
        }
    }

    fn begin(&self) -> Option<Turn<'_>> {
        (!self.busy.swap(true, Ordering::Acquire)).then_some(Turn(&self.busy))
    }

    /// Asks for more than one round at the next chance.
    pub(crate) fn set_pressure(&self) {
        self.pressure.store(true, Ordering::Relaxed);
    }

    /// Whether more than one round was asked for.
    pub(crate) fn take_pressure(&self) -> bool {
        self.pressure.swap(false, Ordering::Relaxed)
    }

    /// Makes the epoch move while the value lives.
    pub(crate) fn wait_for_epochs(&self) -> Waiting<'_> {
        self.sweeps.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.sweeps)
    }

    /// The epoch before which everything this process unlinked is freed for good, as of the last round.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// The oldest birth among freed bits whose landing is unknown.
    #[cfg(test)]
    pub(crate) fn stuck(&self) -> u64 {
        self.stuck.load(Ordering::SeqCst)
    }

    /// Member lines in use, as last seen.
    pub(crate) fn lines(&self) -> u32 {
        self.lines.load(Ordering::Relaxed)
    }
}

impl<F: Fabric> Shared<F> {
    /// One round, unless one is under way.
    pub(crate) async fn upkeep(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        self.round(endpoint).await.map(|_| ())
    }

    /// One round; `None` when one is under way.
    pub(crate) async fn round(&self, endpoint: &mut F::Endpoint) -> Result<Option<MemberTable>, PoolError> {
        let Some(_turn) = self.upkeep.begin() else { return Ok(None) };
        for client in self.clients.all() {
            self.limbo.collect(&client.ring);
            self.reap(&client);
            self.settle_abandoned(&client);
        }
        let mark = self.limbo.mark();
        let table = self.read_members(endpoint).await?;
        lock(&self.upkeep.sightings).note(&table, endpoint.now_ms());
        let mark = if mutant!("limbo-marked-after-the-epoch-was-read") { self.limbo.mark() } else { mark };
        let stamp =
            if mutant!("limbo-stamped-with-the-process-epoch") { self.clients.epoch() } else { table.epoch };
        self.limbo.stamp(mark, stamp, |object| {
            let state = ObjectState::Retired(table.epoch);
            self.fabric.note_object(object.addr(), class_bytes(object.class()), state);
        });
        self.clients.observe(table.epoch);
        let graced = |stamp| self.fabric.note_grace(stamp);
        self.limbo.ripen(table.epoch, graced, |objects| {
            for object in objects {
                self.fabric.note_object(object.addr(), class_bytes(object.class()), ObjectState::Free);
            }
            let mut heap = lock(&self.heap);
            objects.iter().copied().filter(|o| heap.free(o.addr(), o.class()) == Freed::Elsewhere).collect()
        });
        self.send_frees(endpoint).await?;
        self.return_blocks(endpoint, EMPTY_BLOCKS_KEPT).await?;
        self.publish(endpoint, &table).await?;
        self.holds.disown(endpoint).await?;
        // What may have to wait for a memory node comes after the lease is renewed.
        self.follow_nodes(endpoint, &table).await?;
        let now = endpoint.now_ms();
        if now.saturating_sub(self.upkeep.asked_ms.load(Ordering::Relaxed)) > self.upkeep.lease_ms / 4 {
            self.upkeep.asked_ms.store(now, Ordering::Relaxed);
            self.bury_silent(endpoint, &table, self.upkeep.lease_ms / 2).await?;
        }
        Ok(Some(table))
    }

    /// Reads epoch and members, and makes sure that this process is still one.
    pub(crate) async fn read_members(&self, endpoint: &mut F::Endpoint) -> Result<MemberTable, PoolError> {
        // Taken before the read: another thread may see a later epoch meanwhile.
        let known = self.clients.epoch();
        let table = member::read_table(endpoint, self.upkeep.lines()).await?;
        self.upkeep.lines.store(table.lines.len() as u32, Ordering::Relaxed);
        if table.nodes < self.layout.node_count() {
            return Err(PoolError::Damaged { node: 0, what: "its count of nodes went backwards" });
        }
        if table.epoch < known {
            return Err(PoolError::Damaged { node: 0, what: "its epoch went backwards" });
        }
        if !table.is_live(self.me) {
            return Err(PoolError::Evicted);
        }
        // Lines are reused, so more than one means that two members were there at once.
        if table.lines.len() > 1 {
            self.had_company.store(true, Ordering::Relaxed);
        }
        Ok(table)
    }

    /// Ends all members that are gone, however short their silence. When the provider does not know, waits until they give
    /// a sign of life, or have lapsed.
    pub(crate) async fn bury_dead(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        let patience_ends = endpoint.now_ms() + self.upkeep.lease_ms * 2;
        loop {
            // A round renews this process's own lease too.
            let table = match self.round(endpoint).await? {
                Some(table) => table,
                None => self.read_members(endpoint).await?,
            };
            if !self.bury_silent(endpoint, &table, 0).await?.unsure || endpoint.now_ms() > patience_ends {
                return Ok(());
            }
            for _ in 0..PAUSES_BEFORE_ASKING {
                endpoint.pause().await;
            }
        }
    }

    async fn bury_silent(
        &self,
        endpoint: &mut F::Endpoint,
        table: &MemberTable,
        silent_ms_min: u64,
    ) -> Result<Burials, PoolError> {
        let now = endpoint.now_ms();
        let suspects: Vec<_> = {
            let sightings = lock(&self.upkeep.sightings);
            let others = table.live().filter(|(slot, _)| *slot != u32::from(self.me.member));
            let silent = others.map(|(slot, line)| (slot, line, sightings.silent_ms(slot, line, now)));
            silent
                .filter(|(_, _, silent)| *silent >= silent_ms_min)
                .map(|(slot, line, silent)| (slot, *line, silent > self.upkeep.lease_ms))
                .collect()
        };
        let burials = member::bury_dead(&self.fabric, endpoint, suspects.into_iter()).await?;
        if burials.any {
            self.buried.store(true, Ordering::Relaxed);
        }
        Ok(burials)
    }

    /// Ends the pin of an idle or dropped client that waits for verbs which have landed.
    pub(crate) fn reap(&self, state: &Arc<ClientState>) {
        let mut lingering = lock(&state.lingering);
        if *lingering && (state.in_flight() == 0 || mutant!("lingering-pin-reaped-at-once")) {
            self.end_pin(state, &mut lingering);
        }
    }

    /// What a client's operations abandoned is over when no verb of dropped ones is on its way, even while it waits in another.
    ///
    /// The list is taken before the look for such verbs: after it the client may add what its
    /// present operation abandons, with verbs on their way. A hold is in the list only when its
    /// operation has been dropped, so the look sees that operation's verbs. No lock is held
    /// meanwhile, since the look may take a provider's locks, under which other threads run
    /// operations.
    fn settle_abandoned(&self, state: &ClientState) {
        loop {
            let mut left_over = std::mem::take(&mut *lock(&state.left_over));
            if left_over.is_empty() {
                return;
            }
            if state.in_flight() == 0 || mutant!("holds-settled-under-late-verbs") {
                return self.holds.end(left_over);
            }
            lock(&state.left_over).append(&mut left_over);
            // A client that is gone may have been forgotten while the list was empty. Then nobody
            // else looks again.
            if !state.gone.load(Ordering::SeqCst) || state.in_flight() > 0 {
                return;
            }
        }
    }

    /// No verb of a client's last operation is on its way.
    pub(crate) fn end_pin(&self, state: &Arc<ClientState>, lingering: &mut bool) {
        *lingering = false;
        self.holds.settle(state);
        state.unpin();
        if state.gone.load(Ordering::SeqCst) {
            self.clients.remove(state);
        }
    }

    /// Sets the freed bits of objects that lie in other members' blocks.
    async fn send_frees(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        let (objects, born) = self.limbo.take_remote();
        if objects.is_empty() {
            return Ok(());
        }
        let born = if mutant!("cancelled-frees-taken-for-landed") { u64::MAX } else { born };
        let in_flight = InFlight { stuck: &self.upkeep.stuck, born };
        let blocks: BTreeSet<BlockId> =
            objects.iter().filter_map(|object| Some(self.layout.page_of(object.addr())?.block)).collect();
        for words in self.freed_bits(objects).chunks(FREES_PER_BATCH) {
            let mut batch = endpoint.batch();
            for &(addr, bits) in words {
                batch.faa(addr, bits);
            }
            let batch = endpoint.submit(batch).await?;
            endpoint.recycle(batch);
        }
        std::mem::forget(in_flight);
        // A block that this process took over meanwhile may have been searched for freed objects before these were.
        let heap = lock(&self.heap);
        if !mutant!("frees-forgotten-in-a-block-just-taken")
            && blocks.iter().any(|&it| heap.block(it).is_some())
        {
            self.had_company.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The bitmap words of objects with the bits to set, each word once.
    fn freed_bits(&self, mut objects: Vec<Retired>) -> Vec<(GlobalAddr, u64)> {
        objects.sort_unstable();
        let mut words: Vec<(GlobalAddr, u64)> = Vec::with_capacity(objects.len());
        let mut touched = lock(&self.touched);
        for object in objects {
            let place = self.layout.freed_bit(object.addr(), object.class());
            let (Some((addr, bit)), Some(page)) = (place, self.layout.page_of(object.addr())) else {
                lock(&self.heap).count_bad_free();
                continue;
            };
            touched.insert(page.block);
            match words.last_mut() {
                // An object that was freed twice, by a damaged pointer, sets its bit once.
                Some((last, bits)) if *last == addr => *bits |= bit,
                _ => words.push((addr, bit)),
            }
        }
        words
    }

    /// Gives wholly free blocks back, `keep` excepted.
    pub(crate) async fn return_blocks(
        &self,
        endpoint: &mut F::Endpoint,
        keep: usize,
    ) -> Result<(), PoolError> {
        let leaving = {
            let mut heap = lock(&self.heap);
            heap.begin_return(keep);
            heap.leaving()
        };
        for (block, word) in leaving {
            let mut batch = endpoint.batch();
            batch.cas(Layout::block_word(block), word.encode(), word.freed().encode());
            let batch = endpoint.submit(batch).await?;
            endpoint.recycle(batch);
            // Lost races too: then an earlier CAS of ours, thought lost, has landed.
            lock(&self.heap).finish_return(block, word);
        }
        Ok(())
    }

    /// Publishes what is true now and helps the global epoch on.
    async fn publish(&self, endpoint: &mut F::Endpoint, table: &MemberTable) -> Result<(), PoolError> {
        let upkeep = &self.upkeep;
        let epoch = table.epoch;
        let clients = || {
            let pinned = self.clients.oldest_pin().filter(|_| !mutant!("flushed-without-looking-at-pins"));
            let pinned = pinned.unwrap_or(u64::MAX);
            let rings = self.clients.all();
            rings.iter().fold(pinned, |oldest, client| {
                if client.pinned().is_none() {
                    Limbo::settle_hand(&client.ring);
                }
                oldest.min(Limbo::oldest_in(&client.ring))
            })
        };
        let stuck = upkeep.stuck.load(Ordering::SeqCst);
        let flushed = self.limbo.oldest(clients).min(stuck).min(epoch);
        upkeep.flushed.store(flushed, Ordering::Release);
        let behind = u64::from(mutant!("published-over-a-pin-one-epoch-behind"));
        let is_current = self.clients.oldest_pin().is_none_or(|pin| pin + behind >= epoch);
        let published = if is_current { epoch } else { upkeep.published.load(Ordering::Relaxed) };
        let has_garbage =
            self.limbo.waiting() > self.limbo.graced() || upkeep.sweeps.load(Ordering::Relaxed) > 0;

        let others = || table.live().filter(|(slot, _)| *slot != u32::from(self.me.member));
        let is_near = |line: &MemberLine| {
            mutant!("epoch-moved-past-a-member-one-behind") && line.published + 1 == epoch
        };
        let advance = (is_current || mutant!("epoch-moved-past-pins-of-its-own"))
            && others().all(|(_, line)| line.published == epoch || is_near(line))
            && (has_garbage || others().any(|(_, line)| line.has_garbage));
        let now = endpoint.now_ms();
        let left = upkeep.deadline_ms.load(Ordering::Relaxed).saturating_sub(now);
        let mine = table.lines.get(usize::from(self.me.member));
        let nodes = self.layout.node_count();
        let is_told = mine.is_some_and(|line| {
            (line.published, line.flushed, line.has_garbage) == (published, flushed, has_garbage)
                && line.nodes == u64::from(nodes)
        });
        let is_due =
            left < upkeep.lease_ms - upkeep.lease_ms / 4 && !mutant!("lease-renewed-with-news-alone");
        let is_news = !is_told || is_due;
        if !is_news && !advance {
            return Ok(());
        }
        let deadline_ms = now.saturating_add(upkeep.lease_ms);
        let mut batch = endpoint.batch();
        let publication =
            Publication { published, flushed, deadline_ms, has_garbage, holder: self.holder, nodes };
        batch.write(member::publication_addr(self.me), &publication.words());
        if advance {
            batch.cas(GlobalAddr::new(0, EPOCH_AT), epoch, epoch + 1);
        }
        let batch = endpoint.submit(batch).await?;
        endpoint.recycle(batch);
        upkeep.published.store(published, Ordering::Relaxed);
        upkeep.deadline_ms.store(deadline_ms, Ordering::Relaxed);
        Ok(())
    }

    /// Rounds until limbo is empty or nothing moves, then gives back what is empty.
    pub(crate) async fn settle(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        let start = endpoint.now_ms();
        let mut moved = start;
        let mut seen = (usize::MAX, 0);
        loop {
            let ran = self.round(endpoint).await?.is_some();
            let waiting = self.limbo.waiting().saturating_sub(self.limbo.graced());
            if ran && waiting == 0 {
                break;
            }
            let now = endpoint.now_ms();
            if (waiting, self.epoch_seen()) == seen {
                if now.saturating_sub(moved) > SETTLE_QUIET_MS {
                    break;
                }
                endpoint.pause().await;
            } else {
                moved = now;
            }
            seen = (waiting, self.epoch_seen());
            if now.saturating_sub(start) > SETTLE_LIMIT_MS {
                break;
            }
        }
        self.reopen_touched(endpoint).await?;
        self.claim_and_trim(endpoint).await?;
        self.return_blocks(endpoint, 0).await
    }

    fn epoch_seen(&self) -> u64 {
        self.clients.epoch()
    }

    /// Fetches everything that others freed, and makes wholly free slabs free pages.
    pub(crate) async fn claim_and_trim(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        if self.had_company.load(Ordering::Relaxed) {
            let all = ClaimFilter { node: None, kind: None, class: None, block: None };
            let claims = lock(&self.heap).begin_claims(all, usize::MAX, usize::MAX);
            self.fetch_claims(endpoint, &claims).await?;
        }
        lock(&self.heap).trim();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::Abandoned;
    use crate::{AllocKind, Client, Pool, PoolOptions};
    use darter_fabric::{Local, OpKind, Orphans, block_on};
    use std::sync::atomic::AtomicUsize;

    fn pool_and_client() -> (Pool<Local>, Client<Local>) {
        let pool =
            block_on(Pool::create(Local::memory(1 << 20, 1).unwrap(), &PoolOptions::default())).unwrap();
        let client = pool.client().unwrap();
        (pool, client)
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
            assert_eq!(pool.shared.upkeep.flushed(), born);
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
        assert_eq!(pool.shared.upkeep.flushed(), born);

        let mut pinned = block_on(client.pin(OpKind::Maintain)).unwrap();
        for object in pinned.take_graced() {
            pinned.retire(object.addr, object.bytes, object.kind);
        }
        drop(pinned);
        maintain(&mut client);
        assert_eq!(pool.shared.upkeep.flushed(), pool.epoch());
    }

    /// Counts these verbs on their way once and then none. Does something directly after the first
    /// count.
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

    /// An abandoned hold after its word.
    type WithWord = (u64, Vec<Abandoned>);

    /// A client with verbs on their way, and two abandoned holds with their words.
    fn two_abandoned(
        pool: &Pool<Local>,
        client: &mut Client<Local>,
        in_flight: usize,
    ) -> (Arc<ClientState>, Arc<AfterTheLook>, [WithWord; 2]) {
        let mut pinned = block_on(client.pin(OpKind::Insert)).unwrap();
        let holds = [pinned.hold().unwrap(), pinned.hold().unwrap()].map(|hold| {
            let word = hold.word();
            drop(hold);
            (word, std::mem::take(&mut *lock(&pool.shared.clients.all()[0].abandoned)))
        });
        let in_flight = AtomicUsize::new(in_flight);
        let orphans = Arc::new(AfterTheLook { in_flight, then: Mutex::default() });
        let state = pool.shared.clients.add(Some(Arc::clone(&orphans) as Arc<dyn Orphans>));
        (state, orphans, holds)
    }

    /// Directly after the look for late verbs, the client drops another operation with verbs on
    /// their way and begins the next.
    #[test]
    fn a_hold_abandoned_after_the_look_for_late_verbs_is_not_over() {
        let (pool, mut client) = pool_and_client();
        let (state, orphans, [(early, abandoned), (late, mut next)]) = two_abandoned(&pool, &mut client, 0);
        *lock(&state.left_over) = abandoned;
        let owner = Arc::clone(&state);
        *lock(&orphans.then) = Some(Box::new(move || lock(&owner.left_over).append(&mut next)));
        pool.shared.settle_abandoned(&state);
        assert!(block_on(client.is_over(early)).unwrap());
        assert!(!block_on(client.is_over(late)).unwrap());
        pool.shared.settle_abandoned(&state);
        assert!(block_on(client.is_over(late)).unwrap());
    }

    /// The client is gone, and its last verb lands directly after the look for late verbs.
    #[test]
    fn a_hold_of_a_client_forgotten_during_the_look_for_late_verbs_is_over() {
        let (pool, mut client) = pool_and_client();
        let (state, orphans, [(word, abandoned), _]) = two_abandoned(&pool, &mut client, 1);
        *lock(&state.left_over) = abandoned;
        let (ended, shared) = (Arc::clone(&state), Arc::downgrade(&pool.shared));
        *lock(&orphans.then) = Some(Box::new(move || {
            ended.gone.store(true, Ordering::SeqCst);
            shared.upgrade().unwrap().end_pin(&ended, &mut lock(&ended.lingering));
        }));
        pool.shared.settle_abandoned(&state);
        assert_eq!(pool.shared.clients.all().len(), 1);
        assert!(block_on(client.is_over(word)).unwrap());
    }
}
