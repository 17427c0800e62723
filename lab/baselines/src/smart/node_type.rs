//! The types of inner nodes: how many slots of a node exist ([`super::node`] has the layout).

/// The types of inner nodes, smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeType(u8);

/// Slots of the largest type.
pub(super) const SLOTS_MAX: usize = 257;

impl NodeType {
    pub(super) const SMALLEST: Self = Self(1);
    pub(super) const LARGEST: Self = Self(8);
    pub(super) const ALL: [Self; 8] =
        [Self(1), Self(2), Self(3), Self(4), Self(5), Self(6), Self(7), Self(8)];

    pub(super) const fn code(self) -> u8 {
        self.0
    }

    pub(super) const fn from_code(code: u8) -> Option<Self> {
        if code >= 1 && code <= 8 { Some(Self(code)) } else { None }
    }

    /// Returns the number of slots of the type.
    #[inline]
    pub(super) const fn slots(self) -> usize {
        if self.0 >= 8 { SLOTS_MAX } else { 2 << self.0 }
    }

    /// Returns the smallest type with at least this many slots.
    pub(super) fn fit(slots: usize) -> Self {
        Self::ALL.into_iter().find(|ty| ty.slots() >= slots).unwrap_or(Self::LARGEST)
    }

    pub(super) const fn name(self) -> &'static str {
        ["?", "NODE_4", "NODE_8", "NODE_16", "NODE_32", "NODE_64", "NODE_128", "NODE_256", "NODE_257"]
            [self.0 as usize % 9]
    }
}
