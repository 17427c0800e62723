//! `memnode`: serves this machine's memory as a memory node until SIGTERM or Ctrl-C.

use crate::Answer;
use crate::failure::{Failure, complain};
use darter::ByteSize;
use darter_server::memnode::{MemNode, MemNodeOptions, Region};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct MemNodeCommand {
    /// Where to listen: ADDRESS:PORT; port 0 takes any, and the line on stdout says which
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Bytes of the region, such as 8G; the system grants them as they are touched
    #[arg(long, value_name = "SIZE")]
    size: ByteSize,
    /// Keep the region in this file, to be offered again by the next node that is started with it; FILE.node goes with it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A file whose content, line end left off, clients must know
    #[arg(long, value_name = "FILE", env = "DARTER_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Connections at most
    #[arg(long, value_name = "N", default_value_t = 1024)]
    connections: usize,
    /// Microseconds to look again and again before sleeping
    #[arg(long, value_name = "US", default_value_t = 50)]
    spin: u64,
}

/// Reads a token file.
pub(crate) fn token(path: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let cannot = |error| Failure::usage(format!("{}: cannot read the token: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(cannot)?;
    let token = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let token = token.strip_suffix(b"\r").unwrap_or(token);
    if token.is_empty() || token.len() > darter_fabric::tcp::wire::TOKEN_BYTES_MAX {
        return Err(Failure::usage(format!("{}: a token has 1 to 256 bytes", path.display())));
    }
    Ok(token.to_vec())
}

impl MemNodeCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let unit = darter_fabric::SUPERBLOCK_BYTES;
        let bytes = self.size.0 / unit * unit;
        let region = match &self.file {
            Some(path) => Region::file(path, bytes).map_err(Failure::failed)?,
            None => Region::memory(bytes).map_err(Failure::usage)?,
        };
        let options = MemNodeOptions {
            token: token(self.token_file.as_deref())?,
            connections_max: self.connections,
            spin: Duration::from_micros(self.spin),
            ..MemNodeOptions::default()
        };
        if options.token.is_empty() && !self.listen.ip().is_loopback() {
            complain("note: without --token-file whoever reaches this address can read and write the memory");
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::failed)?;
        }
        let mut node = MemNode::bind(self.listen, region, options).map_err(Failure::failed)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "tcp://{}", node.address().map_err(Failure::failed)?)?;
        out.flush()?;
        let counts = node.serve(&stop).map_err(Failure::failed)?;
        complain(format_args!(
            "served {} connections, {} frames, {} verbs; refused {}, dropped {}",
            counts.accepted, counts.frames, counts.verbs, counts.refused, counts.dropped
        ));
        Ok(Answer::Done)
    }
}
