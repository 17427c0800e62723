//! Commands about the connection and its client.

#![allow(clippy::unnecessary_wraps)] // all commands have one signature, whether they can fail or not

use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::clients::{ClientInfo, ClientKind};
use crate::fault::{Fault, SYNTAX};
use crate::turns;
use crate::{REDIS_VERSION, number};
use std::collections::HashSet;
use subtle::ConstantTimeEq;

/// `PING [text]`.
pub(super) fn ping(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    if args.len() > 2 {
        return Err(wrong_arity("ping"));
    }
    let text = args.from(1).next();
    let reply = &mut call.reply;
    match text {
        _ if call.client.is_listening() => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(text.unwrap_or_default());
        }
        Some(text) => reply.bulk(text),
        None => reply.simple("PONG"),
    }
    Ok(())
}

/// `ECHO text`.
pub(super) fn echo(call: &mut Call<'_>) -> Result<(), Fault> {
    call.reply.bulk(call.args.get(1));
    Ok(())
}

/// `SELECT 0`.
pub(super) fn select(call: &mut Call<'_>) -> Result<(), Fault> {
    match call.integer(1)? {
        0 => call.reply.ok(),
        number if i32::try_from(number).is_err() => {
            return Err(Fault::said(
                "ERR value is out of range, value must between -2147483648 and 2147483647",
            ));
        }
        _ => return Err(Fault::said("ERR DB index is out of range")),
    }
    Ok(())
}

/// `QUIT`.
pub(super) fn quit(call: &mut Call<'_>) -> Result<(), Fault> {
    call.client.is_closing = true;
    call.reply.ok();
    Ok(())
}

/// `RESET`.
pub(super) fn reset(call: &mut Call<'_>) -> Result<(), Fault> {
    call.client.is_trusted = call.shared.options.password.is_empty();
    call.client.queue = None;
    call.client.watched.clear();
    call.client.subscriptions = None;
    call.client.sender = None;
    call.client.info.is_subscribed([0; 3]);
    call.client.info.names().name.clear();
    call.reply.speak_resp3(false);
    call.reply.simple("RESET");
    Ok(())
}

/// Authenticates the client if the password is right.
fn admit(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Result<(), Fault> {
    let wanted = &call.shared.options.password;
    let knows = wanted.is_empty() || bool::from(wanted.as_slice().ct_eq(password));
    if user != b"default" || !knows {
        return Err(Fault::said("WRONGPASS invalid username-password pair or user is disabled."));
    }
    call.client.is_trusted = true;
    Ok(())
}

/// `AUTH [user] password`.
pub(super) fn auth(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    match args.len() {
        2 if call.shared.options.password.is_empty() => {
            return Err(Fault::said(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => admit(call, b"default", args.get(1))?,
        3 => admit(call, args.get(1), args.get(2))?,
        _ => return Err(SYNTAX),
    }
    call.reply.ok();
    Ok(())
}

/// `HELLO [2|3 [AUTH user password] [SETNAME name]]`.
pub(super) fn hello(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let mut version = if call.reply.is_resp3() { 3 } else { 2 };
    if args.len() > 1 {
        let no_number = || Fault::said("ERR Protocol version is not an integer or out of range");
        version = number::integer(args.get(1)).ok_or_else(no_number)?;
        if !(2..=3).contains(&version) {
            return Err(Fault::said("NOPROTO unsupported protocol version"));
        }
    }
    let (mut at, mut shown, mut name) = (2, None, None);
    while at < args.len() {
        match (&args.get(at).to_ascii_lowercase()[..], args.len() - at) {
            (b"auth", 3..) => {
                shown = Some((args.get(at + 1), args.get(at + 2)));
                at += 3;
            }
            (b"setname", 2..) => {
                name = Some(name_of(args.get(at + 1))?);
                at += 2;
            }
            _ => {
                let option = String::from_utf8_lossy(args.get(at));
                return Err(Fault::said(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        }
    }
    if let Some((user, password)) = shown {
        admit(call, user, password)?;
    }
    if !call.client.is_trusted {
        return Err(Fault::said(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        call.client.info.names().name = name;
    }
    call.reply.speak_resp3(version == 3);
    let reply = &mut call.reply;
    reply.map(7);
    for (name, text) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(version);
    reply.bulk(b"id");
    reply.integer(call.client.info.id.cast_signed());
    for (name, text) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// Reads a client's name, or another word with the same syntax.
fn name_of(text: &[u8]) -> Result<String, Fault> {
    if !text.iter().all(u8::is_ascii_graphic) {
        return Err(Fault::said("ERR Client names cannot contain spaces, newlines or special characters."));
    }
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// `CLIENT` and its subcommands.
pub(super) async fn client(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    let with = |count: usize| {
        let name = || format!("client|{}", String::from_utf8_lossy(&subcommand));
        if args.len() == count { Ok(()) } else { Err(wrong_arity(&name())) }
    };
    match &subcommand[..] {
        b"id" => {
            with(2)?;
            call.reply.integer(call.client.info.id.cast_signed());
        }
        b"getname" => {
            with(2)?;
            let name = call.client.info.names().name.clone();
            call.reply.bulk_or_null((!name.is_empty()).then_some(name.as_bytes()));
        }
        b"setname" => {
            with(3)?;
            call.client.info.names().name = name_of(args.get(2))?;
            call.reply.ok();
        }
        b"setinfo" => {
            with(4)?;
            set_info(call, args.get(2), args.get(3))?;
            call.reply.ok();
        }
        b"info" => {
            with(2)?;
            let mut line = String::new();
            call.client.info.line(&mut line);
            call.reply.text(&line);
        }
        b"list" => list(call).await?,
        b"kill" => kill(call)?,
        b"no-evict" | b"no-touch" => {
            with(3)?;
            if !args.get(2).eq_ignore_ascii_case(b"on") && !args.get(2).eq_ignore_ascii_case(b"off") {
                return Err(SYNTAX);
            }
            // The gateway never evicts clients.
            call.reply.ok();
        }
        b"help" => {
            with(2)?;
            let lines = [
                "CLIENT ID",
                "CLIENT GETNAME",
                "CLIENT SETNAME name",
                "CLIENT SETINFO LIB-NAME|LIB-VER text",
                "CLIENT INFO",
                "CLIENT LIST [TYPE normal|master|replica|pubsub] [ID id...]",
                "CLIENT KILL addr | [ID id] [ADDR addr] [LADDR addr] [TYPE type] [USER default] [SKIPME yes|no]",
                "CLIENT NO-EVICT on|off",
            ];
            help(&mut call.reply, &lines);
        }
        _ => return Err(unknown_subcommand("CLIENT", args.get(1))),
    }
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
    let (mut spares_itself, mut kinds) = (true, None);
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
            b"user" if text == b"default" => {}
            b"user" => {
                return Err(Fault::said(format!("ERR No such user '{}'", String::from_utf8_lossy(text))));
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
            && local.as_ref().is_none_or(|local| info.local.to_string() == *local)
    });
    call.reply.count(count);
    Ok(())
}
