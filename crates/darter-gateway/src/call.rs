//! One request in progress: everything a command needs, and the errors that several commands return.

use super::clients::ClientInfo;
use super::fault::{Fault, NO_INTEGER};
use super::keyspace::Keyspace;
use super::number;
use super::reply::Reply;
use super::request::Arguments;
use super::state::GatewayState;
use std::sync::Arc;

/// What lasts from one request of a client to the next.
#[derive(Debug)]
pub(super) struct Client {
    /// What others may know of it.
    pub info: Arc<ClientInfo>,
    /// It has shown the password, or needs none.
    pub is_trusted: bool,
    /// It has asked for RESP3.
    pub is_resp3: bool,
    /// Nothing more is heard; its replies still go.
    pub is_closing: bool,
}

/// A request, and all that is needed to do it.
#[derive(Debug)]
pub(super) struct Call<'c> {
    /// The command's name and arguments.
    pub args: Arguments<'c>,
    /// The store.
    pub keys: &'c mut Keyspace,
    /// Where the reply goes.
    pub reply: Reply<'c>,
    /// Who asks.
    pub client: &'c mut Client,
    /// The gateway.
    pub shared: &'c GatewayState,
}

impl Call<'_> {
    /// An argument that is a number.
    ///
    /// # Errors
    /// [`NO_INTEGER`].
    pub(super) fn integer(&self, argument: usize) -> Result<i64, Fault> {
        number::integer(self.args.get(argument)).ok_or(NO_INTEGER)
    }

    /// Refuses a reply that has come to hold more than a client may leave unread.
    ///
    /// # Errors
    /// When it does.
    pub(super) fn limit(&self) -> Result<(), Fault> {
        if self.reply.waiting() > self.shared.options.output_bytes_max {
            return Err(too_long());
        }
        Ok(())
    }
}

/// A reply that has come to hold more than a client may leave unread.
pub(super) fn too_long() -> Fault {
    Fault::said("ERR the reply is longer than --output-bytes allows; ask for less at a time")
}

/// Too few or too many arguments.
pub(super) fn wrong_arity(name: &str) -> Fault {
    Fault::said(format!("ERR wrong number of arguments for '{name}' command"))
}

/// What a container of commands does not contain.
pub(super) fn unknown_subcommand(name: &str, argument: &[u8]) -> Fault {
    let shown = shown(argument, 128);
    Fault::said(format!("ERR unknown subcommand '{shown}'. Try {name} HELP."))
}

/// So many bytes of an argument at most, as far as a C string goes.
pub(super) fn shown(argument: &[u8], bytes: usize) -> String {
    String::from_utf8_lossy(cut(argument, bytes)).into_owned()
}

/// Returns at most so many bytes of an argument, up to the first zero.
pub(super) fn cut(argument: &[u8], bytes: usize) -> &[u8] {
    let argument = &argument[..argument.len().min(bytes)];
    argument.split(|&byte| byte == 0).next().unwrap_or_default()
}
