//! Servers as processes, and a client of a gateway that reconnects.

use crate::common::with_default_hangup;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

/// A process of the program that prints its address in its first line. It is killed when dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Daemon {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = with_default_hangup();
        command.args(arguments).env_remove("DARTER_POOL").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().split_once("://").unwrap_or_else(|| panic!("{arguments:?}: {line}")).1.to_owned();
        Self { child, address }
    }

    pub(crate) fn gateway(pool: &str, resp: &str) -> Self {
        Self::start(&["serve", "--resp", resp, "--pool", pool])
    }
}

impl Daemon {
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A client that reconnects to its gateway.
pub(crate) struct Client {
    address: String,
    pub(crate) stream: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), stream: None }
    }

    /// Waits until the gateway accepts connections.
    pub(crate) fn connect(&mut self) {
        for _ in 0..6000 {
            if let Ok(stream) = TcpStream::connect(&self.address) {
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                stream.set_nodelay(true).unwrap();
                self.stream = Some(BufReader::new(stream));
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{}: never there again", self.address);
    }

    /// Returns the first line of the reply, and a string's bytes; `None` if the connection ended
    /// before.
    pub(crate) fn ask(&mut self, words: &str) -> Option<(String, String)> {
        if self.stream.is_none() {
            self.connect();
        }
        let reply = self.try_ask(words);
        if reply.is_none() {
            self.stream = None;
        }
        reply
    }

    fn try_ask(&mut self, words: &str) -> Option<(String, String)> {
        let stream = self.stream.as_mut()?;
        stream.get_mut().write_all(format!("{words}\r\n").as_bytes()).ok()?;
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|_| line.ends_with("\r\n"))?;
        let line = line.trim_end().to_owned();
        let Some(count) = line.strip_prefix('$').and_then(|count| count.parse::<usize>().ok()) else {
            return Some((line, String::new()));
        };
        let mut bytes = vec![0; count + 2];
        stream.read_exact(&mut bytes).ok()?;
        bytes.truncate(count);
        Some((line, String::from_utf8(bytes).unwrap()))
    }
}
