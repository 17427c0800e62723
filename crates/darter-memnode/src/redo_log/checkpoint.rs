//! Checkpoints: copies of the region, which bound what must be replayed.
//!
//! There are two images, files as large as the region and sparse. A checkpoint writes to the one
//! that the manifest does *not* name, in chunks of 64 KiB: those that have changed since that image
//! was written last. So the image that is named stays whole whatever happens, and a chunk that
//! changes now and then is written twice.
//!
//! The region goes on changing while it is copied. What an image holds is therefore of no one
//! moment: each word has a value that it had at some time between two positions of the log, where
//! the checkpoint began and where the last chunk was copied. Replaying the log from the first
//! position repairs that, since records hold words and not what was done to them: in order, every
//! word ends at its last value. But replay must reach the second position; an image that has a
//! slot's new word, say, may lack the leaf that it names. So
//!
//! 1. all chunks are copied,
//! 2. the log's position is asked for, and everything before it becomes durable,
//! 3. the image is synced, and only then
//! 4. the manifest names it, is synced and renamed, and
//! 5. the log before the first position is removed.
//!
//! After an error the image is void, and the next checkpoint writes it anew, as another file: after
//! a failed sync nobody knows what a file holds. If it was the manifest that failed, there is no
//! next one.

use super::chunks::ChunkSet;
use super::manifest::{CHUNK_BYTES, Image, Manifest, SessionFacts, chunk_word};
use super::medium::{Medium, MediumFile};
use super::segment;
use std::io;
use std::sync::Arc;

/// Chunks written between two syncs of an image: a sync of the log may wait for what was written
/// since.
const CHUNKS_PER_SYNC: usize = 64;

/// What a checkpoint begins with, all of one moment.
#[derive(Debug)]
pub(super) struct CheckpointRequest {
    /// The log's position.
    pub(super) position: u64,
    /// The chunks that have changed since the request before.
    pub(super) changed: ChunkSet,
    pub(super) sessions: SessionFacts,
}

/// What a checkpoint needs of a node that goes on meanwhile.
pub(super) trait Source {
    /// Copies the region's bytes at an offset.
    fn copy(&mut self, offset: u64, buffer: &mut [u8]);
    /// Returns a position of the log that lies behind everything copied so far; `None` if the node
    /// has ended.
    fn position(&mut self) -> Option<u64>;
    /// Waits until the log is durable up to a position. Returns `false` if it never will be.
    fn wait_until_durable(&mut self, position: u64) -> bool;
}

/// An image, and what is known of it.
#[derive(Debug)]
struct ImageState {
    image: Image,
    /// The chunks that have changed since it was written.
    changed: ChunkSet,
    /// A word for each chunk of it.
    words: Vec<u64>,
    /// It must be written anew.
    is_void: bool,
}

/// Makes checkpoints.
#[derive(Debug)]
pub(super) struct Checkpointer {
    medium: Arc<dyn Medium>,
    boot_id: u64,
    region_bytes: u64,
    /// The image that the manifest names comes second.
    images: [ImageState; 2],
    /// The chunks that may hold anything but zeros.
    ever: ChunkSet,
    /// Nobody knows which image the manifest names, so neither may be written any more.
    is_over: bool,
}

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckpointDone {
    pub(super) position: u64,
    /// Bytes of chunks written.
    pub(super) bytes: u64,
}

impl Checkpointer {
    /// Goes on from a manifest.
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
            is_over: false,
        }
    }

    /// Makes a checkpoint. Returns what it did; `None` if the node ended meanwhile.
    ///
    /// # Errors
    /// The medium's. The checkpoint before still counts, and the log is as long as it was.
    pub(super) fn run(
        &mut self,
        request: CheckpointRequest,
        source: &mut dyn Source,
    ) -> io::Result<Option<CheckpointDone>> {
        if self.is_over {
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
        Manifest::take_draft(&*self.medium).inspect_err(|_| self.is_over = true)?;
        self.images.swap(0, 1);
        segment::cut(&*self.medium, request.position)?;
        Ok(Some(CheckpointDone { position: request.position, bytes }))
    }

    /// Brings the image that is not named up to date, and syncs it. Returns the bytes written.
    fn write_image(&mut self, source: &mut dyn Source) -> io::Result<u64> {
        let target = &mut self.images[0];
        let file = if target.is_void {
            target.words.fill(0);
            target.changed = self.ever.clone();
            // Another file: the one of this name may hold what a failed sync has left.
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

/// Copies the chunks of an image that have changed. Returns their bytes.
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
