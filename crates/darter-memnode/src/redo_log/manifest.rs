//! The manifest: the file that names the newest checkpoint and describes its contents. It also
//! identifies the memory, so it exists from the beginning.
//!
//! ```text
//! checkpoint
//!   0  "DARTERCP" | version 4, image 4 (0: none, 3: none, and there is a segment) | boot id 8
//!      | region bytes 8
//!  32  replayed from 8 | reaches 8 | chunks 8 | fenced sessions 8 | known sessions 8
//!  72  a word a chunk: 0 if it is all zeros, else 2^32 + its checksum | fenced | known, 8 each
//!      of a replica, version 2: bytes 8 | its state, padded with zeros to 8 bytes
//!      checksum of all of it 8
//! ```
//!
//! *Replayed from* is the log's position when the checkpoint began: the image has the effects of
//! all records before it. *Reaches* is a position after all effects in the image. Replay must reach
//! it, or the image is ahead of its log.
//!
//! It is written under another name, synced, and renamed. So there is always a complete one.

use super::medium::Medium;
use super::record::word64;
use std::io;

const MAGIC: u64 = u64::from_le_bytes(*b"DARTERCP");
const VERSION: u64 = 1;
/// The version of a replica's manifest.
const REPLICA_VERSION: u64 = 2;
const HEAD_BYTES: usize = 72;
/// In the field for the image: there is no image, and the log has a segment.
const BEGUN: u64 = 3;
/// The name of the manifest.
pub(super) const MANIFEST: &str = "checkpoint";
/// The name of the next manifest until it is complete.
const MANIFEST_DRAFT: &str = "checkpoint.new";
/// Number of bytes of a chunk, the unit in which the region is copied.
pub(super) const CHUNK_BYTES: u64 = 64 << 10;

/// One of the two files for copies of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    First = 1,
    Second = 2,
}

impl Image {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::First => "image-1",
            Self::Second => "image-2",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// Facts about sessions at a position of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionFacts {
    /// Sessions that are fenced, the oldest first.
    pub(crate) fenced: Vec<u64>,
    /// Sessions that were admitted and are not fenced, the oldest first.
    pub(crate) known: Vec<u64>,
    /// The state of a replica of a memory group ([`darter_group::Logged`]); empty if it is none.
    pub(crate) replica: Vec<u8>,
}

/// The contents of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) boot_id: u64,
    pub(super) region_bytes: u64,
    /// `None` if nothing has been copied yet, and the region is zeros.
    pub(super) image: Option<Image>,
    /// The log has a segment, so if none is found it was lost.
    pub(super) is_begun: bool,
    pub(super) replayed_from: u64,
    pub(super) reaches: u64,
    /// A word for each chunk of the region.
    pub(super) chunks: Vec<u64>,
    pub(super) sessions: SessionFacts,
}

/// Returns the word of a chunk with these bytes.
pub(super) fn chunk_word(bytes: &[u8]) -> u64 {
    if bytes.iter().all(|byte| *byte == 0) { 0 } else { 1 << 32 | u64::from(crc32fast::hash(bytes)) }
}

/// Returns the number of chunks of a region.
pub(super) fn chunk_count(region_bytes: u64) -> usize {
    region_bytes.div_ceil(CHUNK_BYTES) as usize
}

/// Returns the version of a whole manifest that another version of the program has written. In every
/// version a manifest begins with the magic number and the version, and ends with the checksum; a
/// change of any file of the log gives the manifest another version.
fn other_version(bytes: &[u8]) -> Option<u64> {
    let body = bytes.len().checked_sub(8).filter(|body| *body >= 16)?;
    let is_whole = word64(bytes, body) == u64::from(crc32fast::hash(&bytes[..body]));
    let version = word64(bytes, 8) & u64::from(u32::MAX);
    let is_other = ![VERSION, REPLICA_VERSION].contains(&version);
    (is_whole && word64(bytes, 0) == MAGIC && is_other).then_some(version)
}

impl Manifest {
    /// Returns the manifest of a new region.
    pub(super) fn new(boot_id: u64, region_bytes: u64) -> Self {
        let chunks = vec![0; chunk_count(region_bytes)];
        let sessions = SessionFacts::default();
        let (image, is_begun) = (None, false);
        Self { boot_id, region_bytes, image, is_begun, replayed_from: 0, reaches: 0, chunks, sessions }
    }

    fn bytes(&self) -> Vec<u8> {
        let image = self.image.map_or(if self.is_begun { BEGUN } else { 0 }, |image| image as u64);
        let replica = &self.sessions.replica;
        let version = if replica.is_empty() { VERSION } else { REPLICA_VERSION };
        let head = [
            MAGIC,
            version | image << 32,
            self.boot_id,
            self.region_bytes,
            self.replayed_from,
            self.reaches,
            self.chunks.len() as u64,
            self.sessions.fenced.len() as u64,
            self.sessions.known.len() as u64,
        ];
        let lists = self.chunks.iter().chain(&self.sessions.fenced).chain(&self.sessions.known);
        let mut bytes: Vec<u8> = head.iter().chain(lists).flat_map(|word| word.to_le_bytes()).collect();
        if !replica.is_empty() {
            bytes.extend_from_slice(&(replica.len() as u64).to_le_bytes());
            bytes.extend_from_slice(replica);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        let checksum = u64::from(crc32fast::hash(&bytes));
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Parses a manifest; `None` if the bytes are not a complete manifest of this version.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| word64(bytes, at * 8);
        let body = bytes.len().checked_sub(8).filter(|body| *body >= HEAD_BYTES && body % 8 == 0)?;
        let is_whole = word64(bytes, body) == u64::from(crc32fast::hash(&bytes[..body]));
        let version = word(1) & u64::from(u32::MAX);
        if !is_whole || word(0) != MAGIC || ![VERSION, REPLICA_VERSION].contains(&version) {
            return None;
        }
        let code = word(1) >> 32;
        let image = match code {
            0 | BEGUN => None,
            1 => Some(Image::First),
            2 => Some(Image::Second),
            _ => return None,
        };
        let mut lists =
            bytes[HEAD_BYTES..body].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut list = |count: u64| -> Option<Vec<u64>> {
            let list: Vec<u64> = lists.by_ref().take(usize::try_from(count).ok()?).collect();
            (list.len() as u64 == count).then_some(list)
        };
        let (chunks, fenced, known) = (list(word(6))?, list(word(7))?, list(word(8))?);
        let mut replica = Vec::new();
        if version == REPLICA_VERSION {
            let bytes = usize::try_from(lists.next()?).ok()?;
            replica = lists.by_ref().flat_map(u64::to_le_bytes).collect();
            if bytes == 0 || replica.len() != bytes.checked_next_multiple_of(8)? {
                return None;
            }
            replica.truncate(bytes);
        }
        let is_right = chunks.len() == chunk_count(word(3)) && lists.next().is_none();
        is_right.then_some(Self {
            boot_id: word(2),
            region_bytes: word(3),
            image,
            is_begun: code != 0,
            replayed_from: word(4),
            reaches: word(5),
            chunks,
            sessions: SessionFacts { fenced, known, replica },
        })
    }

    /// Makes this the manifest, durably.
    ///
    /// # Errors
    /// Fails with the medium's errors. The manifest is then either this one or the previous one.
    pub(super) fn publish(&self, medium: &dyn Medium) -> io::Result<()> {
        self.draft(medium)?;
        Self::take_draft(medium)
    }

    /// Records in the manifest that the first segment exists, if it was written before that.
    ///
    /// # Errors
    /// The same as of [`Manifest::publish`].
    pub(super) fn note_segment(&mut self, medium: &dyn Medium) -> io::Result<()> {
        if self.is_begun {
            return Ok(());
        }
        self.is_begun = true;
        self.publish(medium)
    }

    /// Writes this to a draft file, durably.
    ///
    /// # Errors
    /// Fails with the medium's errors. The manifest is then the previous one.
    pub(super) fn draft(&self, medium: &dyn Medium) -> io::Result<()> {
        let file = medium.create(MANIFEST_DRAFT)?;
        file.write_at(0, &self.bytes())?;
        file.sync()
    }

    /// Makes the draft the manifest, durably.
    ///
    /// # Errors
    /// Fails with the medium's errors. The manifest is then either the draft or the previous one.
    pub(super) fn take_draft(medium: &dyn Medium) -> io::Result<()> {
        medium.rename(MANIFEST_DRAFT, MANIFEST)?;
        medium.sync_names()
    }

    /// Returns the manifest of a medium; `None` if it has none.
    ///
    /// # Errors
    /// Fails with the medium's errors, with [`io::ErrorKind::InvalidData`] if the manifest is damaged,
    /// and with [`io::ErrorKind::Unsupported`] if it is whole, and of another version.
    pub(super) fn find(medium: &dyn Medium) -> io::Result<Option<Self>> {
        if !medium.names()?.iter().any(|name| name == MANIFEST) {
            return Ok(None);
        }
        let file = medium.open(MANIFEST)?;
        let mut bytes = vec![0; usize::try_from(file.size()?).unwrap_or(usize::MAX)];
        file.read_at(0, &mut bytes)?;
        if let Some(version) = other_version(&bytes) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the log has version {version}, and this program reads versions {VERSION} and \
                     {REPLICA_VERSION}; use the program that wrote it (docs/compatibility.md)"
                ),
            ));
        }
        let found = Self::parse(&bytes);
        found.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated::SimulatedDisk;
    use super::*;
    use std::sync::Arc;

    #[test]
    fn every_cut_and_every_flip_of_a_manifest_is_noticed() {
        for replica in [vec![], vec![7; 21]] {
            check_every_cut_and_flip(replica);
        }
    }

    fn check_every_cut_and_flip(replica: Vec<u8>) {
        let manifest = Manifest {
            image: Some(Image::Second),
            is_begun: true,
            replayed_from: 640,
            reaches: 720,
            chunks: vec![0, chunk_word(&[1; 8]), chunk_word(&[2; 8])],
            sessions: SessionFacts { fenced: vec![3, 4], known: vec![5], replica },
            ..Manifest::new(7, 3 * CHUNK_BYTES - 4096)
        };
        let bytes = manifest.bytes();
        assert_eq!(Manifest::parse(&bytes), Some(manifest));
        for keep in 0..bytes.len() {
            assert_eq!(Manifest::parse(&bytes[..keep]), None, "{keep}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Manifest::parse(&flipped), None, "{bit}");
            assert_eq!(other_version(&flipped), None, "{bit}: damage, not another version");
        }
    }

    #[test]
    fn another_version_is_not_taken_for_damage() {
        let sealed = |mut bytes: Vec<u8>| {
            let body = bytes.len() - 8;
            let checksum = u64::from(crc32fast::hash(&bytes[..body]));
            bytes[body..].copy_from_slice(&checksum.to_le_bytes());
            bytes
        };
        let mut bytes = Manifest::new(7, CHUNK_BYTES).bytes();
        assert_eq!(other_version(&bytes), None);
        bytes[8] = 9;
        let medium = Arc::<SimulatedDisk>::default();
        let file = medium.create(MANIFEST).unwrap();
        for (bytes, kind) in
            [(sealed(bytes.clone()), io::ErrorKind::Unsupported), (bytes, io::ErrorKind::InvalidData)]
        {
            file.write_at(0, &bytes).unwrap();
            let error = Manifest::find(&medium).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(
                error.to_string().contains("version 9"),
                kind == io::ErrorKind::Unsupported,
                "{error}"
            );
        }
    }
}
