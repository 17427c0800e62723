//! The word that says which memory nodes a pool uses, and which one is leaving it.
//!
//! ```text
//!  63            32 31      20 19   16 15          8 7         0
//! +----------------+----------+-------+-------------+-----------+
//! |  changes 32    |    0     | stage |  leaving 8  |  count 8  |
//! +----------------+----------+-------+-------------+-----------+
//! ```
//!
//! *Count* is the number of nodes, those included that have left. *Leaving* is the node that is
//! leaving, and *stage* how far it has got; both are 0 if none is, since node 0 never leaves.
//! *Changes* grows with each change of the two, so that a member that follows the word has seen
//! every change. Every round of upkeep reads the word with the epoch.
//!
//! A member's line has the word that the member follows, with the number of nodes that it reaches
//! in place of *count* (`nodes`).

use darter_fabric::{Endpoint, GlobalAddr};

use crate::error::PoolError;
use crate::region::NODES_AT;
use crate::round_trip::{cas, read_words};

const LEAVING_AT: u32 = 8;
const STAGE_AT: u32 = 16;
const CHANGES_AT: u32 = 32;
const COUNT: u64 = 0xff;
/// Bits that are always 0.
const UNUSED: u64 = 0xfff0_0000;

/// How far a node that is leaving has got. The numbers differ in two bits at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// No new objects are placed on it, and those on it are moved.
    Moving = 3,
    /// No object is on it, and no process uses what it remembers of it.
    Empty = 5,
    /// It is no longer a node of the pool. This cannot be undone.
    Gone = 9,
}

/// The nodes of a pool, as the word has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Roster {
    /// The number of nodes, those included that have left.
    pub count: u8,
    /// The node that is leaving.
    pub leaving: Option<(u8, Stage)>,
    /// The number of changes of `leaving`.
    pub changes: u32,
}

impl Roster {
    /// Parses the word; `None` if no program writes it.
    pub(crate) fn parse(word: u64) -> Option<Self> {
        let (count, node) = ((word & COUNT) as u8, (word >> LEAVING_AT) as u8);
        let leaving = match (node, word >> STAGE_AT & 15) {
            (0, 0) => None,
            (1.., 3) => Some((node, Stage::Moving)),
            (1.., 5) => Some((node, Stage::Empty)),
            (1.., 9) => Some((node, Stage::Gone)),
            _ => return None,
        };
        let is_valid = count > 0 && word & UNUSED == 0 && node < count;
        is_valid.then_some(Self { count, leaving, changes: (word >> CHANGES_AT) as u32 })
    }

    /// The word.
    pub(crate) fn word(self) -> u64 {
        let leaving = self
            .leaving
            .map_or(0, |(node, stage)| u64::from(node) << LEAVING_AT | (stage as u64) << STAGE_AT);
        u64::from(self.count) | leaving | u64::from(self.changes) << CHANGES_AT
    }

    /// The same nodes, with this one leaving.
    pub(crate) fn changed(self, leaving: Option<(u8, Stage)>) -> Self {
        Self { leaving, changes: self.changes.wrapping_add(1), ..self }
    }

    /// Whether this was read after another one, from which `leaving` has changed.
    pub(crate) fn is_after(self, other: Self) -> bool {
        self.changes.wrapping_sub(other.changes).cast_signed() > 0
    }

    /// The word in the line of a member that follows this and reaches `nodes` nodes.
    pub(crate) fn followed(self, nodes: u8) -> u64 {
        self.word() & !COUNT | u64::from(nodes)
    }

    /// Whether the member whose line has this word follows.
    pub(crate) fn is_followed_by(self, line: u64) -> bool {
        line & !COUNT == self.word() & !COUNT
    }

    /// Reads the word.
    pub(crate) async fn read<E: Endpoint>(endpoint: &mut E) -> Result<Self, PoolError> {
        let [word] = read_words(endpoint, GlobalAddr::new(0, NODES_AT)).await?;
        Self::parse(word).ok_or(PoolError::Damaged { node: 0, what: "its count of nodes is invalid" })
    }

    /// Replaces the word, if it is still this one. Returns the word after that.
    pub(crate) async fn replace<E: Endpoint>(self, endpoint: &mut E, next: Self) -> Result<Self, PoolError> {
        let swap = cas(endpoint, GlobalAddr::new(0, NODES_AT), self.word(), next.word()).await?;
        let found = if swap.swapped { next.word() } else { swap.found };
        Self::parse(found).ok_or(PoolError::Damaged { node: 0, what: "its count of nodes is invalid" })
    }
}

/// The number of nodes that a member reaches, by the word in its line.
pub(crate) fn reached(line: u64) -> u64 {
    line & COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_they_were_made_of() {
        let stages = [Stage::Moving, Stage::Empty, Stage::Gone];
        let leaving = stages.map(|stage| Some((2, stage))).into_iter().chain([None]);
        for (leaving, changes) in leaving.flat_map(|leaving| [(leaving, 0), (leaving, u32::MAX)]) {
            let roster = Roster { count: 3, leaving, changes };
            assert_eq!(Roster::parse(roster.word()), Some(roster));
            let line = roster.followed(2);
            assert_eq!((reached(line), roster.is_followed_by(line)), (2, true));
            assert!(!roster.changed(leaving).is_followed_by(line));
        }
        // A pool of the format's first programs has a count alone.
        assert_eq!(Roster::parse(5), Some(Roster { count: 5, leaving: None, changes: 0 }));
        let stage = (Stage::Moving as u64) << STAGE_AT;
        let no_node = [3 | 3 << LEAVING_AT | stage, 3 | stage];
        for word in [0, 3 | 1 << LEAVING_AT, 3 | 1 << 20].into_iter().chain(no_node) {
            assert_eq!(Roster::parse(word), None, "{word:#x}");
        }
    }
}
