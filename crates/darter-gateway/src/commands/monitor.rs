//! `MONITOR`: shows each command of this gateway's clients, except administrative ones.

use crate::call::Call;
use crate::fault::Fault;
use crate::request::Arguments;
use crate::table::{Command, CommandId};
use std::fmt::Display;

/// `MONITOR`.
pub(super) fn monitor(call: &mut Call<'_>) -> Result<(), Fault> {
    if call.keys.is_in_transaction() {
        return Err(Fault::said("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if call.client.monitoring.is_none() {
        let mailbox = call.client.info.mail.mailbox(call.shared.options.message_bytes_max);
        call.client.monitoring = Some(call.shared.monitors.add(mailbox));
        call.client.info.is_monitor(true);
        call.reply.ok();
    }
    Ok(())
}

/// Shows a command that a client has sent.
pub(super) fn show(call: &Call<'_>, command: &Command, args: &Arguments<'_>) {
    show_in(call, call.client.database, command, args);
}

/// Shows a command that a client has sent, when it had selected a database.
pub(super) fn show_in(call: &Call<'_>, database: u8, command: &Command, args: &Arguments<'_>) {
    show_from(call, (command, args), (database, &call.client.info.address));
}

/// Shows a command that a script has called.
#[cfg(feature = "scripts")]
pub(super) fn show_from_script(call: &Call<'_>, command: &Command) {
    show_from(call, (command, &call.args), (call.client.database, &"lua"));
}

fn show_from(
    call: &Call<'_>,
    (command, args): (&Command, &Arguments<'_>),
    (database, origin): (u8, &dyn Display),
) {
    if !call.shared.monitors.are_there() || command.is("admin") {
        return;
    }
    let secrets = match command.id {
        CommandId::Auth => 1..args.len(),
        CommandId::Hello => {
            let at = args.from(0).position(|word| word.eq_ignore_ascii_case(b"auth"));
            at.map_or(0..0, |at| at + 1..at + 3)
        }
        _ => 0..0,
    };
    call.shared.monitors.show((database, origin), args, |at| secrets.contains(&at));
}
