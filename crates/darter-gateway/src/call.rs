//! One request at work: what a command has at hand.

use super::clients::ClientInfo;
use super::commands;
use super::fault::{Fault, NO_INTEGER};
use super::keyspace::Keyspace;
use super::number;
use super::reply::Reply;
use super::request::Arguments;
use super::table::Command;
use super::worker::Shared;
use darter_fabric::mutant;
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
    pub shared: &'c Shared,
}

impl Call<'_> {
    /// Does what is asked, or tells why not; answers which command it was, if it came to be tried.
    pub(super) async fn perform(&mut self) -> Option<&'static Command> {
        let start = self.reply.waiting();
        let mut tried = None;
        if let Err(fault) = self.attempt(&mut tried).await {
            if !mutant!("gateway-error-behind-half-a-reply") {
                self.reply.take_back(start);
            }
            self.reply.error(&fault.text());
            self.shared.note(&fault);
        }
        self.client.is_resp3 = self.reply.is_resp3();
        tried
    }

    async fn attempt(&mut self, tried: &mut Option<&'static Command>) -> Result<(), Fault> {
        let Some(command) = Command::named(self.args.get(0)) else {
            // A page in somebody's browser has been made to speak to us: the rest of what it says is to do nothing.
            let name = self.args.get(0);
            self.client.is_closing |=
                name.eq_ignore_ascii_case(b"host:") || name.eq_ignore_ascii_case(b"post");
            return Err(unknown(&self.args));
        };
        if !command.takes(self.args.len()) {
            return Err(wrong_arity(command.name));
        }
        if !self.client.is_trusted && !command.is_for_strangers() {
            return Err(Fault::said("NOAUTH Authentication required."));
        }
        self.client.info.did(command, self.keys.now, self.client.is_resp3);
        *tried = Some(command);
        commands::run(command.id, self).await
    }

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

fn cut(argument: &[u8], bytes: usize) -> &[u8] {
    let argument = &argument[..argument.len().min(bytes)];
    argument.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn unknown(args: &Arguments<'_>) -> Fault {
    let mut beginning = Vec::new();
    for argument in args.from(1) {
        if beginning.len() >= 128 {
            break;
        }
        let shown = cut(argument, 128 - beginning.len());
        beginning.extend_from_slice(&[b"'", shown, b"' "].concat());
    }
    let (name, beginning) = (shown(args.get(0), 128), String::from_utf8_lossy(&beginning));
    Fault::said(format!("ERR unknown command '{name}', with args beginning with: {beginning}"))
}
