//! A slab: pages with objects of one class, and which of them are free according to the owner.
//!
//! While a block is owned, the owner's memory is authoritative. The bitmap in the pool only
//! collects the objects that other members freed since the owner last fetched it.

use super::bits::ones;
use super::layout::Shape;
use super::size_class::class_bytes;

/// The place of a slab that is in no queue.
const NO_PLACE: u32 = u32::MAX;

/// The owner's books of one slab.
#[derive(Debug)]
pub(crate) struct Slab {
    pub class: u8,
    pub pages: u32,
    pub count: u32,
    pub free: u32,
    /// Freed bits are being fetched; the pages stay a slab of this class until that is done.
    pub claiming: bool,
    place: u32,
    bits: Box<[u64]>,
}

impl Slab {
    /// A slab whose objects are all free, or all in use.
    pub(crate) fn new(class: u8, shape: &Shape, all_free: bool) -> Self {
        let mut bits: Box<[u64]> = vec![0; shape.bitmap_words()].into();
        if all_free {
            bits.fill(u64::MAX);
            if !shape.count.is_multiple_of(64) {
                bits[shape.bitmap_words() - 1] = u64::MAX >> (64 - shape.count % 64);
            }
        }
        let free = if all_free { shape.count } else { 0 };
        Self { class, pages: shape.pages, count: shape.count, free, claiming: false, place: NO_PLACE, bits }
    }

    /// Takes the free object with the lowest position at or after word `*from`.
    pub(crate) fn take(&mut self, from: &mut usize) -> Option<u32> {
        let found = self.bits.iter().skip(*from).position(|&bits| bits != 0);
        let word = *from + found?;
        *from = word;
        let bit = self.bits[word].trailing_zeros();
        self.bits[word] &= self.bits[word] - 1;
        self.free -= 1;
        Some(word as u32 * 64 + bit)
    }

    /// Marks the objects of a bitmap word as free; returns how many of them were in use.
    pub(crate) fn give_word(&mut self, word: usize, bits: u64) -> u32 {
        let Some(held) = self.bits.get_mut(word) else { return 0 };
        let objects = match self.count.saturating_sub(word as u32 * 64) {
            0 => 0,
            objects @ 1..64 => (1 << objects) - 1,
            _ => u64::MAX,
        };
        let given = bits & objects & !*held;
        *held |= given;
        self.free += given.count_ones();
        given.count_ones()
    }

    /// Marks an object as used; returns `false` if it already was, or does not exist.
    pub(crate) fn occupy(&mut self, slot: u32) -> bool {
        let mask = 1 << (slot % 64);
        let Some(word) = self.bits.get_mut(slot as usize / 64) else { return false };
        if *word & mask == 0 {
            return false;
        }
        *word &= !mask;
        self.free -= 1;
        true
    }

    /// Whether an object is free.
    pub(crate) fn is_free(&self, slot: u32) -> bool {
        self.bits.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// The bitmap of free objects.
    pub(crate) fn free_bits(&self) -> &[u64] {
        &self.bits
    }

    /// The objects in use.
    pub(crate) fn used(&self) -> impl Iterator<Item = u32> + '_ {
        let count = self.count;
        self.bits.iter().zip(0u32..).flat_map(move |(&bits, word)| {
            ones(!bits).map(move |bit| word * 64 + bit as u32).filter(move |&slot| slot < count)
        })
    }

    /// Bytes of its objects in use.
    pub(crate) fn object_bytes(&self) -> u64 {
        u64::from(self.count - self.free) * class_bytes(self.class)
    }

    /// Its place in the queue of slabs with free objects.
    pub(crate) fn place(&self) -> Option<usize> {
        (self.place != NO_PLACE).then_some(self.place as usize)
    }

    /// Notes its place in the queue.
    pub(crate) fn set_place(&mut self, place: Option<usize>) {
        self.place = place.map_or(NO_PLACE, |place| place as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_taken_once_and_given_once() {
        let shape = Shape { pages: 1, first: 64, count: 70, bitmap: Some(0) };
        let mut slab = Slab::new(3, &shape, true);
        let mut from = 0;
        let taken: Vec<_> = std::iter::from_fn(|| slab.take(&mut from)).collect();
        assert_eq!(taken, (0..70).collect::<Vec<_>>());
        assert_eq!((slab.free, slab.used().count()), (0, 70));
        let mut give = |slot: u32| slab.give_word(slot as usize / 64, 1 << (slot % 64));
        assert_eq!((give(69), give(69), give(70), give(1000)), (1, 0, 0, 0));
        assert!(slab.is_free(69) && slab.occupy(69) && !slab.occupy(69));
        assert_eq!((slab.give_word(0, 0b101), slab.give_word(0, 0b111), slab.free), (2, 1, 3));
        assert_eq!((slab.give_word(1, u64::MAX), slab.give_word(2, 1), slab.free), (6, 0, 9));
    }
}
