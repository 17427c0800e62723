//! Runs worth going on from: those that met something new, kept with their schedule and drawn on for later ones.
//!
//! What a run met is its *trail*: each situation once, in the order in which it was first met. A run is interesting if it met a
//! situation, or one situation after another, as no run before it did. A later run may begin as an interesting one did,
//! up to where that met its last new thing or some way before, with further operations, and go another way from there. So
//! bugs that need one rare thing after another are approached a step at a time (as coverage-guided fuzzers do).
//!
//! Runs are drawn in rounds. All of a round see the corpus as the rounds before have left it, so that a seed means the same
//! runs for any number of threads.

use super::outcome::Outcome;
use super::plan::Plan;
use super::schedule::Schedule;
use crate::dice::Dice;
use darter_index::checker::Situation;
use std::collections::HashSet;

/// Most runs kept; the oldest go first.
const KEPT_MAX: usize = 512;
/// One of so many draws takes the latest eighth of what is kept: what was found last is explored least.
const LATEST_ONE_IN: u64 = 2;

/// One situation, met after another or by itself.
type Feature = (Option<Situation>, Situation);

/// A run that met something new.
#[derive(Clone, Debug)]
pub(super) struct Interest {
    pub(super) plan: Plan,
    pub(super) schedule: Schedule,
    /// Decisions after which it had met all that was new in it.
    pub(super) cut: usize,
}

/// Interesting runs, and what they and all others have met.
#[derive(Debug, Default)]
pub(super) struct Corpus {
    met: HashSet<Feature>,
    kept: Vec<Interest>,
    next: usize,
}

/// What one run met, with the decisions made before each situation.
pub(super) struct Trail(Vec<(Situation, usize)>);

impl Trail {
    /// Of a run, which met these situations.
    pub(super) fn new(situations: Vec<Situation>, outcome: &Outcome) -> Self {
        let last = outcome.schedule.0.len();
        let at = outcome.met_at.iter().copied().chain(std::iter::repeat(last));
        Self(situations.into_iter().zip(at).collect())
    }

    /// Each feature with the decisions after which it was there.
    fn features(&self) -> impl Iterator<Item = (Feature, usize)> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &(situation, decisions))| {
            let before = self.0[..at].iter().map(move |&(first, _)| (Some(first), situation));
            std::iter::once((None, situation)).chain(before).map(move |feature| (feature, decisions))
        })
    }
}

impl Corpus {
    /// Whether a run met something that no earlier round did.
    pub(super) fn is_new(&self, trail: &Trail) -> bool {
        trail.features().any(|(feature, _)| !self.met.contains(&feature))
    }

    /// Keeps a run if what it met is still new.
    pub(super) fn add(&mut self, trail: &Trail, plan: Plan, schedule: Schedule) {
        let mut cut = None;
        for (feature, decisions) in trail.features() {
            if self.met.insert(feature) {
                cut = cut.max(Some(decisions));
            }
        }
        let Some(cut) = cut.filter(|&cut| cut > 0) else { return };
        let interest = Interest { plan, schedule, cut };
        if self.kept.len() < KEPT_MAX {
            self.kept.push(interest);
        } else {
            self.kept[self.next % KEPT_MAX] = interest;
        }
        self.next += 1;
    }

    /// A run to go on from.
    pub(super) fn draw(&self, dice: &mut Dice) -> Option<&Interest> {
        let count = self.kept.len() as u64;
        if count == 0 {
            return None;
        }
        let back = if dice.one_in(LATEST_ONE_IN) { dice.below(count.div_ceil(8)) } else { dice.below(count) };
        let last = (self.next as u64 + count - 1) % count;
        self.kept.get(((last + count - back) % count) as usize)
    }

    /// Pairs of situations met so far, one after the other, those met by themselves left out.
    pub(super) fn pairs(&self) -> u64 {
        self.met.iter().filter(|(first, _)| first.is_some()).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(met: &[&'static str]) -> (Trail, Plan, Schedule) {
        let trail = met.iter().enumerate().map(|(at, &name)| (Situation::Met(name), at + 1)).collect();
        (Trail(trail), "dart/plain/p0;p0".parse().unwrap(), Schedule::default())
    }

    #[test]
    fn only_what_is_new_is_kept() {
        let (mut corpus, mut dice) = (Corpus::default(), Dice::new(1));
        assert!(corpus.draw(&mut dice).is_none());
        for (met, is_new) in [
            (&["a", "b"][..], true),
            (&["a"], false),
            (&["a", "b"], false),
            (&["b", "a"], true),
            (&["c", "a", "b"], true),
            (&["c", "b", "a"], false),
        ] {
            let (trail, plan, schedule) = run(met);
            assert_eq!(corpus.is_new(&trail), is_new, "{met:?}");
            corpus.add(&trail, plan, schedule);
        }
        assert_eq!((corpus.kept.len(), corpus.pairs()), (3, 4));
        // The last new thing of the third was b after c, at its end.
        assert_eq!(corpus.kept[2].cut, 3);
        let drawn: HashSet<usize> = (0..100).filter_map(|_| Some(corpus.draw(&mut dice)?.cut)).collect();
        assert_eq!(drawn, HashSet::from([2, 3]));
    }
}
