//! A record of the changes of memory, for readers of a replay: the tasks that allocated, retired and freed
//! the object at an address, and the last write to it.

use darter_fabric::{GlobalAddr, ObjectState, VerbKind, counted};
use std::collections::BTreeMap;

/// The record of a simulation since it began to keep one.
#[derive(Debug, Default)]
pub(super) struct Journal {
    objects: Vec<Note>,
    writes: Vec<Written>,
}

/// A change of an object's state, by a task of a process.
#[derive(Debug)]
struct Note {
    process: u32,
    task: u32,
    addr: GlobalAddr,
    bytes: u64,
    state: ObjectState,
}

/// A verb that has changed words.
#[derive(Debug)]
struct Written {
    task: u32,
    batch: u64,
    kind: VerbKind,
    addr: GlobalAddr,
    words: u32,
}

fn covers(addr: GlobalAddr, bytes: u64, at: GlobalAddr) -> bool {
    addr.node() == at.node() && (addr.offset()..addr.offset() + bytes).contains(&at.offset())
}

impl Journal {
    pub(super) fn note(
        &mut self,
        (process, task): (u32, u32),
        addr: GlobalAddr,
        bytes: u64,
        state: ObjectState,
    ) {
        self.objects.push(Note { process, task, addr, bytes, state });
    }

    pub(super) fn wrote(&mut self, (task, batch): (u32, u64), kind: VerbKind, addr: GlobalAddr, words: u32) {
        self.writes.push(Written { task, batch, kind, addr, words });
    }

    /// Describes the last change of each kind at an address, the oldest first.
    pub(super) fn of(&self, at: GlobalAddr) -> Vec<String> {
        let last = |is_kind: fn(&ObjectState) -> bool| {
            self.objects
                .iter()
                .enumerate()
                .rev()
                .find(|(_, note)| is_kind(&note.state) && covers(note.addr, note.bytes, at))
        };
        let kinds: [fn(&ObjectState) -> bool; 4] = [
            |state| *state == ObjectState::Allocated,
            |state| matches!(state, ObjectState::Retired(_)),
            |state| *state == ObjectState::Free,
            |state| *state == ObjectState::Reclaimed,
        ];
        let mut found: Vec<_> = kinds.into_iter().filter_map(last).collect();
        found.sort_by_key(|(number, _)| *number);
        let mut lines: Vec<String> = found.into_iter().map(|(_, note)| note.describe()).collect();
        let written = self.writes.iter().rev().find(|it| covers(it.addr, u64::from(it.words) * 8, at));
        lines.extend(written.map(Written::describe));
        lines
    }

    /// Returns the objects that were allocated, and neither freed nor reclaimed since, with their bytes.
    pub(super) fn in_use(&self) -> Vec<(GlobalAddr, u64)> {
        let mut in_use = BTreeMap::new();
        for note in &self.objects {
            match note.state {
                ObjectState::Allocated => drop(in_use.insert(note.addr, note.bytes)),
                ObjectState::Free | ObjectState::Reclaimed => {
                    in_use.retain(|addr, _| !covers(note.addr, note.bytes, *addr));
                }
                ObjectState::Retired(_) | ObjectState::Unmanaged => {}
            }
        }
        in_use.into_iter().collect()
    }
}

impl Note {
    fn describe(&self) -> String {
        let Self { process, task, addr, bytes, state } = self;
        let done = match state {
            ObjectState::Allocated => "allocated".to_owned(),
            ObjectState::Retired(epoch) => format!("retired at epoch {epoch}"),
            ObjectState::Free => "freed".to_owned(),
            ObjectState::Reclaimed => "reclaimed by a sweep".to_owned(),
            ObjectState::Unmanaged => "given back to its block".to_owned(),
        };
        format!("{bytes} bytes at {addr}: {done} by task {task} of process {process}")
    }
}

impl Written {
    fn describe(&self) -> String {
        let Self { task, batch, kind, addr, words } = self;
        let words = counted(u64::from(*words), "word");
        format!("last written by task {task} in batch {batch}: a {kind:?} of {words} at {addr}")
    }
}
