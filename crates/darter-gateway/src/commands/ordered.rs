//! Commands for ranges of keys, which Redis does not have.

use crate::call::Call;
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::{KeyRange, Walked};
use crate::number;
use std::ops::Bound;

/// Records read between two checks of the reply's length.
const CHUNK: usize = 4096;

/// Parses an end of a range, with the syntax of `ZRANGEBYLEX`.
#[derive(Clone, Copy, Debug)]
enum End<'a> {
    /// `-`: before all keys.
    Before,
    /// `+`: after all keys.
    Behind,
    At(Bound<&'a [u8]>),
}

fn end(text: &[u8]) -> Result<End<'_>, Fault> {
    match text {
        b"-" => Ok(End::Before),
        b"+" => Ok(End::Behind),
        [b'[', key @ ..] => Ok(End::At(Bound::Included(key))),
        [b'(', key @ ..] => Ok(End::At(Bound::Excluded(key))),
        _ => Err(Fault::said("ERR min or max not valid string range item")),
    }
}

/// Two bounds of names, with the lower one first.
pub(super) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Parses the two ends of a range; `None` if the range is empty.
pub(super) fn bounds<'a>(low: &'a [u8], high: &'a [u8]) -> Result<Option<Bounds<'a>>, Fault> {
    let bound = |end| match end {
        End::At(bound) => bound,
        End::Before | End::Behind => Bound::Unbounded,
    };
    Ok(match (end(low)?, end(high)?) {
        (End::Behind, _) | (_, End::Before) => None,
        (low, high) => Some((bound(low), bound(high))),
    })
}

/// Parses the two ends of a range of keys; `None` if no key can be in it.
fn between(low: &[u8], high: &[u8]) -> Result<Option<KeyRange>, Fault> {
    Ok(bounds(low, high)?.map(|(low, high)| KeyRange::between(low, high)))
}

/// `RANGE start end [LIMIT n] [REV] [KEYSONLY]`.
pub(super) async fn range(call: &mut Call<'_>) -> Result<(), Fault> {
    let (mut limit, mut is_reverse, mut is_keys) = (usize::MAX, false, false);
    let mut options = call.args.from(3);
    while let Some(option) = options.next() {
        match &option.to_ascii_lowercase()[..] {
            b"limit" => {
                let said = number::integer(options.next().ok_or(SYNTAX)?).ok_or(NO_INTEGER)?;
                limit = usize::try_from(said).map_err(|_| Fault::said("ERR LIMIT must not be negative"))?;
            }
            b"rev" => is_reverse = true,
            b"keysonly" => is_keys = true,
            _ => return Err(SYNTAX),
        }
    }
    let (low, high) = if is_reverse { (2, 1) } else { (1, 2) };
    let part = between(call.args.get(low), call.args.get(high))?;
    let part = part.map(|part| if is_reverse { part.reversed() } else { part });
    let (start, mut count) = (call.reply.position(), 0);
    let most = call.shared.options.output_bytes_max;
    if let Some(mut part) = part {
        while count < limit {
            let Call { keys, reply, .. } = call;
            let walked = keys.walk(&mut part, (limit - count).min(CHUNK), |key, head| {
                if reply.written() > most {
                    // The reply is rejected below.
                    return;
                }
                if !is_keys && reply.is_resp3() {
                    reply.array(2);
                }
                reply.bulk(key);
                if !is_keys {
                    reply.bulk_or_null(head.string().ok());
                }
                count += 1;
            });
            let walked = walked.await?;
            call.limit()?;
            if walked == Walked::Through {
                break;
            }
        }
    }
    let replies = if is_keys || call.reply.is_resp3() { count } else { count * 2 };
    call.reply.array_from(start, replies);
    Ok(())
}

/// `RANGECOUNT start end`.
pub(super) async fn rangecount(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut count = 0;
    if let Some(mut part) = between(call.args.get(1), call.args.get(2))? {
        call.keys.walk(&mut part, usize::MAX, |_, _| count += 1).await?;
    }
    call.reply.count(count);
    Ok(())
}
