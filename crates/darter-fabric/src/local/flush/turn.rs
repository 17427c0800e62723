//! The memory accesses of one batch on persistent memory: stores, flushes and fences in order.

use super::super::mapping::Mapping;
use super::super::order::Order;
use super::{Counters, Flushing, LINE_WORDS, Persistence, Raised};
use crate::{Verb, VerbKind};
use std::convert::identity;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

/// Executes the verbs of one batch. When it is dropped, everything that they have stored and read
/// is on the medium.
pub(in crate::local) struct Turn<'m> {
    persistence: &'m dyn Persistence,
    counters: Counters<'m>,
    words: &'m [AtomicU64],
    raised: &'m mut Raised,
    order: Order,
    /// A WRITE was flushed after the last fence.
    has_unfenced_write: bool,
    /// A line was flushed after the last fence.
    has_unfenced: bool,
}

impl<'m> Turn<'m> {
    /// `raised` is empty; its buffer is reused.
    pub(in crate::local) fn new(
        flushing: &'m Flushing,
        mapping: &'m Mapping,
        raised: &'m mut Raised,
    ) -> Self {
        Self {
            persistence: flushing.persistence(),
            counters: flushing.counters(mapping),
            words: mapping.words(),
            raised,
            order: Order::default(),
            has_unfenced_write: false,
            has_unfenced: false,
        }
    }

    /// Executes a verb on its words, after all verbs before it. `buffer` is the batch's buffer from
    /// the verb's words on.
    pub(in crate::local) fn execute(&mut self, verb: &Verb, words: &[AtomicU64], buffer: &mut [u64]) {
        let must_wait = match verb.kind {
            VerbKind::Read => false,
            _ if verb.is_volatile => false,
            VerbKind::Write | VerbKind::Cas | VerbKind::Faa => self.has_unfenced_write,
        };
        if must_wait || verb.is_fenced && self.has_unfenced {
            self.settle();
        }
        if verb.is_volatile {
            return self.execute_volatile(verb, words, buffer);
        }
        let lines = self.lines(words);
        match verb.kind {
            VerbKind::Read => {
                self.order.load_into(words, buffer, identity);
                self.flush_seen(lines);
            }
            VerbKind::Write => self.write(lines, words, buffer),
            VerbKind::Cas => {
                self.counters.raise(lines.clone());
                let expected = buffer[0];
                buffer[0] = self.order.cas(&words[0], expected, buffer[1]);
                if buffer[0] == expected {
                    self.flush_stored(lines);
                } else {
                    // Nothing was stored; the word that it found may be another client's.
                    self.counters.lower(lines.clone());
                    self.flush_seen(lines);
                }
            }
            VerbKind::Faa => {
                self.counters.raise(lines.clone());
                buffer[0] = self.order.add(&words[0], buffer[0]);
                self.flush_stored(lines);
            }
        }
    }

    /// Executes a verb on words that need not be on the medium: later readers do not flush them
    /// either.
    fn execute_volatile(&mut self, verb: &Verb, words: &[AtomicU64], buffer: &mut [u64]) {
        match verb.kind {
            VerbKind::Read => self.order.load_into(words, buffer, identity),
            VerbKind::Write => self.order.store(words, buffer.iter().copied()),
            VerbKind::Cas => buffer[0] = self.order.cas(&words[0], buffer[0], buffer[1]),
            VerbKind::Faa => buffer[0] = self.order.add(&words[0], buffer[0]),
        }
    }

    fn write(&mut self, lines: Range<usize>, words: &[AtomicU64], values: &[u64]) {
        self.counters.raise(lines.clone());
        self.order.store(words, values.iter().copied());
        self.flush_stored(lines);
        self.has_unfenced_write = true;
    }

    /// Returns the numbers of the lines that contain the words.
    fn lines(&self, words: &[AtomicU64]) -> Range<usize> {
        let first = (words.as_ptr().addr() - self.words.as_ptr().addr()) / size_of::<AtomicU64>();
        first / LINE_WORDS..(first + words.len()).div_ceil(LINE_WORDS)
    }

    fn flush(&mut self, line: usize) {
        self.persistence.flush(&self.words[line * LINE_WORDS..(line + 1) * LINE_WORDS]);
        self.has_unfenced = true;
    }

    /// Flushes lines that this batch has stored to. Their counters are raised.
    fn flush_stored(&mut self, lines: Range<usize>) {
        self.raised.push(lines.clone());
        for line in lines {
            self.flush(line);
        }
    }

    /// Flushes lines whose words were just read, if they may not be on the medium.
    fn flush_seen(&mut self, lines: Range<usize>) {
        for line in lines {
            if self.counters.is_raised(line) {
                self.flush(line);
            }
        }
    }

    /// Waits until all flushed lines are on the medium, and lowers the counters.
    fn settle(&mut self) {
        if std::mem::take(&mut self.has_unfenced) {
            self.persistence.fence();
        }
        self.has_unfenced_write = false;
        for lines in self.raised.drain(..) {
            self.counters.lower(lines);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}
