//! The background walk, which runs round after round: it removes expired records and the remains of
//! dead processes (`sweep.rs`), and counts the keys.

use super::sweep::{self, FORGOTTEN_MS, LOOKS, SweepProgress};
use super::{DATABASES, Family, Head, Keyspace, cursors, remove_if_over, session, timed, transfer};
use crate::fault::Fault;
use crate::turns;
use darter::ScanRange;
use std::ops::Bound;

/// Records examined in a step.
const STEP: usize = 1000;
/// If at least one in this many of a step's records had expired, the next step follows at once.
const DENSE: usize = 10;

/// The counts of a round, or of a database's part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Number of keys.
    pub keys: u64,
    /// Number of keys with an expiry time.
    pub expiring: u64,
    /// When the first of these keys expires.
    pub first_end: Option<u64>,
}

impl Census {
    fn add(&mut self, other: &Self) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.first_end = self.first_end.into_iter().chain(other.first_end).min();
    }
}

/// The result of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stepped {
    /// Number of keys removed.
    pub removed: u64,
    /// Whether something was removed, or changed so that it can be removed.
    pub found: bool,
    /// Whether the next step is due at once.
    pub goes_on: bool,
    /// The counts of a round, if the step ended one.
    pub census: Option<Census>,
    /// The counts of databases whose heads were all passed, with the numbers of these.
    pub counted: Vec<(u8, Census)>,
}

/// The phases of a round, in each database.
const STAGES: [WalkPhase; 13] = [
    WalkPhase::Ends(Family::Key),
    WalkPhase::Ends(Family::Cursor),
    WalkPhase::Ends(Family::Building),
    WalkPhase::Graves(Family::Field),
    WalkPhase::Fields,
    WalkPhase::Graves(Family::Member),
    WalkPhase::Graves(Family::Score),
    WalkPhase::Graves(Family::ListChunk),
    WalkPhase::Graves(Family::StreamChunk),
    WalkPhase::Graves(Family::StreamConsumer),
    WalkPhase::Graves(Family::StreamGroup),
    WalkPhase::Graves(Family::StreamPending),
    WalkPhase::Indexes,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalkPhase {
    /// Removes expired records.
    Ends(Family),
    /// Removes elements of generations that have ended.
    Graves(Family),
    /// Removes fields of large hashes that have ended.
    Fields,
    /// Removes stale index records.
    Indexes,
}

impl WalkPhase {
    /// Whether it removes records because of their age.
    fn is_by_age(self) -> bool {
        match self {
            Self::Ends(family) => family != Family::Key,
            Self::Graves(_) | Self::Fields => false,
            Self::Indexes => true,
        }
    }

    /// Returns the range of all families that it examines.
    fn whole(self) -> ScanRange {
        let family = match self {
            Self::Ends(family) | Self::Graves(family) => family,
            Self::Fields => Family::Field,
            Self::Indexes => Family::Score,
        };
        let from = Bound::Included(vec![family as u8]);
        ScanRange { from, to: Bound::Excluded(vec![family as u8 + 1]), reverse: false }
    }
}

/// The position of the walk.
#[derive(Debug)]
pub(crate) struct Expiry {
    database: u8,
    stage: usize,
    left: ScanRange,
    /// The counts of the database, and of the round without it.
    counted: Census,
    round: Census,
    /// Whether the wall clock has stepped: the age of records cannot be determined then.
    is_clock_wrong: bool,
}

impl Default for Expiry {
    fn default() -> Self {
        Self {
            database: 0,
            stage: 0,
            left: STAGES[0].whole(),
            counted: Census::default(),
            round: Census::default(),
            is_clock_wrong: false,
        }
    }
}

/// Returns when a record expires, if it does.
fn end_of(family: Family, record: &[u8]) -> Option<u64> {
    match family {
        Family::Key => Head::parse(record).ok()?.expiry,
        Family::Cursor => Some(cursors::parse(record)?.0),
        Family::Building => Some(transfer::written_at(record)? + FORGOTTEN_MS),
        Family::Database
        | Family::Field
        | Family::Gateway
        | Family::Library
        | Family::ListChunk
        | Family::Member
        | Family::Score
        | Family::StreamChunk
        | Family::StreamConsumer
        | Family::StreamGroup
        | Family::StreamPending
        | Family::User => None,
    }
}

impl Expiry {
    /// Sets whether the wall clock has been steady for long enough to determine the age of records.
    /// If it has not, the walk removes nothing because of its age.
    pub(crate) fn trust_clock(&mut self, is_steady: bool) {
        self.is_clock_wrong = !is_steady;
    }

    /// Examines some more records.
    ///
    /// # Errors
    /// The store's errors; the next call repeats the step.
    pub(crate) async fn step(&mut self, keys: &mut Keyspace) -> Result<Stepped, Fault> {
        let now = keys.now;
        let mut stepped = Stepped::default();
        keys.select(self.database)?;
        // A phase that ends leaves the rest of the step to the next phase.
        loop {
            let progress = match STAGES[self.stage] {
                phase if self.is_clock_wrong && phase.is_by_age() => SweepProgress::Ended,
                WalkPhase::Ends(family) => self.ends(keys, family, &mut stepped).await?,
                WalkPhase::Graves(family) => {
                    sweep::graves(session(&mut keys.session, &keys.store)?, &mut self.left, family).await?
                }
                WalkPhase::Fields => {
                    sweep::fields(session(&mut keys.session, &keys.store)?, &mut self.left, now).await?
                }
                WalkPhase::Indexes => {
                    sweep::indexes(session(&mut keys.session, &keys.store)?, &mut self.left, now).await?
                }
            };
            stepped.goes_on |= progress == SweepProgress::OnAtOnce;
            stepped.found |= stepped.goes_on;
            if progress != SweepProgress::Ended {
                return Ok(stepped);
            }
            if self.stage + 1 == STAGES.len() {
                self.go_on(keys, &mut stepped).await?;
                return Ok(stepped);
            }
            if self.stage == 0 {
                let counted = std::mem::take(&mut self.counted);
                self.round.add(&counted);
                stepped.counted.push((self.database, counted));
            }
            self.stage += 1;
            self.left = STAGES[self.stage].whole();
        }
    }

    /// Goes on to the next database that has records, or ends the round.
    async fn go_on(&mut self, keys: &mut Keyspace, stepped: &mut Stepped) -> Result<(), Fault> {
        let next = session(&mut keys.session, &keys.store)?.next_database(self.database).await?;
        let empty = self.database + 1..next.unwrap_or(DATABASES);
        stepped.counted.extend(empty.map(|database| (database, Census::default())));
        (self.database, self.stage, self.left) = (next.unwrap_or(0), 0, STAGES[0].whole());
        if next.is_none() {
            stepped.census = Some(std::mem::take(&mut self.round));
        }
        Ok(())
    }

    /// Removes expired records, and keys without elements.
    async fn ends(
        &mut self,
        keys: &mut Keyspace,
        family: Family,
        stepped: &mut Stepped,
    ) -> Result<SweepProgress, Fault> {
        let now = keys.now;
        let (mut over, mut holders, mut last, mut looked) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut pruned = Vec::new();
        let mut counted = Census::default();
        let session = session(&mut keys.session, &keys.store)?;
        let seen = session.scan_with(&self.left, STEP, |place, record| {
            if holders.len() == LOOKS {
                // The next step removes the rest.
                return;
            }
            last.clear();
            last.extend_from_slice(place);
            looked += 1;
            let end = end_of(family, record);
            let head = Head::parse(record).ok().filter(|_| family == Family::Key);
            if end.is_some_and(|end| end < now) || head.is_some_and(|head| !head.lives(now)) {
                over.push(place.to_vec());
                return;
            }
            if head.is_some_and(|head| timed::has_ended(&head, now)) {
                pruned.push(place.to_vec());
            }
            counted.keys += 1;
            counted.expiring += u64::from(end.is_some());
            counted.first_end = counted.first_end.into_iter().chain(end).min();
            if head.is_some_and(|head| head.generation().is_some()) {
                holders.push((place.to_vec(), record.to_vec()));
            }
        });
        let seen = seen.await?;
        let mut worth = over.len();
        for place in over {
            if family == Family::Key {
                stepped.removed += u64::from(remove_if_over(session, &place, now).await?);
            } else {
                let is_over = |record: &[u8]| end_of(family, record).is_some_and(|end| end < now);
                session.remove_if(&place, is_over).await?;
            }
        }
        for place in pruned {
            worth += usize::from(timed::prune(session, &place, now).await?);
        }
        if self.is_clock_wrong {
            holders.clear();
        }
        for (place, record) in &holders {
            worth += usize::from(sweep::idle(session, place, record, now).await?);
            turns::worked().await;
        }
        stepped.found |= worth > 0;
        stepped.goes_on |= looked > 0 && worth * DENSE >= looked;
        if family == Family::Key {
            self.counted.add(&counted);
        }
        if looked == seen && seen < STEP {
            return Ok(SweepProgress::Ended);
        }
        self.left.from = Bound::Excluded(last);
        Ok(SweepProgress::On)
    }
}
