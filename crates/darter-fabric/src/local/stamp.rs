//! Records the file that a pool was last opened in, so that a copy of its file is recognized.
//!
//! ```text
//! byte 2048   checksum of the next two words
//!      2056   inode number
//!      2064   time of the file's creation, in nanoseconds since 1970; 0 if not known
//! ```
//!
//! The device number is not included, since it changes with a reboot or a remount; a move within a
//! file system keeps both words. File systems that may renumber files (FUSE, SMB, 9p, …) are
//! excluded: refusing a pool without a reason is worse than missing a copy. Devices are excluded
//! too.

use super::file::{PoolFile, magic};
use super::mapping::Mapping;
use crate::FabricError;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

/// Position of the words, in a part of the superblock's page that neither pool nor index uses.
const STAMP_WORD: usize = 2048 / 8;

/// File systems whose inode numbers last as long as the file: ext4, XFS, Btrfs, tmpfs, F2FS, ZFS,
/// bcachefs, NFS, overlayfs.
const STEADY: [u32; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x6969,
    0x794c_7630,
];

/// Distinguishes a file from its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    born: u64,
}

impl Stamp {
    /// Returns the stamp of a file, if it is permanent.
    pub(super) fn of(file: &PoolFile) -> Option<Self> {
        let is_steady = file.file_system().is_some_and(|report| STEADY.contains(&magic(&report)));
        if file.is_device() || !is_steady {
            return None;
        }
        let metadata = file.description().metadata().ok()?;
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Some(Self { inode: metadata.ino(), born: born.map_or(0, |born| born.as_nanos() as u64) })
    }

    /// Returns the inode number and the time of creation.
    pub(super) fn numbers(self) -> [u64; 2] {
        [self.inode, self.born]
    }

    /// Reads the pool's stamp. A damaged one counts as absent.
    pub(super) fn read(mapping: &Mapping) -> Option<Self> {
        let word = |at: usize| mapping.words().get(STAMP_WORD + at).map(|word| word.load(Ordering::Acquire));
        let found = Self { inode: word(1)?, born: word(2)? };
        (word(0)? == found.checksum()).then_some(found)
    }

    /// Stores the stamp in a pool, and waits until it is on the medium. Later writes that mark the
    /// pool as open must not reach the medium before it.
    pub(super) fn write(self, mapping: &Mapping, file: &PoolFile) -> Result<(), FabricError> {
        for (at, value) in [(0, self.checksum()), (1, self.inode), (2, self.born)] {
            if let Some(word) = mapping.words().get(STAMP_WORD + at) {
                word.store(value, Ordering::Release);
            }
        }
        mapping.write_back_head().map_err(|source| file.error("write its beginning back", source))
    }

    /// Returns whether both may belong to one file: a kernel that does not know a file's creation
    /// time may be followed by one that does.
    pub(super) fn is_same_file(self, other: Self) -> bool {
        self.inode == other.inode && (self.born == other.born || self.born == 0 || other.born == 0)
    }

    /// Returns the checksum. It is never 0, so that an empty page has no stamp.
    fn checksum(self) -> u64 {
        let mix = |word: u64| (word ^ word >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mix(mix(self.inode ^ 0x7374_616d_7021) ^ self.born.rotate_left(17)) | 1
    }
}
