//! Recovery: from the files on the medium to the memory that clients know of.
//!
//! 1. The manifest names the sound image, whose chunks are checked and loaded.
//! 2. The records from its position on are applied in order, up to the first position without a
//!    sound record; replay moves to the next segment where that segment begins.
//! 3. The bytes after that position are classified. The power may have failed while they were
//!    written: a *torn tail*, which no client has learned of, and which is cut off. Or something
//!    durable is missing: *damage*. Damage is proved by a later record that was made when this
//!    position was already durable, by a later segment, or by a manifest that reaches further. The
//!    node then refuses to start, since the memory that it would serve was never a state of the
//!    region.
//!
//! Recovery only changes files that no manifest or position refers to, and begins a new segment
//! after the recovered log. So it can be interrupted and restarted at any point.

use super::manifest::{CHUNK_BYTES, Manifest, SessionFacts, chunk_word};
use super::medium::Medium;
use super::record::{self, Kind};
use super::segment::{self, SegmentReader};
use crate::session_set::SessionSet;
use darter_fabric::effects::effects;
use darter_group::{Entry, Logged};
use std::io;
use std::path::PathBuf;

/// Why a log cannot be recovered.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unrecoverable {
    /// The system refused to read a file.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Durable data is missing.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        what: String,
    },
}

/// The destination of recovered words.
pub(super) trait Target {
    /// Stores bytes of whole words at an offset. Returns `false` if they are not inside the region.
    fn store(&mut self, offset: u64, bytes: &[u8]) -> bool;

    /// Signals that everything stored so far is in the image that the manifest names.
    fn image_is_loaded(&mut self) {}
}

/// The result of recovery.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) manifest: Manifest,
    /// The position at which the log continues.
    pub(super) position: u64,
    pub(super) sessions: SessionFacts,
    /// The state of the replica whose log it is.
    pub(super) replica: Option<Logged>,
    /// Whether the node had stopped in order.
    pub(super) was_stopped: bool,
    /// Number of records applied.
    pub(super) records: u64,
    /// Whether bytes that may have been records were cut off after the last sound record.
    pub(super) is_torn: bool,
}

fn damaged<T>(medium: &dyn Medium, name: &str, what: impl Into<String>) -> Result<T, Unrecoverable> {
    Err(Unrecoverable::Damaged { path: medium.path(name), what: what.into() })
}

/// Recovers a region that has a manifest.
///
/// # Errors
/// Fails with an [`Unrecoverable`] error.
pub(super) fn recover(
    medium: &dyn Medium,
    manifest: Manifest,
    target: &mut dyn Target,
) -> Result<Recovered, Unrecoverable> {
    load_image(medium, &manifest, target)?;
    target.image_is_loaded();
    let mut replay = Replay {
        medium,
        target,
        position: manifest.replayed_from,
        fenced: manifest.sessions.fenced.iter().copied().collect(),
        known: manifest.sessions.known.iter().copied().collect(),
        replica: logged_replica(medium, &manifest)?,
        was_stopped: false,
        records: 0,
    };
    let is_torn = replay.run(&manifest)?;
    let Replay { position, fenced, known, replica, was_stopped, records, .. } = replay;
    let sessions = SessionFacts { fenced: fenced.to_vec(), known: known.to_vec(), replica: Vec::new() };
    if position < manifest.reaches {
        let what = format!(
            "the log ends at {position:#x}, before the position {:#x} that the checkpoint reaches",
            manifest.reaches
        );
        return damaged(medium, super::manifest::MANIFEST, what);
    }
    Ok(Recovered { manifest, position, sessions, replica, was_stopped, records, is_torn })
}

/// Returns the state of a replica in the manifest, if it is one's.
fn logged_replica(medium: &dyn Medium, manifest: &Manifest) -> Result<Option<Logged>, Unrecoverable> {
    let bytes = &manifest.sessions.replica;
    match (bytes.is_empty(), Logged::take(bytes)) {
        (true, _) => Ok(None),
        (false, Some(logged)) => Ok(Some(logged)),
        _ => damaged(medium, super::manifest::MANIFEST, "the state of the replica in it is not one"),
    }
}

fn load_image(
    medium: &dyn Medium,
    manifest: &Manifest,
    target: &mut dyn Target,
) -> Result<(), Unrecoverable> {
    let Some(image) = manifest.image else { return Ok(()) };
    let file = match medium.open(image.name()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return damaged(medium, image.name(), "it is missing, but the checkpoint names it");
        }
        opened => opened?,
    };
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    for (chunk, word) in manifest.chunks.iter().enumerate().filter(|(_, word)| **word != 0) {
        let offset = chunk as u64 * CHUNK_BYTES;
        let bytes = &mut buffer[..CHUNK_BYTES.min(manifest.region_bytes - offset) as usize];
        file.read_at(offset, bytes)?;
        if chunk_word(bytes) != *word {
            let what = format!("the checkpoint's bytes at {offset:#x} are not those that were written");
            return damaged(medium, image.name(), what);
        }
        target.store(offset, bytes);
    }
    Ok(())
}

/// The state of a replay.
struct Replay<'r> {
    medium: &'r dyn Medium,
    target: &'r mut dyn Target,
    position: u64,
    fenced: SessionSet,
    known: SessionSet,
    replica: Option<Logged>,
    was_stopped: bool,
    records: u64,
}

impl Replay<'_> {
    /// Applies all records. Returns whether a torn tail was cut off.
    fn run(&mut self, manifest: &Manifest) -> Result<bool, Unrecoverable> {
        let mut starts = segment::starts(self.medium)?;
        // Segments before the checkpoint, which were not removed in time.
        let first = starts.partition_point(|start| *start <= manifest.replayed_from).saturating_sub(1);
        starts.drain(..first);
        if starts.first().is_none_or(|first| *first > self.position) {
            // The node ended before its first segment was created.
            return match starts.first() {
                None if !manifest.is_begun => Ok(false),
                None => {
                    let what = format!("the segments of the log from {:#x} on are missing", self.position);
                    damaged(self.medium, super::manifest::MANIFEST, what)
                }
                Some(first) => damaged(
                    self.medium,
                    &segment::name_of(*first),
                    format!("the log before it is missing, from {:#x} on", self.position),
                ),
            };
        }
        let mut is_torn = false;
        for (at, start) in starts.iter().enumerate() {
            let name = segment::name_of(*start);
            if !self.has_head(manifest, *start)? {
                let what = "it is cut short, its head is damaged, or the checkpoint is of another log";
                return damaged(self.medium, &name, what);
            }
            let mut reader = SegmentReader::new(self.medium.open(&name)?, *start)?;
            let next = starts.get(at + 1).copied();
            self.segment(&mut reader, &name, next)?;
            match next {
                Some(next) if self.position != next => {
                    let what = format!(
                        "the record at {:#x} is damaged; the log goes on at {next:#x}, so it was complete once",
                        self.position
                    );
                    return damaged(self.medium, &name, what);
                }
                Some(_) => {}
                None => is_torn = self.judge_tail(&mut reader, &name)?,
            }
        }
        Ok(is_torn)
    }

    fn has_head(&self, manifest: &Manifest, start: u64) -> io::Result<bool> {
        let file = self.medium.open(&segment::name_of(start))?;
        segment::has_head(&*file, manifest.boot_id, start)
    }

    /// Applies the records of a segment up to the beginning of the next one, or to the first record
    /// that is not sound.
    fn segment(
        &mut self,
        reader: &mut SegmentReader,
        name: &str,
        next: Option<u64>,
    ) -> Result<(), Unrecoverable> {
        while next.is_none_or(|next| self.position < next) {
            let record = reader.record(self.position)?.filter(|record| record.kind != Kind::End);
            let Some(record) = record else { break };
            self.was_stopped = record.kind == Kind::Stopped;
            let session = record::word64(record.payload, 0);
            match record.kind {
                Kind::Effects => {
                    let is_sound = effects(record.payload)
                        .all(|effect| effect.is_some_and(|(offset, bytes)| self.target.store(offset, bytes)));
                    if !is_sound {
                        let what = format!("the record at {:#x} is of another region", self.position);
                        return damaged(self.medium, name, what);
                    }
                }
                Kind::Entry => {
                    let (target, replica) = (&mut self.target, &mut self.replica);
                    let is_next =
                        Entry::take(record.payload).zip(replica.as_mut()).is_some_and(|(entry, replica)| {
                            replica.apply(&entry, |offset, bytes| target.store(offset, bytes))
                        });
                    if !is_next {
                        let what =
                            format!("the entry at {:#x} does not continue the replica's log", self.position);
                        return damaged(self.medium, name, what);
                    }
                }
                Kind::Entered => drop(self.known.insert(session)),
                Kind::Fenced => {
                    self.known.remove(session);
                    self.fenced.insert(session);
                }
                Kind::Stopped | Kind::End => {}
                Kind::Recovered => {
                    for session in std::mem::take(&mut self.known).to_vec() {
                        self.fenced.insert(session);
                    }
                }
            }
            self.position += record::record_bytes(record.payload.len()) as u64;
            self.records += 1;
        }
        Ok(())
    }

    /// Classifies the bytes after the last sound record of the last segment. Returns whether there
    /// are sound records, which are void.
    fn judge_tail(&self, reader: &mut SegmentReader, name: &str) -> Result<bool, Unrecoverable> {
        let mut is_torn = false;
        let mut position = self.position;
        while position < reader.end() {
            if let Some(record) = reader.record(position)? {
                is_torn |= record.kind != Kind::End;
                if record.durable > self.position {
                    let what = format!(
                        "the record at {:#x} is damaged, or the segment after it is missing: it was durable when the record at {position:#x} was written",
                        self.position
                    );
                    return damaged(self.medium, name, what);
                }
            }
            position += 8;
        }
        Ok(is_torn)
    }
}
