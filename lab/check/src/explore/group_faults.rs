//! What goes wrong with the groups of a run, as it stands in a plan's line.

use std::fmt;
use std::str::FromStr;

/// What goes wrong with the groups: drawn from a seed while the run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFaults {
    /// Decides everything, the order of events included.
    pub seed: u64,
    /// Milliseconds after which nothing goes wrong any more.
    pub until_ms: u64,
}

impl GroupFaults {
    /// How long things go wrong at most, in milliseconds.
    pub const UNTIL_MS_MAX: u64 = 20_000;

    /// The faults that may strike clients and their processes beside those of the groups. A `kill` or
    /// `pause` strikes so many milliseconds after the beginning; who is paused is shut out at once.
    pub const OF_CLIENTS: [&'static str; 5] = ["kill", "cancel", "drop", "pause", "refuse"];

    /// Those of a seed, for as long as they may last.
    pub fn of_seed(seed: u64) -> Self {
        Self { seed, until_ms: Self::UNTIL_MS_MAX }
    }

    /// The same for shorter, the shortest first.
    pub(super) fn shorter(self) -> impl Iterator<Item = Self> {
        let until_ms = self.until_ms;
        let shorter = [0, until_ms / 2, until_ms - until_ms / 4, until_ms - until_ms / 8];
        shorter
            .into_iter()
            .filter(move |&less| less < until_ms)
            .map(move |until_ms| Self { until_ms, ..self })
    }
}

impl fmt::Display for GroupFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        if self.until_ms < Self::UNTIL_MS_MAX { write!(f, "@{}", self.until_ms) } else { Ok(()) }
    }
}

impl FromStr for GroupFaults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (seed, until) = text.split_once('@').unwrap_or((text, ""));
        let until = if seed == text { Ok(Self::UNTIL_MS_MAX) } else { until.parse() };
        let (Ok(seed), Ok(until_ms)) = (seed.parse(), until) else {
            return Err(format!("'groups={text}' is no seed, nor SEED@MILLISECONDS"));
        };
        Ok(Self { seed, until_ms: until_ms.min(Self::UNTIL_MS_MAX) })
    }
}
