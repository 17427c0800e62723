//! TLS between clients and memory nodes: certificates and keys from PEM files, and the requirements
//! of each end.
//!
//! TLS 1.3 by rustls. A client accepts only certificates signed by certificates in its CA file: the
//! machine's own trust store is not used. Sessions are not resumed, so that each connection
//! presents its certificates. Files that change are read again at the next connection.

mod session;

use super::credentials::{Content, Credential, Expiry, Loaded, Watched, earliest_end, latest_end};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use session::TlsSession;

/// Maximum bytes of a file of certificates or keys.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The reason why certificates and keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("{}: cannot read it: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file does not contain the item.
    #[error("{}: holds no {what} in PEM form", path.display())]
    Absent {
        /// The file.
        path: PathBuf,
        /// The item.
        what: &'static str,
    },
    /// The file's PEM is broken.
    #[error("{}: not PEM: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The error.
        source: pem::Error,
    },
    /// The file's contents cannot be used.
    #[error("{}: cannot use it: {source}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The error.
        source: rustls::Error,
    },
    /// There are not as many files as needed.
    #[error("a certificate needs the file of its key")]
    Files,
    /// The key belongs to another certificate.
    #[error("{}: not the key of the certificate in {}", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
}

/// The files of a certificate (with the chain up to its CA, if there are intermediate certificates)
/// and of its private key.
#[derive(Clone, Copy, Debug)]
pub struct IdentityFiles<'f> {
    /// Certificates, with the own one first.
    pub certificate: &'f Path,
    /// The private key: PKCS #8, PKCS #1 or SEC 1, not encrypted.
    pub key: &'f Path,
}

/// How a client uses TLS. Clones share the certificates, which are read again when their files
/// change.
#[derive(Clone, Debug)]
pub struct ClientTls(Watched<Arc<ClientConfig>>);

/// How a memory node or gateway uses TLS. Clones share the certificates, which are read again when
/// their files change.
#[derive(Clone, Debug)]
pub struct NodeTls(Watched<Arc<ServerConfig>>);

impl ClientTls {
    /// Accepts nodes whose certificates are signed by a certificate in `ca`, and presents
    /// `identity` to nodes that require one.
    ///
    /// # Errors
    /// Fails if a file cannot be used.
    pub fn from_files(ca: &Path, identity: Option<IdentityFiles<'_>>) -> Result<Self, TlsError> {
        let mut files = vec![ca.to_owned()];
        files.extend(identity.iter().flat_map(|files| [files.certificate.to_owned(), files.key.to_owned()]));
        Watched::new("certificate", files, FILE_BYTES_MAX, unreadable, client_config).map(Self)
    }

    /// Returns the handle to the files.
    pub fn credential(&self) -> Credential {
        self.0.credential()
    }

    /// Returns the client's side of a connection to `host:port`. The node's certificate must be
    /// valid for that host, a name or an IP address.
    pub(super) fn connect(&self, address: &str) -> io::Result<TlsSession> {
        let unfit = |error: InvalidDnsNameError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let host = address.rsplit_once(':').map_or(address, |(host, _port)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.to_owned()).map_err(unfit)?;
        let connection =
            ClientConnection::new(Arc::clone(&self.0.current()), name).map_err(io::Error::other)?;
        Ok(TlsSession::new(connection.into()))
    }
}

impl NodeTls {
    /// Presents `identity` to clients. With `client_ca`, requires client certificates that are
    /// signed by a certificate in it.
    ///
    /// # Errors
    /// Fails if a file cannot be used.
    pub fn from_files(identity: IdentityFiles<'_>, client_ca: Option<&Path>) -> Result<Self, TlsError> {
        let mut files = vec![identity.certificate.to_owned(), identity.key.to_owned()];
        files.extend(client_ca.map(Path::to_owned));
        Watched::new("certificate", files, FILE_BYTES_MAX, unreadable, node_config).map(Self)
    }

    /// Returns the handle to the files.
    pub fn credential(&self) -> Credential {
        self.0.credential()
    }

    /// Returns the node's side of a connection.
    pub(super) fn accept(&self) -> io::Result<TlsSession> {
        let connection = ServerConnection::new(Arc::clone(&self.0.current())).map_err(io::Error::other)?;
        Ok(TlsSession::new(connection.into()))
    }
}

/// Makes a client's configuration of its CA, and its certificate and key, if it has any.
fn client_config(files: &[Content]) -> Result<Loaded<Arc<ClientConfig>>, TlsError> {
    let [ca, identity @ ..] = files else { return Err(TlsError::Files) };
    let (roots, end) = roots(ca)?;
    let mut expiries = Vec::from_iter(end);
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unfit(&ca.path))?
        .with_root_certificates(roots);
    let mut config = if let [certificate, key] = identity {
        let identity = Identity::new(certificate, key)?;
        expiries.extend(earliest_end(&certificate.path, identity.chain.iter().map(AsRef::as_ref)));
        builder.with_client_auth_cert(identity.chain, identity.key).map_err(of_pair(certificate, key))?
    } else {
        builder.with_no_client_auth()
    };
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Loaded { value: Arc::new(config), expiries })
}

/// Makes a node's configuration of its certificate and key, and its clients' CA, if it has one.
fn node_config(files: &[Content]) -> Result<Loaded<Arc<ServerConfig>>, TlsError> {
    let [certificate, key, client_ca @ ..] = files else { return Err(TlsError::Files) };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(of_pair(certificate, key))?;
    let mut of_clients = None;
    let builder = if let [ca] = client_ca {
        let (roots, end) = roots(ca)?;
        of_clients = end;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let unfit = |error| unfit(&ca.path)(rustls::Error::General(format!("{error}")));
        builder.with_client_cert_verifier(verifier.map_err(unfit)?)
    } else {
        builder.with_no_client_auth()
    };
    let identity = Identity::new(certificate, key)?;
    let own = earliest_end(&certificate.path, identity.chain.iter().map(AsRef::as_ref));
    let expiries = own.into_iter().chain(of_clients).collect();
    let config = builder.with_single_cert(identity.chain, identity.key);
    let mut config = config.map_err(of_pair(certificate, key))?;
    config.send_tls13_tickets = 0;
    Ok(Loaded { value: Arc::new(config), expiries })
}

/// A chain of certificates and the key of the first.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn new(certificate: &Content, key: &Content) -> Result<Self, TlsError> {
        let found = PrivateKeyDer::from_pem_slice(&key.bytes);
        let key = found.map_err(not_pem(&key.path, "private key that is not encrypted"))?;
        Ok(Self { chain: certificates(certificate)?, key })
    }
}

/// Returns the error of a certificate and its key, with the file that caused it.
fn of_pair(certificate: &Content, key: &Content) -> impl FnOnce(rustls::Error) -> TlsError {
    let (certificate, key) = (certificate.path.clone(), key.path.clone());
    move |error| match error {
        rustls::Error::InconsistentKeys(_) => TlsError::Mismatch { certificate, key },
        rustls::Error::InvalidCertificate(_) => TlsError::Unfit { path: certificate, source: error },
        _ => TlsError::Unfit { path: key, source: error },
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unfit(path: &Path) -> impl Fn(rustls::Error) -> TlsError {
    move |source| TlsError::Unfit { path: path.to_owned(), source }
}

fn not_pem(path: &Path, what: &'static str) -> impl Fn(pem::Error) -> TlsError {
    move |error| match error {
        pem::Error::NoItemsFound => TlsError::Absent { path: path.to_owned(), what },
        source => TlsError::Pem { path: path.to_owned(), source },
    }
}

fn unreadable(path: &Path, source: io::Error) -> TlsError {
    TlsError::Read { path: path.to_owned(), source }
}

fn certificates(file: &Content) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let not_pem = not_pem(&file.path, "certificate");
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&file.bytes).collect();
    let found = found.map_err(&not_pem)?;
    if found.is_empty() {
        return Err(not_pem(pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// Returns the CAs in a file, and the end of their validity.
fn roots(file: &Content) -> Result<(RootCertStore, Option<Expiry>), TlsError> {
    let found = certificates(file)?;
    let end = latest_end(&file.path, found.iter().map(AsRef::as_ref));
    let mut roots = RootCertStore::empty();
    for certificate in found {
        roots.add(certificate).map_err(unfit(&file.path))?;
    }
    Ok((roots, end))
}
