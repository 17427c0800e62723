//! The history of clients' verbs by word, and the verdict.

use crate::client::WORDS;
use crate::linear::{Event, Kind, is_linearizable};
use darter_sim::groups::Frame;

/// Completed verbs, and for each client the time until which its unanswered verbs may take effect.
#[derive(Debug, Default)]
pub(crate) struct History {
    words: [Vec<Event>; WORDS],
    fences: Vec<(usize, u64)>,
    pub(crate) frames: u64,
    /// Errors that a single frame shows.
    wrong: Option<String>,
}

impl History {
    pub(crate) fn answered(
        &mut self,
        (client, frame): (usize, &Frame),
        verbs: &[(usize, Kind)],
        found: &[u64],
        now: u64,
    ) {
        self.frames += 1;
        for (at, &(word, kind)) in verbs.iter().enumerate() {
            let end = Some((now, found[at]));
            self.words[word].push(Event { kind, begin: frame.begin, end, until: now });
        }
        // A frame is executed as a whole, so its verbs see each other's effects and no other
        // client's.
        for (at, &(word, kind)) in verbs.iter().enumerate() {
            let next = verbs.iter().enumerate().skip(at + 1).find(|(_, (other, _))| *other == word);
            let Some((then, &(_, then_kind))) = next.filter(|(_, (_, kind))| !matches!(kind, Kind::Write(_)))
            else {
                continue;
            };
            let after = match kind {
                Kind::Write(new) => new,
                Kind::Swap(expected, new) if found[at] == expected => new,
                Kind::Read | Kind::Swap(..) => found[at],
                Kind::Add(amount) => found[at].wrapping_add(amount),
            };
            if after != found[then] {
                self.wrong.get_or_insert(format!(
                    "frame {} of client {client}: {kind:?} found {:#x}, then {then_kind:?} found {:#x}",
                    frame.id, found[at], found[then]
                ));
            }
        }
    }

    /// Records that a client was fenced: each of its verbs in flight has taken effect, or never
    /// will.
    pub(crate) fn fenced(&mut self, client: usize, now: u64) {
        self.fences.push((client, now));
    }

    /// Records a verb of a client that got no reply.
    pub(crate) fn unanswered(&mut self, client: usize, begin: u64, (word, kind): (usize, Kind)) {
        let fence = self.fences.iter().find(|(fenced, _)| *fenced == client);
        let until = fence.map_or(u64::MAX, |(_, when)| *when);
        self.words[word].push(Event { kind, begin, end: None, until });
    }

    /// Returns the error, if any, given the words at the end.
    pub(crate) fn verdict(mut self, words: [u64; WORDS], now: u64) -> Option<String> {
        if self.wrong.is_some() {
            return self.wrong;
        }
        for (word, events) in self.words.iter_mut().enumerate() {
            let last = Event { kind: Kind::Read, begin: now, end: Some((now, words[word])), until: now };
            events.push(last);
            if !is_linearizable(events) {
                events.sort_by_key(|event| event.begin);
                let lines: Vec<_> = events.iter().map(|event| format!("  {event:x?}")).collect();
                return Some(format!("word {word} has no order:\n{}", lines.join("\n")));
            }
        }
        None
    }
}
