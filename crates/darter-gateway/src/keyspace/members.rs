//! Members of sorted sets and their scores: records in two orders, one of which is authoritative.
//!
//! ```text
//! m, key, generation, member                    -> score, stamp        authoritative
//! s, key, generation, score, member, stamp      -> nothing             the index by score
//! ```
//!
//! To change a score, a client draws a stamp, writes the new index record, changes the member's
//! record if it is unchanged since it was read, and removes the old index record. So a member
//! always has the index record that its own record refers to, and no two writers' index records are
//! the same. A reader of the index checks the members' records and skips index records that they do
//! not refer to: those of unfinished writes, and those of writers that died. The latter are removed
//! when they are an hour old (`sweep.rs`).

use super::aggregate::Aggregate;
use super::order::{Scored, order_of, parse_index, score_of_record, stamp};
use super::walk::go_behind;
use super::{Family, Keyspace, Retries, session};
use crate::fault::{FOREIGN, Fault};
use darter::{Condition, PutOutcome, ScanRange};
use std::collections::{BTreeSet, VecDeque};
use std::ops::{Bound, RangeBounds};

/// Most index records in a chunk.
const CHUNK: usize = 256;

/// A member with its score.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: Vec<u8>,
    pub(crate) score: f64,
}

/// The result of changing a member's score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rescored {
    /// The previous score.
    pub(crate) was: Option<f64>,
    /// The score that was decided, if any.
    pub(crate) decided: Option<f64>,
}

/// A walk through members in score order, and in name order among equal scores.
#[derive(Debug)]
pub(crate) struct Ranks {
    set: Aggregate,
    range: ScanRange,
    is_through: bool,
    found: VecDeque<Member>,
    /// Members visited, so that a member whose score changes during the walk is not visited twice.
    told: BTreeSet<Vec<u8>>,
    /// The number of members that are likely to be requested.
    likely: usize,
}

impl Aggregate {
    /// Starts a walk through the members with scores between two bounds, of which `likely` members
    /// are expected to be requested.
    pub(crate) fn ranks(&self, from: Bound<f64>, to: Bound<f64>, is_reverse: bool, likely: usize) -> Ranks {
        let (mut found, told) = (VecDeque::new(), BTreeSet::new());
        if let Some(packed) = self.packed() {
            for (score, name) in packed.by_score().into_iter().filter(|(score, _)| (from, to).contains(score))
            {
                let member = Member { name: name.to_vec(), score };
                if is_reverse { found.push_front(member) } else { found.push_back(member) }
            }
            return Ranks {
                set: self.clone(),
                range: ScanRange::all(),
                is_through: true,
                found,
                told,
                likely,
            };
        }
        // All records with a score begin with it, so the next number is after all of them.
        let place = |order: u64| self.place(Family::Score, &order.to_be_bytes());
        let from = match from {
            Bound::Included(score) => Bound::Included(place(order_of(score))),
            Bound::Excluded(score) => Bound::Included(place(order_of(score) + 1)),
            Bound::Unbounded => Bound::Included(place(0)),
        };
        let to = match to {
            Bound::Included(score) => Bound::Excluded(place(order_of(score) + 1)),
            Bound::Excluded(score) => Bound::Excluded(place(order_of(score))),
            Bound::Unbounded => Bound::Excluded(place(u64::MAX)),
        };
        let range = ScanRange { from, to, reverse: is_reverse };
        Ranks { set: self.clone(), range, is_through: false, found, told, likely }
    }

    /// Starts a walk through all members.
    pub(crate) fn all_ranks(&self, is_reverse: bool, likely: usize) -> Ranks {
        self.ranks(Bound::Unbounded, Bound::Unbounded, is_reverse, likely)
    }
}

impl Keyspace {
    /// Returns the score of a member.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn score(&mut self, set: &Aggregate, member: &[u8]) -> Result<Option<f64>, Fault> {
        let record = self.element(set, member).await?;
        record.map(|record| score_of_record(&record).ok_or(FOREIGN)).transpose()
    }

    /// Sets a member's score to the score that `decide` computes from the old one, if any. Calls
    /// `decide` again if another client changes the member in between.
    ///
    /// # Errors
    /// The store's errors, and those of `decide`.
    pub(crate) async fn rescore(
        &mut self,
        set: &Aggregate,
        member: &[u8],
        mut decide: impl FnMut(Option<f64>) -> Result<Option<f64>, Fault>,
    ) -> Result<Rescored, Fault> {
        set.check(member)?;
        let place = set.place(Family::Member, member);
        let _guard = self.locks.lock(self.session.as_ref(), &place).await;
        let session = session(&mut self.session, &self.store)?;
        let mut retries = Retries::default();
        loop {
            let record = session.get(&place).await?;
            let old = record.as_deref().map(Scored::parse).transpose()?;
            let was = old.map(|old| old.score);
            let decided = decide(was)?;
            let Some(score) = decided.filter(|&score| was != Some(score)) else {
                return Ok(Rescored { was, decided });
            };
            // The only zero is the positive one.
            let new = Scored { score: score + 0.0, stamp: stamp(self.now) };
            let index = set.place(Family::Score, &new.index(member));
            session.store(&index, Some(b"")).await?;
            let condition = record.as_deref().map_or(Condition::Absent, Condition::Equals);
            if session.put_if(&place, &new.record(), condition).await? == PutOutcome::Refused {
                session.discard(&index).await?;
                retries.again().await?;
                continue;
            }
            if let Some(old) = old {
                session.store(&set.place(Family::Score, &old.index(member)), None).await?;
            }
            return Ok(Rescored { was, decided });
        }
    }

    /// Removes a member if `is_wanted` accepts its score. Returns the removed score.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn remove_member(
        &mut self,
        set: &Aggregate,
        member: &[u8],
        is_wanted: impl Fn(f64) -> bool + Send + Sync,
    ) -> Result<Option<f64>, Fault> {
        set.check(member)?;
        let place = set.place(Family::Member, member);
        let session = session(&mut self.session, &self.store)?;
        let mut old = None;
        let removed = session.remove_if(&place, |record| {
            // An invalid record may be removed too.
            old = Scored::parse(record).ok();
            old.is_none_or(|old| is_wanted(old.score))
        });
        if !removed.await? {
            return Ok(None);
        }
        let Some(old) = old else { return Ok(None) };
        session.store(&set.place(Family::Score, &old.index(member)), None).await?;
        Ok(Some(old.score))
    }

    /// Returns the next member of a walk. A member that exists with one score during the whole walk
    /// is returned exactly once.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn next_member(&mut self, ranks: &mut Ranks) -> Result<Option<Member>, Fault> {
        while ranks.found.is_empty() && !ranks.is_through {
            let Ranks { set, range, is_through, found, told, likely } = ranks;
            let asked = (*likely).clamp(1, CHUNK);
            *likely = likely.saturating_mul(2);
            let (mut met, mut places, mut last) = (Vec::new(), Vec::new(), Vec::new());
            let session = session(&mut self.session, &self.store)?;
            let seen = session.scan_with(range, asked, |place, _| {
                last.clear();
                last.extend_from_slice(place);
                if let Some((member, stamp)) = parse_index(set.element(place)) {
                    places.push(set.place(Family::Member, &member));
                    met.push((member, stamp));
                }
            });
            let seen = seen.await?;
            session.has_read_all(set)?;
            *is_through = seen < asked;
            if seen > 0 {
                go_behind(range, &last);
            }
            let records = session.get_many(&places).await?;
            for ((name, stamp), record) in met.into_iter().zip(records) {
                let scored = record.and_then(|record| Scored::parse(&record).ok());
                let is_called_for = |scored: &Scored| scored.stamp == stamp;
                if let Some(scored) = scored.filter(is_called_for)
                    && told.insert(name.clone())
                {
                    found.push_back(Member { name, score: scored.score });
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(ranks.found.pop_front())
    }
}
