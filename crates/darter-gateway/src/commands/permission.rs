//! Whether a client's user may run a request: what the request needs, and the errors of refused
//! requests.

use super::description::keys_at;
use super::key_specs::key_flags;
use crate::acl::{Denied, KeyUse, LogEntry, Needs, name_of, unit_of_request};
use crate::call::{Call, Client};
use crate::clock::now_ms;
use crate::fault::Fault;
use crate::request::Arguments;
use crate::state::GatewayState;
use crate::subcommands::{SUBCOMMANDS, Subcommand};
use crate::table::{Command, CommandId};

/// Returns the keys of a request that begins with argument `first`, and their use.
pub(super) fn keys_used(command: &Command, args: &Arguments<'_>, first: usize) -> Vec<KeyUse> {
    // The keys of these commands are sharded channels.
    if command.group == "pubsub" {
        return Vec::new();
    }
    let keys = if Subcommand::has(command) {
        let position = args.from(first + 1).next().and_then(|name| Subcommand::position(command, name));
        position.map_or((0, 0, 0), |position| SUBCOMMANDS[position].keys)
    } else {
        command.keys
    };
    let has = |option: &[u8]| args.from(first + 3).any(|word| word.eq_ignore_ascii_case(option));
    let (reads_if, writes_if) = match command.id {
        CommandId::Set => (has(b"get"), true),
        CommandId::Bitfield => (true, args.from(first + 2).any(is_change_of_bits)),
        _ => (true, true),
    };
    let of = |(number, at): (usize, usize)| {
        let flags = key_flags(command, number);
        let writes = ["insert", "delete", "update"].iter().any(|flag| flags.contains(flag));
        KeyUse { at, reads: reads_if && flags.contains(&"access"), writes: writes_if && writes }
    };
    keys_at(command, keys, args, first).into_iter().enumerate().map(of).collect()
}

fn is_change_of_bits(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"set") || word.eq_ignore_ascii_case(b"incrby")
}

/// Returns what a request needs that begins with argument `first`.
pub(super) fn needs<'a>(command: &Command, args: &Arguments<'a>, first: usize) -> Needs<'a> {
    use CommandId::{Psubscribe, Publish, Spublish, Ssubscribe, Subscribe};
    let words: Vec<&[u8]> = args.from(first).collect();
    let unit = unit_of_request(command, words.get(1).copied());
    let channels = match command.id {
        Publish | Spublish => 1..2,
        Psubscribe | Ssubscribe | Subscribe => 1..words.len(),
        _ => 0..0,
    };
    Needs {
        unit: Some(unit).filter(|_| !command.is_for_strangers()),
        keys: keys_used(command, args, first),
        channels: channels.collect(),
        are_patterns: command.id == Psubscribe,
        words,
    }
}

/// Notes in the log that a user may not do something.
fn note(
    shared: &GatewayState,
    client: &Client,
    refused: (&'static str, &'static str),
    object: &[u8],
    user: &str,
) {
    let mut line = String::new();
    client.info.line(&mut line);
    shared.acl.log().note(LogEntry {
        count: 1,
        reason: refused.0,
        context: refused.1,
        object: object.to_vec(),
        user: user.to_owned(),
        time: now_ms(),
        client: line.trim_end().to_owned(),
    });
}

/// Notes in the log that a client has not become a user.
pub(super) fn note_wrong_password(call: &Call<'_>, user: &[u8]) {
    let context = if call.client.queue.is_some() { "multi" } else { "toplevel" };
    let user = String::from_utf8_lossy(user).into_owned();
    note(call.shared, call.client, ("auth", context), call.args.get(0), &user);
}

/// Reads the client's user again, because a user has changed.
///
/// # Errors
/// Fails if the user was removed. Then the connection ends.
#[cold]
pub(crate) fn refresh(client: &mut Client, shared: &GatewayState) -> Result<(), Fault> {
    let version = shared.acl.version();
    let name = client.info.names().user.clone();
    let Some(user) = shared.acl.users().get(&name).cloned() else {
        client.is_closing = true;
        return Err(Fault::said("NOPERM the user of this connection was removed"));
    };
    client.restricted = Some(user).filter(|user| !user.is_unrestricted());
    client.users_version = version;
    Ok(())
}

/// Returns what the client's user may not do of a request, and notes it in the log.
fn denied(call: &Call<'_>, command: &Command, context: &'static str) -> Option<Denied> {
    let user = call.client.restricted.as_ref()?;
    let needs = needs(command, &call.args, 0);
    let (denied, at) = user.check(&needs).err()?;
    let (reason, object) = match denied {
        Denied::Command => {
            ("command", name_of(unit_of_request(command, needs.words.get(1).copied())).as_bytes())
        }
        Denied::Key => ("key", needs.words[at]),
        Denied::Channel => ("channel", needs.words[at]),
    };
    let name = call.client.info.names().user.clone();
    note(call.shared, call.client, (reason, context), object, &name);
    Some(denied)
}

/// Fails if the client's user may not run a request.
///
/// # Errors
/// Redis's.
#[inline]
pub(super) fn check(call: &mut Call<'_>, command: &Command) -> Result<(), Fault> {
    if call.client.users_version != call.shared.acl.version() {
        refresh(call.client, call.shared)?;
    }
    if call.client.restricted.is_none() { Ok(()) } else { check_restricted(call, command) }
}

#[cold]
fn check_restricted(call: &Call<'_>, command: &Command) -> Result<(), Fault> {
    let context = if call.client.queue.is_some() { "multi" } else { "toplevel" };
    Err(Fault::said(match denied(call, command, context) {
        None => return Ok(()),
        Some(Denied::Command) => {
            let name = name_of(unit_of_request(command, call.args.from(1).next()));
            format!("NOPERM this user has no permissions to run the '{name}' command")
        }
        Some(Denied::Key) => {
            "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned()
        }
        Some(Denied::Channel) => {
            "NOPERM this user has no permissions to access one of the channels used as arguments".to_owned()
        }
    }))
}

/// Fails if the client's user may not run a command of its transaction.
///
/// # Errors
/// Redis's.
pub(super) fn check_queued(call: &Call<'_>, command: &Command) -> Result<(), Fault> {
    let reason = match denied(call, command, "multi") {
        None => return Ok(()),
        Some(Denied::Command) => "no permission to execute the command or subcommand",
        Some(Denied::Key) => "no permission to touch the specified keys",
        Some(Denied::Channel) => "no permission to access one of the channels used as arguments",
    };
    Err(Fault::said(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is \
         no longer allowed for the following reason: {reason}"
    )))
}

/// Returns whether the client's user may run a request.
#[cfg(feature = "scripts")]
pub(super) fn allows(client: &Client, command: &Command, args: &Arguments<'_>) -> bool {
    client.restricted.as_ref().is_none_or(|user| user.check(&needs(command, args, 0)).is_ok())
}

/// Returns the error of a command that the client's user may not run from a script.
#[cfg(feature = "scripts")]
pub(super) fn denied_to_script(call: &Call<'_>, command: &Command) -> Option<&'static str> {
    Some(match denied(call, command, "lua")? {
        Denied::Command => "ERR The user executing the script can't run this command or subcommand",
        Denied::Key => {
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"
        }
        Denied::Channel => {
            "ERR The user executing the script can't publish to the channel mentioned in the command"
        }
    })
}

/// Fails if the client's user may not read the keys that an option of `SORT` names.
///
/// # Errors
/// Redis's.
pub(super) fn check_sort(call: &Call<'_>, option: &str) -> Result<(), Fault> {
    if call.client.restricted.as_ref().is_none_or(|user| user.reads_all_keys()) {
        return Ok(());
    }
    Err(Fault::said(format!("ERR {option} option of SORT denied due to insufficient ACL permissions.")))
}
