//! What commands on hashes and on sorted sets have in common: several elements at once, their
//! number, and scans.

use super::scan::Steps;
use crate::call::{Call, too_long};
use crate::fault::Fault;
use crate::keyspace::{Kind, Walked, score_of_record};
use crate::reply::Reply;
use crate::score;

/// Elements examined between two checks of the bytes found.
const SCANNED: usize = 128;
/// Bytes of elements at which a scan stops, whatever its count.
const SCANNED_BYTES: usize = 1 << 20;

/// Returns the score that a member's record holds, as `ZSCAN` shows it: integers with all their
/// digits, as Redis does for small sorted sets.
fn text_of(record: &[u8]) -> Vec<u8> {
    let Some(number) = score_of_record(record) else { return Vec::new() };
    let is_whole = number.fract() == 0.0 && number.abs() <= (i64::MAX / 2) as f64;
    if is_whole { itoa::Buffer::new().format(number as i64).into() } else { score::text(number).into_bytes() }
}

/// Replies with several elements; `tell` writes the reply for each record.
pub(super) async fn some(
    call: &mut Call<'_>,
    kind: Kind,
    tell: impl Fn(&mut Reply<'_>, Option<&[u8]>),
) -> Result<(), Fault> {
    let (start, most) = (call.reply.waiting(), call.shared.options.output_bytes_max);
    let Call { args, keys, reply, .. } = call;
    reply.array(args.len() - 2);
    let first = reply.waiting();
    while let Some(aggregate) = keys.find(args.get(1), kind).await? {
        let told = keys.some_elements(&aggregate, args.from(2), |record| {
            tell(reply, record);
            if reply.waiting() - start > most { Err(too_long()) } else { Ok(()) }
        });
        told.await?;
        if keys.stands(&aggregate).await? {
            return Ok(());
        }
        reply.take_back(first);
    }
    (2..args.len()).for_each(|_| tell(reply, None));
    Ok(())
}

/// Returns the number of elements of a key.
pub(super) async fn count(call: &mut Call<'_>, kind: Kind) -> Result<usize, Fault> {
    let Call { args, keys, .. } = call;
    while let Some(aggregate) = keys.find(args.get(1), kind).await? {
        let mut count = 0;
        keys.walk_elements(&mut aggregate.elements(), usize::MAX, |_, _| count += 1).await?;
        if keys.stands(&aggregate).await? {
            return Ok(count);
        }
    }
    Ok(0)
}

/// `HSCAN key cursor [MATCH pattern] [COUNT n] [NOVALUES]`, `ZSCAN key cursor [MATCH pattern]
/// [COUNT n]`.
pub(super) async fn scan(call: &mut Call<'_>, kind: Kind) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let cursor = super::scan::cursor(args.get(2))?;
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut next = 0;
    // The options are not checked if the key does not exist, as in Redis.
    if let Some(aggregate) = keys.find(args.get(1), kind).await?
        && keys.look(args.get(1), |head| head.is_some()).await?
    {
        let steps = Steps::parse(*args, 3, Some(kind))?;
        let mut elements = aggregate.elements();
        if cursor != 0 {
            let last = keys.recall(cursor).await?.ok_or_else(super::scan::unknown_cursor)?;
            elements = elements.behind(&last);
        }
        let (mut seen, mut bytes, mut walked) = (0, 0, Walked::Paused);
        while walked == Walked::Paused && seen < steps.count && bytes < SCANNED_BYTES {
            let some =
                keys.walk_elements(&mut elements, (steps.count - seen).min(SCANNED), |name, record| {
                    seen += 1;
                    if steps.matches(name) {
                        bytes += name.len() + record.len();
                        found.push(name.to_vec());
                        match kind {
                            Kind::SortedSet => found.push(text_of(record)),
                            _ if steps.leaves_out_values => {}
                            _ => found.push(record.to_vec()),
                        }
                    }
                });
            walked = some.await?;
        }
        if let (Walked::Paused, Some(last)) = (walked, elements.position()) {
            next = keys.remember(last).await?;
        }
    }
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    reply.array(found.len());
    for said in &found {
        reply.bulk(said);
    }
    call.limit()
}
