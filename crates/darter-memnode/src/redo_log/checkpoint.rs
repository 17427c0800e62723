//! Checkpoints: copies of the region, which limit how much log must be replayed.
//!
//! There are two images, sparse files as large as the region. A checkpoint writes to the image that
//! the manifest does *not* name, in chunks of 64 KiB: the chunks that changed after that image was
//! last written. So the named image is never modified, and a chunk that changes now and then is
//! written twice.
//!
//! The region goes on changing while it is copied. So an image is not a snapshot of one moment:
//! each word has a value that it had at some time between two positions of the log, where the
//! checkpoint began and where the last chunk was copied. Replaying the log from the first position
//! repairs that, since records hold words and not operations: in order, every word ends at its last
//! value. But replay must reach the second position: otherwise an image with a slot's new word, for
//! example, may lack the leaf that the word points to. So
//!
//! 1. all chunks are copied,
//! 2. the log's position is read, and everything before it becomes durable,
//! 3. the image is synced, and only then
//! 4. the manifest names it, is synced and renamed, and
//! 5. the log before the first position is removed.
//!
//! After an error the image is void, and the next checkpoint writes it anew, as another file: after
//! a failed sync the contents of a file are unknown. If writing the manifest failed, there is no
//! further checkpoint.

use super::chunks::ChunkSet;
use super::manifest::{CHUNK_BYTES, Image, Manifest, SessionFacts, chunk_word};
use super::medium::{Medium, MediumFile};
use super::segment;
use std::io;
use std::sync::Arc;

/// Number of chunks written between two syncs of an image: a sync of the log may wait for the
/// chunks written since the last one.
const CHUNKS_PER_SYNC: usize = 64;

/// The state of the log at the start of a checkpoint.
#[derive(Debug)]
pub(super) struct CheckpointRequest {
    /// The log's position.
    pub(super) position: u64,
    /// The chunks that have changed since the previous request.
    pub(super) changed: ChunkSet,
    pub(super) sessions: SessionFacts,
}

/// A checkpoint's access to a node that goes on serving.
pub(super) trait Source {
    /// Copies the region's bytes at an offset.
    fn copy(&mut self, offset: u64, buffer: &mut [u8]);
    /// Returns a position of the log after everything copied so far; `None` if the node has ended.
    fn position(&mut self) -> Option<u64>;
    /// Waits until the log is durable up to a position. Returns `false` if it never will be.
    fn wait_until_durable(&mut self, position: u64) -> bool;
}

/// An image, and its state.
#[derive(Debug)]
struct ImageState {
    image: Image,
    /// The chunks that have changed since it was written.
    changed: ChunkSet,
    /// A word for each of its chunks.
    words: Vec<u64>,
    /// Whether it must be written anew.
    is_void: bool,
}

/// Makes checkpoints.
#[derive(Debug)]
pub(super) struct Checkpointer {
    medium: Arc<dyn Medium>,
    boot_id: u64,
    region_bytes: u64,
    /// The two images; the second is the one that the manifest names.
    images: [ImageState; 2],
    /// The chunks that may be nonzero.
    ever: ChunkSet,
    replayed_from: u64,
    /// Whether it is unknown which image the manifest names, so neither may be written.
    has_ended: bool,
}

/// The result of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckpointDone {
    pub(super) position: u64,
    /// Number of bytes of chunks written.
    pub(super) bytes: u64,
}

impl Checkpointer {
    /// Continues from a manifest.
    pub(super) fn new(medium: Arc<dyn Medium>, manifest: &Manifest) -> Self {
        let count = manifest.chunks.len();
        let state =
            |image, words, is_void| ImageState { image, changed: ChunkSet::new(count), words, is_void };
        let named = manifest.image.unwrap_or(Image::Second);
        let mut ever = ChunkSet::new(count);
        (0..count).filter(|chunk| manifest.chunks[*chunk] != 0).for_each(|chunk| ever.add(chunk));
        Self {
            medium,
            boot_id: manifest.boot_id,
            region_bytes: manifest.region_bytes,
            images: [
                state(named.other(), vec![0; count], true),
                state(named, manifest.chunks.clone(), manifest.image.is_none()),
            ],
            ever,
            replayed_from: manifest.replayed_from,
            has_ended: false,
        }
    }

    pub(super) fn medium(&self) -> &dyn Medium {
        &*self.medium
    }

    /// Returns the image that the manifest names, and the words of its chunks.
    pub(super) fn named(&self) -> Option<(Image, &[u64])> {
        let named = &self.images[1];
        (!named.is_void).then_some((named.image, named.words.as_slice()))
    }

    /// Returns the log's position when the newest checkpoint began.
    pub(super) fn replayed_from(&self) -> u64 {
        self.replayed_from
    }

    /// Returns whether an image has the chunk that belongs to a word.
    ///
    /// # Errors
    /// Fails with the medium's errors.
    pub(super) fn has_chunk(&self, image: Image, chunk: usize, word: u64) -> io::Result<bool> {
        let offset = chunk as u64 * CHUNK_BYTES;
        let mut bytes = vec![0; CHUNK_BYTES.min(self.region_bytes - offset) as usize];
        let file = self.medium.open(image.name())?;
        file.forget()?;
        file.read_at(offset, &mut bytes)?;
        Ok(chunk_word(&bytes) == word)
    }

    /// Makes the next checkpoints write both images anew.
    pub(super) fn void_images(&mut self) {
        self.images.iter_mut().for_each(|state| state.is_void = true);
    }

    /// Makes a checkpoint. Returns its result; `None` if the node ended before it was complete.
    ///
    /// # Errors
    /// Fails with the medium's errors. The previous checkpoint is then still valid, and the log is
    /// not shortened.
    pub(super) fn run(
        &mut self,
        request: CheckpointRequest,
        source: &mut dyn Source,
    ) -> io::Result<Option<CheckpointDone>> {
        if self.has_ended {
            return Err(io::Error::other("an earlier checkpoint could not be named; restart the node"));
        }
        self.ever.add_all(&request.changed);
        for state in &mut self.images {
            state.changed.add_all(&request.changed);
        }
        let bytes = self.write_image(source).inspect_err(|_| self.images[0].is_void = true)?;
        let Some(reaches) = source.position() else { return Ok(None) };
        if !source.wait_until_durable(reaches) {
            return Ok(None);
        }
        let target = &mut self.images[0];
        let manifest = Manifest {
            boot_id: self.boot_id,
            region_bytes: self.region_bytes,
            image: Some(target.image),
            is_begun: true,
            replayed_from: request.position,
            reaches,
            chunks: target.words.clone(),
            sessions: request.sessions,
        };
        manifest.draft(&*self.medium)?;
        Manifest::take_draft(&*self.medium).inspect_err(|_| self.has_ended = true)?;
        self.images.swap(0, 1);
        self.replayed_from = request.position;
        segment::cut(&*self.medium, request.position)?;
        Ok(Some(CheckpointDone { position: request.position, bytes }))
    }

    /// Updates the image that is not named, and syncs it. Returns the number of bytes written.
    fn write_image(&mut self, source: &mut dyn Source) -> io::Result<u64> {
        let target = &mut self.images[0];
        let file = if target.is_void {
            target.words.fill(0);
            target.changed = self.ever.clone();
            // Writes another file, since the old file may have been left inconsistent by a failed
            // sync.
            self.medium.remove(target.image.name())?;
            self.medium.create(target.image.name())?
        } else {
            self.medium.open(target.image.name())?
        };
        let written = copy_chunks(target, self.region_bytes, &*file, source)?;
        file.sync()?;
        if target.is_void {
            self.medium.sync_names()?;
        }
        target.is_void = false;
        target.changed.clear();
        Ok(written)
    }
}

/// Copies the chunks of an image that have changed. Returns the number of bytes.
fn copy_chunks(
    target: &mut ImageState,
    region_bytes: u64,
    file: &dyn MediumFile,
    source: &mut dyn Source,
) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    let mut written = 0;
    for (count, chunk) in target.changed.iter().enumerate() {
        let offset = chunk as u64 * CHUNK_BYTES;
        let length = CHUNK_BYTES.min(region_bytes - offset) as usize;
        let bytes = &mut buffer[..length];
        source.copy(offset, bytes);
        target.words[chunk] = chunk_word(bytes);
        file.write_at(offset, bytes)?;
        written += length as u64;
        if count % CHUNKS_PER_SYNC == CHUNKS_PER_SYNC - 1 {
            file.sync()?;
        }
    }
    Ok(written)
}
