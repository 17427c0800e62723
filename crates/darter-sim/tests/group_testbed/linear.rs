//! Judges the history of one word: Wing and Gong's search with memoization.

use std::collections::HashSet;

/// Kind of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write(u64),
    Swap(u64, u64),
    Add(u64),
}

impl Kind {
    /// Returns the word afterwards and the result of the verb.
    fn apply(self, word: u64) -> (u64, u64) {
        let after = match self {
            Self::Write(new) => new,
            Self::Swap(expected, new) if word == expected => new,
            Self::Read | Self::Swap(..) => word,
            Self::Add(amount) => word.wrapping_add(amount),
        };
        (after, if matches!(self, Self::Write(_)) { 0 } else { word })
    }
}

/// A verb in a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) begin: u64,
    /// The time and the result of its reply; `None` if there was none.
    pub(crate) end: Option<(u64, u64)>,
    /// It has taken effect before this time, or never will.
    pub(crate) until: u64,
}

/// Returns whether some order explains the history of a word that is 0 at first.
pub(crate) fn is_linearizable(events: &[Event]) -> bool {
    assert!(events.len() <= 128, "a history has more than 128 verbs");
    let mut tried = HashSet::new();
    let mut open = vec![(0_u128, 0_u64)];
    while let Some((done, word)) = open.pop() {
        if !tried.insert((done, word)) {
            continue;
        }
        let left = || events.iter().enumerate().filter(|(at, _)| done >> at & 1 == 0);
        let Some(first_end) = left().filter_map(|(_, event)| event.end).map(|(end, _)| end).min() else {
            return true;
        };
        for (at, event) in left().filter(|(_, event)| event.begin <= first_end) {
            let (after, found) = event.kind.apply(word);
            let fits = match event.end {
                Some((_, answer)) => answer == found,
                // A verb without a reply may come next unless a verb before it began after its
                // deadline.
                None => !events
                    .iter()
                    .enumerate()
                    .any(|(other, known)| done >> other & 1 != 0 && known.begin > event.until),
            };
            if fits {
                open.push((done | 1 << at, after));
            }
        }
    }
    false
}

#[test]
fn the_judge_knows_right_from_wrong() {
    let event = |kind, begin, end: u64, answer| Event { kind, begin, end: Some((end, answer)), until: end };
    let history = [event(Kind::Write(5), 0, 9, 0), event(Kind::Read, 1, 3, 5), event(Kind::Read, 4, 5, 5)];
    assert!(is_linearizable(&history));
    let back = [event(Kind::Write(5), 0, 9, 0), event(Kind::Read, 1, 3, 5), event(Kind::Read, 4, 5, 0)];
    assert!(!is_linearizable(&back));
    let pending = Event { kind: Kind::Add(2), begin: 0, end: None, until: u64::MAX };
    assert!(is_linearizable(&[pending, event(Kind::Read, 5, 6, 0), event(Kind::Read, 8, 9, 2)]));
    let late = Event { until: 7, ..pending };
    assert!(!is_linearizable(&[late, event(Kind::Read, 8, 9, 0), event(Kind::Read, 10, 11, 2)]));
    assert!(is_linearizable(&[late, event(Kind::Read, 8, 9, 2), event(Kind::Swap(2, 3), 10, 11, 2)]));
}
