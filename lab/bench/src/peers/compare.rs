//! The comparison itself: loads every index, runs interleaved rounds, prints the medians.

use super::bf_tree::BfTreeTarget;
use super::congee::CongeeTarget;
use super::crossbeam_skiplist::SkipListTarget;
use super::keys::PeerKey;
use super::locked_btree::LockedBTreeTarget;
use super::masstree::MasstreeTarget;
use super::scc_tree_index::TreeIndexTarget;
use super::{VALUE_BYTES, verbs, verification};
use crate::LabBenchArgs;
use crate::rounds::{Candidate, Case, median, run_rounds};
use comfy_table::Table;
use darter::{IndexKind, Scheme};
use darter_bench::driver::bulk_load;
use darter_bench::outcome::Outcome;
use darter_bench::plan::Plan;
use darter_bench::progress::Progress;
use darter_bench::report::{WorkloadReport, markdown_table, print_json, title};
use darter_bench::store_target::StoreTarget;
use darter_bench::target::Target;
use darter_bench::ycsb::Workload;
use darter_bench::{BenchError, Setting};
use darter_fabric::counted;
use serde::Serialize;
use std::io::Write;

/// A peer, or a store of darter's.
trait Peer: Candidate {
    fn load(&self, plan: &Plan<'_>, progress: &Progress) -> Result<(), BenchError>;

    /// Checks the pairs of its `records` records after all workloads.
    fn verify(&self, plan: &Plan<'_>, records: u64) -> Result<(), BenchError>;
}

impl<T: Target> Peer for T {
    fn load(&self, plan: &Plan<'_>, progress: &Progress) -> Result<(), BenchError> {
        bulk_load(self, &*plan.dataset, plan.records, plan.args.value_size, progress)?;
        verification::verify_load(self, plan)
    }

    fn verify(&self, plan: &Plan<'_>, records: u64) -> Result<(), BenchError> {
        verification::verify_end(self, plan, records)
    }
}

/// Returns the empty peers. A peer that is generic over its keys holds keys of the type `K`.
fn peers<K: PeerKey>(plan: &Plan<'_>) -> Result<Vec<Box<dyn Peer>>, BenchError> {
    let mut peers: Vec<Box<dyn Peer>> = vec![Box::new(BfTreeTarget::new(plan.records)?)];
    let has_integers = plan.dataset.has_integer_keys();
    if has_integers {
        peers.push(Box::new(CongeeTarget::new()));
    }
    if has_integers || !verification::has_scans(plan) {
        peers.push(Box::new(MasstreeTarget::new()));
    }
    peers.push(Box::new(SkipListTarget::<K>::new()));
    peers.push(Box::new(TreeIndexTarget::<K>::new()));
    peers.push(Box::new(LockedBTreeTarget::<K>::new()));
    Ok(peers)
}

/// Compares darter with the peers and writes the results to `out`.
pub(crate) fn compare(
    benchmark: &LabBenchArgs,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<Vec<WorkloadReport>, BenchError> {
    validate(benchmark)?;
    let (args, rounds) = (&benchmark.run, benchmark.rounds);
    let plan = Plan::new(benchmark, setting, rounds)?;
    let open = |kind| StoreTarget::open(kind, &plan.pool, args, &setting.tcp, args.create);
    let (dart, quiver) = (open(IndexKind::Dart)?, open(IndexKind::Quiver)?);
    plan.accept(&dart)?;
    let remark = |out: &mut dyn Write, text: String| if args.json { Ok(()) } else { writeln!(out, "{text}") };
    remark(
        out,
        format!(
            "in one process: {} ({}), {} by bulk load, {}, values of {VALUE_BYTES} bytes, Zipf {}, median of {}",
            plan.keys,
            plan.dataset.note(),
            counted(plan.records, "record"),
            counted(args.ops, "operation"),
            args.theta,
            counted(rounds.into(), "round")
        ),
    )?;
    for note in dart.store.notes() {
        remark(out, format!("note: {note}"))?;
    }
    let has_integers = plan.dataset.has_integer_keys();
    let others = if has_integers { peers::<u64>(&plan)? } else { peers::<Box<[u8]>>(&plan)? };
    let stores: [&dyn Peer; 2] = [&dart, &quiver];
    let candidates: Vec<&dyn Peer> = stores.into_iter().chain(others.iter().map(|peer| &**peer)).collect();
    for candidate in &candidates {
        let progress = Progress::new(&format!("load {}", candidate.name()), plan.records, &plan.setting.stop);
        candidate.load(&plan, &progress)?;
        progress.finish_and_clear();
    }
    for store in [&dart, &quiver] {
        remark(out, format!("{}: {}", Target::name(store), plan.adjust(store, plan.records)?))?;
    }

    let cases = run_cases(&plan, &candidates, rounds)?;
    let reports = report(&plan, &candidates, &cases, rounds);
    let costs = verbs::measure()?;
    if args.json {
        for report in &reports {
            print_json(out, report)?;
        }
        print_json(out, &VerbReport { verbs: &costs })?;
    } else {
        let names: Vec<&str> = candidates.iter().map(|candidate| candidate.name()).collect();
        writeln!(out, "\nMillion operations a second, in brackets relative to dart, the winner bold:\n")?;
        writeln!(out, "{}\n", table(&names, &cases))?;
        writeln!(out, "What a READ costs above plain loads of the same bytes:\n\n{}", verbs::table(&costs))?;
    }
    Ok(reports)
}

#[derive(Serialize)]
struct VerbReport<'a> {
    verbs: &'a [verbs::VerbCost],
}

fn validate(benchmark: &LabBenchArgs) -> Result<(), BenchError> {
    let args = &benchmark.run;
    if args.value_size != VALUE_BYTES {
        return Err(BenchError::Usage(format!(
            "--peers: values have {VALUE_BYTES} bytes, leave --value-size out"
        )));
    }
    if args.pool.as_ref().is_some_and(|pool| *pool.scheme() != Scheme::Memory) {
        return Err(BenchError::Usage(
            "--peers: each of darter's indexes has a pool of its own in memory; leave --pool out, or \
             say `mem:SIZE`"
                .to_owned(),
        ));
    }
    if args.in_flight != [1] || args.processes != 1 {
        return Err(BenchError::Usage(
            "--in-flight, --processes: the other indexes are of one process and never wait; leave these options out".to_owned(),
        ));
    }
    if benchmark.index.0.name != IndexKind::default().name() {
        return Err(BenchError::Usage(
            "--peers: darter's store is one of the peers; leave --index out".to_owned(),
        ));
    }
    if args.check {
        return Err(BenchError::Usage("--check: run it without --peers".to_owned()));
    }
    if args.workload.iter().all(|&workload| workload == Workload::Load) {
        return Err(BenchError::Usage(
            "--peers: name a workload other than `load`; all indexes are bulk-loaded".to_owned(),
        ));
    }
    Ok(())
}

/// Plays all rounds. Every candidate has run the same operations at the end of each match.
fn run_cases(plan: &Plan<'_>, candidates: &[&dyn Peer], rounds: u32) -> Result<Vec<Case>, BenchError> {
    let workloads = plan.args.workload.iter().filter(|&&workload| workload != Workload::Load);
    let mut cases: Vec<Case> = workloads
        .flat_map(|&workload| plan.args.threads.iter().map(move |&threads| (workload, threads)))
        .map(|(workload, threads)| Case::new(workload, (threads, 1), plan.args.theta, candidates.len()))
        .collect();
    let mut loaded = vec![plan.records; candidates.len()];
    let hidden = Progress::hidden(&plan.setting.stop);
    let base = plan.phase(Workload::C, (1, 1), plan.records, &hidden);
    run_rounds(candidates, &mut cases, rounds, &mut loaded, &base)?;
    let names: Vec<_> = candidates.iter().map(|candidate| candidate.name()).collect();
    verification::verify_found(&names, &cases)?;
    candidates.iter().zip(loaded).try_for_each(|(candidate, records)| candidate.verify(plan, records))?;
    Ok(cases)
}

fn report(plan: &Plan<'_>, candidates: &[&dyn Peer], cases: &[Case], rounds: u32) -> Vec<WorkloadReport> {
    let mut reports = Vec::new();
    for one in cases {
        for (candidate, outcomes) in candidates.iter().zip(&one.outcomes) {
            let Some(outcome) = median(outcomes) else { continue };
            let mut report = WorkloadReport {
                index: candidate.name().to_owned(),
                rounds,
                ..plan.blank_report(one.workload.name(), (one.threads, 1), one.records)
            };
            if outcome.counters.is_none() {
                report.pool = String::new();
                report.cache_bytes = None;
            }
            reports.push(report.measured(outcome));
        }
    }
    reports
}

fn table(names: &[&str], cases: &[Case]) -> Table {
    let headers: Vec<&str> = ["workload", "threads"].into_iter().chain(names.iter().copied()).collect();
    let mut table = markdown_table(&headers);
    for one in cases {
        let speeds: Vec<f64> = one
            .outcomes
            .iter()
            .map(|outcomes| median(outcomes).map_or(0.0, Outcome::ops_per_s) / 1e6)
            .collect();
        let best = speeds.iter().copied().fold(0.0, f64::max);
        let mut row = vec![title(one.workload), one.threads.to_string()];
        row.extend(speeds.iter().enumerate().map(|(number, &speed)| {
            let text = if speed >= best { format!("**{speed:.3}**") } else { format!("{speed:.3}") };
            if number == 0 {
                text
            } else {
                format!("{text} ({:.2}×)", speed / speeds[0].max(f64::MIN_POSITIVE))
            }
        }));
        table.add_row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::tests::outcome;

    #[test]
    fn the_winner_is_bold() {
        let slow = vec![outcome(2.0), outcome(9.0), outcome(1.0)];
        let fast = vec![outcome(0.5)];
        let one = Case { outcomes: vec![slow, fast], ..Case::new(Workload::C, (2, 1), 0.99, 2) };
        let text = table(&["dart", "other"], &[one]).to_string();
        assert!(text.contains("0.500") && text.contains("**2.000** (4.00×)"), "{text}");
    }
}
