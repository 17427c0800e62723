//! Gateways in threads of the test, redis-servers to compare them with, and a blocking client.

use darter::{IndexKind, Store, StoreOptions};
use darter_gateway::{Gateway, GatewayOptions};
use darter_gateway::{HttpPort, Stop};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Long enough for anything that will happen.
pub const LONG: Duration = Duration::from_secs(60);

/// A gateway in threads of this process.
pub struct Door {
    pub address: SocketAddr,
    /// The port of its status page.
    pub status: HttpPort,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// Opens a store as the tests do: over the default index, or over the one in `DARTER_TEST_INDEX`.
pub fn store(url: &str) -> Store {
    options().open(url).unwrap()
}

/// Returns the index of the tests' new pools.
pub fn index() -> IndexKind {
    std::env::var("DARTER_TEST_INDEX").map_or_else(|_| IndexKind::default(), |name| name.parse().unwrap())
}

/// Returns whether the index has transactions.
pub fn has_transactions() -> bool {
    index() != IndexKind::Dart
}

/// Returns how the tests open stores.
pub fn options() -> StoreOptions {
    Store::options().index(index())
}

impl Door {
    /// Starts a gateway over a store.
    pub fn of(store: Store, options: GatewayOptions) -> Self {
        let gateway = Gateway::bind("127.0.0.1:0".parse().unwrap(), store, options).unwrap();
        let status = gateway.serve_status("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, stop) = (gateway.address().unwrap(), Arc::new(Stop::default()));
        let theirs = Arc::clone(&stop);
        let thread = std::thread::spawn(move || gateway.serve(&theirs).unwrap());
        Self { address, status, stop, thread: Some(thread) }
    }

    /// Starts a gateway over its own pool.
    pub fn new(options: GatewayOptions) -> Self {
        Self::of(store("mem:128M"), options)
    }

    pub fn open() -> Self {
        Self::new(GatewayOptions { allow_flush: true, ..GatewayOptions::default() })
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.ask();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// Returns whether a program is installed. If it is not, the test is skipped, unless
/// `DARTER_TEST_ALL` is set.
pub fn has(program: &str, arguments: &[&str]) -> bool {
    let is_there = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if is_there.is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(std::env::var_os("DARTER_TEST_ALL").is_none(), "{program} is required; run scripts/test-tools");
    eprintln!("skipped: {program} is not installed; run scripts/test-tools");
    false
}

/// A redis-server that a test started.
pub struct Redis {
    pub address: SocketAddr,
    child: Child,
}

impl Redis {
    /// Starts a server, if it is installed.
    pub fn start() -> Option<Self> {
        if !has("redis-server", &["--version"]) {
            return None;
        }
        // Another process may take the port in between; then try another port.
        for _ in 0..10 {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let port = address.port().to_string();
            let options =
                ["--port", &port, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir", "/tmp"];
            let mut child = Command::new("redis-server").args(options).stdout(Stdio::null()).spawn().unwrap();
            for _ in 0..1000 {
                if TcpStream::connect(address).is_ok() {
                    return Some(Self { address, child });
                }
                if child.try_wait().unwrap().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("redis-server does not start");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reply, of RESP2 or RESP3.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Text(String),
    Boolean(bool),
    BigNumber(String),
    /// As written on the wire.
    Double(String),
    Null,
    Array(Vec<Reply>),
    Map(Vec<Reply>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
}

impl Reply {
    pub fn bulk(text: &str) -> Self {
        Self::Bulk(text.as_bytes().to_vec())
    }

    pub fn array(self) -> Vec<Self> {
        match self {
            Self::Array(replies) => replies,
            other => panic!("not an array: {other:?}"),
        }
    }

    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("not a bulk: {other:?}"),
        }
    }
}

/// The reply of commands that only succeed.
pub fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

/// An array of texts.
pub fn bulks(words: &[&str]) -> Reply {
    Reply::Array(words.iter().copied().map(Reply::bulk).collect())
}

/// Returns the text of an error.
pub fn error(reply: Reply) -> String {
    match reply {
        Reply::Error(text) => text,
        other => panic!("not an error: {:.200}", format!("{other:?}")),
    }
}

pub fn integer(reply: Reply) -> i64 {
    match reply {
        Reply::Integer(number) => number,
        other => panic!("not an integer: {other:?}"),
    }
}

/// A blocking client.
pub struct Client {
    pub reader: BufReader<TcpStream>,
}

/// Encodes a request.
pub fn request<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments.iter().map(AsRef::as_ref) {
        bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { reader: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    /// Sends a request, and reads the reply.
    pub fn ask<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        self.send(&request(arguments));
        self.reply()
    }

    /// Sends a request whose arguments are separated by spaces.
    pub fn say(&mut self, words: &str) -> Reply {
        self.ask(&words.split(' ').collect::<Vec<_>>())
    }

    /// Reads the next reply.
    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("the connection stays open")
    }

    /// Reads the next reply, unless the connection has ended.
    pub fn try_reply(&mut self) -> Option<Reply> {
        let mut line = Vec::new();
        let read = self.reader.read_until(b'\n', &mut line);
        let waits = read
            .as_ref()
            .is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        assert!(!waits, "neither a reply nor the end has arrived");
        read.ok().filter(|&count| count > 0)?;
        let line = line.strip_suffix(b"\r\n").unwrap();
        let text = String::from_utf8_lossy(&line[1..]).into_owned();
        let count = || text.parse::<i64>().unwrap();
        Some(match line[0] {
            b'+' => Reply::Simple(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Integer(count()),
            b'$' | b'*' if count() < 0 => Reply::Null,
            b'_' => Reply::Null,
            b'#' => Reply::Boolean(text == "t"),
            b'(' => Reply::BigNumber(text),
            b',' => Reply::Double(text),
            b'$' => Reply::Bulk(self.exactly(count())?),
            b'=' => Reply::Text(String::from_utf8(self.exactly(count())?).unwrap()),
            b'*' => Reply::Array(self.replies(count())?),
            b'%' => Reply::Map(self.replies(count() * 2)?),
            b'~' => Reply::Set(self.replies(count())?),
            b'>' => Reply::Push(self.replies(count())?),
            other => panic!("no reply begins with {}", other.escape_ascii()),
        })
    }

    fn exactly(&mut self, count: i64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count as usize + 2];
        self.reader.read_exact(&mut bytes).ok()?;
        assert_eq!(bytes.split_off(count as usize), b"\r\n");
        Some(bytes)
    }

    fn replies(&mut self, count: i64) -> Option<Vec<Reply>> {
        (0..count).map(|_| self.try_reply()).collect()
    }

    /// Reads everything until the other side ends the connection.
    pub fn rest(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let end = self.reader.read_to_end(&mut bytes);
        let waits =
            end.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        assert!(!waits, "the connection stays open after {}", bytes[..bytes.len().min(100)].escape_ascii());
        bytes
    }
}
