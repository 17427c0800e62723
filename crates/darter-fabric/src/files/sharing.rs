//! Files that hold data: their permissions, and protection from files of other users.
//!
//! Only their owner can access them, regardless of the umask, unless the operator names a mode or a
//! group ([`Sharing`]). A name in a folder that every user can write to, such as `/tmp`, is trusted
//! according to the rules of the kernel's settings `fs.protected_symlinks` and
//! `fs.protected_regular`, even if they are off: neither a link nor a file of another user is
//! followed or mistaken for a new one.

use super::{folder, own_user};
use std::ffi::CString;
use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Maximum number of symbolic links to follow, as in the system.
const LINKS_MAX: usize = 40;
/// The mode of a file that only its owner can read and write.
const OWNER: u32 = 0o600;
/// The mode of a file if a group is named, but no mode.
const GROUP: u32 = 0o660;

/// Permissions of a file with data: by default only its owner can read and write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// The mode of new files, without file type; `None`: 0600, or 0660 if there is a group.
    pub mode: Option<FileMode>,
    /// The group of new files; `None`: the system's default.
    pub group: Option<GroupName>,
}

/// The permissions of a file, such as 0660: at least read and write for its owner, and no right to
/// execute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(u32);

/// A group of users, by name or by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupName(String);

impl FromStr for FileMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode =
            u32::from_str_radix(text, 8).ok().filter(|mode| mode & 0o600 == 0o600 && mode & !0o666 == 0);
        mode.map(Self).ok_or_else(|| {
            format!("`{text}` cannot be the mode of a file with data; name one from 0600 to 0666 in octal, such as 0660")
        })
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FromStr for GroupName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |letter: char| letter.is_alphanumeric() || "._-@\\ ".contains(letter);
        if text.is_empty() || !text.chars().all(is_name) {
            return Err(format!("`{text}` cannot be a group; give its name or its number"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl GroupName {
    /// Returns the number of the group.
    fn number(&self) -> io::Result<u32> {
        if let Ok(number) = self.0.parse() {
            return Ok(number);
        }
        let name = CString::new(self.0.as_str())?;
        let mut buffer = vec![0; 64 << 10];
        // SAFETY: a plain struct of numbers and pointers, for which zero is valid.
        let mut group: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are valid for the call, and the length is the buffer's.
        let code = unsafe {
            let (group, buffer, bytes) = (&raw mut group, buffer.as_mut_ptr(), buffer.len());
            libc::getgrnam_r(name.as_ptr(), group, buffer, bytes, &raw mut found)
        };
        match (code, found.is_null()) {
            (0, false) => Ok(group.gr_gid),
            (0, true) => Err(io::Error::new(ErrorKind::NotFound, format!("group `{self}` does not exist"))),
            _ => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Sharing {
    /// Returns whether a mode or a group is named.
    pub fn is_named(&self) -> bool {
        self.mode.is_some() || self.group.is_some()
    }

    /// Returns the permissions of a file.
    fn mode(&self) -> u32 {
        self.mode.map_or(if self.group.is_some() { GROUP } else { OWNER }, |mode| mode.0)
    }

    /// Returns the permissions of a directory: users who can read a file in it can enter it.
    fn directory_mode(&self) -> u32 {
        self.mode() | (self.mode() & 0o444) >> 2
    }

    /// Sets a new file's group and permissions, regardless of the umask.
    ///
    /// # Errors
    /// Fails if the group does not exist, or the system refuses.
    pub fn apply(&self, file: &File) -> io::Result<()> {
        self.apply_mode(file, self.mode())
    }

    fn apply_mode(&self, file: &File, mode: u32) -> io::Result<()> {
        if let Some(group) = &self.group {
            let number = group.number()?;
            std::os::unix::fs::fchown(file, None, Some(number)).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot give it to the group `{group}`: {error}"))
            })?;
        }
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// Opens a file for reading and writing, or creates it. Also returns whether it is new.
    ///
    /// # Errors
    /// Fails as [`open_own`] does, except that the file need not exist; if the group does not
    /// exist; or if the system refuses to create it.
    pub fn open_or_create(&self, path: &Path) -> io::Result<(File, bool)> {
        loop {
            let place = Place::of(path)?;
            if place.is_link_of_proc {
                return Ok((place.open_own()?, false));
            }
            match place.how().create_new(true).mode(OWNER).open(&place.path) {
                Ok(file) => {
                    self.apply(&file).inspect_err(|_| drop(fs::remove_file(&place.path)))?;
                    return Ok((file, true));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            match place.open_own() {
                // It was removed a moment ago.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                opened => return Ok((opened?, false)),
            }
        }
    }

    /// Fails if an existing file under this path belongs to another user and is not expected there:
    /// every user can write to its folder, and it does not belong to the named group.
    pub(crate) fn check_found(&self, file: &File, path: &Path) -> io::Result<()> {
        let found = file.metadata()?;
        match &self.group {
            Some(group) if found.gid() == group.number()? => Ok(()),
            _ => check_trust(&Place::of(path)?.path, &found, "a file"),
        }
    }

    /// Creates a directory for files with data, and its parents. Returns whether it is new.
    ///
    /// # Errors
    /// Fails if the system refuses, or a file with this name exists.
    pub fn create_directory(&self, path: &Path) -> io::Result<bool> {
        if path.is_dir() {
            return Ok(false);
        }
        let above = folder(path);
        if !above.is_dir() {
            self.create_directory(above)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => return Ok(false),
            Err(error) => return Err(error),
        }
        self.apply_mode(&File::open(path)?, self.directory_mode())?;
        Ok(true)
    }
}

/// Opens a file of this user for reading and writing.
///
/// # Errors
/// Fails if it is another user's, if another user's link in a folder like `/tmp` leads to it, or if
/// the system refuses.
pub fn open_own(path: &Path) -> io::Result<File> {
    Place::of(path)?.open_own()
}

/// Target of the symbolic links at the end of a path.
pub(crate) struct Place {
    /// A path; the file need not exist.
    pub(crate) path: PathBuf,
    /// A link of `/proc`, which leads to an open file rather than a name.
    is_link_of_proc: bool,
}

impl Place {
    /// Follows the links, unless another user has created them in a folder like `/tmp`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let of_proc = |link: &Path| Ok(fs::canonicalize(folder(link))?.starts_with("/proc").then_some(()));
        let (path, stop) = follow_links(path, of_proc)?;
        Ok(Self { path, is_link_of_proc: stop.is_some() })
    }

    /// Returns flags of `open` that neither follow another link nor block.
    pub(crate) fn flags(&self) -> i32 {
        libc::O_NONBLOCK | libc::O_NOCTTY | if self.is_link_of_proc { 0 } else { libc::O_NOFOLLOW }
    }

    fn how(&self) -> OpenOptions {
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(self.flags());
        how
    }

    fn open_own(&self) -> io::Result<File> {
        let file = self.how().open(&self.path)?;
        let found = file.metadata()?;
        // Devices belong to root.
        if found.is_file() && found.uid() != own_user() {
            return Err(foreign("a file", found.uid()));
        }
        Ok(file)
    }
}

/// Follows the symbolic links at the end of a path until `stops_at` returns something for one, and
/// returns the place and that value. The last link may be dangling.
///
/// # Errors
/// Fails if another user has created a link in a folder like `/tmp`, if there are too many links,
/// or if the system refuses.
pub(super) fn follow_links<T>(
    path: &Path,
    stops_at: impl Fn(&Path) -> io::Result<Option<T>>,
) -> io::Result<(PathBuf, Option<T>)> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let found = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((path, None)),
            found => found?,
        };
        if !found.is_symlink() {
            return Ok((path, None));
        }
        if let Some(stop) = stops_at(&path)? {
            return Ok((path, Some(stop)));
        }
        check_trust(&path, &found, "a symbolic link")?;
        path = folder(&path).join(fs::read_link(&path)?);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Fails if another user has created this in a folder like `/tmp`, which every user can write to.
pub(super) fn check_trust(path: &Path, found: &Metadata, what: &str) -> io::Result<()> {
    let folder = fs::metadata(folder(path))?;
    let is_open_to_all = folder.mode() & 0o1002 == 0o1002;
    if is_open_to_all && ![own_user(), folder.uid()].contains(&found.uid()) {
        return Err(foreign(what, found.uid()));
    }
    Ok(())
}

pub(super) fn foreign(what: &str, owner: u32) -> io::Error {
    let what =
        format!("{what} of another user (uid {owner}) exists there; remove it first, or choose another name");
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

#[cfg(test)]
#[cfg(not(miri))] // Miri does not support permissions
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn shared(mode: &str) -> Sharing {
        Sharing { mode: Some(mode.parse().unwrap()), ..Sharing::default() }
    }

    /// A directory like `/tmp`.
    fn open_to_all() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        folder
    }

    #[test]
    fn new_files_and_directories_have_the_mode_that_was_named_whatever_the_umask() {
        let folder = tempfile::tempdir().unwrap();
        let of_group = Sharing { group: Some("0".parse().unwrap()), ..Sharing::default() };
        let is_root = own_user() == 0;
        for (number, (sharing, file, directory)) in [
            (Sharing::default(), 0o600, 0o700),
            (shared("0666"), 0o666, 0o777),
            (shared("0640"), 0o640, 0o750),
        ]
        .into_iter()
        .chain(is_root.then_some((of_group, 0o660, 0o770)))
        .enumerate()
        {
            let above = folder.path().join(number.to_string());
            let inner = above.join("inner");
            assert!(sharing.create_directory(&inner).unwrap());
            assert!(!sharing.create_directory(&inner).unwrap());
            assert_eq!((mode(&above), mode(&inner)), (directory, directory));
            let path = inner.join("file");
            assert!(sharing.open_or_create(&path).unwrap().1);
            assert_eq!(mode(&path), file);
            // The mode of an existing file is not changed.
            fs::set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
            assert!(!sharing.open_or_create(&path).unwrap().1);
            assert_eq!(mode(&path), 0o604);
        }
    }

    #[test]
    fn a_group_is_found_by_name_or_number_and_a_missing_one_leaves_no_file() {
        let number = |text: &str| text.parse::<GroupName>().unwrap().number();
        assert_eq!(number("1234").unwrap(), 1234);
        assert_eq!(number("root").unwrap(), 0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let sharing = Sharing { group: Some("no-such-group".parse().unwrap()), ..Sharing::default() };
        let error = sharing.open_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("group `no-such-group` does not exist"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn links_are_followed_unless_another_user_put_them_where_all_can_write() {
        let (folder, elsewhere) = (open_to_all(), tempfile::tempdir().unwrap());
        let (link, target) = (folder.path().join("link"), elsewhere.path().join("target"));
        symlink(&target, &link).unwrap();
        assert!(Sharing::default().open_or_create(&link).unwrap().1);
        assert!(target.exists() && fs::symlink_metadata(&link).unwrap().is_symlink());
        open_own(&link).unwrap();
        symlink("itself", folder.path().join("itself")).unwrap();
        assert!(open_own(&folder.path().join("itself")).is_err());
        let open = fs::File::open(&target).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        fs::remove_file(&target).unwrap();
        assert!(!Sharing::default().open_or_create(Path::new(&format!("/proc/self/fd/{number}"))).unwrap().1);
        if std::os::unix::fs::lchown(&link, Some(65534), None).is_err() {
            return; // needs root
        }
        let error = Sharing::default().open_or_create(&link).unwrap_err().to_string();
        assert!(error.contains("a symbolic link of another user (uid 65534)"), "{error}");
        assert!(!target.exists());
    }

    #[test]
    fn files_of_other_users_are_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "theirs").unwrap();
        if chown(&path, Some(65534), Some(65533)).is_err() {
            return; // needs root
        }
        for error in [Sharing::default().open_or_create(&path).unwrap_err(), open_own(&path).unwrap_err()] {
            assert!(error.to_string().contains("a file of another user (uid 65534)"), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
    }

    #[test]
    fn a_found_file_of_another_user_is_refused_where_all_can_write_unless_it_is_of_the_group() {
        let (folder, own) = (open_to_all(), tempfile::tempdir().unwrap());
        let found = |folder: &tempfile::TempDir, sharing: &Sharing| {
            let path = folder.path().join("file");
            sharing.check_found(&File::open(&path).unwrap(), &path)
        };
        let group = |number: &str| Sharing { group: Some(number.parse().unwrap()), ..Sharing::default() };
        for folder in [&folder, &own] {
            fs::write(folder.path().join("file"), "theirs").unwrap();
            found(folder, &Sharing::default()).unwrap();
            if chown(folder.path().join("file"), Some(65534), Some(65533)).is_err() {
                return; // needs root
            }
        }
        found(&own, &Sharing::default()).unwrap();
        found(&folder, &group("65533")).unwrap();
        for sharing in [Sharing::default(), shared("0660"), group("65532")] {
            assert!(found(&folder, &sharing).is_err(), "{sharing:?}");
        }
    }
}
