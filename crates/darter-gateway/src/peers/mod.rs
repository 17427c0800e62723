//! The other gateways of the pool, and the messages to them.
//!
//! Each gateway has a record in the pool with its address (`directory.rs`), finds the others there,
//! and keeps one connection to each (`link.rs`), on which its messages leave in order. It connects
//! to the port for clients, with the password that clients use, and each message is a request
//! (`commands/peer.rs`). So a gateway can do nothing at another one that a client could not do.
//!
//! Messages arrive at most once. Those to a gateway without a connection are lost, and so are those
//! that wait when a connection ends. A gateway that does not read is cut off, and connected to
//! again. A gateway that is alone does nothing for a message.

mod address;
mod directory;
mod link;

pub(super) use address::announced;
pub(super) use directory::Directory;

use crate::mailbox::{HeldBytes, Mailbox, Message};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A random number that names a gateway as long as it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PeerId(u64);

impl PeerId {
    fn random() -> Self {
        Self(darter_fabric::random_word())
    }

    /// Parses the form in which it is displayed.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != 16 || !text.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok().map(Self)
    }

    /// Returns the bytes that name it in a record's key.
    pub(super) fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Returns the id that these bytes name.
    pub(super) fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// The kinds of messages between gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// A client has published to a channel.
    Publish,
    /// A client has published to a sharded channel.
    ShardPublish,
    /// A client waits for elements of a key.
    Wait,
    /// Elements may have been added to a key for which clients wait.
    Added,
    /// The users of the pool have changed.
    Users,
    /// Clients of the sender track keys. The payload is the sender's time.
    Track,
    /// The confirmation: from now on the sender reports the keys that it changes. The payload is that
    /// of the request.
    Tracked,
    /// Keys have changed.
    Changed,
}

impl MessageKind {
    const ALL: [Self; 8] = [
        Self::Publish,
        Self::ShardPublish,
        Self::Wait,
        Self::Added,
        Self::Users,
        Self::Track,
        Self::Tracked,
        Self::Changed,
    ];

    /// Returns the name in requests.
    fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::ShardPublish => "spublish",
            Self::Wait => "wait",
            Self::Added => "added",
            Self::Users => "users",
            Self::Track => "track",
            Self::Tracked => "tracked",
            Self::Changed => "changed",
        }
    }

    /// Returns the kind with a name.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }
}

/// Appends a request.
fn put_request(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    let mut digits = itoa::Buffer::new();
    let mut line = |out: &mut Vec<u8>, kind: u8, count: usize| {
        out.push(kind);
        out.extend_from_slice(digits.format(count).as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    line(out, b'*', arguments.len());
    for argument in arguments {
        line(out, b'$', argument.len());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// The connection on which a gateway sends its messages to this one. A later connection replaces an
/// earlier one, whose messages would come too late.
#[derive(Debug)]
pub(super) struct Sender {
    /// The gateway.
    pub(super) id: PeerId,
    /// The id of the connection's client. It is locked while a message is handled.
    pub(super) client: tokio::sync::Mutex<u64>,
}

/// How long a gateway reports changed keys to another one whose clients track keys.
const TRACKS_FOR: Duration = Duration::from_secs(30);

/// The way to another gateway.
#[derive(Debug)]
struct Way {
    mailbox: Arc<Mailbox>,
    /// Until when changed keys are reported to the gateway.
    tracks_until: Mutex<Option<Instant>>,
}

impl Way {
    fn tracks(&self) -> bool {
        self.tracks_until.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Ends the reports to a gateway that has not requested them recently.
    fn forget(&self, now: Instant) {
        let mut until = self.tracks_until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = until.filter(|until| *until > now);
    }
}

type Ways = BTreeMap<PeerId, Arc<Way>>;

/// The other gateways of the pool, as seen by one.
#[derive(Debug)]
pub(super) struct Peers {
    /// This gateway.
    pub(super) id: PeerId,
    /// The gateways to which there is a connection.
    links: RwLock<Ways>,
    /// The number of those to which changed keys are reported.
    tracking: AtomicUsize,
    /// Whether the others can find this gateway, or never will.
    is_announced: AtomicBool,
    /// The gateways that have connected to this one.
    senders: Mutex<BTreeMap<PeerId, Arc<Sender>>>,
    /// An unknown gateway has connected.
    news: Notify,
    held: HeldBytes,
    /// Bytes of messages that wait for a gateway beyond which it is cut off.
    bytes_max: usize,
}

/// How long a message may wait for room.
const ROOM_PATIENCE: Duration = Duration::from_millis(50);
/// The pause between two checks whether there is room.
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// Most gateways whose connections to this one are remembered.
const SENDERS_MAX: usize = 1024;

impl Peers {
    /// Creates a gateway that knows no other. `is_in_directory` says whether others will find it.
    pub(super) fn new(held: HeldBytes, bytes_max: usize, is_in_directory: bool) -> Self {
        Self {
            id: PeerId::random(),
            links: RwLock::default(),
            tracking: AtomicUsize::new(0),
            is_announced: AtomicBool::new(!is_in_directory),
            senders: Mutex::default(),
            news: Notify::new(),
            held,
            bytes_max,
        }
    }

    /// Sends a message to every other gateway.
    pub(super) fn broadcast(&self, kind: MessageKind, channel: &[u8], payload: &[u8]) {
        let links = self.links();
        if links.is_empty() {
            return;
        }
        let message = self.message(kind, channel, payload);
        for way in links.values() {
            way.mailbox.put(&message);
        }
    }

    /// Returns whether the clients of another gateway track keys.
    #[inline]
    pub(super) fn track(&self) -> bool {
        self.tracking.load(Ordering::SeqCst) > 0
    }

    /// Sends a message to the gateways whose clients track keys.
    pub(super) fn tell_tracking(&self, kind: MessageKind, payload: &[u8]) {
        let links = self.links();
        let mut ways = links.values().filter(|way| way.tracks()).peekable();
        if ways.peek().is_some() {
            let message = self.message(kind, b"", payload);
            ways.for_each(|way| way.mailbox.put(&message));
        }
    }

    /// Begins to report changed keys to a gateway, or continues, and confirms that. Without a connection
    /// to the gateway it does nothing.
    pub(super) fn report_to(&self, id: PeerId, now: Instant, payload: &[u8]) {
        let links = self.links();
        let Some(way) = links.get(&id) else { return };
        *way.tracks_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + TRACKS_FOR);
        self.count_tracking(&links);
        // A change that is not reported has taken effect before the confirmation leaves.
        fence(Ordering::SeqCst);
        way.mailbox.put(&self.message(MessageKind::Tracked, b"", payload));
    }

    /// Ends the reports to gateways that have not requested them recently.
    pub(super) fn forget_tracking(&self, now: Instant) {
        let links = self.links();
        links.values().for_each(|way| way.forget(now));
        self.count_tracking(&links);
    }

    fn count_tracking(&self, links: &Ways) {
        self.tracking.store(links.values().filter(|way| way.tracks()).count(), Ordering::SeqCst);
    }

    fn links(&self) -> RwLockReadGuard<'_, Ways> {
        self.links.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the others can find this gateway.
    pub(super) fn announced(&self) {
        self.is_announced.store(true, Ordering::Release);
    }

    /// Returns whether the others can find this gateway, or never will.
    pub(super) fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::Acquire)
    }

    /// Returns whether there is a connection to each of some gateways.
    pub(super) fn reach(&self, mut ids: impl Iterator<Item = PeerId>) -> bool {
        let links = self.links();
        ids.all(|id| links.contains_key(&id))
    }

    /// Waits while many messages wait for a gateway, so that a publisher is not faster than the
    /// connection. A gateway that has stopped to read delays each message only for a short time.
    pub(super) async fn make_room(&self) {
        let end = Instant::now() + ROOM_PATIENCE;
        while self.is_crowded() && Instant::now() < end {
            tokio::time::sleep(ROOM_PAUSE).await;
        }
    }

    fn is_crowded(&self) -> bool {
        self.links().values().any(|way| way.mailbox.is_crowded())
    }

    fn message(&self, kind: MessageKind, channel: &[u8], payload: &[u8]) -> Arc<Message> {
        let mut request = Vec::with_capacity(channel.len() + payload.len() + 64);
        put_request(&mut request, &[b"darter.tell", kind.name().as_bytes(), channel, payload]);
        Message::new(request, &self.held)
    }

    /// Returns the number of gateways to which there is a connection.
    pub(super) fn count(&self) -> usize {
        self.links().len()
    }

    /// Returns the gateway that begins to send messages on a connection.
    pub(super) fn sender(&self, id: PeerId) -> Arc<Sender> {
        let is_known = self.links().contains_key(&id);
        if !is_known {
            self.news.notify_one();
        }
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if senders.len() >= SENDERS_MAX {
            senders.retain(|_, sender| Arc::strong_count(sender) > 1);
        }
        let new = || Arc::new(Sender { id, client: tokio::sync::Mutex::default() });
        Arc::clone(senders.entry(id).or_insert_with(new))
    }

    /// Opens the way to a gateway, until the returned value is dropped.
    fn open(&self, id: PeerId) -> OpenLink<'_> {
        let mailbox = Mailbox::new(self.bytes_max);
        let way = Way { mailbox: Arc::clone(&mailbox), tracks_until: Mutex::default() };
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        links.insert(id, Arc::new(way));
        self.count_tracking(&links);
        OpenLink { peers: self, id, mailbox }
    }
}

/// The open way to a gateway.
struct OpenLink<'p> {
    peers: &'p Peers,
    id: PeerId,
    mailbox: Arc<Mailbox>,
}

impl Drop for OpenLink<'_> {
    fn drop(&mut self) {
        let mut links = self.peers.links.write().unwrap_or_else(PoisonError::into_inner);
        if links.get(&self.id).is_some_and(|way| Arc::ptr_eq(&way.mailbox, &self.mailbox)) {
            links.remove(&self.id);
            self.peers.count_tracking(&links);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_as_they_are_displayed() {
        for id in [PeerId(0), PeerId(1), PeerId(u64::MAX), PeerId::random()] {
            assert_eq!(PeerId::parse(id.to_string().as_bytes()), Some(id));
            assert_eq!(PeerId::from_bytes(id.to_bytes()), id);
        }
        for text in [&b""[..], b"0", b"+000000000000001", b"00000000000000001", b"000000000000000g"] {
            assert_eq!(PeerId::parse(text), None);
        }
    }

    #[test]
    fn kinds_are_found_by_their_names() {
        for kind in MessageKind::ALL {
            assert_eq!(MessageKind::named(kind.name().as_bytes()), Some(kind));
        }
        assert_eq!(MessageKind::named(b"nothing"), None);
    }

    #[test]
    fn a_message_goes_to_the_gateways_with_a_connection() {
        let peers = Peers::new(HeldBytes::new(Arc::default(), usize::MAX), 1 << 20, true);
        peers.broadcast(MessageKind::Publish, b"c", b"lost");
        let link = peers.open(PeerId(1));
        peers.broadcast(MessageKind::Publish, b"c", b"m");
        assert_eq!(peers.count(), 1);
        let mut sent = Vec::new();
        link.mailbox.take_all(|message| sent.extend_from_slice(&message.bytes));
        assert_eq!(sent, b"*4\r\n$11\r\ndarter.tell\r\n$7\r\npublish\r\n$1\r\nc\r\n$1\r\nm\r\n");
        drop(link);
        assert_eq!(peers.count(), 0);
    }
}
