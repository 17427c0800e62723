//! The errors that can be planted in the sources: what each is, which check finds it, and how the
//! sources change.
//!
//! Each is a slip that a good engineer could make: a step left out, done too early, or done by the
//! wrong word. A check is believed as far as it finds them. They are data (`lab/check/mutants`, a
//! file an area), and the sources know nothing of them: [`prepare`] copies the sources and plants all
//! of them in the copy, each behind a switch (`darter-mutant`), so one build holds them all. A
//! program that is built there plants one after the other ([`Mutant::hunt`]).
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
//! `lines` reads like a diff without line numbers: lines of the file (` `), lines that go (`-`), and
//! lines that come (`+`). The lines of the file and those that go must be in the file exactly once.
//! Errors in the same lines share the change of the first.

mod change;
mod hunt;
mod tree;

pub use change::{Change, Fault};
pub use hunt::{Hunted, test_finds};
pub use tree::{Prepared, check, prepare};

use darter_fabric::counted;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why the list cannot be read, or no copy was prepared.
#[derive(Debug, thiserror::Error)]
pub enum MutantsError {
    /// A file of the list cannot be parsed.
    #[error("{0}: {1}")]
    Form(PathBuf, String),
    /// The sources are a copy.
    #[error("{0}: these sources have planted errors already; use a program that was built in the repository")]
    Copy(PathBuf),
    /// Files are there that are not of a copy.
    #[error("{0}: not empty, and no copy that was prepared before; name another directory")]
    Taken(PathBuf),
    /// The copy would be copied.
    #[error("{0}: git does not ignore it there; name a directory outside of the repository, or in target/")]
    Within(PathBuf),
    /// Errors do not apply.
    #[error("{}: `darter-lab mutants check` names them", counted(.0.len() as u64, "outdated planted error"))]
    Faults(Vec<String>),
    /// Git did not list the files.
    #[error("git ls-files in {0}: {1}")]
    Git(PathBuf, String),
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// What finds a planted error.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FoundBy {
    /// Random schedules of an index.
    Schedules(Schedules),
    /// The sweep of an index: a fault at every point of every operation.
    Sweep {
        /// The index.
        index: String,
        /// The fault.
        fault: String,
        /// Where runs begin.
        scenarios: Vec<String>,
    },
    /// `cargo test` with these arguments.
    Tests(String),
}

/// Random schedules that find an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedules {
    /// The index.
    pub index: String,
    /// Limit of the search: some four times the number that the slowest of four seeds took, since
    /// schedules change with every verb that the code posts.
    pub runs: u64,
    /// Where runs begin: a few of the index's scenarios, if the error needs one of few situations.
    #[serde(default)]
    pub scenarios: Vec<String>,
    /// What strikes; by default all that the index promises to survive.
    pub faults: Option<Vec<String>>,
    /// What verbs promise, if less than those of other providers than RDMA's.
    pub verbs: Option<String>,
    /// The rule of the memory's medium. The power fails in half of the runs, and nothing else strikes.
    pub durability: Option<String>,
}

/// An error that can be planted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// The name in `mutant!`, and in the environment variable that plants it.
    pub name: String,
    /// The part of the system it is planted in: the name of its file.
    #[serde(skip)]
    pub area: String,
    /// What is wrong, in a sentence.
    pub what: String,
    /// The check that finds it soonest.
    pub found_by: FoundBy,
    /// How the sources change. None if the change of another error has its lines too.
    #[serde(default, rename = "change")]
    pub changes: Vec<Change>,
}

/// A file of them.
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
/// Fails if the sources are gone, or a file of the list cannot be read as it should.
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
