//! `XINFO`: descriptions of streams.

use super::stream_groups::{Found, find, no_such_group, shown};
use super::stream_reads::{write_entry, write_range};
use super::streams::signed;
use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::{Fault, NO_INTEGER};
use crate::keyspace::{Aggregate, Group, Pending, PendingWalk, Retries, Stream, StreamId, StreamWalk};
use crate::number;
use crate::reply::Reply;

/// The entries that `XINFO STREAM key FULL` shows without `COUNT`.
const SHOWN: usize = 10;

/// `XINFO` and its subcommands.
pub(super) async fn xinfo(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"help", 2) => {
            help(
                &mut call.reply,
                &[
                    "XINFO CONSUMERS key group",
                    "XINFO GROUPS key",
                    "XINFO STREAM key [FULL [COUNT count]]",
                    "XINFO HELP",
                ],
            );
            Ok(())
        }
        (b"stream", 3..) => xinfo_stream(call).await,
        (b"groups", 3) => groups(call).await,
        (b"consumers", 4) => consumers(call).await,
        (b"help" | b"stream" | b"groups" | b"consumers", _) => {
            Err(wrong_arity(&format!("xinfo|{}", String::from_utf8_lossy(&subcommand))))
        }
        _ => Err(unknown_subcommand("XINFO", args.get(1))),
    }
}

/// Parses the options of `XINFO STREAM`: the number of entries to show in full, or `None`.
fn full(call: &Call<'_>) -> Result<Option<usize>, Fault> {
    let args = call.args;
    let wrong = || {
        let name = shown(args.get(1));
        Fault::said(format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try XINFO HELP."
        ))
    };
    let mut words = args.from(3);
    match (words.next(), words.next(), words.next(), words.next()) {
        (None, ..) => Ok(None),
        (Some(full), None, ..) if full.eq_ignore_ascii_case(b"full") => Ok(Some(SHOWN)),
        (Some(full), Some(word), Some(count), None)
            if full.eq_ignore_ascii_case(b"full") && word.eq_ignore_ascii_case(b"count") =>
        {
            match number::integer(count).ok_or(NO_INTEGER)? {
                0 => Ok(Some(usize::MAX)),
                count => Ok(Some(usize::try_from(count).unwrap_or(SHOWN))),
            }
        }
        _ => Err(wrong()),
    }
}

/// Writes a name and an id.
fn write_id(reply: &mut Reply<'_>, name: &str, id: StreamId) {
    reply.bulk(name.as_bytes());
    reply.bulk(id.to_string().as_bytes());
}

/// Writes a name and a number.
fn write_number(reply: &mut Reply<'_>, name: &str, number: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(signed(number));
}

/// `XINFO STREAM key [FULL [COUNT count]]`.
async fn xinfo_stream(call: &mut Call<'_>) -> Result<(), Fault> {
    let key = call.args.get(2);
    let mut retries = Retries::default();
    let position = call.reply.position();
    while let Some(stream) = call.keys.stream(key).await? {
        let full = full(call)?;
        if describe(call, key, &stream, full).await? {
            return Ok(());
        }
        call.reply.take_back(position);
        retries.again().await?;
    }
    Err(Fault::said("ERR no such key"))
}

/// Writes the description of a stream. Returns false if the stream was removed in between.
async fn describe(
    call: &mut Call<'_>,
    key: &[u8],
    stream: &Stream,
    full: Option<usize>,
) -> Result<bool, Fault> {
    let reply = &mut call.reply;
    reply.map(if full.is_some() { 9 } else { 10 });
    write_number(reply, "length", stream.length);
    write_number(reply, "radix-tree-keys", stream.records());
    write_number(reply, "radix-tree-nodes", stream.records() + 1);
    write_id(reply, "last-generated-id", stream.last);
    write_id(reply, "max-deleted-entry-id", stream.deleted);
    // Numbers beyond those of a reply are negative, as in Redis.
    write_known(reply, "entries-added", Some(stream.added.cast_signed()));
    write_id(reply, "recorded-first-entry-id", stream.first);
    let all = StreamId::ZERO..=StreamId::MAX;
    if let Some(most) = full {
        call.reply.bulk(b"entries");
        if write_range(call, key, stream, all, most, false).await?.is_none() {
            return Ok(false);
        }
        let records = stream.aggregate(key);
        let groups = call.keys.groups(&records).await?;
        call.reply.bulk(b"groups");
        call.reply.array(groups.len());
        for (name, group) in groups {
            write_group(call, stream, &records, &name, &group, most).await?;
        }
        return call.keys.stands(&records).await;
    }
    let groups = call.keys.groups(&stream.aggregate(key)).await?;
    write_number(&mut call.reply, "groups", groups.len() as u64);
    for (name, is_reverse) in [("first-entry", false), ("last-entry", true)] {
        call.reply.bulk(name.as_bytes());
        if !write_one(call, key, stream, is_reverse).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes the first or the last entry of a stream, or null. Returns false if the stream was removed in
/// between.
async fn write_one(
    call: &mut Call<'_>,
    key: &[u8],
    stream: &Stream,
    is_reverse: bool,
) -> Result<bool, Fault> {
    let mut walk = StreamWalk::new(key, stream, StreamId::ZERO..=StreamId::MAX, is_reverse);
    let mut is_found = false;
    while !is_found && let Some(piece) = call.keys.next_entries(&mut walk).await? {
        if let Some(entry) = piece.entries()?.first() {
            write_entry(&mut call.reply, entry);
            is_found = true;
        }
    }
    if !is_found {
        call.reply.null();
    }
    call.keys.stream_stands(&walk).await
}

/// Writes a name and a number, or null.
fn write_known(reply: &mut Reply<'_>, name: &str, number: Option<i64>) {
    reply.bulk(name.as_bytes());
    match number {
        Some(number) => reply.integer(number),
        None => reply.null(),
    }
}

/// Writes a name and a text.
fn write_text(reply: &mut Reply<'_>, name: &str, text: &[u8]) {
    reply.bulk(name.as_bytes());
    reply.bulk(text);
}

/// `XINFO GROUPS key`.
async fn groups(call: &mut Call<'_>) -> Result<(), Fault> {
    let key = call.args.get(2);
    let stream = call.keys.stream(key).await?.ok_or_else(|| Fault::said("ERR no such key"))?;
    let records = stream.aggregate(key);
    let groups = call.keys.groups(&records).await?;
    call.reply.array(groups.len());
    for (name, group) in groups {
        let consumers = call.keys.consumers(&records, &group).await?;
        let reply = &mut call.reply;
        reply.map(6);
        write_text(reply, "name", &name);
        write_number(reply, "consumers", consumers.len() as u64);
        write_number(reply, "pending", consumers.iter().map(|(_, consumer)| consumer.pending).sum());
        write_id(reply, "last-delivered-id", group.last);
        write_known(reply, "entries-read", group.read.map(u64::cast_signed));
        write_known(reply, "lag", group.lag(&stream));
        call.limit()?;
    }
    Ok(())
}

/// `XINFO CONSUMERS key group`.
async fn consumers(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, name) = (call.args.get(2), call.args.get(3));
    call.keys.stream(key).await?.ok_or_else(|| Fault::said("ERR no such key"))?;
    let Found { records, group, .. } =
        find(call, key, name).await?.ok_or_else(|| no_such_group(key, name))?;
    let consumers = call.keys.consumers(&records, &group).await?;
    call.reply.array(consumers.len());
    for (name, consumer) in consumers {
        let reply = &mut call.reply;
        reply.map(3);
        write_text(reply, "name", &name);
        write_number(reply, "pending", consumer.pending);
        write_number(reply, "idle", call.keys.now.saturating_sub(consumer.seen));
        call.limit()?;
    }
    Ok(())
}

/// Writes the parts of a pending entry: all four, or without the consumer.
fn write_pending(reply: &mut Reply<'_>, entry: &Pending, has_consumer: bool) {
    reply.array(3 + usize::from(has_consumer));
    reply.bulk(entry.id.to_string().as_bytes());
    if has_consumer {
        reply.bulk(&entry.consumer);
    }
    reply.integer(signed(entry.time));
    reply.integer(signed(entry.deliveries));
}

/// Writes up to `most` pending entries of a group, or of a consumer.
async fn write_all_pending(
    call: &mut Call<'_>,
    records: &Aggregate,
    group: &Group,
    consumer: Option<&[u8]>,
    most: usize,
) -> Result<(), Fault> {
    call.reply.bulk(b"pending");
    let (position, mut written) = (call.reply.position(), 0);
    let mut walk = PendingWalk::new(records, group, StreamId::ZERO);
    while written < most
        && let Some(entries) = call.keys.next_pending(&mut walk).await?
    {
        let own = entries.iter().filter(|entry| consumer.is_none_or(|name| entry.consumer == name));
        for entry in own.take(most - written) {
            write_pending(&mut call.reply, entry, consumer.is_none());
            written += 1;
        }
        call.limit()?;
    }
    call.reply.array_from(position, written);
    Ok(())
}

/// Writes the description of a group, with up to `most` pending entries.
async fn write_group(
    call: &mut Call<'_>,
    stream: &Stream,
    records: &Aggregate,
    name: &[u8],
    group: &Group,
    most: usize,
) -> Result<(), Fault> {
    let consumers = call.keys.consumers(records, group).await?;
    let reply = &mut call.reply;
    reply.map(7);
    write_text(reply, "name", name);
    write_id(reply, "last-delivered-id", group.last);
    write_known(reply, "entries-read", group.read.map(u64::cast_signed));
    write_known(reply, "lag", group.lag(stream));
    write_number(reply, "pel-count", consumers.iter().map(|(_, consumer)| consumer.pending).sum());
    write_all_pending(call, records, group, None, most).await?;
    call.reply.bulk(b"consumers");
    call.reply.array(consumers.len());
    for (name, consumer) in consumers {
        let reply = &mut call.reply;
        reply.map(4);
        write_text(reply, "name", &name);
        write_number(reply, "seen-time", consumer.seen);
        write_number(reply, "pel-count", consumer.pending);
        write_all_pending(call, records, group, Some(&name), most).await?;
    }
    call.limit()
}
