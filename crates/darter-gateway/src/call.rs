//! One request in progress: everything a command needs, and the errors that several commands
//! return.

use super::acl::User;
use super::clients::ClientInfo;
use super::fault::{Fault, NO_INTEGER};
use super::keyspace::Keyspace;
use super::monitors::Monitoring;
use super::number;
use super::pubsub::{Published, Subscriptions};
use super::queue::{Mode, Queue, Watched};
use super::reply::{Hears, Reply};
use super::request::Arguments;
use super::state::GatewayState;
use super::tracking::Meeting;
use super::tracking::TrackingClient;
use super::waiting::Waiter;
use std::sync::Arc;

/// Most bytes of a reply of several elements that waits for earlier replies.
const AHEAD_BYTES_MAX: usize = 1 << 20;

/// Whether a request overlaps earlier ones of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// The earlier requests have ended.
    No,
    /// The earlier requests are in progress.
    Yes,
    /// It was given up because its reply became too long to wait for earlier ones. It must be
    /// executed again after them.
    GivenUp,
}

/// Which replies are sent to a client. Messages are always sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replies {
    /// All.
    Sent,
    /// None.
    Off,
    /// The request in progress has none.
    Skip,
    /// The next request has none.
    SkipNext,
}

/// Whether a request of a client that tracks keys is an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// It is not.
    Usual,
    /// It follows `CLIENT CACHING`.
    Exception,
}

/// The state of a client between two requests.
#[derive(Debug)]
pub(super) struct Client {
    /// The information that other clients can request about it.
    pub info: Arc<ClientInfo>,
    /// The client has authenticated, or no password is set.
    pub is_trusted: bool,
    /// The client's user, if it may not do everything.
    pub restricted: Option<Arc<User>>,
    /// The state of the users in which that was determined; 0 if it was not.
    pub users_version: u64,
    /// The client has switched to RESP3.
    pub is_resp3: bool,
    /// The number of the selected database.
    pub database: u8,
    /// No further requests are read; the replies so far are still sent.
    pub is_closing: bool,
    /// The commands since `MULTI`.
    pub queue: Option<Box<Queue>>,
    /// The watched keys.
    pub watched: Watched,
    /// The right to see each command, after `MONITOR`.
    pub monitoring: Option<Monitoring>,
    /// Which replies are sent.
    pub replies: Replies,
    /// The channels and patterns to which the client has subscribed.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// What was published in a transaction in progress, to be sent after its commit.
    pub published: Published,
    /// The gateway whose messages arrive on this connection.
    pub sender: Option<Meeting>,
    /// The keys that the client tracks, and how.
    pub tracking: Option<TrackingClient>,
    /// Whether the request, or the transaction in progress, follows `CLIENT CACHING`.
    pub caching: Caching,
    /// The declared keys of the script in progress, if the client tracks keys.
    pub script_keys: Option<Vec<Vec<u8>>>,
    /// The place of the client among those that wait for elements, during a command that waits.
    pub waiter: Option<Box<Waiter>>,
    /// Whether the request overlaps earlier ones of the client.
    pub ahead: Ahead,
    /// The right to use a thread for scripts, during a command that runs scripts.
    #[cfg(feature = "scripts")]
    pub slot: Option<super::lua::Slot>,
}

impl Client {
    /// Creates the state of a client that has not sent a request.
    pub(super) fn new(info: Arc<ClientInfo>, is_trusted: bool) -> Self {
        Self {
            info,
            is_trusted,
            restricted: None,
            users_version: 0,
            is_resp3: false,
            database: 0,
            is_closing: false,
            queue: None,
            watched: Watched::new(),
            monitoring: None,
            replies: Replies::Sent,
            subscriptions: None,
            published: Published::default(),
            sender: None,
            tracking: None,
            caching: Caching::Usual,
            script_keys: None,
            waiter: None,
            ahead: Ahead::No,
            #[cfg(feature = "scripts")]
            slot: None,
        }
    }

    /// Returns a state for a request that overlaps others, and does not change the state.
    pub(super) fn overlapping(&self, ahead: Ahead) -> Self {
        Self {
            restricted: self.restricted.clone(),
            users_version: self.users_version,
            is_resp3: self.is_resp3,
            database: self.database,
            tracking: self.tracking.clone(),
            ahead,
            ..Self::new(Arc::clone(&self.info), self.is_trusted)
        }
    }

    /// Marks a transaction in progress as one in which a command was refused.
    pub(super) fn abort(&mut self) {
        if let Some(queue) = self.queue.as_mut().filter(|queue| queue.mode == Mode::Queuing) {
            queue.mode = Mode::Aborted;
        }
    }

    /// Returns which messages the client gets.
    pub(super) fn hears(&self) -> Hears {
        let (is_subscribed, is_monitor) = (self.subscriptions.is_some(), self.monitoring.is_some());
        Hears { is_resp3: self.is_resp3, is_subscribed, is_monitor }
    }

    /// Returns whether the reply to the request in progress is not sent.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.replies, Replies::Off | Replies::Skip)
    }

    /// Returns whether the client waits for messages in RESP2, in which no other replies can be
    /// between them.
    pub(super) fn is_listening(&self) -> bool {
        self.subscriptions.is_some() && !self.is_resp3
    }

    /// Returns the bytes that a transaction in progress, the watched keys and the subscriptions hold.
    pub(super) fn held_bytes(&self) -> usize {
        let watched: usize = self.watched.keys().map(|(_, key)| key.capacity()).sum();
        watched
            + self.queue.as_ref().map_or(0, |queue| queue.buffer_bytes())
            + self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.held_bytes())
    }
}

/// A request, and everything needed to execute it.
#[derive(Debug)]
pub(super) struct Call<'c> {
    /// The command's name and arguments.
    pub args: Arguments<'c>,
    /// The keys of the store.
    pub keys: &'c mut Keyspace,
    /// The writer of the reply.
    pub reply: Reply<'c>,
    /// The client that sent the request.
    pub client: &'c mut Client,
    /// The state of the gateway.
    pub shared: &'c GatewayState,
}

impl Call<'_> {
    /// Selects a database, for this command and the next ones.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) fn select(&mut self, database: u8) -> Result<(), Fault> {
        self.keys.select(database)?;
        self.client.database = database;
        self.client.info.is_in(database);
        Ok(())
    }

    /// Returns an argument that must be an integer.
    ///
    /// # Errors
    /// [`NO_INTEGER`].
    pub(super) fn integer(&self, argument: usize) -> Result<i64, Fault> {
        number::integer(self.args.get(argument)).ok_or(NO_INTEGER)
    }

    /// Returns the number of keys that an argument gives.
    ///
    /// # Errors
    /// Fails if it is not a positive integer.
    pub(super) fn key_count(&self, argument: usize) -> Result<usize, Fault> {
        let said = number::integer(self.args.get(argument)).and_then(|said| usize::try_from(said).ok());
        let none = || Fault::said("ERR numkeys should be greater than 0");
        said.filter(|&said| said > 0).ok_or_else(none)
    }

    /// Fails if the reply exceeds what a client may leave unread, or what may wait for earlier
    /// replies. Only commands that change nothing may call this.
    ///
    /// # Errors
    /// The error of [`too_long`].
    pub(super) fn limit(&mut self) -> Result<(), Fault> {
        if self.client.ahead == Ahead::Yes && self.reply.written() > AHEAD_BYTES_MAX {
            self.client.ahead = Ahead::GivenUp;
        }
        if self.client.ahead == Ahead::GivenUp || self.reply.written() > self.shared.options.output_bytes_max
        {
            return Err(too_long());
        }
        Ok(())
    }
}

/// Returns the error for replies that exceed what a client may leave unread.
pub(super) fn too_long() -> Fault {
    Fault::said("ERR the reply is longer than --output-bytes allows; request less at a time")
}

/// Returns the error for an argument that is longer than any value of this pool can be.
pub(super) fn argument_too_long(bytes: usize, most: usize) -> Fault {
    Fault::said(format!(
        "ERR an argument of {bytes} bytes is longer than this pool's largest value, {most} bytes (proto-max-bulk-len); split it, \
         or create the pool with larger blocks"
    ))
}

/// Returns the error for a wrong number of arguments.
pub(super) fn wrong_arity(name: &str) -> Fault {
    Fault::said(format!("ERR wrong number of arguments for '{name}' command"))
}

/// Returns the error for an unknown subcommand of a container command.
pub(super) fn unknown_subcommand(name: &str, argument: &[u8]) -> Fault {
    let shown = shown(argument, 128);
    Fault::said(format!("ERR unknown subcommand '{shown}'. Try {name} HELP."))
}

/// Writes the lines of a command's help.
pub(super) fn help(reply: &mut Reply<'_>, lines: &[&str]) {
    reply.array(lines.len());
    for line in lines {
        reply.simple(line);
    }
}

/// Returns up to `bytes` bytes of an argument, up to the first zero byte, as text.
pub(super) fn shown(argument: &[u8], bytes: usize) -> String {
    String::from_utf8_lossy(cut(argument, bytes)).into_owned()
}

/// Returns up to `bytes` bytes of an argument, up to the first zero byte.
pub(super) fn cut(argument: &[u8], bytes: usize) -> &[u8] {
    let argument = &argument[..argument.len().min(bytes)];
    argument.split(|&byte| byte == 0).next().unwrap_or_default()
}
