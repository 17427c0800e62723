//! The faults of a run's groups, as a plan's line names them.

use std::fmt;
use std::str::FromStr;

/// The faults of the groups, drawn from a seed during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFaults {
    /// Determines everything, including the order of events.
    pub seed: u64,
    /// Milliseconds after which no further faults strike.
    pub until_ms: u64,
}

impl GroupFaults {
    /// The longest time for which faults strike, in milliseconds.
    pub const UNTIL_MS_MAX: u64 = 20_000;

    /// The faults that may strike clients and their processes in addition to those of the groups. A
    /// `kill` or `pause` strikes after this many milliseconds; a paused process is shut out at
    /// once.
    pub const OF_CLIENTS: [&'static str; 5] = ["kill", "cancel", "drop", "pause", "refuse"];

    /// The faults of a seed, for the longest time.
    pub fn of_seed(seed: u64) -> Self {
        Self { seed, until_ms: Self::UNTIL_MS_MAX }
    }

    /// The same for shorter times, the shortest first.
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
            return Err(format!("'groups={text}' is neither SEED nor SEED@MILLISECONDS"));
        };
        Ok(Self { seed, until_ms: until_ms.min(Self::UNTIL_MS_MAX) })
    }
}
