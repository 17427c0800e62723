//! Accesses to words of the mapping in the order that verbs require.
//!
//! Words are loaded with Acquire and stored with Release, so that a client that reads a word also
//! sees everything written before it; CAS and FAA are sequentially consistent. A completed verb
//! must be visible to all clients before a later one begins, as on a network: a store that is still
//! in this core's buffer while a later READ loads another word would break protocols that write,
//! then read (epochs). So a WRITE is followed by a full fence, at the latest at the end of its
//! batch. On x86-64 CAS and FAA are such fences themselves, so "WRITE leaf, CAS slot" costs no
//! extra fence.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Whether CAS and FAA order later loads like a full fence.
const ATOMICS_FENCE: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Words in a cache line.
pub(super) const LINE_WORDS: usize = 8;

/// The memory accesses of one batch, in order. A store is settled before the next load, and on
/// drop.
#[derive(Default)]
pub(super) struct Order {
    /// A store of this batch may not be visible to other threads yet.
    unsettled: bool,
}

impl Order {
    #[inline]
    fn settle(&mut self) {
        if std::mem::take(&mut self.unsettled) {
            fence(Ordering::SeqCst);
        }
    }

    /// Loads words into a buffer of at least the same length, converted by `as_loaded`; one cache
    /// line per iteration, since the compiler does not unroll loops over atomics.
    #[inline]
    pub(super) fn load_into<T>(
        &mut self,
        words: &[AtomicU64],
        buffer: &mut [T],
        as_loaded: impl Fn(u64) -> T,
    ) {
        self.settle();
        let load = |word: &AtomicU64| as_loaded(word.load(Ordering::Acquire));
        let (lines, rest) = words.as_chunks::<LINE_WORDS>();
        let (filled, last) = buffer[..words.len()].as_chunks_mut::<LINE_WORDS>();
        for (to, [a, b, c, d, e, f, g, h]) in filled.iter_mut().zip(lines) {
            *to = [load(a), load(b), load(c), load(d), load(e), load(f), load(g), load(h)];
        }
        for (to, word) in last.iter_mut().zip(rest) {
            *to = load(word);
        }
    }

    #[inline]
    pub(super) fn store(&mut self, words: &[AtomicU64], values: impl Iterator<Item = u64>) {
        words.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Release));
        self.unsettled = true;
    }

    /// Returns the word found.
    #[inline]
    pub(super) fn cas(&mut self, word: &AtomicU64, expected: u64, desired: u64) -> u64 {
        let outcome = word.compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst);
        self.unsettled = !ATOMICS_FENCE;
        let (Ok(found) | Err(found)) = outcome;
        found
    }

    /// Returns the word found.
    #[inline]
    pub(super) fn add(&mut self, word: &AtomicU64, addend: u64) -> u64 {
        self.unsettled = !ATOMICS_FENCE;
        word.fetch_add(addend, Ordering::SeqCst)
    }
}

impl Drop for Order {
    #[inline]
    fn drop(&mut self) {
        self.settle();
    }
}
