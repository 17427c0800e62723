//! What commands and memory nodes show each other: tokens and certificates, from files or variables
//! of the environment.

use crate::arguments::seconds;
use crate::failure::Failure;
use clap::builder::FalseyValueParser;
use darter::{PoolUrl, Store, StoreOptions};
use darter_fabric::TcpOptions;
use darter_fabric::wire::TOKEN_BYTES_MAX;
use darter_fabric::wire::{ClientTls, IdentityFiles, NodeTls};
use darter_gateway::GatewayOptions;
use darter_memnode::MemNodeOptions;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Above options that few commands need; they come behind a command's own.
const HEADING: &str = "Token and TLS";

/// Where memory nodes look for their certificate by default.
pub(crate) const NODE_TLS_VARIABLES: [&str; 3] =
    ["DARTER_TLS_CERT", "DARTER_TLS_KEY", "DARTER_TLS_CLIENT_CA"];

/// Where clients look for `--rdma-in-clear`.
const RDMA_IN_CLEAR: &str = "DARTER_RDMA_IN_CLEAR";

/// The error for TLS beside RDMA, which only seems to protect what goes over the network.
pub(crate) fn in_clear(what: &str) -> Failure {
    Failure::usage(format_args!(
        "{what} beside TLS: TCP is encrypted, but nothing encrypts what RDMA carries, which is all keys and values; \
         give --rdma-in-clear where the network is your own, or leave out one of the two"
    ))
}

/// Where credentials of either end are told of.
pub fn credential_variables() -> impl Iterator<Item = &'static str> {
    NODE_TLS_VARIABLES.into_iter().chain(["DARTER_TOKEN_FILE", "DARTER_TLS_CA", RDMA_IN_CLEAR])
}

/// A child process that is told of no credentials.
pub fn without_credentials(command: &mut Command) {
    for variable in credential_variables() {
        command.env_remove(variable);
    }
}

/// The token, which is the same at both ends.
#[derive(clap::Args)]
pub(crate) struct TokenArgs {
    /// A file whose content, line end left off, clients and memory nodes must know
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// The token; nothing without a file.
    pub(crate) fn content(&self) -> Result<Vec<u8>, Failure> {
        self.token_file.as_deref().map_or(Ok(Vec::new()), |path| secret(path, "token"))
    }
}

/// What a file holds that nobody else is to know, its line end left off.
fn secret(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    let cannot = |error| Failure::usage(format!("{}: cannot read the {what}: {error}", path.display()));
    let mut bytes = Vec::new();
    // Its line end, and one more to see that it is too long.
    let most = TOKEN_BYTES_MAX as u64 + 3;
    File::open(path).map_err(cannot)?.take(most).read_to_end(&mut bytes).map_err(cannot)?;
    let secret = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
    if secret.is_empty() || secret.len() > TOKEN_BYTES_MAX {
        return Err(Failure::usage(format!("{}: a {what} has 1 to {TOKEN_BYTES_MAX} bytes", path.display())));
    }
    Ok(secret.to_vec())
}

/// The certificate of this end of a connection.
#[derive(clap::Args)]
struct IdentityArgs {
    /// A PEM file with this end's certificate, and those between it and its CA's
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl IdentityArgs {
    fn files(&self) -> Option<IdentityFiles<'_>> {
        let (certificate, key) = (self.tls_cert.as_deref()?, self.tls_key.as_deref()?);
        Some(IdentityFiles { certificate, key })
    }
}

/// What a client needs for memory nodes to let it in, and to trust them.
#[derive(clap::Args)]
pub struct ClientArgs {
    #[command(flatten)]
    token: TokenArgs,
    /// Speak TLS with the memory nodes, and trust those with certificates signed by this PEM file's
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_CA")]
    tls_ca: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
    /// Use an `rdma:` pool also beside TLS: TCP is encrypted then, keys and values go over RDMA in
    /// clear
    #[arg(help_heading = HEADING, long, env = RDMA_IN_CLEAR, value_parser = FalseyValueParser::new())]
    rdma_in_clear: bool,
    /// Microseconds that a thread looks again and again for answers of memory nodes before it
    /// sleeps
    #[arg(help_heading = HEADING, long, value_name = "US", default_value_t = 50, env = "DARTER_SPIN")]
    spin: u64,
    /// Seconds that a memory group may have no replica that serves before operations fail
    #[arg(help_heading = HEADING, long, value_name = "SECONDS", default_value = "30", env = "DARTER_GROUP_PATIENCE")]
    #[arg(value_parser = seconds)]
    group_patience: Duration,
}

impl ClientArgs {
    /// Passes the same credentials to a child process, in its environment.
    pub fn tell(&self, command: &mut Command) {
        let files = [
            ("DARTER_TOKEN_FILE", &self.token.token_file),
            ("DARTER_TLS_CA", &self.tls_ca),
            ("DARTER_TLS_CERT", &self.identity.tls_cert),
            ("DARTER_TLS_KEY", &self.identity.tls_key),
        ];
        for (variable, file) in files {
            match file {
                Some(file) => command.env(variable, file),
                None => command.env_remove(variable),
            };
        }
        if self.rdma_in_clear {
            command.env(RDMA_IN_CLEAR, "true");
        } else {
            command.env_remove(RDMA_IN_CLEAR);
        }
        command.env("DARTER_SPIN", self.spin.to_string());
        command.env("DARTER_GROUP_PATIENCE", self.group_patience.as_secs_f64().to_string());
    }

    /// How to open a pool; credentials are looked at for one that can want them.
    pub fn store_options(&self, pool: &PoolUrl) -> Result<StoreOptions, Failure> {
        Ok(Store::options().tcp(self.options_for(pool)?))
    }

    /// How to reach a pool's memory nodes, where it has any.
    pub fn options_for(&self, pool: &PoolUrl) -> Result<TcpOptions, Failure> {
        if pool.addresses().is_none() {
            return Ok(TcpOptions::default());
        }
        if pool.device().is_some() && self.tls_ca.is_some() && !self.rdma_in_clear {
            return Err(in_clear("an `rdma:` pool"));
        }
        Ok(self.options()?.for_pool(pool))
    }

    /// Reads the files.
    pub(crate) fn options(&self) -> Result<TcpOptions, Failure> {
        let identity = self.identity.files();
        let tls = match &self.tls_ca {
            Some(ca) => Some(ClientTls::from_files(ca, identity).map_err(Failure::usage)?),
            None if identity.is_some() => {
                return Err(Failure::usage("a certificate (--tls-cert) is of use with --tls-ca only"));
            }
            None => None,
        };
        Ok(TcpOptions {
            token: self.token.content()?,
            tls,
            spin: Duration::from_micros(self.spin),
            group_patience: self.group_patience,
            ..TcpOptions::default()
        })
    }
}

/// Whom a memory node lets in, and how it shows what it is.
#[derive(clap::Args)]
pub struct NodeArgs {
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    identity: IdentityArgs,
    /// Ask clients for certificates signed by this PEM file's
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_CLIENT_CA", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl NodeArgs {
    /// Reads the files.
    pub(crate) fn options(&self) -> Result<MemNodeOptions, Failure> {
        let tls = |identity| NodeTls::from_files(identity, self.tls_client_ca.as_deref());
        let tls = self.identity.files().map(tls).transpose().map_err(Failure::usage)?;
        Ok(MemNodeOptions { token: self.token.content()?, tls, ..MemNodeOptions::default() })
    }

    /// What a client in the same process shows memory nodes, this one too.
    pub fn of_a_client(&self, ca: Option<&Path>) -> Result<TcpOptions, Failure> {
        let tls = self.shown_to_nodes(ca, "a server beside TLS (--tls-cert) needs --server-tls-ca")?;
        Ok(TcpOptions { token: self.token.content()?, tls, ..TcpOptions::default() })
    }

    /// How a replica speaks TLS with others.
    pub(crate) fn of_a_replica(&self, ca: Option<&Path>) -> Result<Option<ClientTls>, Failure> {
        self.shown_to_nodes(ca, "a replica beside TLS (--tls-cert) needs --replica-tls-ca")
    }

    fn shown_to_nodes(&self, ca: Option<&Path>, lacks_ca: &str) -> Result<Option<ClientTls>, Failure> {
        let identity = self.identity.files();
        if identity.is_some() && ca.is_none() {
            return Err(Failure::usage(lacks_ca));
        }
        ca.map(|ca| ClientTls::from_files(ca, identity).map_err(Failure::usage)).transpose()
    }

    /// Whether strangers are kept out.
    pub(crate) fn are_asked_for(&self) -> bool {
        self.token.token_file.is_some() || self.tls_client_ca.is_some()
    }
}

/// What a gateway shows the pool's memory nodes, under names that leave the plain ones to what it
/// shows its own clients. The variables are those of every client.
#[derive(clap::Args)]
pub(crate) struct GatewayPoolArgs {
    #[command(flatten)]
    token: TokenArgs,
    /// Speak TLS with the memory nodes, and trust those with certificates signed by this PEM file's
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_CA")]
    pool_tls_ca: Option<PathBuf>,
    /// A PEM file with the certificate to show memory nodes, and those between it and its CA's
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_CERT", requires = "pool_tls_key")]
    pool_tls_cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_KEY", requires = "pool_tls_cert")]
    pool_tls_key: Option<PathBuf>,
    /// Use an `rdma:` pool also beside TLS: TCP is encrypted then, keys and values go over RDMA in
    /// clear
    #[arg(help_heading = HEADING, long, env = RDMA_IN_CLEAR, value_parser = FalseyValueParser::new())]
    rdma_in_clear: bool,
    /// Microseconds that a thread looks again and again for answers of memory nodes before it
    /// sleeps
    #[arg(help_heading = HEADING, long, value_name = "US", default_value_t = 50, env = "DARTER_SPIN")]
    spin: u64,
    /// Seconds that a memory group may have no replica that serves before commands fail
    #[arg(help_heading = HEADING, long, value_name = "SECONDS", default_value = "5", env = "DARTER_GROUP_PATIENCE")]
    #[arg(value_parser = seconds)]
    group_patience: Duration,
}

impl GatewayPoolArgs {
    /// The same as any client's.
    pub(crate) fn of_a_client(&self) -> ClientArgs {
        ClientArgs {
            token: TokenArgs { token_file: self.token.token_file.clone() },
            tls_ca: self.pool_tls_ca.clone(),
            identity: IdentityArgs {
                tls_cert: self.pool_tls_cert.clone(),
                tls_key: self.pool_tls_key.clone(),
            },
            rdma_in_clear: self.rdma_in_clear,
            spin: self.spin,
            group_patience: self.group_patience,
        }
    }
}

/// Whom a gateway lets in, and how it shows what it is.
#[derive(clap::Args)]
pub(crate) struct GatewayArgs {
    /// A file whose content, line end left off, clients must show by AUTH or HELLO
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Speak TLS with clients: a PEM file with the certificate to show them, and those between it
    /// and its CA's
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Ask clients for certificates signed by this PEM file's
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl GatewayArgs {
    /// Reads the files.
    pub(crate) fn options(&self) -> Result<GatewayOptions, Failure> {
        let identity = IdentityArgs { tls_cert: self.tls_cert.clone(), tls_key: self.tls_key.clone() };
        let tls = |identity| NodeTls::from_files(identity, self.tls_client_ca.as_deref());
        let tls = identity.files().map(tls).transpose().map_err(Failure::usage)?;
        let password =
            self.password_file.as_deref().map_or(Ok(Vec::new()), |path| secret(path, "password"))?;
        Ok(GatewayOptions { password, tls, ..GatewayOptions::default() })
    }

    /// Whether strangers are kept out.
    pub(crate) fn are_asked_for(&self) -> bool {
        self.has_password() || self.tls_client_ca.is_some()
    }

    /// Whether a password is asked for.
    pub(crate) fn has_password(&self) -> bool {
        self.password_file.is_some()
    }
}
