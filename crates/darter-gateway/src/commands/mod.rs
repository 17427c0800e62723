//! The commands, with a file for each family, and their dispatch. The list of commands is in
//! `table.rs`.

mod config;
mod connection;
mod description;
mod elements;
#[cfg(feature = "scripts")]
mod evaluation;
mod expiry;
#[cfg(feature = "scripts")]
mod functions;
mod hashes;
mod information;
mod keys;
mod object;
mod ordered;
mod random;
mod ranks;
mod scan;
#[cfg(feature = "scripts")]
mod scripting;
#[cfg(not(feature = "scripts"))]
#[path = "no_scripting.rs"]
mod scripting;
mod set_operations;
mod sets;
mod slowlog;
mod sort;
mod sorted_set_operations;
mod sorted_sets;
mod strings;
mod transactions;

#[cfg(feature = "scripts")]
pub(super) use scripting::runs_scripts;

use super::call::{Ahead, Call, cut, shown, wrong_arity};
use super::fault::Fault;
use super::keyspace::{Join, Kind};
use super::request::Arguments;
use super::statistics::Ending;
use super::table::{Command, CommandId, for_each_command};
use ranks::By;
use std::pin::pin;

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
                            $(CommandId::$id => $run,)*
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

/// Runs the command named by a request and writes its reply, which is an error if the command
/// failed or did not run. Returns the command, if it exists, and how it ended.
pub(super) async fn perform(call: &mut Call<'_>) -> Option<(&'static Command, Ending)> {
    let start = call.reply.position();
    let command = Command::named(call.args.get(0));
    let mut ending = Ending::Rejected;
    let attempted = pin!(attempt(call, command, &mut ending)).await;
    if let Err(fault) = attempted {
        call.reply.take_back(start);
        if call.client.ahead != Ahead::GivenUp {
            call.reply.error(&fault.text());
            call.shared.note(&fault);
        }
    }
    call.client.is_resp3 = call.reply.is_resp3();
    command.filter(|_| ending != Ending::Queued).map(|command| (command, ending))
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
    if transactions::is_one(call, command.id) {
        Box::pin(transactions::run_alone(call, command)).await?;
    } else {
        pin!(run(command.id, call)).await?;
    }
    *ending = Ending::Done;
    Ok(())
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
