//! A client of the Redis server whose keys are imported: `SCAN`, and `DUMP` and `PTTL` of each key.

use super::address::ServerUrl;
use crate::export_commands::write_command;
use crate::failure::Failure;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long the server may take to accept the connection, and for each part of a reply.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);
/// Most bytes of a line of a reply.
const LINE_BYTES: u64 = 64 << 10;
/// Most arrays in each other.
const DEPTH_MAX: usize = 4;
/// Keys that are requested together. The server holds their replies.
const TOGETHER: usize = 32;

/// A reply.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
}

/// A key of the server.
pub(super) struct Found {
    pub(super) name: Vec<u8>,
    /// Its payload and the rest of its life in ms, if it is not endless; or the server's error.
    pub(super) value: Result<(Vec<u8>, Option<u64>), String>,
}

/// A connection.
pub(super) struct Server {
    stream: BufReader<TcpStream>,
    /// Most bytes of a string.
    bulk_bytes_max: usize,
}

impl Server {
    /// Connects and authenticates.
    pub(super) fn connect(url: &ServerUrl, bulk_bytes_max: usize) -> Result<Self, Failure> {
        let cannot = |error: io::Error| Failure::failed(format_args!("cannot connect: {error}"));
        let mut refused = None;
        for address in (&url.host[..], url.port).to_socket_addrs().map_err(cannot)? {
            match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).map_err(cannot)?;
                    stream.set_write_timeout(Some(PATIENCE)).map_err(cannot)?;
                    stream.set_nodelay(true).map_err(cannot)?;
                    let mut server = Self { stream: BufReader::new(stream), bulk_bytes_max };
                    server.authenticate(url)?;
                    return Ok(server);
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(cannot(refused.unwrap_or_else(|| io::Error::other("the host has no address"))))
    }

    fn authenticate(&mut self, url: &ServerUrl) -> Result<(), Failure> {
        let Some(password) = &url.password else { return Ok(()) };
        let words: &[&[u8]] =
            if url.user.is_empty() { &[b"AUTH", password] } else { &[b"AUTH", &url.user, password] };
        self.ask(words).map(drop).map_err(|failure| failure.within("AUTH"))
    }

    /// Returns the numbers of the databases that have keys, and of the keys.
    pub(super) fn databases(&mut self) -> Result<Vec<(u64, u64)>, Failure> {
        let Reply::Bulk(text) = self.ask(&[b"INFO", b"keyspace"])? else {
            return Err(unexpected("INFO"));
        };
        let line = |line: &str| {
            let (number, counts) = line.strip_prefix("db")?.split_once(":keys=")?;
            Some((number.parse().ok()?, counts.split(',').next()?.parse().ok()?))
        };
        Ok(String::from_utf8_lossy(&text).lines().filter_map(line).collect())
    }

    /// Selects a database, and returns the number of its keys.
    pub(super) fn select(&mut self, database: u64) -> Result<u64, Failure> {
        self.ask(&[b"SELECT", database.to_string().as_bytes()])?;
        match self.ask(&[b"DBSIZE"])? {
            Reply::Integer(count) => Ok(u64::try_from(count).unwrap_or(0)),
            _ => Err(unexpected("DBSIZE")),
        }
    }

    /// Passes all keys of the selected database to `visit`, until it returns false. A key may be passed
    /// twice, as by `SCAN`.
    pub(super) fn visit(
        &mut self,
        mut visit: impl FnMut(Found) -> Result<bool, Failure>,
    ) -> Result<bool, Failure> {
        let mut cursor = b"0".to_vec();
        loop {
            let (next, names) = match self.ask(&[b"SCAN", &cursor, b"COUNT", b"256"])? {
                Reply::Array(parts) => match <[Reply; 2]>::try_from(parts) {
                    Ok([Reply::Bulk(next), Reply::Array(names)]) => (next, names),
                    _ => return Err(unexpected("SCAN")),
                },
                _ => return Err(unexpected("SCAN")),
            };
            let names: Vec<Vec<u8>> = names
                .into_iter()
                .map(|name| if let Reply::Bulk(name) = name { Ok(name) } else { Err(unexpected("SCAN")) })
                .collect::<Result<_, _>>()?;
            for names in names.chunks(TOGETHER) {
                let mut requests = Vec::new();
                for name in names {
                    write_command(&mut requests, &[b"PTTL", name])?;
                    write_command(&mut requests, &[b"DUMP", name])?;
                }
                self.send(&requests)?;
                for name in names {
                    if let Some(found) = self.dumped(name)?
                        && !visit(found)?
                    {
                        return Ok(false);
                    }
                }
            }
            if next == b"0" {
                return Ok(true);
            }
            cursor = next;
        }
    }

    /// Reads the replies to `PTTL` and `DUMP`; `None` if the key is gone.
    fn dumped(&mut self, name: &[u8]) -> Result<Option<Found>, Failure> {
        let value = match (self.reply(0)?, self.reply(0)?) {
            (Reply::Integer(-2), _) | (_, Reply::Null) => return Ok(None),
            (Reply::Integer(left), Reply::Bulk(payload)) => Ok((payload, u64::try_from(left).ok())),
            (Reply::Error(why), _) | (_, Reply::Error(why)) => Err(why),
            _ => return Err(unexpected("DUMP")),
        };
        Ok(Some(Found { name: name.to_vec(), value }))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let cannot = |error| Failure::failed(format_args!("cannot send requests: {error}"));
        self.stream.get_mut().write_all(bytes).map_err(cannot)
    }

    /// Sends a request, and returns its reply.
    fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, Failure> {
        let mut request = Vec::new();
        write_command(&mut request, words)?;
        self.send(&request)?;
        match self.reply(0)? {
            Reply::Error(why) => Err(Failure::failed(why)),
            reply => Ok(reply),
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = Vec::new();
        self.stream.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line).map_err(broken)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if line.is_empty() => Err(Failure::failed("the server has closed the connection")),
            None => Err(Failure::failed("the reply is not one of a Redis server")),
        }
    }

    fn reply(&mut self, depth: usize) -> Result<Reply, Failure> {
        let line = self.line()?;
        let foreign = || Failure::failed("the reply is not one of a Redis server");
        let (code, text) = line.split_at_checked(1).ok_or_else(foreign)?;
        let number = || text.parse::<i64>().map_err(|_| foreign());
        Ok(match code {
            "+" => Reply::Simple(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Integer(number()?),
            "$" | "*" if number()? < 0 => Reply::Null,
            "$" => Reply::Bulk(self.bulk(number()?)?),
            "*" if depth < DEPTH_MAX => {
                let mut parts = Vec::new();
                for _ in 0..number()? {
                    parts.push(self.reply(depth + 1)?);
                }
                Reply::Array(parts)
            }
            _ => return Err(foreign()),
        })
    }

    fn bulk(&mut self, bytes: i64) -> Result<Vec<u8>, Failure> {
        let most = self.bulk_bytes_max;
        let Some(bytes) = usize::try_from(bytes).ok().filter(|bytes| *bytes <= most) else {
            return Err(Failure::failed(format_args!(
                "a reply of {bytes} bytes, more than the {most} of --value-memory; give a larger one"
            )));
        };
        let mut read = Vec::new();
        self.stream.by_ref().take(bytes as u64 + 2).read_to_end(&mut read).map_err(broken)?;
        if read.len() < bytes + 2 {
            return Err(Failure::failed("the server has closed the connection"));
        }
        read.truncate(bytes);
        Ok(read)
    }
}

#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn broken(error: io::Error) -> Failure {
    Failure::failed(match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("the server has sent nothing for {} s", PATIENCE.as_secs())
        }
        _ => format!("the connection to the server is broken: {error}"),
    })
}

fn unexpected(command: &str) -> Failure {
    Failure::failed(format_args!("the reply to {command} is not one of a Redis server"))
}
