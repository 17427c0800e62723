//! The requests of other gateways: `DARTER.MEET` begins a connection for messages, and `DARTER.TELL`
//! is a message, which has no reply. They can do nothing that a client could not do.

use super::publishing;
use crate::call::Call;
use crate::fault::Fault;
use crate::peers::{MessageKind, PeerId};
use crate::tracking::Meeting;
use crate::waiting::key_of_message;
use std::sync::Arc;
use std::time::Instant;

/// `DARTER.MEET sender receiver`.
pub(super) async fn meet(call: &mut Call<'_>) -> Result<(), Fault> {
    let id = |at| PeerId::parse(call.args.get(at)).ok_or_else(|| Fault::said("ERR invalid id of a gateway"));
    let (sender, receiver) = (id(1)?, id(2)?);
    if call.client.restricted.is_some() {
        return Err(Fault::said("NOPERM messages between gateways need a user that may do everything"));
    }
    // The address may have belonged to another one.
    if receiver != call.shared.peers.id {
        return Err(Fault::said("ERR this is another gateway"));
    }
    // It may have its record in a copy of this pool.
    if !call.keys.has_gateway(sender.to_bytes()).await? {
        return Err(Fault::said("ERR this gateway does not find you in its pool"));
    }
    call.client.info.names().name = format!("gateway:{sender}");
    let sender = call.shared.peers.sender(sender);
    *sender.client.lock().await = call.client.info.id;
    call.shared.tracking.has_met(sender.id, &call.shared.peers);
    call.client.sender = Some(Meeting { sender, tracking: Arc::clone(&call.shared.tracking) });
    call.reply.ok();
    Ok(())
}

/// `DARTER.TELL kind channel payload`.
pub(super) async fn tell(call: &mut Call<'_>) -> Result<(), Fault> {
    let Some(sender) = call.client.sender.as_ref().map(|meeting| Arc::clone(&meeting.sender)) else {
        return Err(Fault::said("ERR DARTER.TELL is for gateways, after DARTER.MEET"));
    };
    let current = sender.client.lock().await;
    if *current != call.client.info.id {
        // Messages of the connection that has replaced this one may already have arrived.
        call.client.is_closing = true;
        return Ok(());
    }
    let (channel, payload) = (call.args.get(2), call.args.get(3));
    match MessageKind::named(call.args.get(1)) {
        Some(MessageKind::Publish) => publishing::deliver(call.shared, false, channel, payload).await,
        Some(MessageKind::ShardPublish) => publishing::deliver(call.shared, true, channel, payload).await,
        Some(kind @ (MessageKind::Wait | MessageKind::Added)) => {
            let Some(key) = key_of_message(channel, payload) else { return Ok(()) };
            if kind == MessageKind::Added {
                call.shared.waiting.wake(&key);
            } else {
                call.shared.waiting.others_wait(&key, Instant::now(), &call.shared.peers);
            }
        }
        Some(MessageKind::Users) => call.shared.acl.news.notify_one(),
        Some(MessageKind::Track) => call.shared.peers.report_to(sender.id, Instant::now(), payload),
        Some(MessageKind::Tracked) => call.shared.tracking.has_confirmed(sender.id, payload),
        Some(MessageKind::Changed) => call.shared.tracking.others_changed(payload),
        // A later version has sent it.
        None => {}
    }
    Ok(())
}
