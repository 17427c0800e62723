//! A pool's memory as words of this process, for clients that read it without verbs.

use super::LocalPool;
use super::order::{LINE_WORDS, Order};
use crate::GlobalAddr;
use std::convert::identity;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of a pool that this process reads by loads instead of READs
/// ([`Endpoint::memory`](crate::Endpoint::memory)).
///
/// A load is a READ of one word: what a READ of several words guarantees, loads of them in any order
/// do too. Loads follow each other in program order.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'m> {
    pool: &'m LocalPool,
}

impl<'m> Memory<'m> {
    #[inline]
    pub(super) fn new(pool: &'m LocalPool) -> Self {
        Self { pool }
    }

    /// Returns `words` words from `addr`; `None` if the memory node does not have them.
    #[inline]
    pub fn words(self, addr: GlobalAddr, words: usize) -> Option<Words<'m>> {
        let words = u32::try_from(words).ok()?;
        self.pool.regions.words(addr, words).map(|words| Words { words })
    }

    /// Starts to load the first of `words` words at `addr` into the processor's cache, whether or
    /// not they exist.
    #[inline]
    pub fn prefetch(self, addr: GlobalAddr, words: usize) {
        self.pool.regions.prefetch(addr, words as u32);
    }

    /// Returns whether the memory ends with this process, so that no medium can have damaged it.
    #[inline]
    pub fn is_transient(self) -> bool {
        self.pool.is_transient
    }
}

/// Words that other clients may write at any time.
#[derive(Clone, Copy, Debug)]
pub struct Words<'m> {
    words: &'m [AtomicU64],
}

impl Words<'_> {
    /// Returns the number of words.
    #[inline]
    pub fn len(self) -> usize {
        self.words.len()
    }

    /// Returns whether the number of words is zero.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.words.is_empty()
    }

    /// Loads a word.
    ///
    /// # Panics
    /// If `at` is not the position of a word.
    #[inline]
    pub fn load(self, at: usize) -> u64 {
        #[cfg(feature = "checker")]
        hook::call();
        self.words[at].load(Ordering::Acquire)
    }

    /// Loads all words, in order, into the first words of a buffer.
    ///
    /// # Panics
    /// If the buffer is shorter.
    #[inline]
    pub fn load_into(self, buffer: &mut [u64]) {
        #[cfg(feature = "checker")]
        if hook::is_set() {
            (0..self.len()).for_each(|at| buffer[at] = self.load(at));
            return;
        }
        Order::default().load_into(self.words, buffer, identity);
    }

    /// Loads all words, in order, and appends them to a buffer.
    #[inline]
    pub fn append_to(self, buffer: &mut Vec<u64>) {
        buffer.reserve(self.len());
        #[cfg(feature = "checker")]
        if hook::is_set() {
            buffer.extend((0..self.len()).map(|at| self.load(at)));
            return;
        }
        // A line at a time: the compiler does not unroll loops over atomics.
        let (lines, rest) = self.words.as_chunks::<LINE_WORDS>();
        for line in lines {
            buffer.extend_from_slice(&line.each_ref().map(|word| word.load(Ordering::Acquire)));
        }
        buffer.extend(rest.iter().map(|word| word.load(Ordering::Acquire)));
    }

    /// Returns `words` words from the position `first` on; `None` if some of them do not exist.
    #[inline]
    #[must_use]
    pub fn part(self, first: usize, words: usize) -> Option<Self> {
        let words = self.words.get(first..)?.get(..words)?;
        Some(Self { words })
    }
}

/// A function that runs before every load of this thread, for checks: it can let other clients act
/// between any two loads of an operation.
#[cfg(feature = "checker")]
pub mod hook {
    use std::cell::RefCell;

    type Hook = Box<dyn FnMut()>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// Sets the function, or removes it.
    pub fn set(hook: Option<Hook>) {
        HOOK.set(hook);
    }

    pub(super) fn is_set() -> bool {
        HOOK.with_borrow(Option::is_some)
    }

    /// Calls the function. Its own loads do not call it.
    pub(super) fn call() {
        let Some(mut hook) = HOOK.take() else { return };
        hook();
        HOOK.set(Some(hook));
    }
}
