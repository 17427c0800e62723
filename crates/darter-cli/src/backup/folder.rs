//! A folder of backups.
//!
//! ```text
//! FOLDER/darter-backups                 "darter backups 1": the folder is one of backups
//!        2026-11-29T03-00-00Z.backup    a backup: the parts that it consists of
//!        parts/9f/9f3c….part            a part, named by its SHA-256
//!
//! darter backup 1
//! taken 1796007600000                   milliseconds since 1970
//! pool 4be0f27a1c93d561
//! part 9f3c… BYTES PAIRS PAIR-BYTES     each part, in the order of keys
//! end PARTS SHA-256                     of all lines above
//! ```
//!
//! The parts of `darter::backup` end at keys that depend on the keys alone. So backups of nearly the
//! same pairs have most parts in common, and these are in the folder once.
//!
//! A part is used again only if a complete backup names it: parts are on the medium before their
//! backup gets its name, so a run that is cut off leaves parts that the next run overwrites.

use super::at;
use darter::backup::{self, Part};
use darter::{BackupError, BackupReport, Error};
use darter_fabric::files::{Access, write_output};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::fmt::{Display, Write as _};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MARK: &str = "darter-backups";
const MARK_CONTENTS: &str = "darter backups 1\n";
const ENDING: &str = ".backup";
const FIRST_LINE: &str = "darter backup 1";
/// The largest list of parts that is read: 4 TiB of parts of the usual size.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// The SHA-256 of a part.
type Hash = [u8; 32];

/// A folder of backups.
pub(super) struct Folder {
    path: PathBuf,
    /// Open, and locked while a backup is written.
    mark: File,
}

/// A backup that was written.
pub(super) struct Saved {
    pub(super) report: BackupReport,
    pub(super) name: String,
    /// Bytes of the parts that no earlier backup had.
    pub(super) written: u64,
    /// Number of these parts, and of all.
    pub(super) parts: (u64, u64),
}

/// A part of a backup in the folder.
#[derive(Clone, Copy)]
struct Entry {
    hash: Hash,
    bytes: u64,
    pairs: u64,
    pair_bytes: u64,
}

/// The parts of a backup.
struct List {
    report: BackupReport,
    entries: Vec<Entry>,
}

impl Folder {
    /// Opens a folder to write to, and creates it if it is absent.
    pub(super) fn create(path: &Path) -> Result<Self, BackupError> {
        let mark = path.join(MARK);
        if !mark.exists() {
            fs::create_dir_all(path).map_err(at("cannot create the folder"))?;
            let is_empty = fs::read_dir(path).map_err(at("cannot read the folder"))?.next().is_none();
            if !is_empty {
                let what = "the folder has other files; name a new folder, or one of backups";
                return Err(io::Error::other(what).into());
            }
            write_output(&mark, Access::Owner, MARK_CONTENTS.as_bytes()).map_err(at(mark.display()))?;
        }
        let folder = Self::open(path)?;
        match folder.mark.try_lock() {
            Ok(()) => Ok(folder),
            Err(fs::TryLockError::WouldBlock) => {
                Err(io::Error::other("another process writes a backup to this folder; wait until it ends")
                    .into())
            }
            Err(fs::TryLockError::Error(error)) => Err(at("cannot lock the folder")(error)),
        }
    }

    /// Opens an existing folder.
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let mark = path.join(MARK);
        let file = File::open(&mark).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BackupError::NotABackup,
            _ => at(mark.display())(error),
        })?;
        let mut contents = String::new();
        (&file).take(64).read_to_string(&mut contents).map_err(at(mark.display()))?;
        let version = contents.strip_prefix("darter backups ").map(str::trim);
        match version.map(str::parse) {
            Some(Ok(1)) => Ok(Self { path: path.to_owned(), mark: file }),
            Some(Ok(version)) => Err(BackupError::Version(version)),
            _ => Err(BackupError::NotABackup),
        }
    }

    /// Returns the names of the backups, oldest first.
    pub(super) fn names(&self) -> Result<Vec<String>, BackupError> {
        let mut names = Vec::new();
        for file in fs::read_dir(&self.path).map_err(at("cannot read the folder"))? {
            let name = file.map_err(at("cannot read the folder"))?.file_name();
            names.extend(name.to_str().and_then(|name| name.strip_suffix(ENDING)).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Returns what a backup holds, according to its list of parts.
    pub(super) fn report(&self, name: &str) -> Result<BackupReport, BackupError> {
        Ok(self.list(name)?.report)
    }

    /// Returns the name of the newest backup that was taken at a time or before.
    pub(super) fn name_at(&self, time: SystemTime) -> Result<String, BackupError> {
        let (mut oldest, mut found) = (None, None);
        for name in self.names()? {
            let taken_at = self.report(&name)?.taken_at;
            oldest = Some(oldest.map_or(taken_at, |oldest: SystemTime| oldest.min(taken_at)));
            if taken_at <= time {
                found = found.max(Some((taken_at, name)));
            }
        }
        found.map(|(_, name)| name).ok_or_else(|| {
            let what = oldest.map_or("there is no backup in the folder".to_owned(), |oldest| {
                let oldest = humantime::format_rfc3339_millis(oldest);
                format!("no backup was taken at that time or before; the oldest is of {oldest}")
            });
            io::Error::other(what).into()
        })
    }

    /// Returns a backup, or the newest one, as a stream.
    pub(super) fn read(&self, name: Option<&str>) -> Result<impl Read + Send + use<>, BackupError> {
        let name = match name {
            Some(name) => name.strip_suffix(ENDING).unwrap_or(name).to_owned(),
            None => {
                self.names()?.pop().ok_or_else(|| io::Error::other("there is no backup in the folder"))?
            }
        };
        let List { report, entries } = self.list(&name)?;
        let whole =
            Stream { folder: self.path.clone(), entries: entries.into_iter(), part: io::Cursor::default() };
        let begin = io::Cursor::new(backup::header(&report));
        Ok(begin.chain(whole).chain(io::Cursor::new(backup::end(&report))))
    }

    fn list(&self, name: &str) -> Result<List, BackupError> {
        let path = self.path.join(format!("{name}{ENDING}"));
        let mut text = String::new();
        let file = File::open(&path).map_err(at(path.display()))?;
        file.take(LIST_BYTES_MAX).read_to_string(&mut text).map_err(at(path.display()))?;
        List::parse(&text).map_err(|what| BackupError::Damaged { at: 0, bytes: text.len() as u64, what })
    }

    /// Writes a backup. Calls `step` with the bytes of each part.
    pub(super) fn save(
        &self,
        mut report: BackupReport,
        parts: impl Iterator<Item = Result<Part, Error>>,
        mut step: impl FnMut(u64) -> io::Result<()>,
    ) -> Result<Saved, Error> {
        let mut known = HashSet::new();
        for name in self.names()? {
            // A damaged list only costs the parts that it names.
            known.extend(self.list(&name).into_iter().flat_map(|list| list.entries).map(|entry| entry.hash));
        }
        let (mut entries, mut written) = (Vec::new(), (0, 0));
        for part in parts {
            let part = part?;
            let hash: Hash = Sha256::digest(&part.bytes).into();
            let path = part_path(&self.path, &hash);
            // The length guards against a part that was cut short since.
            let is_there = known.contains(&hash)
                && fs::metadata(&path).is_ok_and(|found| found.len() == part.bytes.len() as u64);
            if !is_there {
                write_part(&path, &part.bytes).map_err(at(path.display()))?;
                known.insert(hash);
                written = (written.0 + 1, written.1 + part.bytes.len() as u64);
            }
            report.pairs += part.pairs;
            report.bytes += part.pair_bytes;
            let bytes = part.bytes.len() as u64;
            entries.push(Entry { hash, bytes, pairs: part.pairs, pair_bytes: part.pair_bytes });
            step(bytes).map_err(BackupError::Io)?;
        }
        let directory = File::open(&self.path).map_err(at(self.path.display()))?;
        rustix::fs::syncfs(&directory).map_err(|error| at("cannot sync the folder")(error.into()))?;
        let name = self.free_name(&report);
        let parts = (written.0, entries.len() as u64);
        let path = self.path.join(format!("{name}{ENDING}"));
        let text = List { report, entries }.text();
        write_output(&path, Access::Owner, text.as_bytes()).map_err(at(path.display()))?;
        Ok(Saved { report, name, written: written.1, parts })
    }

    /// Returns the name of a backup of this time that no other backup has.
    fn free_name(&self, report: &BackupReport) -> String {
        let name = humantime::format_rfc3339_seconds(report.taken_at).to_string().replace(':', "-");
        let is_free = |name: &String| !self.path.join(format!("{name}{ENDING}")).exists();
        let numbered = (2..).map(|n| format!("{name}-{n}"));
        std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name)
    }

    /// Removes the oldest backups of a pool, so that `keep` are left, and then the parts that no
    /// backup names. Returns the number of backups removed.
    pub(super) fn keep(&self, keep: usize, pool_id: u64) -> Result<usize, BackupError> {
        let mut of_pool = Vec::new();
        let mut used = HashSet::new();
        for name in self.names()? {
            // What a list that cannot be read names is unknown, so no part is removed.
            let list = self.list(&name)?;
            if list.report.pool_id == pool_id {
                of_pool.push((name, list));
            } else {
                used.extend(list.entries.iter().map(|entry| entry.hash));
            }
        }
        let newest = of_pool.split_off(of_pool.len().saturating_sub(keep));
        used.extend(newest.iter().flat_map(|(_, list)| &list.entries).map(|entry| entry.hash));
        for (name, _) in &of_pool {
            let path = self.path.join(format!("{name}{ENDING}"));
            fs::remove_file(&path).map_err(at(path.display()))?;
        }
        let unused: HashMap<Hash, PathBuf> = of_pool
            .iter()
            .flat_map(|(_, list)| &list.entries)
            .filter(|entry| !used.contains(&entry.hash))
            .map(|entry| (entry.hash, part_path(&self.path, &entry.hash)))
            .collect();
        for path in unused.values() {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(at(path.display())(error));
                }
                _ => {}
            }
        }
        Ok(of_pool.len())
    }
}

/// The parts of a backup, one after the other.
struct Stream {
    folder: PathBuf,
    entries: std::vec::IntoIter<Entry>,
    part: io::Cursor<Vec<u8>>,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.part.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(entry) = self.entries.next() else { return Ok(0) };
            self.part = io::Cursor::new(self.read_part(&entry)?);
        }
    }
}

impl Stream {
    fn read_part(&self, entry: &Entry) -> io::Result<Vec<u8>> {
        let path = part_path(&self.folder, &entry.hash);
        let fail = |what: &dyn Display| {
            let what = format!("{}: {what}; restore another backup, or from another copy", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        };
        let file = File::open(&path).map_err(|error| fail(&error))?;
        let mut bytes = Vec::new();
        file.take(entry.bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| fail(&error))?;
        let hash: Hash = Sha256::digest(&bytes).into();
        if hash != entry.hash {
            return Err(fail(&"the part is damaged"));
        }
        Ok(bytes)
    }
}

fn hex(hash: &Hash) -> String {
    hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn part_path(folder: &Path, hash: &Hash) -> PathBuf {
    let name = hex(hash);
    folder.join("parts").join(&name[..2]).join(format!("{name}.part"))
}

/// Writes a part under a temporary name, and then renames it.
fn write_part(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension("draft");
    fs::write(&draft, bytes)?;
    fs::rename(&draft, path)
}

impl List {
    fn text(&self) -> String {
        let taken_at = self.report.taken_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let mut text = format!("{FIRST_LINE}\ntaken {taken_at}\npool {:016x}\n", self.report.pool_id);
        for Entry { hash, bytes, pairs, pair_bytes } in &self.entries {
            let _ = writeln!(text, "part {} {bytes} {pairs} {pair_bytes}", hex(hash));
        }
        let sum: Hash = Sha256::digest(text.as_bytes()).into();
        let _ = writeln!(text, "end {} {}", self.entries.len(), hex(&sum));
        text
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        const SHORT: &str = "its list of parts is cut short";
        const WRONG: &str = "a line of its list of parts is damaged";
        let begin = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        let (above, end) = text.split_at(begin);
        let sum: Hash = Sha256::digest(above.as_bytes()).into();
        let mut lines = above.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err("its list of parts is of another version");
        }
        let field = |line: Option<&str>, name| Some(line?.strip_prefix(name)?.to_owned());
        let taken_at = field(lines.next(), "taken ").and_then(|ms| ms.parse().ok()).ok_or(WRONG)?;
        let pool_id = field(lines.next(), "pool ").and_then(|id| u64::from_str_radix(&id, 16).ok());
        let taken_at = UNIX_EPOCH.checked_add(Duration::from_millis(taken_at)).ok_or(WRONG)?;
        let mut report = BackupReport { pairs: 0, bytes: 0, taken_at, pool_id: pool_id.ok_or(WRONG)? };
        let entries = lines.map(|line| Entry::parse(line).ok_or(WRONG)).collect::<Result<Vec<_>, _>>()?;
        if end.trim_end() != format!("end {} {}", entries.len(), hex(&sum)) {
            return Err(SHORT);
        }
        let sum = |number: fn(&Entry) -> u64| entries.iter().map(number).fold(0, u64::saturating_add);
        report.pairs = sum(|entry| entry.pairs);
        report.bytes = sum(|entry| entry.pair_bytes);
        Ok(Self { report, entries })
    }
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("part ")?.split(' ');
        let text = words.next().filter(|text| text.len() == 64 && text.is_ascii())?;
        let mut hash = [0; 32];
        for (i, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        let mut number = || words.next()?.parse().ok();
        Some(Self { hash, bytes: number()?, pairs: number()?, pair_bytes: number()? })
    }
}
