//! The credentials of a daemon: files that are read again when they change or on SIGHUP, what the
//! log says of them, and their metrics.

use crate::openmetrics::MetricsWriter;
use crate::stop::Stop;
use darter_fabric::wire::{Credential, CredentialStatus, Expiry};
use prometheus_client::registry::Unit;
use std::fmt::Error;
use std::time::{Duration, Instant, SystemTime};
use tracing::{error, info, warn};

/// The interval between two checks of the files.
const CHECK: Duration = Duration::from_millis(500);
/// The interval between two warnings of certificates that expire.
const WARNING: Duration = Duration::from_secs(12 * 3600);
/// The longest time before the end of a certificate at which the log warns of it.
const NEAR: Duration = Duration::from_secs(14 * 24 * 3600);

/// Reads a daemon's credentials again when their files change, and logs the outcome.
#[derive(Debug)]
pub struct CredentialWatch {
    credentials: Vec<Credential>,
    /// Loads and failures of each that the log has.
    told: Vec<(u64, u64)>,
    /// Requests to reload that were carried out.
    reloads: usize,
    next_check: Option<Instant>,
    next_warning: Option<Instant>,
}

impl CredentialWatch {
    /// Watches credentials.
    pub fn new(credentials: Vec<Credential>) -> Self {
        let told = credentials.iter().map(|_| (1, 0)).collect();
        Self { credentials, told, reloads: 0, next_check: None, next_warning: None }
    }

    /// Reads the files again if they have changed, or if `stop` requests it. Does nothing if the
    /// last check was less than half a second ago.
    pub fn tick(&mut self, now: Instant, stop: &Stop) {
        let requested = stop.reloads();
        let is_requested = requested != self.reloads;
        if !is_requested && self.next_check.is_some_and(|next| now < next) {
            return;
        }
        (self.reloads, self.next_check) = (requested, Some(now + CHECK));
        if is_requested && self.credentials.is_empty() {
            info!("a reload was requested, but no token, password or certificate was read from a file");
        }
        let warns = self.next_warning.is_none_or(|next| now >= next);
        for (credential, told) in self.credentials.iter().zip(&mut self.told) {
            if is_requested {
                credential.reload();
            } else {
                credential.check();
            }
            let status = credential.status();
            let is_new = status.loads > told.0;
            tell(&status, told);
            if warns || is_new {
                for expiry in &status.expiries {
                    warn_of(expiry);
                }
            }
        }
        if warns {
            self.next_warning = Some(now + WARNING);
        }
    }
}

/// Logs what has happened to a credential since `told`.
fn tell(status: &CredentialStatus, told: &mut (u64, u64)) {
    let files = || names(status);
    if status.loads > told.0 {
        info!(what = status.what, files = files(), "read again, and in use for new connections");
    }
    if status.failures > told.1
        && let Some(why) = &status.failure
    {
        error!(what = status.what, files = files(), why, "cannot be used; the earlier ones stay in use");
    }
    *told = (status.loads, status.failures);
}

/// Returns the files of a credential, as text.
fn names(status: &CredentialStatus) -> String {
    let names: Vec<String> = status.files.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

/// Returns whether a certificate is so near its end that the log warns of it: two weeks, or a third
/// of its time if that is less.
fn is_near(from: SystemTime, until: SystemTime, now: SystemTime) -> bool {
    let lifetime = until.duration_since(from).unwrap_or_default();
    now + NEAR.min(lifetime / 3) >= until
}

#[expect(clippy::disallowed_methods, reason = "certificates end by the wall clock")]
fn warn_of(expiry: &Expiry) {
    let now = SystemTime::now();
    let file = expiry.path.display();
    match expiry.until.duration_since(now) {
        Err(_) => error!(%file, "the certificate has expired"),
        Ok(left) if is_near(expiry.from, expiry.until, now) => {
            let (days, hours) = (left.as_secs() / 86_400, left.as_secs() / 3600 % 24);
            warn!(%file, days, hours, "the certificate will expire; renew it");
        }
        Ok(_) => {}
    }
}

/// Returns the seconds from 1970 to a time.
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Writes the metrics of credentials.
///
/// # Errors
/// Fails if the encoder fails.
pub fn encode_credentials(page: &mut MetricsWriter<'_>, credentials: &[Credential]) -> Result<(), Error> {
    let all: Vec<CredentialStatus> = credentials.iter().map(Credential::status).collect();
    let labels = |status: &CredentialStatus| [("what", status.what.to_owned()), ("files", names(status))];
    let seconds = Some(&Unit::Seconds);
    let loaded = all.iter().map(|status| (labels(status), unix_seconds(status.loaded)));
    let help = "When the files of a credential in use were read, in Unix time";
    page.gauges("credential_loaded_timestamp", help, seconds, loaded)?;
    let loads = all.iter().map(|status| (labels(status), status.loads));
    page.counters("credential_loads", "How often the files were read and put to use", None, loads)?;
    let failures = all.iter().map(|status| (labels(status), status.failures));
    page.counters("credential_failures", "How often the files could not be used", None, failures)?;
    let failing = all.iter().map(|status| (labels(status), u64::from(status.failure.is_some())));
    page.gauges("credential_failing", "1 if the files cannot be used as they are now", None, failing)?;
    let ends = all.iter().flat_map(|status| &status.expiries);
    let ends = ends.map(|end| ([("file", end.path.display().to_string())], unix_seconds(end.until)));
    let help = "When the certificates of a file cease to be valid, in Unix time";
    page.gauges("certificate_expiry_timestamp", help, seconds, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_come_two_weeks_or_a_third_of_the_time_before_the_end() {
        const DAY: u64 = 24 * 3600;
        let expires = |days: u64, left_seconds: u64| {
            let until = SystemTime::UNIX_EPOCH + Duration::from_secs(20_000 * DAY);
            let from = until - Duration::from_secs(days * DAY);
            is_near(from, until, until - Duration::from_secs(left_seconds))
        };
        assert!(!expires(365, 14 * DAY + 1) && expires(365, 14 * DAY));
        assert!(!expires(3, DAY + 1) && expires(3, DAY) && expires(3, 0));
    }
}
