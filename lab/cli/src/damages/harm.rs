//! Damage to a file at rest, as a failing disk or an operator's mistake causes it.

use rand::{Rng, RngExt};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a disk's sector.
pub(super) const SECTOR_BYTES: usize = 512;
/// One of this number of damages is at any place of a file; the others are at bytes that are not
/// zero.
const ANYWHERE_ONE_IN: u32 = 8;

/// A way to damage a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Bit,
    Byte,
    Zeros,
    Ones,
    Noise,
    Copied,
    Swapped,
    Cut,
    Removed,
}

impl Way {
    pub(super) const ALL: [Self; 9] = [
        Self::Bit,
        Self::Byte,
        Self::Zeros,
        Self::Ones,
        Self::Noise,
        Self::Copied,
        Self::Swapped,
        Self::Cut,
        Self::Removed,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bit => "flipped bit",
            Self::Byte => "changed byte",
            Self::Zeros => "sector of zeros",
            Self::Ones => "sector of ones",
            Self::Noise => "sector of noise",
            Self::Copied => "another sector's copy",
            Self::Swapped => "two sectors swapped",
            Self::Cut => "cut short",
            Self::Removed => "removed",
        }
    }
}

/// A file as it was before all damage.
#[derive(Debug)]
pub(super) struct Sound {
    pub(super) path: PathBuf,
    bytes: Vec<u8>,
    /// Positions of the bytes that are not zero.
    used: Vec<u32>,
}

/// The place of a damage.
#[derive(Debug)]
pub(super) struct Harm {
    /// The first damaged byte.
    pub(super) at: u64,
    /// The damage, for a report.
    pub(super) text: String,
}

impl Sound {
    /// Reads a file.
    pub(super) fn read(path: PathBuf) -> io::Result<Self> {
        let bytes = fs::read(&path)?;
        let used = (0..bytes.len() as u32).filter(|at| bytes[*at as usize] != 0).collect();
        Ok(Self { path, bytes, used })
    }

    /// Returns whether there is anything to damage.
    pub(super) fn is_used(&self) -> bool {
        !self.used.is_empty()
    }

    /// Restores the file's contents in place, since a pool file must keep its inode.
    pub(super) fn restore(&self) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory)?;
        }
        let aside = aside(&self.path);
        if aside.exists() {
            fs::rename(&aside, &self.path)?;
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        let mut found = vec![0; 1 << 16];
        file.set_len(self.bytes.len() as u64)?;
        for (nth, piece) in self.bytes.chunks(found.len()).enumerate() {
            let at = (nth * found.len()) as u64;
            file.read_exact_at(&mut found[..piece.len()], at)?;
            if found[..piece.len()] != *piece {
                file.write_all_at(piece, at)?;
            }
        }
        Ok(())
    }

    /// Damages the file, before the position `only_before` if it is given.
    pub(super) fn damage(&self, way: Way, only_before: Option<u64>, dice: &mut impl Rng) -> io::Result<Harm> {
        let pick = |dice: &mut _| self.place(only_before, dice);
        let at = pick(dice);
        let first = at / SECTOR_BYTES * SECTOR_BYTES;
        let sector = first..self.bytes.len().min(first + SECTOR_BYTES);
        let file = OpenOptions::new().write(true).open(&self.path)?;
        let mut noise = vec![0; sector.len()];
        let harm = |at: usize, text: String| Harm { at: at as u64, text };
        Ok(match way {
            Way::Bit => {
                let bit = dice.random_range(0..8);
                file.write_all_at(&[self.bytes[at] ^ 1 << bit], at as u64)?;
                harm(at, format!("bit {bit} flipped at {at:#x}"))
            }
            Way::Byte => {
                let change = dice.random_range(1..=255);
                file.write_all_at(&[self.bytes[at] ^ change], at as u64)?;
                harm(at, format!("byte changed by {change:#x} at {at:#x}"))
            }
            Way::Zeros | Way::Ones | Way::Noise => {
                match way {
                    Way::Zeros => {}
                    Way::Ones => noise.fill(0xff),
                    _ => dice.fill_bytes(&mut noise),
                }
                file.write_all_at(&noise, first as u64)?;
                harm(first, format!("{} at {first:#x}", way.name()))
            }
            Way::Copied | Way::Swapped => {
                let other = pick(dice) / SECTOR_BYTES * SECTOR_BYTES;
                let length = sector.len().min(self.bytes.len() - other);
                file.write_all_at(&self.bytes[other..other + length], first as u64)?;
                if way == Way::Swapped {
                    file.write_all_at(&self.bytes[first..first + length], other as u64)?;
                }
                harm(first, format!("{}, at {first:#x} and {other:#x}", way.name()))
            }
            Way::Cut => {
                // Often whole sectors are missing, and sometimes everything.
                let length = match dice.random_range(0..4) {
                    0 => at,
                    1 => 0,
                    _ => first,
                };
                file.set_len(length as u64)?;
                harm(length, format!("cut short at {length:#x}"))
            }
            Way::Removed => {
                fs::rename(&self.path, aside(&self.path))?;
                harm(0, "removed".to_owned())
            }
        })
    }

    fn place(&self, only_before: Option<u64>, dice: &mut impl Rng) -> usize {
        let end = only_before.map_or(self.bytes.len(), |end| self.bytes.len().min(end as usize));
        let used = &self.used[..self.used.partition_point(|at| (*at as usize) < end)];
        if used.is_empty() || dice.random_range(0..ANYWHERE_ONE_IN) == 0 {
            dice.random_range(0..end.max(1))
        } else {
            used[dice.random_range(0..used.len())] as usize
        }
    }
}

/// The place in which a removed file is kept, in another directory.
fn aside(path: &Path) -> PathBuf {
    let parent = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = parent.file_name().unwrap_or_default().to_string_lossy();
    parent.with_file_name(format!("removed.{folder}.{name}"))
}

/// Returns the files of a directory, in the order of their names.
pub(super) fn files(directory: &Path) -> io::Result<Vec<Sound>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.retain(|path| path.is_file());
    paths.sort();
    paths.into_iter().map(Sound::read).collect()
}

/// Makes a directory hold these files and no others.
pub(super) fn restore_directory(directory: &Path, files: &[Sound]) -> io::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    for sound in files {
        fs::write(&sound.path, &sound.bytes)?;
        let aside = aside(&sound.path);
        if aside.exists() {
            fs::remove_file(aside)?;
        }
    }
    File::open(directory)?.sync_all()
}
