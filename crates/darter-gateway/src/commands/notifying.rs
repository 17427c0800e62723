//! Publishes what commands do to keys, if `CONFIG SET notify-keyspace-events` selects it.

use super::publishing::publish_now;
use crate::call::Call;
use crate::fault::Fault;
use crate::keyspace::{KeyEvent, Keyspace};
use crate::notifications::{Event, events_of, is_silent};
use crate::state::GatewayState;
use crate::table::{Command, CommandId};
use crate::turns;
use std::collections::BTreeSet;

/// Prepares the keyspace for the events of the next command.
#[inline]
pub(super) fn begin(call: &mut Call<'_>) {
    let are_on = call.shared.notifications.are_on();
    if are_on || call.keys.records_events() {
        call.keys.record_events(are_on);
        // A command before it has failed.
        call.keys.take_events();
    }
}

/// Publishes the events of a command that has run; in a transaction, after its commit.
pub(super) async fn report(call: &mut Call<'_>, command: &Command) -> Result<(), Fault> {
    // Boxed, since few gateways record events.
    if call.keys.records_events() { Box::pin(report_recorded(call, command)).await } else { Ok(()) }
}

async fn report_recorded(call: &mut Call<'_>, command: &Command) -> Result<(), Fault> {
    let (mut seen, mut events) = (BTreeSet::new(), call.keys.take_events());
    let own = call.client.database;
    let source_is_first = match command.id {
        CommandId::Move | CommandId::Rename | CommandId::Renamenx => Some(true),
        CommandId::Blmove | CommandId::Brpoplpush | CommandId::Lmove | CommandId::Rpoplpush => Some(false),
        _ => None,
    };
    if let Some(is_first) = source_is_first {
        // The order of the changes differs from that of Redis.
        let source = (own, KeyEvent::Touched(call.args.get(1).to_vec()));
        events.sort_by_key(|event| (*event == source) != is_first);
    }
    for (database, event) in events {
        let (key, events) = match event {
            KeyEvent::Expired(key) => (key, vec![(b'x', "expired")]),
            KeyEvent::Did(key, what) => (key, vec![(b't', what)]),
            KeyEvent::Touched(_) if is_silent(command) => continue,
            KeyEvent::Touched(_) if command.id == CommandId::Move && database != own => {
                (call.args.get(1).to_vec(), vec![(b'g', "move_to")])
            }
            KeyEvent::Touched(key) => {
                if !seen.insert((database, key.clone())) {
                    continue;
                }
                call.keys.select(database)?;
                let exists = call.keys.look(&key, |head| head.is_some()).await?;
                let events = events_of(command, &call.args, &key, exists);
                (key, events)
            }
        };
        for event in events {
            publish(call, event, (database, &key)).await?;
        }
        turns::worked().await;
    }
    call.keys.select(own)?;
    // Looking at a key can remove it.
    call.keys.take_events();
    Ok(())
}

async fn publish(call: &mut Call<'_>, event: Event, key: (u8, &[u8])) -> Result<(), Fault> {
    for (channel, payload) in messages(call.shared, event, key) {
        if call.keys.is_in_transaction() {
            call.client.published.add(false, &channel, &payload)?;
        } else {
            publish_now(call.shared, false, &channel, &payload).await;
        }
    }
    Ok(())
}

/// Returns the channels and payloads of an event, as far as they are selected.
fn messages(
    shared: &GatewayState,
    (class, name): Event,
    (database, key): (u8, &[u8]),
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let notifications = &shared.notifications;
    let mut messages = Vec::new();
    if notifications.has(class) {
        if notifications.has(b'K') {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            messages.push((channel, name.as_bytes().to_vec()));
        }
        if notifications.has(b'E') {
            messages.push((format!("__keyevent@{database}__:{name}").into_bytes(), key.to_vec()));
        }
    }
    messages
}

/// Publishes that the background walk has removed expired keys.
pub(crate) async fn report_expired(shared: &GatewayState, keys: &mut Keyspace) {
    for event in keys.take_events() {
        let (database, KeyEvent::Expired(key)) = event else { continue };
        for (channel, payload) in messages(shared, (b'x', "expired"), (database, &key)) {
            publish_now(shared, false, &channel, &payload).await;
        }
    }
}
