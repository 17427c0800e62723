//! How a domain's ordinals are shared among classes of address: `john84` is a given name with two
//! digits, and so on.
//!
//! Each [`Class`] has a weight, and room for as many addresses as it has stems that fit times digit
//! strings. Ordinals are dealt out in blocks: in a block every class gets its weight. When a class
//! has no room for another block it leaves, and a new phase begins with the rest. Small domains
//! stay within the first phase and have the common forms; large ones go on to those with more
//! digits. What a place is depends on the ordinal alone, so the deal is injective and needs no
//! memory.

use super::stems::{Kind, Stems};
use darter_bench::permutation::{Permutation, derive_seed};

/// Digits after the stem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suffix {
    /// None.
    None,
    /// One.
    One,
    /// Two.
    Two,
    /// Three.
    Three,
    /// A year of birth, 1950 to 2009.
    Year,
    /// Four that are no such year.
    Four,
}

const YEARS: std::ops::Range<u64> = 1950..2010;

impl Suffix {
    const fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
            Self::Year | Self::Four => 4,
        }
    }

    /// Returns the number of digit strings.
    const fn count(self) -> u64 {
        match self {
            Self::None => 1,
            Self::One => 10,
            Self::Two => 100,
            Self::Three => 1000,
            Self::Year => YEARS.end - YEARS.start,
            Self::Four => 10_000 - Self::Year.count(),
        }
    }

    /// Appends the digits that are number `number`.
    pub(super) fn push(self, number: u64, out: &mut Vec<u8>) {
        let mut rest = match self {
            Self::Year => YEARS.start + number,
            Self::Four if number >= YEARS.start => number + Self::Year.count(),
            _ => number,
        };
        let begin = out.len();
        out.resize(begin + self.bytes(), b'0');
        for digit in out[begin..].iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
    }
}

/// A form of address with its weight.
struct Class {
    kind: Kind,
    suffix: Suffix,
    weight: u16,
}

const fn class(kind: Kind, suffix: Suffix, weight: u16) -> Class {
    Class { kind, suffix, weight }
}

/// The forms. Weights are chosen for a mean key of 18 bytes from a hundred thousand to a hundred
/// million records.
const CLASSES: &[Class] = &[
    class(Kind::Letter, Suffix::None, 1),
    class(Kind::Letter, Suffix::Two, 1),
    class(Kind::FirstCommon, Suffix::None, 4),
    class(Kind::FirstCommon, Suffix::Two, 8),
    class(Kind::FirstCommon, Suffix::Three, 7),
    class(Kind::FirstCommon, Suffix::Year, 3),
    class(Kind::FirstCommon, Suffix::Four, 3),
    class(Kind::First, Suffix::None, 4),
    class(Kind::First, Suffix::One, 4),
    class(Kind::First, Suffix::Two, 8),
    class(Kind::First, Suffix::Three, 6),
    class(Kind::First, Suffix::Year, 2),
    class(Kind::LastCommon, Suffix::None, 2),
    class(Kind::LastCommon, Suffix::Two, 3),
    class(Kind::Last, Suffix::None, 3),
    class(Kind::Last, Suffix::Two, 4),
    class(Kind::Word, Suffix::None, 3),
    class(Kind::Word, Suffix::Two, 4),
    class(Kind::Word, Suffix::Three, 4),
    class(Kind::InitialLastCommon, Suffix::None, 7),
    class(Kind::InitialLastCommon, Suffix::Two, 5),
    class(Kind::InitialLast, Suffix::None, 6),
    class(Kind::InitialLast, Suffix::One, 4),
    class(Kind::InitialLast, Suffix::Two, 4),
    class(Kind::FirstInitial, Suffix::None, 6),
    class(Kind::FirstInitial, Suffix::One, 5),
    class(Kind::FirstInitial, Suffix::Two, 8),
    class(Kind::FirstInitial, Suffix::Three, 5),
    class(Kind::DottedCommon, Suffix::None, 4),
    class(Kind::DottedCommon, Suffix::Two, 2),
    class(Kind::Dotted, Suffix::None, 3),
    class(Kind::Dotted, Suffix::One, 1),
    class(Kind::Dotted, Suffix::Four, 1),
    class(Kind::JoinedCommon, Suffix::None, 3),
    class(Kind::JoinedCommon, Suffix::Two, 2),
    class(Kind::Joined, Suffix::None, 2),
    class(Kind::Joined, Suffix::Two, 2),
    class(Kind::Underscored, Suffix::None, 2),
    class(Kind::Underscored, Suffix::Two, 2),
    class(Kind::InitialDotted, Suffix::None, 3),
    class(Kind::InitialDotted, Suffix::Two, 2),
    class(Kind::WordWord, Suffix::None, 4),
    class(Kind::WordWord, Suffix::Two, 3),
    class(Kind::Initials, Suffix::None, 4),
    class(Kind::Initials, Suffix::Two, 12),
    class(Kind::Initials, Suffix::Three, 18),
    class(Kind::Initials, Suffix::Year, 4),
    class(Kind::Initials, Suffix::Four, 8),
    class(Kind::NickShort, Suffix::None, 6),
    class(Kind::NickShort, Suffix::Two, 13),
    class(Kind::NickShort, Suffix::Three, 15),
    class(Kind::NickShort, Suffix::Four, 5),
    class(Kind::Nick, Suffix::None, 14),
    class(Kind::Nick, Suffix::One, 8),
    class(Kind::Nick, Suffix::Two, 12),
];

/// The place of an ordinal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    /// Number of the class.
    pub(super) class: usize,
    /// Its stems.
    pub(super) kind: Kind,
    /// Its digits.
    pub(super) suffix: Suffix,
    /// Its stems that fit.
    pub(super) stems: u64,
    /// Addresses it has room for.
    pub(super) capacity: u64,
    /// The number of the address among these, before any shuffle.
    pub(super) ordinal: u64,
}

/// A stretch of ordinals dealt to the same classes.
#[derive(Debug)]
struct Phase {
    /// Ordinals before it.
    begin: u64,
    blocks: u64,
    /// A block's positions: the class, and how many of that class come before.
    pattern: Vec<(u8, u16)>,
    /// By class: addresses given out before.
    given: Vec<u64>,
}

/// The deal for all domains that leave the same number of bytes.
#[derive(Debug)]
pub(super) struct Plan {
    phases: Vec<Phase>,
    /// By class: stems that fit.
    stems: Vec<u64>,
    capacity: u64,
}

impl Plan {
    /// The deal for local parts of at most `bytes_max` bytes.
    pub(super) fn new(stems: &Stems, bytes_max: usize, seed: u64) -> Self {
        let fitting: Vec<u64> = CLASSES
            .iter()
            .map(|class| {
                bytes_max.checked_sub(class.suffix.bytes()).map_or(0, |n| stems.count(class.kind, n))
            })
            .collect();
        let room: Vec<u64> = fitting.iter().zip(CLASSES).map(|(n, class)| n * class.suffix.count()).collect();
        let mut plan = Self { phases: Vec::new(), stems: fitting, capacity: 0 };
        let mut given = vec![0; CLASSES.len()];
        loop {
            let blocks_left = |class: usize| (room[class] - given[class]) / u64::from(CLASSES[class].weight);
            let active: Vec<usize> = (0..CLASSES.len()).filter(|&class| blocks_left(class) > 0).collect();
            let Some(blocks) = active.iter().map(|&class| blocks_left(class)).min() else { break };
            let pattern = pattern(&active, derive_seed(seed, plan.phases.len() as u64));
            let dealt = blocks * pattern.len() as u64;
            plan.phases.push(Phase { begin: plan.capacity, blocks, pattern, given: given.clone() });
            plan.capacity += dealt;
            for class in active {
                given[class] += blocks * u64::from(CLASSES[class].weight);
            }
        }
        plan
    }

    /// Returns the number of ordinals that fit.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the place of `ordinal`, which is below the capacity. `turn` rotates the order within
    /// blocks, so that domains differ.
    pub(super) fn place(&self, ordinal: u64, turn: u64) -> Address {
        debug_assert!(ordinal < self.capacity);
        let phase = &self.phases[self.phases.partition_point(|phase| phase.begin <= ordinal) - 1];
        let width = phase.pattern.len() as u64;
        let (block, position) = ((ordinal - phase.begin) / width, (ordinal - phase.begin) % width);
        debug_assert!(block < phase.blocks);
        let (number, rank) = phase.pattern[((position + turn % width) % width) as usize];
        let class = usize::from(number);
        let Class { kind, suffix, weight } = CLASSES[class];
        let stems = self.stems[class];
        Address {
            class,
            kind,
            suffix,
            stems,
            capacity: stems * suffix.count(),
            ordinal: phase.given[class] + block * u64::from(weight) + u64::from(rank),
        }
    }
}

/// The positions of a block, shuffled.
fn pattern(active: &[usize], key: u64) -> Vec<(u8, u16)> {
    let ranked: Vec<(u8, u16)> = active
        .iter()
        .flat_map(|&class| (0..CLASSES[class].weight).map(move |rank| (class as u8, rank)))
        .collect();
    let order = Permutation::new(ranked.len() as u64);
    (0..ranked.len() as u64).map(|position| ranked[order.apply(position, key) as usize]).collect()
}

const _: () = assert!(CLASSES.len() <= 256);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_place_is_given_once() {
        let stems = Stems::new();
        // A long domain: little room, so that many phases pass.
        let plan = Plan::new(&stems, 5, 3);
        assert!(plan.phases.len() > 10 && plan.capacity() > 100_000);
        let mut seen = HashSet::new();
        for ordinal in 0..plan.capacity().min(2_000_000) {
            let place = plan.place(ordinal, 77);
            assert!(place.ordinal < place.capacity);
            assert!(seen.insert((place.class, place.ordinal)), "ordinal {ordinal}");
        }
    }

    #[test]
    fn digit_strings_are_distinct() {
        let mut seen = HashSet::new();
        for suffix in [Suffix::None, Suffix::One, Suffix::Two, Suffix::Three, Suffix::Year, Suffix::Four] {
            for number in 0..suffix.count() {
                let mut out = Vec::new();
                suffix.push(number, &mut out);
                assert_eq!(out.len(), suffix.bytes());
                assert!(out.iter().all(u8::is_ascii_digit) && seen.insert(out), "{suffix:?} {number}");
            }
        }
        assert_eq!(seen.len(), 11_111);
    }
}
