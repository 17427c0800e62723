//! The cache lines that operations touch, in the model of the paper: lines of 64 bytes, and objects
//! aligned to a line.
//!
//! Over a fabric nodes are read whole. The record has the lines that the same tree touches in a
//! processor's memory: the lines of the words that an operation reads, of the leaves that it reads,
//! and of the words that it writes and flushes. The lock is not recorded, since the paper's trees
//! have none. A leaf that is read counts with its size class.
//!
//! Nothing is recorded until [`Wort::record_touches`](super::Wort::record_touches) is called.

use super::node::{Content, Slot};
use crate::sync::lock;
use darter_fabric::GlobalAddr;
use darter_index::radix::leaf;
use smallvec::SmallVec;
use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Words of a cache line.
const LINE_WORDS: usize = 8;

/// A cache line: an object, and the number of the line in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    object: u64,
    number: u32,
}

impl Line {
    /// Returns the line of a word of an object.
    pub(super) const fn of(object: GlobalAddr, word: usize) -> Self {
        Self { object: object.bits(), number: (word / LINE_WORDS) as u32 }
    }

    /// Returns the lines of an object's first words.
    pub(super) fn of_first(object: GlobalAddr, words: usize) -> impl Iterator<Item = Self> {
        (0..words.div_ceil(LINE_WORDS)).map(move |number| Self::of(object, number * LINE_WORDS))
    }
}

/// One use of a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Words of it are read. An operation may read a line several times.
    Read(Line),
    /// Words of it are written.
    Written(Line),
    /// It is flushed.
    Flushed(Line),
}

/// The lines that a change flushes before each of its fences.
pub(super) type Flushes = [SmallVec<[Line; 8]>; 3];

/// Records touches if switched on.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    is_on: AtomicBool,
    touches: Mutex<Vec<Touch>>,
}

impl Recorder {
    /// Starts or stops recording, and drops the record.
    pub(super) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
        lock(&self.touches).clear();
    }

    /// Returns the touches since the last call.
    pub(super) fn take(&self) -> Vec<Touch> {
        mem::take(&mut *lock(&self.touches))
    }

    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn extend(&self, touches: impl Iterator<Item = Touch>) {
        lock(&self.touches).extend(touches);
    }

    /// Records a read of words of an object. `words` returns their positions, ascending; it is
    /// called only while recording.
    pub(super) fn read<W: IntoIterator<Item = usize>>(&self, object: GlobalAddr, words: impl FnOnce() -> W) {
        if self.is_on() {
            let mut lines: Vec<Line> = words().into_iter().map(|word| Line::of(object, word)).collect();
            lines.dedup();
            self.extend(lines.into_iter().map(Touch::Read));
        }
    }

    /// Records a read of a leaf.
    pub(super) fn read_leaf(&self, slot: Slot) {
        if let Content::Leaf { addr, class } = slot.content() {
            self.read(addr, || 0..leaf::class_words(class));
        }
    }

    /// Records lines that are written and then flushed, together before each fence.
    pub(super) fn flush(&self, flushes: &Flushes) {
        if !self.is_on() {
            return;
        }
        for lines in flushes {
            self.extend(lines.iter().copied().map(Touch::Written));
            self.extend(lines.iter().copied().map(Touch::Flushed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_recorded_only_while_that_is_on() {
        let (recorder, object) = (Recorder::default(), GlobalAddr::new(0, 4096));
        recorder.read(object, || 0..3);
        assert!(recorder.take().is_empty());
        recorder.switch(true);
        recorder.read(object, || [0, 2, 9, 15, 16]);
        let line = |number| Line { object: object.bits(), number };
        assert_eq!(recorder.take(), [0, 1, 2].map(|number| Touch::Read(line(number))));
        assert!(recorder.take().is_empty());
        let flushes = [Line::of_first(object, 9).collect(), SmallVec::from_iter([line(7)]), SmallVec::new()];
        recorder.flush(&flushes);
        let (written, flushed) = (Touch::Written, Touch::Flushed);
        let expected = [
            written(line(0)),
            written(line(1)),
            flushed(line(0)),
            flushed(line(1)),
            written(line(7)),
            flushed(line(7)),
        ];
        assert_eq!(recorder.take(), expected);
        recorder.flush(&flushes);
        recorder.switch(false);
        assert!(recorder.take().is_empty());
    }
}
