//! A certificate authority with its own directory, and the certificates it signs.

use darter_fabric::wire::{ClientTls, IdentityFiles, NodeTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use std::path::{Path, PathBuf};

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

/// A certificate and its key.
pub struct Certified {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Certified {
    pub fn files(&self) -> IdentityFiles<'_> {
        IdentityFiles { certificate: &self.certificate, key: &self.key }
    }
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    /// Returns the path of the authority's own certificate.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file. Returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.file(name), content).unwrap();
        self.file(name)
    }

    /// Signs a certificate for `name` that is valid until the end of `year`.
    pub fn sign(&self, name: &str, year: i32) -> Certified {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Certified {
            certificate: self.write(&format!("{name}-{year}.pem"), certificate.pem()),
            key: self.write(&format!("{name}-{year}.key"), key.serialize_pem()),
        }
    }

    /// Returns the PEM of the authority's own certificate.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns the TLS configuration of a client that trusts this authority's nodes.
    pub fn client(&self, identity: Option<&Certified>) -> ClientTls {
        ClientTls::from_files(&self.ca(), identity.map(Certified::files)).unwrap()
    }

    /// Returns the TLS configuration of a node at 127.0.0.1 that requires certificates signed by
    /// `clients`, if given.
    pub fn node(&self, clients: Option<&Path>) -> NodeTls {
        NodeTls::from_files(self.sign("127.0.0.1", LATER).files(), clients).unwrap()
    }
}

/// A year by which no certificate has expired.
pub const LATER: i32 = 3000;
/// A year in the past.
pub const GONE: i32 = 2020;
