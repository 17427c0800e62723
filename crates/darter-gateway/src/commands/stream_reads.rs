//! Reads of streams: `XRANGE`, `XREVRANGE`, and `XREAD`, which may wait for entries.

use super::blocking::{may_try_for, timeout_in_ms, wait_for};
use super::stream_arguments::{count, end, id, start};
use crate::call::Call;
use crate::fault::{Fault, SYNTAX};
use crate::keyspace::{Retries, Stream, StreamEntry, StreamId, StreamWalk};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::turns;
use crate::waiting::Wanted;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Most entries of a stream that a client which has waited gets, if it gives no number.
const COUNT_AFTER_WAIT: usize = 1000;

/// Writes an entry.
pub(super) fn write_entry(reply: &mut Reply<'_>, entry: &StreamEntry<'_>) {
    let texts = entry.texts();
    reply.array(2);
    reply.bulk(entry.id.to_string().as_bytes());
    reply.array(texts.len());
    for text in texts {
        reply.bulk(text);
    }
}

/// Writes up to `most` entries of a stream, as an array. Returns their number; `None` if the stream was
/// removed during the read.
pub(super) async fn write_range(
    call: &mut Call<'_>,
    key: &[u8],
    stream: &Stream,
    ids: RangeInclusive<StreamId>,
    most: usize,
    is_reverse: bool,
) -> Result<Option<usize>, Fault> {
    let (position, mut written) = (call.reply.position(), 0);
    let mut walk = StreamWalk::new(key, stream, ids, is_reverse);
    while written < most
        && let Some(piece) = call.keys.next_entries(&mut walk).await?
    {
        for entry in piece.entries()?.iter().take(most - written) {
            write_entry(&mut call.reply, entry);
            written += 1;
        }
        call.limit()?;
        turns::worked().await;
    }
    if !call.keys.stream_stands(&walk).await? {
        call.reply.take_back(position);
        return Ok(None);
    }
    call.reply.array_from(position, written);
    Ok(Some(written))
}

/// `XRANGE key start end [COUNT count]`, `XREVRANGE key end start [COUNT count]`.
pub(super) async fn xrange(call: &mut Call<'_>, is_reverse: bool) -> Result<(), Fault> {
    let (args, key) = (call.args, call.args.get(1));
    let bounds = if is_reverse { [3, 2] } else { [2, 3] };
    let ids = start(args.get(bounds[0]))?..=end(args.get(bounds[1]))?;
    let (mut most, mut words) = (None, args.from(4));
    while let Some(word) = words.next() {
        let value = words.next().filter(|_| word.eq_ignore_ascii_case(b"count")).ok_or(SYNTAX)?;
        most = Some(count(value)?);
    }
    let mut retries = Retries::default();
    while let Some(stream) = call.keys.stream(key).await? {
        if most == Some(0) {
            call.reply.null_array();
            return Ok(());
        }
        let most = most.unwrap_or(usize::MAX);
        if write_range(call, key, &stream, ids.clone(), most, is_reverse).await?.is_some() {
            return Ok(());
        }
        retries.again().await?;
    }
    call.reply.array(0);
    Ok(())
}

/// The arguments of `XREAD` and `XREADGROUP`.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    /// Most entries of each stream; 0 if there is no limit.
    pub(super) count: usize,
    /// Whether the client waits for entries.
    pub(super) waits: bool,
    /// How long it waits, unless the wait has no end.
    pub(super) timeout: Option<Duration>,
    /// The consumer group and the consumer.
    pub(super) group: Option<(&'a [u8], &'a [u8])>,
    pub(super) has_no_ack: bool,
    /// The position of the first key.
    first: usize,
    args: Arguments<'a>,
}

impl<'a> Reading<'a> {
    pub(super) fn parse(args: Arguments<'a>, is_of_group: bool) -> Result<Self, Fault> {
        let (waits, timeout, group, has_no_ack) = (false, None, None, false);
        let mut reading = Self { count: 0, waits, timeout, group, has_no_ack, first: 0, args };
        let only = |option: &str| {
            Fault::said(format!(
                "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
            ))
        };
        let mut at = 1;
        while at < args.len() {
            let more = args.len() - 1 - at;
            match &args.get(at).to_ascii_lowercase()[..] {
                b"block" if more > 0 => {
                    at += 1;
                    (reading.waits, reading.timeout) = (true, timeout_in_ms(args.get(at))?);
                }
                b"count" if more > 0 => {
                    at += 1;
                    reading.count = count(args.get(at))?;
                }
                b"streams" if more > 0 => {
                    reading.first = at + 1;
                    break;
                }
                b"group" if more >= 2 => {
                    if !is_of_group {
                        return Err(only("GROUP"));
                    }
                    reading.group = Some((args.get(at + 1), args.get(at + 2)));
                    at += 2;
                }
                b"noack" => {
                    if !is_of_group {
                        return Err(only("NOACK"));
                    }
                    reading.has_no_ack = true;
                }
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        if reading.first == 0 {
            return Err(SYNTAX);
        }
        if !(args.len() - reading.first).is_multiple_of(2) {
            return Err(Fault::said(
                "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
            ));
        }
        if is_of_group && reading.group.is_none() {
            return Err(Fault::said("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(reading)
    }

    /// Returns the keys and the arguments that say from where on to read.
    pub(super) fn streams(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a> {
        let args = self.args;
        let (first, keys) = (self.first, (args.len() - self.first) / 2);
        (first..first + keys).map(move |at| (args.get(at), args.get(at + keys)))
    }

    /// Returns the most entries of a stream.
    pub(super) fn most(&self, call: &Call<'_>) -> usize {
        match self.count {
            0 if call.client.waiter.is_some() => COUNT_AFTER_WAIT,
            0 => usize::MAX,
            count => count,
        }
    }
}

/// Ends the reply of a read of `count` streams, which begins at a position.
pub(super) fn end_streams(reply: &mut Reply<'_>, position: usize, count: usize) {
    if reply.is_resp3() {
        reply.map_from(position, count);
    } else {
        reply.array_from(position, count);
    }
}

/// Begins the part of a stream.
pub(super) fn begin_stream(reply: &mut Reply<'_>, key: &[u8]) {
    if !reply.is_resp3() {
        reply.array(2);
    }
    reply.bulk(key);
}

/// `XREAD [COUNT count] [BLOCK ms] STREAMS key… id…`.
pub(super) async fn xread(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let reading = Reading::parse(args, false)?;
    let after = after(call, &reading).await?;
    let (position, most, mut found) = (call.reply.position(), reading.most(call), 0);
    for ((key, _), after) in reading.streams().zip(&after) {
        if may_try_for(call, key, &Wanted::Entries)
            && let Some(from) = after.next()
            && write_new(call, key, from, most).await?
        {
            found += 1;
        }
        turns::worked().await;
    }
    if found > 0 {
        end_streams(&mut call.reply, position, found);
        return Ok(());
    }
    if !reading.waits {
        call.reply.null_array();
        return Ok(());
    }
    wait_for(call, reading.streams().map(|(key, _)| key), Wanted::Entries, reading.timeout)?;
    if let Some(waiter) = &mut call.client.waiter {
        waiter.after = after;
    }
    Ok(())
}

/// Returns the ids after which a client reads streams. A client that waits has read them before.
async fn after(call: &mut Call<'_>, reading: &Reading<'_>) -> Result<Vec<StreamId>, Fault> {
    if let Some(waiter) = &call.client.waiter {
        return Ok(waiter.after.clone());
    }
    call.keys.prefetch(reading.streams().map(|(key, _)| key));
    let mut after = Vec::new();
    for (key, text) in reading.streams() {
        let stream = call.keys.stream(key).await?;
        after.push(match text {
            b"$" => stream.map_or(StreamId::ZERO, |stream| stream.last),
            b">" => {
                return Err(Fault::said(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> \
                     option.",
                ));
            }
            _ => id(text, 0)?,
        });
        turns::worked().await;
    }
    Ok(after)
}

/// Writes the entries of a stream from an id on. Returns false and writes nothing if there are none.
async fn write_new(call: &mut Call<'_>, key: &[u8], from: StreamId, most: usize) -> Result<bool, Fault> {
    let position = call.reply.position();
    let mut retries = Retries::default();
    loop {
        let stream = match call.keys.stream(key).await {
            // The type of the key has changed while the client waits.
            Err(fault) if fault.is_wrong_type() && call.client.waiter.is_some() => return Ok(false),
            stream => stream?,
        };
        let Some(stream) = stream.filter(|stream| stream.last >= from && stream.length > 0) else {
            return Ok(false);
        };
        begin_stream(&mut call.reply, key);
        match write_range(call, key, &stream, from..=StreamId::MAX, most, false).await? {
            Some(1..) => return Ok(true),
            Some(0) => {
                call.reply.take_back(position);
                return Ok(false);
            }
            None => call.reply.take_back(position),
        }
        retries.again().await?;
    }
}
