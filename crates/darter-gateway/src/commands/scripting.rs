//! The dispatch of the commands of scripts and functions.

use super::{evaluation, function_dumps, functions};
use crate::call::{Call, Client};
use crate::fault::Fault;
use crate::request::Arguments;
use crate::table::{Command, CommandId};
use std::pin::Pin;

/// Returns whether a command uses a thread for scripts.
fn is_script(id: CommandId, args: &Arguments<'_>) -> bool {
    use CommandId::{Eval, EvalRo, Evalsha, EvalshaRo, Fcall, FcallRo, Function, Script};
    match id {
        Eval | EvalRo | Evalsha | EvalshaRo | Fcall | FcallRo => true,
        Function if args.len() > 2 && args.get(1).eq_ignore_ascii_case(b"restore") => true,
        Function | Script => args.len() > 2 && args.get(1).eq_ignore_ascii_case(b"load"),
        _ => false,
    }
}

/// Returns whether a request of a client will use a thread for scripts.
pub(crate) fn runs_scripts(args: &Arguments<'_>, client: &Client) -> bool {
    // Most commands have other names, and need no search in the table.
    let name = args.from(0).next().unwrap_or_default();
    let may_run = matches!(name, [b'e' | b'E' | b'f' | b'F' | b's' | b'S', _, _, _, ..]);
    let Some(command) = may_run.then(|| Command::named(name)).flatten() else { return false };
    match &client.queue {
        _ if !client.is_trusted => false,
        None => is_script(command.id, args),
        Some(queue) => {
            command.id == CommandId::Exec
                && queue.requests().any(|(command, args)| is_script(command.id, &args))
        }
    }
}

/// Every command of scripts and functions. Its future is boxed, since it is larger than those of
/// other commands.
pub(super) fn run(call: &mut Call<'_>, id: CommandId) -> Pin<Box<impl Future<Output = Result<(), Fault>>>> {
    Box::pin(dispatch(call, id))
}

async fn dispatch(call: &mut Call<'_>, id: CommandId) -> Result<(), Fault> {
    use CommandId::{Fcall, FcallRo, Function, Script};
    match id {
        Script => evaluation::script(call).await,
        Function => {
            let args = call.args;
            let is = |name: &[u8]| args.get(1).eq_ignore_ascii_case(name);
            match args.len() {
                2 if is(b"dump") => function_dumps::dump(call).await,
                3 | 4 if is(b"restore") => function_dumps::restore(call).await,
                _ => functions::function(call).await,
            }
        }
        Fcall | FcallRo => functions::fcall(call, id == FcallRo).await,
        _ => evaluation::evaluate(call, id).await,
    }
}
