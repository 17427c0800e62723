//! One run on darter's store: load, adjust, each workload, report, and the check at the end where asked for.

use crate::args::{BenchArgs, PrefixList};
use crate::datasets::{Dataset, DatasetSpec};
use crate::driver::{Outcome, Part, Phase, bulk_load, run_phase};
use crate::report::{WorkloadReport, bytes_text, kind_table, title, workload_table};
use crate::store_target::StoreTarget;
use crate::teardown::{UsedBefore, delete_and_check};
use crate::ycsb::Workload;
use crate::{BenchError, Setting, processes, progress};
use darter::{ByteSize, PoolUrl};
use std::io::Write;

/// Records when none are asked for and the dataset has no end of its own.
const RECORDS_DEFAULT: u64 = 1_000_000;
/// Which draw of a workload is the warm-up's; rounds count from 0.
const WARM_UP_RUN: u64 = u64::MAX;

/// What a run needs before it begins.
pub(crate) struct Plan<'a> {
    pub(crate) args: &'a BenchArgs,
    pub(crate) setting: &'a Setting,
    pub(crate) dataset: Box<dyn Dataset>,
    pub(crate) records: u64,
    pub(crate) pool: PoolUrl,
}

impl<'a> Plan<'a> {
    /// Prepares the keys and chooses what was left open. `rounds` is how often each workload will run.
    pub(crate) fn new(args: &'a BenchArgs, setting: &'a Setting, rounds: u32) -> Result<Self, BenchError> {
        args.validate()?;
        let dataset = args.dataset.open(args.seed)?;
        let fresh = args.fresh_records_max(rounds);
        let room = dataset.capacity().saturating_sub(fresh);
        let unasked = if matches!(args.dataset, DatasetSpec::File(_)) { room } else { RECORDS_DEFAULT };
        let records = args.records.unwrap_or(unasked);
        if records == 0 || records > room {
            return Err(BenchError::Usage(format!(
                "{} has {} keys and the workloads may insert {fresh}, which leaves {room} to load; use fewer --records or \
                 --ops, or leave out d and e",
                args.dataset,
                dataset.capacity()
            )));
        }
        let pool = match &args.pool {
            Some(pool) => pool.clone(),
            None => memory_pool(&*dataset, records.saturating_add(fresh), args.value_size)?,
        };
        Ok(Self { args, setting, dataset, records, pool })
    }

    /// Opens the pool and refuses one that cannot hold the records, before any memory is spent on keys.
    pub(crate) fn open_store(&self) -> Result<StoreTarget, BenchError> {
        let (name, cache) = (self.args.index.name(), self.args.cache.0);
        let target = StoreTarget::open(name, &self.pool, cache, &self.setting.tcp, self.args.create)?
            .without_keys(&self.pool)?;
        let least = record_bytes(&*self.dataset, self.args.value_size).saturating_mul(self.records);
        if least > target.pool_bytes() {
            return Err(BenchError::Usage(format!(
                "{} records of this size need more than {}, and the pool {} has {}; use fewer --records or a larger \
                 pool",
                self.records,
                bytes_text(least),
                self.pool,
                bytes_text(target.pool_bytes())
            )));
        }
        Ok(target)
    }

    /// A workload as the driver wants it.
    pub(crate) fn phase<'p>(
        &'p self,
        workload: Workload,
        (threads, in_flight): (usize, usize),
        loaded: u64,
        progress: &'p indicatif::ProgressBar,
    ) -> Phase<'p> {
        let load = workload == Workload::Load;
        Phase {
            workload,
            dataset: &*self.dataset,
            loaded: if load { 0 } else { loaded },
            ops: if load { self.records } else { self.args.ops },
            threads,
            in_flight,
            part: Part::WHOLE,
            theta: self.args.theta,
            value_bytes: self.args.value_size,
            seed: self.args.seed,
            run: 0,
            progress,
        }
    }

    /// A report with what is known before measuring.
    pub(crate) fn blank_report(
        &self,
        workload: &str,
        (threads, in_flight): (usize, usize),
        records: u64,
    ) -> WorkloadReport {
        WorkloadReport {
            index: self.args.index.name().to_owned(),
            workload: workload.to_owned(),
            dataset: self.args.dataset.to_string(),
            dataset_note: self.dataset.note(),
            records,
            threads,
            in_flight,
            processes: 1,
            value_bytes: self.args.value_size,
            theta: self.args.theta,
            pool: self.pool.to_string(),
            cache_bytes: Some(self.args.cache.0),
            seed: self.args.seed,
            rounds: 1,
            ..WorkloadReport::default()
        }
    }

    /// Searches as workload C does, unmeasured, then adjusts the prefix list to what was searched. Answers what to tell
    /// people.
    pub(crate) fn adjust(&self, target: &StoreTarget, loaded: u64) -> Result<String, BenchError> {
        if self.args.prefix_list == PrefixList::Powers {
            return Ok(format!("prefix list: {:?}, not adjusted", target.store.index().prefix_list()));
        }
        let ops = self.args.warm_up_ops();
        if ops > 0 {
            let progress = progress::bar("warm-up", ops);
            let phase = self.phase(Workload::C, (1, 1), loaded, &progress);
            run_phase(target, &Phase { ops, run: WARM_UP_RUN, ..phase })?;
            progress.finish_and_clear();
        }
        let adjusted = target.store.adjust()?;
        Ok(format!(
            "prefix list: {:?}, adjusted from {:?} after {ops} searches",
            adjusted.after, adjusted.before
        ))
    }
}

/// Bytes of one record at the least.
fn record_bytes(dataset: &dyn Dataset, value_bytes: usize) -> u64 {
    dataset.key_bytes_mean() + value_bytes as u64
}

/// A pool in memory that holds `records` records with room to spare; what is not touched costs nothing.
fn memory_pool(dataset: &dyn Dataset, records: u64, value_bytes: usize) -> Result<PoolUrl, BenchError> {
    // A leaf's header and rounding and the record's share of the nodes, twice over for what waits to be reclaimed.
    let bytes =
        record_bytes(dataset, value_bytes).saturating_add(64).saturating_mul(records).saturating_mul(2);
    let mebibytes = bytes.div_ceil(1 << 20).saturating_add(256);
    let size = ByteSize(mebibytes.saturating_mul(1 << 20));
    format!("mem:{size}").parse().map_err(|error| {
        BenchError::Usage(format!("{records} records need a pool of {}: {error}", bytes_text(size.0)))
    })
}

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
    /// Records there are.
    records: u64,
    /// What the pool held, when empty and at the most.
    used: UsedBefore,
}

impl StoreRun<'_> {
    /// A line for people; nothing in JSON.
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

    /// Brings the records in: by measured inserts or by bulk load.
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

    /// Completes a report and prints it when it goes to a machine.
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

    /// Deletes everything and checks; answers what is unsound.
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

    /// What people read.
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

/// One object on one line, at once.
pub(crate) fn print_json(out: &mut dyn Write, object: &impl serde::Serialize) -> Result<(), BenchError> {
    serde_json::to_writer(&mut *out, object).map_err(std::io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}
