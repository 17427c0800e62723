//! One run on one index: load, adjust, each workload, report, and with `--check` the check at
//! the end.

use crate::bench_target::{BenchTarget, TargetWork};
use crate::driver::{bulk_load, run_phase};
use crate::outcome::Outcome;
use crate::plan::{Benchmark, Plan};
use crate::progress::Progress;
use crate::report::{WorkloadReport, bytes_text, kind_table, print_json, title, workload_head, workload_row};
use crate::teardown::{UsedBefore, delete_and_check};
use crate::ycsb::Workload;
use crate::{BenchError, Setting, processes};
use darter_fabric::counted;
use std::io::Write;

/// Runs a benchmark and writes its results to `out`: a table, or with `--json` one object per
/// workload and line, each as soon as it is known. Progress goes to standard error if that is a
/// terminal.
///
/// # Errors
/// Fails if the arguments cannot be met ([`BenchError::is_usage`]), the pool fails, or the index
/// returns a wrong result.
pub fn run(
    benchmark: &impl Benchmark,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<Vec<WorkloadReport>, BenchError> {
    let plan = Plan::new(benchmark, setting, 1)?;
    benchmark.with_target(&plan, plan.args.create, Workloads { plan: &plan, out })
}

/// All workloads, to be run on a target.
struct Workloads<'a> {
    plan: &'a Plan<'a>,
    out: &'a mut dyn Write,
}

impl TargetWork for Workloads<'_> {
    type Output = Vec<WorkloadReport>;

    fn on<T: BenchTarget>(self, target: &T) -> Result<Vec<WorkloadReport>, BenchError> {
        let Self { plan, out } = self;
        plan.accept(target)?;
        let empty = target.usage()?;
        let used = UsedBefore {
            pool_bytes_empty: empty.used_bytes(),
            object_bytes_empty: empty.object_bytes,
            ..UsedBefore::default()
        };
        let mut run = Run { plan, target, out, reports: Vec::new(), records: 0, used, adjusted: None };
        run.introduce()?;
        let unsound = match run.all() {
            Err(BenchError::Interrupted) => {
                run.summarize()?;
                return Err(BenchError::Interrupted);
            }
            outcome => outcome?,
        };
        run.summarize()?;
        match unsound {
            Some(what) => Err(BenchError::Unsound(what)),
            None => Ok(run.reports),
        }
    }
}

/// A run in progress.
struct Run<'a, T> {
    plan: &'a Plan<'a>,
    target: &'a T,
    out: &'a mut dyn Write,
    reports: Vec<WorkloadReport>,
    /// Records in the index.
    records: u64,
    /// Pool use when empty and at its highest.
    used: UsedBefore,
    /// Result of the warm-up.
    adjusted: Option<String>,
}

impl<T: BenchTarget> Run<'_, T> {
    /// Runs all workloads. Returns a description of the error that the check at the end finds, if
    /// any.
    fn all(&mut self) -> Result<Option<String>, BenchError> {
        let (plan, args) = (self.plan, self.plan.args);
        self.load()?;
        let mut adjusted = false;
        for &workload in args.workload.iter().filter(|&&workload| workload != Workload::Load) {
            if !adjusted {
                let remark = plan.adjust(self.target, self.records)?;
                self.adjusted = Some(remark);
                adjusted = true;
            }
            for &threads in &args.threads {
                for &in_flight in &args.in_flight {
                    self.measure(workload, (threads, in_flight))?;
                }
            }
        }
        if args.check { self.check() } else { Ok(None) }
    }

    /// Prints a line, unless the output is JSON.
    fn remark(&mut self, text: &str) -> Result<(), BenchError> {
        if !self.plan.args.json {
            writeln!(self.out, "{text}")?;
        }
        Ok(())
    }

    fn introduce(&mut self) -> Result<(), BenchError> {
        let plan = self.plan;
        let args = plan.args;
        self.remark(&format!(
            "{}: {} ({}), {}, values of {}, Zipf {}, seed {}, pool {}, cache {}",
            plan.index.name,
            plan.keys,
            plan.dataset.note(),
            counted(plan.records, "record"),
            counted(args.value_size as u64, "byte"),
            args.theta,
            args.seed,
            plan.pool,
            bytes_text(args.cache.0),
        ))?;
        for note in self.target.notes() {
            self.remark(&format!("note: {note}"))?;
        }
        Ok(())
    }

    /// Loads the records, by measured inserts or in bulk.
    fn load(&mut self) -> Result<(), BenchError> {
        let plan = self.plan;
        if plan.args.loads_by_inserts() {
            return self.measure(Workload::Load, (plan.args.threads[0], plan.args.in_flight[0]));
        }
        let progress = Progress::new("bulk load", plan.records, &plan.setting.stop);
        bulk_load(self.target, &*plan.dataset, plan.records, plan.args.value_size, &progress)?;
        progress.finish_and_clear();
        self.records = plan.records;
        Ok(())
    }

    fn measure(&mut self, workload: Workload, at_once: (usize, usize)) -> Result<(), BenchError> {
        let plan = self.plan;
        let progress = Progress::new(&title(workload), 0, &plan.setting.stop);
        let phase = plan.phase(workload, at_once, self.records, &progress);
        progress.set_length(phase.ops);
        let outcome = match plan.args.processes {
            1 => run_phase(self.target, &phase)?,
            processes => processes::run_phase(self.target, plan.setting, &phase, processes)?,
        };
        progress.finish_and_clear();
        let began_with = if workload == Workload::Load { outcome.records } else { self.records };
        self.records = outcome.records;
        let report = plan.blank_report(workload.name(), at_once, began_with);
        self.report(WorkloadReport { processes: plan.args.processes, ..report }, &outcome)
    }

    /// Completes a report, and prints it if the output is JSON.
    fn report(&mut self, report: WorkloadReport, outcome: &Outcome) -> Result<(), BenchError> {
        let sizes = self.target.sizes()?;
        if sizes.keys != outcome.records && self.plan.index.keeps {
            return Err(BenchError::WrongAnswer {
                index: self.plan.index.name,
                what: format!(
                    "a walk after {} finds {}, but {} were stored",
                    report.workload,
                    counted(sizes.keys, "key"),
                    outcome.records
                ),
            });
        }
        self.used.pool_bytes_full = self.used.pool_bytes_full.max(sizes.pool_used);
        let report = report.measured(outcome).sized(sizes, self.target.prefix_list());
        if self.plan.args.json {
            print_json(self.out, &report)?;
        } else {
            self.print_row(&report)?;
        }
        self.reports.push(report);
        Ok(())
    }

    /// Deletes all keys and checks the pool. Returns a description of the error found, if any.
    fn check(&mut self) -> Result<Option<String>, BenchError> {
        let progress = Progress::new("delete", self.records, &self.plan.setting.stop);
        let (outcome, check) =
            delete_and_check(self.target, &*self.plan.dataset, self.records, self.used, &progress)?;
        progress.finish_and_clear();
        let unsound = if let Some(first) = check.violations.first() {
            Some(format!("{}, the first: {first}", counted(check.violations.len() as u64, "violation")))
        } else if check.leaked_bytes > 0 {
            Some(format!("{} bytes leaked", check.leaked_bytes))
        } else {
            None
        };
        let report =
            WorkloadReport { check: Some(check), ..self.plan.blank_report("delete", (1, 1), self.records) };
        self.report(report, &outcome)?;
        Ok(unsound)
    }

    /// Prints a row of the table of workloads, and the table's head before the first row.
    fn print_row(&mut self, report: &WorkloadReport) -> Result<(), BenchError> {
        if self.reports.is_empty() {
            writeln!(self.out, "\nPer operation, upkeep left out:\n\n{}", workload_head())?;
        }
        writeln!(self.out, "{}", workload_row(report))?;
        Ok(self.out.flush()?)
    }

    /// Prints the summary, unless the output is JSON.
    fn summarize(&mut self) -> Result<(), BenchError> {
        if self.plan.args.json {
            return Ok(());
        }
        if let Some(adjusted) = &self.adjusted {
            writeln!(self.out, "\n{adjusted}")?;
        }
        writeln!(self.out, "\nBy kind of operation:\n\n{}\n", kind_table(&self.reports))?;
        if let Some(last) = self.reports.iter().rfind(|report| report.check.is_none()) {
            let text = |bytes: Option<u64>| bytes_text(bytes.unwrap_or(0));
            writeln!(
                self.out,
                "At the end: {}, index {}, keys and values {}, pool use {}, client cache {}{}",
                counted(self.records, "record"),
                text(last.index_bytes),
                text(last.kv_bytes),
                text(last.pool_used_bytes),
                text(last.cache_used_bytes),
                last.prefix_list.as_ref().map_or_else(String::new, |list| format!(", prefix list {list:?}"))
            )?;
        }
        if let Some(check) = self.reports.iter().find_map(|report| report.check.as_ref()) {
            writeln!(
                self.out,
                "After deleting everything: {}, {} bytes leaked, pool use {} (empty {}, full {}), objects {} \
                 (empty {})",
                counted(check.violations.len() as u64, "violation"),
                check.leaked_bytes,
                bytes_text(check.pool_used_bytes_after),
                bytes_text(check.pool_used_bytes_empty),
                bytes_text(check.pool_used_bytes_full),
                bytes_text(check.object_bytes_after),
                bytes_text(check.object_bytes_empty)
            )?;
        }
        Ok(())
    }
}
