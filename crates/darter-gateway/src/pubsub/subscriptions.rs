//! The subscriptions of one client, which end with it.

use super::{Kind, Name, PubSub};
use crate::fault::Fault;
use crate::mailbox::Mailbox;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes that count for a subscription besides its name.
const SUBSCRIPTION_BYTES: usize = 256;
/// Bytes of a parsed pattern, for each of its bytes.
const PATTERN_BYTES: usize = 24;

/// The subscriptions of a client.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    pubsub: Arc<PubSub>,
    client: u64,
    mailbox: Arc<Mailbox>,
    channels: BTreeSet<Name>,
    patterns: BTreeSet<Name>,
    shards: BTreeSet<Name>,
    bytes: usize,
}

/// Returns the bytes that count for a subscription.
fn bytes_of(kind: Kind, name: &[u8]) -> usize {
    SUBSCRIPTION_BYTES + name.len() * if kind == Kind::Pattern { PATTERN_BYTES } else { 1 }
}

impl Subscriptions {
    /// Creates the subscriptions of a client that has none. Its messages go to a mailbox.
    pub(crate) fn new(pubsub: &Arc<PubSub>, client: u64, mailbox: Arc<Mailbox>) -> Self {
        Self {
            pubsub: Arc::clone(pubsub),
            client,
            mailbox,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            shards: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// Returns the mailbox for the client's messages.
    #[cfg(test)]
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Returns the names of a kind.
    pub(crate) fn of(&self, kind: Kind) -> &BTreeSet<Name> {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shards,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut BTreeSet<Name> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }

    /// Adds a subscription, unless there is one to this name.
    ///
    /// # Errors
    /// Fails if a pattern is too long.
    pub(crate) fn add(&mut self, kind: Kind, name: &[u8]) -> Result<(), Fault> {
        if self.of(kind).contains(name) {
            return Ok(());
        }
        let name = Name::from(name);
        self.pubsub.subscribe(kind, &name, self.client, &self.mailbox)?;
        self.bytes += bytes_of(kind, &name);
        self.of_mut(kind).insert(name);
        Ok(())
    }

    /// Removes a subscription, if there is one to this name. No message follows for it, except those
    /// in the mailbox.
    pub(crate) fn remove(&mut self, kind: Kind, name: &[u8]) {
        if self.of_mut(kind).remove(name) {
            self.bytes -= bytes_of(kind, name);
            self.pubsub.unsubscribe(kind, name, self.client);
        }
    }

    /// Returns the number of subscriptions, as replies to those of a kind give it: sharded channels
    /// are counted separately.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        if kind == Kind::Shard { self.shards.len() } else { self.channels.len() + self.patterns.len() }
    }

    /// Returns whether it has no subscriptions.
    pub(crate) fn is_empty(&self) -> bool {
        self.count(Kind::Channel) + self.count(Kind::Shard) == 0
    }

    /// Returns the bytes that the subscriptions hold.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for name in std::mem::take(self.of_mut(kind)) {
                self.pubsub.unsubscribe(kind, &name, self.client);
            }
        }
    }
}
