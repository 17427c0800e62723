//! The number of files and sockets that this process may still open, so that a daemon can reserve
//! some for logs, checkpoints and the connections that it makes itself.

use rustix::process::{Resource, getrlimit};

/// Number of open files to assume if the system does not report it.
const OPEN_ASSUMED: usize = 64;

/// Returns the number of descriptors that the limit of open files (`ulimit -n`) leaves to this
/// process.
pub fn left() -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return usize::MAX };
    let open = std::fs::read_dir("/proc/self/fd").map_or(OPEN_ASSUMED, Iterator::count);
    usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(open)
}

#[cfg(test)]
mod tests {
    #[test]
    fn open_files_count() {
        let files: Vec<_> = (0..20).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let while_open = super::left();
        drop(files);
        // Other tests of this process may have opened some.
        assert!(while_open + 10 < super::left());
    }
}
