//! Commands about parts of a server that a gateway does not have, with the replies that are true of
//! it: `ROLE`, `WAIT`, `REPLICAOF`, `LASTSAVE`, `MODULE`; and `LOLWUT`.

#![allow(clippy::unnecessary_wraps)] // all commands have one signature, whether they can fail or not

use super::blocking::timeout_in_ms;
use crate::REDIS_VERSION;
use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::clock::now_us;
use crate::fault::{Fault, NO_INTEGER};
use crate::number;

/// `ROLE`: a master without replicas. The pool's own replicas are not Redis's.
pub(super) fn role(call: &mut Call<'_>) -> Result<(), Fault> {
    call.reply.array(3);
    call.reply.bulk(b"master");
    call.reply.integer(0);
    call.reply.array(0);
    Ok(())
}

/// `WAIT replicas timeout`: none has acknowledged a write, and none will, so that nothing is waited
/// for.
pub(super) fn wait(call: &mut Call<'_>) -> Result<(), Fault> {
    number::integer(call.args.get(1)).ok_or(NO_INTEGER)?;
    timeout_in_ms(call.args.get(2))?;
    call.reply.integer(0);
    Ok(())
}

/// `REPLICAOF NO ONE`, `SLAVEOF NO ONE`: a gateway is not a replica.
pub(super) fn replicaof(call: &mut Call<'_>) -> Result<(), Fault> {
    let is = |at, word: &str| call.args.get(at).eq_ignore_ascii_case(word.as_bytes());
    if !(is(1, "no") && is(2, "one")) {
        return Err(Fault::said(
            "ERR a gateway cannot follow another server; `darter import` copies the keys of a Redis",
        ));
    }
    call.reply.ok();
    Ok(())
}

/// `LASTSAVE`: the gateway's start, as from a redis-server that has not saved since its own. Writes
/// are in the pool when they are acknowledged.
pub(super) fn lastsave(call: &mut Call<'_>) -> Result<(), Fault> {
    let seconds = now_us() / 1_000_000;
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    call.reply.integer(seconds.saturating_sub((call.shared.uptime_ms() / 1000).cast_signed()));
    Ok(())
}

/// `LOLWUT [VERSION version]`: the versions, without a picture.
pub(super) fn lolwut(call: &mut Call<'_>) -> Result<(), Fault> {
    if call.args.len() >= 3 && call.args.get(1).eq_ignore_ascii_case(b"version") {
        number::integer(call.args.get(2)).ok_or(NO_INTEGER)?;
    }
    let text = format!("darter {}, Redis ver. {REDIS_VERSION}\n", env!("CARGO_PKG_VERSION"));
    call.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// `MODULE` and its subcommands.
pub(super) fn module(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    match &args.get(1).to_ascii_lowercase()[..] {
        b"list" if args.len() == 2 => call.reply.array(0),
        b"list" => return Err(wrong_arity("module|list")),
        b"help" if args.len() == 2 => help(&mut call.reply, &["MODULE LIST"]),
        b"help" => return Err(wrong_arity("module|help")),
        b"load" | b"loadex" | b"unload" => return Err(Fault::said("ERR a gateway has no modules")),
        _ => return Err(unknown_subcommand("MODULE", args.get(1))),
    }
    Ok(())
}
