//! A medium on which the system is sometimes short of a resource.

use super::medium::{Medium, MediumFile};
use super::record::{Draft, Kind};
use super::segment::{SegmentWriter, starts};
use super::simulated::SimulatedDisk;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which calls fail: `count` of the calls that can fail, starting with number `from`.
#[derive(Debug, Default)]
struct Shortage {
    calls: AtomicUsize,
    from: usize,
    count: usize,
}

impl Shortage {
    fn meets(&self) -> io::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if (self.from..self.from + self.count).contains(&call) {
            let shortages =
                [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN, Errno::NOSPC, Errno::DQUOT];
            return Err(shortages[call % shortages.len()].into());
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Scarce(Arc<SimulatedDisk>, Arc<Shortage>);

#[derive(Debug)]
struct ScarceFile(Box<dyn MediumFile>, Arc<Shortage>);

impl Medium for Scarce {
    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn MediumFile>> {
        self.1.meets()?;
        Ok(Box::new(ScarceFile(self.0.create(name)?, Arc::clone(&self.1))))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn MediumFile>> {
        self.1.meets()?;
        Ok(Box::new(ScarceFile(self.0.open(name)?, Arc::clone(&self.1))))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }
}

impl MediumFile for ScarceFile {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.1.meets()?;
        self.0.reserve(bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // Writes a part, as a full disk does.
        self.1.meets().inspect_err(|_| self.0.write_at(offset, &bytes[..bytes.len() / 2]).unwrap())?;
        self.0.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

/// Commits records over several segments while calls fail. Returns the files, and how often the
/// writer waited.
fn commit_while(from: usize, count: usize, has_spare: bool) -> (BTreeMap<String, Vec<u8>>, usize) {
    let disk = Arc::new(SimulatedDisk::default());
    let medium: Arc<dyn Medium> = Arc::new(Scarce(Arc::clone(&disk), Arc::default()));
    let mut writer = SegmentWriter::begin(medium, 7, 0, 8192).unwrap();
    writer.set_medium(Arc::new(Scarce(
        Arc::clone(&disk),
        Arc::new(Shortage { from, count, ..Shortage::default() }),
    )));
    let (mut position, mut waits) = (0, 0);
    for round in 0..6_u8 {
        if has_spare {
            super::segment::prepare_spare(&disk, 8192).unwrap();
        }
        let mut records = Vec::new();
        let draft = Draft::begin(&mut records);
        records.extend_from_slice(&[round; 3000]);
        let bytes = draft.end(&mut records, Kind::Effects, position, position);
        writer
            .commit(&mut records, position, |_| {
                waits += 1;
                true
            })
            .unwrap();
        position += bytes;
    }
    let starts = starts(&disk).unwrap();
    assert!(starts.len() > 3, "{starts:?}");
    let names = disk.names().unwrap().into_iter().filter(|name| name.starts_with("segment-"));
    (names.map(|name| (name.clone(), disk.content(&name))).collect(), waits)
}

#[test]
fn a_shortage_delays_records_and_loses_none() {
    for has_spare in [false, true] {
        let (expected, waits) = commit_while(0, 0, has_spare);
        assert_eq!(waits, 0);
        for count in [1, 3] {
            let met = (0..).take_while(|&from| {
                let (files, waits) = commit_while(from, count, has_spare);
                assert!(files == expected, "from call {from}, {count} calls, spare: {has_spare}");
                waits > 0
            });
            assert!(met.count() > 10);
        }
    }
}
