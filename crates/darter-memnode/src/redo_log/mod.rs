//! The redo log of a memory node, with which acknowledged writes survive a power failure.
//!
//! The region is memory of the process. Verbs execute at once, as without a log, and the serving
//! thread records their changes in order (`recorder.rs`). A thread writes the records to segments
//! and syncs them (`shared.rs`, `segment.rs`). **A reply waits until the log is durable as far as
//! everything that its frame wrote and read**: up to the frame's own record, or up to the last
//! record that changed a line that it read (`chunks.rs`). So no client ever learns of anything that
//! a power failure can undo: a client without a reply does not know whether its verbs took effect,
//! as after any lost connection, and no other client has seen their effects.
//!
//! Another thread copies the region from time to time (`checkpoint.rs`), which limits how much is
//! replayed when the node restarts (`recovery.rs`). The file `checkpoint` names the newest copy and
//! identifies the memory (`manifest.rs`).
//!
//! The files, and the possible effects of power failures on them, are behind the trait in
//! `medium.rs`. The tests run everything except the threads on a simulated medium, which loses
//! power in every operation.
//!
//! Claims of member slots are not recorded. After a crash every earlier session is fenced, so none
//! holds a slot; after an orderly stop a session claims a slot again when it needs one, as with a
//! region in a file.

mod checkpoint;
mod chunks;
mod journal;
mod manifest;
mod medium;
mod record;
mod recorder;
mod recovery;
mod scrub;
mod segment;
mod shared;
mod withholding;

#[cfg(test)]
mod damage_sweep_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod power_tests;
#[cfg(test)]
mod shortage_tests;
#[cfg(test)]
mod simulated;

pub(crate) use journal::{Fact, Journal, OpenLog};
pub(crate) use manifest::SessionFacts;

use crate::error::MemNodeError;
use checkpoint::Checkpointer;
use chunks::ChunkSet;
use darter_fabric::files::Sharing;
use darter_fabric::local::LocalEndpoint;
use darter_fabric::{ByteSize, Fabric, Local, random_word};
use darter_group::Logged;
use manifest::{CHUNK_BYTES, MANIFEST, Manifest, chunk_count};
use medium::Directory;
use recovery::{Recovered, Target, Unrecoverable, recover};
use segment::SegmentWriter;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};
use withholding::Withholding;

/// How the name of a directory with the files of a damaged log begins.
const ASIDE: &str = "damaged-";

/// The options of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Size in bytes of a segment, one of the files that make up the log. Its disk space is
    /// reserved when it is created.
    pub segment_bytes: u64,
    /// Bytes of the log after which a checkpoint begins. At most about twice this amount is
    /// replayed at the start, and kept on disk in addition to one or two segments.
    pub checkpoint_bytes: u64,
    /// Maximum bytes of records that wait for the disk. Beyond it the node takes no requests until
    /// the disk has caught up.
    pub queue_bytes_max: usize,
    /// Maximum bytes of checkpoints and log that are read in a second, to compare them with their
    /// checksums; 0 for none. What is damaged is written again from memory.
    pub scrub_rate: u64,
    /// The users that can read and write the log's new files.
    pub sharing: Sharing,
    /// For tests: unsynced data is lost when the process is killed, as if the power had failed, and
    /// a sync takes at least this time.
    #[doc(hidden)]
    pub loses_unsynced: Option<Duration>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            checkpoint_bytes: 256 << 20,
            queue_bytes_max: 16 << 20,
            scrub_rate: 4 << 20,
            sharing: Sharing::default(),
            loses_unsynced: None,
        }
    }
}

/// A log's information about its node.
#[derive(Debug)]
pub(crate) struct LoggedNode {
    pub(crate) boot_id: u64,
    pub(crate) sessions: SessionFacts,
    /// The sessions ended by the node's crash, which are fenced as well.
    pub(crate) forgotten: Vec<u64>,
    /// The state of the replica whose log it is.
    pub(crate) replica: Option<Logged>,
}

/// The region that recovery fills.
struct Region<'r> {
    endpoint: &'r LocalEndpoint,
    /// The chunks that have changed since the newest checkpoint.
    changed: ChunkSet,
    bytes: u64,
}

impl Target for Region<'_> {
    fn store(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let is_inside = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.bytes);
        if is_inside && !bytes.is_empty() {
            self.changed.add_range(offset, bytes.len());
        }
        is_inside && self.endpoint.store_words(offset, bytes).is_ok()
    }

    fn image_is_loaded(&mut self) {
        self.changed.clear();
    }
}

/// Opens the log in a directory, or creates one in an empty directory, and restores its state to
/// zeroed memory. The log is that of a replica of a memory group if `is_replica`. A replica whose
/// log was damaged starts with an empty one, since the other replicas have its state; the files of
/// the damaged log are kept in a subdirectory `damaged-N`.
///
/// # Errors
/// Fails as [`open_whole`] does, but for a replica not because of damage.
pub(crate) fn open(
    directory: &Path,
    memory: &Local,
    options: LogOptions,
    is_replica: bool,
) -> Result<(OpenLog, LoggedNode), MemNodeError> {
    match open_whole(directory, memory, options.clone(), is_replica) {
        Err(MemNodeError::LogDamaged { path, what }) if is_replica => {
            let failed = |source| MemNodeError::Log {
                path: directory.to_owned(),
                action: "set the damaged log aside in it",
                source,
            };
            let kept_in = set_aside(directory, &options.sharing).map_err(failed)?;
            let (path, kept_in) = (path.display(), kept_in.display());
            warn!(%path, what, %kept_in, "the log is damaged: starts without it, and copies the state of another replica");
            clear(memory)?;
            open_whole(directory, memory, options, is_replica)
        }
        opened => opened,
    }
}

/// Moves all files of a log to a new directory in its own. Returns that directory.
fn set_aside(directory: &Path, sharing: &Sharing) -> std::io::Result<PathBuf> {
    let name = |number: u32| directory.join(format!("{ASIDE}{number}"));
    let aside = (0..=u32::MAX).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0));
    sharing.create_directory(&aside)?;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(ASIDE) {
            std::fs::rename(entry.path(), aside.join(entry.file_name()))?;
        }
    }
    std::fs::File::open(directory)?.sync_all()?;
    Ok(aside)
}

/// Zeroes the words that a recovery has stored before it found damage.
fn clear(memory: &Local) -> Result<(), MemNodeError> {
    let (endpoint, bytes) = (memory.endpoint()?, memory.node_bytes(0));
    let (zeros, mut chunk) = (vec![0; CHUNK_BYTES as usize], vec![0; CHUNK_BYTES as usize]);
    for offset in (0..bytes).step_by(CHUNK_BYTES as usize) {
        let length = CHUNK_BYTES.min(bytes - offset) as usize;
        endpoint.copy_words(offset, &mut chunk[..length])?;
        if chunk[..length] != zeros[..length] {
            endpoint.store_words(offset, &zeros[..length])?;
        }
    }
    Ok(())
}

/// Opens the log in a directory, or creates one in an empty directory, and restores its state to
/// zeroed memory.
///
/// # Errors
/// Fails if the directory cannot be used or is in use, belongs to a region of another size or to a
/// node that is (not) a replica, or was damaged.
fn open_whole(
    directory: &Path,
    memory: &Local,
    options: LogOptions,
    is_replica: bool,
) -> Result<(OpenLog, LoggedNode), MemNodeError> {
    let failed = |action| move |source| MemNodeError::Log { path: directory.to_owned(), action, source };
    let medium = Directory::open(directory, options.sharing.clone()).map_err(failed("open it"))?;
    let medium = match options.loses_unsynced {
        Some(sync_time) => Arc::new(Withholding { medium, sync_time }),
        None => medium,
    };
    let bytes = memory.node_bytes(0);
    if let Some(warning) = missing_space(directory, bytes, &options) {
        warn!("{warning}");
    }
    let manifest = match Manifest::find(&*medium) {
        Ok(Some(manifest)) => manifest,
        Ok(None) if !segment::starts(&*medium).map_err(failed("read it"))?.is_empty() => {
            let what = "it is missing, although there are segments of a log".to_owned();
            return Err(MemNodeError::LogDamaged { path: medium.path(MANIFEST), what });
        }
        Ok(None) => {
            let mut manifest = Manifest::new(random_word(), bytes);
            if is_replica {
                Logged::default().put(&mut manifest.sessions.replica);
            }
            manifest.publish(&*medium).map_err(failed("create a log in it"))?;
            manifest
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            let what = "it is damaged".to_owned();
            return Err(MemNodeError::LogDamaged { path: medium.path(MANIFEST), what });
        }
        Err(source) => {
            return Err(MemNodeError::Log { path: medium.path(MANIFEST), action: "read it", source });
        }
    };
    if manifest.region_bytes != bytes {
        return Err(MemNodeError::LogSize {
            path: directory.to_owned(),
            has: ByteSize(manifest.region_bytes),
            wanted: ByteSize(bytes),
        });
    }
    if manifest.sessions.replica.is_empty() == is_replica {
        return Err(MemNodeError::LogOfOther { path: directory.to_owned(), wants_replica: is_replica });
    }
    let began = Instant::now();
    let endpoint = memory.endpoint()?;
    let changed = ChunkSet::new(chunk_count(bytes));
    let mut region = Region { endpoint: &endpoint, changed, bytes };
    let recovered = recover(&*medium, manifest, &mut region).map_err(|error| match error {
        Unrecoverable::Io(source) => failed("read the log in it")(source),
        Unrecoverable::Damaged { path, what } => MemNodeError::LogDamaged { path, what },
    })?;
    let changed = region.changed;
    let Recovered { mut manifest, position, mut sessions, replica, was_stopped, records, is_torn } =
        recovered;
    let has_crashed = !was_stopped && position > 0;
    info!(position, records, has_crashed, is_torn, took = ?began.elapsed(), "log replayed");
    let mut forgotten = Vec::new();
    if has_crashed {
        forgotten = std::mem::take(&mut sessions.known);
        sessions.fenced.extend(&forgotten);
    }
    let boot_id = manifest.boot_id;
    let writer = SegmentWriter::begin(Arc::clone(&medium), boot_id, position, options.segment_bytes)
        .map_err(failed("create a segment of the log in it"))?;
    manifest.note_segment(&*medium).map_err(failed("create a log in it"))?;
    let log = OpenLog {
        writer,
        checkpointer: Checkpointer::new(Arc::clone(&medium), &manifest),
        medium,
        position,
        checkpointed: manifest.replayed_from,
        changed,
        has_crashed,
        options,
    };
    Ok((log, LoggedNode { boot_id, sessions, forgotten, replica }))
}

/// Returns a warning if the directory's file system has less space than the log may come to need:
/// two images of the region, and the log between two checkpoints.
fn missing_space(directory: &Path, region_bytes: u64, options: &LogOptions) -> Option<String> {
    let system = rustix::fs::statvfs(directory).ok()?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    let files = std::fs::read_dir(directory).ok()?.filter_map(|entry| entry.ok()?.metadata().ok());
    let taken: u64 = files.map(|file| file.blocks() * 512).sum();
    let log = options.checkpoint_bytes.saturating_add(options.segment_bytes).saturating_mul(2);
    let needed = region_bytes.saturating_mul(2).saturating_add(log).saturating_sub(taken);
    (needed > free).then(|| {
        format!(
            "{}: the log may come to need {} more on its file system, which has {} free; when it is full, the node \
             refuses every request until there is room: make room, or choose another directory",
            directory.display(),
            ByteSize(needed),
            ByteSize(free),
        )
    })
}

const _: () = assert!(CHUNK_BYTES.is_multiple_of(8));
