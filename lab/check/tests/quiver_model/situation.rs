//! Situations that must occur in the scenarios; without them the check proves little.

/// A situation in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Situation {
    /// A search finds a slot whose *hi* is below its edge: it has read a later slot too early.
    SlotReadEarly,
    /// A helper finds a part of the plan already linked.
    PartFound,
    /// A helper finds the page already replaced.
    PageReplaced,
    /// A draft with a page in it is not linked, and its frame is given back.
    DraftLost,
    /// A client writes a word of a draft to which a hint leads.
    DraftInSight,
    /// A hint leads to an unsealed record of another life, with the key.
    OtherLife,
    /// A hint leads to an unsealed guard of another life.
    GuardOfOtherLife,
    /// A hint has another rank than the page's own map.
    OtherRank,
    /// A blind CAS hits another key's record.
    WrongLeaf,
    /// A reader with a hint finds another key's leaf in its record.
    WrongLeafRead,
    /// The same without a hint.
    WrongLeafMet,
    /// A rebuild finds another key's leaf in a record.
    WrongLeafSealed,
    /// INLINE cannot be put back, since the page is being rebuilt.
    UndoOnSealed,
    /// INLINE need not be put back, since the record has been written.
    UndoOnChanged,
    /// A blind CAS finds LEAF, and a second one replaces that.
    SecondCas,
    /// NONE replaces a page.
    NoneLinked,
    /// NONE is linked after a crowded edge.
    NoneBehind,
}

impl Situation {
    pub(crate) const ALL: [Self; 17] = [
        Self::SlotReadEarly,
        Self::PartFound,
        Self::PageReplaced,
        Self::DraftLost,
        Self::DraftInSight,
        Self::OtherLife,
        Self::GuardOfOtherLife,
        Self::OtherRank,
        Self::WrongLeaf,
        Self::WrongLeafRead,
        Self::WrongLeafMet,
        Self::WrongLeafSealed,
        Self::UndoOnSealed,
        Self::UndoOnChanged,
        Self::SecondCas,
        Self::NoneLinked,
        Self::NoneBehind,
    ];
}

/// The situations that have occurred so far.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Situations(u32);

impl Situations {
    pub(crate) fn meet(&mut self, situation: Situation) {
        self.0 |= 1 << situation as u32;
    }

    pub(crate) fn contain(self, situation: Situation) -> bool {
        self.0 >> situation as u32 & 1 != 0
    }

    pub(crate) fn add(&mut self, others: Self) {
        self.0 |= others.0;
    }
}
