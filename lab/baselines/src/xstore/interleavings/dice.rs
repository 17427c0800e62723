//! Chance from a seed, for races that can be seen again.

use darter_sim::{Event, Executor, TaskId, WordOrder};

/// A small generator of numbers.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number below a limit.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Decides which event comes next, and how much of it.
pub(super) struct Turns {
    dice: Dice,
    /// One task often goes on for long, so that words of another's verb come apart.
    favourite: TaskId,
    /// How many words of a verb may execute at once.
    words: [u32; 3],
}

impl Turns {
    /// Turns by these dice.
    pub(super) fn new(dice: Dice, words: [u32; 3]) -> Self {
        Turns { dice, favourite: 0, words }
    }

    /// Performs one of these events, of which there is at least one.
    pub(super) fn take(&mut self, executor: &mut Executor<'_>, events: &[Event]) {
        let Turns { dice, favourite, words } = self;
        if dice.below(12) == 0 {
            *favourite = events[dice.below(events.len() as u64) as usize].task;
        }
        let of_it = events.iter().position(|event| event.task == *favourite).filter(|_| dice.below(4) > 0);
        let event = events[of_it.unwrap_or_else(|| dice.below(events.len() as u64) as usize)];
        let order = if dice.below(2) == 0 { WordOrder::Ascending } else { WordOrder::Descending };
        let words = words.get(dice.below(4) as usize).copied().unwrap_or(u32::MAX);
        executor.perform(event, words, order);
    }
}
