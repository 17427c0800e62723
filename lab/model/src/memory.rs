//! A modelled memory node's words: in chunks that are allocated when a nonzero word is first
//! written, so that a region costs the host only its contents.

use darter_fabric::{Batch, FabricError, Verb, VerbKind};

/// Words in a chunk: 1 MiB. The system gives its pages when they are touched.
const CHUNK_WORDS: usize = 1 << 17;

/// One node's region.
#[derive(Debug)]
pub(super) struct Memory {
    chunks: Vec<Option<Box<[u64]>>>,
    bytes: u64,
}

/// Returns the parts of a range of words that are in one chunk each: chunk, first word in it, first
/// word of the range, words.
fn parts(start: usize, words: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (at, from) = (start + done, done);
        let count = (words - done).min(CHUNK_WORDS - at % CHUNK_WORDS);
        done += count;
        (count > 0).then_some((at / CHUNK_WORDS, at % CHUNK_WORDS, from, count))
    })
}

impl Memory {
    pub(super) fn new(bytes: u64) -> Self {
        Self { chunks: vec![None; (bytes / 8).div_ceil(CHUNK_WORDS as u64) as usize], bytes }
    }

    /// Returns whether a verb's words are all here.
    #[inline]
    pub(super) fn admit(&self, verb: &Verb) -> Result<(), FabricError> {
        let (offset, bytes) = (verb.addr.offset(), u64::from(verb.words) * 8);
        if !offset.is_multiple_of(8) {
            return Err(FabricError::Misaligned { addr: verb.addr });
        }
        if offset + bytes > self.bytes {
            return Err(FabricError::out_of_bounds(verb.addr, bytes, self.bytes));
        }
        Ok(())
    }

    fn load(&self, start: usize, out: &mut [u64]) {
        for (chunk, at, from, count) in parts(start, out.len()) {
            let out = &mut out[from..from + count];
            match &self.chunks[chunk] {
                Some(words) => out.copy_from_slice(&words[at..at + count]),
                None => out.fill(0),
            }
        }
    }

    fn store(&mut self, start: usize, words: &[u64]) {
        for (chunk, at, from, count) in parts(start, words.len()) {
            let words = &words[from..from + count];
            let place = &mut self.chunks[chunk];
            if place.is_some() || words.iter().any(|&word| word != 0) {
                let chunk = place.get_or_insert_with(|| vec![0; CHUNK_WORDS].into());
                chunk[at..at + count].copy_from_slice(words);
            }
        }
    }

    /// Executes a verb that was admitted, whole.
    pub(super) fn execute(&mut self, batch: &mut Batch, verb: Verb) {
        let (_, data) = batch.parts_mut();
        let (start, at) = ((verb.addr.offset() / 8) as usize, verb.at as usize);
        let mut found = [0];
        match verb.kind {
            VerbKind::Read => self.load(start, &mut data[at..at + verb.words as usize]),
            VerbKind::Write => self.store(start, &data[at..at + verb.words as usize]),
            VerbKind::Cas => {
                self.load(start, &mut found);
                if found[0] == data[at] {
                    self.store(start, &data[at + 1..at + 2]);
                }
                data[at] = found[0];
            }
            VerbKind::Faa => {
                self.load(start, &mut found);
                self.store(start, &[found[0].wrapping_add(data[at])]);
                data[at] = found[0];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_fabric::GlobalAddr;

    #[test]
    fn ranges_cross_chunks_and_zeros_cost_nothing() {
        let mut memory = Memory::new(8 << 30);
        memory.store(CHUNK_WORDS * 5, &[0; 4]);
        assert!(memory.chunks.iter().all(Option::is_none));
        let words: Vec<u64> = (1..=CHUNK_WORDS as u64 + 4).collect();
        memory.store(CHUNK_WORDS - 2, &words);
        assert_eq!(memory.chunks.iter().flatten().count(), 3);
        let mut back = vec![7; words.len() + 2];
        memory.load(CHUNK_WORDS - 3, &mut back);
        assert_eq!((back[0], back[words.len() + 1]), (0, 0));
        assert_eq!(back[1..=words.len()], words);
    }

    #[test]
    fn atomics_return_the_former_word() {
        let mut memory = Memory::new(1 << 20);
        let mut batch = Batch::new();
        let at = GlobalAddr::new(0, 64);
        let (cas, faa, lost) = (batch.cas(at, 0, 5), batch.faa(at, 2), batch.cas(at, 0, 9));
        for verb in batch.verbs().to_vec() {
            memory.execute(&mut batch, verb);
        }
        assert!(batch.swapped(cas) && !batch.swapped(lost));
        assert_eq!((batch.fetched(faa), batch.found(lost)), (5, 7));
    }
}
