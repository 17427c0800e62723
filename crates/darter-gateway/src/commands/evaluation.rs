//! `EVAL`, `EVALSHA`, `FCALL` and `SCRIPT`: Lua scripts. Each runs as one transaction of the index,
//! or as part of that of `EXEC`.

use super::transactions::{Body, atomically, run_from_script, supported};
use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::{Fault, NO_INTEGER};
use crate::lua::{self, Flags, Invocation, Outcome, Script, Task};
use crate::number;
use crate::table::CommandId;
use crate::turns;
use std::collections::BTreeSet;
use std::sync::Arc;

/// `EVAL`, `EVALSHA` and their variants for scripts that only read.
pub(super) async fn evaluate(call: &mut Call<'_>, id: CommandId) -> Result<(), Fault> {
    use CommandId::{Eval, EvalRo, EvalshaRo};
    if matches!(id, Eval | EvalRo) {
        let text = call.args.get(1);
        let known = call.shared.scripts.cache().find(lua::digest(text).as_bytes());
        let script = known.map_or_else(|| Script::parse(text).map(Arc::new), Ok)?;
        return eval(call, &script, id == EvalRo).await;
    }
    let known = call.shared.scripts.cache().find(call.args.get(1));
    let none = Fault::said("NOSCRIPT No matching script. Please use EVAL.");
    eval(call, &known.ok_or(none)?, id == EvalshaRo).await
}

/// Returns the call of a script or a function, from the arguments of a command.
///
/// # Errors
/// `wrong_count` if the number of keys is not an integer; others if it is not possible.
pub(super) fn invocation(
    call: &Call<'_>,
    name: &str,
    code: &Arc<Vec<u8>>,
    wrong_count: Fault,
) -> Result<Invocation, Fault> {
    let count = number::integer(call.args.get(2)).ok_or(wrong_count)?;
    let Ok(count) = usize::try_from(count) else {
        return Err(Fault::said("ERR Number of keys can't be negative"));
    };
    if count > call.args.len() - 3 {
        return Err(Fault::said("ERR Number of keys can't be greater than number of args"));
    }
    let mut words = call.args.from(3).map(<[u8]>::to_vec);
    Ok(Invocation {
        name: name.to_owned(),
        code: Arc::clone(code),
        is_function: false,
        keys: words.by_ref().take(count).collect(),
        arguments: words.collect(),
        is_resp3: call.reply.is_resp3(),
        is_read_only: false,
    })
}

/// Returns whether commands that write are refused.
///
/// # Errors
/// Fails if a script or function that may write was called by a command for others.
pub(super) fn is_read_only(flags: Flags, is_read_only_command: bool) -> Result<bool, Fault> {
    if is_read_only_command && flags.are_declared && !flags.no_writes {
        return Err(Fault::said("ERR Can not execute a script with write flag using *_ro command."));
    }
    Ok(is_read_only_command || flags.no_writes)
}

/// Runs a script, and remembers it for `EVALSHA`.
async fn eval(call: &mut Call<'_>, script: &Arc<Script>, is_read_only_command: bool) -> Result<(), Fault> {
    let mut invocation = invocation(call, &script.digest, &script.body, NO_INTEGER)?;
    invocation.is_read_only = is_read_only(script.flags, is_read_only_command)?;
    let invocation = Arc::new(invocation);
    let done = in_transaction(call, async |call| invoke(call, &invocation).await).await;
    let is_invalid = matches!(&done, Err(Fault::Said(text)) if text.starts_with(lua::COMPILE_ERROR));
    if !is_invalid {
        call.shared.scripts.cache().add(script);
    }
    done
}

/// Runs a script or a function in a transaction in progress, and writes its reply. Returns the
/// error that it ended with, if any; its changes then stay.
pub(super) async fn invoke(
    call: &mut Call<'_>,
    invocation: &Arc<Invocation>,
) -> Result<Option<Fault>, Fault> {
    let database = call.client.database;
    call.client.script_keys = call.client.tracking.is_some().then(|| invocation.keys.clone());
    let outcome = lua::run(call, Task::Call(Arc::clone(invocation)), run_from_script).await;
    call.client.script_keys = None;
    // What a script selects is for its own commands.
    call.select(database)?;
    match outcome? {
        // It is counted as other errors are.
        Outcome::Replied(reply) if reply.starts_with(b"-") => {
            let text = String::from_utf8_lossy(&reply[1..]).trim_end().to_owned();
            return Ok(Some(Fault::said(text)));
        }
        Outcome::Replied(reply) => call.reply.whole(&reply),
        Outcome::Failed(text) => return Ok(Some(Fault::said(text))),
        Outcome::Loaded(_) | Outcome::Stopped(_) => {}
    }
    Ok(None)
}

/// Runs `body` in the transaction of `EXEC`, or in its own transaction, again after each
/// conflict. `body` may return an error that is reported after the commit.
pub(super) async fn in_transaction(
    call: &mut Call<'_>,
    mut body: impl AsyncFnMut(&mut Call<'_>) -> Result<Option<Fault>, Fault>,
) -> Result<(), Fault> {
    let mut failed = None;
    if call.keys.is_in_transaction() {
        failed = body(call).await?;
    } else {
        supported(call, &String::from_utf8_lossy(call.args.get(0)).to_ascii_uppercase())?;
        atomically(call, BTreeSet::new(), async |call| {
            failed = body(call).await?;
            Ok(Body::Done)
        })
        .await?;
    }
    failed.map_or(Ok(()), Err)
}

/// `SCRIPT` and its subcommands.
pub(super) async fn script(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"load", 3) => {
            let script = Arc::new(Script::parse(args.get(2))?);
            if let Outcome::Failed(text) =
                lua::run(call, Task::Compile(Arc::clone(&script.body)), run_from_script).await?
            {
                return Err(Fault::said(text));
            }
            call.shared.scripts.cache().add(&script);
            call.reply.bulk(script.digest.as_bytes());
        }
        (b"exists", 3..) => {
            call.reply.array(args.len() - 2);
            for digest in args.from(2) {
                let is_known = call.shared.scripts.cache().find(digest).is_some();
                call.reply.flag(is_known);
                turns::worked().await;
            }
        }
        (b"flush", 2 | 3) => {
            let is_mode =
                |mode: &[u8]| mode.eq_ignore_ascii_case(b"sync") || mode.eq_ignore_ascii_case(b"async");
            if args.len() == 3 && !is_mode(args.get(2)) {
                return Err(Fault::said("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
            }
            call.shared.scripts.cache().clear();
            call.reply.ok();
        }
        (b"kill", 2) => kill(call, false)?,
        (b"help", 2) => {
            let lines =
                ["SCRIPT EXISTS sha1...", "SCRIPT FLUSH [ASYNC|SYNC]", "SCRIPT KILL", "SCRIPT LOAD script"];
            help(&mut call.reply, &lines);
        }
        (b"debug", _) => return Err(Fault::said("ERR a gateway has no debugger of scripts")),
        (b"load" | b"exists" | b"flush" | b"kill" | b"help", _) => {
            return Err(wrong_arity(&format!("script|{}", String::from_utf8_lossy(&subcommand))));
        }
        _ => return Err(unknown_subcommand("SCRIPT", args.get(1))),
    }
    Ok(())
}

/// Stops the script or function that this gateway has been running longest.
pub(super) fn kill(call: &mut Call<'_>, is_function: bool) -> Result<(), Fault> {
    if !call.shared.scripts.kill(is_function) {
        return Err(Fault::said("NOTBUSY No scripts in execution right now."));
    }
    call.reply.ok();
    Ok(())
}
