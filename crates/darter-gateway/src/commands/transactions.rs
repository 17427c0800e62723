//! Transactions: `MULTI` queues the commands that follow, and `EXEC` executes them in one
//! transaction of the index. After a conflict with another client it executes all of them again. A
//! single command that changes several records is executed in the same way.
//!
//! An index without transactions (DART) refuses `MULTI`. So that no part of its body takes effect,
//! every command after it is also rejected until `EXEC` or `DISCARD`, as in an aborted transaction
//! of Redis. Clients then report the error of `MULTI`.

use super::{monitor, notifying, permission, publishing, tracking};
use crate::call::{Call, Client};
use crate::fault::Fault;
use crate::keyspace::{Retries, Scoped};
#[cfg(feature = "scripts")]
use crate::lua::Purpose;
use crate::named_keys::{self, destinations};
#[cfg(feature = "scripts")]
use crate::pause::is_writing;
use crate::queue::{Mode, Queue};
use crate::request::Arguments;
use crate::statistics::Ending;
use crate::table::{Command, CommandId};
use crate::turns;
use darter::{IndexError, TransactionError};
use std::collections::BTreeSet;

/// Most keys that a client watches.
const WATCHED_MAX: usize = 10_000;
/// Most elements of the keys that are copied, renamed or combined in a transaction.
const COPIED_MAX: usize = 10_000;
/// Runs after which the pauses between them no longer grow.
const DOUBLINGS_MAX: u16 = 10;

/// Returns whether a command is executed at once, even after `MULTI`.
fn is_heard(command: Option<&Command>) -> bool {
    use CommandId::{Discard, Exec, Multi, Quit, Reset, Watch};
    command.is_some_and(|command| matches!(command.id, Discard | Exec | Multi | Quit | Reset | Watch))
}

/// Returns whether a command cannot be part of a transaction: its effect is outside of the index,
/// or it takes several steps.
fn is_excluded(id: CommandId) -> bool {
    use CommandId::{
        Acl, Auth, Client, Config, Flushall, Flushdb, Hello, Hscan, Meet, Randomkey, Scan, Slowlog, Sscan,
        Tell, Zscan,
    };
    matches!(
        id,
        Acl | Auth
            | Client
            | Config
            | Flushall
            | Flushdb
            | Hello
            | Hscan
            | Meet
            | Randomkey
            | Scan
            | Slowlog
            | Sscan
            | Tell
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
    // It reads nothing of the index.
    let is_config_get = command.id == CommandId::Config
        && call.args.from(1).next().is_some_and(|name| name.eq_ignore_ascii_case(b"get"));
    if is_excluded(command.id) && !is_config_get {
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
pub(super) fn supported(call: &Call<'_>, name: &str) -> Result<(), Fault> {
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
    let held = watched.keys().cloned().collect();
    let (start, database) = (call.reply.position(), call.client.database);
    let mut is_executed = false;
    atomically(call, held, async |call| {
        let in_database = queue.requests().take_while(|(command, _)| command.id != CommandId::Select);
        let read = in_database.flat_map(|(command, args)| keys_read(command, args));
        let own = watched.keys().filter(|(number, _)| *number == database).map(|(_, key)| &key[..]);
        call.keys.read_heads(own.chain(read)).await?;
        for ((number, key), digest) in &watched {
            call.keys.select(*number)?;
            if call.keys.digest(key).await? != *digest {
                call.reply.take_back(start);
                call.reply.null_array();
                return Ok(Body::Abandoned);
            }
        }
        execute(call, &queue).await?;
        is_executed = true;
        Ok(Body::Done)
    })
    .await?;
    if is_executed && call.shared.monitors.are_there() {
        show(call, &queue, database);
    }
    Ok(())
}

/// Shows the commands of a transaction that began in a database.
fn show(call: &Call<'_>, queue: &Queue, mut database: u8) {
    for (command, args) in queue.requests() {
        if command.id == CommandId::Select {
            database = super::connection::database(args.get(1)).unwrap_or(database);
        }
        monitor::show_in(call, database, command, &args);
    }
}

/// Returns the keys whose heads a command reads, as far as its arguments show.
fn keys_read<'a>(command: &'static Command, args: Arguments<'a>) -> impl Iterator<Item = &'a [u8]> {
    use CommandId::{Mset, Psetex, Set, Setex, Spublish, Ssubscribe, Sunsubscribe};
    let is_reading = |option: &[u8]| {
        [&b"get"[..], b"keepttl", b"nx", b"xx"].iter().any(|name| option.eq_ignore_ascii_case(name))
    };
    let reads = match command.id {
        // The keys of the last three are channels.
        Mset | Psetex | Setex | Spublish | Ssubscribe | Sunsubscribe => false,
        Set => args.from(3).any(is_reading),
        _ => true,
    };
    let count = if reads { args.len() } else { 0 };
    command.keys_at(count).map(move |at| args.get(at))
}

/// Returns whether a command changes several keys, and is executed as one transaction.
pub(super) fn is_one(call: &Call<'_>, id: CommandId) -> bool {
    use CommandId::{
        Bitop, Del, Georadius, Georadiusbymember, Geosearchstore, Move, Mset, Msetnx, Pfmerge, Smove, Sort,
        Unlink,
    };
    let changes_several = match id {
        Bitop | Geosearchstore | Move | Smove => true,
        Del | Pfmerge | Unlink => call.args.len() > 2,
        Mset | Msetnx => call.args.len() > 3,
        Georadius | Georadiusbymember | Sort => !destinations(id, &call.args, 0).is_empty(),
        id if is_transfer(id) => true,
        _ => false,
    };
    changes_several && call.shared.has_transactions
}

/// Returns whether a command makes a value from other keys, which can also be done without a
/// transaction.
fn is_transfer(id: CommandId) -> bool {
    use CommandId::{
        Copy, Rename, Renamenx, Sdiffstore, Sinterstore, Sort, Sunionstore, Zdiffstore, Zinterstore,
        Zrangestore, Zunionstore,
    };
    matches!(
        id,
        Copy | Rename
            | Renamenx
            | Sdiffstore
            | Sinterstore
            | Sort
            | Sunionstore
            | Zdiffstore
            | Zinterstore
            | Zrangestore
            | Zunionstore
    )
}

/// Returns whether keys have together more elements than are copied in a transaction.
async fn are_large<'k>(call: &mut Call<'_>, keys: impl Iterator<Item = &'k [u8]>) -> Result<bool, Fault> {
    let mut left = COPIED_MAX + 1;
    for key in keys {
        left -= call.keys.count_elements(key, left).await?;
        if left == 0 {
            return Ok(true);
        }
        turns::worked().await;
    }
    Ok(false)
}

/// Executes a command as one transaction. Keys that are too large for a transaction are copied,
/// renamed and stored without one.
///
/// # Errors
/// Those of the command, and as for [`atomically`].
pub(super) async fn run_alone(call: &mut Call<'_>, command: &'static Command) -> Result<(), Fault> {
    let args = call.args;
    // A key is copied to another database in a transaction, or not at all.
    let is_transfer = is_transfer(command.id) && named_keys::sent_to(command.id, &args).is_none();
    let sources = named_keys::sources(command.id, &args, 0);
    let sources = sources.filter(|_| is_transfer).map(|at| args.get(at));
    let start = call.reply.position();
    let held = sources.clone().map(|key| (call.client.database, key.to_vec())).collect();
    let mut is_large = false;
    let done = atomically(call, held, async |call| {
        call.keys.read_heads(keys_read(command, args).chain(sources.clone())).await?;
        is_large = are_large(call, sources.clone()).await?;
        if is_large {
            return Ok(Body::Abandoned);
        }
        super::run(command.id, call).await?;
        // To verify that records are absent would cost as much as to add them.
        Ok(if call.keys.is_changing() { Body::Done } else { Body::Abandoned })
    });
    let done = done.await;
    let is_too_large = |fault| is_transfer && is_too_large(fault);
    if is_large || done.as_ref().is_err_and(is_too_large) {
        call.reply.take_back(start);
        return super::run(command.id, call).await;
    }
    done
}

/// Returns whether a command failed because of the limits on transactions.
pub(super) fn is_too_large(fault: &Fault) -> bool {
    use TransactionError::{TooLarge, TooManyBytes};
    use darter::Error::{Index, Transaction};
    let Fault::Store(error) = fault else { return false };
    matches!(
        error,
        Transaction(TooLarge { .. } | TooManyBytes { .. }) | Index(IndexError::ValueTooLong { .. })
    )
}

/// The end of the commands of a transaction.
pub(super) enum Body {
    /// All were executed; their changes should take effect.
    Done,
    /// Their changes are discarded, and the reply is complete.
    Abandoned,
}

/// Runs a part of a command in the transaction in progress, or in its own one.
///
/// # Errors
/// Those of `body`, as for [`atomically`], and one if the index has no transactions.
pub(super) async fn within(
    call: &mut Call<'_>,
    mut body: impl AsyncFnMut(&mut Call<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if call.keys.is_in_transaction() {
        return Box::pin(body(call)).await;
    }
    supported(call, "a change of a key that takes several records")?;
    let run = async |call: &mut Call<'_>| {
        body(call).await?;
        Ok(Body::Done)
    };
    Box::pin(atomically(call, BTreeSet::new(), run)).await
}

/// Runs commands in a transaction of the index, again after each conflict with another client.
/// `held` are keys all of whose elements are read.
///
/// # Errors
/// Those of `body` and of the store, and one after five seconds of conflicts. Nothing has changed
/// then.
pub(super) async fn atomically(
    call: &mut Call<'_>,
    held: BTreeSet<Scoped>,
    body: impl AsyncFnMut(&mut Call<'_>) -> Result<Body, Fault>,
) -> Result<(), Fault> {
    let done = repeatedly(call, held, body).await;
    if let Err(fault) = call.keys.release().await {
        // The transaction has ended.
        call.shared.note(&fault);
    }
    done
}

async fn repeatedly(
    call: &mut Call<'_>,
    mut held: BTreeSet<Scoped>,
    mut body: impl AsyncFnMut(&mut Call<'_>) -> Result<Body, Fault>,
) -> Result<(), Fault> {
    let (start, mut retries, mut attempt) = (call.reply.position(), Retries::default(), 0_u16);
    let database = call.client.database;
    loop {
        let run = once(call, &mut held, attempt, &mut body).await;
        if matches!(run, Ok(true)) {
            return Ok(());
        }
        call.select(database)?;
        run?;
        call.reply.take_back(start);
        attempt = attempt.saturating_add(1);
        for _ in 0..darter_fabric::random_word() % (1 << attempt.min(DOUBLINGS_MAX)) {
            tokio::task::yield_now().await;
        }
        let nothing = "ERR transaction conflicts with other clients: gave up after 5 s; nothing was executed";
        retries.again().await.map_err(|_| Fault::said(nothing))?;
    }
}

/// Runs a transaction once, and then sends what it has published. Returns false if another client has
/// changed a key in between; then `held` has the keys that the next run needs.
pub(super) async fn once(
    call: &mut Call<'_>,
    held: &mut BTreeSet<Scoped>,
    attempt: u16,
    body: &mut impl AsyncFnMut(&mut Call<'_>) -> Result<Body, Fault>,
) -> Result<bool, Fault> {
    let run = run_and_commit(call, held, attempt, body).await;
    held.extend(call.keys.unheld());
    call.keys.roll_back();
    if matches!(run, Ok(true)) {
        publishing::send(call).await;
    } else {
        // It will not take effect, at least not in this run.
        call.client.published.take();
    }
    run
}

async fn run_and_commit(
    call: &mut Call<'_>,
    held: &BTreeSet<Scoped>,
    attempt: u16,
    body: &mut impl AsyncFnMut(&mut Call<'_>) -> Result<Body, Fault>,
) -> Result<bool, Fault> {
    Box::pin(call.keys.begin(attempt, held)).await?;
    // To put heads in doubt changes no key.
    call.keys.take_events();
    let done = body(call).await;
    if call.keys.is_torn() {
        return Ok(false);
    }
    match done? {
        Body::Done => Box::pin(call.keys.commit()).await,
        Body::Abandoned => {
            call.client.published.take();
            Ok(true)
        }
    }
}

/// Executes the commands of a queue.
async fn execute(call: &mut Call<'_>, queue: &Queue) -> Result<(), Fault> {
    call.reply.array(queue.len());
    for (command, args) in queue.requests() {
        let Call { keys, reply, client, shared, .. } = call;
        let mut one = Call { args, keys, reply: reply.again(), client, shared };
        match permission::check_queued(&one, command) {
            Ok(()) => {
                run_one(command, &mut one).await?;
            }
            Err(fault) => {
                one.reply.error(&fault.text());
                one.shared.note(&fault);
            }
        }
        call.limit()?;
        turns::worked().await;
    }
    Ok(())
}

/// Runs a command of a transaction. An error becomes its reply, unless it ends the transaction.
/// Returns how the command ended.
pub(super) async fn run_one(command: &Command, call: &mut Call<'_>) -> Result<Ending, Fault> {
    let position = call.reply.position();
    // The command before may have failed in another one.
    call.keys.select(call.client.database)?;
    tracking::will_read(call, command);
    if command.is("write") && call.shared.waiting.is_any() {
        let keys = command.keys_at(call.args.len()).chain(destinations(command.id, &call.args, 0));
        let keys = keys.map(|at| (call.client.database, call.args.get(at).to_vec()));
        call.keys.changed.extend(keys.chain(named_keys::sent_to(command.id, &call.args)));
    }
    match super::run(command.id, call).await {
        Ok(()) => {
            notifying::report(call, command).await?;
            Ok(Ending::Done)
        }
        Err(fault) if ends_transaction(&fault) => Err(fault),
        Err(fault) => {
            call.reply.take_back(position);
            call.reply.error(&fault.text());
            call.shared.note(&fault);
            Ok(Ending::Failed)
        }
    }
}

/// Runs a command that a script calls, in the transaction of the script.
#[cfg(feature = "scripts")]
pub(super) async fn run_from_script(call: &mut Call<'_>, purpose: Purpose) -> Result<(), Fault> {
    if purpose == Purpose::Permission {
        match Command::named(call.args.get(0)) {
            Some(command) => call.reply.flag(permission::allows(call.client, command, &call.args)),
            None => call.reply.error("ERR unknown command"),
        }
        return Ok(());
    }
    let refused = match Command::named(call.args.get(0)) {
        None => "ERR Unknown Redis command called from script",
        Some(command) if !command.takes(call.args.len()) => {
            "ERR Wrong number of args calling Redis command from script"
        }
        Some(command) if command.is("noscript") || is_excluded(command.id) => {
            "ERR This Redis command is not allowed from script"
        }
        Some(_) if super::stream_arguments::waits(&call.args) => {
            let name = String::from_utf8_lossy(call.args.get(0));
            let refused = format!("ERR {name} command is not allowed with BLOCK option from scripts");
            call.reply.error(&refused);
            return Ok(());
        }
        Some(command) if purpose == Purpose::Read && is_writing(command) => {
            "ERR Write commands are not allowed from read-only scripts."
        }
        Some(command) if let Some(denied) = permission::denied_to_script(call, command) => denied,
        Some(command) => {
            run_one(command, call).await?;
            monitor::show_from_script(call, command);
            turns::worked().await;
            return Ok(());
        }
    };
    call.reply.error(refused);
    Ok(())
}

/// Returns whether the error of a command is one of the store, after which no other command is
/// executed.
fn ends_transaction(fault: &Fault) -> bool {
    use IndexError::{KeyTooLong, ValueTooLong};
    match fault {
        Fault::Said(_) | Fault::Store(darter::Error::Index(KeyTooLong { .. } | ValueTooLong { .. })) => false,
        Fault::Ended(_) | Fault::Store(_) => true,
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
        let scoped = (call.client.database, key.to_vec());
        if call.client.watched.contains_key(&scoped) {
            continue;
        }
        if call.client.watched.len() == WATCHED_MAX {
            return Err(Fault::said("ERR too many watched keys; nothing more is watched"));
        }
        let digest = call.keys.digest(key).await?;
        call.client.watched.insert(scoped, digest);
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
