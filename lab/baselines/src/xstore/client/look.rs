//! What a client may conclude from a leaf that it reads only by READs.
//!
//! *Presence* (rule X6): the key is in a slot below the count, and the slot's record, read
//! afterwards, is whole, has that key and was placed no later than the incarnation that was read
//! with the keys. A pointer is proof if the leaf's incarnation was known before the keys were read
//! and is the same after them. *Absence* (rule X7): the leaf was at rest in an incarnation known
//! before the READ, has the same incarnation in the READ and an identical header in another READ
//! after it; the key is between the bounds and in no slot. In all other cases the client reads
//! again or elsewhere.

use super::super::descriptor::Descriptor;
use super::super::leaf::{Head, Header, Pointer, key_hash};
use super::super::record::Record;
use darter_fabric::GlobalAddr;
use darter_index::radix::leaf as pair;
use smallvec::SmallVec;

/// Pointers of a leaf that may lead to a key.
pub(crate) type Pointers = SmallVec<[Pointer; 2]>;

/// What the words of a leaf up to its keys say about a key, and what has to be read next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This slot's record may hold the key.
    Slot(usize),
    /// These blobs may hold the key.
    Blobs(Pointers),
    /// Absent if the header stays the same.
    Absent,
    /// Not in this leaf, which never was or no longer is responsible for it, as far as these words
    /// show.
    Elsewhere,
    /// Probably absent; a READ that knows this incarnation can prove it.
    Unproven,
    /// The leaf is in motion.
    Moving,
}

/// Judges a leaf that had the incarnation `known` at some time before it was read.
pub(crate) fn judge(index: &Descriptor, head: &Head, key: &[u8], known: Option<u32>) -> Verdict {
    if head.header.is_going() {
        // Its left neighbour holds its keys, if any.
        return Verdict::Elsewhere;
    }
    if head.header.is_moving() {
        return Verdict::Moving;
    }
    if index.layout.is_inline() {
        let word = key.try_into().ok().map(u64::from_be_bytes);
        let slot = word.and_then(|word| head.counted().iter().position(|&held| held == word));
        if let Some(slot) = slot {
            return Verdict::Slot(slot);
        }
    } else if known == Some(head.header.incarnation) {
        let hash = key_hash(key);
        let pointers = head.counted().iter().filter_map(|&word| Pointer::from_word(word));
        let pointers: Pointers = pointers.filter(|pointer| pointer.may_be(hash)).collect();
        if !pointers.is_empty() {
            return Verdict::Blobs(pointers);
        }
    }
    without(head, key, known)
}

/// The same if no slot has the key.
pub(crate) fn without(head: &Head, key: &[u8], known: Option<u32>) -> Verdict {
    if head.holds(key) != Some(true) {
        Verdict::Elsewhere
    } else if known == Some(head.header.incarnation) {
        Verdict::Absent
    } else {
        Verdict::Unproven
    }
}

/// Returns the value in a slot's words, which were read after its leaf had this header.
pub(crate) fn record_value(words: &[u64], key: u64, header: Header) -> Option<Vec<u8>> {
    let record = Record::parse(words)
        .filter(|record| record.key == key && record.is_not_newer_than(header.incarnation));
    record.map(|record| record.value)
}

/// Returns the value in a blob's words if the blob holds the key. Fails if they are not a blob.
pub(crate) fn blob_value(
    addr: GlobalAddr,
    words: &[u64],
    key: &[u8],
) -> darter_index::Result<Option<Vec<u8>>> {
    let held = pair::parse(addr, words)?;
    Ok((held.key == key).then(|| held.value.to_vec()))
}

/// Returns whether the header, read again, proves a key absent.
pub(crate) fn is_still(header: Header, again: u64) -> bool {
    again == header.word()
}

/// Returns whether a leaf of this incarnation still has it, by its header: then its pointers
/// counted when they were read.
pub(crate) fn has_not_moved(again: Header, incarnation: u32) -> bool {
    again.incarnation == incarnation
}
