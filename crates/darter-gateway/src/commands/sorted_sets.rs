//! Sorted sets: members and their scores. Ranges are in `ranks.rs`.

use super::elements::{add, count, some};
use crate::call::Call;
use crate::fault::{Fault, SYNTAX};
use crate::keyspace::{
    Aggregate, Keyspace, Kind, Member, Packed, Retries, Taken, Tally, record_of_score, score_of_record,
};
use crate::reply::Reply;
use crate::{number, score, turns};

const NO_FLOAT: &str = "ERR value is not a valid float";

/// The options of `ZADD`.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // switches, most of which go together
pub(super) struct Adding {
    /// Only add new members.
    pub is_absent: bool,
    /// Only change existing members.
    pub is_present: bool,
    /// Only raise scores.
    is_greater: bool,
    /// Only lower scores.
    is_less: bool,
    /// Return the number of changed members, not of new ones.
    pub tells_changes: bool,
    /// Add to the old score.
    is_increment: bool,
}

impl Adding {
    /// Parses the options. Returns the position of the first score.
    fn parse(call: &Call<'_>) -> Result<(Self, usize), Fault> {
        let mut options = Self::default();
        let mut at = 2;
        while at < call.args.len() {
            match &call.args.get(at).to_ascii_lowercase()[..] {
                b"nx" => options.is_absent = true,
                b"xx" => options.is_present = true,
                b"gt" => options.is_greater = true,
                b"lt" => options.is_less = true,
                b"ch" => options.tells_changes = true,
                b"incr" => options.is_increment = true,
                _ => break,
            }
            at += 1;
        }
        let words = call.args.len() - at;
        if words == 0 || words % 2 == 1 {
            return Err(SYNTAX);
        }
        if options.is_absent && options.is_present {
            return Err(Fault::said("ERR XX and NX options at the same time are not compatible"));
        }
        let excluding = [options.is_absent, options.is_greater, options.is_less];
        if excluding.into_iter().filter(|&is| is).count() > 1 {
            return Err(Fault::said("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if options.is_increment && words > 2 {
            return Err(Fault::said("ERR INCR option supports a single increment-element pair"));
        }
        Ok((options, at))
    }

    /// Returns the new score if the member should be changed.
    fn decide(self, was: Option<f64>, said: f64) -> Result<Option<f64>, Fault> {
        let Some(was) = was else { return Ok((!self.is_present).then_some(said)) };
        if self.is_absent {
            return Ok(None);
        }
        let score = if self.is_increment { was + said } else { said };
        if score.is_nan() {
            return Err(Fault::said("ERR resulting score is not a number (NaN)"));
        }
        let is_wanted = !(self.is_greater && score <= was || self.is_less && score >= was);
        Ok(is_wanted.then_some(score))
    }
}

/// `ZADD key [NX|XX] [GT|LT] [CH] [INCR] score member…`.
pub(super) async fn zadd(call: &mut Call<'_>) -> Result<(), Fault> {
    let (options, first) = Adding::parse(call)?;
    add_from(call, options, first).await
}

/// `ZINCRBY key number member`.
pub(super) async fn zincrby(call: &mut Call<'_>) -> Result<(), Fault> {
    add_from(call, Adding { is_increment: true, ..Adding::default() }, 2).await
}

async fn add_from(call: &mut Call<'_>, options: Adding, first: usize) -> Result<(), Fault> {
    let mut scores = Vec::new();
    for at in (first..call.args.len()).step_by(2) {
        scores.push(score::parse(call.args.get(at)).ok_or_else(|| Fault::said(NO_FLOAT))?);
        turns::worked().await;
    }
    add_scored(call, options, &scores, first + 1, 2).await
}

/// Sets the scores of members, which are every `step`th argument from `first` on, and replies.
pub(super) async fn add_scored(
    call: &mut Call<'_>,
    options: Adding,
    scores: &[f64],
    first: usize,
    step: usize,
) -> Result<(), Fault> {
    let names: Vec<&[u8]> = call.args.from(first).step_by(step).collect();
    let mut last = None;
    let set = |at: usize, old: Option<&[u8]>, new: &mut Vec<u8>| {
        let was = old.and_then(score_of_record);
        last = options.decide(was, scores[at])?;
        let changed = last.filter(|_| last != was);
        new.extend(changed.iter().copied().flat_map(record_of_score));
        Ok(changed.is_some())
    };
    let Tally { added, changed } = add(call, Kind::SortedSet, &names, set).await?;
    if options.is_increment {
        call.reply.double_or_null(last);
    } else {
        call.reply.count(if options.tells_changes { added + changed } else { added });
    }
    Ok(())
}

/// `ZSCORE key member`.
pub(super) async fn zscore(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let record = keys.element_of((args.get(1), Kind::SortedSet), args.get(2)).await?;
    reply.double_or_null(record.as_deref().and_then(score_of_record));
    Ok(())
}

/// `ZMSCORE key member…`.
pub(super) async fn zmscore(call: &mut Call<'_>) -> Result<(), Fault> {
    let tell =
        |reply: &mut Reply<'_>, record: Option<&[u8]>| reply.double_or_null(record.and_then(score_of_record));
    some(call, Kind::SortedSet, tell).await
}

/// `ZCARD key`.
pub(super) async fn zcard(call: &mut Call<'_>) -> Result<(), Fault> {
    let count = count(call, Kind::SortedSet).await?;
    call.reply.count(count);
    Ok(())
}

/// Removes up to `wanted` members with the lowest or the highest scores from a key, and returns them.
pub(super) async fn take(
    keys: &mut Keyspace,
    key: &[u8],
    wanted: usize,
    is_reverse: bool,
) -> Result<Vec<Member>, Fault> {
    let choose = |packed: Packed<'_>| {
        let mut members = packed.by_score();
        if is_reverse {
            members.reverse();
        }
        let chosen = members.into_iter().take(wanted);
        chosen.map(|(score, name)| (name.to_vec(), record_of_score(score).to_vec())).collect()
    };
    match keys.take_from_small((key, Kind::SortedSet), choose).await? {
        Taken::Large(set) => take_from_large(keys, &set, wanted, is_reverse).await,
        Taken::Done(taken) => {
            let member = |(name, record): (Vec<u8>, Vec<u8>)| {
                score_of_record(&record).map(|score| Member { name, score })
            };
            Ok(taken.into_iter().filter_map(member).collect())
        }
    }
}

async fn take_from_large(
    keys: &mut Keyspace,
    set: &Aggregate,
    wanted: usize,
    is_reverse: bool,
) -> Result<Vec<Member>, Fault> {
    let mut popped = Vec::new();
    let mut ranks = set.all_ranks(is_reverse, wanted);
    let mut retries = Retries::default();
    while popped.len() < wanted {
        let Some(member) = keys.next_member(&mut ranks).await? else { break };
        let is_still = |score: f64| score.total_cmp(&member.score).is_eq();
        if keys.remove_member(set, &member.name, is_still).await?.is_some() {
            popped.push(member);
        } else {
            // Another client took the member or changed its score: find the first member again.
            ranks = set.all_ranks(is_reverse, wanted - popped.len());
            match retries.again().await {
                Err(fault) if popped.is_empty() => return Err(fault),
                // Popped elements must not be lost.
                Err(_) => break,
                Ok(()) => {}
            }
        }
    }
    Ok(popped)
}

/// `ZPOPMIN key [count]`, `ZPOPMAX key [count]`.
pub(super) async fn pop(call: &mut Call<'_>, is_reverse: bool) -> Result<(), Fault> {
    if call.args.len() > 3 {
        return Err(SYNTAX);
    }
    let mut wanted = 1;
    let is_counted = call.args.len() == 3;
    if is_counted {
        let said = number::integer(call.args.get(2)).and_then(|said| usize::try_from(said).ok());
        wanted = said.ok_or_else(|| Fault::said("ERR value is out of range, must be positive"))?;
    }
    let Call { args, keys, reply, .. } = call;
    let popped = take(keys, args.get(1), wanted, is_reverse).await?;
    let is_nested = is_counted && reply.is_resp3();
    write_popped(reply, popped, is_nested).await;
    Ok(())
}

/// Writes members with their scores, each in its own array if that is wanted.
pub(super) async fn write_popped(reply: &mut Reply<'_>, popped: Vec<Member>, is_nested: bool) {
    reply.array(if is_nested { popped.len() } else { popped.len() * 2 });
    for member in popped {
        turns::worked().await;
        if is_nested {
            reply.array(2);
        }
        reply.bulk(&member.name);
        reply.double(member.score);
    }
}

/// Parses the arguments of `ZMPOP` after the keys. Returns whether the highest scores are removed,
/// and of how many members.
pub(super) fn parse_taking(call: &Call<'_>, at: usize) -> Result<(bool, usize), Fault> {
    let is_reverse = match &call.args.from(at).next().ok_or(SYNTAX)?.to_ascii_lowercase()[..] {
        b"min" => false,
        b"max" => true,
        _ => return Err(SYNTAX),
    };
    let (mut wanted, mut options) = (None, call.args.from(at + 1));
    while let Some(option) = options.next() {
        let count = options.next().filter(|_| wanted.is_none() && option.eq_ignore_ascii_case(b"count"));
        let said = number::integer(count.ok_or(SYNTAX)?).and_then(|said| usize::try_from(said).ok());
        let none = || Fault::said("ERR count should be greater than 0");
        wanted = Some(said.filter(|&said| said > 0).ok_or_else(none)?);
    }
    Ok((is_reverse, wanted.unwrap_or(1)))
}

/// `ZMPOP numkeys key… MIN|MAX [COUNT count]`.
pub(super) async fn zmpop(call: &mut Call<'_>) -> Result<(), Fault> {
    let count = call.key_count(1)?;
    let (is_reverse, wanted) = parse_taking(call, count.saturating_add(2))?;
    let Call { args, keys, reply, .. } = call;
    for key in args.from(2).take(count) {
        turns::worked().await;
        let popped = take(keys, key, wanted, is_reverse).await?;
        if !popped.is_empty() {
            reply.array(2);
            reply.bulk(key);
            write_popped(reply, popped, true).await;
            return Ok(());
        }
    }
    reply.null_array();
    Ok(())
}
