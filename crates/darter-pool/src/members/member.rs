//! Members: the processes that use a pool, each with a line in node 0's member table.
//!
//! ```text
//! word 0  state << 32 | incarnation      1 live, 0 free; every registration adds one to the incarnation
//!      1  published epoch                no client of this process is pinned below it, nor will be
//!      2  flushed epoch                  everything this process unlinked in earlier epochs is freed for good
//!      3  heartbeat                      abilities << 56 | a new number with each renewal of the lease
//!      4  process id                     for people to read
//!      5  1 while garbage waits here     others then help to advance the epoch;
//!         2 while a client waits for room    others then also give back what they can
//!      6  holder                         the provider's name for this process
//!      7  memory nodes it can reach      a node is used once all members can reach it (`nodes`);
//!         with the `roster` it follows   a node leaves once all members know it (`removal`)
//! ```
//!
//! Only the holder of the slot writes words 1 to 7. Word 0 changes by CAS: free to live by a
//! process that holds the slot's [`darter_fabric::Identity`], live to free by that process, and
//! live to free by another process *after* [`darter_fabric::Fabric::fence`] has proved that the
//! holder can write no more. The incarnation in the word makes a late CAS of any of them fail. So
//! `live | i` read from the table means that incarnation `i` has not ended, and a word that was
//! `live | i` and no longer is means that it has, for ever.
//!
//! *Leases.* A member changes word 3 every quarter of its lease with a round of upkeep, and
//! separately while a round waits for another memory node. Its own clock ([`Endpoint::now_ms`])
//! decides when that is due; the word is a count, so that it holds nothing to compare a clock with.
//! A member has lapsed when its line has not changed for a lease by the *observer's* clock, of
//! which a time without an observation counts in part (`silence`). Clocks may begin anywhere, and
//! run at rates that differ by less than the three quarters of a lease that a member has to spare.
//! A member that has lapsed may be alive (paused, suspended, or cut off). It is shut out if the
//! provider can do that, and left alone if the provider can only prove death. It need not stop by
//! itself: a member that is not shut out has lost nothing, and continues.
//!
//! *Torn lines.* A READ of a line may return its state word from after a member went live and the
//! other words from before. So lines are read twice in one batch, and a line counts as live if both
//! READs say so: a member that goes live writes the other words first, so those of the second READ
//! are the member's own.
//!
//! *Target of a fence.* The line names its holder. The name is read before the state word is
//! confirmed to be still `live | i`; the next holder writes its name only after incarnation `i` has
//! ended, so the name read is that of `i`.
//!
//! *Abilities.* The upper bits of a member's heartbeat say which later parts of the protocol its
//! program has: [`PRESERVES`]. Programs that do not know a bit compare the whole word, and never
//! clear the bits of others, so programs of several versions can be members of one pool.
//!
//! *Members that only read.* A process with a read-only token may change nothing but its line
//! ([`darter_fabric::member_lines`]). It claims, goes live, publishes and ends like any member, so that
//! no memory is used again under its reads. It advances no epoch, ends neither members nor snapshots,
//! and takes no blocks: other members do that, and if there are none, nothing is freed that it could
//! read. The bit [`member_lines::READS_ONLY`] of its heartbeat says so: a memory node that has
//! forgotten the claim knows the line by it.
//!
//! *Registration and epochs.* A new member publishes the global epoch that it read, goes live,
//! reads the global epoch again and publishes that, all before its first pin. An advance whose scan
//! missed the new member read the global epoch before that second read, so it can move the epoch at
//! most one beyond it: the same lag as for any member. For this, the number of lines in use must be
//! read after the epoch, and not merely with it: the words of one READ come in any order, and a
//! count from before the member joined, with an epoch from long after, hides a live member from the
//! advance.

use darter_fabric::{Endpoint, Fabric, GlobalAddr, member_lines};

use super::roster::{Roster, reached};
use crate::blocks::MemberId;
use crate::error::PoolError;
use crate::region::{EPOCH_AT, LINES_AT, MEMBER_BYTES, MEMBERS, MEMBERS_AT};
use crate::round_trip::{cas, submit};

/// Words of a member line that are in use.
pub(crate) const LINE_WORDS: usize = (MEMBER_BYTES / 8) as usize;
/// Epochs from this one on can only be damage.
const EPOCH_LIMIT: u64 = 1 << 62;
const LIVE: u64 = 1;
/// The ability to preserve, while a snapshot is open, the values that it needs.
pub(crate) const PRESERVES: u64 = 1 << 56;
/// The first heartbeat of a member of this version: its abilities.
const FIRST_HEARTBEAT: u64 = PRESERVES;
/// Word 5 of a member that waits for room.
const WANTS_ROOM: u64 = 2;

/// A member line as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberLine {
    pub live: bool,
    pub incarnation: u32,
    pub published: u64,
    pub flushed: u64,
    pub heartbeat: u64,
    pub pid: u64,
    pub has_garbage: bool,
    pub wants_room: bool,
    pub holder: u64,
    pub nodes: u64,
    /// Word 7: the [`Roster`] that it follows.
    pub followed: u64,
}

impl MemberLine {
    /// A line as two READs found it; only the state of the first one counts.
    fn parse(first: &[u64], words: &[u64]) -> Self {
        let is_steady = first[0] == words[0];
        Self {
            live: is_steady && words[0] >> 32 == LIVE,
            incarnation: words[0] as u32,
            published: words[1],
            flushed: words[2],
            heartbeat: words[3],
            pid: words[4],
            has_garbage: words[5] != 0,
            wants_room: words[5] == WANTS_ROOM,
            holder: words[6],
            nodes: reached(words[7]),
            followed: words[7],
        }
    }
}

/// The global epoch, the count of nodes, the snapshot's word and the member lines, as read in one round trip (two if
/// lines were added since the last read).
#[derive(Debug)]
pub(crate) struct MemberTable {
    pub epoch: u64,
    /// The number of nodes, those included that have left.
    pub nodes: u8,
    pub roster: Roster,
    /// The word of the open snapshot.
    pub snapshot: u64,
    pub lines: Vec<MemberLine>,
}

impl MemberTable {
    /// Whether an owner named in the block table is still live. Valid only for block words read
    /// *before* the table.
    pub(crate) fn is_live(&self, owner: MemberId) -> bool {
        self.lines
            .get(usize::from(owner.member))
            .is_some_and(|line| line.live && line.incarnation == owner.incarnation)
    }

    /// Nodes that every live member can reach.
    pub(crate) fn reached_by_all(&self) -> u8 {
        self.live().map(|(_, line)| line.nodes).fold(self.nodes.into(), u64::min) as u8
    }

    /// A live member, with its process id, that does not know snapshots: one of an earlier version.
    pub(crate) fn without_snapshots(&self) -> Option<(u32, u64)> {
        let mut live = self.live();
        live.find(|(_, line)| line.heartbeat & PRESERVES == 0).map(|(slot, line)| (slot, line.pid))
    }

    /// The live members with their slots.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, &MemberLine)> {
        (0u32..).zip(&self.lines).filter(|(_, line)| line.live)
    }
}

pub(super) fn line_addr(slot: u32) -> GlobalAddr {
    GlobalAddr::new(0, MEMBERS_AT + u64::from(slot) * MEMBER_BYTES)
}

pub(super) fn state_word(live: bool, incarnation: u32) -> u64 {
    u64::from(live) << 32 | u64::from(incarnation)
}

/// Reads the global epoch and the count of nodes, then the number of lines in use, then the lines.
/// The advance of the epoch relies on this order. `expected` is the number of lines that the caller
/// expects to be in use.
pub(crate) async fn read_table<E: Endpoint>(
    endpoint: &mut E,
    expected: u32,
) -> Result<MemberTable, PoolError> {
    let mut expected = expected.min(MEMBERS);
    loop {
        let mut batch = endpoint.batch();
        let lines = expected as usize * LINE_WORDS;
        let head = batch.read(GlobalAddr::new(0, EPOCH_AT), 4);
        let count = batch.read(GlobalAddr::new(0, LINES_AT), 1);
        let states = batch.read(line_addr(0), lines);
        let table = batch.read(line_addr(0), lines);
        let done = submit(endpoint, batch).await?;
        let (epoch, used, nodes) = (done.words(head)[0], done.words(count)[0], done.words(head)[2]);
        let snapshot = done.words(head)[3];
        let (Some(roster), true) = (Roster::parse(nodes), used <= u64::from(MEMBERS) && epoch < EPOCH_LIMIT)
        else {
            return Err(PoolError::Damaged { node: 0, what: "its epoch line holds invalid numbers" });
        };
        if used <= u64::from(expected) {
            let lines =
                done.words(states).chunks_exact(LINE_WORDS).zip(done.words(table).chunks_exact(LINE_WORDS));
            let lines = lines.map(|(first, words)| MemberLine::parse(first, words)).collect();
            return Ok(MemberTable { epoch, nodes: roster.count, roster, snapshot, lines });
        }
        // At most one more iteration than there are lines.
        expected = used as u32;
    }
}

/// Returns the number of member lines whose processes have a pool open, or had it open when they
/// died. Changes nothing.
///
/// # Errors
/// Fails if the pool is damaged, or the fabric fails.
pub async fn members_in_use<F: Fabric>(fabric: &F) -> Result<usize, PoolError> {
    let table = read_table(&mut fabric.endpoint()?, 0).await?;
    Ok(table.live().count())
}

/// A member's line without its state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    pub published: u64,
    pub flushed: u64,
    pub heartbeat: u64,
    pub has_garbage: bool,
    pub wants_room: bool,
    pub holder: u64,
    /// Word 7.
    pub nodes: u64,
}

impl Publication {
    /// Words 1 to 7 of the line.
    pub(crate) fn words(self) -> [u64; 7] {
        [
            self.published,
            self.flushed,
            self.heartbeat,
            std::process::id().into(),
            if self.wants_room { WANTS_ROOM } else { self.has_garbage.into() },
            self.holder,
            self.nodes,
        ]
    }
}

/// The first heartbeat of a member of this version, which only reads, or not.
pub(crate) fn first_heartbeat(reads_only: bool) -> u64 {
    if reads_only { FIRST_HEARTBEAT | member_lines::READS_ONLY } else { FIRST_HEARTBEAT }
}

/// The address at which a member writes its [`Publication`].
pub(crate) fn publication_addr(me: MemberId) -> GlobalAddr {
    line_addr(me.member.into()).plus(8)
}

/// The address at which a member renews its lease without publishing anything else.
pub(crate) fn heartbeat_addr(me: MemberId) -> GlobalAddr {
    line_addr(me.member.into()).plus(24)
}

/// Gives up a slot: this process's own after its last verb, or another's after it was fenced.
pub(crate) async fn end<E: Endpoint>(endpoint: &mut E, owner: MemberId) -> Result<(), PoolError> {
    let line = line_addr(owner.member.into());
    cas(endpoint, line, state_word(true, owner.incarnation), state_word(false, owner.incarnation)).await?;
    Ok(())
}

/// Whether an incarnation of a member has not ended. One that never existed counts as ended.
pub(crate) async fn is_live<E: Endpoint>(endpoint: &mut E, owner: MemberId) -> Result<bool, PoolError> {
    let line = read_line(endpoint, owner.member.into()).await?;
    Ok(line.live && line.incarnation == owner.incarnation)
}

pub(super) async fn read_line<E: Endpoint>(endpoint: &mut E, slot: u32) -> Result<MemberLine, PoolError> {
    let mut batch = endpoint.batch();
    let (state, read) = (batch.read(line_addr(slot), 1), batch.read(line_addr(slot), LINE_WORDS));
    let done = submit(endpoint, batch).await?;
    Ok(MemberLine::parse(done.words(state), done.words(read)))
}
