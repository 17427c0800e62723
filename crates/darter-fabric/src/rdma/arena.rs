//! Registered memory for the words of batches, so that a device reads and writes them in place.
//!
//! Whole chunks are registered and divided into pieces of a power of two of words, which are lent
//! and taken back under a lock. An endpoint reuses its batches, so that the lock is taken when a
//! batch is created or grows, not for each round trip. Chunks live as long as the arena.

use super::device::{Device, Registration, Use};
use crate::Local;
use crate::words::{Lender, Loan};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a chunk, and of the largest piece. Longer loans are separate chunks, which are freed
/// when they are taken back.
const CHUNK_BYTES: usize = 1 << 20;
/// The words of the smallest piece, as a power of two: a cache line more than most batches need.
const LEAST_LOG2: u32 = 6;
/// Sizes of pieces: from the smallest to a whole chunk.
const SIZES: usize = (CHUNK_BYTES / 8).ilog2() as usize - LEAST_LOG2 as usize + 1;
const PAGE_BYTES: usize = 4096;

/// The memory that can be lent.
#[derive(Debug, Default)]
struct Stock {
    /// Pieces of each size, by address, with their keys.
    free: [Vec<(usize, u32)>; SIZES],
    chunks: Vec<Registration>,
    /// Lent memory that has its own chunk.
    long: Vec<Registration>,
}

/// Registered memory of one device.
#[derive(Debug)]
pub(crate) struct Arena {
    device: Arc<Device>,
    stock: Mutex<Stock>,
}

impl Arena {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self { device, stock: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chunk(&self, bytes: usize) -> Option<Registration> {
        self.device.register(Local::memory(bytes as u64, 1).ok()?, Use::Buffers).ok()
    }
}

/// Returns the size class of a piece for `words` words; `None` if it must be a separate chunk.
fn size_of_piece(words: usize) -> Option<usize> {
    let size = words.max(1).next_power_of_two().ilog2().saturating_sub(LEAST_LOG2) as usize;
    (size < SIZES).then_some(size)
}

/// Returns a pointer to the first word, for the borrower of the memory.
fn first_word(chunk: &Registration) -> Option<NonNull<u64>> {
    NonNull::new(chunk.words().as_ptr().cast_mut().cast())
}

impl Lender for Arena {
    fn lend(&self, words: usize) -> Option<Loan> {
        let mut stock = self.lock();
        let Some(size) = size_of_piece(words) else {
            let words = words.checked_next_multiple_of(PAGE_BYTES / 8)?;
            let chunk = self.chunk(words.checked_mul(8)?)?;
            let loan = Loan { base: first_word(&chunk)?, words, key: chunk.local_key() };
            stock.long.push(chunk);
            return Some(loan);
        };
        let piece = 1 << (size as u32 + LEAST_LOG2);
        if stock.free[size].is_empty() {
            let chunk = self.chunk(CHUNK_BYTES)?;
            let (base, key) = (chunk.base() as usize, chunk.local_key());
            stock.free[size].extend((0..CHUNK_BYTES).step_by(piece * 8).map(|at| (base + at, key)));
            stock.chunks.push(chunk);
        }
        let (base, key) = stock.free[size].pop()?;
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut(base))?;
        Some(Loan { base, words: piece, key })
    }

    fn take_back(&self, loan: Loan) {
        let mut stock = self.lock();
        if let Some(size) = size_of_piece(loan.words) {
            stock.free[size].push((loan.base.as_ptr().expose_provenance(), loan.key));
        } else {
            let at = stock.long.iter().position(|chunk| first_word(chunk) == Some(loan.base));
            drop(at.map(|at| stock.long.swap_remove(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_powers_of_two() {
        for (words, size) in [(0, 0), (1, 0), (64, 0), (65, 1), (128, 1), (CHUNK_BYTES / 8, SIZES - 1)] {
            assert_eq!(size_of_piece(words), Some(size), "{words}");
        }
        assert_eq!(size_of_piece(CHUNK_BYTES / 8 + 1), None);
    }
}
