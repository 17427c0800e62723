//! Replaces TLS in a build without the feature `tls`: types that have no values, so that a
//! connection is always plain, and the other code is the same with and without TLS.

use super::credentials::Credential;
use std::io::{self, Read, Write};

/// How a client uses TLS. Has no values without the feature `tls`.
#[derive(Clone, Debug)]
pub enum ClientTls {}

/// How a memory node or gateway uses TLS. Has no values without the feature `tls`.
#[derive(Clone, Debug)]
pub enum NodeTls {}

/// The TLS state of one connection.
#[derive(Debug)]
pub(super) enum TlsSession {}

impl ClientTls {
    /// Returns the handle to the files.
    pub fn credential(&self) -> Credential {
        match *self {}
    }

    pub(super) fn connect(&self, _address: &str) -> io::Result<TlsSession> {
        match *self {}
    }
}

impl NodeTls {
    /// Returns the handle to the files.
    pub fn credential(&self) -> Credential {
        match *self {}
    }

    pub(super) fn accept(&self) -> io::Result<TlsSession> {
        match *self {}
    }
}

impl TlsSession {
    pub(super) fn buffer_bytes(&self) -> usize {
        match *self {}
    }

    pub(super) fn rest(&mut self) {
        match *self {}
    }

    pub(super) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(super) fn close(&mut self, _socket: &mut (impl Read + Write)) {
        match *self {}
    }

    pub(super) fn read(
        &mut self,
        _socket: &mut (impl Read + Write),
        _buffer: &mut [u8],
    ) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn write(&mut self, _socket: &mut (impl Read + Write), _bytes: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn flush(&mut self, _socket: &mut (impl Read + Write)) -> io::Result<()> {
        match *self {}
    }
}
