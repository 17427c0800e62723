//! The part of a machine that its power supply protects: only the memory of a persistent device, or
//! the processor's caches too. Linux reports it for each region of persistent memory
//! (`persistence_domain`: `memory_controller` or `cpu_cache`).

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The file with the domain of a region, in its directory or in a parent directory of a device.
const ATTRIBUTE: &str = "persistence_domain";
/// Its content if caches are protected.
const CACHES: &str = "cpu_cache";

/// Returns whether the contents of the processor's caches survive a power failure, for a file in
/// persistent memory or a DAX device. If the system does not report it, they do not.
pub(super) fn has_caches(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    let (kind, device) = if metadata.file_type().is_char_device() {
        ("char", metadata.rdev())
    } else {
        ("block", metadata.dev())
    };
    let name = format!("{}:{}", libc::major(device), libc::minor(device));
    region_has_caches(&PathBuf::from("/sys/dev").join(kind).join(name))
}

/// Returns the same for the region that contains a device's directory, which may be a link to it.
fn region_has_caches(device: &Path) -> bool {
    let Ok(directory) = fs::canonicalize(device) else { return false };
    let told = directory.ancestors().find_map(|above| fs::read_to_string(above.join(ATTRIBUTE)).ok());
    told.is_some_and(|domain| domain.trim() == CACHES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_device_has_the_domain_of_its_region() {
        let folder = tempfile::tempdir().unwrap();
        let region = folder.path().join("ndbus0/region0");
        let partition = region.join("namespace0.0/block/pmem0/pmem0p1");
        fs::create_dir_all(&partition).unwrap();
        let device = folder.path().join("259:1");
        symlink(&partition, &device).unwrap();
        assert!(!region_has_caches(&device), "the domain is not reported");
        for (domain, has_caches) in [
            ("memory_controller\n", false),
            ("cpu_cache\n", true),
            ("", false),
            ("cpu_cache_or_not\n", false),
        ] {
            fs::write(region.join(ATTRIBUTE), domain).unwrap();
            assert_eq!(region_has_caches(&device), has_caches, "{domain}");
        }
        assert!(!region_has_caches(&folder.path().join("none")));
    }

    #[test]
    fn a_file_on_a_disk_has_no_saved_caches() {
        assert!(!has_caches(&tempfile::tempfile().unwrap()));
    }
}
