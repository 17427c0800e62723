//! Requests with deadlines to several addresses, one after the other until one answers.
//!
//! A server that was stopped keeps its connections open, so each try has a deadline of its own, and
//! the next address is asked. A request that changes something may then have been carried out
//! twice; its condition makes that harmless.

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

/// The most that is read of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// The most that is read of a token's file.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// The most that a message quotes of an answer.
const QUOTE_CHARS_MAX: usize = 200;

/// How servers are reached.
pub(crate) struct HttpOptions {
    /// For one try at one address.
    pub timeout: Duration,
    /// Certificate authorities, as PEM. Without any there is no TLS.
    pub ca: Option<String>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_millis(500), ca: None }
    }
}

/// Servers of which any can answer.
pub(crate) struct Addresses {
    agent: Agent,
    /// With their scheme.
    all: Vec<String>,
    /// The one that answered last.
    at: usize,
}

/// What a server answered.
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

    /// Returns the error that says what the server said.
    pub(crate) fn refused(&self) -> StoreError {
        let quote: String = self.body.trim().chars().take(QUOTE_CHARS_MAX).collect();
        StoreError::Refused { address: self.address.clone(), why: format!("status {}: {quote}", self.status) }
    }
}

impl Addresses {
    /// Makes ready for requests to these hosts.
    ///
    /// # Errors
    /// What is wrong with the certificates.
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

    /// Sends a request to one address after the other, beginning with the one that answered last,
    /// until one answers without a fault of its own.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] with what each of them did.
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
                // A server without a leader, or that is starting or overloaded: another may do.
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

/// Reads the file of a token, which a header is to carry.
///
/// # Errors
/// Those of the file; [`io::ErrorKind::InvalidData`] if it holds anything but one token.
pub(crate) fn token_in(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    let token = text.trim();
    let is_whole = (text.len() as u64) < TOKEN_BYTES_MAX;
    if !is_whole || token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it does not hold one token, and nothing else",
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
    if roots.is_empty() { Err("ca: there is no certificate in it".to_owned()) } else { Ok(roots) }
}
