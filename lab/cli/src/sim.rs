//! `sim`: many schedules of a few simulated clients, each checked; a violation ends the run with a
//! line that reproduces it.

use clap::ValueEnum;
use darter_check::explore::{
    Exhaustion, Explored, Fault, Finding, Fixtures, GroupFaults, Left, Outcome, Plan, Replay, SLOW, Schedule,
    SchedulerKind, Settings, Sides, Summary, Sweep, exhaust, parse_replay, subject,
};
use darter_cli::{Answer, Failure};
use darter_fabric::counted;
use darter_sim::{Medium, Relaxations};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::time::Instant;

/// The longest file to read a replay line from.
const REPLAY_FILE_MAX: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SchedulerName {
    /// Every event on offer is equally likely
    Random,
    /// Priorities with a few random changes (probabilistic concurrency testing)
    Pct,
    /// Random, with one or two clients held for a long time
    Late,
    /// Random, pct and late, alternating
    Mixed,
    /// Every schedule of one plan, with independent steps in one order only; needs --plan
    Exhaustive,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter-lab sim --runs 5000 --faults all
  darter-lab sim --sweep --faults kill --index sherman")]
#[allow(clippy::struct_excessive_bools)] // each is a flag of the command line
pub(crate) struct SimCommand {
    /// The index to explore
    #[arg(long, value_name = "NAME", default_value = "quiver")]
    index: String,
    /// Random seed; the same seed gives the same runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of schedules
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Maximum number of clients in a run; at least two take part
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=8))]
    clients: u64,
    /// Maximum number of operations of a client, excluding upkeep
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    ops: u64,
    /// Maximum number of keys that clients contend for
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3))]
    keys: u64,
    /// Faults, separated by commas: kill, cancel, drop, hold, pause, stop, cut, refuse, power, lose,
    /// and with --sweep slow; `all` that the index promises to survive; `none`
    #[arg(long, value_name = "LIST", default_value = "none")]
    faults: String,
    /// How schedules are drawn
    #[arg(long, value_name = "S", value_enum, default_value_t = SchedulerName::Mixed)]
    scheduler: SchedulerName,
    /// Scenarios from which runs begin, separated by commas; all by default
    #[arg(long, value_name = "LIST")]
    scenarios: Option<String>,
    /// Guarantees of verbs: all that other providers give (`ordered`), or only RDMA's: on their
    /// order (`reorder`), on a CAS that fails (`writeback`), on both (`rdma`), on atomics combined
    /// with other accesses (`split`), on everything (`rdma+split`)
    #[arg(long, value_name = "WHICH", default_value = "ordered")]
    verbs: Relaxations,
    /// Let the nodes' processors execute the verbs of every other process, and their devices those
    /// of the others, to show why memory nodes refuse that; needs `--verbs split` or `rdma+split`
    #[arg(long, conflicts_with_all = ["sweep", "replay", "plan"])]
    mixed_sides: bool,
    /// Memory that survives a power failure: `never`, only words that happen to have been written
    /// back; `log`, the verbs executed up to some moment, including all acknowledged ones; `flush`,
    /// the same, except that unacknowledged writes survive line by line
    #[arg(long, value_name = "RULE", default_value = "never")]
    durability: Medium,
    /// Run on simulated memory groups: replicas die, come back, pause and are partitioned in every
    /// run. Of --faults, kill, cancel, drop, pause and refuse strike clients in addition
    #[arg(long, conflicts_with_all = ["sweep", "replay", "plan", "mixed_sides"])]
    groups: bool,
    /// Do not shrink a violation, which takes thousands of runs
    #[arg(long)]
    quick: bool,
    /// Strike each operation at every verb, await or allocation, one run each, instead of at random
    #[arg(long)]
    sweep: bool,
    /// The plan for --scheduler exhaustive, as in a replay line
    #[arg(long, value_name = "PLAN")]
    plan: Option<String>,
    /// With --scheduler exhaustive: execute long READs and WRITEs word by word
    #[arg(long)]
    tear: bool,
    /// Run the one schedule of a line that a violation printed; @FILE if the line is too long for a
    /// shell
    #[arg(long, value_name = "LINE|@FILE")]
    replay: Option<String>,
    /// Fail if a situation that must occur in a full exploration never occurred
    #[arg(long)]
    coverage: bool,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl SimCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        if let Some(line) = &self.replay {
            return self.replay(line);
        }
        let index = subject(&self.index).map_err(|error| Failure::usage(format!("--index: {error}")))?;
        let settings = self.settings(index)?;
        let start = Instant::now();
        if let SchedulerName::Exhaustive = self.scheduler {
            return self.exhaust();
        }
        let summary = if self.sweep { self.sweep(&settings)? } else { self.explore(&settings) };
        self.report(index, &summary, start.elapsed().as_secs_f64())
    }

    fn settings(&self, index: &'static Explored) -> Result<Settings, Failure> {
        let mut settings = Settings {
            seed: self.seed,
            runs: self.runs,
            clients: self.clients as usize,
            ops: self.ops as usize,
            keys: self.keys as usize,
            faults: faults((index, self.durability), &self.faults, self.sweep)?,
            scheduler: match self.scheduler {
                SchedulerName::Random => SchedulerKind::Random,
                SchedulerName::Pct => SchedulerKind::Pct,
                SchedulerName::Late => SchedulerKind::Late,
                SchedulerName::Mixed | SchedulerName::Exhaustive => SchedulerKind::Mixed,
            },
            threads: self.threads(),
            shrinks: !self.quick,
            verbs: self.verbs,
            medium: self.durability,
            sides: if self.mixed_sides { Sides::Mixed } else { Sides::One },
            groups: self.groups,
            ..Settings::of(index)
        };
        if self.mixed_sides && !self.verbs.split_atomics {
            return Err(Failure::usage("--mixed-sides: --verbs must have atomics split, as rdma+split does"));
        }
        if self.groups {
            self.fit_to_groups(&mut settings)?;
        }
        if let Some(names) = &self.scenarios {
            let scenarios = names.split(',').map(|name| index.scenario(name.trim()));
            settings.scenarios = scenarios.collect::<Result<_, _>>().map_err(Failure::usage)?;
        }
        Ok(settings)
    }

    /// Refuses options that groups do not support, and removes faults that do not apply to groups
    /// from `all`.
    fn fit_to_groups(&self, settings: &mut Settings) -> Result<(), Failure> {
        let refused = |what: String| Err(Failure::usage(format!("--groups: {what}")));
        if settings.subject.has_server {
            return refused(format!(
                "replicas do not run the procedures that {} needs",
                settings.subject.name
            ));
        }
        if settings.verbs != Relaxations::default() || settings.medium != Medium::Never {
            return refused("cannot be combined with --verbs or --durability".to_owned());
        }
        let is_known = |name: &String| GroupFaults::OF_CLIENTS.contains(&&name[..]);
        if self.faults == "all" {
            settings.faults.retain(is_known);
        }
        match settings.faults.iter().find(|name| !is_known(name)) {
            Some(name) => {
                let known = GroupFaults::OF_CLIENTS.join(", ");
                refused(format!("'{name}' cannot strike clients of groups; choose from {known}, all, none"))
            }
            None => Ok(()),
        }
    }

    fn threads(&self) -> usize {
        self.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
    }

    fn explore(&self, settings: &Settings) -> Summary {
        let bar = self.bar(settings.runs);
        let summary = settings.explore(&|at| bar.set_position(at));
        bar.finish_and_clear();
        summary
    }

    fn sweep(&self, settings: &Settings) -> Result<Summary, Failure> {
        if settings.faults.is_empty() {
            return Err(Failure::usage("--sweep needs --faults: name the faults that strike"));
        }
        let sweep = Sweep {
            subject: settings.subject,
            faults: settings.faults.clone(),
            scenarios: settings.scenarios.clone(),
            schedules: 1,
            seed: settings.seed,
            verbs: settings.verbs,
            medium: settings.medium,
            shrinks: settings.shrinks,
            threads: settings.threads,
        };
        let bar = self.bar(sweep.plans_len() as u64);
        let summary = sweep.run(&|_| bar.inc(1));
        bar.finish_and_clear();
        Ok(summary)
    }

    fn bar(&self, length: u64) -> ProgressBar {
        if self.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {per_sec} {eta}");
        ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }

    fn exhaust(&self) -> Result<Answer, Failure> {
        let plan = self.plan.as_ref().ok_or_else(|| {
            Failure::usage(
                "--scheduler exhaustive needs --plan, such as dart/plain/nodes=1/process=each/warm/p0;d0",
            )
        })?;
        let plan: Plan = plan.parse().map_err(Failure::usage)?;
        let bar = self.bar(self.runs);
        let Exhaustion { runs, pruned, complete, finding } =
            exhaust(&plan, self.tear, self.runs, &|at| bar.set_position(at));
        bar.finish_and_clear();
        let mut out = std::io::stdout().lock();
        if self.json {
            let finding = finding.as_ref().map(finding_json);
            let object = json!({ "runs": runs, "pruned": pruned, "complete": complete, "finding": finding });
            writeln!(out, "{object}")?;
        } else {
            writeln!(out, "plan       {plan}")?;
            writeln!(out, "schedules  {} checked, {pruned} more cut short as equivalent", runs - pruned)?;
            writeln!(out, "complete   {}", if complete { "yes: every schedule was checked" } else { "no" })?;
            print_finding(&mut out, finding.as_ref())?;
        }
        out.flush()?;
        Ok(if finding.is_none() { Answer::Done } else { Answer::No })
    }

    fn replay(&self, line: &str) -> Result<Answer, Failure> {
        let held = line.strip_prefix('@').map(|path| line_of(Path::new(path))).transpose()?;
        let line = held.as_deref().unwrap_or(line);
        let (plan, schedule) = parse_replay(line).map_err(Failure::usage)?;
        let outcome = Fixtures::default().run(&plan, &mut Replay::traced(&schedule));
        let mut out = std::io::stdout().lock();
        if self.json {
            let violation = outcome.violation.as_ref();
            let violation = violation.map(|it| json!({ "kind": it.kind, "text": it.text }));
            let object = json!({ "plan": plan.to_string(), "steps": outcome.steps, "violation": violation });
            writeln!(out, "{object}")?;
        } else {
            print_replay(&mut out, &plan, &schedule, &outcome)?;
        }
        out.flush()?;
        Ok(if outcome.violation.is_none() { Answer::Done } else { Answer::No })
    }

    fn report(&self, index: &Explored, summary: &Summary, seconds: f64) -> Result<Answer, Failure> {
        let missing: Vec<String> = if self.coverage {
            let expected = (index.situations)();
            let never = expected.into_iter().filter(|situation| !summary.situations.contains_key(situation));
            never.map(|situation| situation.to_string()).collect()
        } else {
            Vec::new()
        };
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", summary_json(summary, seconds, &missing))?;
        } else {
            print_summary(&mut out, summary, seconds)?;
            if !missing.is_empty() {
                writeln!(out, "never met  {}", missing.join(", "))?;
            }
            print_finding(&mut out, summary.finding.as_ref())?;
        }
        out.flush()?;
        let good = summary.finding.is_none() && missing.is_empty();
        Ok(if good { Answer::Done } else { Answer::No })
    }
}

fn faults((index, medium): (&Explored, Medium), list: &str, is_sweep: bool) -> Result<Vec<String>, Failure> {
    match list {
        "none" | "" => Ok(Vec::new()),
        "all" => Ok(index.survives(medium)),
        _ => {
            let names = list.split(',').map(str::trim);
            let known = names.map(|name| {
                if name == "lose" && !index.promises.survives.contains(&name) {
                    let index = index.name;
                    return Err(Failure::usage(format!(
                        "--faults: 'lose': {index} cannot be read around lost memory nodes; the indexes called quiver can"
                    )));
                }
                if name == "lose" && medium != Medium::Never {
                    return Err(Failure::usage("--faults: 'lose' cannot be combined with --durability"));
                }
                if Fault::NAMES.contains(&name) || is_sweep && name == SLOW {
                    return Ok(name.to_owned());
                }
                if name == SLOW {
                    return Err(Failure::usage("--faults: 'slow' needs --sweep"));
                }
                let names = Fault::NAMES.join(", ");
                let slow = if is_sweep { ", slow" } else { "" };
                Err(Failure::usage(format!(
                    "--faults: '{name}' is not a fault; choose from {names}{slow}, all, none"
                )))
            });
            known.collect()
        }
    }
}

fn print_summary(out: &mut impl Write, summary: &Summary, seconds: f64) -> std::io::Result<()> {
    let per_second = |count: u64| (count as f64 / seconds.max(1e-9)).round();
    writeln!(out, "schedules  {} ({} per second)", summary.runs, per_second(summary.runs))?;
    writeln!(
        out,
        "verbs      {} ({} per second), {} torn",
        summary.verbs,
        per_second(summary.verbs),
        counted(summary.torn, "long one")
    )?;
    let faults: Vec<String> = summary.faults.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if !faults.is_empty() {
        writeln!(out, "faults     {}", faults.join(", "))?;
    }
    if !summary.met.is_empty() {
        let met: Vec<String> = summary.met.iter().map(|(what, count)| format!("{what} {count}")).collect();
        writeln!(out, "groups     {}", met.join(", "))?;
    }
    if summary.lost > 0 {
        writeln!(out, "lost       a value, reported to {}", counted(summary.lost, "operation"))?;
    }
    if summary.left != Left::default() {
        let Left { kept, gone, reverted } = summary.left;
        writeln!(
            out,
            "given up   {} with their nodes, {kept} kept, {reverted} with values from before a transaction",
            counted(gone, "key")
        )?;
    }
    if summary.taken_back > 0 {
        writeln!(out, "power      took {} back", counted(summary.taken_back, "unflushed value"))?;
    }
    writeln!(
        out,
        "histories  {} in the longest, {} checked",
        counted(summary.longest_history, "operation"),
        counted(summary.states, "state")
    )?;
    if summary.undecided > 0 {
        writeln!(out, "undecided  {}", counted(summary.undecided, "history"))?;
    }
    let cost = |(trips, verbs)| format!("{} with {}", counted(trips, "round trip"), counted(verbs, "verb"));
    writeln!(out, "longest    {}, of any operation except upkeep", cost(summary.longest_op))?;
    if summary.longest_while_stopped.0 > 0 {
        let cost = cost(summary.longest_while_stopped);
        writeln!(out, "           {cost} while another client had stopped for ever")?;
    }
    let met: Vec<String> = summary.situations.iter().map(|(what, count)| format!("{what} {count}")).collect();
    writeln!(out, "met        {}", met.join(", "))
}

/// Returns the replay line that a file contains, alone or as a violation printed it.
fn line_of(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::usage(format!("--replay @{}: {error}", path.display()));
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(REPLAY_FILE_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > REPLAY_FILE_MAX {
        let what = format!("--replay @{}: longer than 64 MiB, so not a replay line", path.display());
        return Err(Failure::usage(what));
    }
    let text = text.trim();
    let line = text.rsplit_once("--replay ").map_or(text, |(_, line)| line);
    Ok(line.trim_matches('\'').to_owned())
}

fn print_finding(out: &mut impl Write, finding: Option<&Finding>) -> std::io::Result<()> {
    let Some(finding) = finding else {
        return writeln!(out, "violations none");
    };
    let violation = &finding.violation;
    writeln!(out, "\nVIOLATION in run {} ({}): {}", finding.run, violation.kind, violation.text.trim_end())?;
    writeln!(out, "\nmet with   {}", finding.plan)?;
    writeln!(
        out,
        "shrunk to  {} (context switches and torn verbs: {})",
        finding.small_plan,
        finding.small_schedule.switches()
    )?;
    writeln!(out, "see it     darter-lab sim --replay '{}'", finding.replay_line())
}

fn print_replay(
    out: &mut impl Write,
    plan: &Plan,
    schedule: &Schedule,
    outcome: &Outcome,
) -> std::io::Result<()> {
    writeln!(out, "plan       {plan}")?;
    writeln!(
        out,
        "schedule   {}, {} replayed",
        counted(outcome.steps, "step"),
        counted(schedule.0.len() as u64, "decision")
    )?;
    for line in &outcome.trace {
        writeln!(out, "  {line}")?;
    }
    match &outcome.violation {
        Some(violation) => writeln!(out, "VIOLATION ({}): {}", violation.kind, violation.text.trim_end()),
        None => writeln!(out, "violations none"),
    }
}

fn finding_json(finding: &Finding) -> serde_json::Value {
    json!({
        "run": finding.run,
        "kind": finding.violation.kind,
        "text": finding.violation.text,
        "plan": finding.plan.to_string(),
        "replay": finding.replay_line(),
    })
}

fn summary_json(summary: &Summary, seconds: f64, missing: &[String]) -> serde_json::Value {
    let situations: serde_json::Map<String, serde_json::Value> =
        summary.situations.iter().map(|(what, count)| (what.to_string(), json!(count))).collect();
    json!({
        "schedules": summary.runs,
        "seconds": seconds,
        "steps": summary.steps,
        "verbs": summary.verbs,
        "torn_verbs": summary.torn,
        "faults": summary.faults,
        "groups": summary.met,
        "taken_back": summary.taken_back,
        "told_of_lost_values": summary.lost,
        "given_up": { "gone": summary.left.gone, "kept": summary.left.kept, "reverted": summary.left.reverted },
        "states_checked": summary.states,
        "undecided_histories": summary.undecided,
        "longest_history": summary.longest_history,
        "longest_operation": { "round_trips": summary.longest_op.0, "verbs": summary.longest_op.1 },
        "beside_stopped": {
            "round_trips": summary.longest_while_stopped.0,
            "verbs": summary.longest_while_stopped.1,
        },
        "situations": situations,
        "never_met": missing,
        "finding": summary.finding.as_ref().map(finding_json),
    })
}
