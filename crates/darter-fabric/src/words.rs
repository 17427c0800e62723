//! The words of a batch: on the heap, or in memory lent by a provider, because it must be
//! registered with a device.
//!
//! In both cases they are one pointer and a length, so that building a batch costs the same for
//! every provider.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory from a lender.
#[derive(Debug)]
pub(crate) struct Loan {
    /// The first word; aligned to a cache line, initialized.
    pub base: NonNull<u64>,
    pub words: usize,
    /// The device's key of the memory.
    pub key: u32,
}

/// Lends memory for the words of batches.
pub(crate) trait Lender: Send + Sync + fmt::Debug {
    /// Lends at least `words` words, until they are taken back; `None` if there is not enough
    /// memory that the device may use.
    fn lend(&self, words: usize) -> Option<Loan>;

    /// Takes back a whole loan.
    fn take_back(&self, loan: Loan);
}

/// A buffer of words, never shrunk.
pub(crate) struct Words {
    base: NonNull<u64>,
    len: usize,
    /// The device's key of lent memory.
    key: u32,
    /// The lender that owns the memory at `base`, if there is any.
    is_lent: bool,
    lender: Option<Arc<dyn Lender>>,
}

// SAFETY: the words are owned by this value, whether they are on the heap or lent.
unsafe impl Send for Words {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Words {}

impl Words {
    /// Returns an empty buffer that takes memory from the heap.
    pub(crate) const fn new() -> Self {
        Self { base: NonNull::dangling(), len: 0, key: 0, is_lent: false, lender: None }
    }

    /// Returns an empty buffer that borrows memory as long as its lender has some.
    #[cfg(feature = "tcp")]
    pub(crate) fn of(lender: Arc<dyn Lender>) -> Self {
        Self { base: NonNull::dangling(), len: 0, key: 0, is_lent: false, lender: Some(lender) }
    }

    /// Returns the device's key of the memory, if it is lent.
    #[cfg(feature = "tcp")]
    pub(crate) fn key(&self) -> Option<u32> {
        self.is_lent.then_some(self.key)
    }

    /// Extends the buffer to `words` words; new words are unspecified.
    pub(crate) fn lengthen(&mut self, words: usize) {
        if words <= self.len {
            return;
        }
        let loan = self.lender.as_ref().and_then(|lender| lender.lend(words));
        let mut longer = match loan {
            Some(loan) => Self {
                base: loan.base,
                len: loan.words,
                key: loan.key,
                is_lent: true,
                lender: self.lender.clone(),
            },
            None => Self::on_heap(words, self.lender.clone()),
        };
        longer[..self.len].copy_from_slice(self);
        *self = longer;
    }

    /// Moves the words into memory of a lender, if they are not in lent memory. Returns whether
    /// they are now.
    #[cfg(feature = "tcp")]
    pub(crate) fn borrow_from(&mut self, lender: &Arc<dyn Lender>) -> bool {
        if !self.is_lent && self.len > 0 {
            let old = std::mem::replace(self, Self::of(Arc::clone(lender)));
            self.lengthen(old.len);
            self[..old.len].copy_from_slice(&old);
        }
        self.is_lent || self.len == 0
    }

    fn on_heap(words: usize, lender: Option<Arc<dyn Lender>>) -> Self {
        let fresh = Box::leak(vec![0_u64; words].into_boxed_slice());
        Self { base: NonNull::from(fresh).cast(), len: words, key: 0, is_lent: false, lender }
    }
}

impl Default for Words {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Words {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        // SAFETY: `base` points to `len` initialized words that only this value owns until it is
        // dropped, or is dangling and `len` is 0.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as for `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        match &self.lender {
            Some(lender) if self.is_lent => {
                lender.take_back(Loan { base: self.base, words: self.len, key: self.key });
            }
            _ => {
                let words = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.len);
                // SAFETY: `on_heap` leaked this box, and nothing else owns it.
                drop(unsafe { Box::from_raw(words) });
            }
        }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words")
            .field("len", &self.len)
            .field("is_lent", &self.is_lent)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "tcp"))]
#[allow(clippy::unwrap_used)] // a test may panic
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Lends two buffers of 128 words.
    #[derive(Debug)]
    struct TwoBuffers(Mutex<Vec<usize>>);

    impl TwoBuffers {
        fn new() -> Arc<Self> {
            let buffer = || Box::leak(vec![7_u64; 128].into_boxed_slice()).as_mut_ptr() as usize;
            Arc::new(Self(Mutex::new(vec![buffer(), buffer()])))
        }
    }

    impl Lender for TwoBuffers {
        fn lend(&self, words: usize) -> Option<Loan> {
            let base = if words <= 128 { self.0.lock().unwrap().pop() } else { None };
            base.map(|base| Loan {
                base: NonNull::new(std::ptr::with_exposed_provenance_mut(base)).unwrap(),
                words: 128,
                key: 5,
            })
        }

        fn take_back(&self, loan: Loan) {
            assert_eq!((loan.words, loan.key), (128, 5));
            self.0.lock().unwrap().push(loan.base.as_ptr().expose_provenance());
        }
    }

    #[test]
    fn words_move_between_the_heap_and_what_is_lent() {
        let buffers = TwoBuffers::new();
        let lender: Arc<dyn Lender> = Arc::clone(&buffers) as _;
        let mut words = Words::new();
        words.lengthen(10);
        words[9] = 9;
        assert_eq!((words.len(), words.key()), (10, None));
        assert!(words.borrow_from(&lender));
        assert_eq!((words.len(), words.key(), words[9]), (128, Some(5), 9));
        assert_eq!(buffers.0.lock().unwrap().len(), 1);
        words.lengthen(200);
        assert_eq!((words.len(), words.key(), words[9]), (200, None, 9), "no loan is that long");
        assert!(!words.borrow_from(&lender));
        assert_eq!(buffers.0.lock().unwrap().len(), 2);
        let mut lent = [Words::of(Arc::clone(&lender)), Words::of(Arc::clone(&lender))];
        for words in &mut lent {
            words.lengthen(1);
        }
        assert!(lent.iter().all(|words| words.key() == Some(5)));
        assert_eq!(buffers.0.lock().unwrap().len(), 0);
        drop(lent);
        assert_eq!(buffers.0.lock().unwrap().len(), 2);
        assert!(Words::new().borrow_from(&lender), "nothing to move");
    }
}
