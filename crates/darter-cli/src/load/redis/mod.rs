//! `import` of keys of Redis into the keys of the pool's gateways: from a server (`server.rs`), or from
//! an RDB file. Existing keys are kept unless `--replace` is given, so a command that was interrupted
//! goes on when it is run again.

mod address;
mod copy;
mod server;

use super::input::{Input, open};
use crate::arguments::sized;
use crate::credentials::secrets;
use crate::failure::{Answer, Failure, complain};
use crate::signals::Interrupt;
use copy::{Copier, Key};
use darter::{ByteSize, Store};
use darter_fabric::counted;
use darter_gateway::{Payload, RdbError, RdbFile, RdbItem, RdbKey};
use indicatif::{ProgressBar, ProgressStyle};
use server::{Found, Server};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) use address::ServerUrl;

/// The first bytes of an RDB file.
const MAGIC: &[u8; 5] = b"REDIS";

/// Options for keys of Redis.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct RedisArgs {
    /// Replace existing keys by those of Redis; by default existing keys are kept
    #[arg(long)]
    pub(super) replace: bool,
    /// File with the password of the Redis server, in place of one in its URL
    #[arg(long, value_name = "FILE")]
    source_password_file: Option<PathBuf>,
    /// Most memory that the value of a key of Redis may take while it is read and stored
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = value_memory)]
    value_memory: ByteSize,
}

fn value_memory(text: &str) -> Result<ByteSize, String> {
    sized(text, 1 << 20..=1 << 40, "must be from 1M to 1T")
}

/// Returns whether a file begins as an RDB file does, and the file from its beginning.
pub(super) fn is_rdb(mut input: Input) -> Result<(bool, Input), Failure> {
    let mut head = Vec::new();
    input.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head).map_err(super::unreadable)?;
    let is_rdb = head == MAGIC;
    Ok((is_rdb, Box::new(Cursor::new(head).chain(input))))
}

impl RedisArgs {
    /// Returns whether an option for keys of Redis is given.
    pub(super) fn are_given(&self) -> bool {
        self.replace || self.source_password_file.is_some()
    }

    fn value_bytes(&self) -> usize {
        usize::try_from(self.value_memory.0).unwrap_or(usize::MAX)
    }

    fn copier<'c>(
        &self,
        source: String,
        (store, bar, interrupt): (&'c Store, &'c ProgressBar, &'c Interrupt),
        is_strict: bool,
    ) -> Copier<'c> {
        let (replaces, value_memory) = (self.replace, self.value_bytes());
        Copier { store, source, bar, interrupt, replaces, is_strict, value_memory }
    }

    /// Copies the keys of a server.
    pub(super) fn import_server(
        &self,
        url: &ServerUrl,
        store: &Store,
        is_strict: bool,
        interrupt: &Interrupt,
    ) -> Result<Answer, Failure> {
        let mut url = url.clone();
        if let Some(path) = &self.source_password_file {
            url.password = Some(secrets(Some(path), "password")?.current().first().to_vec());
        }
        let within = |failure: Failure| failure.within(url.shown());
        let mut server = Server::connect(&url, self.value_bytes()).map_err(within)?;
        let databases = match url.database {
            Some(database) => vec![database],
            None => server.databases().map_err(within)?.into_iter().map(|(database, _)| database).collect(),
        };
        let bar = ProgressBar::new(0)
            .with_style(style("{wide_bar} {pos} of {len} keys, {per_sec}, {eta} left  {msg}"));
        let theirs = bar.clone();
        let copier = self.copier(url.shown(), (store, &bar, interrupt), is_strict);
        copier.copy(move |sink| {
            for database in databases {
                let count = server.select(database)?;
                theirs.inc_length(count);
                let goes_on = server.visit(|found| {
                    theirs.inc(1);
                    Ok(sink.add(key_of(found, database)))
                })?;
                if !goes_on {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Verifies an RDB file that can be read twice. Nothing is stored from a damaged file.
    pub(super) fn check(&self, path: &Path, interrupt: &Interrupt) -> Result<(), Failure> {
        let (input, bar) = open(path)?;
        bar.set_message("checking");
        let within = |error: RdbError| Failure::failed(error).within(path.display());
        let mut file = RdbFile::open(input, self.value_bytes()).map_err(within)?;
        while file.next().map_err(within)?.is_some() {
            if interrupt.has_come() {
                let what = format!("{}: interrupted; nothing was stored", path.display());
                return Err(Failure::Interrupted(what));
            }
        }
        bar.finish_and_clear();
        if !file.has_checksum() {
            complain(format_args!(
                "{}: note: it has no checksum, so a changed value would not be detected",
                path.display()
            ));
        }
        Ok(())
    }

    /// Copies the keys of an RDB file.
    pub(super) fn import_file(
        &self,
        (input, bar): (Input, &ProgressBar),
        path: &Path,
        store: &Store,
        is_strict: bool,
        interrupt: &Interrupt,
    ) -> Result<Answer, Failure> {
        let (name, most) = (path.display().to_string(), self.value_bytes());
        let copier = self.copier(name.clone(), (store, bar, interrupt), is_strict);
        copier.copy(move |sink| {
            let mut libraries = 0;
            let mut file = RdbFile::open(input, most).map_err(Failure::failed)?;
            while let Some(item) = file.next().map_err(Failure::failed)? {
                let goes_on = match item {
                    RdbItem::Key(key) => sink.add(key_of_file(key)),
                    RdbItem::Library(_) => {
                        libraries += 1;
                        true
                    }
                    _ => true,
                };
                if !goes_on {
                    return Ok(());
                }
            }
            if libraries > 0 {
                let libraries = counted(libraries, "library");
                complain(format_args!(
                    "{name}: left out {libraries} of functions; load them with FUNCTION LOAD"
                ));
            }
            Ok(())
        })
    }
}

/// Returns the time in ms since the Unix epoch, by which keys expire.
#[expect(clippy::disallowed_methods, reason = "as Redis does")]
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64)
}

fn key_of(found: Found, database: u64) -> Key {
    let (value, expiry) = match found.value {
        Ok((payload, left)) => {
            let damaged =
                || "the reply to DUMP has another checksum, or a version that is not known".to_owned();
            (Payload::of_dump(payload).ok_or_else(damaged), left.map(|left| now_ms().saturating_add(left)))
        }
        Err(why) => (Err(why), None),
    };
    Key { database, name: found.name, expiry, offset: None, value }
}

fn key_of_file(key: RdbKey) -> Key {
    let RdbKey { database, name, expiry, offset, value, .. } = key;
    let of_module = |module| format!("a value of the module {module}, which gateways do not have");
    Key { database, name, expiry, offset: Some(offset), value: value.map_err(of_module) }
}

fn style(template: &str) -> ProgressStyle {
    // An invalid template only affects the appearance.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
