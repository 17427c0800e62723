//! The member lines of a pool, as far as memory nodes know them: where the lines are, and what a
//! session with a read-only token may change.
//!
//! A process that reads takes part in a pool by writing to its member line: that it lives, and in
//! which epoch it reads. So a memory node lets a session with a read-only token change the line of
//! the slot that it has claimed, and raise the count of lines in use, and change nothing else:
//! [`OwnLine`]. A session that could change more than the protocol needs could harm others by that:
//! a line that names another process gets that process fenced, and a line with an earlier
//! incarnation takes over the blocks of a dead member. Crate `darter-pool` (`members/member.rs`)
//! has the protocol.

use crate::{Verb, VerbKind};

/// The offset of the first member line, on memory node 0.
pub const MEMBER_LINES_AT: u64 = 4096;
/// Bytes of a member line.
pub const MEMBER_LINE_BYTES: u64 = 64;
/// The number of member lines.
pub const MEMBER_LINES: u64 = 256;
/// The offset of the word that counts the member lines that were ever used, on memory node 0.
pub const MEMBER_LINES_USED_AT: u64 = 136;
/// Maximum number of member lines that sessions with read-only tokens hold at a time. The others are
/// left to sessions that may write.
pub const READERS_MAX: usize = 192;
/// The bit of a line's heartbeat which says that the member only reads.
pub const READS_ONLY: u64 = 1 << 57;

/// Words of a line.
const WORDS: usize = (MEMBER_LINE_BYTES / 8) as usize;
/// Its state: 1 if the member is live, and its incarnation in the lower half.
const STATE: usize = 0;
const HEARTBEAT: usize = 3;
/// The name of the process that holds it.
const HOLDER: usize = 6;
const LIVE: u64 = 1;

/// The member line of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnLine {
    /// The slot.
    pub slot: u64,
    /// The session's name, [`crate::Identity::holder`].
    pub holder: u64,
}

impl OwnLine {
    /// Returns the slot of the line that has the byte at this offset.
    pub fn slot_at(offset: u64) -> Option<u64> {
        let slot = offset.checked_sub(MEMBER_LINES_AT)? / MEMBER_LINE_BYTES;
        (slot < MEMBER_LINES).then_some(slot)
    }

    /// Returns the offset of the line.
    pub fn offset(self) -> u64 {
        MEMBER_LINES_AT + self.slot * MEMBER_LINE_BYTES
    }

    /// Returns whether a line's bytes say that a member is live there.
    pub fn is_live(line: &[u8; MEMBER_LINE_BYTES as usize]) -> bool {
        word(line, STATE) >> 32 == LIVE
    }

    /// Returns whether the line's bytes say that this session is live there, and only reads.
    pub fn is_held(self, line: &[u8; MEMBER_LINE_BYTES as usize]) -> bool {
        let reads_only = word(line, HEARTBEAT) & READS_ONLY != 0;
        Self::is_live(line) && word(line, HOLDER) == self.holder && reads_only
    }

    /// Returns whether a verb, whose words are `carried`, changes nothing but the line as the protocol
    /// needs it:
    ///
    /// - a WRITE of words 1 to 7, in which the holder is this session;
    /// - a CAS of word 0 by which the member goes live in the next incarnation, or ends;
    /// - a CAS that raises the number of lines in use so far that it includes this one.
    pub fn may_change(self, verb: &Verb, carried: &[u8]) -> bool {
        let offset = verb.addr.offset();
        match verb.kind {
            VerbKind::Read => true,
            VerbKind::Write => {
                let Some(first) = offset.checked_sub(self.offset()).filter(|bytes| bytes.is_multiple_of(8))
                else {
                    return false;
                };
                let (first, words) = (first / 8, u64::from(verb.words));
                let is_inside = first > STATE as u64 && first + words <= WORDS as u64;
                let holder = (HOLDER as u64).checked_sub(first).filter(|at| *at < words);
                is_inside && holder.is_none_or(|at| word(carried, at as usize) == self.holder)
            }
            VerbKind::Cas => {
                let (expected, desired) = (word(carried, 0), word(carried, 1));
                if offset == MEMBER_LINES_USED_AT {
                    return expected < desired && desired == self.slot + 1;
                }
                let incarnation = expected as u32;
                let begins =
                    expected >> 32 == 0 && desired == LIVE << 32 | u64::from(incarnation.wrapping_add(1));
                let ends = expected >> 32 == LIVE && desired == u64::from(incarnation);
                offset == self.offset() && (begins || ends)
            }
            VerbKind::Faa => false,
        }
    }
}

/// Returns a word of some bytes, little-endian; 0 beyond their end.
fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at * 8..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GlobalAddr;

    const OWN: OwnLine = OwnLine { slot: 5, holder: 77 };

    fn may_change(kind: VerbKind, offset: u64, words: &[u64]) -> bool {
        let count = if kind == VerbKind::Write { words.len() as u32 } else { 1 };
        let addr = GlobalAddr::new(0, offset);
        let verb = Verb { kind, addr, at: 0, words: count, is_fenced: false, is_volatile: false };
        let carried: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        OWN.may_change(&verb, &carried)
    }

    #[test]
    fn a_session_writes_its_own_line_and_names_itself() {
        let line = OWN.offset();
        let own = [1, 2, READS_ONLY, 4, 0, 77, 7];
        assert!(may_change(VerbKind::Write, line + 8, &own));
        assert!(may_change(VerbKind::Write, line + 24, &[READS_ONLY | 5]));
        let other = [1, 2, READS_ONLY, 4, 0, 78, 7];
        assert!(!may_change(VerbKind::Write, line + 8, &other), "it names another process");
        assert!(!may_change(VerbKind::Write, line + 48, &[78]));
        assert!(!may_change(VerbKind::Write, line, &[1 << 32]), "its state changes by CAS");
        assert!(!may_change(VerbKind::Write, line + 16, &own), "beyond its end");
        assert!(!may_change(VerbKind::Write, line + 12, &[1]), "not aligned");
        for offset in (0..MEMBER_LINES_AT + MEMBER_LINES * MEMBER_LINE_BYTES + 4096).step_by(8) {
            let is_inside = (line + 8..line + 64).contains(&offset);
            assert_eq!(may_change(VerbKind::Write, offset, &[77]), is_inside, "{offset}");
            assert!(!may_change(VerbKind::Faa, offset, &[0]), "{offset}");
            assert!(may_change(VerbKind::Read, offset, &[]));
        }
    }

    #[test]
    fn a_session_goes_live_and_ends_and_counts_its_line() {
        let line = OWN.offset();
        let (free, live) = (|incarnation: u64| incarnation, |incarnation: u64| 1 << 32 | incarnation);
        for (expected, desired, may) in [
            (free(8), live(9), true),
            (free(0xffff_ffff), live(0), true),
            (live(9), free(9), true),
            (free(8), live(8), false),
            (free(8), live(10), false),
            (free(8), free(9), false),
            (live(8), live(9), false),
            (live(9), free(8), false),
            (2 << 32 | 8, live(9), false),
        ] {
            assert_eq!(
                may_change(VerbKind::Cas, line, &[expected, desired]),
                may,
                "{expected:#x} {desired:#x}"
            );
            assert!(!may_change(VerbKind::Cas, line + 8, &[expected, desired]));
            assert!(!may_change(VerbKind::Cas, line + MEMBER_LINE_BYTES, &[expected, desired]));
        }
        for (expected, desired, may) in
            [(0, 6, true), (5, 6, true), (6, 6, false), (0, 7, false), (7, 6, false)]
        {
            assert_eq!(may_change(VerbKind::Cas, MEMBER_LINES_USED_AT, &[expected, desired]), may);
        }
    }

    #[test]
    fn a_line_tells_whose_it_is() {
        let mut line = [0; 64];
        let mut set = |at: usize, word: u64| {
            line[at * 8..][..8].copy_from_slice(&word.to_le_bytes());
            OWN.is_held(&line)
        };
        assert!(!set(STATE, 1 << 32 | 9) && !set(HOLDER, 77));
        assert!(set(HEARTBEAT, READS_ONLY | 3));
        assert!(!set(HOLDER, 78) && set(HOLDER, 77));
        assert!(!set(STATE, 9) && set(STATE, 1 << 32));
        assert!(!set(HEARTBEAT, 1 << 56), "a member that writes");
        assert_eq!(OwnLine::slot_at(OWN.offset() + 63), Some(5));
        assert_eq!([0, 4095, 4096 + 256 * 64].map(OwnLine::slot_at), [None; 3]);
    }
}
