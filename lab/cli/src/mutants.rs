//! `darter-lab sim --mutants`: plants every known error and checks that the explorer finds it as the
//! list states.

use darter_check::mutants::{FoundBy, Mutant, mutants};
use darter_cli::{Answer, Failure};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

/// How many of a hundred errors must be found. Which schedules there are changes with every verb
/// that the code posts, so an error or two that need a rare one may be missed for a while.
const FOUND_PERCENT_MIN: u64 = 95;

/// The results for the errors of one area.
#[derive(Default)]
struct Score {
    listed: u64,
    sought: u64,
    found: u64,
    equivalent: u64,
    by_tests: u64,
    unfound: u64,
}

/// Prints the list for scripts.
pub(crate) fn list() -> Result<Answer, Failure> {
    let mut out = std::io::stdout().lock();
    for mutant in mutants() {
        let equivalent = if matches!(mutant.found_by, FoundBy::Equivalent(_)) { "equivalent" } else { "" };
        writeln!(out, "{}\t{}\t{}\t{equivalent}", mutant.area, mutant.name, mutant.indexes().join(" "))?;
    }
    out.flush()?;
    Ok(Answer::Done)
}

/// Plants each error of the list whose name holds `text`, and looks for those that the explorer or
/// the sweep is to find.
pub(crate) fn seek_all(text: &str, threads: usize, is_json: bool) -> Result<Answer, Failure> {
    if !darter_fabric::mutants::is_available() {
        let what = "--mutants: this build can plant no errors; build it with --features mutants";
        return Err(Failure::usage(what));
    }
    let chosen: Vec<&Mutant> = mutants().filter(|mutant| mutant.name.contains(text)).collect();
    if chosen.is_empty() {
        return Err(Failure::usage(format!("--mutants: no error of the list has '{text}' in its name")));
    }
    let mut out = std::io::stdout().lock();
    let (mut scores, mut missed) = (BTreeMap::<&str, Score>::new(), Vec::new());
    for mutant in chosen {
        let score = scores.entry(mutant.area).or_default();
        score.listed += 1;
        match mutant.found_by {
            FoundBy::Equivalent(_) => score.equivalent += 1,
            FoundBy::Tests(_) | FoundBy::Stress(_) => score.by_tests += 1,
            FoundBy::Nobody => score.unfound += 1,
            FoundBy::Explorer(..)
            | FoundBy::Focused { .. }
            | FoundBy::Relaxed { .. }
            | FoundBy::Power { .. }
            | FoundBy::Sweep { .. } => {}
        }
        let start = Instant::now();
        let Some(summary) = mutant.hunt(None, threads) else { continue };
        let (seconds, finding) = (start.elapsed().as_secs_f64(), summary.finding.as_ref());
        score.sought += 1;
        score.found += u64::from(finding.is_some());
        let kind = finding.map_or("NOT FOUND", |finding| finding.violation.kind);
        let runs = finding.map_or(summary.runs, |finding| finding.run + 1);
        if finding.is_none() {
            missed.push(mutant.name);
        }
        if is_json {
            let found = finding.is_some();
            let line = json!({ "area": mutant.area, "name": mutant.name, "found": found, "kind": kind,
                "schedules": runs, "seconds": seconds });
            writeln!(out, "{line}")?;
        } else {
            writeln!(
                out,
                "{:<12} {:<48} {kind:<10} {runs:>7} schedules {seconds:>6.1} s",
                mutant.area, mutant.name
            )?;
        }
        out.flush()?;
    }
    if !is_json {
        writeln!(out, "\n{:<12} listed  explorer  of  tests  equivalent  nobody", "area")?;
        for (area, score) in &scores {
            let Score { listed, sought, found, equivalent, by_tests, unfound } = score;
            writeln!(
                out,
                "{area:<12} {listed:>6} {found:>9} {sought:>3} {by_tests:>6} {equivalent:>11} {unfound:>7}"
            )?;
        }
        if !missed.is_empty() {
            writeln!(out, "not found as listed: {}", missed.join(", "))?;
        }
    }
    out.flush()?;
    let sought: u64 = scores.values().map(|score| score.sought).sum();
    let is_enough = missed.len() as u64 * 100 <= sought * (100 - FOUND_PERCENT_MIN);
    Ok(if is_enough { Answer::Done } else { Answer::No })
}
