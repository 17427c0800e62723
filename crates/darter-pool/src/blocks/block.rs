//! A block's word in the block table: which member may cut slabs from the block.
//!
//! ```text
//!  63  60 59  56 55    48 47          32 31                     0
//! +------+------+--------+--------------+------------------------+
//! | state| kind | member |   sequence   |      incarnation       |  OWNED, SWEEPING
//! +------+------+--------+--------------+---------+--------------+
//! | state| kind | check  |   sequence   |  check  |     room     |  CLOSED: 22 bits of room
//! +------+------+--------+--------------+---------+--------------+
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
//! incarnation, the owner is dead.
//!
//! In place of the owner, CLOSED stores the room that was left, in 16-byte units, and 18 bits of a
//! checksum of the block's page words (`close`).

use super::object::AllocKind;
use crate::checksum::{checksum, spread};

/// Seed of the checksum of page words.
const SEED: u64 = 0x426c_6f63_6b20_7061;
/// Bits of the room in a CLOSED word. A block of the largest size is FREE if all of it is.
const ROOM_BITS: u32 = 22;

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
    /// Incarnation of the owner; for CLOSED, a part of the check, and the room.
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
        let (member, low) = ((word >> 48) as u8, word as u32);
        let is_sound = state != BlockState::Free || (kind, member, low) == (AllocKind::Inner, 0, 0);
        is_sound.then_some(Self { state, kind, member, sequence: (word >> 32) as u16, low })
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

    /// The word after a clean close with `room` bytes free, which leaves these page words.
    pub(crate) fn closed(self, room: u64, page_words: &[u64]) -> Self {
        let units = (room / 16).min((1 << ROOM_BITS) - 1) as u32;
        let check = check(page_words);
        let owner = MemberId { member: (check >> 10) as u8, incarnation: check << ROOM_BITS | units };
        self.next(BlockState::Closed, self.kind, owner)
    }

    /// The word of a closed block that a member took over, with the word `owned`, and leaves as it was.
    pub(crate) fn closed_again(self, owned: Self) -> Self {
        Self { sequence: owned.sequence.wrapping_add(1), ..self }
    }

    /// Bytes that the last owner left free in a closed block; 0 for any other.
    pub(crate) fn closed_room(self) -> u64 {
        let units = u64::from(self.low) & ((1 << ROOM_BITS) - 1);
        if self.state == BlockState::Closed { units * 16 } else { 0 }
    }

    /// Whether the last owner left these page words in a closed block.
    pub(crate) fn has_left(self, page_words: &[u64]) -> bool {
        check(page_words) == u32::from(self.member) << 10 | self.low >> ROOM_BITS
    }

    /// Returns the owner, in the states that name one.
    pub(crate) fn owner(self) -> Option<MemberId> {
        let named = matches!(self.state, BlockState::Owned | BlockState::Sweeping);
        named.then_some(MemberId { member: self.member, incarnation: self.low })
    }
}

/// 18 bits that depend on all bits of a block's page words.
fn check(page_words: &[u64]) -> u32 {
    (spread(checksum(SEED, page_words)) >> 46) as u32
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
        let words = [0x123, 0, 0x10b];
        let closed = owned.closed(1 << 20, &words);
        assert_eq!(BlockWord::decode(closed.encode()), Some(closed));
        assert_eq!((closed.kind, closed.closed_room(), closed.sequence), (AllocKind::Leaf, 1 << 20, 2));
        assert!(closed.has_left(&words));
        for (at, bit) in (0..3).flat_map(|at| (0..64).map(move |bit| (at, bit))) {
            let mut other = words;
            other[at] ^= 1 << bit;
            assert!(!closed.has_left(&other), "bit {bit} of word {at}");
        }
        assert!(!closed.has_left(&[0; 3]) && !owned.closed(0, &[0; 3]).has_left(&words));
        let again = closed.closed_again(closed.next(BlockState::Owned, AllocKind::Leaf, owner));
        assert_eq!((again.closed_room(), again.sequence, again.has_left(&words)), (1 << 20, 4, true));
        assert_eq!(owned.closed(64 << 20, &words).closed_room(), (64 << 20) - 16);
        assert_eq!(BlockWord::decode(4 << 60), None);
        assert_eq!(BlockWord::decode(2 << 56), None);
        assert_eq!([1 << 48, 1, 1 << 56].map(BlockWord::decode), [None; 3], "free words name nothing");
        assert_eq!(owned.freed().owner(), None);
    }
}
