//! Runs the same cases on several candidates in rounds, in which the candidates take turns: ratios
//! come from one run, and a slow moment of the machine affects all candidates.

use darter_bench::BenchError;
use darter_bench::driver::run_phase;
use darter_bench::outcome::Outcome;
use darter_bench::phase::Phase;
use darter_bench::report::title;
use darter_bench::target::Target;
use darter_bench::ycsb::Workload;

/// A target under comparison, of any type.
pub(crate) trait Candidate {
    /// Returns the name in tables.
    fn name(&self) -> &'static str;

    /// Runs a phase to its end.
    fn run(&self, phase: &Phase<'_>) -> Result<Outcome, BenchError>;
}

impl<T: Target> Candidate for T {
    fn name(&self) -> &'static str {
        Target::name(self)
    }

    fn run(&self, phase: &Phase<'_>) -> Result<Outcome, BenchError> {
        run_phase(self, phase)
    }
}

/// A workload under certain conditions, with the outcome of each candidate in each round.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    pub(crate) threads: usize,
    pub(crate) in_flight: usize,
    pub(crate) theta: f64,
    /// Records when the first round began.
    pub(crate) records: u64,
    /// By candidate, then by round.
    pub(crate) outcomes: Vec<Vec<Outcome>>,
}

impl Case {
    /// Returns a case that has not run yet.
    pub(crate) fn new(
        workload: Workload,
        (threads, in_flight): (usize, usize),
        theta: f64,
        candidates: usize,
    ) -> Self {
        let outcomes = (0..candidates).map(|_| Vec::new()).collect();
        Self { workload, threads, in_flight, theta, records: 0, outcomes }
    }
}

/// Runs all cases `rounds` times. Each round begins with another candidate. `base` holds the
/// settings that all phases share; `loaded` holds the number of records of each candidate and is
/// updated.
///
/// # Errors
/// Fails if a candidate fails, and names it.
pub(crate) fn run_rounds<C: Candidate + ?Sized>(
    candidates: &[&C],
    cases: &mut [Case],
    rounds: u32,
    loaded: &mut [u64],
    base: &Phase<'_>,
) -> Result<(), BenchError> {
    for round in 0..rounds {
        for one in &mut *cases {
            if round == 0 {
                one.records = loaded[0];
            }
            for turn in 0..candidates.len() {
                let number = (turn + round as usize) % candidates.len();
                let candidate = candidates[number];
                let progress =
                    base.progress.of_part(&format!("{} {}", title(one.workload), candidate.name()), base.ops);
                let phase = Phase {
                    workload: one.workload,
                    loaded: loaded[number],
                    threads: one.threads,
                    in_flight: one.in_flight,
                    theta: one.theta,
                    run: u64::from(round),
                    progress: &progress,
                    ..*base
                };
                let outcome = candidate.run(&phase).map_err(|error| match error {
                    BenchError::Interrupted => error,
                    error => BenchError::In {
                        index: candidate.name(),
                        workload: one.workload.name(),
                        source: Box::new(error),
                    },
                })?;
                progress.finish_and_clear();
                loaded[number] = outcome.records;
                one.outcomes[number].push(outcome);
            }
        }
    }
    Ok(())
}

/// Returns the outcome with the median throughput; of an even number, the slower of the two in the
/// middle.
pub(crate) fn median(outcomes: &[Outcome]) -> Option<&Outcome> {
    let mut sorted: Vec<&Outcome> = outcomes.iter().collect();
    sorted.sort_by(|a, b| a.ops_per_s().total_cmp(&b.ops_per_s()));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hdrhistogram::Histogram;

    pub(crate) fn outcome(seconds: f64) -> Outcome {
        let latency = Histogram::new(3).unwrap();
        Outcome {
            ops: 1_000_000,
            seconds,
            not_found: 0,
            latency,
            counters: None,
            records: 0,
            bottleneck: None,
        }
    }

    #[test]
    fn the_median_counts() {
        let slow = [outcome(2.0), outcome(9.0), outcome(1.0)];
        assert!((median(&slow).unwrap().seconds - 2.0).abs() < f64::EPSILON);
        assert!((median(&slow[..2]).unwrap().seconds - 9.0).abs() < f64::EPSILON);
        assert!(median(&[]).is_none());
    }
}
