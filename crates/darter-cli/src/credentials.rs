//! The credentials of commands and memory nodes: tokens and certificates, from files or environment
//! variables.

use crate::arguments::seconds;
use crate::failure::Failure;
use clap::builder::FalseyValueParser;
use darter::{PoolUrl, Store, StoreOptions};
use darter_fabric::TcpOptions;
use darter_fabric::wire::{ClientTls, IdentityFiles, NodeTls, Secrets};
use darter_gateway::GatewayOptions;
use darter_memnode::MemNodeOptions;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Heading for options that few commands need; they are listed after a command's own options.
const HEADING: &str = "Token and TLS";

/// The variables with a memory node's default certificate.
pub(crate) const NODE_TLS_VARIABLES: [&str; 3] =
    ["DARTER_TLS_CERT", "DARTER_TLS_KEY", "DARTER_TLS_CLIENT_CA"];

/// The variable with the client's default for `--rdma-in-clear`.
const RDMA_IN_CLEAR: &str = "DARTER_RDMA_IN_CLEAR";

/// Returns the error for TLS combined with RDMA, which would leave most network traffic
/// unprotected.
pub(crate) fn in_clear(what: &str) -> Failure {
    Failure::usage(format_args!(
        "{what} with TLS: TCP is encrypted, but nothing encrypts what RDMA carries, which is all keys and values; \
         give --rdma-in-clear if you trust the network, or leave out RDMA or TLS"
    ))
}

/// Returns the environment variables with credentials of clients or memory nodes.
pub fn credential_variables() -> impl Iterator<Item = &'static str> {
    NODE_TLS_VARIABLES.into_iter().chain(["DARTER_TOKEN_FILE", "DARTER_TLS_CA", RDMA_IN_CLEAR])
}

/// Removes all credentials from a child process's environment.
pub fn without_credentials(command: &mut Command) {
    for variable in credential_variables() {
        command.env_remove(variable);
    }
}

/// The token, which clients and memory nodes share.
#[derive(clap::Args)]
pub(crate) struct TokenArgs {
    /// File with the token that clients and memory nodes share. Of several lines, each a token, the
    /// first is shown to nodes, and all are accepted from clients. It is read again when it changes
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// Returns the tokens; none without a file.
    pub(crate) fn content(&self) -> Result<Secrets, Failure> {
        secrets(self.token_file.as_deref(), "token")
    }
}

/// Returns the secrets in a file, which is read again when it changes; none without a file.
pub(crate) fn secrets(path: Option<&Path>, what: &'static str) -> Result<Secrets, Failure> {
    path.map_or_else(|| Ok(Secrets::default()), |path| Secrets::from_file(path, what).map_err(Failure::usage))
}

/// The certificate of this end of a connection.
#[derive(clap::Args)]
struct IdentityArgs {
    /// PEM file with this end's certificate, followed by any intermediate certificates
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key of that certificate
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl IdentityArgs {
    fn files(&self) -> Option<IdentityFiles<'_>> {
        let (certificate, key) = (self.tls_cert.as_deref()?, self.tls_key.as_deref()?);
        Some(IdentityFiles { certificate, key })
    }
}

/// A client's credentials for memory nodes, and the CA it trusts.
#[derive(clap::Args)]
pub struct ClientArgs {
    #[command(flatten)]
    token: TokenArgs,
    /// Connect to memory nodes by TLS, and trust certificates signed by the CAs in this PEM file
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_CA")]
    tls_ca: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
    /// Allow an `rdma:` pool together with TLS: TCP is then encrypted, but RDMA, which carries all
    /// keys and values, is not
    #[arg(help_heading = HEADING, long, env = RDMA_IN_CLEAR, value_parser = FalseyValueParser::new())]
    rdma_in_clear: bool,
    /// Time in microseconds that a thread polls for replies of memory nodes before it sleeps
    #[arg(help_heading = HEADING, long, value_name = "US", default_value_t = 50, env = "DARTER_SPIN")]
    spin: u64,
    /// Time in seconds that a memory group can be without a serving replica before operations fail
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

    /// Returns options to open a pool; reads credentials only if the pool can need them.
    pub fn store_options(&self, pool: &PoolUrl) -> Result<StoreOptions, Failure> {
        Ok(Store::options().tcp(self.options_for(pool)?))
    }

    /// Returns options to connect to a pool's memory nodes, if it has any.
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
                return Err(Failure::usage("a certificate (--tls-cert) needs --tls-ca too"));
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

/// The clients that a memory node admits, and the node's certificate.
#[derive(clap::Args)]
pub struct NodeArgs {
    #[command(flatten)]
    token: TokenArgs,
    /// File with the token of clients that may only read: the node refuses everything of theirs that
    /// would change data. Of several lines, each a token, all are accepted. It is read again when it
    /// changes
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "token_file", conflicts_with = "device")]
    read_only_token_file: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
    /// Require client certificates signed by the CAs in this PEM file
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_CLIENT_CA", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl NodeArgs {
    /// Reads the files.
    pub(crate) fn options(&self) -> Result<MemNodeOptions, Failure> {
        let tls = |identity| NodeTls::from_files(identity, self.tls_client_ca.as_deref());
        let tls = self.identity.files().map(tls).transpose().map_err(Failure::usage)?;
        Ok(MemNodeOptions {
            token: self.token.content()?,
            read_only_token: secrets(self.read_only_token_file.as_deref(), "read-only token")?,
            tls,
            ..MemNodeOptions::default()
        })
    }

    /// Returns the options of a client in this process that connects to memory nodes, including
    /// this one.
    pub fn of_a_client(&self, ca: Option<&Path>) -> Result<TcpOptions, Failure> {
        let tls = self.shown_to_nodes(ca, "a server with TLS (--tls-cert) needs --server-tls-ca")?;
        Ok(TcpOptions { token: self.token.content()?, tls, ..TcpOptions::default() })
    }

    /// Returns a replica's TLS options for connections to other replicas.
    pub(crate) fn of_a_replica(&self, ca: Option<&Path>) -> Result<Option<ClientTls>, Failure> {
        self.shown_to_nodes(ca, "a replica with TLS (--tls-cert) needs --replica-tls-ca")
    }

    fn shown_to_nodes(&self, ca: Option<&Path>, lacks_ca: &str) -> Result<Option<ClientTls>, Failure> {
        let identity = self.identity.files();
        if identity.is_some() && ca.is_none() {
            return Err(Failure::usage(lacks_ca));
        }
        ca.map(|ca| ClientTls::from_files(ca, identity).map_err(Failure::usage)).transpose()
    }

    /// Returns whether clients must authenticate.
    pub(crate) fn are_asked_for(&self) -> bool {
        self.token.token_file.is_some() || self.tls_client_ca.is_some()
    }
}

/// A gateway's credentials for the pool's memory nodes. The options have a prefix because the plain
/// names are for the gateway's own clients; the variables are those of every client.
#[derive(clap::Args)]
pub(crate) struct GatewayPoolArgs {
    #[command(flatten)]
    token: TokenArgs,
    /// Connect to memory nodes by TLS, and trust certificates signed by the CAs in this PEM file
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_CA")]
    pool_tls_ca: Option<PathBuf>,
    /// PEM file with the certificate for memory nodes, followed by any intermediate certificates
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_CERT", requires = "pool_tls_key")]
    pool_tls_cert: Option<PathBuf>,
    /// PEM file with the private key of that certificate
    #[arg(help_heading = HEADING, long, value_name = "FILE", env = "DARTER_TLS_KEY", requires = "pool_tls_cert")]
    pool_tls_key: Option<PathBuf>,
    /// Allow an `rdma:` pool together with TLS: TCP is then encrypted, but RDMA, which carries all
    /// keys and values, is not
    #[arg(help_heading = HEADING, long, env = RDMA_IN_CLEAR, value_parser = FalseyValueParser::new())]
    rdma_in_clear: bool,
    /// Time in microseconds that a thread polls for replies of memory nodes before it sleeps
    #[arg(help_heading = HEADING, long, value_name = "US", default_value_t = 50, env = "DARTER_SPIN")]
    spin: u64,
    /// Time in seconds that a memory group can be without a serving replica before commands fail
    #[arg(help_heading = HEADING, long, value_name = "SECONDS", default_value = "5", env = "DARTER_GROUP_PATIENCE")]
    #[arg(value_parser = seconds)]
    group_patience: Duration,
}

impl GatewayPoolArgs {
    /// Returns the same credentials as those of any client.
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

/// The clients that a gateway admits, and the gateway's certificate.
#[derive(clap::Args)]
pub(crate) struct GatewayArgs {
    /// File with the password that clients must send by AUTH or HELLO. Of several lines, each a
    /// password, all are accepted, and the first is sent to other gateways. It is read again when it
    /// changes
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Serve clients by TLS: PEM file with the gateway's certificate, followed by any intermediate
    /// certificates
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key of that certificate
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Require client certificates signed by the CAs in this PEM file
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// With --tls-cert: connect to the pool's other gateways, whose certificates are signed by the CAs
    /// in this PEM file, and show them the certificate of --tls-cert
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "tls_cert")]
    peer_tls_ca: Option<PathBuf>,
}

impl GatewayArgs {
    /// Reads the files.
    pub(crate) fn options(&self) -> Result<GatewayOptions, Failure> {
        let identity = IdentityArgs { tls_cert: self.tls_cert.clone(), tls_key: self.tls_key.clone() };
        let tls = |identity| NodeTls::from_files(identity, self.tls_client_ca.as_deref());
        let tls = identity.files().map(tls).transpose().map_err(Failure::usage)?;
        let peer_tls = |ca: &Path| ClientTls::from_files(ca, identity.files());
        let peer_tls = self.peer_tls_ca.as_deref().map(peer_tls).transpose().map_err(Failure::usage)?;
        let password = secrets(self.password_file.as_deref(), "password")?;
        Ok(GatewayOptions { password, tls, peer_tls, ..GatewayOptions::default() })
    }

    /// Returns whether clients must authenticate.
    pub(crate) fn are_asked_for(&self) -> bool {
        self.has_password() || self.tls_client_ca.is_some()
    }

    /// Returns whether clients must send a password.
    pub(crate) fn has_password(&self) -> bool {
        self.password_file.is_some()
    }
}
