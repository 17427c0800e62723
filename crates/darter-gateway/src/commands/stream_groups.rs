//! Consumer groups of streams: `XGROUP`, `XACK`, `XPENDING`.

use super::stream_arguments::{count, end, id, id_or_end, ids_from, start};
use super::streams::signed;
use super::transactions::within;
use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::{
    Aggregate, Consumer, Group, Pending, PendingEdit, PendingWalk, Retries, Stream, StreamId,
};
use crate::number;
use crate::turns;
use std::ops::RangeInclusive;

/// A consumer group of a stream, as they were when they were read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) stream: Stream,
    pub(super) records: Aggregate,
    pub(super) group: Group,
}

/// Reads a stream and a consumer group, outside of the transaction that changes the group: so the
/// transaction does not depend on entries that others add.
pub(super) async fn find(call: &mut Call<'_>, key: &[u8], name: &[u8]) -> Result<Option<Found>, Fault> {
    let mut retries = Retries::default();
    loop {
        let Some(stream) = call.keys.stream(key).await? else { return Ok(None) };
        let records = stream.aggregate(key);
        if let Some(group) = call.keys.group(&records, name).await? {
            return Ok(Some(Found { stream, records, group }));
        }
        if call.keys.is_in_transaction() || call.keys.stands(&records).await? {
            return Ok(None);
        }
        retries.again().await?;
    }
}

/// Returns whether a group has not changed since it was read, in the transaction that changes it.
pub(super) async fn is_same(call: &mut Call<'_>, found: &Found, name: &[u8]) -> Result<bool, Fault> {
    Ok(call.keys.group(&found.records, name).await? == Some(found.group))
}

/// Returns the text of an argument in an error.
pub(super) fn shown(text: &[u8]) -> String {
    crate::call::shown(text, usize::MAX)
}

/// Returns the error of a missing key or group.
pub(super) fn no_group(key: &[u8], group: &[u8]) -> Fault {
    Fault::said(format!("NOGROUP No such key '{}' or consumer group '{}'", shown(key), shown(group)))
}

/// Returns the error of a missing group.
pub(super) fn no_such_group(key: &[u8], group: &[u8]) -> Fault {
    Fault::said(format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(group), shown(key)))
}

/// `XGROUP` and its subcommands.
pub(super) async fn xgroup(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"help", 2) => {
            help(
                &mut call.reply,
                &[
                    "XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD count]",
                    "XGROUP CREATECONSUMER key group consumer",
                    "XGROUP DELCONSUMER key group consumer",
                    "XGROUP DESTROY key group",
                    "XGROUP SETID key group id|$ [ENTRIESREAD count]",
                    "XGROUP HELP",
                ],
            );
            Ok(())
        }
        (b"create", 5..) => set_group(call, true).await,
        (b"setid", 5..) => set_group(call, false).await,
        (b"destroy", 4) => destroy(call).await,
        (b"createconsumer", 5) => create_consumer(call).await,
        (b"delconsumer", 5) => delete_consumer(call).await,
        (b"help" | b"create" | b"setid" | b"destroy" | b"createconsumer" | b"delconsumer", _) => {
            Err(wrong_arity(&format!("xgroup|{}", shown(&subcommand))))
        }
        _ => Err(unknown_subcommand("XGROUP", args.get(1))),
    }
}

/// Returns the error of a missing key.
fn no_key() -> Fault {
    Fault::said(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
         to create an empty stream automatically.",
    )
}

/// Parses the options of `XGROUP CREATE` and `XGROUP SETID`: whether a stream is created, and the
/// number of entries read.
fn group_options(call: &Call<'_>, is_new: bool) -> Result<(bool, Option<u64>), Fault> {
    let (mut creates, mut read, mut words) = (false, None, call.args.from(5));
    while let Some(word) = words.next() {
        match &word.to_ascii_lowercase()[..] {
            b"mkstream" if is_new => creates = true,
            b"entriesread" if words.len() > 0 => {
                let said = words.next().and_then(number::integer).ok_or(NO_INTEGER)?;
                if said < -1 {
                    return Err(Fault::said("ERR value for ENTRIESREAD must be positive or -1"));
                }
                read = u64::try_from(said).ok();
            }
            _ => {
                let name = shown(call.args.get(1));
                return Err(Fault::said(format!(
                    "ERR unknown subcommand or wrong number of arguments for '{name}'. Try XGROUP HELP."
                )));
            }
        }
    }
    Ok((creates, read))
}

/// `XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD count]`,
/// `XGROUP SETID key group id|$ [ENTRIESREAD count]`.
async fn set_group(call: &mut Call<'_>, is_new: bool) -> Result<(), Fault> {
    let (args, key, name) = (call.args, call.args.get(2), call.args.get(3));
    let (creates, read) = group_options(call, is_new)?;
    within(call, async |call| {
        let found = call.keys.stream(key).await?;
        let is_absent = found.is_none();
        if is_absent && !creates {
            return Err(no_key());
        }
        if let Some(stream) = &found
            && !is_new
            && call.keys.group(&stream.aggregate(key), name).await?.is_none()
        {
            return Err(no_such_group(key, name));
        }
        let last = match args.get(4) {
            b"$" => found.as_ref().map_or(StreamId::ZERO, |stream| stream.last),
            text if is_new => id(text, 0)?,
            text => id_or_end(text, 0)?,
        };
        if is_absent {
            call.keys.create_stream(key).await?;
        }
        let stream = match found {
            Some(stream) => stream,
            None => call.keys.stream(key).await?.ok_or_else(no_key)?,
        };
        let records = stream.aggregate(key);
        let group = match call.keys.group(&records, name).await? {
            Some(_) if is_new => {
                return Err(Fault::said("BUSYGROUP Consumer Group name already exists"));
            }
            Some(group) => group.at(last, read),
            None => Group::new(last, read),
        };
        call.keys.note_event(key, if is_new { "xgroup-create" } else { "xgroup-setid" });
        call.keys.put_group(&records, name, &group).await
    })
    .await?;
    call.reply.ok();
    Ok(())
}

/// Runs a change of a group in a transaction, again if the group has changed since it was read. Without
/// a group, `body` is not run. `body` returns `None` if it must be run again.
async fn change_group<R>(
    call: &mut Call<'_>,
    key: &[u8],
    name: &[u8],
    body: impl AsyncFn(&mut Call<'_>, &Found) -> Result<Option<R>, Fault>,
) -> Result<Option<R>, Fault> {
    let mut retries = Retries::default();
    loop {
        let Some(found) = find(call, key, name).await? else { return Ok(None) };
        let mut done = None;
        within(call, async |call| {
            done = body(call, &found).await?;
            Ok(())
        })
        .await?;
        if done.is_some() {
            return Ok(done);
        }
        retries.again().await?;
    }
}

/// `XGROUP DESTROY key group`.
async fn destroy(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, name) = (call.args.get(2), call.args.get(3));
    call.keys.stream(key).await?.ok_or_else(no_key)?;
    let destroyed = change_group(call, key, name, async |call, found| {
        if !is_same(call, found, name).await? {
            return Ok(None);
        }
        call.keys.remove_group(&found.records, name, &found.group).await?;
        call.keys.note_event(key, "xgroup-destroy");
        Ok(Some(()))
    });
    let is_destroyed = destroyed.await?.is_some();
    call.reply.flag(is_destroyed);
    Ok(())
}

/// `XGROUP CREATECONSUMER key group consumer`.
async fn create_consumer(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, name, consumer) = (call.args.get(2), call.args.get(3), call.args.get(4));
    call.keys.stream(key).await?.ok_or_else(no_key)?;
    let created = change_group(call, key, name, async |call, found| {
        if !is_same(call, found, name).await? {
            return Ok(None);
        }
        let is_new = call.keys.consumer(&found.records, &found.group, consumer).await?.is_none();
        if is_new {
            let new = Consumer { seen: call.keys.now, pending: 0 };
            call.keys.put_consumer(&found.records, &found.group, consumer, Some(new)).await?;
            call.keys.note_event(key, "xgroup-createconsumer");
        }
        Ok(Some(is_new))
    });
    let is_new = created.await?.ok_or_else(|| no_such_group(key, name))?;
    call.reply.flag(is_new);
    Ok(())
}

/// `XGROUP DELCONSUMER key group consumer`.
async fn delete_consumer(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, name, consumer) = (call.args.get(2), call.args.get(3), call.args.get(4));
    call.keys.stream(key).await?.ok_or_else(no_key)?;
    let deleted = change_group(call, key, name, async |call, found| {
        if !is_same(call, found, name).await? {
            return Ok(None);
        }
        let Found { records, group, .. } = found;
        let Some(known) = call.keys.consumer(records, group, consumer).await? else { return Ok(Some(0)) };
        let mut removed = 0;
        if known.pending > 0 {
            let mut edit = PendingEdit::new(records, group);
            removed = call.keys.remove_pending_of(&mut edit, consumer).await?;
            call.keys.close_pending(edit, None).await?;
        }
        call.keys.put_consumer(records, group, consumer, None).await?;
        call.keys.note_event(key, "xgroup-delconsumer");
        Ok(Some(removed))
    });
    let removed = deleted.await?.ok_or_else(|| no_such_group(key, name))?;
    call.reply.integer(signed(removed));
    Ok(())
}

/// `XACK key group id…`.
pub(super) async fn xack(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, name) = (call.args.get(1), call.args.get(2));
    if find(call, key, name).await?.is_none() {
        call.reply.integer(0);
        return Ok(());
    }
    let ids = ids_from(call, 3)?;
    let acknowledged = change_group(call, key, name, async |call, found| {
        let mut edit = PendingEdit::new(&found.records, &found.group);
        let mut acknowledged = 0;
        for &id in &ids {
            acknowledged += usize::from(call.keys.remove_pending(&mut edit, id).await?);
            turns::worked().await;
        }
        call.keys.close_pending(edit, None).await?;
        Ok(Some(acknowledged))
    });
    let acknowledged = acknowledged.await?.unwrap_or(0);
    call.reply.count(acknowledged);
    Ok(())
}

/// The arguments of the long form of `XPENDING`.
#[derive(Debug)]
struct Filter<'a> {
    idle: u64,
    ids: RangeInclusive<StreamId>,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Filter<'a> {
    /// Parses the arguments; `None` if there are none.
    fn parse(call: &Call<'a>) -> Result<Option<Self>, Fault> {
        let args = call.args;
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(SYNTAX);
        }
        let (mut at, mut idle) = (3, 0);
        if args.get(3).eq_ignore_ascii_case(b"idle") {
            idle = u64::try_from(number::integer(args.get(4)).ok_or(NO_INTEGER)?).unwrap_or(0);
            if args.len() < 8 {
                return Err(SYNTAX);
            }
            at = 5;
        }
        let count = count(args.get(at + 2))?;
        let ids = start(args.get(at))?..=end(args.get(at + 1))?;
        Ok(Some(Self { idle, ids, count, consumer: args.from(at + 3).next() }))
    }

    fn accepts(&self, entry: &Pending, now: u64) -> bool {
        self.ids.contains(&entry.id)
            && entry.idle(now) >= self.idle
            && self.consumer.is_none_or(|consumer| entry.consumer == consumer)
    }
}

/// `XPENDING key group [[IDLE ms] start end count [consumer]]`.
pub(super) async fn xpending(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, name) = (call.args.get(1), call.args.get(2));
    let filter = Filter::parse(call)?;
    let found = find(call, key, name).await?.ok_or_else(|| no_group(key, name))?;
    let Some(filter) = filter else { return summarize(call, &found).await };
    let (position, mut written) = (call.reply.position(), 0);
    let mut walk = PendingWalk::new(&found.records, &found.group, *filter.ids.start());
    while written < filter.count
        && let Some(entries) = call.keys.next_pending(&mut walk).await?
    {
        let now = call.keys.now;
        let is_last = entries.last().is_some_and(|entry| entry.id > *filter.ids.end());
        let left = filter.count - written;
        for entry in entries.iter().filter(|entry| filter.accepts(entry, now)).take(left) {
            call.reply.array(4);
            call.reply.bulk(entry.id.to_string().as_bytes());
            call.reply.bulk(&entry.consumer);
            call.reply.integer(signed(entry.idle(now)));
            call.reply.integer(signed(entry.deliveries));
            written += 1;
        }
        call.limit()?;
        if is_last {
            break;
        }
    }
    call.reply.array_from(position, written);
    Ok(())
}

/// Writes the number of pending entries, their ends, and the numbers of the consumers.
async fn summarize(call: &mut Call<'_>, found: &Found) -> Result<(), Fault> {
    let ends = call.keys.pending_ends(&found.records, &found.group).await?;
    let mut consumers = call.keys.consumers(&found.records, &found.group).await?;
    consumers.retain(|(_, consumer)| consumer.pending > 0);
    let reply = &mut call.reply;
    reply.array(4);
    let pending: u64 = consumers.iter().map(|(_, consumer)| consumer.pending).sum();
    let Some((first, last)) = ends.filter(|_| pending > 0) else {
        reply.integer(0);
        reply.null();
        reply.null();
        reply.null_array();
        return Ok(());
    };
    reply.integer(signed(pending));
    reply.bulk(first.to_string().as_bytes());
    reply.bulk(last.to_string().as_bytes());
    reply.array(consumers.len());
    for (name, consumer) in consumers {
        reply.array(2);
        reply.bulk(&name);
        reply.bulk(consumer.pending.to_string().as_bytes());
    }
    call.limit()
}
