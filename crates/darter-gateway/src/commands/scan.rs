//! Commands that walk over the keys. They walk in key order and do not block other clients. A key
//! that exists during the whole walk is found exactly once.

use crate::call::Call;
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::glob::{self, Matching};
use crate::keyspace::{KeyRange, Kind, Walked};
use crate::number;
use crate::request::Arguments;
use crate::turns;

/// Records examined by one `SCAN` without `COUNT`.
const COUNT: usize = 10;
/// Most records examined by one `SCAN`, because other clients are waiting.
const COUNT_MAX: usize = 10_000;
/// Records examined between two checks of the bytes found.
const SCANNED: usize = 1024;
/// Bytes of keys or elements at which a scan stops, regardless of its count.
pub(super) const SCANNED_BYTES: usize = 1 << 20;
/// Records examined between two checks of the reply's length.
const CHUNK: usize = 4096;
/// Expired keys drawn in a row before the first existing key is taken instead.
const DRAWS: usize = 64;

/// Parses a cursor as `strtoul` does: with a sign, or without any digit.
pub(super) fn cursor(text: &[u8]) -> Result<u64, Fault> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let number = match digits {
        [] if text.is_empty() => Some(0),
        digits if digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok())
        }
        _ => None,
    };
    let number = number.ok_or_else(|| Fault::said("ERR invalid cursor"))?;
    Ok(if is_negative { number.wrapping_neg() } else { number })
}

/// The options of a scan.
#[derive(Debug)]
pub(super) struct Steps<'a> {
    pub(super) pattern: &'a [u8],
    /// The number of records to examine.
    pub(super) count: usize,
    /// The type of keys to return.
    kind: Option<&'a [u8]>,
    /// Whether fields are returned without their values.
    pub(super) leaves_out_values: bool,
}

impl<'a> Steps<'a> {
    /// Parses the options of a scan of keys, or of a key's elements, from an argument on.
    pub(super) fn parse(args: Arguments<'a>, from: usize, of: Option<Kind>) -> Result<Self, Fault> {
        let mut steps = Self { pattern: b"*", count: COUNT, kind: None, leaves_out_values: false };
        let mut options = args.from(from);
        while let Some(option) = options.next() {
            let option = option.to_ascii_lowercase();
            if of == Some(Kind::Hash) && option == b"novalues" {
                steps.leaves_out_values = true;
                continue;
            }
            let value = options.next().ok_or(SYNTAX)?;
            match &option[..] {
                b"count" => {
                    let said = number::integer(value).ok_or(NO_INTEGER)?;
                    let count = usize::try_from(said).ok().filter(|&count| count > 0);
                    steps.count = count.ok_or(SYNTAX)?.min(COUNT_MAX);
                }
                b"match" => steps.pattern = value,
                b"type" if of.is_none() => steps.kind = Some(value),
                _ => return Err(SYNTAX),
            }
        }
        Ok(steps)
    }
}

/// `SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]`.
pub(super) async fn scan(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let cursor = cursor(args.get(1))?;
    let steps = Steps::parse(*args, 2, None)?;
    let mut part = KeyRange::prefixed(glob::literal_prefix(steps.pattern));
    let mut matching = Matching::<Vec<u8>>::new(steps.pattern)?;
    let (mut left, mut bytes, mut walked) = (steps.count, 0, Walked::Paused);
    // An unknown cursor starts from the beginning, so that no key is missed.
    if cursor != 0
        && let Some(last) = keys.recall(cursor).await?
    {
        part = part.behind(&last);
    }
    let mut found = Vec::new();
    while walked == Walked::Paused && left > 0 && bytes < SCANNED_BYTES {
        let examined = left.min(SCANNED);
        let walk = keys.walk(&mut part, examined, |key, head| {
            if steps.kind.is_none_or(|name| head.kind.is_named(name)) {
                matching.see(key, || key.to_vec());
            }
        });
        walked = walk.await?;
        left -= examined;
        let some = matching.decided().await;
        bytes += some.iter().map(Vec::len).sum::<usize>();
        found.extend(some);
    }
    let next = match (walked, part.position()) {
        (Walked::Paused, Some(last)) => keys.remember(last).await?,
        _ => 0,
    };
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    reply.array(found.len());
    for key in found {
        reply.bulk(&key);
        turns::copied(key.len()).await;
    }
    Ok(())
}

/// `KEYS pattern`.
pub(super) async fn keys(call: &mut Call<'_>) -> Result<(), Fault> {
    let pattern = call.args.get(1);
    let mut part = KeyRange::prefixed(glob::literal_prefix(pattern));
    let mut matching = Matching::<Vec<u8>>::new(pattern)?;
    let (start, mut count) = (call.reply.position(), 0);
    loop {
        let walk = call.keys.walk(&mut part, CHUNK, |key, _| matching.see(key, || key.to_vec()));
        let walked = walk.await?;
        for key in matching.decided().await {
            call.reply.bulk(&key);
            count += 1;
            call.limit()?;
            turns::copied(key.len()).await;
        }
        if walked == Walked::Through {
            break;
        }
    }
    call.reply.array_from(start, count);
    Ok(())
}

/// `DBSIZE`.
pub(super) async fn dbsize(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut count = 0;
    call.keys.walk(&mut KeyRange::all(), usize::MAX, |_, _| count += 1).await?;
    call.reply.count(count);
    Ok(())
}

/// `RANDOMKEY`.
pub(super) async fn randomkey(call: &mut Call<'_>) -> Result<(), Fault> {
    for _ in 0..DRAWS {
        let Some(key) = call.keys.draw().await? else {
            call.reply.null();
            return Ok(());
        };
        if call.keys.look(&key, |head| head.is_some()).await? {
            call.reply.bulk(&key);
            return Ok(());
        }
    }
    let (mut part, mut first) = (KeyRange::all(), None);
    while first.is_none() {
        let walked = call.keys.walk(&mut part, CHUNK, |key, _| {
            first.get_or_insert_with(|| key.to_vec());
        });
        if walked.await? == Walked::Through {
            break;
        }
    }
    call.reply.bulk_or_null(first.as_deref());
    Ok(())
}
