//! Publish/subscribe among the clients of one gateway: channels, patterns and their subscribers.
//! `commands/publishing.rs` also sends what is published to the other gateways.
//!
//! A message is put into the mailbox of each subscriber by the task that publishes it, so that the
//! messages of one publisher to one channel keep their order.

mod published;
mod subscriptions;

pub(super) use published::{Publication, Published};
pub(super) use subscriptions::Subscriptions;

use crate::fault::Fault;
use crate::glob::Glob;
use crate::mailbox::{HeldBytes, Mailbox, Message};
use darter_fabric::turns;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The work of putting a message into a mailbox, in bytes.
const PUT_BYTES: usize = 256;

/// A name to which clients subscribe.
pub(super) type Name = Arc<[u8]>;

/// The kinds of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A channel.
    Channel,
    /// A pattern of channels.
    Pattern,
    /// A sharded channel. A gateway has all shards.
    Shard,
}

/// The subscribers of a name, by the ids of their clients.
type Subscribers = BTreeMap<u64, Arc<Mailbox>>;

/// A pattern with subscribers.
#[derive(Debug)]
struct Pattern {
    glob: Arc<Glob>,
    subscribers: Subscribers,
}

#[derive(Debug, Default)]
struct Registry {
    channels: HashMap<Name, Subscribers>,
    shards: HashMap<Name, Subscribers>,
    patterns: BTreeMap<Name, Pattern>,
}

impl Registry {
    /// Returns the subscribers of channels by their names, those of sharded ones or the others.
    fn of(&self, is_sharded: bool) -> &HashMap<Name, Subscribers> {
        if is_sharded { &self.shards } else { &self.channels }
    }

    fn of_mut(&mut self, is_sharded: bool) -> &mut HashMap<Name, Subscribers> {
        if is_sharded { &mut self.shards } else { &mut self.channels }
    }
}

/// The subscriptions to a gateway.
#[derive(Debug)]
pub(super) struct PubSub {
    registry: RwLock<Registry>,
    held: HeldBytes,
}

/// Returns a message in the form of RESP2 and RESP3 without its first byte, which differs.
fn form(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 16).sum());
    let mut digits = itoa::Buffer::new();
    bytes.extend_from_slice(digits.format(parts.len()).as_bytes());
    for part in parts {
        bytes.extend_from_slice(b"\r\n$");
        bytes.extend_from_slice(digits.format(part.len()).as_bytes());
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

impl PubSub {
    /// Creates a registry without subscriptions.
    pub(super) fn new(held: HeldBytes) -> Self {
        Self { registry: RwLock::default(), held }
    }

    fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Registry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe(&self, kind: Kind, name: &Name, client: u64, mailbox: &Arc<Mailbox>) -> Result<(), Fault> {
        let (name, mailbox) = (Arc::clone(name), Arc::clone(mailbox));
        if kind != Kind::Pattern {
            self.write().of_mut(kind == Kind::Shard).entry(name).or_default().insert(client, mailbox);
            return Ok(());
        }
        let glob = Glob::parse(&name)?;
        let mut registry = self.write();
        let new = || Pattern { glob: Arc::new(glob), subscribers: Subscribers::new() };
        registry.patterns.entry(name).or_insert_with(new).subscribers.insert(client, mailbox);
        Ok(())
    }

    fn unsubscribe(&self, kind: Kind, name: &[u8], client: u64) {
        let mut registry = self.write();
        if kind == Kind::Pattern {
            if let Some(pattern) = registry.patterns.get_mut(name) {
                pattern.subscribers.remove(&client);
                if pattern.subscribers.is_empty() {
                    registry.patterns.remove(name);
                }
            }
            return;
        }
        let channels = registry.of_mut(kind == Kind::Shard);
        if let Some(subscribers) = channels.get_mut(name) {
            subscribers.remove(&client);
            if subscribers.is_empty() {
                channels.remove(name);
            }
        }
    }

    /// Sends a message to the subscribers of a channel, or of a sharded one. Returns their number.
    pub(super) async fn publish(&self, is_sharded: bool, channel: &[u8], payload: &[u8]) -> usize {
        self.visit(is_sharded, channel, |pattern, subscribers| {
            let bytes = match pattern {
                Some(pattern) => form(&[b"pmessage", pattern, channel, payload]),
                None => form(&[if is_sharded { b"smessage" } else { b"message" }, channel, payload]),
            };
            let message = Message::push(bytes, &self.held);
            for mailbox in subscribers.values() {
                mailbox.put(&message);
            }
        })
        .await
    }

    /// Returns the number of subscribers that a message would reach.
    pub(super) async fn receivers(&self, is_sharded: bool, channel: &[u8]) -> usize {
        self.visit(is_sharded, channel, |_, _| {}).await
    }

    /// Passes the subscribers of a channel to `visit`, and then those of each matching pattern.
    /// Returns their number.
    async fn visit(
        &self,
        is_sharded: bool,
        channel: &[u8],
        mut visit: impl FnMut(Option<&[u8]>, &Subscribers),
    ) -> usize {
        let mut count = 0;
        let patterns: Vec<(Name, Arc<Glob>)> = {
            let registry = self.read();
            if let Some(subscribers) = registry.of(is_sharded).get(channel) {
                visit(None, subscribers);
                count += subscribers.len();
            }
            if is_sharded || registry.patterns.is_empty() {
                Vec::new()
            } else {
                let patterns = registry.patterns.iter();
                patterns.map(|(name, pattern)| (Arc::clone(name), Arc::clone(&pattern.glob))).collect()
            }
        };
        turns::worked(count * PUT_BYTES).await;
        for (name, glob) in patterns {
            if !glob.decides(channel).await {
                continue;
            }
            let mut here = 0;
            if let Some(pattern) = self.read().patterns.get(&name) {
                visit(Some(&name), &pattern.subscribers);
                here = pattern.subscribers.len();
            }
            count += here;
            turns::worked(here * PUT_BYTES).await;
        }
        count
    }

    /// Returns the ids of the clients that are subscribed to a channel or a pattern which a predicate
    /// selects.
    pub(super) fn listeners(&self, is_meant: impl Fn(&[u8], bool) -> bool) -> BTreeSet<u64> {
        let registry = self.read();
        let channels = registry.channels.iter().chain(&registry.shards);
        let channels = channels.filter(|(name, _)| is_meant(name, false)).map(|(_, clients)| clients);
        let patterns = registry.patterns.iter().filter(|(name, _)| is_meant(name, true));
        let all = channels.chain(patterns.map(|(_, pattern)| &pattern.subscribers));
        all.flat_map(BTreeMap::keys).copied().collect()
    }

    /// Returns the channels, or sharded ones, that have subscribers.
    pub(super) fn channels(&self, is_sharded: bool) -> Vec<Name> {
        self.read().of(is_sharded).keys().cloned().collect()
    }

    /// Returns the number of subscribers of a channel, or of a sharded one, without those of
    /// patterns.
    pub(super) fn subscribers(&self, is_sharded: bool, channel: &[u8]) -> usize {
        self.read().of(is_sharded).get(channel).map_or(0, BTreeMap::len)
    }

    /// Returns the numbers of channels, of patterns and of sharded channels that have subscribers.
    pub(super) fn sizes(&self) -> [usize; 3] {
        let registry = self.read();
        [registry.channels.len(), registry.patterns.len(), registry.shards.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::block_on;

    fn pubsub() -> Arc<PubSub> {
        Arc::new(PubSub::new(HeldBytes::new(Arc::default(), usize::MAX)))
    }

    fn taken(client: &Subscriptions) -> Vec<String> {
        let mut taken = Vec::new();
        let mut take = |message: &Message| {
            let lines = std::str::from_utf8(&message.bytes).unwrap().lines().skip(1);
            taken.push(lines.filter(|line| !line.starts_with('$')).collect::<Vec<_>>().join(" "));
        };
        client.mailbox().take_all(&mut take);
        taken
    }

    #[test]
    fn messages_reach_channels_and_matching_patterns_in_order() {
        let pubsub = pubsub();
        let mut clients = [1, 2].map(|id| Subscriptions::new(&pubsub, id, Mailbox::new(1 << 20)));
        clients[0].add(Kind::Channel, b"news").unwrap();
        clients[0].add(Kind::Pattern, b"n*").unwrap();
        clients[1].add(Kind::Pattern, b"n*").unwrap();
        clients[1].add(Kind::Shard, b"news").unwrap();
        block_on(async {
            assert_eq!(pubsub.publish(false, b"news", b"1").await, 3);
            assert_eq!(pubsub.publish(false, b"nothing", b"2").await, 2);
            assert_eq!(pubsub.publish(false, b"other", b"3").await, 0);
            assert_eq!(pubsub.publish(true, b"news", b"4").await, 1);
            assert_eq!(pubsub.receivers(false, b"news").await, 3);
        });
        assert_eq!(taken(&clients[0]), ["message news 1", "pmessage n* news 1", "pmessage n* nothing 2"]);
        assert_eq!(taken(&clients[1]), ["pmessage n* news 1", "pmessage n* nothing 2", "smessage news 4"]);
        assert_eq!(pubsub.sizes(), [1, 1, 1]);
        assert_eq!((pubsub.subscribers(false, b"news"), pubsub.subscribers(true, b"none")), (1, 0));
        drop(clients);
        assert_eq!(pubsub.sizes(), [0, 0, 0]);
    }

    #[test]
    fn a_message_has_the_form_of_an_array_without_its_first_byte() {
        assert_eq!(form(&[b"message", b"", b"a\r\n"]), b"3\r\n$7\r\nmessage\r\n$0\r\n\r\n$3\r\na\r\n\r\n");
    }
}
