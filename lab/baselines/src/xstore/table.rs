//! The table of an index's ranges: which keys are on which memory node.
//!
//! ```text
//! word 0       magic 32 | ranges 32
//! word 1       number of the table, from 1 on
//! 3 words a range, ascending:
//!   word 0     code of the low bound 8 | node 8 | node of the server 8 | 0
//!   word 1     low bound
//!   word 2     address of the range's descriptor
//! ```
//!
//! Bounds are encoded as in leaves ([`Bound`]). The first range begins below all keys, and each
//! ends where the next begins. A table never changes: a CAS of the index's descriptor makes it
//! visible (rule X11 of `lab/docs/xstore.md`). The blob of a bound belongs to the range's first
//! leaf. An index without a table is one range.

use super::descriptor::Descriptor;
use super::leaf::Bound;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::leaf as pair;
use darter_index::{IndexError, Result};
use darter_pool::Client;

const MAGIC: u64 = 0x5852_6602;
const HEAD_WORDS: usize = 2;
const ENTRY_WORDS: usize = 3;
/// Maximum number of ranges of an index.
pub(crate) const RANGES_MAX: usize = 1024;
/// Words read first: most tables have no more.
const FIRST_WORDS: usize = HEAD_WORDS + 7 * ENTRY_WORDS;

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) low: Bound,
    pub(crate) node: u8,
    pub(crate) server: u8,
    /// The address of its descriptor.
    pub(crate) descriptor: GlobalAddr,
}

/// The ranges of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Its address; null for an index of one range.
    pub(crate) addr: GlobalAddr,
    /// Number of tables that the index has had, including this one; 0 for an index of one range.
    pub(crate) number: u64,
    pub(crate) entries: Vec<Entry>,
}

impl Table {
    /// Returns the table of an index of one range.
    fn of_one(index: &Descriptor) -> Self {
        let Descriptor { addr, node, server, .. } = *index;
        Self {
            addr: GlobalAddr::NULL,
            number: 0,
            entries: vec![Entry { low: Bound::LEAST, node, server, descriptor: addr }],
        }
    }

    fn words_of(entries: usize) -> usize {
        (HEAD_WORDS + entries * ENTRY_WORDS).max(FIRST_WORDS)
    }

    /// Returns the bytes of its memory.
    pub(crate) fn bytes(&self) -> u64 {
        Self::words_of(self.entries.len()) as u64 * 8
    }

    pub(crate) fn words(&self) -> Vec<u64> {
        let mut words = vec![MAGIC << 32 | self.entries.len() as u64, self.number];
        for Entry { low, node, server, descriptor } in &self.entries {
            let shape = [low.code(), *node, *server, 0, 0, 0, 0, 0];
            words.extend([u64::from_le_bytes(shape), low.word(), descriptor.bits()]);
        }
        words.resize(Self::words_of(self.entries.len()), 0);
        words
    }

    /// Returns the number of ranges in the first word of a table; `None` if the word is invalid.
    fn count(first: u64) -> Option<usize> {
        let count = usize::try_from(first & u64::from(u32::MAX)).ok()?;
        (first >> 32 == MAGIC && (1..=RANGES_MAX).contains(&count)).then_some(count)
    }

    fn parse(addr: GlobalAddr, words: &[u64], nodes: u8) -> Option<Self> {
        let count = Self::count(*words.first()?)?;
        // A table that cannot be followed by another is invalid.
        let number = words.get(1).copied().filter(|number| (1..u64::MAX).contains(number))?;
        let all = words.get(HEAD_WORDS..HEAD_WORDS + count * ENTRY_WORDS)?;
        let mut entries = Vec::with_capacity(count);
        for words in all.chunks_exact(ENTRY_WORDS) {
            let [code, node, server, rest @ ..] = words[0].to_le_bytes();
            let low = Bound::parse(code, words[1]).filter(|low| *low != Bound::None)?;
            let descriptor = GlobalAddr::from_bits(words[2]);
            if node >= nodes || server >= nodes || rest != [0; 5] || descriptor.is_null() {
                return None;
            }
            entries.push(Entry { low, node, server, descriptor });
        }
        (entries.first()?.low == Bound::LEAST).then_some(Self { addr, number, entries })
    }

    /// Reads the table of an index. The caller's client is pinned.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(crate) async fn read<F: Fabric>(client: &mut Client<F>, index: &Descriptor) -> Result<Self> {
        let [word] = client.read_words(index.ranges()).await?;
        if word == 0 {
            return Ok(Self::of_one(index));
        }
        Self::read_at(client, GlobalAddr::from_bits(word)).await
    }

    /// Reads the table at an address.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(crate) async fn read_at<F: Fabric>(client: &mut Client<F>, addr: GlobalAddr) -> Result<Self> {
        let damage = || IndexError::corrupt(addr, "not a table of ranges");
        let mut words = client.read(addr, FIRST_WORDS).await?;
        let count = Self::count(words[0]).ok_or_else(damage)?;
        if Self::words_of(count) > words.len() {
            words = client.read(addr, Self::words_of(count)).await?;
        }
        let nodes = client.pool().nodes();
        Self::parse(addr, &words, nodes).ok_or_else(damage)
    }

    /// Returns the position of the range with this descriptor.
    pub(crate) fn find(&self, descriptor: GlobalAddr) -> Option<usize> {
        self.entries.iter().position(|entry| entry.descriptor == descriptor)
    }

    /// Returns the bound at which a range ends.
    pub(crate) fn high(&self, at: usize) -> Bound {
        self.entries.get(at + 1).map_or(Bound::None, |next| next.low.clone())
    }
}

/// Returns the bytes of a bound; `None` for the bound above all keys.
///
/// # Errors
/// A damaged index; errors of the fabric.
pub(crate) async fn bound_bytes<F: Fabric>(client: &mut Client<F>, bound: &Bound) -> Result<Option<Vec<u8>>> {
    match bound {
        Bound::None => Ok(None),
        Bound::Short(bytes) => Ok(Some(bytes.clone())),
        Bound::Blob(addr, class) => {
            let words = client.read(*addr, pair::class_words(*class)).await?;
            Ok(Some(pair::parse(*addr, &words)?.key.to_vec()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(low: Bound, node: u8) -> Entry {
        Entry { low, node, server: node, descriptor: GlobalAddr::new(node, 4096) }
    }

    #[test]
    fn tables_round_trip() {
        let addr = GlobalAddr::new(0, 640);
        for count in [1, 2, 7, 8, 40] {
            let bound = |at: usize| match at {
                0 => Bound::LEAST,
                1 => Bound::Blob(GlobalAddr::new(1, 128), 9),
                _ => Bound::Short(vec![at as u8; 1 + at % 8]),
            };
            let entries = (0..count).map(|at| entry(bound(at), at as u8 % 3)).collect();
            let table = Table { addr, number: 3, entries };
            let words = table.words();
            assert_eq!(words.len() as u64 * 8, table.bytes());
            assert_eq!(Table::parse(addr, &words, 3), Some(table));
            assert_eq!(Table::parse(addr, &words, u8::from(count > 2)), None, "a node outside the pool");
            assert_eq!(Table::parse(addr, &words[..=count * ENTRY_WORDS], 3), None, "truncated");
        }
        for number in [0, u64::MAX] {
            let strange = Table { addr, number, entries: vec![entry(Bound::LEAST, 0)] };
            assert_eq!(Table::parse(addr, &strange.words(), 3), None, "invalid table number: {number}");
        }
        let headless = Table { addr, number: 1, entries: vec![entry(Bound::Short(vec![1]), 0)] };
        assert_eq!(Table::parse(addr, &headless.words(), 3), None, "keys below the first range");
    }

    proptest! {
        #[test]
        fn any_words_are_a_table_or_none(mut words in proptest::collection::vec(any::<u64>(), 0..40), is_one: bool) {
            if let Some(first) = words.first_mut().filter(|_| is_one) {
                *first = (MAGIC << 32) | (*first % 20);
            }
            if let Some(table) = Table::parse(GlobalAddr::new(0, 64), &words, 4) {
                prop_assert!(table.entries.len() <= RANGES_MAX);
                prop_assert_eq!(Table::parse(table.addr, &table.words(), 4), Some(table));
            }
        }
    }
}
