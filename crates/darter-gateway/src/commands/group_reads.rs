//! `XREADGROUP`: delivers entries of streams to a consumer of a group, or returns its pending ones again.
//!
//! The entries are read first. Then a transaction makes them pending, unless the group has changed in
//! between: then all of it begins again.

use super::blocking::{may_try_for, wait_for};
use super::stream_arguments::id;
use super::stream_groups::{Found, find, is_same, shown};
use super::stream_reads::{Reading, begin_stream, end_streams, write_entry};
use super::transactions::within;
use crate::call::{Call, too_long};
use crate::fault::Fault;
use crate::keyspace::{Pending, PendingEdit, PendingWalk, Retries, StreamEntry, StreamId, StreamWalk};
use crate::turns;
use crate::waiting::Wanted;

/// An entry to be delivered.
#[derive(Debug)]
struct Delivery {
    id: StreamId,
    /// Its fields and values; `None` if the entry was deleted.
    body: Option<Vec<u8>>,
}

/// What a consumer gets of a stream.
#[derive(Debug)]
struct Part<'a> {
    key: &'a [u8],
    found: Found,
    /// Whether the entries are new for the group, or pending for the consumer.
    is_new: bool,
    entries: Vec<Delivery>,
}

/// `XREADGROUP GROUP group consumer [COUNT count] [BLOCK ms] [NOACK] STREAMS key… id…`.
pub(super) async fn xreadgroup(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let reading = Reading::parse(args, true)?;
    let (group, consumer) = reading.group.unwrap_or_default();
    let mut retries = Retries::default();
    loop {
        let parts = collect(call, &reading, group, consumer).await?;
        if parts.is_empty() {
            break;
        }
        if deliver(call, &reading, &parts).await? {
            return write(call, &parts).await;
        }
        retries.again().await?;
    }
    if !reading.waits {
        call.reply.null_array();
        return Ok(());
    }
    wait_for(call, reading.streams().map(|(key, _)| key), Wanted::OfGroup(group.to_vec()), reading.timeout)
}

/// Reads what the consumer gets.
async fn collect<'a>(
    call: &mut Call<'_>,
    reading: &Reading<'a>,
    group: &[u8],
    consumer: &[u8],
) -> Result<Vec<Part<'a>>, Fault> {
    call.keys.prefetch(reading.streams().map(|(key, _)| key));
    let (mut founds, mut after) = (Vec::new(), Vec::new());
    for (key, text) in reading.streams() {
        founds.push(find_to_read(call, key, group).await?);
        after.push(match text {
            b"$" => {
                return Err(Fault::said(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                     consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return \
                     an empty result set.",
                ));
            }
            b">" => None,
            _ => Some(id(text, 0)?),
        });
        turns::worked().await;
    }
    let (most, wanted) = (reading.most(call), Wanted::OfGroup(group.to_vec()));
    let (mut parts, mut left) = (Vec::<Part<'a>>::new(), call.shared.options.output_bytes_max);
    for (((key, _), found), after) in reading.streams().zip(founds).zip(after) {
        let entries = match after {
            None if !may_try_for(call, key, &wanted) => Vec::new(),
            None => {
                // The same stream may have been named before.
                let of_key = |part: &&Part<'_>| part.is_new && part.key == key;
                let before = parts.iter().rev().find(of_key).and_then(|part| part.entries.last());
                let after = before.map_or(found.group.last, |entry| entry.id);
                new_entries(call, key, &found, after, most, &mut left).await?
            }
            Some(after) => pending_entries(call, key, &found, consumer, after, most, &mut left).await?,
        };
        if after.is_some() || !entries.is_empty() {
            parts.push(Part { key, found, is_new: after.is_none(), entries });
        }
    }
    Ok(parts)
}

/// Reads a stream and a group, which must exist. A client that waits gets other errors.
async fn find_to_read(call: &mut Call<'_>, key: &[u8], group: &[u8]) -> Result<Found, Fault> {
    let waits = call.client.waiter.is_some();
    match find(call, key, group).await {
        Ok(Some(found)) => Ok(found),
        Err(fault) if !(waits && fault.is_wrong_type()) => Err(fault),
        Ok(None) if waits && call.keys.stream(key).await?.is_some() => {
            Err(Fault::said("NOGROUP the consumer group this client was blocked on no longer exists"))
        }
        _ if waits => Err(Fault::said("UNBLOCKED the stream key no longer exists")),
        _ => Err(Fault::said(format!(
            "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
            shown(key),
            shown(group)
        ))),
    }
}

/// Counts the bytes of an entry in the reply.
fn take(left: &mut usize, bytes: usize) -> Result<(), Fault> {
    *left = left.checked_sub(bytes).ok_or_else(too_long)?;
    Ok(())
}

/// Returns the entries after an id.
async fn new_entries(
    call: &mut Call<'_>,
    key: &[u8],
    found: &Found,
    after: StreamId,
    most: usize,
    left: &mut usize,
) -> Result<Vec<Delivery>, Fault> {
    let mut entries = Vec::new();
    let Some(from) = after.next() else { return Ok(entries) };
    let mut walk = StreamWalk::new(key, &found.stream, from..=StreamId::MAX, false);
    while entries.len() < most
        && let Some(piece) = call.keys.next_entries(&mut walk).await?
    {
        for entry in piece.entries()?.iter().take(most - entries.len()) {
            take(left, entry.body.len())?;
            entries.push(Delivery { id: entry.id, body: Some(entry.body.to_vec()) });
        }
        turns::worked().await;
    }
    Ok(entries)
}

/// Returns the entries after an id that are pending for a consumer.
async fn pending_entries(
    call: &mut Call<'_>,
    key: &[u8],
    found: &Found,
    consumer: &[u8],
    after: StreamId,
    most: usize,
    left: &mut usize,
) -> Result<Vec<Delivery>, Fault> {
    let mut ids = Vec::new();
    if let Some(from) = after.next() {
        let mut walk = PendingWalk::new(&found.records, &found.group, from);
        while ids.len() < most
            && let Some(entries) = call.keys.next_pending(&mut walk).await?
        {
            let own = entries.iter().filter(|entry| entry.consumer == consumer);
            ids.extend(own.map(|entry| entry.id).take(most - ids.len()));
        }
    }
    let mut bodies = call.keys.entries_of(key, &found.stream, &ids, *left).await?.ok_or_else(too_long)?;
    let entries: Vec<_> = ids.into_iter().map(|id| Delivery { id, body: bodies.remove(&id) }).collect();
    for entry in &entries {
        take(left, entry.body.as_ref().map_or(0, Vec::len))?;
    }
    Ok(entries)
}

/// Makes all parts pending in one transaction. Returns false if a group has changed in between.
async fn deliver(call: &mut Call<'_>, reading: &Reading<'_>, parts: &[Part<'_>]) -> Result<bool, Fault> {
    let mut is_done = false;
    within(call, async |call| {
        is_done = true;
        for part in parts {
            is_done &= is_current(call, reading, part).await?;
        }
        for part in parts.iter().filter(|_| is_done) {
            deliver_part(call, reading, part).await?;
        }
        Ok(())
    })
    .await?;
    Ok(is_done)
}

/// Returns whether the group, and the entries that are pending for the consumer, are as they were read.
async fn is_current(call: &mut Call<'_>, reading: &Reading<'_>, part: &Part<'_>) -> Result<bool, Fault> {
    let (name, consumer) = reading.group.unwrap_or_default();
    if !is_same(call, &part.found, name).await? {
        return Ok(false);
    }
    let mut edit = PendingEdit::new(&part.found.records, &part.found.group);
    for entry in part.entries.iter().filter(|_| !part.is_new) {
        let known = call.keys.pending(&mut edit, entry.id).await?;
        if known.is_none_or(|known| known.consumer != consumer) {
            return Ok(false);
        }
        turns::worked().await;
    }
    Ok(true)
}

async fn deliver_part(call: &mut Call<'_>, reading: &Reading<'_>, part: &Part<'_>) -> Result<(), Fault> {
    let Part { key, found, is_new, entries } = part;
    let (name, consumer) = reading.group.unwrap_or_default();
    // Another part may be of the same stream.
    let mut group = call.keys.group(&found.records, name).await?.unwrap_or(found.group);
    let mut edit = PendingEdit::new(&found.records, &group);
    let now = call.keys.now;
    for Delivery { id, body } in entries {
        let mut pending = Pending { id: *id, time: now, deliveries: 1, consumer: consumer.to_vec() };
        if *is_new {
            group.deliver(&found.stream, *id);
        } else if let Some(known) = call.keys.pending(&mut edit, *id).await? {
            pending.deliveries = known.deliveries.saturating_add(1);
        }
        if body.is_some() && !(*is_new && reading.has_no_ack) {
            call.keys.put_pending(&mut edit, pending).await?;
        }
        turns::worked().await;
    }
    if *is_new {
        group.has_inserted();
        call.keys.put_group(&found.records, name, &group).await?;
    }
    if call.keys.close_pending(edit, Some(consumer)).await? {
        call.keys.note_event(key, "xgroup-createconsumer");
    }
    Ok(())
}

/// Writes the reply.
async fn write(call: &mut Call<'_>, parts: &[Part<'_>]) -> Result<(), Fault> {
    let position = call.reply.position();
    for part in parts {
        begin_stream(&mut call.reply, part.key);
        call.reply.array(part.entries.len());
        for Delivery { id, body } in &part.entries {
            if let Some(body) = body {
                write_entry(&mut call.reply, &StreamEntry { id: *id, body });
            } else {
                call.reply.array(2);
                call.reply.bulk(id.to_string().as_bytes());
                call.reply.null_array();
            }
            turns::worked().await;
        }
    }
    end_streams(&mut call.reply, position, parts.len());
    Ok(())
}
