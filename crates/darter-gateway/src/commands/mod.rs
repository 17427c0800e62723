//! The commands, with a file for each family, and their dispatch. The list of commands is in
//! `table.rs`.

mod acl;
mod arguments;
mod bit_fields;
mod bits;
mod blocking;
mod client;
mod config;
mod connection;
mod description;
mod dump;
mod elements;
#[cfg(feature = "scripts")]
mod evaluation;
mod expiry;
mod field_expiry;
#[cfg(feature = "scripts")]
mod function_dumps;
#[cfg(feature = "scripts")]
mod functions;
mod geo;
mod geo_search;
mod group_reads;
mod hashes;
mod hyperloglog;
mod information;
mod key_specs;
mod keys;
mod latency;
mod lcs;
mod list_edits;
mod list_reads;
mod lists;
mod memory;
mod monitor;
mod notifying;
mod numbers;
mod object;
mod ordered;
mod peer;
mod permission;
mod publishing;
mod random;
mod ranks;
mod runs;
mod runs_of_lists;
mod scan;
#[cfg(feature = "scripts")]
mod scripting;
#[cfg(not(feature = "scripts"))]
#[path = "no_scripting.rs"]
mod scripting;
mod server;
mod set_operations;
mod sets;
mod slowlog;
mod sort;
mod sorted_set_operations;
mod sorted_sets;
mod stream_arguments;
mod stream_claims;
mod stream_groups;
mod stream_info;
mod stream_reads;
mod streams;
mod strings;
mod tracking;
mod transactions;

pub(super) use crate::tracking::report as report_changes;
pub(super) use notifying::report_expired;
pub(super) use permission::refresh as refresh_user;
pub(super) use runs::{execute_run, run_length};
#[cfg(feature = "scripts")]
pub(super) use scripting::runs_scripts;

use super::call::{Ahead, Caching, Call, Client, Replies, cut, shown, wrong_arity};
use super::fault::Fault;
use super::keyspace::{End, Join, Kind};
use super::named_keys;
use super::pause;
use super::pubsub;
use super::request::Arguments;
use super::statistics::Ending;
use super::subcommands::Subcommand;
use super::table::{Command, CommandId, for_each_command};
use ranks::By;
use std::future::ready;
use std::pin::{Pin, pin};

macro_rules! dispatch {
    ($call:ident; $($group:literal {$(
        $id:ident $name:literal $arity:literal [$($flag:ident)*] ($first:literal $last:literal $step:literal) $since:literal
        => $run:expr, $summary:literal, $note:literal;
    )*})*) => {
        /// Runs a command whose number of arguments is valid. Each group has its own function: without
        /// optimization, the stack of a function has room for the futures of all its commands.
        async fn run(id: CommandId, $call: &mut Call<'_>) -> Result<(), Fault> {
            match id {
                $($(CommandId::$id)|* => {
                    async fn run_group(id: CommandId, $call: &mut Call<'_>) -> Result<(), Fault> {
                        match id {
                            $(CommandId::$id => boxed(move || $run).await,)*
                            _ => unreachable!("the command is not in the group {}", $group),
                        }
                    }
                    run_group(id, $call).await
                })*
            }
        }
    };
}

for_each_command! { dispatch }

/// Creates the future of a command on the heap. Within [`run`], each command would move as many bytes
/// as the largest one has.
fn boxed<F: Future>(create: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::pin(create())
}

/// Runs the command named by a request and writes its reply, which is an error if the command
/// failed or did not run. Returns the command, if it exists, and how it ended.
pub(super) async fn perform(call: &mut Call<'_>) -> Option<(&'static Command, Ending)> {
    let start = call.reply.position();
    let command = Command::named(call.args.get(0));
    notifying::begin(call);
    let unreported = tracking::begin(call);
    let mut ending = Ending::Rejected;
    let attempted = pin!(attempt(call, command, &mut ending)).await;
    unreported.report(call);
    if call.shared.peers.track() {
        call.shared.peers.make_room().await;
    }
    if let Err(fault) = attempted {
        call.reply.take_back(start);
        if call.client.ahead != Ahead::GivenUp {
            call.reply.error(&fault.text());
            call.shared.note(&fault);
        }
    }
    call.client.is_resp3 = call.reply.is_resp3();
    // `CLIENT CACHING` applies to the next request, or to a transaction.
    if call.client.queue.is_none() && command.is_none_or(|command| command.id != CommandId::Client) {
        call.client.caching = Caching::Usual;
    }
    call.client.info.has_queued(call.client.queue.as_ref().map(|queue| queue.len()));
    if call.client.replies != Replies::Sent && !has_to_wait(call.client) {
        let is_heard =
            ending == Ending::Done && command.is_some_and(|command| publishing::is_heard(command.id));
        hush(call, start, is_heard);
    }
    command.filter(|_| ending != Ending::Queued).map(|command| (command, ending))
}

/// Removes the reply to a request if the client wants none.
fn hush(call: &mut Call<'_>, start: usize, is_heard: bool) {
    if call.client.is_silent() && !is_heard {
        call.reply.take_back(start);
    }
    call.client.replies = match call.client.replies {
        Replies::Skip => Replies::Sent,
        Replies::SkipNext => Replies::Skip,
        replies => replies,
    };
}

/// Returns whether a request can change keys or send messages; `None` if it is refused at once.
pub(super) fn is_writing(args: &Arguments<'_>, client: &Client) -> Option<bool> {
    let command = Command::named(args.get(0)).filter(|command| command.takes(args.len()))?;
    if !client.is_trusted && !command.is_for_strangers() {
        return None;
    }
    Some(match &client.queue {
        Some(queue) if command.id == CommandId::Exec => {
            queue.requests().any(|(command, _)| pause::is_writing(command))
        }
        _ => pause::is_writing(command),
    })
}

async fn attempt(
    call: &mut Call<'_>,
    command: Option<&'static Command>,
    ending: &mut Ending,
) -> Result<(), Fault> {
    let admitted =
        admit(call, command).and_then(|command| Ok((command, transactions::queue(call, command)?)));
    let (command, is_queued) = admitted.inspect_err(|_| call.client.abort())?;
    if is_queued {
        *ending = Ending::Queued;
        return Ok(());
    }
    call.client.info.did(command, &call.args, call.client.is_resp3);
    *ending = Ending::Failed;
    call.keys.select(call.client.database)?;
    tracking::will_read(call, command);
    // A command that waits is shown once.
    let is_shown = call.shared.monitors.are_there() && call.client.waiter.is_none();
    // The commands that a script calls follow it.
    let is_script = is_shown && command.is("skip_monitor");
    if is_script {
        monitor::show(call, command, &call.args);
    }
    let ran = if transactions::is_one(call, command.id) {
        Box::pin(transactions::run_alone(call, command)).await
    } else {
        pin!(run(command.id, call)).await
    };
    if is_shown && !is_script {
        monitor::show(call, command, &call.args);
    }
    if call.shared.waiting.is_any() {
        wake(call, command);
    }
    ran?;
    if let Err(fault) = notifying::report(call, command).await {
        // The command has taken effect.
        call.shared.note(&fault);
    }
    *ending = Ending::Done;
    Ok(())
}

/// Returns whether the client's command has found no element, and waits for one.
pub(super) fn has_to_wait(client: &Client) -> bool {
    client.waiter.as_ref().is_some_and(|waiter| waiter.goes_on)
}

/// Wakes the clients that wait for elements which a command may have added.
#[cold]
fn wake(call: &mut Call<'_>, command: &Command) {
    use CommandId::{Eval, Evalsha, Exec, Fcall, Xack, Xautoclaim, Xclaim, Xreadgroup};
    // The last four add nothing for which a client waits.
    if has_to_wait(call.client) || matches!(command.id, Xack | Xautoclaim | Xclaim | Xreadgroup) {
        return;
    }
    let (waiting, peers, database) = (&call.shared.waiting, &call.shared.peers, call.client.database);
    if matches!(command.id, Eval | Evalsha | Exec | Fcall) {
        for key in std::mem::take(&mut call.keys.changed) {
            waiting.added(&key, peers);
        }
    } else if command.is("write") {
        let keys = command.keys_at(call.args.len());
        if keys.len() == 0 || command.is("movablekeys") {
            waiting.added_to_any(peers);
        }
        keys.for_each(|at| waiting.added(&(database, call.args.get(at).to_vec()), peers));
        if let Some(key) = named_keys::sent_to(command.id, &call.args) {
            waiting.added(&key, peers);
        }
    }
}

/// Returns the command, unless the client may not run it, or not with these arguments.
fn admit(call: &mut Call<'_>, command: Option<&'static Command>) -> Result<&'static Command, Fault> {
    transactions::check(call.client, command)?;
    let Some(command) = command else {
        // A web page made a browser send this: nothing else that the browser sends may take effect.
        let name = call.args.get(0);
        call.client.is_closing |= name.eq_ignore_ascii_case(b"host:") || name.eq_ignore_ascii_case(b"post");
        return Err(unknown(&call.args));
    };
    if !command.takes(call.args.len()) {
        return Err(wrong_arity(command.name));
    }
    if !call.client.is_trusted && !command.is_for_strangers() {
        return Err(Fault::said("NOAUTH Authentication required."));
    }
    permission::check(call, command)?;
    if call.client.is_listening() && !publishing::is_for_listeners(command.id) {
        let name = Subcommand::full_name(command, &call.args);
        return Err(Fault::said(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context"
        )));
    }
    Ok(command)
}

fn unknown(args: &Arguments<'_>) -> Fault {
    let mut beginning = Vec::new();
    for argument in args.from(1) {
        if beginning.len() >= 128 {
            break;
        }
        let shown = cut(argument, 128 - beginning.len());
        beginning.extend_from_slice(&[b"'", shown, b"' "].concat());
    }
    let (name, beginning) = (shown(args.get(0), 128), String::from_utf8_lossy(&beginning));
    Fault::said(format!("ERR unknown command '{name}', with args beginning with: {beginning}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_a_future_of_its_own_size() {
        fn bytes<F: Future>(_: impl FnOnce(CommandId, &'static mut Call<'static>) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = bytes(run);
        assert!(bytes <= 256, "{bytes} bytes move with each command");
    }
}
