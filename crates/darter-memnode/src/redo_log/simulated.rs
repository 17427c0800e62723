//! A medium that loses power: unsynced changes of files and names are then present, absent or
//! partial.

use super::medium::{Medium, MediumFile};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// An unsynced change of a file.
#[derive(Clone, Debug)]
enum Pending {
    Write { offset: usize, bytes: Vec<u8> },
    Size(usize),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: Vec<Pending>,
    /// What was durable before each sync.
    former: Vec<Arc<Vec<u8>>>,
}

/// An unsynced change of names: names with the files that they refer to afterwards.
type NameChange = Vec<(String, Option<usize>)>;

#[derive(Clone, Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    /// Number of operations that changed or synced anything.
    operations: usize,
    /// The operation in which the power fails.
    fails_at: Option<usize>,
    /// The sync that fails, and drops the data that it could not write.
    sync_fails_at: Option<usize>,
}

/// A medium in memory. Clones of the `Arc` are the same medium.
#[derive(Debug, Default)]
pub(super) struct SimulatedDisk(Mutex<State>);

/// Which part of an unsynced change is present after a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    Kept,
    /// Only its beginning, or only its end.
    Torn {
        keeps_end: bool,
    },
}

pub(super) const FATES: [Fate; 4] =
    [Fate::Lost, Fate::Kept, Fate::Torn { keeps_end: false }, Fate::Torn { keeps_end: true }];

impl SimulatedDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Returns a medium with the same contents, whose power fails in the given operation.
    pub(super) fn copy(&self, fails_at: Option<usize>, sync_fails_at: Option<usize>) -> Arc<Self> {
        let mut state = self.state().clone();
        (state.operations, state.fails_at, state.sync_fails_at) = (0, fails_at, sync_fails_at);
        Arc::new(Self(Mutex::new(state)))
    }

    pub(super) fn operations(&self) -> usize {
        self.state().operations
    }

    /// Returns the numbers of unsynced changes of files and of names.
    pub(super) fn pending(&self) -> (usize, usize) {
        let state = self.state();
        (state.inodes.iter().map(|inode| inode.pending.len()).sum(), state.pending_names.len())
    }

    /// Returns the medium as it is after a power failure with these fates.
    pub(super) fn after_power_failure(&self, files: &[Fate], names: &[Fate]) -> Arc<Self> {
        let mut state = self.state().clone();
        let mut fates = files.iter();
        for inode in &mut state.inodes {
            let mut content = inode.durable.clone();
            for (pending, fate) in inode.pending.drain(..).zip(&mut fates) {
                apply(&mut content, &pending, *fate);
            }
            (inode.durable, inode.current) = (content.clone(), content);
        }
        let mut after = state.durable_names.clone();
        for (change, fate) in state.pending_names.drain(..).zip(names) {
            if *fate != Fate::Lost {
                rename(&mut after, &change);
            }
        }
        (state.names, state.durable_names) = (after.clone(), after);
        (state.operations, state.fails_at, state.sync_fails_at) = (0, None, None);
        Arc::new(Self(Mutex::new(state)))
    }

    /// Returns a file's bytes.
    pub(super) fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.inodes[state.names[name]].current.clone()
    }

    /// Returns the bytes that a part of a file has had before, and that differ from the present ones.
    pub(super) fn former(&self, name: &str, part: Range<usize>) -> BTreeSet<Vec<u8>> {
        let state = self.state();
        let inode = &state.inodes[state.names[name]];
        let of = |content: &[u8]| {
            let mut bytes = content.get(part.start..).unwrap_or_default().to_vec();
            bytes.resize(part.len(), 0);
            bytes
        };
        let present = of(&inode.current);
        inode.former.iter().map(|content| of(content)).filter(|bytes| *bytes != present).collect()
    }

    /// Changes a file's bytes, durably.
    pub(super) fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let inode = state.names[name];
        let inode = &mut state.inodes[inode];
        change(&mut inode.current);
        inode.durable = inode.current.clone();
    }
}

fn rename(names: &mut BTreeMap<String, usize>, change: &NameChange) {
    for (name, inode) in change {
        match inode {
            Some(inode) => drop(names.insert(name.clone(), *inode)),
            None => drop(names.remove(name)),
        }
    }
}

fn apply(content: &mut Vec<u8>, pending: &Pending, fate: Fate) {
    match (pending, fate) {
        (_, Fate::Lost) => {}
        (Pending::Size(size), _) => content.resize(content.len().max(*size), 0),
        (Pending::Write { offset, bytes }, fate) => {
            let part = match fate {
                Fate::Torn { keeps_end: false } => 0..bytes.len() / 2,
                Fate::Torn { keeps_end: true } => bytes.len() / 2..bytes.len(),
                _ => 0..bytes.len(),
            };
            let (from, to) = (offset + part.start, offset + part.end);
            content.resize(content.len().max(to), 0);
            content[from..to].copy_from_slice(&bytes[part]);
        }
    }
}

impl State {
    /// Counts an operation. Fails if the power fails in it, or has failed before.
    fn counted(&mut self) -> io::Result<()> {
        self.operations += 1;
        self.powered()
    }

    fn powered(&self) -> io::Result<()> {
        if self.fails_at.is_some_and(|at| self.operations > at) {
            return Err(io::Error::other("no power"));
        }
        Ok(())
    }

    fn change_names(&mut self, change: NameChange) -> io::Result<()> {
        rename(&mut self.names, &change);
        self.pending_names.push(change);
        self.counted()
    }

    fn inode(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: Arc<SimulatedDisk>,
    inode: usize,
}

impl Medium for Arc<SimulatedDisk> {
    fn names(&self) -> io::Result<Vec<String>> {
        let state = self.state();
        state.powered()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn MediumFile>> {
        let mut state = self.state();
        // The file that had the name before stays until the change is durable.
        state.inodes.push(Inode::default());
        let inode = state.inodes.len() - 1;
        state.change_names(vec![(name.to_owned(), Some(inode))])?;
        Ok(Box::new(SimulatedFile { disk: Arc::clone(self), inode }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn MediumFile>> {
        let state = self.state();
        state.powered()?;
        let inode = state.inode(name)?;
        Ok(Box::new(SimulatedFile { disk: Arc::clone(self), inode }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let inode = state.inode(from)?;
        state.change_names(vec![(from.to_owned(), None), (to.to_owned(), Some(inode))])
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        if state.inode(name).is_err() {
            return state.powered();
        }
        state.change_names(vec![(name.to_owned(), None)])
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.counted()?;
        state.pending_names.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }
}

impl SimulatedFile {
    fn change(&self, pending: Pending) -> io::Result<()> {
        let mut state = self.disk.state();
        let inode = &mut state.inodes[self.inode];
        apply(&mut inode.current, &pending, Fate::Kept);
        inode.pending.push(pending);
        state.counted()
    }
}

impl MediumFile for SimulatedFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.state().inodes[self.inode].current.len() as u64)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.change(Pending::Size(bytes as usize))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state();
        state.powered()?;
        let content = &state.inodes[self.inode].current;
        let found = content.get(offset as usize..).unwrap_or_default();
        let count = found.len().min(buffer.len());
        buffer[..count].copy_from_slice(&found[..count]);
        buffer[count..].fill(0);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(Pending::Write { offset: offset as usize, bytes: bytes.to_vec() })
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.counted()?;
        let fails = state.sync_fails_at.is_some_and(|at| state.operations == at + 1);
        let inode = &mut state.inodes[self.inode];
        let pending = std::mem::take(&mut inode.pending);
        if fails {
            // As on Linux: the pages are clean now, but were not written.
            return Err(io::Error::other("the disk does not respond"));
        }
        if !pending.is_empty() {
            inode.former.push(Arc::new(inode.durable.clone()));
        }
        for pending in &pending {
            apply(&mut inode.durable, pending, Fate::Kept);
        }
        Ok(())
    }
}
