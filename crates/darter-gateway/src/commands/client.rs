//! `CLIENT` and its subcommands.

use super::tracking;
use crate::call::{Call, Replies, help, unknown_subcommand, wrong_arity};
use crate::clients::{ClientInfo, ClientKind, Unblock};
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::number;
use crate::pause::Paused;
use crate::turns;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Reads a client's name, or another word with the same syntax.
pub(super) fn name_of(text: &[u8]) -> Result<String, Fault> {
    if !text.iter().all(u8::is_ascii_graphic) {
        return Err(Fault::said("ERR Client names cannot contain spaces, newlines or special characters."));
    }
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// `CLIENT` and its subcommands.
pub(super) async fn client(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    let with = |counts: std::ops::RangeInclusive<usize>| {
        let name = || format!("client|{}", String::from_utf8_lossy(&subcommand));
        if counts.contains(&args.len()) { Ok(()) } else { Err(wrong_arity(&name())) }
    };
    match &subcommand[..] {
        b"id" => {
            with(2..=2)?;
            call.reply.integer(call.client.info.id.cast_signed());
        }
        b"getname" => {
            with(2..=2)?;
            let name = call.client.info.names().name.clone();
            call.reply.bulk_or_null((!name.is_empty()).then_some(name.as_bytes()));
        }
        b"setname" => {
            with(3..=3)?;
            call.client.info.names().name = name_of(args.get(2))?;
            call.reply.ok();
        }
        b"setinfo" => {
            with(4..=4)?;
            set_info(call, args.get(2), args.get(3))?;
            call.reply.ok();
        }
        b"info" => {
            with(2..=2)?;
            let mut line = String::new();
            call.client.info.line(&mut line);
            call.reply.text(&line);
        }
        b"list" => list(call).await?,
        b"kill" => {
            with(3..=usize::MAX)?;
            kill(call)?;
        }
        b"reply" => {
            with(3..=3)?;
            reply(call)?;
        }
        b"pause" => {
            with(3..=4)?;
            pause(call)?;
        }
        b"unpause" => {
            with(2..=2)?;
            call.shared.pause.end();
            call.reply.ok();
        }
        b"unblock" => {
            with(3..=4)?;
            unblock(call)?;
        }
        b"getredir" => {
            with(2..=2)?;
            call.reply.integer(call.client.info.tracking.redirection());
        }
        b"tracking" => {
            with(3..=usize::MAX)?;
            tracking::tracking(call).await?;
        }
        b"caching" => {
            with(3..=3)?;
            tracking::caching(call)?;
        }
        b"trackinginfo" => {
            with(2..=2)?;
            tracking::tracking_info(call);
        }
        b"no-evict" | b"no-touch" => {
            with(3..=3)?;
            if !args.get(2).eq_ignore_ascii_case(b"on") && !args.get(2).eq_ignore_ascii_case(b"off") {
                return Err(SYNTAX);
            }
            // The gateway never evicts clients.
            call.reply.ok();
        }
        b"help" => {
            with(2..=2)?;
            help(&mut call.reply, HELP);
        }
        _ => return Err(unknown_subcommand("CLIENT", args.get(1))),
    }
    Ok(())
}

const HELP: &[&str] = &[
    "CLIENT CACHING yes|no",
    "CLIENT ID",
    "CLIENT GETNAME",
    "CLIENT GETREDIR",
    "CLIENT SETNAME name",
    "CLIENT SETINFO LIB-NAME|LIB-VER text",
    "CLIENT INFO",
    "CLIENT LIST [TYPE normal|master|replica|pubsub] [ID id...]",
    "CLIENT KILL addr | [ID id] [ADDR addr] [LADDR addr] [TYPE type] [USER user] [SKIPME yes|no]",
    "CLIENT NO-EVICT on|off",
    "CLIENT PAUSE ms [WRITE|ALL]",
    "CLIENT UNPAUSE",
    "CLIENT REPLY on|off|skip",
    "CLIENT TRACKING on|off [REDIRECT id] [BCAST] [PREFIX prefix]... [OPTIN] [OPTOUT] [NOLOOP]",
    "CLIENT TRACKINGINFO",
    "CLIENT UNBLOCK id [TIMEOUT|ERROR]",
];

/// `CLIENT REPLY ON|OFF|SKIP`.
fn reply(call: &mut Call<'_>) -> Result<(), Fault> {
    match &call.args.get(2).to_ascii_lowercase()[..] {
        b"on" => {
            call.client.replies = Replies::Sent;
            call.reply.ok();
        }
        b"off" => call.client.replies = Replies::Off,
        b"skip" if call.client.replies == Replies::Off => {}
        b"skip" => call.client.replies = Replies::SkipNext,
        _ => return Err(SYNTAX),
    }
    Ok(())
}

/// `CLIENT PAUSE ms [WRITE|ALL]`.
fn pause(call: &mut Call<'_>) -> Result<(), Fault> {
    let paused = match call.args.from(3).next().map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"all") => Paused::Everything,
        Some(b"write") => Paused::Writes,
        Some(_) => return Err(Fault::said("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let no_time = || Fault::said("ERR timeout is not an integer or out of range");
    let millis = number::integer(call.args.get(2)).ok_or_else(no_time)?;
    let millis = u64::try_from(millis).map_err(|_| Fault::said("ERR timeout is negative"))?;
    let until = Instant::now().checked_add(Duration::from_millis(millis)).ok_or_else(no_time)?;
    call.shared.pause.begin(paused, until);
    call.reply.ok();
    Ok(())
}

/// `CLIENT UNBLOCK id [TIMEOUT|ERROR]`.
fn unblock(call: &mut Call<'_>) -> Result<(), Fault> {
    let how = match call.args.from(3).next().map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"timeout") => Unblock::Timeout,
        Some(b"error") => Unblock::Error,
        Some(_) => return Err(Fault::said("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = number::integer(call.args.get(2)).ok_or(NO_INTEGER)?;
    let is_unblocked = u64::try_from(id).is_ok_and(|id| call.shared.clients.unblock(id, how));
    call.reply.flag(is_unblocked);
    Ok(())
}

fn set_info(call: &Call<'_>, what: &[u8], text: &[u8]) -> Result<(), Fault> {
    let mut names = call.client.info.names();
    let (place, name) = match &what.to_ascii_lowercase()[..] {
        b"lib-name" => (&mut names.library, "lib-name"),
        b"lib-ver" => (&mut names.version, "lib-ver"),
        _ => {
            let what = String::from_utf8_lossy(what);
            return Err(Fault::said(format!("ERR Unrecognized option '{what}'")));
        }
    };
    let wrong = || Fault::said(format!("ERR {name} cannot contain spaces, newlines or special characters."));
    *place = name_of(text).map_err(|_| wrong())?;
    Ok(())
}

fn id(text: &[u8]) -> Result<u64, Fault> {
    let id = number::integer(text).and_then(|id| u64::try_from(id).ok()).filter(|&id| id > 0);
    id.ok_or_else(|| Fault::said("ERR Invalid client ID"))
}

/// Returns a type of clients, by its name; `None` if a gateway has no clients of that type.
fn kind_named(kind: &[u8]) -> Result<Option<ClientKind>, Fault> {
    match &kind.to_ascii_lowercase()[..] {
        b"normal" => Ok(Some(ClientKind::Normal)),
        b"pubsub" => Ok(Some(ClientKind::Subscriber)),
        b"master" | b"replica" | b"slave" => Ok(None),
        _ => Err(Fault::said(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(kind)))),
    }
}

async fn list(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let clients = &call.shared.clients;
    let listed = match args.len() {
        2 => clients.list(|_| true),
        4 if args.get(2).eq_ignore_ascii_case(b"type") => {
            let kind = kind_named(args.get(3))?;
            clients.list(|info| Some(info.kind()) == kind)
        }
        4.. if args.get(2).eq_ignore_ascii_case(b"id") => {
            let mut ids = HashSet::new();
            for said in args.from(3) {
                ids.insert(id(said)?);
                turns::worked().await;
            }
            clients.list(|info| ids.contains(&info.id))
        }
        _ => return Err(SYNTAX),
    };
    let mut lines = String::new();
    for info in &listed {
        info.line(&mut lines);
        turns::worked().await;
    }
    call.reply.text(&lines);
    Ok(())
}

fn kill(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let own = call.client.info.id;
    let end = |call: &mut Call<'_>, is_meant: &dyn Fn(&ClientInfo) -> bool| {
        // A client that ends its own connection still gets the reply.
        let is_self = is_meant(&call.client.info);
        call.client.is_closing |= is_self;
        call.shared.clients.end(|info| info.id != own && is_meant(info)) + usize::from(is_self)
    };
    if args.len() == 3 {
        let address = String::from_utf8_lossy(args.get(2));
        if end(call, &|info| info.address.to_string() == address) == 0 {
            return Err(Fault::said("ERR No such client"));
        }
        call.reply.ok();
        return Ok(());
    }
    if args.len() < 4 || args.len() % 2 == 1 {
        return Err(SYNTAX);
    }
    let mut wanted: (Option<u64>, Option<String>, Option<String>) = (None, None, None);
    let (mut spares_itself, mut kinds, mut user) = (true, None, None);
    for at in (2..args.len()).step_by(2) {
        let text = args.get(at + 1);
        let address = || Some(String::from_utf8_lossy(text).into_owned());
        match &args.get(at).to_ascii_lowercase()[..] {
            b"id" => {
                wanted.0 = Some(id(text).map_err(|_| Fault::said("ERR client-id should be greater than 0"))?);
            }
            b"addr" => wanted.1 = address(),
            b"laddr" => wanted.2 = address(),
            b"type" => kinds = Some(kind_named(text)?),
            b"user" => {
                let name = String::from_utf8_lossy(text).into_owned();
                if !call.shared.acl.users().contains_key(&name) {
                    return Err(Fault::said(format!("ERR No such user '{name}'")));
                }
                user = Some(name);
            }
            b"skipme" if text.eq_ignore_ascii_case(b"yes") => spares_itself = true,
            b"skipme" if text.eq_ignore_ascii_case(b"no") => spares_itself = false,
            _ => return Err(SYNTAX),
        }
    }
    let (id, address, local) = wanted;
    let count = end(call, &|info| {
        kinds.is_none_or(|kind| Some(info.kind()) == kind)
            && !(spares_itself && info.id == own)
            && id.is_none_or(|id| info.id == id)
            && address.as_ref().is_none_or(|address| info.address.to_string() == *address)
            && user.as_ref().is_none_or(|user| info.names().user == *user)
            && local.as_ref().is_none_or(|local| info.local.to_string() == *local)
    });
    call.reply.count(count);
    Ok(())
}
