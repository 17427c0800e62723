//! `XCLAIM` and `XAUTOCLAIM`: pending entries of one consumer become those of another.

use super::stream_arguments::{id, start};
use super::stream_groups::{Found, find, is_same, no_group, shown};
use super::stream_reads::write_entry;
use super::transactions::within;
use crate::call::{Call, too_long};
use crate::fault::{Fault, SYNTAX};
use crate::keyspace::{Pending, PendingEdit, PendingWalk, Retries, StreamEntry, StreamId};
use crate::number;
use crate::turns;
use std::collections::BTreeMap;

/// Entries that `XAUTOCLAIM` claims without `COUNT`.
const CLAIMED: usize = 100;
/// Pending entries that `XAUTOCLAIM` reads for each one that it may claim.
const LOOKS: usize = 10;
/// The greatest `COUNT` of `XAUTOCLAIM`.
const COUNT_MAX: i64 = i64::MAX / 16;

/// The options of `XCLAIM`.
#[derive(Debug)]
struct Claim {
    /// How long entries must have been pending, in ms.
    idle: u64,
    /// In the order of the request.
    ids: Vec<StreamId>,
    /// When the entries count as delivered.
    time: u64,
    deliveries: Option<u64>,
    is_forced: bool,
    only_ids: bool,
    last: StreamId,
}

/// Parses a number; the error has this name for it.
fn named(text: &[u8], what: &str) -> Result<i64, Fault> {
    number::integer(text).ok_or_else(|| Fault::said(format!("ERR Invalid {what} argument for XCLAIM")))
}

impl Claim {
    fn parse(call: &Call<'_>) -> Result<Self, Fault> {
        let (args, now) = (call.args, call.keys.now);
        let idle = u64::try_from(named(args.get(4), "min-idle-time")?).unwrap_or(0);
        let ids: Vec<_> = args.from(5).map_while(|text| id(text, 0).ok()).collect();
        let mut words = args.from(5 + ids.len());
        let (is_forced, only_ids, deliveries) = (false, false, None);
        let mut claim = Self { idle, ids, time: now, deliveries, is_forced, only_ids, last: StreamId::ZERO };
        // A time in the future, or before the epoch, counts as now.
        let possible = |time: i64| u64::try_from(time).ok().filter(|time| *time <= now).unwrap_or(now);
        while let Some(word) = words.next() {
            let has_more = words.len() > 0;
            let mut value = || words.next().unwrap_or_default();
            match &word.to_ascii_lowercase()[..] {
                b"force" => claim.is_forced = true,
                b"justid" => claim.only_ids = true,
                b"idle" if has_more => {
                    let idle = named(value(), "IDLE option")?;
                    claim.time = possible(i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(idle));
                }
                b"time" if has_more => claim.time = possible(named(value(), "TIME option")?),
                b"retrycount" if has_more => {
                    claim.deliveries = u64::try_from(named(value(), "RETRYCOUNT option")?).ok();
                }
                b"lastid" if has_more => claim.last = id(value(), 0)?,
                _ => {
                    return Err(Fault::said(format!("ERR Unrecognized XCLAIM option '{}'", shown(word))));
                }
            }
        }
        Ok(claim)
    }
}

/// `XCLAIM key group consumer min-idle-time id… [IDLE ms] [TIME ms] [RETRYCOUNT count] [FORCE] [JUSTID]
/// [LASTID id]`.
pub(super) async fn xclaim(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, name) = (call.args.get(1), call.args.get(2));
    let mut retries = Retries::default();
    loop {
        let found = find(call, key, name).await?.ok_or_else(|| no_group(key, name))?;
        let claim = Claim::parse(call)?;
        let mut ids = claim.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        let most = call.shared.options.output_bytes_max;
        let bodies = call.keys.entries_of(key, &found.stream, &ids, most).await?.ok_or_else(too_long)?;
        let mut claimed = None;
        within(call, async |call| {
            claimed = claim_all(call, &claim, &found, &bodies).await?;
            Ok(())
        })
        .await?;
        if let Some(claimed) = claimed {
            let entries = claimed.iter().filter_map(|id| bodies.get_key_value(id));
            return write_claimed(call, entries, claimed.len(), claim.only_ids).await;
        }
        retries.again().await?;
    }
}

/// Writes claimed entries, or their ids.
async fn write_claimed(
    call: &mut Call<'_>,
    entries: impl Iterator<Item = (&StreamId, &Vec<u8>)>,
    count: usize,
    only_ids: bool,
) -> Result<(), Fault> {
    call.reply.array(count);
    for (id, body) in entries {
        if only_ids {
            call.reply.bulk(id.to_string().as_bytes());
        } else {
            write_entry(&mut call.reply, &StreamEntry { id: *id, body });
        }
        turns::worked().await;
    }
    Ok(())
}

/// Claims entries, in a transaction. Returns the ids of the claimed entries; `None` if the group has
/// changed since it was read.
async fn claim_all(
    call: &mut Call<'_>,
    claim: &Claim,
    found: &Found,
    bodies: &BTreeMap<StreamId, Vec<u8>>,
) -> Result<Option<Vec<StreamId>>, Fault> {
    let (key, name, consumer) = (call.args.get(1), call.args.get(2), call.args.get(3));
    if !is_same(call, found, name).await? {
        return Ok(None);
    }
    let now = call.keys.now;
    let (mut group, mut claimed) = (found.group, Vec::new());
    let mut edit = PendingEdit::new(&found.records, &group);
    for &id in &claim.ids {
        turns::worked().await;
        let known = call.keys.pending(&mut edit, id).await?;
        if !bodies.contains_key(&id) {
            // The entry was deleted.
            call.keys.remove_pending(&mut edit, id).await?;
            continue;
        }
        let deliveries = match &known {
            Some(known) if known.idle(now) < claim.idle => continue,
            Some(known) => known.deliveries,
            None if claim.is_forced => 1,
            None => continue,
        };
        let counted = deliveries.saturating_add(u64::from(!claim.only_ids));
        let deliveries = claim.deliveries.unwrap_or(counted);
        let entry = Pending { id, time: claim.time, deliveries, consumer: consumer.to_vec() };
        call.keys.put_pending(&mut edit, entry).await?;
        claimed.push(id);
    }
    if edit.has_inserted || claim.last > group.last {
        group.last = group.last.max(claim.last);
        group.has_inserted();
        call.keys.put_group(&found.records, name, &group).await?;
    }
    let acting = (!claimed.is_empty()).then_some(consumer);
    if call.keys.close_pending(edit, acting).await? {
        call.keys.note_event(key, "xgroup-createconsumer");
    }
    Ok(Some(claimed))
}

/// The arguments of `XAUTOCLAIM`.
#[derive(Debug)]
struct AutoClaim {
    idle: u64,
    start: StreamId,
    count: usize,
    only_ids: bool,
}

impl AutoClaim {
    fn parse(call: &Call<'_>) -> Result<Self, Fault> {
        let args = call.args;
        let idle = number::integer(args.get(4));
        let idle = idle.ok_or_else(|| Fault::said("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?;
        let (idle, start) = (u64::try_from(idle).unwrap_or(0), start(args.get(5))?);
        let (mut count, mut only_ids, mut words) = (CLAIMED, false, args.from(6));
        while let Some(word) = words.next() {
            match &word.to_ascii_lowercase()[..] {
                b"count" if words.len() > 0 => {
                    let said = words.next().and_then(number::integer);
                    let said = said.filter(|said| (1..=COUNT_MAX).contains(said));
                    let said = said.ok_or_else(|| Fault::said("ERR COUNT must be > 0"))?;
                    count = usize::try_from(said).unwrap_or(usize::MAX);
                }
                b"justid" => only_ids = true,
                _ => return Err(SYNTAX),
            }
        }
        Ok(Self { idle, start, count, only_ids })
    }
}

/// What an `XAUTOCLAIM` does.
#[derive(Debug, Default)]
struct Plan {
    /// Pending entries that are claimed.
    claimed: Vec<Pending>,
    /// Their fields and values.
    bodies: BTreeMap<StreamId, Vec<u8>>,
    /// Pending entries that were deleted.
    deleted: Vec<StreamId>,
    /// The pending entry after them, or 0-0.
    next: StreamId,
}

/// `XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]`.
pub(super) async fn xautoclaim(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, name) = (call.args.get(1), call.args.get(2));
    let claim = AutoClaim::parse(call)?;
    let mut retries = Retries::default();
    loop {
        let found = find(call, key, name).await?.ok_or_else(|| no_group(key, name))?;
        let plan = plan(call, key, &claim, &found).await?;
        let mut is_done = false;
        within(call, async |call| {
            is_done = execute(call, &claim, &found, &plan).await?;
            Ok(())
        })
        .await?;
        if is_done {
            call.reply.array(3);
            call.reply.bulk(plan.next.to_string().as_bytes());
            write_claimed(call, plan.bodies.iter(), plan.bodies.len(), claim.only_ids).await?;
            call.reply.array(plan.deleted.len());
            plan.deleted.iter().for_each(|id| call.reply.bulk(id.to_string().as_bytes()));
            return Ok(());
        }
        retries.again().await?;
    }
}

/// Finds the entries to claim.
async fn plan(call: &mut Call<'_>, key: &[u8], claim: &AutoClaim, found: &Found) -> Result<Plan, Fault> {
    let mut plan = Plan::default();
    let (mut count, mut looks) = (claim.count, claim.count.saturating_mul(LOOKS));
    let (now, mut left) = (call.keys.now, call.shared.options.output_bytes_max);
    let mut walk = PendingWalk::new(&found.records, &found.group, claim.start);
    while let Some(entries) = call.keys.next_pending(&mut walk).await? {
        let ids: Vec<_> = entries.iter().map(|entry| entry.id).collect();
        let bodies = call.keys.entries_of(key, &found.stream, &ids, left).await?;
        let mut bodies = bodies.ok_or_else(too_long)?;
        for entry in entries {
            if count == 0 || looks == 0 {
                plan.next = entry.id;
                return Ok(plan);
            }
            looks -= 1;
            match bodies.remove(&entry.id) {
                None => plan.deleted.push(entry.id),
                Some(_) if entry.idle(now) < claim.idle => continue,
                Some(body) => {
                    left = left.checked_sub(body.len()).ok_or_else(too_long)?;
                    plan.bodies.insert(entry.id, body);
                    plan.claimed.push(entry);
                }
            }
            count -= 1;
        }
    }
    Ok(plan)
}

/// Claims what a plan says, in a transaction. Returns false if it has changed since it was read.
async fn execute(call: &mut Call<'_>, claim: &AutoClaim, found: &Found, plan: &Plan) -> Result<bool, Fault> {
    let (key, name, consumer) = (call.args.get(1), call.args.get(2), call.args.get(3));
    if plan.claimed.is_empty() && plan.deleted.is_empty() {
        return Ok(true);
    }
    if !is_same(call, found, name).await? {
        return Ok(false);
    }
    let (mut edit, now) = (PendingEdit::new(&found.records, &found.group), call.keys.now);
    for entry in &plan.claimed {
        if call.keys.pending(&mut edit, entry.id).await?.as_ref() != Some(entry) {
            return Ok(false);
        }
        turns::worked().await;
    }
    for id in &plan.deleted {
        call.keys.remove_pending(&mut edit, *id).await?;
        turns::worked().await;
    }
    for entry in &plan.claimed {
        let deliveries = entry.deliveries.saturating_add(u64::from(!claim.only_ids));
        let entry = Pending { id: entry.id, time: now, deliveries, consumer: consumer.to_vec() };
        call.keys.put_pending(&mut edit, entry).await?;
        turns::worked().await;
    }
    let acting = (!plan.claimed.is_empty()).then_some(consumer);
    if call.keys.close_pending(edit, acting).await? {
        call.keys.note_event(key, "xgroup-createconsumer");
    }
    Ok(true)
}
