//! Notes for the operator: whether huge pages are in use, whether disk space suffices, and how
//! durable the pool is.

use super::file::{PoolFile, magic};
use super::free_bytes;
use super::mapping::Mapping;
use crate::ByteSize;

/// Smallest pool for which huge pages matter.
const HUGE_PAGES_MATTER_BYTES: usize = 2 << 20;

/// Returns all notes about a pool. `file` is `None` for memory.
pub(super) fn collect(mapping: &Mapping, file: Option<&PoolFile>) -> Vec<String> {
    let bytes = mapping.words().len() * 8;
    let mut notes = Vec::new();
    let medium = file.map(Medium::of);
    if mapping.is_reserved() {
        notes.push("huge pages are in use: the whole pool lies in reserved ones".to_owned());
    } else if bytes >= HUGE_PAGES_MATTER_BYTES {
        notes.extend(huge_pages(mapping, medium.as_ref()));
    }
    match (file, medium) {
        (Some(file), Some(medium)) => {
            notes.extend(missing_space(file, bytes as u64));
            if medium.is_tmpfs {
                notes.push(
                    "the pool lives in memory (tmpfs): it survives processes, but not a reboot".to_owned(),
                );
            }
        }
        _ => notes.push("the pool lives in this process's memory and ends with it".to_owned()),
    }
    notes
}

/// The medium of a file.
struct Medium {
    is_device: bool,
    is_tmpfs: bool,
}

impl Medium {
    fn of(file: &PoolFile) -> Self {
        let is_device = file.is_device();
        let file_system = file.file_system().filter(|_| !is_device);
        Self {
            is_device,
            is_tmpfs: file_system.is_some_and(|report| magic(&report) == libc::TMPFS_MAGIC as u32),
        }
    }
}

/// Returns a warning if the file system has less room than the file of a pool or region may still
/// need.
pub(super) fn missing_space(file: &PoolFile, bytes: u64) -> Option<String> {
    if file.is_device() {
        return None;
    }
    let (needed, free) = (bytes.saturating_sub(file.taken_bytes()?), free_bytes(&file.file_system()?));
    (needed > free).then(|| {
        format!(
            "{}: the file may need {} more of its file system, which has {} free; a process that finds it full \
             ends; make room, or create the file again with its space reserved: without `sparse`, or with `preallocate` \
             on a file system that cannot reserve space",
            file.path().display(),
            ByteSize(needed),
            ByteSize(free),
        )
    })
}

/// Reports whether huge pages are in use, and what to do if not.
fn huge_pages(mapping: &Mapping, medium: Option<&Medium>) -> Option<String> {
    let setting = match medium {
        None => "enabled",
        Some(medium) if medium.is_tmpfs => "shmem_enabled",
        Some(medium) if medium.is_device => return None,
        Some(_) => {
            return Some("huge pages are not in use: a plain file is mapped in 4 KiB pages; a pool on /dev/shm or a DAX device can have them".to_owned());
        }
    };
    let path = format!("/sys/kernel/mm/transparent_hugepage/{setting}");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let chosen =
        text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("unknown", |(word, _)| word);
    let now = huge_bytes_mapped(mapping.address())
        .map_or(String::new(), |bytes| format!(" ({} of the pool is mapped by them now)", ByteSize(bytes)));
    Some(match chosen {
        "always" | "madvise" | "advise" | "within_size" | "force" => {
            format!("huge pages are in use where the kernel finds them{now}: {path} is `{chosen}`")
        }
        _ => format!(
            "huge pages are not in use{now}: {path} is `{chosen}`; write `{}` into it as root to have them",
            if setting == "enabled" { "madvise" } else { "advise" },
        ),
    })
}

/// Returns the bytes of the mapping at `address` that huge pages back, as reported by the kernel.
fn huge_bytes_mapped(address: usize) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let head = format!("{address:x}-");
    let own = text.lines().skip_while(|line| !line.starts_with(&head)).skip(1);
    own.take_while(|line| !line.split(' ').next().is_some_and(|word| word.contains('-')))
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| matches!(*name, "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped"))
        .map(|(_, value)| value.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024))
        .sum()
}
