//! Commands for keys of any type.

use super::connection::database;
use super::transactions::supported;
use crate::call::Call;
use crate::fault::{Fault, SYNTAX};
use crate::keyspace::{DATABASES, Destination, KeyRange, Transferred, Walked};
use crate::turns;

/// `DEL key…`, `UNLINK key…`.
pub(super) async fn del(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut removed = 0;
    for key in call.args.from(1) {
        removed += i64::from(call.keys.remove(key).await?);
        turns::worked().await;
    }
    call.reply.integer(removed);
    Ok(())
}

/// `EXISTS key…`, `TOUCH key…`.
pub(super) async fn exists(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut found = 0;
    for key in call.args.from(1) {
        found += i64::from(call.keys.look(key, |head| head.is_some()).await?);
        turns::worked().await;
    }
    call.reply.integer(found);
    Ok(())
}

/// `TYPE key`.
pub(super) async fn kind(call: &mut Call<'_>) -> Result<(), Fault> {
    let kind = call.keys.look(call.args.get(1), |head| head.map(|head| head.kind)).await?;
    call.reply.simple(kind.map_or("none", |kind| kind.name()));
    Ok(())
}

/// Returns the error for a source that does not exist.
fn no_such_key() -> Fault {
    Fault::said("ERR no such key")
}

/// `RENAME key newkey`.
pub(super) async fn rename(call: &mut Call<'_>) -> Result<(), Fault> {
    if transfer(call, Destination::Replaced).await? == Transferred::NoSource {
        return Err(no_such_key());
    }
    call.reply.ok();
    Ok(())
}

/// `RENAMENX key newkey`.
pub(super) async fn renamenx(call: &mut Call<'_>) -> Result<(), Fault> {
    let transferred = transfer(call, Destination::Kept).await?;
    if transferred == Transferred::NoSource {
        return Err(no_such_key());
    }
    call.reply.flag(transferred == Transferred::Done);
    Ok(())
}

async fn transfer(call: &mut Call<'_>, destination: Destination) -> Result<Transferred, Fault> {
    let (from, to) = (call.args.get(1), call.args.get(2));
    if from != to {
        return call.keys.rename(from, to, destination).await;
    }
    let exists = call.keys.look(from, |head| head.is_some()).await?;
    Ok(match destination {
        _ if !exists => Transferred::NoSource,
        Destination::Replaced => Transferred::Done,
        Destination::Kept => Transferred::Kept,
    })
}

/// Sends a key to another database, in a transaction.
async fn send(
    call: &mut Call<'_>,
    to: (u8, &[u8]),
    destination: Destination,
    moves: bool,
) -> Result<(), Fault> {
    supported(call, "a change of two databases")?;
    let transferred = call.keys.send(call.args.get(1), to, destination, moves).await?;
    call.reply.flag(transferred == Transferred::Done);
    Ok(())
}

/// `MOVE key database`.
pub(super) async fn move_key(call: &mut Call<'_>) -> Result<(), Fault> {
    let database = database(call.args.get(2))?;
    if database == call.client.database {
        return Err(Fault::said("ERR source and destination objects are the same"));
    }
    send(call, (database, call.args.get(1)), Destination::Kept, true).await
}

/// `COPY source destination [DB database] [REPLACE]`.
pub(super) async fn copy(call: &mut Call<'_>) -> Result<(), Fault> {
    let (mut destination, mut options) = (Destination::Kept, call.args.from(3));
    let mut to_database = call.client.database;
    while let Some(option) = options.next() {
        match &option.to_ascii_lowercase()[..] {
            b"replace" => destination = Destination::Replaced,
            b"db" => to_database = database(options.next().ok_or(SYNTAX)?)?,
            _ => return Err(SYNTAX),
        }
    }
    let (from, to) = (call.args.get(1), call.args.get(2));
    if to_database != call.client.database {
        return send(call, (to_database, to), destination, false).await;
    }
    if from == to {
        return Err(Fault::said("ERR source and destination objects are the same"));
    }
    let transferred = call.keys.copy(from, to, destination).await?;
    call.reply.flag(transferred == Transferred::Done);
    Ok(())
}

/// Keys that a flush removes at a time.
const FLUSHED: usize = 1000;

/// `FLUSHALL [ASYNC|SYNC]`, `FLUSHDB [ASYNC|SYNC]`.
pub(super) async fn flush(call: &mut Call<'_>, is_all: bool) -> Result<(), Fault> {
    let is_way = |way: &[u8]| way.eq_ignore_ascii_case(b"async") || way.eq_ignore_ascii_case(b"sync");
    if call.args.len() > 2 || !call.args.from(1).all(is_way) {
        return Err(SYNTAX);
    }
    if !call.shared.options.allow_flush {
        return Err(Fault::said(
            "ERR FLUSHALL and FLUSHDB are not allowed here; start the gateway with --allow-flush",
        ));
    }
    call.keys.note_everything();
    let databases = if is_all { 0..DATABASES } else { call.client.database..call.client.database + 1 };
    for database in databases {
        call.keys.select(database)?;
        flush_selected(call).await?;
    }
    call.keys.select(call.client.database)?;
    call.reply.ok();
    Ok(())
}

/// Removes the keys of the selected database.
async fn flush_selected(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut part = KeyRange::all();
    loop {
        let mut met = Vec::new();
        let walked = call.keys.walk(&mut part, FLUSHED, |key, _| met.push(key.to_vec())).await?;
        for key in met {
            call.keys.remove(&key).await?;
            turns::worked().await;
        }
        if walked == Walked::Through {
            return Ok(());
        }
    }
}
