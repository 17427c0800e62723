//! Code shared by the commands on hashes, sorted sets and sets: changes of elements, access to several
//! or to all of them, their number, and scans.

use super::scan::{SCANNED_BYTES, Steps};
use super::transactions::{Body, atomically};
use crate::call::{Call, too_long};
use crate::fault::Fault;
use crate::glob::Matching;
use crate::keyspace::{Field, Kind, Retries, Tally, Walked, score_of_record};
use crate::reply::Reply;
use crate::score;
use crate::turns;
use std::collections::BTreeSet;

/// Elements examined between two checks of the bytes found.
const SCANNED: usize = 128;
/// Elements written between two checks of the reply's length.
const CHUNK: usize = 4096;

/// Returns the score in a member's record as `ZSCAN` shows it: integers with all their digits, as
/// Redis does for small sorted sets.
fn text_of(record: &[u8]) -> Vec<u8> {
    let Some(number) = score_of_record(record) else { return Vec::new() };
    let is_whole = number.fract() == 0.0 && number.abs() <= (i64::MAX / 2) as f64;
    if is_whole { itoa::Buffer::new().format(number as i64).into() } else { score::text(number).into_bytes() }
}

/// An element that a scan has found.
#[derive(Debug)]
struct Element {
    name: Vec<u8>,
    record: Vec<u8>,
}

impl AsRef<[u8]> for Element {
    fn as_ref(&self) -> &[u8] {
        &self.name
    }
}

/// Changes elements of a key. `change` returns `None` if it must be run in a transaction.
async fn change<R: Default>(
    call: &mut Call<'_>,
    mut change: impl AsyncFnMut(&mut Call<'_>, bool) -> Result<Option<R>, Fault>,
) -> Result<R, Fault> {
    let in_parts = !call.shared.has_transactions || call.keys.is_in_transaction();
    if let Some(changed) = change(call, in_parts).await? {
        return Ok(changed);
    }
    let mut changed = None;
    let transaction = atomically(call, BTreeSet::new(), async |call| {
        changed = change(call, true).await?;
        // To verify that records are absent would cost as much as to add them.
        Ok(if call.keys.is_changing() { Body::Done } else { Body::Abandoned })
    });
    Box::pin(transaction).await?;
    Ok(changed.unwrap_or_default())
}

/// Adds elements of the key that the first argument names, or changes their records, as `decide` says;
/// in a transaction if there are several in a large key and the index has transactions.
pub(super) async fn add(
    call: &mut Call<'_>,
    kind: Kind,
    names: &[&[u8]],
    mut decide: impl FnMut(usize, Option<&[u8]>, &mut Vec<u8>) -> Result<bool, Fault> + Send,
) -> Result<Tally, Fault> {
    change(call, async |call, in_parts| {
        call.keys.add_elements((call.args.get(1), kind), names, in_parts, &mut decide).await
    })
    .await
}

/// Changes the values of fields of a hash as `decide` says, as [`add`] does; they keep their expiry times.
pub(super) async fn change_values(
    call: &mut Call<'_>,
    names: &[&[u8]],
    mut decide: impl FnMut(usize, Option<&[u8]>, &mut Vec<u8>) -> Result<bool, Fault> + Send,
) -> Result<Tally, Fault> {
    change(call, async |call, in_parts| {
        call.keys.change_values(call.args.get(1), names, in_parts, &mut decide).await
    })
    .await
}

/// Changes fields of a hash and their expiry times as `decide` says, as [`add`] does: it gets a field if it
/// exists, and writes the new one.
pub(super) async fn change_fields(
    call: &mut Call<'_>,
    names: &[&[u8]],
    mut decide: impl FnMut(usize, Option<Field<'_>>, &mut Vec<u8>) -> Result<bool, Fault> + Send,
) -> Result<Tally, Fault> {
    change(call, async |call, in_parts| {
        let now = call.keys.now;
        let mut decide = |at: usize, old: Option<&[u8]>, new: &mut Vec<u8>| {
            decide(at, old.and_then(|record| Field::living(Kind::TimedHash, record, now)), new)
        };
        call.keys.change_fields(call.args.get(1), names, in_parts, &mut decide).await
    })
    .await
}

/// `HDEL key field…`, `SREM key member…`, `ZREM key member…`, which are executed like [`add`].
pub(super) async fn remove(call: &mut Call<'_>, kind: Kind) -> Result<(), Fault> {
    let names: Vec<&[u8]> = call.args.from(2).collect();
    let removed = change(call, async |call, in_parts| {
        call.keys.remove_elements((call.args.get(1), kind), &names, in_parts).await
    });
    let removed = removed.await?;
    call.reply.count(removed);
    Ok(())
}

/// Replies with several elements; `tell` writes the reply for each record.
pub(super) async fn some(
    call: &mut Call<'_>,
    kind: Kind,
    tell: impl Fn(&mut Reply<'_>, Option<&[u8]>),
) -> Result<(), Fault> {
    let most = call.shared.options.output_bytes_max;
    let Call { args, keys, reply, .. } = call;
    reply.array(args.len() - 2);
    let first = reply.position();
    let mut retries = Retries::default();
    while let Some(aggregate) = keys.find(args.get(1), kind).await? {
        let told = keys.some_elements(&aggregate, args.from(2), |record| {
            tell(reply, record);
            if reply.written() > most { Err(too_long()) } else { Ok(()) }
        });
        told.await?;
        if keys.stands(&aggregate).await? {
            return Ok(());
        }
        reply.take_back(first);
        retries.again().await?;
    }
    for _ in 2..args.len() {
        tell(reply, None);
        turns::worked().await;
    }
    Ok(())
}

/// `HGETALL key`, `HKEYS key`, `HVALS key`, `SMEMBERS key`.
pub(super) async fn all(
    call: &mut Call<'_>,
    kind: Kind,
    tells_names: bool,
    tells_values: bool,
) -> Result<(), Fault> {
    let (start, most) = (call.reply.position(), call.shared.options.output_bytes_max);
    let (mut count, mut retries) = (0, Retries::default());
    while let Some(aggregate) = call.keys.find(call.args.get(1), kind).await? {
        let mut elements = aggregate.elements();
        loop {
            let Call { keys, reply, .. } = &mut *call;
            let walked = keys.walk_elements(&mut elements, CHUNK, |name, value| {
                if reply.written() > most {
                    // The reply is rejected below.
                    return;
                }
                if tells_names {
                    reply.bulk(name);
                }
                if tells_values {
                    reply.bulk(value);
                }
                count += 1;
            });
            let walked = walked.await?;
            call.limit()?;
            if walked == Walked::Through {
                break;
            }
        }
        if call.keys.stands(&aggregate).await? {
            break;
        }
        call.reply.take_back(start);
        count = 0;
        retries.again().await?;
    }
    match (kind, tells_names && tells_values) {
        (Kind::Set, _) => call.reply.set_from(start, count),
        (_, true) => call.reply.map_from(start, count),
        (_, false) => call.reply.array_from(start, count),
    }
    Ok(())
}

/// Returns the number of elements of a key.
pub(super) async fn count(call: &mut Call<'_>, kind: Kind) -> Result<usize, Fault> {
    let Call { args, keys, .. } = call;
    let mut retries = Retries::default();
    while let Some(aggregate) = keys.find(args.get(1), kind).await? {
        let mut count = 0;
        keys.walk_elements(&mut aggregate.elements(), usize::MAX, |_, _| count += 1).await?;
        if keys.stands(&aggregate).await? {
            return Ok(count);
        }
        retries.again().await?;
    }
    Ok(0)
}

/// `HSCAN key cursor [MATCH pattern] [COUNT n] [NOVALUES]`, `ZSCAN key cursor [MATCH pattern]
/// [COUNT n]`, `SSCAN key cursor [MATCH pattern] [COUNT n]`. A small key is returned at once.
pub(super) async fn scan(call: &mut Call<'_>, kind: Kind) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let cursor = super::scan::cursor(args.get(2))?;
    let mut found: Vec<Element> = Vec::new();
    let (mut next, mut tells_records) = (0, kind != Kind::Set);
    // The options are not checked if the key does not exist, as in Redis.
    if let Some(aggregate) = keys.find(args.get(1), kind).await?
        && keys.look(args.get(1), |head| head.is_some()).await?
    {
        let mut steps = Steps::parse(*args, 3, Some(kind))?;
        tells_records &= !steps.leaves_out_values;
        if aggregate.packed().is_some() {
            steps.count = usize::MAX;
        }
        let mut elements = aggregate.elements();
        let mut matching = Matching::new(steps.pattern)?;
        let (mut seen, mut bytes, mut walked) = (0, 0, Walked::Paused);
        // An unknown cursor starts from the beginning, so that no element is missed.
        if cursor != 0
            && let Some(last) = keys.recall(cursor).await?
        {
            elements = elements.behind(&last);
        }
        while walked == Walked::Paused && seen < steps.count && bytes < SCANNED_BYTES {
            let walk =
                keys.walk_elements(&mut elements, (steps.count - seen).min(SCANNED), |name, record| {
                    seen += 1;
                    let record = || if tells_records { record.to_vec() } else { Vec::new() };
                    matching.see(name, || Element { name: name.to_vec(), record: record() });
                });
            walked = walk.await?;
            let some = matching.decided().await;
            bytes += some.iter().map(|element| element.name.len() + element.record.len()).sum::<usize>();
            found.extend(some);
        }
        if let (Walked::Paused, Some(last)) = (walked, elements.position()) {
            next = keys.remember(last).await?;
        }
    }
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    reply.array(if tells_records { found.len() * 2 } else { found.len() });
    for Element { name, record } in found {
        reply.bulk(&name);
        match kind {
            Kind::SortedSet => reply.bulk(&text_of(&record)),
            _ if tells_records => reply.bulk(&record),
            _ => {}
        }
        turns::copied(name.len() + record.len()).await;
    }
    call.limit()
}
