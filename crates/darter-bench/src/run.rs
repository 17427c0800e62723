//! One run on darter's store: load, adjust, each workload, report, and with `--check` the check at
//! the end.

use crate::args::BenchArgs;
use crate::driver::{bulk_load, run_phase};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::report::{WorkloadReport, bytes_text, kind_table, print_json, title, workload_table};
use crate::store_target::StoreTarget;
use crate::teardown::{UsedBefore, delete_and_check};
use crate::ycsb::Workload;
use crate::{BenchError, Setting, processes, progress};
use std::io::Write;

/// Runs the workloads on darter's store.
pub(crate) fn run_store(
    args: &BenchArgs,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<Vec<WorkloadReport>, BenchError> {
    let plan = Plan::new(args, setting, 1)?;
    let target = plan.open_store()?;
    let empty = target.store.usage()?;
    let used = UsedBefore {
        pool_bytes_empty: empty.used_bytes(),
        object_bytes_empty: empty.object_bytes,
        ..UsedBefore::default()
    };
    let mut run = StoreRun { plan: &plan, target: &target, out, reports: Vec::new(), records: 0, used };
    run.introduce()?;
    run.load()?;
    let mut adjusted = false;
    for &workload in args.workload.iter().filter(|&&workload| workload != Workload::Load) {
        if !adjusted {
            let remark = plan.adjust(&target, run.records)?;
            run.remark(&remark)?;
            adjusted = true;
        }
        for &threads in &args.threads {
            for &in_flight in &args.in_flight {
                run.measure(workload, (threads, in_flight))?;
            }
        }
    }
    let unsound = if args.check { run.check()? } else { None };
    run.tables()?;
    match unsound {
        Some(what) => Err(BenchError::Unsound(what)),
        None => Ok(run.reports),
    }
}

/// A run in progress.
struct StoreRun<'a> {
    plan: &'a Plan<'a>,
    target: &'a StoreTarget,
    out: &'a mut dyn Write,
    reports: Vec<WorkloadReport>,
    /// Records in the store.
    records: u64,
    /// Use of the pool when empty, and at the most.
    used: UsedBefore,
}

impl StoreRun<'_> {
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
            "{}: {} ({}), {} records, values of {} bytes, Zipf {}, seed {}, pool {}, cache {}",
            args.index.name(),
            args.dataset,
            plan.dataset.note(),
            plan.records,
            args.value_size,
            args.theta,
            args.seed,
            plan.pool,
            bytes_text(args.cache.0),
        ))?;
        for note in self.target.store.notes() {
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
        let progress = progress::bar("bulk load", plan.records);
        bulk_load(self.target, &*plan.dataset, plan.records, plan.args.value_size, &progress)?;
        progress.finish_and_clear();
        self.records = plan.records;
        Ok(())
    }

    fn measure(&mut self, workload: Workload, at_once: (usize, usize)) -> Result<(), BenchError> {
        let plan = self.plan;
        let progress = progress::bar(&title(workload), 0);
        let phase = plan.phase(workload, at_once, self.records, &progress);
        progress.set_length(phase.ops);
        let outcome = match plan.args.processes {
            1 => run_phase(self.target, &phase)?,
            processes => processes::run_phase(plan.setting, &phase, processes)?,
        };
        progress.finish_and_clear();
        let began_with = if workload == Workload::Load { outcome.records } else { self.records };
        self.records = outcome.records;
        let report = plan.blank_report(workload.name(), at_once, began_with);
        self.report(WorkloadReport { processes: plan.args.processes, ..report }, &outcome)
    }

    /// Completes a report, and prints it if the output is JSON.
    fn report(&mut self, report: WorkloadReport, outcome: &Outcome) -> Result<(), BenchError> {
        let (sizes, prefix_list) = self.target.sizes()?;
        if sizes.keys != outcome.records {
            return Err(BenchError::WrongAnswer {
                index: self.plan.args.index.name(),
                what: format!(
                    "a walk after {} finds {} keys where {} were stored",
                    report.workload, sizes.keys, outcome.records
                ),
            });
        }
        self.used.pool_bytes_full = self.used.pool_bytes_full.max(sizes.pool_used);
        let report = report.measured(outcome).sized(sizes, prefix_list);
        if self.plan.args.json {
            print_json(self.out, &report)?;
        }
        self.reports.push(report);
        Ok(())
    }

    /// Deletes everything and checks the pool. Returns a description of what is wrong, if anything
    /// is.
    fn check(&mut self) -> Result<Option<String>, BenchError> {
        let progress = progress::bar("delete", self.records);
        let (outcome, check) =
            delete_and_check(self.target, &*self.plan.dataset, self.records, self.used, &progress)?;
        progress.finish_and_clear();
        let unsound = if let Some(first) = check.violations.first() {
            Some(format!("{} violations, the first: {first}", check.violations.len()))
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

    /// Prints the tables, unless the output is JSON.
    fn tables(&mut self) -> Result<(), BenchError> {
        if self.plan.args.json {
            return Ok(());
        }
        writeln!(self.out, "\nPer operation, upkeep left out:\n\n{}", workload_table(&self.reports))?;
        writeln!(self.out, "\nBy kind of operation:\n\n{}\n", kind_table(&self.reports))?;
        if let Some(last) = self.reports.iter().rfind(|report| report.check.is_none()) {
            let text = |bytes: Option<u64>| bytes_text(bytes.unwrap_or(0));
            writeln!(
                self.out,
                "At the end: {} records, index {}, keys and values {}, pool use {}, client cache {}, prefix list {:?}",
                self.records,
                text(last.index_bytes),
                text(last.kv_bytes),
                text(last.pool_used_bytes),
                text(last.cache_used_bytes),
                last.prefix_list.as_deref().unwrap_or_default()
            )?;
        }
        if let Some(check) = self.reports.iter().find_map(|report| report.check.as_ref()) {
            writeln!(
                self.out,
                "After deleting everything: {} violations, {} bytes leaked, pool use {} (empty {}, full {}), objects {} \
                 (empty {})",
                check.violations.len(),
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
