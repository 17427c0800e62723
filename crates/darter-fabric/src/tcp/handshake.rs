//! The client's side of the handshake: it proves itself to a memory node and verifies the node.

use super::connection::Connection;
use super::options::TcpOptions;
use crate::FabricError;
use crate::wire::proof::{self, Nonce, Side, Transcript};
use crate::wire::{self, Answer, Channel, Hello, Opening, Refusal, Versions, Welcome};
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

/// The first pause after a node has closed the connection during the greeting. Each further one is
/// twice as long. At its limit of open files, a node closes connections that have not completed the
/// greeting, in the order of their arrival.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The last pause: 1 s in total.
const PAUSE_MAX: Duration = Duration::from_millis(512);

/// Connects to the node at one address, in the newest version of the protocol that both speak. Tries
/// again if the node closes the connection during the greeting.
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
    greet_in(Versions::SPOKEN, patience, address, node, caller, options)
}

/// [`greet`], for a program that speaks these versions.
fn greet_in(
    spoken: Versions,
    patience: Duration,
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
) -> Result<(Connection, Welcome), FabricError> {
    let (mut asked, deadline) = (spoken.newest, Instant::now() + patience);
    let mut pause = PAUSE_MIN;
    loop {
        match greet_once((spoken, asked), (patience, deadline), address, node, caller, options) {
            Ok(Greeted::Admitted(admitted)) => return Ok(*admitted),
            // Each time an older version.
            Ok(Greeted::Older(version)) => asked = version,
            Err(error) if is_closed(&error) && pause <= PAUSE_MAX && Instant::now() + pause < deadline => {
                std::thread::sleep(pause);
                pause *= 2;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The result of one greeting.
enum Greeted {
    Admitted(Box<(Connection, Welcome)>),
    /// The node speaks this older version.
    Older(u32),
}

/// Returns whether the node, or the server at its address, closed the connection.
fn is_closed(error: &FabricError) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let FabricError::Io(failure) = error else { return false };
    matches!(failure.source.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Connects once, and requests version `asked` of the protocol.
fn greet_once(
    (spoken, asked): (Versions, u32),
    (patience, deadline): (Duration, Instant),
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
) -> Result<Greeted, FabricError> {
    let failed = |action| move |error| FabricError::io(Path::new(address), action, error);
    let channel = Channel::connected(reach(address, patience)?, options.tls.as_ref(), address);
    let mut greeting = Greeting {
        address,
        connection: Connection::new(channel.map_err(failed("set up its socket"))?),
        deadline,
    };
    let client = proof::nonce().map_err(failed("draw a nonce for it"))?;
    let Caller { session, channel, attempt } = caller;
    let mut hello = Hello { channel, attempt, ..Hello::new(session, client) };
    hello.opening.version = asked;
    greeting.say(&hello);
    let opening: Opening = greeting.hear()?;
    if opening.magic != wire::MAGIC {
        return Err(greeting.lost(io::ErrorKind::InvalidData.into()));
    }
    let way_out = match spoken.answer(asked, opening.version) {
        Answer::Agreed => {
            let admitted = greeting.conclude(opening.code, client, session, node, options)?;
            return Ok(Greeted::Admitted(Box::new(admitted)));
        }
        Answer::Again(version) => return Ok(Greeted::Older(version)),
        Answer::IsNewer => "upgrade this program",
        Answer::IsOlder => "upgrade the memory node, or use an older program",
    };
    let other = opening.version;
    Err(FabricError::geometry(format!(
        "{address}: the memory node speaks version {other} of the protocol, this program {spoken}; {way_out} \
         (docs/compatibility.md)"
    )))
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
    /// Proves each side to the other after the node has agreed to the hello, unless it has refused it.
    fn conclude(
        mut self,
        code: u32,
        client: Nonce,
        session: u64,
        node: u8,
        options: &TcpOptions,
    ) -> Result<(Connection, Welcome), FabricError> {
        let address = self.address;
        refused(code, node, "")?;
        let transcript = Transcript { client, node: self.hear()?, session };
        // The file of the token may change while this waits.
        let token = options.token.current();
        self.say(&transcript.prove(token.first(), Side::Client));
        let welcome: Welcome = self.hear()?;
        let text = self.hear_text(welcome.text_bytes)?;
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
        let Self { mut connection, .. } = self;
        connection.frame_bytes = welcome.frame_bytes.clamp(4096, wire::FRAME_BYTES_MAX);
        connection.view = (welcome.flags & wire::IS_REPLICA != 0).then_some(welcome.view);
        Ok((connection, welcome))
    }

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
        let is_partial = (1..size_of::<Opening>()).contains(&connection.heard().len());
        let is_other = error.kind() == io::ErrorKind::InvalidData
            || is_partial && error.kind() == io::ErrorKind::UnexpectedEof;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Challenge;
    use crate::wire::proof::Proof;
    use bytemuck::Zeroable;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A version that this program does not have.
    const FUTURE: u32 = wire::VERSION + 3;

    /// Greets a node that speaks these versions, as a program that speaks `spoken`. Returns the
    /// result, and the versions of the hellos.
    fn meet(spoken: Versions, node: Versions) -> (Result<Welcome, FabricError>, Vec<u32>) {
        meet_after(0, spoken, node)
    }

    /// [`meet`] a node that closes this number of connections first, before or after it has read
    /// the hello.
    fn meet_after(
        closed: usize,
        spoken: Versions,
        node: Versions,
    ) -> (Result<Welcome, FabricError>, Vec<u32>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serve = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for number in 0..closed {
                let mut stream = listener.accept().unwrap().0;
                if number % 2 == 0 {
                    stream.read_exact(&mut [0; size_of::<Hello>()]).unwrap();
                }
            }
            loop {
                let mut stream = listener.accept().unwrap().0;
                let mut bytes = [0; size_of::<Hello>()];
                stream.read_exact(&mut bytes).unwrap();
                let hello: Hello = wire::head(&bytes).unwrap();
                let version = hello.opening.version;
                let is_known = node.include(version);
                asked.push(version);
                let mut challenge =
                    Challenge::new(if is_known { Refusal::None } else { Refusal::Version }, [0; 32]);
                challenge.opening.version = if is_known { version } else { node.newest };
                stream.write_all(wire::as_bytes(&challenge)).unwrap();
                if is_known {
                    stream.read_exact(&mut [0; size_of::<Proof>()]).unwrap();
                    // Flags and a word that this program does not know.
                    let flags = wire::IS_DURABLE | 1 << 31;
                    let frame_bytes = wire::FRAME_BYTES_MAX;
                    let welcome =
                        Welcome { region_bytes: 4096, frame_bytes, flags, reserved: 5, ..Welcome::zeroed() };
                    stream.write_all(wire::as_bytes(&welcome)).unwrap();
                }
                if is_known || !spoken.include(node.newest) || node.newest > spoken.newest {
                    return asked;
                }
            }
        });
        let options = TcpOptions { must_be_durable: true, ..TcpOptions::default() };
        let met = greet_in(spoken, Duration::from_secs(60), &address, 0, Caller::of(7), &options);
        (met.map(|(_, welcome)| welcome), serve.join().unwrap())
    }

    #[test]
    fn an_older_and_a_newer_program_speak_the_newest_version_of_both() {
        let (older, newer) = (Versions { oldest: 4, newest: 5 }, Versions { oldest: 5, newest: 7 });
        for (client, node, hellos) in
            [(newer, older, vec![7, 5]), (older, newer, vec![5]), (newer, newer, vec![7])]
        {
            let (met, asked) = meet(client, node);
            assert_eq!(met.unwrap().region_bytes, 4096);
            assert_eq!(asked, hellos, "{client}, {node}");
        }
    }

    #[test]
    fn programs_without_a_common_version_name_both_and_the_way_out() {
        let future = Versions { oldest: FUTURE, newest: FUTURE };
        for (client, node, way_out) in [
            (Versions::SPOKEN, future, "upgrade this program"),
            (future, Versions::SPOKEN, "upgrade the memory node"),
        ] {
            let error = meet(client, node).0.unwrap_err().to_string();
            let named = format!("speaks version {} of the protocol, this program {client}", node.newest);
            assert!(error.contains(&named) && error.contains(way_out), "{error}");
        }
    }

    #[test]
    fn a_connection_that_is_closed_during_the_greeting_is_opened_again() {
        let (met, asked) = meet_after(6, Versions::SPOKEN, Versions::SPOKEN);
        assert_eq!(met.unwrap().region_bytes, 4096);
        assert_eq!(asked, [wire::VERSION]);
    }

    #[test]
    fn a_server_that_closes_each_connection_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let count = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&count);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                accepted.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        let met = greet(Duration::from_secs(600), &address, 0, Caller::of(7), &TcpOptions::default());
        let error = met.map(|_| ()).unwrap_err();
        assert!(is_closed(&error) && error.to_string().contains(&address), "{error}");
        // Once, and ten times again.
        assert_eq!(count.load(Ordering::SeqCst), 11);
    }
}
