//! Requests with deadlines, sent to several addresses one after the other until one replies.
//!
//! A stopped server keeps its connections open, so each attempt has its own deadline, after which
//! the next address is tried. A request that changes something may then be carried out twice; its
//! condition makes that harmless.

use crate::StoreError;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::http::{Method, Request};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

/// Maximum bytes read of a response.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Maximum bytes read of a token's file.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// Maximum length of a response's quote in a message.
const QUOTE_CHARS_MAX: usize = 200;

/// Connection options.
pub(crate) struct HttpOptions {
    /// Timeout of one attempt at one address.
    pub timeout: Duration,
    /// Certificate authorities, as PEM. If there are none, TLS is not used.
    pub ca: Option<String>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_millis(500), ca: None }
    }
}

/// Equivalent servers.
pub(crate) struct Addresses {
    agent: Agent,
    /// The addresses, with their scheme.
    all: Vec<String>,
    /// Index of the address that replied last.
    at: usize,
}

/// A server's response.
pub(crate) struct Answer {
    pub address: String,
    pub status: u16,
    pub body: String,
}

impl Answer {
    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> Result<Value, StoreError> {
        serde_json::from_str(&self.body).map_err(|_| self.refused())
    }

    /// Returns the error that quotes the response.
    pub(crate) fn refused(&self) -> StoreError {
        let quote: String = self.body.trim().chars().take(QUOTE_CHARS_MAX).collect();
        StoreError::Refused { address: self.address.clone(), why: format!("status {}: {quote}", self.status) }
    }
}

impl Addresses {
    /// Creates the client for these hosts.
    ///
    /// # Errors
    /// Fails if a certificate is invalid.
    pub(crate) fn new(hosts: &[String], options: &HttpOptions) -> Result<Self, String> {
        let mut config = Agent::config_builder()
            .timeout_global(Some(options.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None);
        if let Some(pem) = &options.ca {
            let roots = certificates(pem)?;
            let tls = TlsConfig::builder()
                .root_certs(RootCerts::from(roots))
                .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
            config = config.tls_config(tls.build());
        }
        let scheme = if options.ca.is_some() { "https" } else { "http" };
        let all = hosts.iter().map(|host| format!("{scheme}://{host}")).collect();
        Ok(Self { agent: config.build().into(), all, at: 0 })
    }

    /// Sends a request to one address after the other, starting with the one that replied last,
    /// until a server replies without a server-side error.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] with the error of each address.
    pub(crate) fn send(
        &mut self,
        method: &Method,
        path: &str,
        headers: &[(&str, String)],
        body: &str,
    ) -> Result<Answer, StoreError> {
        let mut faults = Vec::new();
        for _ in 0..self.all.len() {
            let address = &self.all[self.at];
            match self.try_at(address, method, path, headers, body) {
                // The server has no leader, is starting or is overloaded: another one may work.
                Ok(answer) if answer.status < 500 && answer.status != 429 => return Ok(answer),
                Ok(answer) => faults.push(answer.refused().to_string()),
                Err(fault) => faults.push(format!("{address}: {fault}")),
            }
            self.at = (self.at + 1) % self.all.len();
        }
        Err(StoreError::Unreachable(faults.join("; ")))
    }

    fn try_at(
        &self,
        address: &str,
        method: &Method,
        path: &str,
        headers: &[(&str, String)],
        body: &str,
    ) -> Result<Answer, ureq::Error> {
        let mut request = Request::builder().method(method).uri(format!("{address}{path}"));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let mut response = if method == Method::GET {
            self.agent.run(request.body(())?)?
        } else {
            self.agent.run(request.header("Content-Type", "application/json").body(body.to_owned())?)?
        };
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string()?;
        Ok(Answer { address: address.to_owned(), status, body })
    }
}

/// Reads a token for a header from a file.
///
/// # Errors
/// The file's errors; [`io::ErrorKind::InvalidData`] if it does not hold exactly one token.
pub(crate) fn token_in(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    let token = text.trim();
    let is_whole = (text.len() as u64) < TOKEN_BYTES_MAX;
    if !is_whole || token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file must hold one token and nothing else",
        ));
    }
    Ok(token.to_owned())
}

fn certificates(pem: &str) -> Result<Vec<Certificate<'static>>, String> {
    let mut roots = Vec::new();
    for item in ureq::tls::parse_pem(pem.as_bytes()) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| format!("ca: {error}"))? {
            roots.push(certificate);
        }
    }
    if roots.is_empty() { Err("ca: the file has no certificate".to_owned()) } else { Ok(roots) }
}
