//! Hunts for a planted error with pools that are damaged at rest: `darter-lab damages`.

use darter_mutant::VARIABLE;
use serde::Deserialize;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Stands after a round's number in the line of a wrong answer.
const WRONG: &str = ": Wrong: ";

/// The pools of `darter-lab damages --only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pools {
    /// Pool files.
    File,
    /// The log of a memory node.
    Node,
    /// The logs of a memory group.
    Group,
}

impl fmt::Display for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Node => "node",
            Self::Group => "group",
        })
    }
}

/// Damaged pools that find an error.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Damages {
    /// The pools.
    pub pools: Pools,
    /// Limit of the search: about four times the number of rounds that the slowest of four seeds
    /// took.
    pub rounds: u64,
}

/// The first round that was judged wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongRound {
    /// Its number, from 0.
    pub number: u64,
    /// The damage, and the answer.
    pub text: String,
}

/// Runs `program`, which is `darter-lab` from a prepared copy, with an error planted in all of its
/// processes, or none, and damages pools up to the first wrong answer. Returns that answer, if there
/// is one.
///
/// # Errors
/// Fails if the program cannot be run, or ends without a result.
pub fn damages_find(
    program: &Path,
    planted: Option<&str>,
    damages: Damages,
) -> io::Result<Option<WrongRound>> {
    let Damages { pools, rounds } = damages;
    let mut command = Command::new(program);
    command.args(["damages", "--fail-fast", "--only", &pools.to_string(), "--rounds", &rounds.to_string()]);
    command.env_remove(VARIABLE).stdin(Stdio::null());
    if let Some(name) = planted {
        command.env(VARIABLE, name);
    }
    let output = command.output()?;
    let wrong = first_wrong(&String::from_utf8_lossy(&output.stdout));
    if wrong.is_none() && !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(io::Error::other(format!("`damages` has no result ({}): {said}", output.status)));
    }
    Ok(wrong)
}

/// Returns the first wrong round that is in the output of `damages`.
fn first_wrong(output: &str) -> Option<WrongRound> {
    output.lines().find_map(|line| {
        let (number, text) = line.split_once(WRONG)?;
        Some(WrongRound { number: number.parse().ok()?, text: text.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_round_is_found_in_the_output() {
        let table = "damaged                              right   named   wrong\nlog, image   7   2   0\n";
        assert_eq!(first_wrong(&format!("3: Named: log, image, variant 1: exit 1\n{table}")), None);
        let lines = "3: Named: log, image, variant 1: get: Wrong: none\n17: Wrong: pool file, objects: get a\n19: Wrong: b\n";
        let expected = WrongRound { number: 17, text: "pool file, objects: get a".to_owned() };
        assert_eq!(first_wrong(&format!("{lines}{table}")), Some(expected));
    }
}
