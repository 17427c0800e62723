//! Parses URLs of stores. README.md has the forms.

use crate::StoreError;
use crate::consul::Consul;
use crate::engine::Engine;
use crate::etcd::{Account, Etcd};
use crate::file::FileEngine;
use crate::http::{Addresses, HttpOptions, token_in};
use crate::kubernetes::Kubernetes;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a pod finds its account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Maximum timeout of an attempt. Longer ones would exceed the time that a group waits.
const TIMEOUT_MS_MAX: u64 = 60_000;

/// The parts of a URL after its scheme.
struct Parts<'a> {
    /// Hosts with ports, or a namespace.
    authority: &'a str,
    prefix: &'a str,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str) -> Result<Self, String> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, prefix) = rest.split_once('/').ok_or("missing `/PREFIX` after the address")?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
        if prefix.is_empty() || !prefix.chars().all(is_plain) {
            return Err(format!("prefix `{prefix}`: must consist of letters, digits and `-._/`"));
        }
        let options = query.split('&').filter(|option| !option.is_empty());
        let options = options
            .map(|option| option.split_once('=').ok_or_else(|| format!("option `{option}` has no value")));
        Ok(Self { authority, prefix, options: options.collect::<Result<_, _>>()? })
    }

    /// Removes and returns an option.
    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.options.iter().position(|(known, _)| *known == name)?;
        Some(self.options.remove(at).1)
    }

    fn http(&mut self) -> Result<HttpOptions, String> {
        let mut options = HttpOptions::default();
        if let Some(text) = self.take("timeout-ms") {
            let timeout = text.parse().ok().filter(|ms| (1..=TIMEOUT_MS_MAX).contains(ms));
            let timeout =
                timeout.ok_or_else(|| format!("timeout-ms={text}: must be 1 to {TIMEOUT_MS_MAX}"))?;
            options.timeout = Duration::from_millis(timeout);
        }
        if let Some(path) = self.take("ca") {
            options.ca = Some(read(Path::new(path))?);
        }
        Ok(options)
    }

    fn end(self) -> Result<(), String> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!("option `{name}` is not known for this scheme")),
        }
    }
}

/// Returns the engine of a URL, for one group.
pub(crate) fn engine(url: &str, group: u32) -> Result<Box<dyn Engine>, StoreError> {
    parse(url, group).map_err(|why| StoreError::Url { url: url.to_owned(), why })
}

fn parse(url: &str, group: u32) -> Result<Box<dyn Engine>, String> {
    if let Some(path) = url.strip_prefix("file:") {
        if path.is_empty() {
            return Err("no path".to_owned());
        }
        return Ok(Box::new(FileEngine::new(PathBuf::from(format!("{path}-{group}")))));
    }
    let (scheme, rest) = url.split_once("://").ok_or("must be `file:PATH` or `SCHEME://…`")?;
    let mut parts = Parts::of(rest)?;
    let http = parts.http()?;
    let name = format!("{}/{group}", parts.prefix.trim_end_matches('/'));
    let engine: Box<dyn Engine> = match scheme {
        "etcd" => {
            let account = match (parts.take("user"), parts.take("password-file")) {
                (None, None) => None,
                (Some(user), Some(path)) => Some(Account { user: user.to_owned(), password: secret(path)? }),
                _ => return Err("`user` and `password-file` go together".to_owned()),
            };
            Box::new(Etcd::new(Addresses::new(&hosts(parts.authority)?, &http)?, name, account))
        }
        "consul" => {
            let token = parts.take("token-file").map(|path| read_token(Path::new(path))).transpose()?;
            Box::new(Consul::new(Addresses::new(&hosts(parts.authority)?, &http)?, name, token))
        }
        "kubernetes" => Box::new(kubernetes(&mut parts, http, group)?),
        _ => return Err(format!("unknown scheme `{scheme}`; use etcd, consul, kubernetes or file")),
    };
    parts.end()?;
    Ok(engine)
}

/// Uses the pod's API server, unless the options name another.
fn kubernetes(parts: &mut Parts<'_>, mut http: HttpOptions, group: u32) -> Result<Kubernetes, String> {
    let is_label = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !text.is_empty() && text.len() <= 63 && text.bytes().all(plain)
    };
    let object = format!("{}-{group}", parts.prefix);
    if !is_label(parts.authority) || !is_label(&object) {
        return Err("namespace and prefix: lower-case letters, digits and `-`, at most 63 in all".to_owned());
    }
    let account = Path::new(SERVICE_ACCOUNT);
    let server = if let Some(server) = parts.take("server") {
        server.to_owned()
    } else {
        if http.ca.is_none() {
            http.ca = Some(read(&account.join("ca.crt"))?);
        }
        let variable = |name| {
            std::env::var(name)
                .map_err(|_| format!("{name} is not set: outside a pod the option `server` is required"))
        };
        format!("{}:{}", variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?)
    };
    let token = parts.take("token-file").map_or_else(|| account.join("token"), PathBuf::from);
    // The token is read again before each request, since it changes; the file must be valid now.
    read_token(&token)?;
    Ok(Kubernetes::new(Addresses::new(&hosts(&server)?, &http)?, parts.authority, &object, token))
}

fn hosts(authority: &str) -> Result<Vec<String>, String> {
    let is_host = |host: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok())
            && host.chars().all(plain)
    };
    let hosts: Vec<_> = authority.split(',').map(str::to_owned).collect();
    match hosts.iter().find(|host| !is_host(host)) {
        None => Ok(hosts),
        Some(host) => Err(format!("`{host}` is not HOST:PORT")),
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_token(path: &Path) -> Result<String, String> {
    token_in(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn secret(path: &str) -> Result<String, String> {
    Ok(read(Path::new(path))?.trim_end_matches(['\n', '\r']).to_owned())
}
