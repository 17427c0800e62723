//! Tokens and passwords: one or more secrets, of which this side sends the first and accepts all.
//!
//! With two secrets in its files, a fleet changes from one to the other without an instant at which
//! a process is refused.

use super::watched::{Content, Credential, Loaded, Watched};
use crate::wire::TOKEN_BYTES_MAX;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of secrets in a file.
const SECRETS_MAX: usize = 8;
/// Maximum bytes of a file of secrets, with line ends.
const FILE_BYTES_MAX: u64 = ((TOKEN_BYTES_MAX + 2) * SECRETS_MAX) as u64;

/// Why a file of secrets cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretsError {
    /// The file cannot be read.
    #[error("{}: cannot read the {what}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kind of secret.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The file has no secret, or one that is too long.
    #[error("{}: a {what} must have 1 to {TOKEN_BYTES_MAX} bytes", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// The kind of secret.
        what: &'static str,
    },
    /// The file has too many lines, or its lines are not text.
    #[error(
        "{}: a file of several {what}s must have one {what} on each line, at most {SECRETS_MAX} lines of text; encode \
         random bytes, for example with `base64`",
        path.display()
    )]
    Lines {
        /// The file.
        path: PathBuf,
        /// The kind of secret.
        what: &'static str,
    },
}

/// One or more secrets, from memory or from a file that is read again when it changes. The first is
/// the one that this side sends; all are accepted. Clones share them.
///
/// ```
/// use darter_fabric::wire::Secrets;
///
/// let token = Secrets::from("open sesame");
/// assert_eq!(token.current().first(), b"open sesame");
/// assert!(Secrets::default().current().is_empty());
/// ```
#[derive(Clone)]
pub struct Secrets(Source);

#[derive(Clone)]
enum Source {
    Fixed(SecretList),
    File(Watched<SecretList>),
}

/// The secrets of a moment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretList(Arc<[Vec<u8>]>);

impl SecretList {
    /// Returns the secret that this side sends; empty if there is none.
    pub fn first(&self) -> &[u8] {
        self.0.first().map_or(b"", Vec::as_slice)
    }

    /// Returns all secrets.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// Returns whether no secret is required.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Secrets {
    /// Reads secrets from a file, one on each line; `what` names them in errors (`token`). The file
    /// is read again when it changes, at the next call of [`Secrets::current`].
    ///
    /// # Errors
    /// Fails if the file cannot be read, has no secret, or one longer than
    /// [`TOKEN_BYTES_MAX`].
    pub fn from_file(path: &Path, what: &'static str) -> Result<Self, SecretsError> {
        let unreadable = move |path: &Path, source: io::Error| {
            let path = path.to_owned();
            if source.kind() == io::ErrorKind::FileTooLarge {
                SecretsError::Length { path, what }
            } else {
                SecretsError::Read { path, what, source }
            }
        };
        let load = move |contents: &[Content]| {
            let value =
                contents.first().map_or_else(|| Ok(SecretList::default()), |file| parse(file, what))?;
            Ok(Loaded { value, expiries: Vec::new() })
        };
        let watched = Watched::new(what, vec![path.to_owned()], FILE_BYTES_MAX, unreadable, load)?;
        Ok(Self(Source::File(watched)))
    }

    /// Returns the secrets, of the file as it is now.
    pub fn current(&self) -> SecretList {
        match &self.0 {
            Source::Fixed(list) => list.clone(),
            Source::File(watched) => SecretList::clone(&watched.current()),
        }
    }

    /// Returns the handle to the file, if there is one.
    pub fn credential(&self) -> Option<Credential> {
        match &self.0 {
            Source::Fixed(_) => None,
            Source::File(watched) => Some(watched.credential()),
        }
    }
}

/// Returns the secrets in a file. If it has one line, that may be any bytes.
fn parse(file: &Content, what: &'static str) -> Result<SecretList, SecretsError> {
    let lines = file.bytes.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).filter(|line| !line.is_empty());
    let secrets: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
    let is_text =
        |secret: &Vec<u8>| std::str::from_utf8(secret).is_ok_and(|text| !text.chars().any(char::is_control));
    let path = || file.path.clone();
    if secrets.len() > SECRETS_MAX || secrets.len() > 1 && !secrets.iter().all(is_text) {
        return Err(SecretsError::Lines { path: path(), what });
    }
    if secrets.is_empty() || secrets.iter().any(|secret| secret.len() > TOKEN_BYTES_MAX) {
        return Err(SecretsError::Length { path: path(), what });
    }
    Ok(SecretList(secrets.into()))
}

impl Default for Secrets {
    fn default() -> Self {
        Self(Source::Fixed(SecretList::default()))
    }
}

impl From<Vec<u8>> for Secrets {
    /// Returns one secret; none if it is empty.
    fn from(secret: Vec<u8>) -> Self {
        Self::from_iter((!secret.is_empty()).then_some(secret))
    }
}

impl From<&[u8]> for Secrets {
    fn from(secret: &[u8]) -> Self {
        Self::from(secret.to_vec())
    }
}

impl From<&str> for Secrets {
    fn from(secret: &str) -> Self {
        Self::from(secret.as_bytes())
    }
}

impl FromIterator<Vec<u8>> for Secrets {
    fn from_iter<I: IntoIterator<Item = Vec<u8>>>(secrets: I) -> Self {
        Self(Source::Fixed(SecretList(secrets.into_iter().collect())))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Fixed(list) => list.fmt(f),
            Source::File(watched) => watched.fmt(f),
        }
    }
}

impl fmt::Debug for SecretList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let file = Content { path: PathBuf::from("token"), bytes: bytes.to_vec() };
        parse(&file, "token").map(|list| list.0.to_vec()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_line_is_a_secret() {
        assert_eq!(parsed(b"one"), Ok(vec![b"one".to_vec()]));
        assert_eq!(parsed(b"one\r\n"), Ok(vec![b"one".to_vec()]));
        assert_eq!(parsed(b"one \n\ntwo\n"), Ok(vec![b"one ".to_vec(), b"two".to_vec()]));
        assert_eq!(parsed(b"\xff\0\x80\n"), Ok(vec![b"\xff\0\x80".to_vec()]), "one line may be any bytes");
        for text in [&b""[..], b"\n\n", &[b'x'; TOKEN_BYTES_MAX + 1], &[&[b'x'; 257][..], b"\ny"].concat()] {
            assert!(parsed(text).unwrap_err().contains("1 to 256 bytes"));
        }
        // Random bytes with a line end among them would be two short secrets.
        for text in [&b"\xff\xfe\n\x80"[..], b"a\nb\nc\nd\ne\nf\ng\nh\ni"] {
            assert!(parsed(text).unwrap_err().contains("one token on each line"));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(format!("{:?}", Secrets::from("open sesame")), "1 secrets");
    }
}
