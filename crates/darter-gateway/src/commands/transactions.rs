//! Transactions: `MULTI` queues the commands that follow, and `EXEC` executes them in one
//! transaction of the index. After a conflict with another client it executes all of them again.
//!
//! An index without transactions (DART) refuses `MULTI`. So that no part of its body takes effect,
//! every command after it is also rejected until `EXEC` or `DISCARD`, as in an aborted transaction
//! of Redis. Clients then report the error of `MULTI`.

use crate::call::{Call, Client};
use crate::fault::Fault;
use crate::keyspace::Retries;
use crate::queue::{Mode, Queue, Watched};
use crate::table::{Command, CommandId};
use crate::turns;
use darter::IndexError;
use std::collections::BTreeSet;

/// Most keys that a client watches.
const WATCHED_MAX: usize = 10_000;
/// Runs after which the pauses between them no longer grow.
const DOUBLINGS_MAX: u16 = 10;

/// The end of a run of a transaction.
enum Run {
    /// Its changes have taken effect.
    Committed,
    /// Another client has changed a key in between.
    Conflict,
    /// A watched key has changed.
    Overtaken,
}

/// Returns whether a command is executed at once, even after `MULTI`.
fn is_heard(command: Option<&Command>) -> bool {
    use CommandId::{Discard, Exec, Multi, Quit, Reset, Watch};
    command.is_some_and(|command| matches!(command.id, Discard | Exec | Multi | Quit | Reset | Watch))
}

/// Returns whether a command cannot be part of a transaction: its effect is outside of the index,
/// or it walks over keys, among which others may appear.
fn is_excluded(id: CommandId) -> bool {
    use CommandId::{
        Auth, Client, Config, Dbsize, Flushall, Flushdb, Hello, Hscan, Keys, Randomkey, Range, Rangecount,
        Scan, Slowlog, Zscan,
    };
    matches!(
        id,
        Auth | Client
            | Config
            | Dbsize
            | Flushall
            | Flushdb
            | Hello
            | Hscan
            | Keys
            | Randomkey
            | Range
            | Rangecount
            | Scan
            | Slowlog
            | Zscan
    )
}

/// Fails if a request is part of a refused transaction.
pub(super) fn check(client: &Client, command: Option<&Command>) -> Result<(), Fault> {
    if client.queue.as_ref().is_some_and(|queue| queue.mode == Mode::Refused) && !is_heard(command) {
        return Err(Fault::said(
            "ERR not executed: it follows a MULTI that was refused, because this pool's index has no transactions",
        ));
    }
    Ok(())
}

/// Queues a command, if the client has begun a transaction. Returns whether it did.
pub(super) fn queue(call: &mut Call<'_>, command: &'static Command) -> Result<bool, Fault> {
    let Some(queue) = call.client.queue.as_mut().filter(|_| !is_heard(Some(command))) else {
        return Ok(false);
    };
    if is_excluded(command.id) {
        let name = command.name.to_ascii_uppercase();
        return Err(Fault::said(format!("ERR Command not allowed inside a transaction: {name}")));
    }
    if queue.mode == Mode::Queuing && !queue.add(command, &call.args) {
        return Err(Fault::said("ERR the transaction is too large; split it"));
    }
    call.reply.simple("QUEUED");
    Ok(true)
}

/// Fails if the index has no transactions.
fn supported(call: &Call<'_>, name: &str) -> Result<(), Fault> {
    if call.shared.has_transactions {
        return Ok(());
    }
    Err(Fault::said(format!("ERR {name} is refused: this pool's index has no transactions")))
}

/// `MULTI`.
pub(super) fn multi(call: &mut Call<'_>) -> Result<(), Fault> {
    if call.client.queue.is_some() {
        return Err(Fault::said("ERR MULTI calls can not be nested"));
    }
    let mode = if call.shared.has_transactions { Mode::Queuing } else { Mode::Refused };
    call.client.queue = Some(Box::new(Queue::new(mode)));
    if mode == Mode::Refused {
        return Err(Fault::said(
            "ERR MULTI is refused: this pool's index has no transactions; nothing is executed until EXEC or DISCARD",
        ));
    }
    call.reply.ok();
    Ok(())
}

/// `EXEC`.
pub(super) async fn exec(call: &mut Call<'_>) -> Result<(), Fault> {
    let Some(queue) = call.client.queue.take() else { return Err(Fault::said("ERR EXEC without MULTI")) };
    let watched = std::mem::take(&mut call.client.watched);
    if queue.mode != Mode::Queuing {
        return Err(Fault::said("EXECABORT Transaction discarded because of previous errors."));
    }
    let mut held: BTreeSet<_> = watched.keys().cloned().collect();
    let (start, mut retries, mut attempt) = (call.reply.position(), Retries::default(), 0_u16);
    loop {
        let run = execute(call, &queue, &watched, &held, attempt).await;
        held.extend(call.keys.unheld());
        call.keys.roll_back();
        match run? {
            Run::Committed => return Ok(()),
            Run::Overtaken => {
                call.reply.take_back(start);
                call.reply.null_array();
                return Ok(());
            }
            Run::Conflict => call.reply.take_back(start),
        }
        attempt = attempt.saturating_add(1);
        for _ in 0..darter_fabric::random_word() % (1 << attempt.min(DOUBLINGS_MAX)) {
            tokio::task::yield_now().await;
        }
        let nothing = "ERR transaction conflicts with other clients: gave up after 5 s; nothing was executed";
        retries.again().await.map_err(|_| Fault::said(nothing))?;
    }
}

/// Executes the commands of a transaction once, and commits it.
async fn execute(
    call: &mut Call<'_>,
    queue: &Queue,
    watched: &Watched,
    held: &BTreeSet<Vec<u8>>,
    attempt: u16,
) -> Result<Run, Fault> {
    call.keys.begin(attempt, held).await?;
    for (key, digest) in watched {
        if call.keys.digest(key).await? != *digest {
            return Ok(Run::Overtaken);
        }
    }
    call.reply.array(queue.len());
    for (command, args) in queue.requests() {
        let Call { keys, reply, client, shared, .. } = call;
        let mut inner = Call { args, keys, reply: reply.again(), client, shared };
        let position = inner.reply.position();
        if let Err(fault) = Box::pin(super::run(command.id, &mut inner)).await {
            if ends_transaction(&fault) {
                return Err(fault);
            }
            inner.reply.take_back(position);
            inner.reply.error(&fault.text());
            shared.note(&fault);
        }
        call.limit()?;
        turns::worked().await;
    }
    Ok(if call.keys.commit().await? { Run::Committed } else { Run::Conflict })
}

/// Returns whether the error of a command is one of the store, after which no other command is
/// executed.
fn ends_transaction(fault: &Fault) -> bool {
    use IndexError::{KeyTooLong, ValueTooLong};
    match fault {
        Fault::Said(_) | Fault::Store(darter::Error::Index(KeyTooLong { .. } | ValueTooLong { .. })) => false,
        Fault::Store(_) => true,
    }
}

/// `DISCARD`.
pub(super) fn discard(call: &mut Call<'_>) -> Result<(), Fault> {
    if call.client.queue.take().is_none() {
        return Err(Fault::said("ERR DISCARD without MULTI"));
    }
    call.client.watched.clear();
    call.reply.ok();
    Ok(())
}

/// `WATCH key…`.
pub(super) async fn watch(call: &mut Call<'_>) -> Result<(), Fault> {
    if call.client.queue.is_some() {
        return Err(Fault::said("ERR WATCH inside MULTI is not allowed"));
    }
    supported(call, "WATCH")?;
    for key in call.args.from(1) {
        turns::worked().await;
        if call.client.watched.contains_key(key) {
            continue;
        }
        if call.client.watched.len() == WATCHED_MAX {
            return Err(Fault::said("ERR too many watched keys; nothing more is watched"));
        }
        let digest = call.keys.digest(key).await?;
        call.client.watched.insert(key.to_vec(), digest);
    }
    call.reply.ok();
    Ok(())
}

/// `UNWATCH`.
pub(super) fn unwatch(call: &mut Call<'_>) -> Result<(), Fault> {
    supported(call, "UNWATCH")?;
    call.client.watched.clear();
    call.reply.ok();
    Ok(())
}
