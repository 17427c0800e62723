//! Snapshots: how all members agree on the moment at which one begins, and on its end.
//!
//! A word next to the global epoch says which snapshot there is, at most one, and how far it is:
//! announced, held, open (`snapshot_word.rs`).
//!
//! Every round of upkeep reads the word with the global epoch, and stores it in the process before
//! it adopts the epoch. An operation that changes keys pins the process epoch, and then reads the
//! process's copy of the word ([`crate::Client::pin_for_change`]).
//!
//! *Why all changes before the snapshot have ended, and all later ones preserve.* The owner stores
//! HELD, reads the global epoch `e` afterwards, and waits until it is `e + 3`. So every live member
//! has published `e + 2`. It has done so in a round that began after it had published `e + 1`, and
//! therefore after HELD was stored: it has copied HELD to the process, and then found no client
//! pinned below `e + 2`. Operations that are pinned at `e + 2` or later have seen HELD, or a later
//! word. So when the owner swaps HELD for OPEN, no operation that changes keys is under way. Those
//! that begin later see OPEN, or wait until they do. A process that joins reads the word after it has
//! gone live: either the owner waits for it, or it reads HELD or a later word.
//!
//! The moment of the swap is the snapshot's: every change that has ended before is part of it, and no
//! change that begins later.
//!
//! *Nothing waits for a stopped owner.* A member that has seen HELD for [`HELD_MS_MAX`] swaps it for
//! 0; then the owner's swap fails, and it begins anew. A snapshot whose owner has died is ended by
//! the next round of upkeep of any member. Any member may end an open snapshot if there is no room
//! for old values. The id differs for each try, so a late swap of the owner fails.
//!
//! *Members of earlier versions* do not preserve values. The owner searches the lines for them when it
//! announces the snapshot, and again just before it opens it; from then on every round of upkeep of
//! any member does, and ends the snapshot if there is one. Between two rounds, an earlier program can
//! join, change keys and leave unnoticed: docs/compatibility.md says so to operators.

use darter_fabric::{Endpoint, Fabric, GlobalAddr};
use std::sync::atomic::Ordering;

use super::snapshot_word::{Phase, SnapshotId, Word};
use super::upkeep::Reclamation;
use crate::blocks::Blocks;
use crate::error::PoolError;
use crate::laggard::Laggard;
use crate::members::{MemberTable, Members};
use crate::region::{EPOCH_AT, SNAPSHOT_AT};
use crate::round_trip::{cas, read_words};
use crate::sync::lock;

/// Milliseconds for which a member lets a snapshot hold changes.
const HELD_MS_MAX: u64 = 2_000;
/// Milliseconds that the owner holds changes in its first try, and at most.
const HOLD_MS: (u64, u64) = (50, 1_000);
/// Tries of the owner.
const HOLDS_MAX: u32 = 8;
/// Times that a word may be found swapped by another member before the owner gives up.
const LOST_MAX: u32 = 4;
/// Epochs after which every member has seen a word and ended the operations that had not.
const EPOCHS: u64 = 3;
/// Bounds of the time that members have for the announcement, in ms.
const PATIENCE_MS: (u64, u64) = (1_000, 10_000);

impl Reclamation {
    /// Returns whether operations that change keys must not begin.
    #[inline]
    pub(crate) fn holds_changes(&self) -> bool {
        self.snapshot.load().phase() == Phase::Held
    }

    /// Returns the open snapshot.
    #[inline]
    pub(crate) fn open_snapshot(&self) -> Option<SnapshotId> {
        let word = self.snapshot.load();
        (word.phase() == Phase::Open).then_some(SnapshotId(word.0))
    }

    /// Returns whether this process has ended the snapshot of a dead member since the last call.
    pub(crate) fn take_ended_snapshot(&self) -> bool {
        self.snapshot.has_ended.swap(false, Ordering::Relaxed)
    }

    /// Returns whether a snapshot is about to begin.
    pub(crate) fn is_snapshot_beginning(&self) -> bool {
        matches!(self.snapshot.load().phase(), Phase::Announced | Phase::Held)
    }

    /// Begins a snapshot at the moment at which this returns, or shortly before.
    pub(crate) async fn begin_snapshot<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
    ) -> Result<SnapshotId, PoolError> {
        let _demand = self.demand_epochs();
        Owner { reclamation: self, endpoint, blocks, members }.begin().await
    }

    /// Ends a snapshot. Returns whether it was still open.
    pub(crate) async fn end_snapshot<E: Endpoint>(
        &self,
        endpoint: &mut E,
        snapshot: SnapshotId,
    ) -> Result<bool, PoolError> {
        self.swap_word(endpoint, snapshot.word(), Word::NONE).await
    }

    /// Swaps the word in the pool, and then in the process.
    async fn swap_word<E: Endpoint>(
        &self,
        endpoint: &mut E,
        from: Word,
        to: Word,
    ) -> Result<bool, PoolError> {
        let is_swapped = cas(endpoint, GlobalAddr::new(0, SNAPSHOT_AT), from.0, to.0).await?.swapped;
        if is_swapped || to == Word::NONE {
            let copy = &self.snapshot.word;
            // A round of upkeep may have stored a newer word.
            let _ = copy.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst);
        }
        Ok(is_swapped)
    }

    /// Waits until no operation can still preserve a value for a snapshot that has ended. Returns
    /// false if that takes longer than a lease, or ten seconds.
    pub(crate) async fn outlive_snapshot<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        members: &Members,
    ) -> Result<bool, PoolError> {
        let _demand = self.demand_epochs();
        let mut owner = Owner { reclamation: self, endpoint, blocks, members };
        owner.pass_epochs(members.lease_ms().min(PATIENCE_MS.1)).await
    }

    /// Ends a snapshot whose owner has died, that has held changes for too long, or that lacks the old
    /// values of a member of an earlier version.
    pub(super) async fn tend_snapshot<E: Endpoint>(
        &self,
        endpoint: &mut E,
        table: &MemberTable,
    ) -> Result<(), PoolError> {
        let word = Word(table.snapshot);
        if word == Word::NONE {
            return Ok(());
        }
        let is_held_too_long = word.phase() == Phase::Held && {
            let now = endpoint.now_ms();
            let mut held_since = lock(&self.snapshot.held_since);
            let since = held_since.filter(|(held, _)| *held == word.0).map_or(now, |(_, since)| since);
            *held_since = Some((word.0, since));
            now.saturating_sub(since) > HELD_MS_MAX
        };
        let is_open = word.phase() == Phase::Open;
        let is_spoiled = is_open && table.without_snapshots().is_some();
        let is_orphaned = word.live_owner(table).is_none();
        if is_held_too_long || is_spoiled || is_orphaned {
            let is_mine = self.swap_word(endpoint, word, Word::NONE).await?;
            // A live owner removes the old values itself.
            self.snapshot.has_ended.fetch_or(is_mine && is_open && is_orphaned, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The member that begins a snapshot.
struct Owner<'o, F: Fabric> {
    reclamation: &'o Reclamation,
    endpoint: &'o mut F::Endpoint,
    blocks: &'o Blocks<F>,
    members: &'o Members,
}

impl<F: Fabric> Owner<'_, F> {
    async fn begin(&mut self) -> Result<SnapshotId, PoolError> {
        for _ in 0..LOST_MAX {
            let mut word = self.announce().await?;
            let begun = self.hold(&mut word).await;
            if let Ok(Some(snapshot)) = begun {
                return Ok(snapshot);
            }
            // Unless another member has done so.
            self.reclamation.swap_word(self.endpoint, word, Word::NONE).await?;
            begun?;
        }
        Err(self.held_back())
    }

    /// Stores an announcement.
    async fn announce(&mut self) -> Result<Word, PoolError> {
        loop {
            let epoch = self.reclamation.epoch();
            let table = self.members.read(self.endpoint, self.blocks, epoch).await?;
            let found = Word(table.snapshot);
            if let Some((member, pid)) = found.live_owner(&table).filter(|_| found != Word::NONE) {
                return Err(PoolError::SnapshotTaken { member, pid });
            }
            all_know_snapshots(&table)?;
            let announced = Word::new(self.members.me(), table.epoch, Phase::Announced);
            // The snapshot of a member that has died ends here.
            if self.reclamation.swap_word(self.endpoint, found, announced).await? {
                return Ok(announced);
            }
        }
    }

    /// Holds changes until none is under way, and opens the snapshot. `word` is the announcement,
    /// and then the last word stored. Returns `None` if another member has replaced it.
    async fn hold(&mut self, word: &mut Word) -> Result<Option<SnapshotId>, PoolError> {
        let lease_ms = self.members.lease_ms();
        let patience_ms = (lease_ms + lease_ms / 2).clamp(PATIENCE_MS.0, PATIENCE_MS.1);
        for attempt in 0..HOLDS_MAX {
            // Changes are held only when every member responds, so that they are not held for long.
            if !self.pass_epochs(patience_ms).await? {
                break;
            }
            let held = Word::new(self.members.me(), self.reclamation.epoch(), Phase::Held);
            if !self.reclamation.swap_word(self.endpoint, *word, held).await? {
                return Ok(None);
            }
            *word = held;
            if self.pass_epochs((HOLD_MS.0 << attempt).min(HOLD_MS.1)).await? {
                let open = held.with(Phase::Open);
                // Before it is open: an error now is followed by no open snapshot.
                let epoch = self.reclamation.epoch();
                all_know_snapshots(&self.members.read(self.endpoint, self.blocks, epoch).await?)?;
                let is_open = self.reclamation.swap_word(self.endpoint, held, open).await?;
                return Ok(is_open.then_some(SnapshotId(open.0)));
            }
            let announced = held.with(Phase::Announced);
            if !self.reclamation.swap_word(self.endpoint, held, announced).await? {
                return Ok(None);
            }
            *word = announced;
        }
        Err(self.held_back())
    }

    /// Runs rounds until every member has seen the present word and has ended the operations that
    /// began before. Returns false if that takes longer than `limit_ms`.
    async fn pass_epochs(&mut self, limit_ms: u64) -> Result<bool, PoolError> {
        let [first] = read_words(self.endpoint, GlobalAddr::new(0, EPOCH_AT)).await?;
        let ends = self.endpoint.now_ms().saturating_add(limit_ms);
        loop {
            let before = self.reclamation.epoch();
            self.reclamation.round(self.endpoint, self.blocks, self.members).await?;
            let epoch = self.reclamation.epoch();
            if epoch >= first + EPOCHS {
                return Ok(true);
            }
            if self.endpoint.now_ms() >= ends {
                return Ok(false);
            }
            if epoch == before {
                self.endpoint.pause().await;
            }
        }
    }

    /// The error that names the member that the epoch waited for last.
    fn held_back(&self) -> PoolError {
        PoolError::SnapshotHeldBack(self.reclamation.laggard().unwrap_or(Laggard {
            member: self.members.me().member.into(),
            pid: std::process::id().into(),
            is_me: true,
            for_ms: 0,
        }))
    }
}

/// Fails if a member is of a version without snapshots.
fn all_know_snapshots(table: &MemberTable) -> Result<(), PoolError> {
    table.without_snapshots().map_or(Ok(()), |(member, pid)| Err(PoolError::SnapshotUnknown { member, pid }))
}

/// Returns the open snapshot, as the pool has it now.
pub(crate) async fn read_open<E: Endpoint>(endpoint: &mut E) -> Result<Option<SnapshotId>, PoolError> {
    let [word] = read_words(endpoint, GlobalAddr::new(0, SNAPSHOT_AT)).await?;
    Ok((Word(word).phase() == Phase::Open).then_some(SnapshotId(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::MemberId;
    use crate::round_trip::post;
    use crate::{Client, Pool, PoolOptions};
    use darter_fabric::{Local, block_on};
    use std::sync::atomic::AtomicBool;

    /// Two members of one pool.
    fn two() -> [(Pool<Local>, Client<Local>); 2] {
        let memory = Local::memory(2 << 20, 1).unwrap();
        let one = block_on(Pool::create(memory.clone(), &PoolOptions::default())).unwrap();
        let two = block_on(Pool::open(memory)).unwrap();
        [one, two].map(|pool| {
            let client = pool.client().unwrap();
            (pool, client)
        })
    }

    /// Runs rounds of upkeep of a member in another thread until `work` has returned.
    fn beside<T>(pool: &Pool<Local>, work: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = pool.client().unwrap();
                while !is_over.load(Ordering::SeqCst) {
                    block_on(pool.maintain(&mut client)).unwrap();
                    std::thread::yield_now();
                }
            });
            let result = work();
            is_over.store(true, Ordering::SeqCst);
            result
        })
    }

    fn word_of(client: &mut Client<Local>) -> Word {
        Word(block_on(client.read_words::<1>(GlobalAddr::new(0, SNAPSHOT_AT))).unwrap()[0])
    }

    async fn swap(client: &mut Client<Local>, from: Word, to: Word) -> Result<bool, PoolError> {
        let (process, endpoint) = client.parts();
        process.reclamation.swap_word(endpoint, from, to).await
    }

    #[test]
    fn words_name_their_owner_and_their_phase() {
        let owner = MemberId { member: 200, incarnation: 7 };
        let word = Word::new(owner, 1 << 40 | 5, Phase::Held);
        assert_eq!((word.phase(), word.with(Phase::Open).phase()), (Phase::Held, Phase::Open));
        assert_ne!(word, Word::new(owner, 1 << 40 | 6, Phase::Held));
        assert_eq!(Word::NONE.phase(), Phase::None);
    }

    /// Once the snapshot is open, every member knows.
    #[test]
    fn all_members_know_an_open_snapshot() {
        let [(one, mut owner), (two, mut other)] = two();
        assert_eq!(other.open_snapshot(), None);
        let snapshot = beside(&two, || block_on(one.begin_snapshot(&mut owner)).unwrap());
        // No round of upkeep since then is needed to learn that changes are held, or preserve.
        let pinned = block_on(other.pin_for_change());
        assert!(match &pinned {
            Ok(pinned) => pinned.open_snapshot() == Some(snapshot),
            Err(error) => matches!(error, PoolError::ChangesHeld),
        });
        drop(pinned);
        block_on(two.maintain(&mut other)).unwrap();
        assert_eq!(block_on(other.pin_for_change()).unwrap().open_snapshot(), Some(snapshot));
        let second = block_on(two.begin_snapshot(&mut other));
        assert!(matches!(second, Err(PoolError::SnapshotTaken { .. })), "{second:?}");
        assert!(block_on(one.end_snapshot(&mut owner, snapshot)).unwrap());
        assert!(!block_on(one.end_snapshot(&mut owner, snapshot)).unwrap(), "it has ended");
        block_on(two.maintain(&mut other)).unwrap();
        assert_eq!(other.open_snapshot(), None);
    }

    /// A snapshot does not begin while an operation that changes keys is under way.
    #[test]
    fn a_change_under_way_holds_a_snapshot_back() {
        let [(one, mut owner), (two, mut other)] = two();
        let pinned = block_on(other.pin_for_change()).unwrap();
        let begun = beside(&two, || block_on(one.begin_snapshot(&mut owner)));
        let Err(PoolError::SnapshotHeldBack(laggard)) = begun else { panic!("{begun:?}") };
        assert_eq!(laggard.member, two.member().member.into());
        drop(pinned);
        assert_eq!(word_of(&mut other), Word::NONE, "changes go on");
        beside(&two, || block_on(one.begin_snapshot(&mut owner)).unwrap());
    }

    /// So does a change of several operations, which is not pinned all the time.
    #[test]
    fn a_change_of_several_operations_holds_a_snapshot_back() {
        let [(one, mut owner), (two, mut other)] = two();
        let pinned = block_on(other.pin_for_change()).unwrap();
        let held_back = two.hold_snapshots_back();
        drop(pinned);
        let begun = beside(&two, || block_on(one.begin_snapshot(&mut owner)));
        assert!(matches!(begun, Err(PoolError::SnapshotHeldBack(_))), "{begun:?}");
        drop(held_back);
        beside(&two, || block_on(one.begin_snapshot(&mut owner)).unwrap());
    }

    #[test]
    fn the_snapshot_of_a_dead_member_is_ended() {
        let [(one, mut owner), (two, mut other)] = two();
        beside(&two, || block_on(one.begin_snapshot(&mut owner)).unwrap());
        one.abandon();
        drop((one, owner));
        block_on(two.evict(&mut other)).unwrap();
        block_on(two.maintain(&mut other)).unwrap();
        assert_eq!(word_of(&mut other), Word::NONE);
        assert!(two.take_ended_snapshot() && !two.take_ended_snapshot());
        block_on(two.begin_snapshot(&mut other)).unwrap();
    }

    /// Makes a member's line that of a program of an earlier version, whose heartbeat only counts.
    fn age(member: MemberId, client: &mut Client<Local>) {
        let addr = crate::members::heartbeat_addr(member);
        let (_, endpoint) = client.parts();
        block_on(post(endpoint, |batch| batch.write(addr, &[7]))).unwrap();
    }

    #[test]
    fn no_snapshot_begins_beside_an_earlier_version() {
        let [(one, mut owner), (two, mut other)] = two();
        age(two.member(), &mut other);
        let Err(PoolError::SnapshotUnknown { member, .. }) = block_on(one.begin_snapshot(&mut owner)) else {
            panic!("a snapshot that lacks the old values of a member")
        };
        assert_eq!(member, u32::from(two.member().member));
        assert_eq!(word_of(&mut owner), Word::NONE);
        drop((two, other));
        block_on(one.begin_snapshot(&mut owner)).unwrap();
    }

    #[test]
    fn a_member_of_an_earlier_version_ends_the_snapshot() {
        let [(one, mut owner), (two, mut other)] = two();
        let snapshot = beside(&two, || block_on(one.begin_snapshot(&mut owner)).unwrap());
        age(two.member(), &mut other);
        block_on(one.maintain(&mut owner)).unwrap();
        assert_eq!(word_of(&mut owner), Word::NONE);
        assert!(!block_on(one.end_snapshot(&mut owner, snapshot)).unwrap(), "it has been given up");
        assert!(!one.take_ended_snapshot(), "its owner removes the old values");
    }

    /// An owner that stops while it holds changes is not waited for.
    #[test]
    fn changes_are_not_held_for_long() {
        let [(one, mut owner), (two, mut other)] = two();
        let held = Word::new(one.member(), one.epoch(), Phase::Held);
        assert!(block_on(swap(&mut owner, Word::NONE, held)).unwrap());
        block_on(two.maintain(&mut other)).unwrap();
        assert!(matches!(block_on(other.pin_for_change()).map(drop), Err(PoolError::ChangesHeld)));
        while block_on(other.pin_for_change()).is_err() {
            block_on(two.maintain(&mut other)).unwrap();
            std::thread::yield_now();
        }
        let open = held.with(Phase::Open);
        assert!(!block_on(swap(&mut owner, held, open)).unwrap(), "the owner can no longer open it");
    }
}
