//! Stems: the part of an address between '@' and the digits, such as `john.smith`, `jsmith`,
//! `mikado`.
//!
//! All stems are distinct and free of digits, so that a stem followed by digits can be read back in
//! one way only: this is what makes addresses distinct. About a million stems are built at start,
//! 20 MB in all, grouped by [`Kind`] and within a kind by length, so that those that fit a long
//! domain are a prefix of the kind's list.

use super::names::{CONSONANTS, FIRST, LAST, VOWELS, WORD};
use darter_bench::permutation::mix64;
use std::collections::HashSet;

/// Longest local part, and therefore longest stem.
pub(super) const STEM_BYTES_MAX: usize = 31;
/// How many names of a list count as common.
const COMMON: usize = 100;

/// Ways people name their mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Kind {
    /// One letter.
    Letter,
    /// `john`, a common one.
    FirstCommon,
    /// Any other given name.
    First,
    /// `smith`, a common one.
    LastCommon,
    /// Any other family name.
    Last,
    /// `info`.
    Word,
    /// `jsmith`, the name a common one.
    InitialLastCommon,
    /// `jwisniewski`.
    InitialLast,
    /// `johns`.
    FirstInitial,
    /// `john.smith`, both common.
    DottedCommon,
    /// `piotr.smith`.
    Dotted,
    /// `johnsmith`, both common.
    JoinedCommon,
    /// `piotrsmith`.
    Joined,
    /// `john_smith`, both common.
    Underscored,
    /// `j.smith`.
    InitialDotted,
    /// `bluesky`.
    WordWord,
    /// `jrs`, two or three letters.
    Initials,
    /// Two syllables.
    NickShort,
    /// Three syllables.
    Nick,
}

impl Kind {
    const COUNT: usize = Self::Nick as usize + 1;
}

/// The position of a kind's stems.
#[derive(Clone, Copy, Debug, Default)]
struct KindStems {
    first: usize,
    /// `up_to[n]` counts the stems of at most `n` bytes.
    up_to: [u32; STEM_BYTES_MAX + 1],
}

/// All stems.
#[derive(Debug)]
pub(super) struct Stems {
    text: Vec<u8>,
    ends: Vec<u32>,
    kinds: [KindStems; Kind::COUNT],
}

impl Stems {
    /// Builds all stems; a stem that two kinds could give belongs to the first that does.
    pub(super) fn new() -> Self {
        let mut builder = Builder { seen: HashSet::new(), stems: Self::empty() };
        let first: Vec<&str> = FIRST.split_whitespace().collect();
        let last: Vec<&str> = LAST.split_whitespace().collect();
        let word: Vec<&str> = WORD.split_whitespace().collect();
        let letters: Vec<String> = ('a'..='z').map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        let (first_common, last_common) = (&first[..COMMON], &last[..COMMON]);

        builder.add(Kind::Letter, letters.iter().copied());
        builder.add(Kind::FirstCommon, first_common.iter().copied());
        builder.add(Kind::First, first.iter().copied());
        builder.add(Kind::LastCommon, last_common.iter().copied());
        builder.add(Kind::Last, last.iter().copied());
        builder.add(Kind::Word, word.iter().copied());
        builder.pairs(Kind::InitialLastCommon, &letters, "", last_common);
        builder.pairs(Kind::InitialLast, &letters, "", &last);
        builder.pairs(Kind::FirstInitial, &first, "", &letters);
        builder.pairs(Kind::DottedCommon, first_common, ".", last_common);
        builder.pairs(Kind::Dotted, &first, ".", &last);
        builder.pairs(Kind::JoinedCommon, first_common, "", last_common);
        builder.pairs(Kind::Joined, &first, "", &last);
        builder.pairs(Kind::Underscored, first_common, "_", last_common);
        builder.pairs(Kind::InitialDotted, &letters, ".", &last);
        builder.pairs(Kind::WordWord, &word, "", &word);
        let two: Vec<String> =
            letters.iter().flat_map(|a| letters.iter().map(move |b| format!("{a}{b}"))).collect();
        let after_first: Vec<&str> = letters.iter().copied().chain(two.iter().map(String::as_str)).collect();
        builder.pairs(Kind::Initials, &letters, "", &after_first);
        let syllables: Vec<String> = CONSONANTS
            .iter()
            .flat_map(|&c| VOWELS.iter().map(move |&v| [char::from(c), char::from(v)].iter().collect()))
            .collect();
        let syllables: Vec<&str> = syllables.iter().map(String::as_str).collect();
        builder.pairs(Kind::NickShort, &syllables, "", &syllables);
        let doubles: Vec<String> =
            syllables.iter().flat_map(|a| syllables.iter().map(move |b| format!("{a}{b}"))).collect();
        let doubles: Vec<&str> = doubles.iter().map(String::as_str).collect();
        builder.pairs(Kind::Nick, &syllables, "", &doubles);
        builder.stems
    }

    fn empty() -> Self {
        Self { text: Vec::new(), ends: Vec::new(), kinds: [KindStems::default(); Kind::COUNT] }
    }

    /// Returns how many stems of a kind have at most `bytes` bytes.
    pub(super) fn count(&self, kind: Kind, bytes: usize) -> u64 {
        u64::from(self.kinds[kind as usize].up_to[bytes.min(STEM_BYTES_MAX)])
    }

    /// Returns a stem of a kind, the shortest first.
    pub(super) fn get(&self, kind: Kind, number: u64) -> &[u8] {
        let stem = self.kinds[kind as usize].first + number as usize;
        let begin = if stem == 0 { 0 } else { self.ends[stem - 1] };
        &self.text[begin as usize..self.ends[stem] as usize]
    }
}

/// A list of stems under construction.
struct Builder {
    /// Hashes of the stems so far. If two stems have one hash, the second is left out.
    seen: HashSet<u64>,
    stems: Stems,
}

impl Builder {
    fn pairs(&mut self, kind: Kind, left: &[&str], between: &str, right: &[&str]) {
        let pairs = left.iter().flat_map(|a| right.iter().map(move |b| format!("{a}{between}{b}")));
        self.add(kind, pairs.collect::<Vec<_>>().iter().map(String::as_str));
    }

    fn add<'a>(&mut self, kind: Kind, candidates: impl Iterator<Item = &'a str>) {
        let mut by_length: [Vec<&str>; STEM_BYTES_MAX + 1] = std::array::from_fn(|_| Vec::new());
        for stem in candidates {
            if stem.len() <= STEM_BYTES_MAX && self.seen.insert(hash(stem)) {
                by_length[stem.len()].push(stem);
            }
        }
        let stems = &mut self.stems;
        let mut into = KindStems { first: stems.ends.len(), ..KindStems::default() };
        for (bytes, group) in by_length.iter().enumerate() {
            for stem in group {
                stems.text.extend_from_slice(stem.as_bytes());
                stems.ends.push(stems.text.len() as u32);
            }
            into.up_to[bytes] = (stems.ends.len() - into.first) as u32;
        }
        stems.kinds[kind as usize] = into;
    }
}

fn hash(stem: &str) -> u64 {
    stem.bytes().fold(0, |hash, byte| mix64(hash ^ u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_distinct_and_free_of_digits() {
        let stems = Stems::new();
        let mut seen = HashSet::new();
        for number in 0..stems.ends.len() {
            let begin = if number == 0 { 0 } else { stems.ends[number - 1] as usize };
            let stem = &stems.text[begin..stems.ends[number] as usize];
            assert!(stem.iter().all(|byte| byte.is_ascii_lowercase() || b"._".contains(byte)), "{stem:?}");
            assert!(!stem.is_empty() && seen.insert(stem));
        }
    }

    #[test]
    fn kinds_are_grouped_by_length() {
        let stems = Stems::new();
        for kind in [Kind::Letter, Kind::FirstCommon, Kind::Dotted, Kind::Initials, Kind::Nick] {
            let all = stems.count(kind, STEM_BYTES_MAX);
            assert!(all > 0);
            for bytes in 1..=STEM_BYTES_MAX {
                let fit = stems.count(kind, bytes);
                assert!(fit == 0 || stems.get(kind, fit - 1).len() <= bytes);
                assert!(fit == all || stems.get(kind, fit).len() > bytes);
            }
        }
        assert_eq!(stems.count(Kind::Letter, 1), 26);
        assert_eq!(stems.count(Kind::FirstCommon, 2), 1, "li");
    }
}
