//! Files: creating them without a name until they are complete, writing outputs without destroying
//! an existing file, and locks on single bytes.

mod draft;
pub(crate) mod locks;
mod output;
mod sharing;

pub use draft::Draft;
pub use output::{Access, OutputFile, check_output, is_wrong_name, write_output};
pub(crate) use sharing::Place;
pub use sharing::{FileMode, GroupName, Sharing, open_own};

use std::path::Path;

/// Returns the folder that a path's last component lies in.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the user that this process acts as.
pub(crate) fn own_user() -> u32 {
    // SAFETY: the call cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}
