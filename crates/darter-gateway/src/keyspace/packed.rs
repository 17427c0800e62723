//! The elements of a small hash, set or sorted set, which lie in its head.
//!
//! ```text
//! for each element, in ascending order of the names:
//!
//! of a hash:         length, 2 bytes | field | length, 2 bytes | value, or a record (`timed.rs`)
//! of a set:          length, 2 bytes | member
//! of a sorted set:   length, 2 bytes | member | score, 8 bytes
//! ```
//!
//! Numbers are little-endian. What follows the name is the element's *record*; that of a set's member
//! is empty.

use super::order::{SCORE_BYTES, score_of_record};
use super::{Kind, timed_record};
use crate::fault::{FOREIGN, Fault};

/// Most bytes of the elements in a head.
pub(super) const PACKED_BYTES: usize = 1024;

/// A name and a record.
pub(crate) type Element<'b> = (&'b [u8], &'b [u8]);

/// The effect of additions: how many of them gave an element a record that it did not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// New elements.
    pub(crate) added: usize,
    /// Changes of elements that existed.
    pub(crate) changed: usize,
}

impl Tally {
    /// Counts a change.
    pub(super) fn note(&mut self, is_new: bool) {
        *(if is_new { &mut self.added } else { &mut self.changed }) += 1;
    }

    /// Returns whether nothing has changed.
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Decides on the addition at a position: it gets the element's record, if the element exists, and
/// writes the new record. Returns false if the element stays as it is.
pub(crate) type Decide<'d> = dyn FnMut(usize, Option<&[u8]>, &mut Vec<u8>) -> Result<bool, Fault> + Send + 'd;

/// Elements in ascending order of their names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'b> {
    kind: Kind,
    body: &'b [u8],
}

/// Splits off a text after its length.
fn split_text(bytes: &[u8]) -> Option<Element<'_>> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

/// Splits the first element off.
fn split(kind: Kind, bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (name, rest) = split_text(bytes)?;
    let (record, rest) = match kind {
        Kind::Hash | Kind::TimedHash => split_text(rest)?,
        Kind::SortedSet => rest.split_at_checked(SCORE_BYTES)?,
        Kind::Set | Kind::List | Kind::Stream | Kind::String => (&rest[..0], rest),
    };
    Some(((name, record), rest))
}

/// Appends an element to a body that begins at `start`. Returns false if there is no room.
pub(super) fn push(body: &mut Vec<u8>, start: usize, kind: Kind, (name, record): Element<'_>) -> bool {
    let is_hash = kind.seen() == Kind::Hash;
    let lengths = if is_hash { 4 } else { 2 };
    if body.len() - start + lengths + name.len() + record.len() > PACKED_BYTES {
        return false;
    }
    body.extend_from_slice(&(name.len() as u16).to_le_bytes());
    body.extend_from_slice(name);
    if is_hash {
        body.extend_from_slice(&(record.len() as u16).to_le_bytes());
    }
    body.extend_from_slice(record);
    true
}

/// Returns the positions of names in ascending order; those of equal names in theirs.
pub(super) fn order_of(names: &[&[u8]]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|&at| names[at]);
    order
}

impl<'b> Packed<'b> {
    /// No elements.
    pub(super) fn none(kind: Kind) -> Self {
        Self { kind, body: &[] }
    }

    /// Parses the body of a record.
    ///
    /// # Errors
    /// Fails if it is not valid.
    pub(super) fn parse(kind: Kind, body: &'b [u8]) -> Result<Self, Fault> {
        let (mut left, mut last) = (body, None);
        while !left.is_empty() {
            let ((name, record), rest) = split(kind, left).ok_or(FOREIGN)?;
            let is_scored = kind != Kind::SortedSet || score_of_record(record).is_some();
            if kind == Kind::TimedHash {
                timed_record::check(record)?;
            }
            if !is_scored || last.is_some_and(|last| last >= name) {
                return Err(FOREIGN);
            }
            (left, last) = (rest, Some(name));
        }
        Ok(Self { kind, body })
    }

    /// Returns the elements of a body that was parsed before.
    pub(super) fn of_valid(kind: Kind, body: &'b [u8]) -> Self {
        Self { kind, body }
    }

    /// Returns the body of the record.
    pub(super) fn body(self) -> &'b [u8] {
        self.body
    }

    /// Returns the type of the key.
    pub(super) fn kind(self) -> Kind {
        self.kind
    }

    /// Returns the elements in ascending order of their names.
    pub(crate) fn iter(self) -> impl Iterator<Item = Element<'b>> {
        let mut left = self.body;
        std::iter::from_fn(move || {
            let (element, rest) = split(self.kind, left)?;
            left = rest;
            Some(element)
        })
    }

    /// Returns the record of an element.
    pub(super) fn get(self, name: &[u8]) -> Option<&'b [u8]> {
        let found = self.iter().find(|&(other, _)| other >= name);
        found.filter(|&(other, _)| other == name).map(|(_, record)| record)
    }

    /// Returns the members of a sorted set with their scores, in the order of the scores, and in that
    /// of the names among equal scores.
    pub(crate) fn by_score(self) -> Vec<(f64, &'b [u8])> {
        let scored = |(name, record)| score_of_record(record).map(|score| (score, name));
        let mut members: Vec<_> = self.iter().filter_map(scored).collect();
        // The sort is stable, and there is one zero.
        members.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        members
    }

    /// Makes additions, in the given order of their positions in `names`, and passes the elements that
    /// result to `keep`, in ascending order and until it returns false. Returns `None` in that case.
    ///
    /// # Errors
    /// Those of `decide`.
    pub(super) fn with(
        self,
        names: &[&[u8]],
        order: &[usize],
        decide: &mut Decide<'_>,
        mut keep: impl FnMut(Element<'_>) -> bool,
    ) -> Result<Option<Tally>, Fault> {
        let (mut own, mut order) = (self.iter().peekable(), order.iter().copied().peekable());
        let (mut tally, mut new, mut next) = (Tally::default(), Vec::new(), Vec::new());
        while let Some(&first) = order.peek() {
            let name = names[first];
            while let Some(other) = own.next_if(|&(other, _)| other < name) {
                if !keep(other) {
                    return Ok(None);
                }
            }
            let was = own.next_if(|&(other, _)| other == name).map(|(_, record)| record);
            let mut is_put = false;
            while let Some(at) = order.next_if(|&at| names[at] == name) {
                let old = if is_put { Some(&new[..]) } else { was };
                let is_new = old.is_none();
                next.clear();
                if decide(at, old, &mut next)? {
                    std::mem::swap(&mut new, &mut next);
                    tally.note(is_new);
                    is_put = true;
                }
            }
            let record = if is_put { Some(&new[..]) } else { was };
            if record.is_some_and(|record| !keep((name, record))) {
                return Ok(None);
            }
        }
        Ok(own.all(keep).then_some(tally))
    }

    /// Appends the elements that are not to be removed, in ascending order, to a record. Returns the
    /// number of elements left out.
    pub(super) fn without(self, is_removed: impl Fn(&[u8]) -> bool, record: &mut Vec<u8>) -> usize {
        let (start, mut removed) = (record.len(), 0);
        for element in self.iter() {
            if is_removed(element.0) {
                removed += 1;
            } else {
                push(record, start, self.kind, element);
            }
        }
        removed
    }
}

/// Returns whether all fields of a small hash whose fields may expire have ended.
pub(super) fn are_over(body: &[u8], now: u64) -> bool {
    // Damaged elements are reported by the command that reads them.
    let mut elements = Packed::of_valid(Kind::TimedHash, body).iter();
    !body.is_empty() && elements.all(|(_, record)| timed_record::is_over(Kind::TimedHash, record, now))
}

#[cfg(test)]
mod tests {
    use super::super::order::record_of_score;
    use super::*;
    use rand::seq::IndexedRandom;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use std::collections::BTreeMap;

    const KINDS: [Kind; 3] = [Kind::Hash, Kind::Set, Kind::SortedSet];

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn body(kind: Kind, model: &Model) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        model.iter().all(|(name, record)| push(&mut body, 0, kind, (name, record))).then_some(body)
    }

    fn record(dice: &mut Pcg64Mcg, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::Hash => vec![b'v'; *[0, 1, 3, 300].choose(dice).unwrap()],
            Kind::SortedSet => record_of_score(f64::from(dice.random_range(-2..3))).to_vec(),
            _ => Vec::new(),
        }
    }

    /// Adds elements to a body, some of them twice and only some of those that exist. Compares the
    /// result with a model.
    fn add(dice: &mut Pcg64Mcg, kind: Kind, old: &[u8], model: &mut Model) -> Option<Vec<u8>> {
        let most = *[1, 3, 30].choose(dice).unwrap();
        let new: Vec<(Vec<u8>, Vec<u8>)> = (0..dice.random_range(0..=most))
            .map(|_| {
                (vec![b'n'; dice.random_range(0..40)], u8::from(dice.random_bool(0.5)), record(dice, kind))
            })
            .map(|(name, last, record)| ([&name[..], &[last]].concat(), record))
            .collect();
        // An element is kept if its record is not longer.
        let is_put = |old: Option<&[u8]>, new: &[u8]| old.is_none_or(|old| old.len() <= new.len());
        let mut expected = Tally::default();
        for (name, record) in &new {
            let was = model.get(name).map(Vec::as_slice);
            if is_put(was, record) {
                expected.note(was.is_none());
                model.insert(name.clone(), record.clone());
            }
        }
        let names: Vec<&[u8]> = new.iter().map(|(name, _)| &name[..]).collect();
        let mut decide = |at: usize, old: Option<&[u8]>, record: &mut Vec<u8>| {
            record.extend_from_slice(&new[at].1);
            Ok(is_put(old, record))
        };
        let (mut body, packed) = (b"before".to_vec(), Packed::parse(kind, old).unwrap());
        let keep = |element: Element<'_>| push(&mut body, 6, kind, element);
        let tally = packed.with(&names, &order_of(&names), &mut decide, keep).unwrap();
        assert!(tally.is_none_or(|tally| tally == expected));
        tally.map(|_| body[6..].to_vec())
    }

    #[test]
    fn elements_are_those_of_a_model() {
        let mut dice = Pcg64Mcg::seed_from_u64(1);
        for kind in KINDS {
            let (mut model, mut now, mut full) = (Model::new(), Vec::new(), 0);
            for _ in 0..3000 {
                let before = model.clone();
                if dice.random_bool(0.7) {
                    if let Some(body) = add(&mut dice, kind, &now, &mut model) {
                        now = body;
                    } else {
                        assert!(body(kind, &model).is_none(), "there is room");
                        model = before;
                        full += 1;
                    }
                } else {
                    let gone = |name: &[u8]| name.len().is_multiple_of(3);
                    let mut left = Vec::new();
                    let removed = Packed::parse(kind, &now).unwrap().without(gone, &mut left);
                    model.retain(|name, _| !gone(name));
                    assert_eq!(removed, before.len() - model.len());
                    now = left;
                }
                assert_eq!(Some(&now), body(kind, &model).as_ref());
                let packed = Packed::parse(kind, &now).unwrap();
                assert!(packed.iter().eq(model.iter().map(|(name, record)| (&name[..], &record[..]))));
                let name = vec![b'n'; dice.random_range(0..42)];
                assert_eq!(packed.get(&name), model.get(&name).map(Vec::as_slice));
                if kind == Kind::SortedSet {
                    let mut members: Vec<_> = packed.iter().map(|(name, _)| name).collect();
                    members.sort_by_key(|&name| (score_of_record(&model[name]).unwrap() as i64, name));
                    assert!(packed.by_score().iter().map(|(_, name)| *name).eq(members));
                }
            }
            assert!(full > 10, "{kind:?}: {full}");
        }
    }

    #[test]
    fn there_is_room_for_a_kibibyte() {
        for (kind, record) in [(Kind::Hash, &b"value"[..]), (Kind::Set, b""), (Kind::SortedSet, &[0; 8])] {
            let lengths = if kind == Kind::Hash { 4 } else { 2 };
            let fits = |name: usize| push(&mut Vec::new(), 0, kind, (&vec![b'x'; name], record));
            let most = PACKED_BYTES - lengths - record.len();
            assert!(fits(most) && !fits(most + 1) && !fits(70_000), "{kind:?}");
            let mut body = vec![0; 9];
            assert!(push(&mut body, 9, kind, (&vec![b'x'; most], record)));
            assert!(!push(&mut body, 9, kind, (b"", b"")));
        }
    }

    #[test]
    fn bytes_that_are_not_elements_are_refused() {
        let nan = [&b"\x01\0a"[..], &f64::NAN.to_le_bytes()].concat();
        for (kind, bytes) in [
            (Kind::Set, &b"\x01"[..]),
            (Kind::Set, b"\x02\0a"),
            (Kind::Set, b"\x01\0b\x01\0a"),
            (Kind::Set, b"\x01\0a\x01\0a"),
            (Kind::Set, b"\0\0\0\0"),
            (Kind::Set, b"\x01\0ab"),
            (Kind::Hash, b"\x01\0a"),
            (Kind::Hash, b"\x01\0a\x01"),
            (Kind::Hash, b"\x01\0a\x02\0v"),
            (Kind::Hash, b"\x01\0b\0\0\x01\0a\0\0"),
            (Kind::SortedSet, b"\x01\0a1234567"),
            (Kind::SortedSet, &nan),
        ] {
            assert!(Packed::parse(kind, bytes).is_err(), "{kind:?} {}", bytes.escape_ascii());
        }
    }
}
