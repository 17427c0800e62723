//! Ranges of sorted sets: by rank, by score, by name; returned, counted, removed or stored.
//!
//! A command first collects the members of a range, and replies only if the generation that it read
//! is still the current one.

use super::ordered::{Bounds, bounds};
use crate::call::Call;
use crate::fault::{Fault, SYNTAX};
use crate::keyspace::{
    Aggregate, Draft, Kind, Member, Packed, Ranks, Retries, Taken, Walked, record_of_score, score_of_record,
};
use crate::number;
use crate::score;
use crate::turns;
use std::ops::{Bound, RangeBounds};

/// Members collected between two checks of the reply's length.
const CHUNK: usize = 4096;

/// A range of a sorted set.
#[derive(Clone, Copy, Debug)]
enum MemberRange<'a> {
    /// Ranks, counted from the end if negative.
    Ranks(i64, i64),
    Scores(Bound<f64>, Bound<f64>),
    /// The names between two bounds; `None` if no name can be between them.
    Names(Option<Bounds<'a>>),
}

/// The meaning of a range's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Name,
}

fn scores<'a>(min: &[u8], max: &[u8]) -> Result<MemberRange<'a>, Fault> {
    let bound = |text| score::bound(text).ok_or_else(|| Fault::said("ERR min or max is not a float"));
    Ok(MemberRange::Scores(bound(min)?, bound(max)?))
}

fn names<'a>(min: &'a [u8], max: &'a [u8]) -> Result<MemberRange<'a>, Fault> {
    Ok(MemberRange::Names(bounds(min, max)?))
}

impl<'a> MemberRange<'a> {
    /// Parses a range from two arguments.
    fn parse(call: &Call<'a>, by: By, min: usize, max: usize) -> Result<Self, Fault> {
        match by {
            By::Rank => Ok(Self::Ranks(call.integer(min)?, call.integer(max)?)),
            By::Score => scores(call.args.get(min), call.args.get(max)),
            By::Name => names(call.args.get(min), call.args.get(max)),
        }
    }
}

/// The selected members of a range.
#[derive(Clone, Copy, Debug)]
struct Window {
    skipped: usize,
    wanted: usize,
    is_reverse: bool,
}

impl Window {
    const ALL: Self = Self { skipped: 0, wanted: usize::MAX, is_reverse: false };
}

/// Passes the members of a walk within a window of ranks to a function.
async fn take(
    call: &mut Call<'_>,
    mut ranks: Ranks,
    window: Window,
    mut visit: impl FnMut(Member) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for rank in 0..window.skipped.saturating_add(window.wanted) {
        let Some(member) = call.keys.next_member(&mut ranks).await? else { break };
        if rank >= window.skipped {
            visit(member)?;
        }
    }
    Ok(())
}

/// Passes the members of a range of ranks to a function.
async fn visit_ranks(
    call: &mut Call<'_>,
    set: &Aggregate,
    (mut start, mut stop): (i64, i64),
    is_reverse: bool,
    mut visit: impl FnMut(Member) -> Result<(), Fault> + Send,
) -> Result<(), Fault> {
    if start < 0 && stop < 0 {
        // A walk from the other end needs no count of the members.
        let (near, far) = (!stop as usize, !start as usize);
        let wanted = (far + 1).saturating_sub(near);
        let window = Window { skipped: near, wanted, is_reverse: !is_reverse };
        let mut found = Vec::new();
        let ranks = set.all_ranks(window.is_reverse, far.saturating_add(1));
        if window.wanted > 0 {
            take(call, ranks, window, |member| {
                found.push(member);
                Ok(())
            })
            .await?;
        }
        for member in found.into_iter().rev() {
            visit(member)?;
            turns::worked().await;
        }
        return Ok(());
    }
    if start < 0 || stop < -1 {
        let mut count = 0;
        call.keys.walk_elements(&mut set.elements(), usize::MAX, |_, _| count += 1).await?;
        let from_end = |rank: i64| if rank < 0 { rank.saturating_add(count) } else { rank };
        (start, stop) = (from_end(start).max(0), from_end(stop));
        if stop < 0 {
            return Ok(());
        }
    }
    let wanted = if stop == -1 {
        usize::MAX
    } else {
        usize::try_from(stop.saturating_sub(start).saturating_add(1)).unwrap_or(0)
    };
    if wanted == 0 {
        return Ok(());
    }
    let window = Window { skipped: start as usize, wanted, is_reverse };
    let ranks = set.all_ranks(is_reverse, window.skipped.saturating_add(wanted));
    take(call, ranks, window, visit).await
}

/// Passes the selected members of a range of names to a function, in order.
async fn visit_names(
    call: &mut Call<'_>,
    set: &Aggregate,
    (from, to): Bounds<'_>,
    window: Window,
    mut visit: impl FnMut(Member) -> Result<(), Fault> + Send,
) -> Result<(), Fault> {
    let likely = window.skipped.saturating_add(window.wanted);
    let elements = set.elements_between(from, to);
    let mut elements = if window.is_reverse { elements.reversed() } else { elements };
    let (mut passed, mut outcome) = (0, Ok(()));
    while passed < likely && outcome.is_ok() {
        let walked = call.keys.walk_elements(&mut elements, (likely - passed).min(CHUNK), |name, record| {
            passed += 1;
            if let Some(score) = score_of_record(record)
                && passed > window.skipped
                && outcome.is_ok()
            {
                outcome = visit(Member { name: name.to_vec(), score });
            }
        });
        if walked.await? == Walked::Through {
            break;
        }
    }
    outcome
}

/// Passes the selected members of a range to a function, in order.
async fn visit(
    call: &mut Call<'_>,
    set: &Aggregate,
    range: MemberRange<'_>,
    window: Window,
    visit: impl FnMut(Member) -> Result<(), Fault> + Send,
) -> Result<(), Fault> {
    match range {
        MemberRange::Ranks(start, stop) => {
            visit_ranks(call, set, (start, stop), window.is_reverse, visit).await
        }
        MemberRange::Scores(from, to) => {
            let likely = window.skipped.saturating_add(window.wanted);
            take(call, set.ranks(from, to, window.is_reverse, likely), window, visit).await
        }
        MemberRange::Names(None) => Ok(()),
        MemberRange::Names(Some(names)) => visit_names(call, set, names, window, visit).await,
    }
}

/// Collects the selected members of a range.
async fn gather(
    call: &mut Call<'_>,
    key: &[u8],
    part: MemberRange<'_>,
    window: Window,
) -> Result<Vec<Member>, Fault> {
    let most = call.shared.options.output_bytes_max;
    let mut retries = Retries::default();
    while let Some(set) = call.keys.find(key, Kind::SortedSet).await? {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let gathered = visit(call, &set, part, window, |member| {
            bytes += member.name.len() + size_of::<Member>();
            found.push(member);
            if bytes > most { Err(crate::call::too_long()) } else { Ok(()) }
        });
        gathered.await?;
        if call.keys.stands(&set).await? {
            return Ok(found);
        }
        retries.again().await?;
    }
    Ok(Vec::new())
}

/// The options of `ZRANGE` and related commands: scores, offset, limit, kind of range, direction.
struct Options {
    with_scores: bool,
    limit: Option<(i64, i64)>,
    by: By,
    is_reverse: bool,
}

impl Options {
    /// Parses the options from an argument on; `by` and `is_reverse` are given if the command implies
    /// them.
    fn parse(
        call: &Call<'_>,
        mut at: usize,
        by: Option<By>,
        is_reverse: Option<bool>,
    ) -> Result<Self, Fault> {
        let (mut said_by, mut said_reverse) = (by, is_reverse);
        let (mut with_scores, mut limit, is_stored) = (false, None, at > 4);
        while at < call.args.len() {
            match &call.args.get(at).to_ascii_lowercase()[..] {
                b"withscores" if !is_stored => with_scores = true,
                b"limit" if at + 2 < call.args.len() => {
                    limit = Some((call.integer(at + 1)?, call.integer(at + 2)?));
                    at += 2;
                }
                b"rev" if said_reverse.is_none() => said_reverse = Some(true),
                b"bylex" if said_by.is_none() => said_by = Some(By::Name),
                b"byscore" if said_by.is_none() => said_by = Some(By::Score),
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        let by = said_by.unwrap_or(By::Rank);
        if by == By::Rank && limit.is_some_and(|(_, limit)| limit != -1) {
            return Err(Fault::said(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if by == By::Name && with_scores {
            return Err(Fault::said("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        Ok(Self { with_scores, limit, by, is_reverse: said_reverse.unwrap_or(false) })
    }

    /// Parses the range whose bounds are two arguments, the first of them at a position.
    fn range<'a>(&self, call: &Call<'a>, first: usize) -> Result<MemberRange<'a>, Fault> {
        let is_swapped = self.is_reverse && self.by != By::Rank;
        let (min, max) = if is_swapped { (first + 1, first) } else { (first, first + 1) };
        MemberRange::parse(call, self.by, min, max)
    }

    /// Returns the window of selected members; it selects none if the offset is negative.
    fn window(&self) -> Window {
        let all = Window { is_reverse: self.is_reverse, ..Window::ALL };
        match self.limit {
            Some((offset, limit)) if self.by != By::Rank => match usize::try_from(offset) {
                Ok(skipped) => {
                    Window { skipped, wanted: usize::try_from(limit).unwrap_or(usize::MAX), ..all }
                }
                Err(_) => Window { wanted: 0, ..all },
            },
            _ => all,
        }
    }
}

/// `ZRANGE key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`, and related
/// commands, which imply the kind of range and the direction.
pub(super) async fn range(
    call: &mut Call<'_>,
    by: Option<By>,
    is_reverse: Option<bool>,
) -> Result<(), Fault> {
    let options = Options::parse(call, 4, by, is_reverse)?;
    let part = options.range(call, 2)?;
    let found = gather(call, call.args.get(1), part, options.window()).await?;
    write(call, found, options.with_scores).await
}

/// Writes members, with their scores if these are wanted.
pub(super) async fn write(call: &mut Call<'_>, found: Vec<Member>, with_scores: bool) -> Result<(), Fault> {
    let reply = &mut call.reply;
    let is_nested = with_scores && reply.is_resp3();
    reply.array(if with_scores && !is_nested { found.len() * 2 } else { found.len() });
    for member in found {
        turns::worked().await;
        if is_nested {
            reply.array(2);
        }
        reply.bulk(&member.name);
        if with_scores {
            reply.double(member.score);
        }
    }
    call.limit()
}

/// `ZRANGESTORE destination source min max [BYSCORE|BYLEX] [REV] [LIMIT offset count]`.
pub(super) async fn store(call: &mut Call<'_>) -> Result<(), Fault> {
    let options = Options::parse(call, 5, None, None)?;
    let part = options.range(call, 3)?;
    let found = gather(call, call.args.get(2), part, options.window()).await?;
    let mut draft = Draft::new(Kind::SortedSet, call.args.get(1), None)?;
    for member in found {
        if let Err(fault) =
            call.keys.draft_element(&mut draft, &member.name, &record_of_score(member.score)).await
        {
            call.keys.discard_draft(draft).await?;
            return Err(fault);
        }
        turns::copied(member.name.len()).await;
    }
    let count = call.keys.replace_by(draft).await?;
    call.reply.count(count);
    Ok(())
}

/// `ZCOUNT key min max`, `ZLEXCOUNT key min max`.
pub(super) async fn count(call: &mut Call<'_>, by: By) -> Result<(), Fault> {
    let part = MemberRange::parse(call, by, 2, 3)?;
    let (mut count, mut retries) = (0, Retries::default());
    while let Some(set) = call.keys.find(call.args.get(1), Kind::SortedSet).await? {
        count = 0;
        let counted = visit(call, &set, part, Window::ALL, |_| {
            count += 1;
            Ok(())
        });
        counted.await?;
        if call.keys.stands(&set).await? {
            break;
        }
        count = 0;
        retries.again().await?;
    }
    call.reply.count(count);
    Ok(())
}

/// `ZRANK key member`, `ZREVRANK key member`.
pub(super) async fn rank(call: &mut Call<'_>, is_reverse: bool) -> Result<(), Fault> {
    let name = call.args.get(2);
    let mut retries = Retries::default();
    while let Some(set) = call.keys.find(call.args.get(1), Kind::SortedSet).await? {
        let Some(score) = call.keys.score(&set, name).await? else { break };
        let at = Bound::Included(score);
        let (from, to) = if is_reverse { (at, Bound::Unbounded) } else { (Bound::Unbounded, at) };
        let mut ranks = set.ranks(from, to, is_reverse, usize::MAX);
        let mut before = 0;
        loop {
            match call.keys.next_member(&mut ranks).await? {
                Some(member) if member.name == name => {
                    call.reply.count(before);
                    return Ok(());
                }
                Some(_) => before += 1,
                // Another client has changed its score.
                None => break,
            }
        }
        retries.again().await?;
    }
    call.reply.null();
    Ok(())
}

/// Returns the members of a small sorted set in a range.
fn chosen(packed: Packed<'_>, part: MemberRange<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let members = packed.by_score();
    let count = number::signed(members.len());
    let from_end = |rank: i64| if rank < 0 { rank.saturating_add(count) } else { rank };
    let is_wanted = |rank: usize, score: f64, name: &[u8]| match part {
        MemberRange::Ranks(start, stop) => (from_end(start)..=from_end(stop)).contains(&number::signed(rank)),
        MemberRange::Scores(from, to) => (from, to).contains(&score),
        MemberRange::Names(names) => names.is_some_and(|names| RangeBounds::<[u8]>::contains(&names, name)),
    };
    let wanted = members.iter().enumerate().filter(|&(rank, &(score, name))| is_wanted(rank, score, name));
    wanted.map(|(_, &(score, name))| (name.to_vec(), record_of_score(score).to_vec())).collect()
}

/// `ZREMRANGEBYRANK key start stop`, `ZREMRANGEBYSCORE key min max`, `ZREMRANGEBYLEX key min max`.
pub(super) async fn remove(call: &mut Call<'_>, by: By) -> Result<(), Fault> {
    let part = MemberRange::parse(call, by, 2, 3)?;
    let key = (call.args.get(1), Kind::SortedSet);
    let removed = match call.keys.take_from_small(key, |packed| chosen(packed, part)).await? {
        Taken::Done(taken) => taken.len(),
        Taken::Large(set) => remove_from_large(call, &set, part).await?,
    };
    call.reply.count(removed);
    Ok(())
}

async fn remove_from_large(
    call: &mut Call<'_>,
    set: &Aggregate,
    part: MemberRange<'_>,
) -> Result<usize, Fault> {
    let (mut found, mut removed) = (Vec::new(), 0);
    let gathered = visit(call, set, part, Window::ALL, |member| {
        found.push(member);
        Ok(())
    });
    gathered.await?;
    for member in found {
        let is_wanted = |score: f64| match part {
            MemberRange::Scores(from, to) => (from, to).contains(&score),
            MemberRange::Ranks(..) | MemberRange::Names(_) => true,
        };
        removed += usize::from(call.keys.remove_member(set, &member.name, is_wanted).await?.is_some());
        turns::worked().await;
    }
    Ok(removed)
}
