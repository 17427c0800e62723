//! Segments: the files with the log's records, in sequence.
//!
//! ```text
//! segment-0000000004a00000
//!      0  "DARTERLG" | version 4, checksum 4 | boot id 8 | position of the first record 8 | bytes 8
//!   4096  records, in sequence
//! ```
//!
//! A segment is created with all its disk space and, if there was time for it, filled with zeros
//! before it is used, so that a sync of records does not change the file system's own data. The
//! next segment gets its name and head when everything in the previous one is durable: so a segment
//! proves that its predecessor was complete. It gets its name last, so a segment without a sound
//! head, or with fewer bytes than the head states, is damaged. The previous segment then gets a
//! mark that another follows it, so a missing segment is detected too.
//!
//! A node never continues the last segment that it finds at its start, but begins a new one at the
//! position that recovery reached. Anything that a crash has left after that position, perhaps
//! complete records that no client has learned of, is then beyond the next segment's beginning, and
//! void.

use super::medium::{Medium, MediumFile};
use super::record::{self, ENDS_BYTES, word64};
use std::io;
use std::sync::Arc;

const MAGIC: u64 = u64::from_le_bytes(*b"DARTERLG");
const VERSION: u64 = 1;
/// Number of bytes before the first record.
pub(super) const SEGMENT_HEAD_BYTES: usize = 4096;
/// The name of a file that is ready to become a segment.
pub(super) const SPARE: &str = "spare";
/// The name of a file that becomes a spare.
const SPARE_DRAFT: &str = "spare.new";
/// The name of a file that becomes a segment, without a spare.
const SEGMENT_DRAFT: &str = "segment.new";
/// Number of bytes written at a time to a file that becomes a spare.
const SPARE_STEP: usize = 1 << 20;

/// Returns the name of the segment whose first record is at this position.
pub(super) fn name_of(start: u64) -> String {
    format!("segment-{start:016x}")
}

/// Returns the positions at which the segments of a medium begin, in ascending order.
pub(super) fn starts(medium: &dyn Medium) -> io::Result<Vec<u64>> {
    let parse = |name: &String| {
        let digits = name.strip_prefix("segment-").filter(|digits| digits.len() == 16)?;
        u64::from_str_radix(digits, 16).ok()
    };
    let mut starts: Vec<u64> = medium.names()?.iter().filter_map(parse).collect();
    starts.sort_unstable();
    Ok(starts)
}

fn head(boot_id: u64, start: u64, size: u64) -> Vec<u8> {
    let mut head = vec![0; SEGMENT_HEAD_BYTES];
    for (at, word) in [MAGIC, VERSION, boot_id, start, size].into_iter().enumerate() {
        head[at * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }
    let checksum = crc32fast::hash(&head);
    head[12..16].copy_from_slice(&checksum.to_le_bytes());
    head
}

/// Returns whether a file is this node's segment from this position on, of its full size.
pub(super) fn has_head(file: &dyn MediumFile, boot_id: u64, start: u64) -> io::Result<bool> {
    let mut found = vec![0; SEGMENT_HEAD_BYTES];
    file.read_at(0, &mut found)?;
    let size = word64(&found, 32);
    Ok(found == head(boot_id, start, size) && file.size()? >= size)
}

/// Writes records to the newest segment, and begins the next one when they do not fit.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    medium: Arc<dyn Medium>,
    boot_id: u64,
    segment_bytes: u64,
    file: Box<dyn MediumFile>,
    /// The offset at which the next record is written.
    at: u64,
    /// Its size in bytes.
    size: u64,
    has_failed: bool,
}

impl SegmentWriter {
    /// Begins a segment at a position.
    ///
    /// # Errors
    /// Fails with the medium's errors.
    pub(super) fn begin(
        medium: Arc<dyn Medium>,
        boot_id: u64,
        start: u64,
        segment_bytes: u64,
    ) -> io::Result<Self> {
        let former = starts(&*medium)?.into_iter().rfind(|former| *former < start);
        // Replaces a segment of this name that has no sound record.
        let (file, size) = segment(&*medium, boot_id, start, segment_bytes)?;
        if let Some(former) = former {
            let at = start - former + SEGMENT_HEAD_BYTES as u64;
            mark_followed(&*medium.open(&name_of(former))?, at, start)?;
        }
        Ok(Self {
            medium,
            boot_id,
            segment_bytes,
            file,
            at: SEGMENT_HEAD_BYTES as u64,
            size,
            has_failed: false,
        })
    }

    /// Creates further segments on another medium.
    #[cfg(test)]
    pub(super) fn set_medium(&mut self, medium: Arc<dyn Medium>) {
        self.medium = medium;
    }

    /// Writes complete records, the first of which is at this position, and ends after them, and
    /// waits until they are durable. Everything before this position is durable. If the system is
    /// short of a resource (descriptors, space), calls `waits`, and retries the step if it returns
    /// true. A failed sync is not retried: the system may have dropped data that it could not
    /// write.
    ///
    /// # Errors
    /// Fails with the medium's errors. Then it is unknown which of these records are durable, and
    /// every further call fails.
    pub(super) fn commit(
        &mut self,
        records: &mut Vec<u8>,
        position: u64,
        mut waits: impl FnMut(&io::Error) -> bool,
    ) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier record could not be written"));
        }
        let bytes = records.len();
        record::put_ends(records, position + bytes as u64, position);
        let written = self.write(records, position, &mut waits);
        records.truncate(bytes);
        written.inspect_err(|_| self.has_failed = true)
    }

    /// Writes after the records that everything before this position, the end of the log, is
    /// durable. That mark is not durable itself: if it is lost, damage to the newest records is
    /// taken for a torn tail.
    pub(super) fn mark_durable(&mut self, position: u64) {
        let mut ends = Vec::with_capacity(ENDS_BYTES);
        record::put_ends(&mut ends, position, position);
        // After an error the next records fail too.
        drop(self.file.write_at(self.at, &ends));
    }

    fn write(
        &mut self,
        records: &[u8],
        position: u64,
        waits: &mut dyn FnMut(&io::Error) -> bool,
    ) -> io::Result<()> {
        let bytes = records.len() - ENDS_BYTES;
        let mut at = 0;
        while at < bytes {
            let rest = &records[at..bytes];
            let fitting = fitting(rest, (self.size - self.at).saturating_sub(ENDS_BYTES as u64));
            if fitting == 0 {
                let start = position + at as u64;
                let needed = record::length(rest).unwrap_or(rest.len()) + SEGMENT_HEAD_BYTES + ENDS_BYTES;
                let bytes = self.segment_bytes.max(needed as u64);
                let begin = || segment(&*self.medium, self.boot_id, start, bytes);
                let (file, size) = until_there_is_enough(begin, waits)?;
                until_there_is_enough(|| mark_followed(&*self.file, self.at, start), waits)?;
                (self.file, self.size) = (file, size);
                self.at = SEGMENT_HEAD_BYTES as u64;
                continue;
            }
            // Records followed by another segment need no ends, since its head proves the same.
            let end = if at + fitting == bytes { records.len() } else { at + fitting };
            until_there_is_enough(|| self.file.write_at(self.at, &records[at..end]), waits)?;
            self.file.sync()?;
            self.at += fitting as u64;
            at += fitting;
        }
        Ok(())
    }
}

/// Retries a step of writing after each shortage, as long as `waits` returns true.
fn until_there_is_enough<T>(
    mut step: impl FnMut() -> io::Result<T>,
    waits: &mut dyn FnMut(&io::Error) -> bool,
) -> io::Result<T> {
    loop {
        match step() {
            Err(error) if is_shortage(&error) && waits(&error) => {}
            outcome => return outcome,
        }
    }
}

/// Returns whether the error is a shortage that may end.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::NOBUFS,
        Errno::AGAIN,
        Errno::INTR,
        Errno::NOSPC,
        Errno::DQUOT,
    ];
    error.raw_os_error().is_some_and(|code| shortages.iter().any(|shortage| shortage.raw_os_error() == code))
}

/// Returns the number of bytes of the complete records that fit into this space.
fn fitting(records: &[u8], room: u64) -> usize {
    if records.len() as u64 <= room {
        return records.len();
    }
    let mut fitting = 0;
    while let Some(length) = record::length(&records[fitting..])
        && (fitting + length) as u64 <= room
    {
        fitting += length;
    }
    fitting
}

/// Writes at an offset, after the last record of a segment, that the segment from `start` on
/// follows. If that segment is missing, recovery reports damage.
fn mark_followed(file: &dyn MediumFile, at: u64, start: u64) -> io::Result<()> {
    let mut mark = Vec::new();
    record::put_followed(&mut mark, start);
    file.write_at(at, &mark)?;
    file.sync().map_err(|error| io::Error::other(error.to_string()))
}

/// Creates the segment that begins at a position, from the spare if there is one. Can be called
/// again after an error: an incomplete segment is then created anew.
fn segment(
    medium: &dyn Medium,
    boot_id: u64,
    start: u64,
    bytes: u64,
) -> io::Result<(Box<dyn MediumFile>, u64)> {
    let (file, draft) = match medium.open(SPARE) {
        Ok(file) => (file, SPARE),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (medium.create(SEGMENT_DRAFT)?, SEGMENT_DRAFT)
        }
        Err(error) => return Err(error),
    };
    file.reserve(bytes)?;
    let size = file.size()?;
    file.write_at(0, &head(boot_id, start, size))?;
    // Not retried, whatever the reason.
    let failed = |error: io::Error| io::Error::other(error.to_string());
    file.sync().map_err(failed)?;
    medium.rename(draft, &name_of(start))?;
    medium.sync_names().map_err(failed)?;
    Ok((file, size))
}

/// Creates a spare, if there is none: a file filled with zeros.
///
/// # Errors
/// Fails with the medium's errors. They can be ignored: a segment can be created without a spare.
pub(super) fn prepare_spare(medium: &dyn Medium, segment_bytes: u64) -> io::Result<()> {
    if medium.names()?.iter().any(|name| name == SPARE) {
        return Ok(());
    }
    let file = medium.create(SPARE_DRAFT)?;
    file.reserve(segment_bytes)?;
    let zeros = vec![0; SPARE_STEP];
    let mut at = 0;
    while at < segment_bytes {
        let step = zeros.len().min((segment_bytes - at) as usize);
        file.write_at(at, &zeros[..step])?;
        // In small steps, since a sync of the log would wait for all of it.
        file.sync()?;
        at += step as u64;
    }
    medium.rename(SPARE_DRAFT, SPARE)?;
    medium.sync_names()
}

/// Removes the segments that end at or before a position; one of them becomes the spare if there is
/// none.
///
/// # Errors
/// Fails with the medium's errors.
pub(super) fn cut(medium: &dyn Medium, before: u64) -> io::Result<()> {
    let starts = starts(medium)?;
    let mut has_spare = medium.names()?.iter().any(|name| name == SPARE);
    for pair in starts.windows(2) {
        if pair[1] > before {
            break;
        }
        let name = name_of(pair[0]);
        if has_spare {
            medium.remove(&name)?;
        } else {
            medium.rename(&name, SPARE)?;
            has_spare = true;
        }
    }
    medium.sync_names()
}

/// Reads the records of one segment in order.
#[derive(Debug)]
pub(super) struct SegmentReader {
    file: Box<dyn MediumFile>,
    start: u64,
    size: u64,
    /// Part of the file.
    window: Vec<u8>,
    /// The offset of the window's first byte.
    window_at: u64,
}

/// Number of bytes read ahead.
const WINDOW_BYTES: usize = 1 << 20;

impl SegmentReader {
    /// Returns a reader of the segment that begins at a position.
    ///
    /// Fails with the medium's errors.
    /// The medium's.
    pub(super) fn new(file: Box<dyn MediumFile>, start: u64) -> io::Result<Self> {
        let size = file.size()?;
        Ok(Self { file, start, size, window: Vec::new(), window_at: 0 })
    }

    /// Returns the position of the segment's end.
    pub(super) fn end(&self) -> u64 {
        self.start + self.size.saturating_sub(SEGMENT_HEAD_BYTES as u64)
    }

    /// Returns at least this number of bytes from a position on, or fewer at the segment's end.
    fn bytes(&mut self, position: u64, count: usize) -> io::Result<&[u8]> {
        let offset = position - self.start + SEGMENT_HEAD_BYTES as u64;
        let left = self.size.saturating_sub(offset).min(usize::MAX as u64) as usize;
        let count = count.min(left);
        let is_present =
            offset >= self.window_at && offset + count as u64 <= self.window_at + self.window.len() as u64;
        if !is_present {
            self.window.resize(count.max(WINDOW_BYTES).min(left), 0);
            self.window_at = offset;
            self.file.read_at(offset, &mut self.window)?;
        }
        Ok(&self.window[(offset - self.window_at) as usize..])
    }

    /// Returns the record at a position; `None` if there is no sound record.
    ///
    /// # Errors
    /// Fails with the medium's errors.
    pub(super) fn record(&mut self, position: u64) -> io::Result<Option<record::Record<'_>>> {
        if position < self.start {
            return Ok(None);
        }
        let head = self.bytes(position, record::HEAD_BYTES)?;
        // Most invalid records are recognized by their head, without reading the bytes that the
        // head claims.
        let is_here = head.len() >= record::HEAD_BYTES && word64(head, 8) == position;
        let Some(length) = record::length(head).filter(|_| is_here) else { return Ok(None) };
        Ok(record::parse(self.bytes(position, length)?, position))
    }
}
