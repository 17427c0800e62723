//! Tokens, passwords, certificates and keys that are read again when their files change.
//!
//! A credential checks its files at each new connection, and when its daemon requests it. Files that
//! cannot be used leave the last good content in use ([`watched`]).

mod secrets;
#[cfg(feature = "tls")]
mod validity;
mod watched;

pub use secrets::{SecretList, Secrets, SecretsError};
#[cfg(feature = "tls")]
pub(super) use validity::{earliest_end, latest_end};
pub use watched::{Content, Credential, CredentialStatus, Expiry, Loaded, Watched};
