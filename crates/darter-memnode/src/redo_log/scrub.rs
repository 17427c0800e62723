//! Scrubbing: reads the image that the manifest names, and the log after it, while the node serves,
//! and compares them with their checksums. So damage to the medium is found while the memory that
//! they describe still exists: the next checkpoint replaces both.

use super::checkpoint::Checkpointer;
use super::manifest::{CHUNK_BYTES, Manifest};
use super::medium::Medium;
use super::segment::{self, SegmentReader};
use std::io;

/// Maximum number of bytes of the log that one step reads.
const STEP_BYTES: u64 = 256 << 10;

/// What a step has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This number of bytes is sound.
    Sound(u64),
    /// Everything was read; the next step begins again.
    AllSound,
    /// Something is damaged: the file, and what is wrong.
    Damaged(String, String),
}

/// The next place to read. A checkpoint does not change it: the next image has the same chunks, and a
/// log that begins later is read from there.
#[derive(Debug, Default)]
pub(super) struct Scrubber {
    /// The next chunk of the image.
    chunk: usize,
    /// The next position of the log, after the image.
    position: Option<u64>,
}

impl Scrubber {
    /// Reads the next part. Everything before `durable` is in the log.
    ///
    /// # Errors
    /// Fails with the medium's errors.
    pub(super) fn step(&mut self, checkpointer: &Checkpointer, durable: u64) -> io::Result<Found> {
        let medium = checkpointer.medium();
        let first = checkpointer.replayed_from();
        let Some((image, words)) = checkpointer.named() else { return self.step_log(medium, first, durable) };
        while let Some(word) = words.get(self.chunk).filter(|_| self.position.is_none()) {
            let chunk = self.chunk;
            self.chunk += 1;
            if *word == 0 {
                continue;
            }
            let is_sound = checkpointer.has_chunk(image, chunk, *word)?;
            let what =
                || format!("its bytes at {:#x} are not those that were written", chunk as u64 * CHUNK_BYTES);
            return Ok(if is_sound {
                Found::Sound(CHUNK_BYTES)
            } else {
                self.restart(Found::Damaged(image.name().to_owned(), what()))
            });
        }
        self.step_log(medium, first, durable)
    }

    fn restart(&mut self, found: Found) -> Found {
        *self = Self::default();
        found
    }

    fn step_log(&mut self, medium: &dyn Medium, first: u64, durable: u64) -> io::Result<Found> {
        let begin = self.position.unwrap_or(first).max(first);
        if begin == first && !matches!(Manifest::find(medium), Ok(Some(_))) {
            let what = "it is damaged or missing".to_owned();
            return Ok(self.restart(Found::Damaged(super::manifest::MANIFEST.to_owned(), what)));
        }
        let (mut position, end) = (begin, durable.min(begin + STEP_BYTES));
        let starts = segment::starts(medium)?;
        while position < end {
            let at = starts.partition_point(|start| *start <= position);
            let Some(start) = at.checked_sub(1).map(|at| starts[at]) else {
                let what = format!("the log from {position:#x} on is missing");
                return Ok(self.restart(Found::Damaged(super::manifest::MANIFEST.to_owned(), what)));
            };
            let name = segment::name_of(start);
            let file = medium.open(&name)?;
            file.forget()?;
            let mut reader = SegmentReader::new(file, start)?;
            let stop = starts.get(at).map_or(end, |next| end.min(*next));
            while position < stop {
                let Some(record) = reader.record(position)? else {
                    let what = format!("the record at {position:#x} is damaged");
                    return Ok(self.restart(Found::Damaged(name, what)));
                };
                position += super::record::record_bytes(record.payload.len()) as u64;
            }
        }
        self.position = Some(position);
        Ok(if position >= durable { self.restart(Found::AllSound) } else { Found::Sound(position - begin) })
    }
}
