//! The entries of streams: `XADD`, `XDEL`, `XTRIM` and others. A command that needs one record changes
//! it in place; all others run in a transaction.

use super::stream_arguments::{Adding, id, ids_from};
use super::transactions::within;
use crate::call::{Call, wrong_arity};
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::{Added, InPlace, NewId, OpenStream, StreamId, StreamWalk, body_of};
use crate::number;
use crate::payload::Limits;

/// `XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id field value…`.
pub(super) async fn xadd(call: &mut Call<'_>) -> Result<(), Fault> {
    let (args, key) = (call.args, call.args.get(1));
    let adding = Adding::parse(call, true)?;
    let texts = args.len().saturating_sub(adding.end);
    if texts < 2 || texts % 2 == 1 {
        return Err(wrong_arity("xadd"));
    }
    let wanted = adding.id.unwrap_or(NewId::Now(call.keys.now));
    if matches!(wanted, NewId::Given(StreamId::ZERO)) {
        return Err(Fault::said("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let body = body_of(args.from(adding.end));
    Limits::of_gateway(call.shared).check_entry(key, body.len())?;
    let (creates, trim) = (!adding.must_exist, adding.trim.as_ref());
    let mut added = match call.keys.add_in_place(key, creates, wanted, &body, trim).await? {
        InPlace::Done(None) => {
            call.reply.null();
            return Ok(());
        }
        InPlace::Done(added) => added,
        InPlace::Several => None,
    };
    if added.is_none() {
        within(call, async |call| {
            added = None;
            let Some(mut open) = call.keys.open_stream(key, creates).await? else { return Ok(()) };
            let id = call.keys.add_to_stream(&mut open, wanted, &body).await?;
            let trimmed = match trim {
                None => 0,
                Some(trim) => call.keys.trim_stream(&mut open, trim).await?,
            };
            added = Some(Added { id, trimmed });
            call.keys.close_stream(open).await
        })
        .await?;
    }
    let Some(added) = added else {
        call.reply.null();
        return Ok(());
    };
    if added.trimmed > 0 {
        call.keys.note_event(key, "xtrim");
    }
    call.reply.bulk(added.id.to_string().as_bytes());
    Ok(())
}

/// `XLEN key`.
pub(super) async fn xlen(call: &mut Call<'_>) -> Result<(), Fault> {
    let stream = call.keys.stream(call.args.get(1)).await?;
    call.reply.integer(signed(stream.map_or(0, |stream| stream.length)));
    Ok(())
}

/// Converts a count to the integer of a reply.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Removes entries of the stream that the first argument names, in a transaction. `remove` returns their
/// number.
async fn remove_within(
    call: &mut Call<'_>,
    remove: impl AsyncFn(&mut Call<'_>, &mut OpenStream) -> Result<u64, Fault>,
) -> Result<u64, Fault> {
    let mut removed = 0;
    within(call, async |call| {
        removed = 0;
        let Some(mut open) = call.keys.open_stream(call.args.get(1), false).await? else { return Ok(()) };
        removed = remove(call, &mut open).await?;
        if removed > 0 { call.keys.close_stream(open).await } else { Ok(()) }
    })
    .await?;
    Ok(removed)
}

/// `XDEL key id…`.
pub(super) async fn xdel(call: &mut Call<'_>) -> Result<(), Fault> {
    let key = call.args.get(1);
    // Redis reads the key first.
    if call.keys.stream(key).await?.is_none() {
        call.reply.integer(0);
        return Ok(());
    }
    let ids = ids_from(call, 2)?;
    let deleted = match call.keys.delete_in_place(key, &ids).await? {
        InPlace::Done(deleted) => deleted,
        InPlace::Several => {
            remove_within(call, async |call, open| call.keys.delete_from_stream(open, &ids).await).await?
        }
    };
    call.reply.integer(signed(deleted));
    Ok(())
}

/// `XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count]`.
pub(super) async fn xtrim(call: &mut Call<'_>) -> Result<(), Fault> {
    let key = call.args.get(1);
    let adding = Adding::parse(call, false)?;
    let Some(trim) = adding.trim else { return Err(SYNTAX) };
    let trimmed = match call.keys.trim_in_place(key, &trim).await? {
        InPlace::Done(trimmed) => trimmed,
        InPlace::Several => {
            remove_within(call, async |call, open| call.keys.trim_stream(open, &trim).await).await?
        }
    };
    call.reply.integer(signed(trimmed));
    Ok(())
}

/// `XSETID key id [ENTRIESADDED count] [MAXDELETEDID id]`.
pub(super) async fn xsetid(call: &mut Call<'_>) -> Result<(), Fault> {
    let (args, key) = (call.args, call.args.get(1));
    let last = id(args.get(2), 0)?;
    let (mut added, mut deleted, mut words) = (None, None, args.from(3));
    while let Some(word) = words.next() {
        let value = words.next().ok_or(SYNTAX)?;
        match &word.to_ascii_lowercase()[..] {
            b"entriesadded" => {
                let count = number::integer(value).ok_or(NO_INTEGER)?;
                let negative = |_| Fault::said("ERR entries_added must be positive");
                added = Some(u64::try_from(count).map_err(negative)?);
            }
            b"maxdeletedid" => {
                let given = id(value, 0)?;
                if last < given {
                    return Err(Fault::said(
                        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                    ));
                }
                deleted = Some(given).filter(|id| *id != StreamId::ZERO);
            }
            _ => return Err(SYNTAX),
        }
    }
    let no_such_key = || Fault::said("ERR no such key");
    let stream = call.keys.stream(key).await?.ok_or_else(no_such_key)?;
    // The last entry is only read if the head has none.
    let mut walk = StreamWalk::new(key, &stream, StreamId::ZERO..=StreamId::MAX, true);
    let piece = call.keys.next_entries(&mut walk).await?;
    let top = piece.map(|piece| Ok::<_, Fault>(piece.entries()?.first().map(|entry| entry.id)));
    let top = top.transpose()?.flatten();
    call.keys.set_last_id(key, last, added, deleted, top).await?.ok_or_else(no_such_key)?;
    call.reply.ok();
    Ok(())
}
