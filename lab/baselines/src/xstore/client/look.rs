//! What a client may conclude from a leaf that it reads by READs alone.
//!
//! *Presence* (rule X6): the key stands in a slot that counts, and the slot's record, read
//! afterwards, is whole, of that key, and was placed no later than the incarnation that was read
//! with the keys. A pointer is as good if the leaf's incarnation was known before the keys were read,
//! and is the same behind them. *Absence* (rule X7): the leaf was at rest in an incarnation known before the
//! READ, is in the same one in the READ and, unchanged in every bit of the header, in another READ
//! behind it; the key is between the bounds, and not there. Everything else says to look again, or
//! elsewhere.

use super::super::descriptor::Descriptor;
use super::super::leaf::{Head, Header, Pointer, key_hash};
use super::super::record::Record;
use darter_fabric::GlobalAddr;
use darter_index::radix::leaf as pair;
use smallvec::SmallVec;

/// Pointers of a leaf that may lead to a key.
pub(crate) type Pointers = SmallVec<[Pointer; 2]>;

/// What the words of a leaf up to its keys say of a key, and what has to be read next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The slot's record may be the key's.
    Slot(usize),
    /// These blobs may be the key's.
    Blobs(Pointers),
    /// Not there, if the header stays as it is.
    Absent,
    /// It is not in this leaf, which was not for it, or not any more, as far as can be told.
    Elsewhere,
    /// Not there, as it seems; a READ that knows this incarnation may prove it.
    Unproven,
    /// The leaf is in motion.
    Moving,
}

/// Judges a leaf, which had the incarnation `known` at some time before it was read.
pub(crate) fn judge(index: &Descriptor, head: &Head, key: &[u8], known: Option<u32>) -> Verdict {
    if head.header.is_going() {
        // Its left neighbour has its keys, if there are any.
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

/// The same, when no slot has the key.
pub(crate) fn without(head: &Head, key: &[u8], known: Option<u32>) -> Verdict {
    if head.holds(key) != Some(true) {
        Verdict::Elsewhere
    } else if known == Some(head.header.incarnation) {
        Verdict::Absent
    } else {
        Verdict::Unproven
    }
}

/// The value in a slot's words, which were read after its leaf had this header.
pub(crate) fn record_value(words: &[u64], key: u64, header: Header) -> Option<Vec<u8>> {
    let record = Record::parse(words)
        .filter(|record| record.key == key && record.is_not_newer_than(header.incarnation));
    record.map(|record| record.value)
}

/// The value in a blob's words, if it is the key's. An error if they are no blob's.
pub(crate) fn blob_value(
    addr: GlobalAddr,
    words: &[u64],
    key: &[u8],
) -> darter_index::Result<Option<Vec<u8>>> {
    let held = pair::parse(addr, words)?;
    Ok((held.key == key).then(|| held.value.to_vec()))
}

/// Whether a key is proven absent by the header, read again.
pub(crate) fn is_still(header: Header, again: u64) -> bool {
    again == header.word()
}

/// Whether a leaf of this incarnation is in it still, by its header: what its pointers were when they
/// were read counted then.
pub(crate) fn has_not_moved(again: Header, incarnation: u32) -> bool {
    again.incarnation == incarnation
}
