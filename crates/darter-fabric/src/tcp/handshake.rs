//! The client's side of the handshake: it proves itself to a memory node and verifies the node.

use super::connection::Connection;
use super::options::TcpOptions;
use crate::FabricError;
use crate::wire::proof::{self, Side, Transcript};
use crate::wire::{self, Channel, Hello, Opening, Refusal, Welcome};
use bytemuck::Pod;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

/// The first bytes of a TLS alert: the reply of a node that expects TLS and does not receive it.
const ALERT: [u8; 2] = [21, 3];

/// A connection whose sides have not authenticated each other yet.
struct Greeting<'a> {
    address: &'a str,
    connection: Connection,
    deadline: Instant,
}

/// Identifies the owner of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub session: u64,
    /// The number of the session's channel to a memory group; 0 for a connection without frames.
    pub channel: u32,
    /// Counts the channel's connections.
    pub attempt: u32,
}

impl Caller {
    /// Returns the caller of a session's connection without frames for a group.
    pub(super) fn of(session: u64) -> Self {
        Self { session, channel: 0, attempt: 0 }
    }
}

/// Connects to the node at one address.
///
/// # Errors
/// [`FabricError::Io`] if another attempt may succeed, [`FabricError::Geometry`] and
/// [`FabricError::Fenced`] otherwise.
pub(super) fn greet(
    patience: Duration,
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
) -> Result<(Connection, Welcome), FabricError> {
    let session = caller.session;
    let failed = |action| move |error| FabricError::io(Path::new(address), action, error);
    let channel = Channel::connected(reach(address, patience)?, options.tls.as_ref(), address);
    let mut greeting = Greeting {
        address,
        connection: Connection::new(channel.map_err(failed("set up its socket"))?),
        deadline: Instant::now() + patience,
    };
    let client = proof::nonce().map_err(failed("draw a nonce for it"))?;
    let Caller { channel, attempt, .. } = caller;
    greeting.say(&Hello { channel, attempt, ..Hello::new(session, client) });
    let opening: Opening = greeting.hear()?;
    if opening.magic != wire::MAGIC {
        return Err(greeting.lost(io::ErrorKind::InvalidData.into()));
    }
    if opening.version != wire::VERSION {
        return Err(FabricError::geometry(format!(
            "{address}: it speaks version {} of the protocol, this program version {}; use the same release",
            opening.version,
            wire::VERSION
        )));
    }
    refused(opening.code, node, "")?;
    let transcript = Transcript { client, node: greeting.hear()?, session };
    // The file of the token may change while this waits.
    let token = options.token.current();
    greeting.say(&transcript.prove(token.first(), Side::Client));
    let welcome: Welcome = greeting.hear()?;
    let text = greeting.hear_text(welcome.text_bytes)?;
    if welcome.refusal != Refusal::Credentials as u32 {
        // A refusal by an unverified node is not trusted either.
        believe(address, &transcript, token.first(), &welcome.proof)?;
    }
    refused(welcome.refusal, node, &text)?;
    if welcome.region_bytes > crate::OFFSET_LIMIT || !welcome.region_bytes.is_multiple_of(8) {
        return Err(FabricError::geometry(format!(
            "{address}: a memory node of {} bytes; its size must be whole words, at most {} bytes",
            welcome.region_bytes,
            crate::OFFSET_LIMIT
        )));
    }
    let is_durable = welcome.flags & wire::IS_DURABLE != 0;
    if options.must_be_durable && !is_durable {
        return Err(FabricError::geometry(format!(
            "{address}: the memory node is not durable; start it with `--durability log --log DIR`, or name the pool \
             without `durability=log`"
        )));
    }
    let mut connection = greeting.connection;
    connection.frame_bytes = welcome.frame_bytes.clamp(4096, wire::FRAME_BYTES_MAX);
    connection.view = (welcome.flags & wire::IS_REPLICA != 0).then_some(welcome.view);
    Ok((connection, welcome))
}

/// Returns a socket to the first address of `host:port` that accepts a connection.
fn reach(address: &str, patience: Duration) -> Result<TcpStream, FabricError> {
    let failed = |action, error| FabricError::io(Path::new(address), action, error);
    let candidates = address.to_socket_addrs().map_err(|error| failed("find its address", error))?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for candidate in candidates {
        match TcpStream::connect_timeout(&candidate, patience) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(failed("connect to it", last))
}

fn refused(code: u32, node: u8, text: &str) -> Result<(), FabricError> {
    let refusal = u8::try_from(code).ok().and_then(Refusal::from_code).unwrap_or(Refusal::Failed);
    if refusal == Refusal::None { Ok(()) } else { Err(wire::error_of(refusal, node, text)) }
}

/// Fails if the node does not know the token. A client without a token accepts any node.
fn believe(
    address: &str,
    transcript: &Transcript,
    token: &[u8],
    proof: &proof::Proof,
) -> Result<(), FabricError> {
    if token.is_empty() || transcript.is_proven(token, Side::Node, proof) {
        return Ok(());
    }
    Err(FabricError::geometry(if transcript.is_proven(b"", Side::Node, proof) {
        format!(
            "{address}: the memory node has no token, so its identity is unknown; start it with the token \
             (`--token-file`), or connect without one"
        )
    } else {
        format!("{address}: the server there does not know the token, so it is not the expected memory node")
    }))
}

impl Greeting<'_> {
    fn say<T: Pod>(&mut self, what: &T) {
        self.connection.out.bytes.extend_from_slice(wire::as_bytes(what));
    }

    fn hear<T: Pod>(&mut self) -> Result<T, FabricError> {
        let bytes = self.hear_bytes(size_of::<T>())?;
        Ok(bytemuck::pod_read_unaligned(bytes))
    }

    fn hear_text(&mut self, bytes: u32) -> Result<String, FabricError> {
        if bytes as usize > wire::TEXT_BYTES_MAX {
            return Err(self.lost(io::ErrorKind::InvalidData.into()));
        }
        Ok(String::from_utf8_lossy(self.hear_bytes(bytes as usize)?).into_owned())
    }

    fn hear_bytes(&mut self, count: usize) -> Result<&[u8], FabricError> {
        let heard = self.connection.wait_for(self.deadline, |connection| Ok(connection.take(count)));
        let range = heard.map_err(|error| self.lost(error))?;
        Ok(self.connection.payload(range))
    }

    /// Returns the error of a failed greeting.
    fn lost(&self, error: io::Error) -> FabricError {
        let Self { address, connection, .. } = self;
        let is_other = error.kind() == io::ErrorKind::InvalidData;
        if connection.channel.is_tls() && is_other && error.get_ref().is_some() {
            FabricError::geometry(format!("{address}: cannot use TLS with it: {error}"))
        } else if connection.heard().starts_with(&ALERT) {
            FabricError::geometry(format!(
                "{address}: it speaks TLS; name the certificate of the CA that signed its own (`--tls-ca`)"
            ))
        } else if is_other {
            FabricError::geometry(format!("{address}: the server there is not a memory node of darter"))
        } else if connection.channel.is_handshaking() {
            let action = "agree on TLS with it (does it serve TLS?)";
            FabricError::io(Path::new(address), action, error)
        } else {
            FabricError::io(Path::new(address), "get a greeting from it", error)
        }
    }
}
