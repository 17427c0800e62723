//! The URL of a Redis server: `redis://[user:password@]host[:port][/database]`.

use crate::failure::Failure;

/// The beginning of a URL.
const SCHEME: &str = "redis://";
const PORT: u16 = 6379;

/// Where a Redis server is, and how to authenticate to it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: Vec<u8>,
    pub(super) password: Option<Vec<u8>>,
    /// The only database to read.
    pub(super) database: Option<u64>,
}

impl ServerUrl {
    /// Parses a URL; `None` if it is not one of a Redis server.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, Failure>> {
        if text.starts_with("rediss://") {
            return Some(Err(Failure::usage(
                "`rediss://`: TLS to the source is not supported; use a tunnel, or import its RDB file",
            )));
        }
        let rest = text.strip_prefix(SCHEME)?;
        // The text may contain a password.
        Some(Self::of(rest).map_err(|why| {
            Failure::usage(format_args!(
                "`{SCHEME}…`: {why}; expected `redis://[user:password@]host[:port][/database]`"
            ))
        }))
    }

    fn of(rest: &str) -> Result<Self, &'static str> {
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, rest),
        };
        let (address, database) = match place.split_once('/') {
            None | Some((_, "")) => (place.trim_end_matches('/'), None),
            Some((address, number)) => {
                (address, Some(number.parse().map_err(|_| "the database is not a number")?))
            }
        };
        let (host, port) = match address.rsplit_once(':') {
            // The colons of an IPv6 address lie in brackets.
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| "the port is not a number from 0 to 65535")?)
            }
            _ => (address, PORT),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err("the host is missing");
        }
        let mut url = Self { host: host.to_owned(), port, user: Vec::new(), password: None, database };
        if let Some(credentials) = credentials {
            let (user, password) =
                credentials.split_once(':').ok_or("there is no `:` before the password")?;
            url.user = decoded(user).ok_or("`%` is not followed by two hexadecimal digits")?;
            url.password = Some(decoded(password).ok_or("`%` is not followed by two hexadecimal digits")?);
        }
        Ok(url)
    }

    /// Returns the URL without the password.
    pub(super) fn shown(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let database = self.database.map(|database| format!("/{database}")).unwrap_or_default();
        format!("{SCHEME}{host}:{}{database}", self.port)
    }
}

/// Decodes `%` and two hexadecimal digits.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut left) = (Vec::new(), text.as_bytes());
    while let Some((&first, rest)) = left.split_first() {
        left = rest;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, rest) = left.split_first_chunk::<2>()?;
        left = rest;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.contains('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_server() {
        let url = |text: &str| ServerUrl::parse(text).unwrap().ok().unwrap();
        let plain = url("redis://db.example");
        assert_eq!((&plain.host[..], plain.port, plain.database), ("db.example", 6379, None));
        assert_eq!((&plain.user[..], plain.password), (&b""[..], None));
        let full = url("redis://ann:p%40ss%3a@[::1]:7000/3");
        assert_eq!((&full.host[..], full.port, full.database), ("::1", 7000, Some(3)));
        assert_eq!((&full.user[..], full.password.as_deref()), (&b"ann"[..], Some(&b"p@ss:"[..])));
        assert_eq!(full.shown(), "redis://[::1]:7000/3");
        let secret = url("redis://:secret@localhost/");
        assert_eq!((&secret.user[..], secret.password.as_deref()), (&b""[..], Some(&b"secret"[..])));
        assert!(ServerUrl::parse("dump.rdb").is_none());
    }

    #[test]
    fn errors_do_not_show_the_password() {
        for text in [
            "rediss://:secret@host",
            "redis://",
            "redis://:secret@",
            "redis://secret@host",
            "redis://:secret%4@host",
            "redis://:secret%+4@host",
            "redis://:secret@host:70000",
            "redis://:secret@host/x",
        ] {
            let Some(Err(Failure::Usage(why))) = ServerUrl::parse(text) else { panic!("{text}") };
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
