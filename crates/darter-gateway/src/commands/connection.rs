//! Commands about the connection and its client.

#![allow(clippy::unnecessary_wraps)] // all commands have one signature, whether they can fail or not

use super::client::name_of;
use super::permission::note_wrong_password;
use crate::acl::DEFAULT;
use crate::call::{Caching, Call, Replies, wrong_arity};
use crate::clients::Names;
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::DATABASES;
use crate::{REDIS_VERSION, number};

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

/// Parses the number of a database.
pub(super) fn database(text: &[u8]) -> Result<u8, Fault> {
    let number = number::integer(text).ok_or(NO_INTEGER)?;
    if i32::try_from(number).is_err() {
        return Err(Fault::said("ERR value is out of range, value must between -2147483648 and 2147483647"));
    }
    let database = u8::try_from(number).ok().filter(|&database| database < DATABASES);
    database.ok_or_else(|| Fault::said("ERR DB index is out of range"))
}

/// `SELECT database`.
pub(super) fn select(call: &mut Call<'_>) -> Result<(), Fault> {
    call.select(database(call.args.get(1))?)?;
    call.reply.ok();
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
    call.select(0)?;
    call.client.is_trusted = call.shared.acl.is_open();
    call.client.users_version = 0;
    call.client.queue = None;
    call.client.watched.clear();
    call.client.subscriptions = None;
    call.client.monitoring = None;
    call.client.info.is_monitor(false);
    call.client.tracking = None;
    call.client.caching = Caching::Usual;
    call.client.replies = Replies::Sent;
    call.client.sender = None;
    call.client.info.is_subscribed([0; 3]);
    *call.client.info.names() = Names::default();
    call.reply.speak_resp3(false);
    call.reply.simple("RESET");
    Ok(())
}

/// Authenticates the client if the password is right.
fn admit(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Result<(), Fault> {
    let name = std::str::from_utf8(user).ok().filter(|name| call.shared.acl.accepts(name, password));
    let Some(name) = name else {
        note_wrong_password(call, user);
        return Err(Fault::said("WRONGPASS invalid username-password pair or user is disabled."));
    };
    name.clone_into(&mut call.client.info.names().user);
    call.client.users_version = 0;
    call.client.is_trusted = true;
    Ok(())
}

/// `AUTH [user] password`.
pub(super) fn auth(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    match args.len() {
        2 if call.shared.acl.users().get(DEFAULT).is_some_and(|user| user.needs_no_password()) => {
            return Err(Fault::said(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => admit(call, DEFAULT.as_bytes(), args.get(1))?,
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
