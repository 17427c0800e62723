//! `mutants`: plants errors in a copy of the sources and tests which checks find them.

use clap::{Args, Subcommand};
use darter_check::mutants::{
    Damages, FoundBy, Mutant, check, damages_find, mutants, prepare, sources, stress_finds, test_finds,
};
use darter_cli::{Answer, Failure};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Percentage of the errors that the explorer must find. Its schedules change with every verb that
/// the code posts, so an error or two that need a rare schedule may be missed for a while.
const FOUND_PERCENT_MIN: u64 = 95;
/// Runs of the stress after which it has not found an error.
const STRESS_RUNS_MAX: u64 = 4;

#[derive(Args)]
#[command(after_help = "\
Examples:
  darter-lab mutants check
  darter-lab mutants prepare target/planted
  cd target/planted && cargo run --release -p darter-lab -- mutants hunt
  cd target/planted && cargo run --release -p darter-lab -- mutants hunt --damages
  cd target/planted && DARTER_MUTANT=limbo-frees-one-epoch-early cargo run --release -p darter-lab -- sim --faults all

lab/docs/checking.md has more.")]
pub(crate) struct MutantsCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the errors that can be planted, one per line, separated by tabs: area, name, check
    /// that finds it, description
    List,
    /// Check that every error still applies to the sources that this program was built from; lists
    /// the others
    Check,
    /// Copy the sources that this program was built from, except files that git ignores, to a
    /// directory and plant all errors in the copy, each behind a switch; updates an earlier copy
    /// there
    Prepare(PrepareCommand),
    /// Plant one error after another and run the check that finds it: by default for the errors
    /// that the explorer finds. Exit code 1 if more than one in twenty is not found. Needs a
    /// program that was built in a copy
    Hunt(HuntCommand),
}

#[derive(Args)]
struct PrepareCommand {
    /// Directory of the copy
    directory: PathBuf,
}

#[derive(Args)]
#[allow(clippy::struct_excessive_bools)] // each is a flag of the command line
struct HuntCommand {
    /// Errors with one of these texts in their names; all by default
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// Run the tests that find the other errors, in the copy. Each must pass without the error and
    /// fail with it
    #[arg(long)]
    tests: bool,
    /// Plant the errors that the stress of transactions must find too, and run `stress
    /// --transactions`. A run without an error must find nothing
    #[arg(long, conflicts_with = "tests")]
    stress: bool,
    /// Plant the errors that damaged pools find, and run `damages` up to the first wrong answer. The
    /// same rounds without the error must all be right
    #[arg(long, conflicts_with_all = ["tests", "stress"])]
    damages: bool,
    /// Time limit of a test; a test that takes longer has not found the error
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "tests",
          value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print one JSON object for each error
    #[arg(long)]
    json: bool,
}

impl MutantsCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        match &self.command {
            Command::List => list(),
            Command::Check => check_here(),
            Command::Prepare(command) => command.run(),
            Command::Hunt(command) => command.run(),
        }
    }
}

/// Returns the list.
fn all() -> Result<Vec<Mutant>, Failure> {
    mutants().map_err(Failure::failed)
}

fn list() -> Result<Answer, Failure> {
    let mut out = std::io::stdout().lock();
    for Mutant { area, name, found_by, what, .. } in all()? {
        let finder = match &found_by {
            FoundBy::Schedules(schedules) => format!("schedules of {}", schedules.index),
            FoundBy::Sweep { index, .. } => format!("sweep of {index}"),
            FoundBy::Tests(arguments) => format!("cargo test {arguments}"),
            FoundBy::Damages(Damages { pools, .. }) => format!("damages of {pools}"),
        };
        writeln!(out, "{area}\t{name}\t{finder}\t{what}")?;
    }
    out.flush()?;
    Ok(Answer::Done)
}

fn check_here() -> Result<Answer, Failure> {
    let mutants = all()?;
    let faults = check(&sources(), &mutants).map_err(Failure::failed)?;
    let mut out = std::io::stdout().lock();
    if faults.is_empty() {
        writeln!(out, "all {} planted errors apply", mutants.len())?;
    }
    for fault in &faults {
        writeln!(out, "{fault}")?;
    }
    out.flush()?;
    Ok(if faults.is_empty() { Answer::Done } else { Answer::No })
}

impl PrepareCommand {
    fn run(&self) -> Result<Answer, Failure> {
        let mutants = all()?;
        let prepared = prepare(&sources(), &mutants, &self.directory).map_err(Failure::failed)?;
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "{}: {} errors planted in {} of {} files; build darter-lab there, and run its `mutants hunt`",
            self.directory.display(),
            mutants.len(),
            prepared.planted,
            prepared.files
        )?;
        out.flush()?;
        Ok(Answer::Done)
    }
}

/// The result of hunting for one error.
struct Outcome {
    is_found: bool,
    /// The kind of violation, or why it counts as missed.
    how: String,
    /// The runs, rounds or schedules that it took.
    runs: u64,
}

impl HuntCommand {
    fn run(&self) -> Result<Answer, Failure> {
        if !darter_mutant::IS_PREPARED {
            let what = "mutants hunt: this program was built without planted errors; run `darter-lab mutants \
                        prepare DIR`, build darter-lab in DIR, and run that program";
            return Err(Failure::usage(what));
        }
        let is_chosen = |mutant: &&Mutant| {
            self.texts.is_empty() || self.texts.iter().any(|text| mutant.name.contains(text))
        };
        let mutants = all()?;
        let chosen: Vec<&Mutant> = mutants.iter().filter(is_chosen).collect();
        if chosen.is_empty() {
            let what = format!("mutants hunt: no error has '{}' in its name", self.texts.join("' or '"));
            return Err(Failure::usage(what));
        }
        let mut out = std::io::stdout().lock();
        let (mut scores, mut missed) = (BTreeMap::<&str, (u64, u64)>::new(), Vec::new());
        let mut controls = BTreeMap::new();
        for mutant in chosen {
            let start = Instant::now();
            let Some(found) = self.seek(mutant, &mut controls)? else { continue };
            let seconds = start.elapsed().as_secs_f64();
            let score = scores.entry(&mutant.area).or_default();
            *score = (score.0 + 1, score.1 + u64::from(found.is_found));
            if !found.is_found {
                missed.push(&mutant.name[..]);
            }
            self.tell(&mut out, mutant, &found, seconds)?;
            out.flush()?;
        }
        if !self.json {
            writeln!(out, "\n{:<12} found  of", "area")?;
            for (area, (sought, found)) in &scores {
                writeln!(out, "{area:<12} {found:>5} {sought:>3}")?;
            }
            if !missed.is_empty() {
                writeln!(out, "not found as listed: {}", missed.join(", "))?;
            }
        }
        out.flush()?;
        let sought: u64 = scores.values().map(|(sought, _)| sought).sum();
        // Tests are not random, and the stress and the damages have several attempts.
        let allowed = if self.tests || self.stress || self.damages { 0 } else { 100 - FOUND_PERCENT_MIN };
        let is_enough = missed.len() as u64 * 100 <= sought * allowed;
        Ok(if is_enough { Answer::Done } else { Answer::No })
    }

    /// Prints a line about an error.
    fn tell(
        &self,
        out: &mut impl Write,
        mutant: &Mutant,
        found: &Outcome,
        seconds: f64,
    ) -> std::io::Result<()> {
        let Mutant { area, name, .. } = mutant;
        let Outcome { is_found, how, runs } = found;
        if self.json {
            let count = match (self.stress, self.damages) {
                (true, _) => "runs",
                (_, true) => "rounds",
                _ => "schedules",
            };
            let line = json!({ "area": area, "name": name, "found": is_found, "how": how,
                count: runs, "seconds": seconds });
            writeln!(out, "{line}")
        } else if self.stress {
            writeln!(out, "{area:<12} {name:<48} {runs} of {STRESS_RUNS_MAX} runs {seconds:>6.1} s  {how}")
        } else if self.damages {
            writeln!(out, "{area:<12} {name:<48} {runs:>4} rounds {seconds:>6.1} s  {how}")
        } else {
            let schedules = if self.tests { String::new() } else { format!("{runs:>7} schedules ") };
            writeln!(out, "{area:<12} {name:<48} {how:<10} {schedules}{seconds:>6.1} s")
        }
    }

    /// Runs the stress with an error planted until it finds the error, a few times.
    fn seek_by_stress<'m>(
        mutant: &'m Mutant,
        controls: &mut BTreeMap<&'m str, bool>,
    ) -> Result<Option<Outcome>, Failure> {
        if !mutant.found_by_stress {
            return Ok(None);
        }
        let program = std::env::current_exe().map_err(Failure::failed)?;
        if controls.is_empty()
            && let Some(how) = stress_finds(&program, None, 0).map_err(Failure::failed)?
        {
            return Err(Failure::failed(format!("mutants hunt: the stress finds without an error: {how}")));
        }
        controls.insert("stress", true);
        for runs in 1..=STRESS_RUNS_MAX {
            let how = stress_finds(&program, Some(&mutant.name), runs).map_err(Failure::failed)?;
            if let Some(how) = how {
                return Ok(Some(Outcome { is_found: true, how, runs }));
            }
        }
        Ok(Some(Outcome { is_found: false, how: "NOT FOUND".to_owned(), runs: STRESS_RUNS_MAX }))
    }

    /// Damages pools with an error planted until an answer is wrong, and then as often without it.
    fn seek_by_damages(mutant: &Mutant) -> Result<Option<Outcome>, Failure> {
        let FoundBy::Damages(damages) = mutant.found_by else { return Ok(None) };
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let find = |planted, rounds| {
            damages_find(&program, planted, Damages { rounds, ..damages }).map_err(Failure::failed)
        };
        let Some(wrong) = find(Some(&mutant.name[..]), damages.rounds)? else {
            let how = "NOT FOUND".to_owned();
            return Ok(Some(Outcome { is_found: false, how, runs: damages.rounds }));
        };
        let runs = wrong.number + 1;
        let (is_found, how) = match find(None, runs)? {
            None => (true, wrong.text),
            Some(also) => (false, format!("WRONG WITHOUT IT: {}", also.text)),
        };
        Ok(Some(Outcome { is_found, how, runs }))
    }

    /// Runs the check of one error, if that check is selected. `controls` holds the tests that have
    /// passed without any error.
    fn seek<'m>(
        &self,
        mutant: &'m Mutant,
        controls: &mut BTreeMap<&'m str, bool>,
    ) -> Result<Option<Outcome>, Failure> {
        if self.stress {
            return Self::seek_by_stress(mutant, controls);
        }
        if self.damages {
            return Self::seek_by_damages(mutant);
        }
        if !self.tests {
            let Some(hunted) = mutant.hunt(self.threads()) else { return Ok(None) };
            let finding = hunted.finding();
            let kind = finding.map_or("NOT FOUND", |finding| finding.violation.kind);
            let runs = finding.map_or(hunted.summary.runs, |finding| finding.run + 1);
            let how = hunted.objection.unwrap_or(kind).to_owned();
            return Ok(Some(Outcome { is_found: finding.is_some(), how, runs }));
        }
        let FoundBy::Tests(arguments) = &mutant.found_by else { return Ok(None) };
        let (root, timeout) = (sources(), Duration::from_secs(self.timeout));
        if !controls.contains_key(&arguments[..]) {
            let passes = test_finds(&root, arguments, None, timeout).map_err(Failure::failed)? == Some(false);
            controls.insert(arguments, passes);
        }
        let how = if controls[&arguments[..]] {
            match test_finds(&root, arguments, Some(&mutant.name), timeout).map_err(Failure::failed)? {
                Some(true) => "test",
                Some(false) => "NOT FOUND",
                None => "NO END",
            }
        } else {
            "FAILS WITHOUT IT"
        };
        Ok(Some(Outcome { is_found: how == "test", how: how.to_owned(), runs: 0 }))
    }

    fn threads(&self) -> usize {
        self.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
    }
}
