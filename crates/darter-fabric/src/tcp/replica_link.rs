//! A replica's connection to another of its group, for its own messages only. The other replica's
//! messages use a connection that the other one opens. So messages arrive in order, or are lost
//! with the connection.

use super::connection::Connection;
use super::handshake::{Caller, greet};
use super::options::TcpOptions;
use crate::FabricError;
use crate::wire::{self, RELAY_BYTES_MAX, RELAY_CHANNEL, RequestKind};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A connection to another replica.
#[derive(Debug)]
pub struct ReplicaLink {
    connection: Connection,
    replica: u64,
}

impl ReplicaLink {
    /// Connects as replica `me`, for the `attempt`-th time, to the node at an address. Waits at
    /// most `patience` for the connection, and again for the greeting.
    ///
    /// # Errors
    /// Fails if no node replies there in time, or if the node is not a replica or does not accept
    /// this one.
    pub fn connect(
        address: &str,
        me: u64,
        attempt: u32,
        patience: Duration,
        options: &TcpOptions,
    ) -> Result<Self, FabricError> {
        let caller = Caller { session: me, channel: RELAY_CHANNEL, attempt };
        let (connection, welcome) = greet(patience, address, 0, caller, options)?;
        if welcome.flags & wire::IS_REPLICA == 0 {
            return Err(FabricError::geometry(format!(
                "{address}: the memory node there is not a replica; start it with `--replicas` like this one"
            )));
        }
        Ok(Self { connection, replica: welcome.replica })
    }

    /// Returns the name of the replica at the other end.
    pub fn replica(&self) -> u64 {
        self.replica
    }

    /// Puts a message on the connection, to be sent with the next flush. `put` appends its bytes.
    pub fn send(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let at = self.connection.begin_frame();
        let start = at + wire::HEADER_BYTES;
        put(&mut self.connection.out.bytes);
        if self.connection.out.bytes.len() - start <= RELAY_BYTES_MAX {
            self.connection.end_frame(at, RequestKind::Relay, 0);
            return;
        }
        let whole = self.connection.out.bytes.split_off(start);
        self.connection.out.bytes.truncate(at);
        let mut parts = whole.chunks(RELAY_BYTES_MAX).peekable();
        while let Some(part) = parts.next() {
            let at = self.connection.begin_frame();
            self.connection.out.bytes.extend_from_slice(part);
            self.connection.end_frame(at, RequestKind::Relay, parts.peek().is_some().into());
        }
    }

    /// Returns the number of bytes that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.connection.out.waiting()
    }

    /// Sends as much as the socket accepts. Returns whether that was everything.
    ///
    /// # Errors
    /// Fails if the connection is lost.
    pub fn flush(&mut self) -> io::Result<bool> {
        self.connection.flush()
    }

    /// Checks that the connection still exists: the other end sends nothing on it.
    ///
    /// # Errors
    /// Fails if it is lost, or data arrived.
    pub fn check(&mut self) -> io::Result<()> {
        if self.connection.receive()? && !self.connection.heard().is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(())
    }
}

impl AsFd for ReplicaLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.channel.as_fd()
    }
}
