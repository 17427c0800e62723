//! TLS between clients and memory nodes: certificates and keys from PEM files, and the requirements
//! of each end.
//!
//! TLS 1.3 by rustls. A client accepts only certificates signed by certificates in its CA file: the
//! machine's own trust store is not used. Sessions are not resumed, so that each connection
//! presents its certificates.

mod session;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::fs::File;
use std::io::{self, Read};
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

/// How a client uses TLS. Clones share the certificates.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

/// How a memory node or gateway uses TLS. Clones share the certificates.
#[derive(Clone, Debug)]
pub struct NodeTls(Arc<ServerConfig>);

impl ClientTls {
    /// Accepts nodes whose certificates are signed by a certificate in `ca`, and presents
    /// `identity` to nodes that require one.
    ///
    /// # Errors
    /// Fails if a file cannot be used.
    pub fn from_files(ca: &Path, identity: Option<IdentityFiles<'_>>) -> Result<Self, TlsError> {
        let roots = roots(ca)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unfit(ca))?
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(files) => {
                let (chain, key) = files.load()?;
                builder.with_client_auth_cert(chain, key).map_err(files.unfit())?
            }
            None => builder.with_no_client_auth(),
        };
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// Returns the client's side of a connection to `host:port`. The node's certificate must be
    /// valid for that host, a name or an IP address.
    pub(super) fn connect(&self, address: &str) -> io::Result<TlsSession> {
        let unfit = |error: InvalidDnsNameError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let host = address.rsplit_once(':').map_or(address, |(host, _port)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.to_owned()).map_err(unfit)?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
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
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(identity.unfit())?;
        let builder = match client_ca {
            Some(ca) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca)?), provider()).build();
                let unfit = |error| unfit(ca)(rustls::Error::General(format!("{error}")));
                builder.with_client_cert_verifier(verifier.map_err(unfit)?)
            }
            None => builder.with_no_client_auth(),
        };
        let (chain, key) = identity.load()?;
        let mut config = builder.with_single_cert(chain, key).map_err(identity.unfit())?;
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// Returns the node's side of a connection.
    pub(super) fn accept(&self) -> io::Result<TlsSession> {
        let connection = ServerConnection::new(Arc::clone(&self.0)).map_err(io::Error::other)?;
        Ok(TlsSession::new(connection.into()))
    }
}

impl IdentityFiles<'_> {
    fn load(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let key = PrivateKeyDer::from_pem_slice(&contents(self.key)?);
        let key = key.map_err(not_pem(self.key, "private key that is not encrypted"))?;
        Ok((certificates(self.certificate)?, key))
    }

    /// Returns the error of the pair, with the file that caused it.
    fn unfit(&self) -> impl FnOnce(rustls::Error) -> TlsError {
        let (certificate, key) = (self.certificate.to_owned(), self.key.to_owned());
        move |error| match error {
            rustls::Error::InconsistentKeys(_) => TlsError::Mismatch { certificate, key },
            rustls::Error::InvalidCertificate(_) => TlsError::Unfit { path: certificate, source: error },
            _ => TlsError::Unfit { path: key, source: error },
        }
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

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    let cannot = |source| TlsError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(cannot)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(cannot(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(bytes)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = contents(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(not_pem(path, "certificate"))?;
    if found.is_empty() {
        return Err(not_pem(path, "certificate")(pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(unfit(path))?;
    }
    Ok(roots)
}
