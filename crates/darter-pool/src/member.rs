//! Members: the processes that use a pool, each with a line in node 0's member table.
//!
//! ```text
//! word 0  state << 32 | incarnation      1 live, 0 free; every registration adds one to the incarnation
//!      1  published epoch                no client of this process is pinned below it, nor will be
//!      2  flushed epoch                  everything this process unlinked in earlier epochs is freed for good
//!      3  lease deadline                 milliseconds since 1970; when it has passed, others ask whether we live
//!      4  process id                     for people
//!      5  1 while garbage waits here     others then help the epoch on
//!      6  holder                         what the provider calls this process
//!      7  memory nodes it can reach      others use a node when all can (`nodes`)
//! ```
//!
//! Words 1 to 7 are written by the holder of the slot only. Word 0 changes by CAS: free to live by a process that
//! holds the slot's [`darter_fabric::Identity`], live to free by that process, and live to free by another process
//! *after* [`darter_fabric::Fabric::fence`] has proved that the holder can write no more. The incarnation in the word
//! makes a late CAS of any of them fail. So `live | i` read from the table means that incarnation `i` has not ended,
//! and a word that was `live | i` and no longer is means that it has, for ever.
//!
//! *Leases.* A member writes word 3 anew every quarter of its lease. Others compare no clocks with it: a member has lapsed
//! when its line says the same for a lease's time by the *observer's* clock. A member that lapsed may be alive (paused, or
//! cut off); it is shut out where the provider can do that, and left alone where only death can be proved.
//!
//! *Torn lines.* A READ of a line may have its state word from after a member went live and the others from before. So lines are
//! read twice in one batch, and a line counts as live when both READs say so: who goes live writes the other words first,
//! so those of the second READ are the member's own.
//!
//! *Whom a fence means.* The line says who its holder is. It is read before the state word is confirmed to be `live | i`
//! still; the next holder writes its name only after that has ended, so the name read is `i`'s.
//!
//! *Registration and epochs.* A new member publishes the global epoch it read, goes live, reads the global epoch
//! again and publishes that, all before its first pin. An advance whose scan missed the new member read the global
//! epoch before that second reading, so it can carry the epoch at most one beyond it: the same lag as for any member.

use darter_fabric::{Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Identity, Suspect, mutant};

use crate::PoolError;
use crate::block::Owner;
use crate::layout::{EPOCH_AT, MEMBER_BYTES, MEMBERS, MEMBERS_AT};

/// Words of a member line that are in use.
pub(crate) const LINE_WORDS: usize = (MEMBER_BYTES / 8) as usize;
/// Epochs from here on can only be damage.
const EPOCH_LIMIT: u64 = 1 << 62;
const LIVE: u64 = 1;

/// A member line as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberLine {
    pub live: bool,
    pub incarnation: u32,
    pub published: u64,
    pub flushed: u64,
    pub deadline_ms: u64,
    pub pid: u64,
    pub has_garbage: bool,
    pub holder: u64,
    pub nodes: u64,
}

impl MemberLine {
    /// A line as two READs found it, the first of which counts for its state alone.
    fn parse(first: &[u64], words: &[u64]) -> Self {
        let is_steady = first[0] == words[0] || mutant!("member-line-read-once");
        Self {
            live: is_steady && words[0] >> 32 == LIVE,
            incarnation: words[0] as u32,
            published: words[1],
            flushed: words[2],
            deadline_ms: words[3],
            pid: words[4],
            has_garbage: words[5] != 0,
            holder: words[6],
            nodes: words[7],
        }
    }
}

/// The global epoch, the count of nodes and the member lines, as read in one round trip (two when lines were added since).
#[derive(Debug)]
pub(crate) struct MemberTable {
    pub epoch: u64,
    pub nodes: u8,
    pub lines: Vec<MemberLine>,
}

impl MemberTable {
    /// Whether an owner named in the block table is still at work. Only true of block words read *before* the table.
    pub(crate) fn is_live(&self, owner: Owner) -> bool {
        self.lines
            .get(usize::from(owner.member))
            .is_some_and(|line| line.live && line.incarnation == owner.incarnation)
    }

    /// Nodes that every live member can reach.
    pub(crate) fn reached_by_all(&self) -> u8 {
        self.live().map(|(_, line)| line.nodes).fold(self.nodes.into(), u64::min) as u8
    }

    /// The live members with their slots.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, &MemberLine)> {
        (0u32..).zip(&self.lines).filter(|(_, line)| line.live)
    }
}

fn line_addr(slot: u32) -> GlobalAddr {
    GlobalAddr::new(0, MEMBERS_AT + u64::from(slot) * MEMBER_BYTES)
}

fn state_word(live: bool, incarnation: u32) -> u64 {
    u64::from(live) << 32 | u64::from(incarnation)
}

/// Reads the global epoch, then the member lines: in this order, which the advance of the epoch relies on.
/// `expected` is how many lines the caller thinks are in use.
pub(crate) async fn read_table<E: Endpoint>(
    endpoint: &mut E,
    expected: u32,
) -> Result<MemberTable, PoolError> {
    let mut expected = expected.min(MEMBERS);
    loop {
        let mut batch = endpoint.batch();
        let lines = expected as usize * LINE_WORDS;
        let early = mutant!("member-lines-read-before-the-epoch").then(|| batch.read(line_addr(0), lines));
        let head = batch.read(GlobalAddr::new(0, EPOCH_AT), 3);
        let states = early.unwrap_or_else(|| batch.read(line_addr(0), lines));
        let table = batch.read(line_addr(0), lines);
        let batch = endpoint.submit(batch).await?;
        let (epoch, used) = (batch.words(head)[0], batch.words(head)[1]);
        let nodes = u8::try_from(batch.words(head)[2]).ok().filter(|&nodes| nodes > 0);
        let (Some(nodes), true) = (nodes, used <= u64::from(MEMBERS) && epoch < EPOCH_LIMIT) else {
            return Err(PoolError::Damaged { node: 0, what: "its epoch line holds numbers that cannot be" });
        };
        if used <= u64::from(expected) {
            let lines =
                batch.words(states).chunks_exact(LINE_WORDS).zip(batch.words(table).chunks_exact(LINE_WORDS));
            let lines = lines.map(|(first, words)| MemberLine::parse(first, words)).collect();
            endpoint.recycle(batch);
            return Ok(MemberTable { epoch, nodes, lines });
        }
        // At most once more often than there are lines.
        expected = used as u32;
        endpoint.recycle(batch);
    }
}

/// What a member's line says beyond its state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    pub published: u64,
    pub flushed: u64,
    pub deadline_ms: u64,
    pub has_garbage: bool,
    pub holder: u64,
    pub nodes: u8,
}

impl Publication {
    /// Words 1 to 7 of the line.
    pub(crate) fn words(self) -> [u64; 7] {
        [
            self.published,
            self.flushed,
            self.deadline_ms,
            std::process::id().into(),
            u64::from(self.has_garbage),
            self.holder,
            self.nodes.into(),
        ]
    }
}

/// Where a member writes its [`Publication`].
pub(crate) fn publication_addr(me: Owner) -> GlobalAddr {
    line_addr(me.member.into()).plus(8)
}

/// This process's place among the members.
pub(crate) struct Membership {
    pub me: Owner,
    pub identity: Box<dyn Identity>,
    pub epoch: u64,
    /// Nodes there were when this process had gone live, and those of them that all members could reach.
    pub nodes: u8,
    pub usable: u8,
    /// Whether members were ended that may have left blocks.
    pub buried: bool,
}

/// Takes a slot for this process, after ending the members that are gone.
pub(crate) async fn register<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    lease_ms: u64,
    nodes: u8,
) -> Result<Membership, PoolError> {
    let table = read_table(endpoint, 1).await?;
    let burials = bury_dead(fabric, endpoint, table.live().map(|(slot, line)| (slot, *line, false))).await?;
    let table = read_table(endpoint, table.lines.len() as u32).await?;
    let is_live = |slot: u32| table.lines.get(slot as usize).is_some_and(|line| line.live);
    for slot in (0..MEMBERS).filter(|&slot| !is_live(slot)) {
        let identity = match fabric.claim(slot) {
            Ok(identity) => identity,
            Err(FabricError::IdentityTaken { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        // From the claim on nobody else goes live here.
        let name = (identity.holder(), nodes);
        if let Some((me, table)) = go_live(endpoint, slot, lease_ms, name).await? {
            let (epoch, nodes, usable) = (table.epoch, table.nodes, table.reached_by_all());
            return Ok(Membership { me, identity, epoch, nodes, usable, buried: burials.any });
        }
    }
    Err(PoolError::MembersFull { max: MEMBERS })
}

async fn go_live<E: Endpoint>(
    endpoint: &mut E,
    slot: u32,
    lease_ms: u64,
    (holder, nodes): (u64, u8),
) -> Result<Option<(Owner, MemberTable)>, PoolError> {
    raise_used(endpoint, slot + 1).await?;
    let table = read_table(endpoint, slot + 1).await?;
    let Some(line) = table.lines.get(slot as usize).copied() else { return Ok(None) };
    if line.live {
        // Somebody went live here since we looked, and holds no claim: others will ask whether it is gone.
        return Ok(None);
    }
    // An incarnation is never 0.
    let kept = mutant!("member-incarnation-kept") && line.incarnation > 0;
    let incarnation = if kept { line.incarnation } else { line.incarnation.wrapping_add(1) };
    let me = Owner { member: slot as u8, incarnation };
    let publication = Publication {
        published: table.epoch,
        flushed: table.epoch,
        deadline_ms: endpoint.now_ms().saturating_add(lease_ms),
        has_garbage: false,
        holder,
        nodes,
    };
    let mut batch = endpoint.batch();
    batch.write(publication_addr(me), &publication.words());
    let found = state_word(false, line.incarnation);
    let cas = batch.cas(line_addr(slot), found, state_word(true, me.incarnation));
    let batch = endpoint.submit(batch).await?;
    let swapped = batch.swapped(cas);
    endpoint.recycle(batch);
    if !swapped {
        return Ok(None);
    }
    // Both anew, now that others see us.
    let before = table.epoch;
    let stays = mutant!("member-goes-live-by-what-it-read-before");
    let table = if stays { table } else { read_table(endpoint, slot + 1).await? };
    if table.epoch < before {
        return Err(PoolError::Damaged { node: 0, what: "its epoch went backwards" });
    }
    let mut batch = endpoint.batch();
    batch.write(publication_addr(me), &[table.epoch, table.epoch]);
    let batch = endpoint.submit(batch).await?;
    endpoint.recycle(batch);
    Ok(Some((me, table)))
}

/// Makes others read at least `used` member lines.
async fn raise_used<E: Endpoint>(endpoint: &mut E, used: u32) -> Result<(), PoolError> {
    let addr = GlobalAddr::new(0, EPOCH_AT + 8);
    let mut known = 0;
    // The word only grows, at most to the number of lines, so this ends.
    while known < u64::from(used) {
        let mut batch = endpoint.batch();
        let cas = batch.cas(addr, known, used.into());
        let batch = endpoint.submit(batch).await?;
        let (swapped, found) = (batch.swapped(cas), batch.found(cas));
        endpoint.recycle(batch);
        if swapped {
            break;
        }
        if found <= known {
            return Err(PoolError::Damaged { node: 0, what: "its count of members went backwards" });
        }
        known = found;
    }
    Ok(())
}

/// Gives a slot up: this process's own after its last verb, or another's after it was fenced.
pub(crate) async fn end<E: Endpoint>(endpoint: &mut E, owner: Owner) -> Result<(), PoolError> {
    let mut batch = endpoint.batch();
    let word = state_word(true, owner.incarnation);
    batch.cas(line_addr(owner.member.into()), word, state_word(false, owner.incarnation));
    let batch = endpoint.submit(batch).await?;
    endpoint.recycle(batch);
    Ok(())
}

/// What came of asking after members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Burials {
    /// Some were ended.
    pub any: bool,
    /// Of some it is not known whether they live.
    pub unsure: bool,
}

/// Ends those members, read as live, that are gone, or that have lapsed and can be shut out. Of each: slot, line, and
/// whether the line has said the same for a lease's time up to now.
pub(crate) async fn bury_dead<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    suspects: impl Iterator<Item = (u32, MemberLine, bool)>,
) -> Result<Burials, PoolError> {
    let mut burials = Burials::default();
    for (slot, line, lapsed) in suspects {
        let now = read_line(endpoint, slot).await?;
        if !now.live || now.incarnation != line.incarnation {
            continue;
        }
        let lapsed =
            lapsed && (now.deadline_ms == line.deadline_ms || mutant!("bury-though-the-lease-was-renewed"));
        let holder = if mutant!("bury-whoever-the-line-names-now") { now.holder } else { line.holder };
        let suspect = Suspect { slot, holder, lapsed };
        match fabric.fence(suspect) {
            Ok(FenceOutcome::Alive) => {}
            // At all nodes that this process knows; were there more, somebody who knows them has to do it.
            Ok(FenceOutcome::Fenced) => {
                let nodes = usize::from(read_table(endpoint, 0).await?.nodes);
                if nodes > fabric.nodes() && !mutant!("bury-without-the-nodes-that-came-since") {
                    burials.unsure = true;
                } else {
                    end(endpoint, Owner { member: slot as u8, incarnation: line.incarnation }).await?;
                    burials.any = true;
                }
            }
            Err(FabricError::Fenced) => return Err(FabricError::Fenced.into()),
            // A memory node that is away can be told later, and until then the member is not ended.
            Ok(FenceOutcome::Unknown) | Err(_) => burials.unsure = true,
        }
    }
    Ok(burials)
}

/// Whether an incarnation of a member has not ended; one that there never was has.
pub(crate) async fn is_live<E: Endpoint>(endpoint: &mut E, owner: Owner) -> Result<bool, PoolError> {
    let line = read_line(endpoint, owner.member.into()).await?;
    Ok(line.live && line.incarnation == owner.incarnation)
}

async fn read_line<E: Endpoint>(endpoint: &mut E, slot: u32) -> Result<MemberLine, PoolError> {
    let mut batch = endpoint.batch();
    let (state, read) = (batch.read(line_addr(slot), 1), batch.read(line_addr(slot), LINE_WORDS));
    let batch = endpoint.submit(batch).await?;
    let line = MemberLine::parse(batch.words(state), batch.words(read));
    endpoint.recycle(batch);
    Ok(line)
}

/// What this process has seen of the others' lines, and since when.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    /// By slot: the line's incarnation and deadline, and when it was first seen to say so.
    seen: Vec<(u32, u64, u64)>,
}

impl Sightings {
    /// Takes a table into account that was read at `now_ms` or before.
    pub(crate) fn note(&mut self, table: &MemberTable, now_ms: u64) {
        self.seen.resize(table.lines.len().max(self.seen.len()), (0, 0, now_ms));
        for (seen, line) in self.seen.iter_mut().zip(&table.lines) {
            if (seen.0, seen.1) != (line.incarnation, line.deadline_ms) {
                *seen = (line.incarnation, line.deadline_ms, now_ms);
            }
        }
    }

    /// Milliseconds that a line had said the same when the clock showed `now_ms`.
    pub(crate) fn silent_ms(&self, slot: u32, line: &MemberLine, now_ms: u64) -> u64 {
        match self.seen.get(slot as usize) {
            Some(&(incarnation, deadline, since))
                if (incarnation, deadline) == (line.incarnation, line.deadline_ms) =>
            {
                now_ms.saturating_sub(since)
            }
            _ => 0,
        }
    }
}
