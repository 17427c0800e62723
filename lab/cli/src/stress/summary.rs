//! The final output of `stress`: for readers, and as one JSON object.

use super::StressCommand;
use darter_check::stress::Report;
use darter_check::stress::log::Call;
use darter_fabric::{counted, inflected};
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};
use std::io::Write;

/// Returns a large number, in groups of digits, with the noun that it counts.
pub(super) fn many(number: u64, singular: &str) -> String {
    format!("{} {}", HumanCount(number), inflected(number, singular))
}

impl StressCommand {
    pub(super) fn print(&self, out: &mut impl Write, report: &Report) -> std::io::Result<()> {
        let Self { processes, threads, keys, .. } = self;
        let Report { kills, pauses, rounds, counts, pool, .. } = report;
        let worked = report.worked.as_secs_f64();
        let operations = counts.operations();
        writeln!(
            out,
            "operations    {} in {worked:.1} s by {} of {}",
            HumanCount(operations),
            counted((*processes).into(), "process"),
            counted((*threads).into(), "thread")
        )?;
        for call in Call::ALL {
            writeln!(out, "  {:<18}{:>12}", call.name(), HumanCount(counts.calls(call)).to_string())?;
        }
        writeln!(out, "kills         {kills}")?;
        writeln!(out, "pauses        {pauses}, the longest {} ms", report.pause_max.as_millis())?;
        self.print_disturbances(out, report)?;
        if self.memnodes.is_some() {
            let Report { node_kills, node_pauses, cuts, .. } = report;
            writeln!(
                out,
                "memory nodes  {node_kills} killed and started again, {node_pauses} paused, {} cut or slowed",
                counted(*cuts, "link")
            )?;
        }
        writeln!(
            out,
            "repairs       {} while they worked, {} given back",
            report.repairs,
            many(report.repaired_bytes, "byte")
        )?;
        writeln!(
            out,
            "pending       {}, of these {} shut out, {} disconnected; {}",
            counted(counts.pending, "operation"),
            counts.shut_out,
            counts.disconnected,
            counted(counts.torn, "torn log")
        )?;
        writeln!(
            out,
            "out of space  {}, which must have changed nothing",
            many(counts.out_of_space, "operation")
        )?;
        writeln!(
            out,
            "histories     {} in {}, the longest of {}, judged in {}",
            counted(u64::from(*keys), "key"),
            counted(*rounds, "round"),
            many(report.longest_history, "operation"),
            many(report.checker_steps, "step")
        )?;
        if self.transactions {
            writeln!(out, "transactions  {} over lists judged", many(report.appends, "transaction"))?;
        }
        writeln!(
            out,
            "pool          {}; {} leaked, {} after the repair",
            counted(pool.violations.len() as u64, "violation"),
            many(pool.leaked_bytes_before, "byte"),
            pool.leaked_bytes_after
        )?;
        for what in report.findings.iter().chain(&pool.violations) {
            writeln!(out, "violation: {what}")?;
        }
        for failure in &report.failures {
            let key = failure.key.escape_ascii();
            let what = if failure.is_violation {
                "is not linearizable"
            } else {
                "is undecided: the checker ran out of steps; more keys or fewer threads make it easier"
            };
            writeln!(out, "\nthe history of key {} (`{key}`) {what}", failure.rank)?;
            writeln!(out, "{}\n", failure.excerpt())?;
        }
        writeln!(out, "verdict       {}", report.verdict().name())
    }

    pub(super) fn as_json(&self, report: &Report) -> Value {
        let Report { counts, pool, .. } = report;
        let calls: serde_json::Map<String, Value> =
            Call::ALL.iter().map(|&call| (call.name().to_owned(), counts.calls(call).into())).collect();
        let failures: Vec<Value> = report
            .failures
            .iter()
            .map(|failure| {
                json!({
                    "key": failure.key.escape_ascii().to_string(),
                    "rank": failure.rank,
                    "verdict": if failure.is_violation { "violation" } else { "undecided" },
                    "explanation": failure.excerpt(),
                })
            })
            .collect();
        let mut object = json!({
            "verdict": report.verdict().name(),
            "seed": self.seed,
            "processes": self.processes,
            "threads": self.threads,
            "keys": self.keys,
            "seconds": report.worked.as_secs_f64(),
            "rounds": report.rounds,
            "operations": counts.operations(),
            "calls": calls,
            "kills": report.kills,
            "pauses": report.pauses,
            "pause_ms_max": u64::try_from(report.pause_max.as_millis()).unwrap_or(u64::MAX),
            "node_kills": report.node_kills,
            "node_pauses": report.node_pauses,
            "cuts": report.cuts,
            "repairs": report.repairs,
            "repaired_bytes": report.repaired_bytes,
            "pending": counts.pending,
            "out_of_space": counts.out_of_space,
            "shut_out": counts.shut_out,
            "disconnected": counts.disconnected,
            "torn_logs": counts.torn,
            "longest_history": report.longest_history,
            "checker_steps": report.checker_steps,
            "transactions_judged": report.appends,
            "failures": failures,
            "findings": report.findings,
            "pool_violations": pool.violations,
            "leaked_bytes_before_repair": pool.leaked_bytes_before,
            "leaked_bytes": pool.leaked_bytes_after,
            "logs": report.logs.as_ref().map(|logs| logs.display().to_string()),
        });
        if let Some(object) = object.as_object_mut() {
            object.extend(disturbances_as_json(report));
        }
        object
    }

    /// Prints the disturbances inside workers, and the use of the memory.
    fn print_disturbances(&self, out: &mut impl Write, report: &Report) -> std::io::Result<()> {
        let inside = &report.inside;
        if self.thread_stops > 0.0 {
            writeln!(
                out,
                "thread stops  {}, the longest {} ms; {} were counted by those stopped, {:.1} s of them",
                report.thread_stops,
                report.thread_stop_max.as_millis(),
                inside.thread_stops,
                inside.stopped.as_secs_f64()
            )?;
        }
        if self.delays.is_some() {
            let delays = &inside.delays;
            writeln!(
                out,
                "delays        {}, {} of them posted in two parts, {:.1} s in all",
                many(delays.batches, "batch"),
                HumanCount(delays.split),
                delays.time.as_secs_f64()
            )?;
        }
        let worked = report.worked.as_secs_f64().max(f64::MIN_POSITIVE);
        writeln!(
            out,
            "memory        {} of values written into {} of pool: all of it {:.1} times, once in {:.0} ms",
            HumanBytes(report.written_bytes),
            HumanBytes(report.pool_bytes),
            report.times_rewritten(),
            worked * 1000.0 / report.times_rewritten().max(f64::MIN_POSITIVE)
        )?;
        if inside.ages.count() > 0 {
            let ms = |share| inside.ages.below(share).as_secs_f64() * 1000.0;
            writeln!(
                out,
                "              {} times a value of kilobytes took the place of another: 1% within {} ms, half within {} ms, 90% \
                 within {} ms",
                HumanCount(inside.ages.count()),
                ms(0.01),
                ms(0.5),
                ms(0.9)
            )?;
        }
        Ok(())
    }
}

/// Returns the disturbances inside workers, and the use of the memory.
fn disturbances_as_json(report: &Report) -> serde_json::Map<String, Value> {
    let object = json!({
        "thread_stops": report.thread_stops,
        "thread_stop_ms_max": u64::try_from(report.thread_stop_max.as_millis()).unwrap_or(u64::MAX),
        "threads_stopped": report.inside.thread_stops,
        "threads_stopped_seconds": report.inside.stopped.as_secs_f64(),
        "delayed_batches": report.inside.delays.batches,
        "delayed_batches_split": report.inside.delays.split,
        "delayed_seconds": report.inside.delays.time.as_secs_f64(),
        "written_bytes": report.written_bytes,
        "pool_bytes": report.pool_bytes,
        "times_rewritten": report.times_rewritten(),
        "rewritten_in_place": report.inside.ages.count(),
        "rewritten_ms_median": report.inside.ages.below(0.5).as_secs_f64() * 1000.0,
    });
    object.as_object().cloned().unwrap_or_default()
}
