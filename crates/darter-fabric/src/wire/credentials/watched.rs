//! A value made of files, which is made again when their content changes.
//!
//! A check compares the files' attributes with those of the last check, and reads the files if the
//! attributes differ, or if they are so recent that another change might not show in them. Content
//! that cannot be used is reported when it has been there for a second, because the files of a
//! certificate and of its key cannot be replaced at one instant. The value of the last good content
//! stays in use.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The age of a change from which a later change shows in a file's attributes.
const SETTLED: Duration = Duration::from_secs(2);
/// The time for which content that cannot be used may be half of a change.
const DOUBT: Duration = Duration::from_secs(1);

/// A file and its content.
#[derive(Clone, Debug)]
pub struct Content {
    /// The file.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The end of the validity of the certificates in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expiry {
    /// The file.
    pub path: PathBuf,
    /// When the validity begins.
    pub from: SystemTime,
    /// When the first certificate of a chain, or the last one of a list of CAs, becomes invalid.
    pub until: SystemTime,
}

/// A value and the validity of the certificates that it was made of.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The value.
    pub value: T,
    /// The validity of each file of certificates.
    pub expiries: Vec<Expiry>,
}

/// State of a credential and of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialStatus {
    /// Its kind, for example `token`.
    pub what: &'static str,
    /// The files that it is made of.
    pub files: Vec<PathBuf>,
    /// When the content in use was read.
    pub loaded: SystemTime,
    /// How often the files were read and put to use, including the first time.
    pub loads: u64,
    /// How often the files could not be used.
    pub failures: u64,
    /// Why the files cannot be used now; `None` if their content is in use.
    pub failure: Option<String>,
    /// The validity of its certificates.
    pub expiries: Vec<Expiry>,
}

/// A credential of this process, for showing its state and reading its files again.
#[derive(Clone)]
pub struct Credential(Arc<dyn Renewable>);

trait Renewable: Send + Sync {
    fn check(&self, is_asked: bool, now: Instant);
    fn status(&self) -> CredentialStatus;
}

impl Credential {
    /// Reads the files again if they have changed, and uses their content if it is good. New
    /// connections do this too.
    pub fn check(&self) {
        self.0.check(false, Instant::now());
    }

    /// Reads the files again, and uses their content if it is good.
    pub fn reload(&self) {
        self.0.check(true, Instant::now());
    }

    /// Returns its state.
    pub fn status(&self) -> CredentialStatus {
        self.0.status()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}

/// A value made of files, which is made again when they change. Clones share it.
pub struct Watched<T>(Arc<Inner<T>>);

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Makes a value of the content of all files; the error is for people.
type Load<T> = Box<dyn Fn(&[Content]) -> Result<Loaded<T>, String> + Send + Sync>;

struct Inner<T> {
    bytes_max: u64,
    load: Load<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    status: CredentialStatus,
    /// Attributes of the files at the last check; `None` if the next check must read the files.
    seen: Option<Vec<Attributes>>,
    /// What was last put to use or reported as a failure.
    judged: Seen,
    /// What could not be used at the last check, and when that was first so.
    doubtful: Option<(Seen, Instant)>,
}

/// The contents of all files, or the reason why one cannot be read.
type Seen = Result<Vec<Vec<u8>>, String>;

/// Returns the time that files and certificates have, for comparison with theirs and for people.
#[expect(clippy::disallowed_methods, reason = "no lease and no time-out depends on it")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// The attributes of a file that change with its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attributes {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<Metadata> for Attributes {
    fn from(file: Metadata) -> Self {
        Self {
            file: (file.dev(), file.ino()),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl Attributes {
    /// Returns the attributes of all files, unless one cannot be reached or has changed recently.
    fn settled(files: &[PathBuf]) -> Option<Vec<Self>> {
        let now = wall_clock().checked_sub(SETTLED)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let settled = i64::try_from(now.as_secs()).ok()?;
        let found = |path: &PathBuf| path.metadata().ok().map(Self::from);
        let all: Option<Vec<Self>> = files.iter().map(found).collect();
        all.filter(|all| all.iter().all(|file| file.modified.0.max(file.changed.0) < settled))
    }
}

/// Reads a file of at most `bytes_max` bytes.
pub(super) fn content_of(path: &Path, bytes_max: u64) -> io::Result<Content> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(Content { path: path.to_owned(), bytes })
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Makes a value of files, each of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// Fails if a file cannot be read, with the error of `unreadable`, or if `load` fails.
    pub fn new<E: fmt::Display>(
        what: &'static str,
        files: Vec<PathBuf>,
        bytes_max: u64,
        unreadable: impl Fn(&Path, io::Error) -> E,
        load: impl Fn(&[Content]) -> Result<Loaded<T>, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let seen = Attributes::settled(&files);
        let read = |path: &PathBuf| content_of(path, bytes_max).map_err(|error| unreadable(path, error));
        let contents = files.iter().map(read).collect::<Result<Vec<_>, E>>()?;
        let Loaded { value, expiries } = load(&contents)?;
        let status = CredentialStatus {
            what,
            files,
            loaded: wall_clock(),
            loads: 1,
            failures: 0,
            failure: None,
            expiries,
        };
        let judged = Ok(contents.into_iter().map(|content| content.bytes).collect());
        let state = State { value: Arc::new(value), status, seen, judged, doubtful: None };
        let load: Load<T> = Box::new(move |contents| load(contents).map_err(|error| error.to_string()));
        Ok(Self(Arc::new(Inner { bytes_max, load, state: Mutex::new(state) })))
    }

    /// Returns the value, of the files as they are now.
    pub fn current(&self) -> Arc<T> {
        self.0.check(false, Instant::now());
        Arc::clone(&self.0.state().value)
    }

    /// Returns a handle that does not depend on the value's type.
    pub fn credential(&self) -> Credential {
        Credential(Arc::<Inner<T>>::clone(&self.0))
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.0.state().status.files).finish()
    }
}

impl<T> Inner<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync> Renewable for Inner<T> {
    fn check(&self, is_asked: bool, now: Instant) {
        let mut state = self.state();
        let State { value, status, seen, judged, doubtful } = &mut *state;
        // Before the content, so that the next check finds a change during the read.
        let attributes = Attributes::settled(&status.files);
        if !is_asked && doubtful.is_none() && attributes.is_some() && *seen == attributes {
            return;
        }
        *seen = attributes;
        let read = |path: &PathBuf| {
            content_of(path, self.bytes_max)
                .map_err(|error| format!("{}: cannot read the {}: {error}", path.display(), status.what))
        };
        let contents = status.files.iter().map(read).collect::<Result<Vec<_>, _>>();
        let found: Seen = match &contents {
            Ok(contents) => Ok(contents.iter().map(|content| content.bytes.clone()).collect()),
            Err(why) => Err(why.clone()),
        };
        if !is_asked && found == *judged {
            *doubtful = None;
            return;
        }
        match contents.and_then(|contents| (self.load)(&contents)) {
            Ok(loaded) => {
                *value = Arc::new(loaded.value);
                status.expiries = loaded.expiries;
                status.loaded = wall_clock();
                status.loads += 1;
                status.failure = None;
                (*judged, *doubtful) = (found, None);
            }
            Err(why) => {
                let known = doubtful.take().filter(|(content, _)| *content == found);
                let since = known.map_or(now, |(_, since)| since);
                if is_asked || now.saturating_duration_since(since) >= DOUBT {
                    status.failures += 1;
                    status.failure = Some(why);
                    *judged = found;
                } else {
                    *doubtful = Some((found, since));
                }
            }
        }
    }

    fn status(&self) -> CredentialStatus {
        self.state().status.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns a number in two files, of which the second must be the first plus one.
    fn pair(first: &Path, second: &Path) -> Watched<u64> {
        let load = |contents: &[Content]| {
            let number = |at: usize| String::from_utf8_lossy(&contents[at].bytes).trim().parse::<u64>();
            match (number(0), number(1)) {
                (Ok(one), Ok(two)) if two == one + 1 => Ok(Loaded { value: one, expiries: Vec::new() }),
                _ => Err(format!("{}: not a pair", contents[1].path.display())),
            }
        };
        let unreadable = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        Watched::new("pair", vec![first.to_owned(), second.to_owned()], 16, unreadable, load).unwrap()
    }

    #[test]
    fn a_pair_of_files_is_in_use_when_both_are_there() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
        fs::write(&first, "1").unwrap();
        fs::write(&second, "2").unwrap();
        let pair = pair(&first, &second);
        let status = || pair.credential().status();
        assert_eq!((*pair.current(), status().loads), (1, 1));
        // Half of a change does not count as a failure yet, however often it is seen.
        fs::write(&first, "7").unwrap();
        let now = Instant::now();
        for _ in 0..4 {
            pair.0.check(false, now);
            let value = *pair.0.state().value;
            let failures = status().failures;
            assert_eq!((value, failures), (1, 0));
        }
        fs::write(&second, "8").unwrap();
        assert_eq!((*pair.current(), status().loads, status().failures), (7, 2, 0));
        // Of the same length, within the same tick of the file system's clock.
        for number in 0..5 {
            fs::write(&first, number.to_string()).unwrap();
            fs::write(&second, (number + 1).to_string()).unwrap();
            assert_eq!(*pair.current(), number);
        }
    }

    #[test]
    fn files_that_cannot_be_used_keep_the_value() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
        fs::write(&first, "1").unwrap();
        fs::write(&second, "2").unwrap();
        let pair = pair(&first, &second);
        let credential = pair.credential();
        let spoil: [&dyn Fn(); 4] = [
            &|| fs::write(&second, "5").unwrap(),
            &|| fs::write(&second, "").unwrap(),
            &|| fs::write(&second, "12345678901234567").unwrap(),
            &|| fs::remove_file(&second).unwrap(),
        ];
        for (count, spoil) in (1..).zip(spoil) {
            spoil();
            let now = Instant::now();
            for age in 0..4 {
                pair.0.check(false, now + DOUBT * age);
                let value = *pair.0.state().value;
                assert_eq!(value, 1);
            }
            let status = credential.status();
            assert_eq!((status.failures, status.loads), (count, 1), "each is reported once");
            assert!(status.failure.unwrap().contains("second"));
        }
        // On request, each attempt is reported.
        credential.reload();
        assert_eq!(credential.status().failures, 5);
        fs::write(&second, "2").unwrap();
        credential.check();
        assert_eq!((credential.status().loads, credential.status().failure), (2, None));
    }
}
