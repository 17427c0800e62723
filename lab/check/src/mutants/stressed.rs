//! Hunts for a planted error with processes that are killed: `darter-lab stress --transactions`.

use darter_mutant::VARIABLE;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Seconds of a run.
const SECONDS: &str = "2";
/// Delays of batches, which let other clients meet undecided transactions.
const DELAYS: &str = "--delays=0.05:4";
/// Lines of the summary that name a finding begin with one of these.
const FINDINGS: [&str; 2] = ["violation: ", "the history of "];

/// Runs `program`, which is `darter-lab` from a prepared copy, with an error planted in all of its
/// processes, or none. Returns the first finding, if there is one.
///
/// # Errors
/// Fails if the program cannot be run.
pub fn stress_finds(program: &Path, planted: Option<&str>, seed: u64) -> io::Result<Option<String>> {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }?;
    let mut stress = Command::new(program);
    stress.args(["stress", "--transactions", "--seconds", SECONDS, "--kills", "4", "--pauses", "8"]);
    stress.args([DELAYS, "--seed", &seed.to_string()]);
    stress.arg("--pool").arg(format!("file:{}?size=64M", folder.path().join("pool").display()));
    stress.env_remove(VARIABLE).stdin(Stdio::null());
    if let Some(name) = planted {
        stress.env(VARIABLE, name);
    }
    let output = stress.output()?;
    if output.status.success() {
        return Ok(None);
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let named =
        out.lines().find_map(|line| FINDINGS.iter().find(|text| line.starts_with(**text)).map(|_| line));
    let first = named.or(err.lines().next()).unwrap_or("it failed without a reason");
    Ok(Some(first.trim_start_matches(FINDINGS[0]).trim_end_matches(':').to_owned()))
}
