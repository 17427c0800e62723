//! Publish/subscribe: `SUBSCRIBE`, `PUBLISH` and `PUBSUB`, and their forms for patterns and sharded
//! channels.

#![allow(clippy::unnecessary_wraps)] // all commands have one signature, whether they can fail or not

use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::Fault;
use crate::glob::{Glob, Matching};
use crate::peers::MessageKind;
use crate::pubsub::{Kind, Publication, Subscriptions};
use crate::reply::{Hears, Reply};
use crate::state::GatewayState;
use crate::table::CommandId;
use crate::turns;
use std::sync::Arc;

/// Returns whether a client that waits for messages in RESP2 may run a command.
pub(super) fn is_for_listeners(id: CommandId) -> bool {
    use CommandId::{
        Ping, Psubscribe, Punsubscribe, Quit, Reset, Ssubscribe, Subscribe, Sunsubscribe, Unsubscribe,
    };
    matches!(
        id,
        Ping | Psubscribe | Punsubscribe | Quit | Reset | Ssubscribe | Subscribe | Sunsubscribe | Unsubscribe
    )
}

/// Returns whether replies to a command are sent even if the client wants none: they are messages.
pub(super) fn is_heard(id: CommandId) -> bool {
    is_for_listeners(id) && !matches!(id, CommandId::Ping | CommandId::Quit | CommandId::Reset)
}

/// Returns the words in which subscriptions of a kind begin and end.
fn words(kind: Kind) -> [&'static [u8]; 2] {
    match kind {
        Kind::Channel => [b"subscribe", b"unsubscribe"],
        Kind::Pattern => [b"psubscribe", b"punsubscribe"],
        Kind::Shard => [b"ssubscribe", b"sunsubscribe"],
    }
}

/// Writes that a subscription has begun or ended, and how many there are now.
fn confirm(reply: &mut Reply<'_>, word: &[u8], name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(word);
    reply.bulk_or_null(name);
    reply.count(count);
}

/// `SUBSCRIBE channel…`, `PSUBSCRIBE pattern…`, `SSUBSCRIBE channel…`.
pub(super) fn subscribe(call: &mut Call<'_>, kind: Kind) -> Result<(), Fault> {
    if kind == Kind::Shard && call.keys.is_in_transaction() {
        return Err(Fault::said("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    if kind == Kind::Pattern {
        call.args.from(1).try_for_each(|pattern| Glob::parse(pattern).map(drop))?;
    }
    let mailbox = Arc::clone(call.client.info.mail.mailbox(call.shared.options.message_bytes_max));
    let (pubsub, id) = (&call.shared.pubsub, call.client.info.id);
    let new = || Box::new(Subscriptions::new(pubsub, id, mailbox));
    let mut subscriptions = call.client.subscriptions.take().unwrap_or_else(new);
    for name in call.args.from(1) {
        subscriptions.add(kind, name)?;
        confirm(&mut call.reply, words(kind)[0], Some(name), subscriptions.count(kind));
    }
    keep(call, subscriptions);
    Ok(())
}

/// `UNSUBSCRIBE [channel…]`, `PUNSUBSCRIBE [pattern…]`, `SUNSUBSCRIBE [channel…]`.
pub(super) fn unsubscribe(call: &mut Call<'_>, kind: Kind) -> Result<(), Fault> {
    let word = words(kind)[1];
    let Some(mut subscriptions) = call.client.subscriptions.take() else {
        let names = call.args.from(1);
        if names.len() == 0 {
            confirm(&mut call.reply, word, None, 0);
        }
        names.for_each(|name| confirm(&mut call.reply, word, Some(name), 0));
        return Ok(());
    };
    let all: Vec<_> =
        if call.args.len() == 1 { subscriptions.of(kind).iter().cloned().collect() } else { Vec::new() };
    let names: Vec<&[u8]> = all.iter().map(|name| &name[..]).chain(call.args.from(1)).collect();
    let mut counts = Vec::with_capacity(names.len());
    for name in &names {
        subscriptions.remove(kind, name);
        counts.push(subscriptions.count(kind));
    }
    // What was published before belongs before the end; in a transaction it would be within a reply.
    if !call.keys.is_in_transaction() {
        let hears = Hears { is_subscribed: true, ..call.client.hears() };
        write_messages(call, hears);
    }
    if names.is_empty() {
        confirm(&mut call.reply, word, None, subscriptions.count(kind));
    }
    for (name, count) in names.iter().zip(counts) {
        confirm(&mut call.reply, word, Some(name), count);
    }
    keep(call, subscriptions);
    Ok(())
}

/// Keeps the subscriptions of a client, if it has any.
fn keep(call: &mut Call<'_>, subscriptions: Box<Subscriptions>) {
    call.client
        .info
        .is_subscribed([Kind::Channel, Kind::Pattern, Kind::Shard].map(|kind| subscriptions.of(kind).len()));
    call.client.subscriptions = Some(subscriptions).filter(|subscriptions| !subscriptions.is_empty());
}

/// Writes the messages that wait for the client.
fn write_messages(call: &mut Call<'_>, hears: Hears) {
    if let Some(mailbox) = call.client.info.mail.messages() {
        mailbox.take_all(|message| call.reply.message(message, hears));
    }
}

/// `PUBLISH channel message`, `SPUBLISH channel message`.
pub(super) async fn publish(call: &mut Call<'_>, is_sharded: bool) -> Result<(), Fault> {
    let (channel, payload) = (call.args.get(1), call.args.get(2));
    let shared = call.shared;
    let count = if call.keys.is_in_transaction() {
        call.client.published.add(is_sharded, channel, payload)?;
        shared.pubsub.receivers(is_sharded, channel).await
    } else {
        publish_now(shared, is_sharded, channel, payload).await
    };
    if !call.keys.is_in_transaction() && !call.client.is_silent() {
        // The message may be one to this client. It is sent before the reply, as Redis does.
        write_messages(call, call.client.hears());
    }
    call.reply.count(count);
    Ok(())
}

/// Sends a message to the subscribers at all gateways. Returns the number of those at this one.
pub(super) async fn publish_now(
    shared: &GatewayState,
    is_sharded: bool,
    channel: &[u8],
    payload: &[u8],
) -> usize {
    let kind = if is_sharded { MessageKind::ShardPublish } else { MessageKind::Publish };
    shared.peers.broadcast(kind, channel, payload);
    shared.peers.make_room().await;
    shared.pubsub.publish(is_sharded, channel, payload).await
}

/// Sends a message of another gateway to the subscribers at this one.
pub(super) async fn deliver(shared: &GatewayState, is_sharded: bool, channel: &[u8], payload: &[u8]) {
    shared.pubsub.publish(is_sharded, channel, payload).await;
}

/// Sends what a transaction has published, after its commit.
pub(super) async fn send(call: &mut Call<'_>) {
    for Publication { is_sharded, channel, payload } in call.client.published.take() {
        publish_now(call.shared, is_sharded, &channel, &payload).await;
    }
}

/// `PUBSUB` and its subcommands.
pub(super) async fn pubsub(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"channels", 2 | 3) => channels(call, false).await?,
        (b"shardchannels", 2 | 3) => channels(call, true).await?,
        (b"numsub", _) => numbers(call, false).await?,
        (b"shardnumsub", _) => numbers(call, true).await?,
        (b"numpat", 2) => {
            let [_, patterns, _] = call.shared.pubsub.sizes();
            call.reply.count(patterns);
        }
        (b"help", 2) => help(
            &mut call.reply,
            &[
                "PUBSUB CHANNELS [pattern]",
                "PUBSUB NUMPAT",
                "PUBSUB NUMSUB [channel...]",
                "PUBSUB SHARDCHANNELS [pattern]",
                "PUBSUB SHARDNUMSUB [channel...]",
            ],
        ),
        (b"channels" | b"shardchannels", _) => {
            let name = String::from_utf8_lossy(args.get(1));
            return Err(Fault::said(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB HELP."
            )));
        }
        (b"numpat" | b"help", _) => {
            return Err(wrong_arity(&format!("pubsub|{}", String::from_utf8_lossy(&subcommand))));
        }
        _ => return Err(unknown_subcommand("PUBSUB", args.get(1))),
    }
    Ok(())
}

/// `PUBSUB CHANNELS [pattern]`, `PUBSUB SHARDCHANNELS [pattern]`.
async fn channels(call: &mut Call<'_>, is_sharded: bool) -> Result<(), Fault> {
    let mut matching = Matching::new(call.args.from(2).next().unwrap_or(b"*"))?;
    let (start, mut count) = (call.reply.position(), 0);
    for channel in call.shared.pubsub.channels(is_sharded) {
        matching.see(&channel, || channel.clone());
        for channel in matching.decided().await {
            call.reply.bulk(&channel);
            count += 1;
        }
        call.limit()?;
    }
    call.reply.array_from(start, count);
    Ok(())
}

/// `PUBSUB NUMSUB [channel…]`, `PUBSUB SHARDNUMSUB [channel…]`.
async fn numbers(call: &mut Call<'_>, is_sharded: bool) -> Result<(), Fault> {
    call.reply.array((call.args.len() - 2) * 2);
    for channel in call.args.from(2) {
        call.reply.bulk(channel);
        call.reply.count(call.shared.pubsub.subscribers(is_sharded, channel));
        call.limit()?;
        turns::worked().await;
    }
    Ok(())
}
