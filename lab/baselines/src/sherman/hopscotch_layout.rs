//! The layout of a hopscotch leaf's words, drawn in [`super::hopscotch`].
use smallvec::SmallVec;

/// Slots in which a key can be, starting at its home.
pub(crate) const NEIGHBOURHOOD: usize = 8;
/// Slots that share a replica of the leaf's sibling link.
pub(super) const GROUP_SLOTS: usize = 8;

/// A run of a leaf's words: the index of the first and the length.
pub(crate) type Run = (usize, usize);

/// The layout of a hopscotch leaf's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Slots.
    pub(crate) span: usize,
    /// Words of an entry.
    pub(super) entry: usize,
    /// The first word of the groups.
    pub(super) area: usize,
}

impl Layout {
    /// Returns the layout of leaves whose header and fences take up to `header` words.
    pub(crate) fn new(span: usize, entry: usize, header: usize) -> Self {
        Self { span, entry, area: header + 1 }
    }

    pub(super) fn pair_words(self) -> usize {
        2 * self.entry + 1
    }

    pub(super) fn group_words(self) -> usize {
        1 + GROUP_SLOTS / 2 * self.pair_words()
    }

    /// Returns the words of a leaf.
    pub(crate) fn leaf_words(self) -> usize {
        self.area + self.span / GROUP_SLOTS * self.group_words()
    }

    /// Returns the word of the vacancy bitmap, which follows header and fences.
    pub(crate) fn vacancy_at(self) -> usize {
        self.area - 1
    }

    /// Returns the first word of the groups.
    pub(crate) fn area_at(self) -> usize {
        self.area
    }

    pub(super) fn replica_at(self, group: usize) -> usize {
        self.area + group * self.group_words()
    }

    pub(super) fn pair_at(self, slot: usize) -> usize {
        self.replica_at(slot / GROUP_SLOTS) + 1 + slot % GROUP_SLOTS / 2 * self.pair_words()
    }

    /// Returns the first word of a slot's entry.
    pub(crate) fn entry_at(self, slot: usize) -> usize {
        self.pair_at(slot) + slot % 2 * (self.entry + 1)
    }

    /// Returns the word of a slot's metadata.
    pub(super) fn metadata_at(self, slot: usize) -> usize {
        self.pair_at(slot) + self.entry
    }

    /// Returns the run of a slot's entry and metadata.
    pub(crate) fn slot_run(self, slot: usize) -> Run {
        (self.entry_at(slot).min(self.metadata_at(slot)), self.entry + 1)
    }

    /// Returns the runs of `count` slots from one on, at least a neighbourhood. The metadata of the
    /// last slot is included only if it comes before the entry or if `with_last` is set.
    pub(crate) fn runs(self, first: usize, count: usize, with_last: bool) -> SmallVec<[Run; 2]> {
        let (start, end) = (self.start_of(first), self.area + self.span / GROUP_SLOTS * self.group_words());
        if count >= self.span {
            return SmallVec::from_slice(&[(self.area, end - self.area)]);
        }
        let last = first + count - 1;
        if last < self.span {
            return SmallVec::from_slice(&[(start, self.end_of(last, with_last) - start)]);
        }
        let rest = self.end_of(last - self.span, with_last) - self.area;
        SmallVec::from_slice(&[(start, end - start), (self.area, rest)])
    }

    pub(super) fn start_of(self, slot: usize) -> usize {
        match slot % GROUP_SLOTS {
            0 => self.replica_at(slot / GROUP_SLOTS),
            at if at % 2 == 0 => self.entry_at(slot),
            _ => self.metadata_at(slot),
        }
    }

    pub(super) fn end_of(self, slot: usize, with_metadata: bool) -> usize {
        if slot.is_multiple_of(2) && with_metadata {
            self.metadata_at(slot) + 1
        } else {
            self.entry_at(slot) + self.entry
        }
    }

    /// Returns the slot at a distance after another, cyclically.
    pub(crate) fn behind(self, slot: usize, offset: usize) -> usize {
        (slot + offset) % self.span
    }

    /// Returns the distance from `home` to `slot`, cyclically.
    pub(crate) fn offset(self, home: usize, slot: usize) -> usize {
        (slot + self.span - home) % self.span
    }
}
