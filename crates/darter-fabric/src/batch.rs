//! Doorbell batches: verbs posted together and awaited together, one round trip.
//!
//! A [`Batch`] owns the verbs and every buffer they read from or write into, so that dropping a
//! future in mid-flight leaves nothing dangling: the provider keeps the batch until its verbs have
//! completed. All transfers are whole 8-byte words; each word is atomic, longer transfers can be
//! torn between words.

use crate::GlobalAddr;
#[cfg(feature = "tcp")]
use crate::words::Lender;
use crate::words::Words;
#[cfg(feature = "tcp")]
use std::sync::Arc;

/// Initial capacity of a batch's buffer, in words.
const BATCH_WORDS_MIN: usize = 64;
/// Maximum words of a batch: 4 GiB, far more than any object of a pool.
const BATCH_WORDS_MAX: usize = 1 << 29;

/// Kind of a verb. The payload is in the batch's word buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbKind {
    /// Copies words from the memory node.
    Read,
    /// Copies words to the memory node.
    Write,
    /// Compares one word and swaps it when equal. Buffer: expected (replaced by the old word),
    /// desired.
    Cas,
    /// Adds to one word. Buffer: addend (replaced by the old word).
    Faa,
}

impl VerbKind {
    /// The number of kinds.
    pub const COUNT: usize = Self::Faa as usize + 1;
}

/// A one-sided verb of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// Kind of the verb.
    pub kind: VerbKind,
    /// The 8-byte-aligned address it acts on.
    pub addr: GlobalAddr,
    /// Index of its first word in the batch's buffer.
    pub at: u32,
    /// Words moved: 1 for CAS and FAA.
    pub words: u32,
    /// It executes after all verbs before it, of any kind; see [`Batch::fence`].
    pub is_fenced: bool,
    /// No client waits until its word is durable; see [`Batch::volatile`].
    pub is_volatile: bool,
}

impl Verb {
    /// Returns whether it can execute in pieces.
    pub fn is_long(&self) -> bool {
        self.words > 1 && matches!(self.kind, VerbKind::Read | VerbKind::Write)
    }

    /// Returns whether it reads and changes one word.
    pub fn is_atomic(&self) -> bool {
        matches!(self.kind, VerbKind::Cas | VerbKind::Faa)
    }

    /// Returns the number of words sent to the node: the payload of a WRITE; expected and desired
    /// word of a CAS; addend of a FAA.
    #[inline]
    pub fn request_words(&self) -> usize {
        match self.kind {
            VerbKind::Read => 0,
            VerbKind::Write => self.words as usize,
            VerbKind::Cas => 2,
            VerbKind::Faa => 1,
        }
    }

    /// Returns the number of words sent back: the payload of a READ; the old word of a CAS or FAA.
    #[inline]
    pub fn reply_words(&self) -> usize {
        match self.kind {
            VerbKind::Read => self.words as usize,
            VerbKind::Write => 0,
            VerbKind::Cas | VerbKind::Faa => 1,
        }
    }

    /// Payload bytes counted as read (design: READ its payload, CAS and FAA 8).
    #[inline]
    pub fn read_bytes(&self) -> u64 {
        self.reply_words() as u64 * 8
    }

    /// Payload bytes counted as written (design: WRITE its payload, CAS 16, FAA 8).
    #[inline]
    pub fn write_bytes(&self) -> u64 {
        self.request_words() as u64 * 8
    }
}

/// Identifies the words of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadId {
    at: u32,
    words: u32,
}

/// Identifies the outcome of a CAS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CasId {
    at: u32,
    expected: u64,
}

/// Identifies the outcome of a FAA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaaId(u32);

/// Verbs to post together. Of two verbs to one memory node the second executes after the first if
/// the first is a WRITE, the second is a READ, or the second is [fenced](Batch::fence). Other pairs
/// may execute in either order (InfiniBand specification, ordering rules of work requests).
///
/// A batch is one pointer, so that passing it to a provider and back is cheap.
#[derive(Debug, Default)]
pub struct Batch {
    inner: Box<Buffers>,
}

/// Content of a batch. `data` only grows: words beyond `used` are left over from earlier use of the
/// batch, so that space for a READ need not be cleared each time.
#[derive(Debug, Default)]
struct Buffers {
    verbs: Vec<Verb>,
    data: Words,
    used: usize,
    /// The verb added next is fenced.
    fences: bool,
    /// The verb added next is volatile.
    is_volatile: bool,
}

impl Batch {
    /// Returns an empty batch. Prefer [`crate::Endpoint::batch`], which reuses buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty batch whose words are allocated in memory registered with a device.
    #[cfg(feature = "tcp")]
    pub(crate) fn borrowing(lender: Arc<dyn Lender>) -> Self {
        Self { inner: Box::new(Buffers { data: Words::of(lender), ..Buffers::default() }) }
    }

    /// Moves its words into memory of a lender, if they are elsewhere. Returns whether they are
    /// there now.
    #[cfg(feature = "tcp")]
    pub(crate) fn lend_from(&mut self, lender: &Arc<dyn Lender>) -> bool {
        self.inner.data.borrow_from(lender)
    }

    /// Returns the device's key of the memory that its words were lent; 0 if they were not.
    #[cfg(feature = "tcp")]
    #[inline]
    pub(crate) fn device_key(&self) -> u32 {
        self.inner.data.key().unwrap_or(0)
    }

    /// Removes verbs and results; keeps the buffers' capacity.
    #[inline]
    pub fn clear(&mut self) {
        self.inner.verbs.clear();
        self.inner.used = 0;
        (self.inner.fences, self.inner.is_volatile) = (false, false);
    }

    /// Returns the number of verbs.
    #[inline]
    pub fn len(&self) -> usize {
        self.inner.verbs.len()
    }

    /// Returns whether there are no verbs.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.inner.verbs.is_empty()
    }

    /// Adds a READ of `words` 8-byte words. Their content is unspecified until it has completed.
    #[inline]
    pub fn read(&mut self, addr: GlobalAddr, words: usize) -> ReadId {
        let at = self.grow(words);
        self.push(VerbKind::Read, addr, at, words);
        ReadId { at: at as u32, words: words as u32 }
    }

    /// Adds a WRITE of `payload`.
    #[inline]
    pub fn write(&mut self, addr: GlobalAddr, payload: &[u64]) {
        let at = self.grow(payload.len());
        self.inner.data[at..at + payload.len()].copy_from_slice(payload);
        self.push(VerbKind::Write, addr, at, payload.len());
    }

    /// Adds a WRITE of words given as little-endian bytes. A remainder that is not a whole word is
    /// not written.
    #[inline]
    pub fn write_bytes(&mut self, addr: GlobalAddr, payload: &[u8]) {
        let words = payload.len() / 8;
        let at = self.grow(words);
        for (word, bytes) in self.inner.data[at..at + words].iter_mut().zip(payload.chunks_exact(8)) {
            *word = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        }
        self.push(VerbKind::Write, addr, at, words);
    }

    /// Adds an 8-byte compare-and-swap.
    #[inline]
    pub fn cas(&mut self, addr: GlobalAddr, expected: u64, desired: u64) -> CasId {
        let at = self.grow(2);
        self.inner.data[at..at + 2].copy_from_slice(&[expected, desired]);
        self.push(VerbKind::Cas, addr, at, 1);
        CasId { at: at as u32, expected }
    }

    /// Adds an 8-byte fetch-and-add (wrapping).
    #[inline]
    pub fn faa(&mut self, addr: GlobalAddr, addend: u64) -> FaaId {
        let at = self.grow(1);
        self.inner.data[at] = addend;
        self.push(VerbKind::Faa, addr, at, 1);
        FaaId(at as u32)
    }

    /// Makes the next verb execute after all verbs to its node that were added before it. A WRITE,
    /// CAS or FAA needs this if it must follow a READ, a CAS or an FAA; an RDMA device waits for
    /// their results first, other providers execute in this order anyway.
    #[inline]
    pub fn fence(&mut self) -> &mut Self {
        self.inner.fences = true;
        self
    }

    /// Marks the next verb, a WRITE, CAS or FAA, as one of words that lose their meaning when all
    /// processes that use them have died: locks, leases. On durable memory neither this batch nor a
    /// batch that reads the words waits until they are on the medium. All verbs that change such a
    /// word must be marked. After a power failure it holds any of its last values, but not a later
    /// one than unmarked words of its node that were written after it.
    ///
    /// Data protected by such a word stays durable: a batch waits for all other words that it has
    /// written or read.
    #[inline]
    pub fn volatile(&mut self) -> &mut Self {
        self.inner.is_volatile = true;
        self
    }

    #[inline]
    fn push(&mut self, kind: VerbKind, addr: GlobalAddr, at: usize, words: usize) {
        let is_fenced = std::mem::take(&mut self.inner.fences);
        let is_volatile = std::mem::take(&mut self.inner.is_volatile);
        let (at, words) = (at as u32, words as u32);
        self.inner.verbs.push(Verb { kind, addr, at, words, is_fenced, is_volatile });
    }

    /// Makes room for `words` more words and returns the index of the first.
    #[inline]
    fn grow(&mut self, words: usize) -> usize {
        let at = self.inner.used;
        assert!(
            words <= BATCH_WORDS_MAX - at,
            "{at} + {words} words in a batch: more than {BATCH_WORDS_MAX}"
        );
        let end = at + words;
        if end > self.inner.data.len() {
            self.lengthen(end);
        }
        self.inner.used = end;
        at
    }

    #[cold]
    fn lengthen(&mut self, end: usize) {
        self.inner.data.lengthen(end.next_power_of_two().max(BATCH_WORDS_MIN));
    }

    /// Returns the words that a completed READ has read.
    #[inline]
    pub fn words(&self, id: ReadId) -> &[u64] {
        &self.inner.data[id.at as usize..(id.at + id.words) as usize]
    }

    /// Returns the word that a completed CAS found.
    #[inline]
    pub fn found(&self, id: CasId) -> u64 {
        self.inner.data[id.at as usize]
    }

    /// Returns whether a completed CAS took effect.
    #[inline]
    pub fn swapped(&self, id: CasId) -> bool {
        self.found(id) == id.expected
    }

    /// Returns the word that a completed FAA found.
    #[inline]
    pub fn fetched(&self, id: FaaId) -> u64 {
        self.inner.data[id.0 as usize]
    }

    /// For decorators: removes all verbs except the first `verbs`. Results of the others keep their
    /// values.
    pub fn truncate(&mut self, verbs: usize) {
        self.inner.verbs.truncate(verbs);
    }

    /// For providers: returns the size of the buffers in bytes, used or not.
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        self.inner.data.len() * size_of::<u64>() + self.inner.verbs.capacity() * size_of::<Verb>()
    }

    /// For providers and decorators: returns the verbs in posting order.
    #[inline]
    pub fn verbs(&self) -> &[Verb] {
        &self.inner.verbs
    }

    /// For providers: returns the verbs, and the buffer that they index.
    #[inline]
    pub fn parts_mut(&mut self) -> (&[Verb], &mut [u64]) {
        let Buffers { verbs, data, used, fences: _, is_volatile: _ } = &mut *self.inner;
        (verbs, &mut data[..*used])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes the buffer as a provider would with a memory node of zeros.
    fn complete(batch: &mut Batch) {
        let (verbs, data) = batch.parts_mut();
        for verb in verbs {
            match verb.kind {
                VerbKind::Read => data[verb.at as usize..][..verb.words as usize].fill(0),
                VerbKind::Write => {}
                VerbKind::Cas | VerbKind::Faa => data[verb.at as usize] = 0,
            }
        }
    }

    #[test]
    fn each_result_has_its_own_words() {
        let mut batch = Batch::new();
        for round in 0..3 {
            batch.write(GlobalAddr::NULL, &[9; 70]);
            let long = batch.read(GlobalAddr::NULL, 300);
            let won = batch.cas(GlobalAddr::NULL, 0, 5);
            let lost = batch.cas(GlobalAddr::NULL, 1, 5);
            let faa = batch.faa(GlobalAddr::NULL, 7);
            let none = batch.read(GlobalAddr::NULL, 0);
            assert_eq!((batch.len(), batch.parts_mut().1.len()), (6, 70 + 300 + 2 + 2 + 1), "round {round}");
            complete(&mut batch);
            assert_eq!(batch.words(long), [0; 300]);
            assert_eq!((batch.swapped(won), batch.swapped(lost), batch.fetched(faa)), (true, false, 0));
            assert!(batch.words(none).is_empty());
            assert_eq!(batch.parts_mut().1[..70], [9; 70]);
            batch.clear();
            assert!(batch.is_empty() && batch.parts_mut().1.is_empty());
        }
    }

    #[test]
    fn bytes_are_counted_as_the_design_says() {
        let mut batch = Batch::new();
        batch.read(GlobalAddr::NULL, 3);
        batch.write(GlobalAddr::NULL, &[1, 2]);
        batch.cas(GlobalAddr::NULL, 0, 1);
        batch.faa(GlobalAddr::NULL, 1);
        let counts: Vec<_> =
            batch.verbs().iter().map(|verb| (verb.read_bytes(), verb.write_bytes())).collect();
        assert_eq!(counts, [(24, 0), (0, 16), (8, 16), (8, 8)]);
        batch.truncate(2);
        assert_eq!(batch.len(), 2);
    }

    #[test]
    #[should_panic(expected = "words in a batch")]
    fn a_length_that_no_pool_has_is_a_bug() {
        Batch::new().read(GlobalAddr::NULL, usize::MAX);
    }
}
