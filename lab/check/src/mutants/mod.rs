//! The errors that can be planted in the sources: a description of each, the check that finds it,
//! and the changes to the sources.
//!
//! Each is a mistake that a good engineer could make: a step left out, done too early, or done with
//! the wrong word. They measure how far a check can be trusted. They are data (`lab/check/mutants`,
//! one file per area), and the sources do not mention them: [`prepare`] copies the sources and
//! plants all of them in the copy, each behind a switch (`darter-mutant`), so that one build
//! contains them all. A program built there plants one after the other ([`Mutant::hunt`]).
//!
//! ```toml
//! [[mutant]]
//! name = "limbo-frees-one-epoch-early"
//! what = "Memory is free one epoch too early."
//! found_by.schedules = { index = "dart", runs = 2000 }
//!
//! [[mutant.change]]
//! file = "crates/darter-pool/src/grace/limbo.rs"
//! lines = '''
//!          let mut state = lock(&self.state);
//! -        let grace = 2;
//! +        let grace = if mutant!("limbo-frees-one-epoch-early") { 1 } else { 2 };
//! '''
//! ```
//!
//! `lines` is like a diff without line numbers: lines of the file (` `), removed lines (`-`), and
//! added lines (`+`). The lines of the file and the removed lines must be in the file exactly once.
//! Errors in the same lines share the change of the first.

mod change;
mod damaged;
mod hunt;
mod stressed;
mod tree;

pub use change::{Change, Fault};
pub use damaged::{Damages, Pools, WrongRound, damages_find};
pub use hunt::{Hunted, test_finds};
pub use stressed::stress_finds;
pub use tree::{Prepared, check, prepare};

use darter_fabric::counted;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Reading the list or preparing a copy failed.
#[derive(Debug, thiserror::Error)]
pub enum MutantsError {
    /// A file of the list cannot be parsed.
    #[error("{0}: {1}")]
    Form(PathBuf, String),
    /// The sources are a prepared copy.
    #[error("{0}: these sources already have planted errors; use a program built in the repository")]
    Copy(PathBuf),
    /// The directory holds files other than a copy.
    #[error("{0}: neither empty nor a prepared copy; name another directory")]
    Taken(PathBuf),
    /// The copy would be copied itself.
    #[error("{0}: git does not ignore this directory; name one outside the repository, or in target/")]
    Within(PathBuf),
    /// Some errors do not apply.
    #[error("{}: `darter-lab mutants check` names them", counted(.0.len() as u64, "outdated planted error"))]
    Faults(Vec<String>),
    /// Git did not list the files.
    #[error("git ls-files in {0}: {1}")]
    Git(PathBuf, String),
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// The check that finds a planted error.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FoundBy {
    /// Random schedules of an index.
    Schedules(Schedules),
    /// The sweep of an index, with a fault at every point of every operation.
    Sweep {
        /// The index.
        index: String,
        /// The fault.
        fault: String,
        /// Scenarios from which runs begin.
        scenarios: Vec<String>,
    },
    /// `cargo test` with these arguments.
    Tests(String),
    /// `darter-lab damages`: pools that are damaged at rest.
    Damages(Damages),
}

/// Random schedules that find an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedules {
    /// The index.
    pub index: String,
    /// Limit of the search: about four times the number that the slowest of four seeds took, since
    /// schedules change with every verb that the code posts.
    pub runs: u64,
    /// Scenarios from which runs begin: a few of the index's, if the error needs specific
    /// situations.
    #[serde(default)]
    pub scenarios: Vec<String>,
    /// Faults that strike; by default all that the index promises to survive.
    pub faults: Option<Vec<String>>,
    /// Guarantees of the verbs, if weaker than those of the providers other than RDMA.
    pub verbs: Option<String>,
    /// The rule of the memory's medium. The power fails in half of the runs, without other faults.
    pub durability: Option<String>,
}

/// An error that can be planted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// The name in `mutant!`, and in the environment variable that plants it.
    pub name: String,
    /// The area of the system, which is the name of its file.
    #[serde(skip)]
    pub area: String,
    /// A sentence that describes the error.
    pub what: String,
    /// The check that finds it soonest.
    pub found_by: FoundBy,
    /// Whether `darter-lab stress --transactions` must find it too, in a few seconds.
    #[serde(default)]
    pub found_by_stress: bool,
    /// The changes to the sources. Empty if another error's change contains its lines too.
    #[serde(default, rename = "change")]
    pub changes: Vec<Change>,
}

/// A file of errors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Area {
    #[serde(rename = "mutant")]
    mutants: Vec<Mutant>,
}

/// Returns the root of the sources that this program was built from.
pub fn sources() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root)
}

/// Reads the errors of the sources that this program was built from, by area. An edit of the list
/// takes effect without a build.
///
/// # Errors
/// Fails if the sources are gone, or if a file of the list cannot be read or parsed.
pub fn mutants() -> Result<Vec<Mutant>, MutantsError> {
    let folder = sources().join("lab/check/mutants");
    let failed = |error| MutantsError::Io(folder.clone(), error);
    let files: io::Result<BTreeSet<PathBuf>> =
        fs::read_dir(&folder).map_err(failed)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut all = Vec::new();
    for file in files.map_err(failed)? {
        let text = fs::read_to_string(&file).map_err(|error| MutantsError::Io(file.clone(), error))?;
        let area = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let read =
            toml::from_str::<Area>(&text).map_err(|error| MutantsError::Form(file, error.to_string()))?;
        all.extend(read.mutants.into_iter().map(|mutant| Mutant { area: area.clone(), ..mutant }));
    }
    Ok(all)
}
