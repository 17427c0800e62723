//! A block's word in the block table: which member may cut slabs from the block.
//!
//! ```text
//!  63  60 59  56 55    48 47          32 31                     0
//! +------+------+--------+--------------+------------------------+
//! | state| kind | member |   sequence   | incarnation, or room   |
//! +------+------+--------+--------------+------------------------+
//!
//!            grant                  close
//!   FREE ------------> OWNED(me) ------------> CLOSED ---.
//!    ^  `<-- return ---'  |  ^                    |      | adopt for allocation: OWNED(me)
//!    |                    |  `--------------------+------'
//!    |           owner's  | death                 | adopt for a sweep
//!    |                    v                       v
//!    |                 SWEEPING(me) <-------------'
//!    `--- if empty -------'`---- once swept ---> CLOSED
//! ```
//!
//! Every change is one CAS and increments the sequence. A late CAS of a cancelled operation thus
//! finds another word, even if the block has come back to the same owner. (The sequence wraps after
//! 65,536 changes; no verb is in flight that long.) If a word's member line no longer shows the
//! incarnation, the owner is dead. CLOSED stores an estimate of the room left, in 16-byte units, in
//! place of the incarnation.

use super::object::AllocKind;

/// Which member may cut slabs from a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// No member; nothing in it is in use.
    Free,
    /// The named incarnation of the named member; its books are in that member's memory.
    Owned,
    /// No member; its page words and freed bitmaps are exact.
    Closed,
    /// No member; the named one is determining what is in use.
    Sweeping,
}

/// A decoded word of the block table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockWord {
    pub state: BlockState,
    pub kind: AllocKind,
    pub member: u8,
    pub sequence: u16,
    /// Incarnation of the owner; for CLOSED, free room in 16-byte units.
    pub low: u32,
}

impl BlockWord {
    /// Decodes a word; returns `None` if no program writes such a word.
    pub(crate) fn decode(word: u64) -> Option<Self> {
        let state = match word >> 60 {
            0 => BlockState::Free,
            1 => BlockState::Owned,
            2 => BlockState::Closed,
            3 => BlockState::Sweeping,
            _ => return None,
        };
        let kind = match word >> 56 & 0xf {
            0 => AllocKind::Inner,
            1 => AllocKind::Leaf,
            _ => return None,
        };
        Some(Self {
            state,
            kind,
            member: (word >> 48) as u8,
            sequence: (word >> 32) as u16,
            low: word as u32,
        })
    }

    /// Encodes the word.
    pub(crate) fn encode(self) -> u64 {
        let state = match self.state {
            BlockState::Free => 0,
            BlockState::Owned => 1,
            BlockState::Closed => 2,
            BlockState::Sweeping => 3u64,
        };
        state << 60
            | (self.kind as u64) << 56
            | u64::from(self.member) << 48
            | u64::from(self.sequence) << 32
            | u64::from(self.low)
    }

    /// The next word of this block, in another state.
    pub(crate) fn next(self, state: BlockState, kind: AllocKind, owner: MemberId) -> Self {
        Self {
            state,
            kind,
            member: owner.member,
            sequence: self.sequence.wrapping_add(1),
            low: owner.incarnation,
        }
    }

    /// The word after the block is given back.
    pub(crate) fn freed(self) -> Self {
        self.next(BlockState::Free, AllocKind::Inner, MemberId { member: 0, incarnation: 0 })
    }

    /// The word after a clean close with `room` bytes free.
    pub(crate) fn closed(self, room: u64) -> Self {
        let units = u32::try_from(room / 16).unwrap_or(u32::MAX);
        self.next(BlockState::Closed, self.kind, MemberId { member: 0, incarnation: units })
    }

    /// Bytes that the last owner left free in a closed block; 0 for any other.
    pub(crate) fn closed_room(self) -> u64 {
        if self.state == BlockState::Closed { u64::from(self.low) * 16 } else { 0 }
    }

    /// Returns the owner, in the states that name one.
    pub(crate) fn owner(self) -> Option<MemberId> {
        let named = matches!(self.state, BlockState::Owned | BlockState::Sweeping);
        named.then_some(MemberId { member: self.member, incarnation: self.low })
    }
}

/// One incarnation of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberId {
    /// Its slot in the member table.
    pub member: u8,
    /// Number of times the slot was taken. Never 0.
    pub incarnation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_and_nonsense_is_refused() {
        let owner = MemberId { member: 200, incarnation: 0xdead_beef };
        let free = BlockWord::decode(0).unwrap();
        let owned = free.next(BlockState::Owned, AllocKind::Leaf, owner);
        assert_eq!(BlockWord::decode(owned.encode()), Some(owned));
        assert_eq!(owned.owner(), Some(owner));
        let closed = owned.closed(1 << 20);
        assert_eq!((closed.kind, closed.low, closed.sequence), (AllocKind::Leaf, 1 << 16, 2));
        assert_eq!(BlockWord::decode(4 << 60), None);
        assert_eq!(BlockWord::decode(2 << 56), None);
        assert_eq!(owned.freed().owner(), None);
    }
}
