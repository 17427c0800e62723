//! Transactions, which are not available. `MULTI` is rejected. So that no part of its body takes
//! effect, every command after it is also rejected until `EXEC` or `DISCARD`, as in an aborted
//! transaction of Redis. Clients then report the error of `MULTI`.

use crate::call::{Call, Client};
use crate::fault::Fault;
use crate::table::{Command, CommandId};

/// Fails if a request is part of a rejected transaction.
pub(super) fn check(client: &Client, command: Option<&Command>) -> Result<(), Fault> {
    use CommandId::{Discard, Exec, Multi, Quit, Reset, Watch};
    let is_heard =
        command.is_some_and(|command| matches!(command.id, Discard | Exec | Multi | Quit | Reset | Watch));
    if client.is_refusing && !is_heard {
        return Err(Fault::said(
            "ERR not executed: it follows a MULTI that was refused, because transactions are not supported",
        ));
    }
    Ok(())
}

/// Returns the error of a command that is only used for transactions.
fn unsupported(name: &str) -> Fault {
    Fault::said(format!("ERR {name} is refused: transactions are not supported"))
}

/// `MULTI`.
pub(super) fn multi(call: &mut Call<'_>) -> Result<(), Fault> {
    if std::mem::replace(&mut call.client.is_refusing, true) {
        return Err(Fault::said("ERR MULTI calls can not be nested"));
    }
    Err(Fault::said(
        "ERR MULTI is refused: transactions are not supported; nothing is executed until EXEC or DISCARD",
    ))
}

/// `EXEC`.
pub(super) fn exec(call: &mut Call<'_>) -> Result<(), Fault> {
    Err(Fault::said(if std::mem::take(&mut call.client.is_refusing) {
        "EXECABORT Transaction discarded because of previous errors."
    } else {
        "ERR EXEC without MULTI"
    }))
}

/// `DISCARD`.
pub(super) fn discard(call: &mut Call<'_>) -> Result<(), Fault> {
    if !std::mem::take(&mut call.client.is_refusing) {
        return Err(Fault::said("ERR DISCARD without MULTI"));
    }
    call.reply.ok();
    Ok(())
}

/// `WATCH key…`.
pub(super) fn watch(call: &mut Call<'_>) -> Result<(), Fault> {
    if call.client.is_refusing {
        return Err(Fault::said("ERR WATCH inside MULTI is not allowed"));
    }
    Err(unsupported("WATCH"))
}

/// `UNWATCH`.
pub(super) fn unwatch() -> Result<(), Fault> {
    Err(unsupported("UNWATCH"))
}
