//! Runs worth continuing: those in which something new occurred, kept with their schedules and
//! drawn from for later runs.
//!
//! The *trail* of a run lists each situation that occurred in it once, in the order of first
//! occurrence. A run is interesting if a situation, or one situation after another, occurred in it
//! for the first time. A later run may begin as an interesting one did, up to its last new
//! situation or to some point before, with further operations, and diverge from there. Bugs that
//! need several rare situations in sequence are thus approached one step at a time, as in
//! coverage-guided fuzzing.
//!
//! Runs are drawn in rounds. All runs of a round see the corpus as the rounds before have left it,
//! so a seed gives the same runs for any number of threads.

use super::outcome::Outcome;
use crate::dice::Dice;
use darter_index::checker::Situation;
use std::collections::HashSet;

/// Maximum number of runs kept; the oldest are dropped first.
const KEPT_MAX: usize = 512;
/// One draw in this many takes from the latest eighth of the corpus, since the latest runs are
/// explored least.
const LATEST_ONE_IN: u64 = 2;

/// A situation that occurred after another, or by itself.
type Feature = (Option<Situation>, Situation);

/// A run in which something new occurred.
#[derive(Clone, Debug)]
pub(super) struct Interest<R> {
    pub(super) run: R,
    /// Decisions after which all its new situations had occurred.
    pub(super) cut: usize,
}

/// Interesting runs, and the features of all runs. `R` is what a run is repeated from.
#[derive(Debug)]
pub(super) struct Corpus<R> {
    met: HashSet<Feature>,
    kept: Vec<Interest<R>>,
    next: usize,
}

/// The situations of one run, with the number of decisions made before each.
pub(super) struct Trail(Vec<(Situation, usize)>);

impl Trail {
    /// The trail of a run in which these situations occurred.
    pub(super) fn new(situations: Vec<Situation>, outcome: &Outcome) -> Self {
        let last = outcome.schedule.0.len();
        let at = outcome.met_at.iter().copied().chain(std::iter::repeat(last));
        Self(situations.into_iter().zip(at).collect())
    }

    /// Returns each feature with the number of decisions after which it occurred.
    fn features(&self) -> impl Iterator<Item = (Feature, usize)> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &(situation, decisions))| {
            let before = self.0[..at].iter().map(move |&(first, _)| (Some(first), situation));
            std::iter::once((None, situation)).chain(before).map(move |feature| (feature, decisions))
        })
    }
}

impl<R> Default for Corpus<R> {
    fn default() -> Self {
        Self { met: HashSet::new(), kept: Vec::new(), next: 0 }
    }
}

impl<R> Corpus<R> {
    /// Whether a run has a feature that no earlier round had.
    pub(super) fn is_new(&self, trail: &Trail) -> bool {
        trail.features().any(|(feature, _)| !self.met.contains(&feature))
    }

    /// Keeps a run if it still has a new feature.
    pub(super) fn add(&mut self, trail: &Trail, run: R) {
        let mut cut = None;
        for (feature, decisions) in trail.features() {
            if self.met.insert(feature) {
                cut = cut.max(Some(decisions));
            }
        }
        let Some(cut) = cut.filter(|&cut| cut > 0) else { return };
        let interest = Interest { run, cut };
        if self.kept.len() < KEPT_MAX {
            self.kept.push(interest);
        } else {
            self.kept[self.next % KEPT_MAX] = interest;
        }
        self.next += 1;
    }

    /// Draws a run to continue from.
    pub(super) fn draw(&self, dice: &mut Dice) -> Option<&Interest<R>> {
        let count = self.kept.len() as u64;
        if count == 0 {
            return None;
        }
        let back = if dice.one_in(LATEST_ONE_IN) { dice.below(count.div_ceil(8)) } else { dice.below(count) };
        let last = (self.next as u64 + count - 1) % count;
        self.kept.get(((last + count - back) % count) as usize)
    }

    /// Pairs of situations that occurred one after the other so far, single situations excluded.
    pub(super) fn pairs(&self) -> u64 {
        self.met.iter().filter(|(first, _)| first.is_some()).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(met: &[&'static str]) -> Trail {
        Trail(met.iter().enumerate().map(|(at, &name)| (Situation::Met(name), at + 1)).collect())
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
            let trail = trail(met);
            assert_eq!(corpus.is_new(&trail), is_new, "{met:?}");
            corpus.add(&trail, ());
        }
        assert_eq!((corpus.kept.len(), corpus.pairs()), (3, 4));
        // The last new feature of the third was b after c, at its end.
        assert_eq!(corpus.kept[2].cut, 3);
        let drawn: HashSet<usize> = (0..100).filter_map(|_| Some(corpus.draw(&mut dice)?.cut)).collect();
        assert_eq!(drawn, HashSet::from([2, 3]));
    }
}
