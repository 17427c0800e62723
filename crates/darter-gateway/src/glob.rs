//! Glob patterns as Redis matches them: `*`, `?`, `[a-z]`, `[^…]`, `\`.
//!
//! When the pattern after a `*` fails to match, that `*` takes one byte more, and the `*` before it
//! is forgotten. So there is no recursion, and a match costs at most the product of both lengths. A
//! match stops after a number of steps and continues later, so that other clients get their turn
//! regardless of the lengths of pattern and text.

use super::fault::Fault;
use darter_fabric::turns;

/// Maximum bytes of a pattern: those of the longest key.
const PATTERN_BYTES_MAX: usize = 64 << 10;
/// Steps of matching between two points at which a turn may end: about 0.1 ms.
const TURN_STEPS: usize = 32 << 10;
/// The work of a step, in bytes.
const STEP_BYTES: usize = 8;

/// An element of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Element {
    /// Any number of bytes.
    Star,
    /// Any byte.
    One,
    /// This byte.
    Byte(u8),
    /// The bytes whose bit is set.
    Class(Box<[u64; 4]>),
}

/// A parsed pattern.
#[derive(Debug)]
pub(super) struct Glob {
    elements: Vec<Element>,
    /// Bytes of the shortest text that can match.
    shortest: usize,
}

/// The progress of a match.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The next element.
    at: usize,
    /// The next byte of the text.
    behind: usize,
    /// The position at which to resume with one byte more for the last `*`.
    retry: Option<(usize, usize)>,
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Fails if it is longer than every key.
    pub(super) fn parse(pattern: &[u8]) -> Result<Self, Fault> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(Fault::said(format!(
                "ERR pattern of {} bytes: patterns hold at most {PATTERN_BYTES_MAX} bytes; shorten it",
                pattern.len()
            )));
        }
        let (mut elements, mut at) = (Vec::new(), 0);
        while let Some(&byte) = pattern.get(at) {
            let (element, taken) = match (byte, pattern.get(at + 1)) {
                (b'*', _) => (Element::Star, 1),
                (b'?', _) => (Element::One, 1),
                (b'[', _) => class(&pattern[at..]),
                (b'\\', Some(&escaped)) => (Element::Byte(escaped), 2),
                (literal, _) => (Element::Byte(literal), 1),
            };
            at += taken;
            if element != Element::Star || elements.last() != Some(&Element::Star) {
                elements.push(element);
            }
        }
        let shortest = elements.iter().filter(|element| **element != Element::Star).count();
        Ok(Self { elements, shortest })
    }

    /// Returns whether a short text matches.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let (mut progress, mut steps) = (Progress::default(), usize::MAX);
        self.advance(&mut progress, text, &mut steps).unwrap_or(false)
    }

    /// Returns whether a text of any length matches. Lets other clients have turns.
    pub(super) async fn decides(&self, text: &[u8]) -> bool {
        let mut progress = Progress::default();
        loop {
            let mut steps = TURN_STEPS;
            let decided = self.advance(&mut progress, text, &mut steps);
            turns::worked((TURN_STEPS - steps) * STEP_BYTES).await;
            if let Some(is_match) = decided {
                return is_match;
            }
        }
    }

    /// Continues a match for at most `steps` steps, which it subtracts from `steps`. Returns
    /// whether the text matches, or `None` if the steps are used up before that is decided.
    fn advance(&self, progress: &mut Progress, text: &[u8], steps: &mut usize) -> Option<bool> {
        if text.is_empty() {
            return Some(self.elements.is_empty());
        }
        if text.len() < self.shortest {
            return Some(false);
        }
        let Progress { at, behind, retry } = progress;
        while *behind < text.len() {
            *steps = steps.checked_sub(1)?;
            let is_match = match self.elements.get(*at) {
                Some(Element::Star) => {
                    *at += 1;
                    *retry = Some((*at, *behind));
                    continue;
                }
                Some(Element::One) => true,
                Some(Element::Byte(byte)) => text[*behind] == *byte,
                Some(Element::Class(bits)) => is_in(bits, text[*behind]),
                None => false,
            };
            match retry {
                _ if is_match => {
                    *at += 1;
                    *behind += 1;
                }
                Some((star, from)) => {
                    *from += 1;
                    (*at, *behind) = (*star, *from);
                }
                None => return Some(false),
            }
        }
        Some(self.elements[*at..].iter().all(|element| *element == Element::Star))
    }
}

fn is_in(bits: &[u64; 4], byte: u8) -> bool {
    bits[usize::from(byte) / 64] >> (byte % 64) & 1 == 1
}

/// Parses a class in brackets, at the beginning of a pattern; an unterminated class ends with the
/// pattern. Returns its bytes too.
fn class(pattern: &[u8]) -> (Element, usize) {
    let is_inverse = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(is_inverse);
    let mut bits = [0_u64; 4];
    // A range costs as much as a byte: a pattern can have 20,000 of them.
    let mut add = |from: u8, to: u8| {
        for (number, word) in bits.iter_mut().enumerate() {
            let first = usize::from(from).max(number * 64);
            let last = usize::from(to).min(number * 64 + 63);
            if first <= last {
                *word |= u64::MAX >> (63 - (last - first)) << (first % 64);
            }
        }
    };
    loop {
        match &pattern[at..] {
            [] => break,
            [b'\\', escaped, ..] => {
                add(*escaped, *escaped);
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                add(*from.min(to), *from.max(to));
                at += 3;
            }
            [literal, ..] => {
                add(*literal, *literal);
                at += 1;
            }
        }
    }
    if is_inverse {
        bits = bits.map(|word| !word);
    }
    (Element::Class(Box::new(bits)), at)
}

/// Returns the prefix that all matching texts have in common.
pub(super) fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    &pattern[..end.unwrap_or(pattern.len())]
}

/// Collects the texts of a walk that match a pattern, in the order of the walk.
#[derive(Debug)]
pub(super) struct Matching<T> {
    /// `None` matches everything.
    glob: Option<Glob>,
    /// Steps left in this turn.
    steps: usize,
    found: Vec<T>,
    /// Undecided texts, and the number of texts found before each.
    undecided: Vec<(usize, T)>,
}

impl<T: AsRef<[u8]>> Matching<T> {
    /// Starts with a pattern.
    ///
    /// # Errors
    /// As for [`Glob::parse`].
    pub(super) fn new(pattern: &[u8]) -> Result<Self, Fault> {
        let glob = if pattern == b"*" { None } else { Some(Glob::parse(pattern)?) };
        Ok(Self { glob, steps: TURN_STEPS, found: Vec::new(), undecided: Vec::new() })
    }

    /// Returns the work of the steps taken, and starts a new count.
    fn count_steps(&mut self) -> usize {
        (TURN_STEPS - std::mem::replace(&mut self.steps, TURN_STEPS)) * STEP_BYTES
    }

    /// Adds a text if it matches; `keep` returns the part of it to keep.
    pub(super) fn see(&mut self, text: &[u8], keep: impl FnOnce() -> T) {
        let glob = self.glob.as_ref();
        match glob.map_or(Some(true), |glob| glob.advance(&mut Progress::default(), text, &mut self.steps)) {
            Some(true) => self.found.push(keep()),
            Some(false) => {}
            None => self.undecided.push((self.found.len(), keep())),
        }
    }

    /// Returns the matching texts among those added since the last call. Lets other clients have
    /// turns.
    pub(super) async fn decided(&mut self) -> Vec<T> {
        let undecided = std::mem::take(&mut self.undecided);
        let found = std::mem::take(&mut self.found);
        let work = self.count_steps();
        turns::worked(work).await;
        let Some(glob) = self.glob.as_ref().filter(|_| !undecided.is_empty()) else { return found };
        let (mut all, mut sure, mut taken) = (Vec::new(), found.into_iter(), 0);
        for (before, text) in undecided {
            all.extend(sure.by_ref().take(before - taken));
            taken = before;
            let mut progress = Progress::default();
            let is_match = loop {
                if let Some(is_match) = glob.advance(&mut progress, text.as_ref(), &mut self.steps) {
                    break is_match;
                }
                self.steps = TURN_STEPS;
                turns::worked(TURN_STEPS * STEP_BYTES).await;
            };
            if is_match {
                all.push(text);
            }
        }
        all.extend(sure);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::TURN_BYTES;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        Glob::parse(pattern).unwrap().matches(text)
    }

    #[test]
    fn patterns_match_as_redis_says() {
        let yes: [(&str, &str); 14] = [
            ("*", "a"),
            ("h?llo", "hello"),
            ("h*llo", "hllo"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("\\*", "*"),
            ("a**", "a"),
            ("[a", "a"),
            ("[^", "x"),
            ("*a*b*", "xxaxxbxx"),
            ("[\\]]", "]"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("", "a"),
            ("a*b", "ac"),
            ("[]", "]"),
            ("*", ""),
            ("a", "ab"),
            ("a?", "a"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn stars_do_not_multiply() {
        let pattern = [&b"a*"[..]; 50].concat();
        let text = [&[b'a'; 5000][..], b"b"].concat();
        let glob = Glob::parse(&[&pattern[..], b"c"].concat()).unwrap();
        let mut steps = 3 * text.len();
        assert_eq!(glob.advance(&mut Progress::default(), &text, &mut steps), Some(false));
        assert!(matches(&[&pattern[..], b"b"].concat(), &text));
    }

    #[test]
    fn a_long_match_takes_turns_and_keeps_the_order() {
        // Each text takes the product of both lengths: 2,000 bytes and 2,000 elements.
        let pattern = [b"*", &[b'a'; 2000][..], b"b*"].concat();
        let hard = [&[b'a'; 4000][..], b"b"].concat();
        let texts = [&hard[..], b"a", &hard[1..], &hard[..4000], &hard[2..]];
        let mut matching = Matching::<Vec<u8>>::new(&pattern).unwrap();
        for text in texts {
            matching.see(text, || text.to_vec());
        }
        assert!(matching.undecided.len() > 1, "a step is bounded");
        let mut works = Vec::new();
        let found = {
            let mut deciding = pin!(matching.decided());
            loop {
                let poll = || deciding.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                let (polled, turn) = turns::take(TURN_BYTES, poll);
                works.push(turn.work);
                if let Poll::Ready(found) = polled {
                    break found;
                }
            }
        };
        assert_eq!(found, [&hard[..], &hard[1..], &hard[2..]]);
        assert!(works.len() > 2000 * 2000 * STEP_BYTES / TURN_BYTES, "{} turns", works.len());
        assert!(works.iter().all(|&work| work <= TURN_BYTES + TURN_STEPS * STEP_BYTES), "{works:?}");
    }

    #[test]
    fn a_pattern_longer_than_every_key_is_refused() {
        assert!(Glob::parse(&vec![b'['; PATTERN_BYTES_MAX]).is_ok());
        assert!(matches!(Glob::parse(&vec![b'['; PATTERN_BYTES_MAX + 1]), Err(Fault::Said(_))));
    }

    #[test]
    fn the_literal_prefix_ends_at_what_is_special() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"a\\b"), b"a");
        assert_eq!(literal_prefix(b"plain"), b"plain");
    }
}
