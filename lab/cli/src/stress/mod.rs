//! `stress`: kills and pauses processes on one pool, and memory nodes and links too, and checks all
//! their results.

mod summary;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use darter::{ByteSize, PoolUrl};
use darter_check::stress::cluster::{self, ClusterConfig, NodeConfig};
use darter_check::stress::{
    Environment, Launch, Progress, Site, StressConfig, StressError, SubjectKind, Verdict, coordinator,
    worker, worker::WorkerConfig,
};
use darter_cli::credentials::{ClientArgs, without_credentials};
use darter_cli::failure::complain;
use darter_cli::pool::usable;
use darter_cli::signals::Interrupt;
use darter_cli::{Answer, Failure};
use darter_fabric::counted;
use darter_fabric::decorate::Jitter;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Redraws per second: few, since the workers share the cores with the bar.
const REDRAWS_PER_SECOND: u8 = 5;
/// The hidden command that starts a worker.
pub(crate) const WORKER_COMMAND: &str = "stress-worker";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter-lab stress --pool 'file:/dev/shm/stress.pool?size=256M' --seconds 60
  darter-lab stress --memnodes 3 --node-kills 1 --until-kills 30
  darter-lab stress --memnodes 2 --replicas 2 --node-size 16M --node-kills 0.5 --node-pauses 0.5")]
#[allow(clippy::struct_excessive_bools)] // independent switches
pub(crate) struct StressCommand {
    /// The pool: `file:PATH?size=SIZE[&nodes=N]` to create it, or the name of one without keys
    #[arg(long, value_name = "URL", env = "DARTER_POOL", required_unless_present = "memnodes")]
    pool: Option<PoolUrl>,
    /// Start this many memory nodes for the run, with their regions in files, and work on a pool
    /// over them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(cluster::NODES_MAX)))]
    memnodes: Option<u8>,
    #[command(flatten)]
    credentials: ClientArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The index to stress
    #[arg(long, value_name = "NAME", default_value = "quiver", value_parser = index_names())]
    index: SubjectKind,
    /// Worker processes at a time
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(coordinator::PROCESSES_MAX)))]
    processes: u32,
    /// Threads of each process
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(worker::THREADS_MAX)))]
    threads: u32,
    /// How long the workers work, excluding checks
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// End sooner, after N operations and three each of the configured kills, pauses and thread
    /// stops
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// End sooner, after N kills
    #[arg(long, value_name = "N")]
    until_kills: Option<u64>,
    /// Keys that all workers use
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(darter_check::stress::keys::KEYS_MAX)))]
    keys: u32,
    /// Random seed; the same seed gives the same operations, but the system schedules them
    /// differently
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Workers killed per second, by SIGKILL; each is replaced
    #[arg(long, value_name = "PER_SECOND", default_value = "2", value_parser = rate)]
    kills: f64,
    /// Workers paused per second, for up to four leases
    #[arg(long, value_name = "PER_SECOND", default_value = "4", value_parser = rate)]
    pauses: f64,
    /// Repairs per second while the workers work
    #[arg(long, value_name = "PER_SECOND", default_value = "1", value_parser = rate)]
    repairs: f64,
    /// Single threads of workers stopped per second, for up to four leases
    #[arg(long, value_name = "PER_SECOND", default_value = "0", value_parser = rate)]
    thread_stops: f64,
    /// Delay this share of all batches of verbs, before, within or after them, for up to this many
    /// milliseconds; 0.02:40 if no value is given
    #[arg(long, value_name = "SHARE:MS", num_args = 0..=1, require_equals = true, value_parser = delays,
        default_missing_value = "0.02:40")]
    delays: Option<Jitter>,
    /// Write values of one to four kilobytes: in a small pool they reuse freed memory within
    /// milliseconds
    #[arg(long)]
    large_values: bool,
    /// Make transactions part of the operations: transfers between accounts, and appends to lists,
    /// which single operations read and change too
    #[arg(long)]
    transactions: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Falsify one outcome before the checks, which must detect it
    #[arg(long, hide = true)]
    canary: bool,
}

/// The memory nodes of a run and their faults.
#[derive(clap::Args)]
#[group(id = "nodes", requires = "memnodes", multiple = true)]
struct ClusterArgs {
    /// Processes of each memory node, each with all of its region: a killed one comes back empty,
    /// and none is killed if that would lose the group
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=i64::from(cluster::REPLICAS_MAX)))]
    replicas: u8,
    /// Bytes of each memory node's region
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    node_size: ByteSize,
    /// Give each memory node and each worker its own network namespace and address (needs root)
    #[arg(long)]
    apart: bool,
    /// Memory nodes killed per second, by SIGKILL; each is started again with its file
    #[arg(long, value_name = "PER_SECOND", default_value = "0", value_parser = rate)]
    node_kills: f64,
    /// Memory nodes paused per second
    #[arg(long, value_name = "PER_SECOND", default_value = "0", value_parser = rate)]
    node_pauses: f64,
    /// Links cut or slowed per second, for up to four leases; needs --apart
    #[arg(long, value_name = "PER_SECOND", default_value = "0", value_parser = rate)]
    cuts: f64,
}

impl StressCommand {
    fn environment(&self) -> Result<Environment, Failure> {
        let ClusterArgs { replicas, node_size, apart, node_kills, node_pauses, cuts } = self.cluster;
        match (self.memnodes, &self.pool) {
            (Some(nodes), _) => {
                let nodes = ClusterConfig {
                    nodes,
                    replicas,
                    node_bytes: node_size.0,
                    apart,
                    kills_per_second: node_kills,
                    pauses_per_second: node_pauses,
                    cuts_per_second: cuts,
                };
                Ok(Environment::Cluster(nodes, self.index))
            }
            (None, Some(pool)) => Ok(Environment::Pool(Box::new(site(pool, self.index, &self.credentials)?))),
            (None, None) => {
                Err(Failure::usage("name a pool with --pool, or start memory nodes with --memnodes"))
            }
        }
    }
}

/// Parses the name of an index that can be stressed.
fn index_names() -> impl TypedValueParser<Value = SubjectKind> {
    PossibleValuesParser::new(SubjectKind::ALL.map(SubjectKind::name)).try_map(|name| name.parse())
}

/// Parses a number of seconds, possibly with a fraction.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "not a number of seconds, such as 10 or 0.5".to_owned())
}

/// Parses a number of events per second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1000.0).contains(rate));
    rate.ok_or_else(|| "not a number from 0 to 1000, such as 2 or 0.5".to_owned())
}

/// Parses a share of all batches and the longest delay, such as `0.02:40`.
fn delays(text: &str) -> Result<Jitter, String> {
    let parts =
        text.split_once(':').and_then(|(share, ms)| Some((share.parse().ok()?, ms.parse::<f64>().ok()?)));
    let longest_ms = coordinator::DELAY_MAX.as_secs_f64() * 1000.0;
    match parts {
        Some((share, ms)) if (0.0..=1.0).contains(&share) && (0.0..=longest_ms).contains(&ms) => {
            Ok(Jitter { share, longest: Duration::from_secs_f64(ms / 1000.0), seed: 0 })
        }
        _ => Err(format!(
            "not a share from 0 to 1 and a number of milliseconds up to {longest_ms}, such as 0.02:40"
        )),
    }
}

/// Converts an error to one with an exit code.
fn failure(error: StressError) -> Failure {
    if error.is_usage() { Failure::usage(error) } else { Failure::failed(error) }
}

impl StressCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let interrupt = Interrupt::on_signals()?;
        let config = StressConfig {
            environment: self.environment()?,
            processes: self.processes,
            threads: self.threads,
            keys: self.keys,
            seed: self.seed,
            duration: self.seconds,
            operations: self.ops,
            kills: self.until_kills,
            kills_per_second: self.kills,
            pauses_per_second: self.pauses,
            repairs_per_second: self.repairs,
            thread_stops_per_second: self.thread_stops,
            jitter: self.delays.unwrap_or_default(),
            large_values: self.large_values,
            transactions: self.transactions,
            canary: self.canary,
            stop: interrupt.flag(),
        };
        let bar = self.bar();
        let worker = |config: &WorkerConfig| {
            let mut command = launch_worker(config)?;
            match self.memnodes {
                Some(_) => without_credentials(&mut command),
                None => self.credentials.tell(&mut command),
            }
            Ok(command)
        };
        let launch = Launch { worker: &worker, node: &launch_node };
        let report = coordinator::run(&config, launch, &mut |progress| self.show(&bar, progress));
        bar.finish_and_clear();
        let report = report.map_err(failure)?;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", self.as_json(&report))?;
        } else {
            self.print(&mut out, &report)?;
        }
        out.flush()?;
        if let Some(logs) = &report.logs {
            complain(format_args!("the logs and the histories of the keys named are in {}", logs.display()));
        }
        match report.verdict() {
            Verdict::Linearizable if interrupt.has_come() => {
                Err(Failure::Interrupted("interrupted; the verdict covers the run until then".to_owned()))
            }
            Verdict::Linearizable => Ok(Answer::Done),
            _ => Ok(Answer::No),
        }
    }

    /// Returns a bar that is shown only on a terminal.
    fn bar(&self) -> ProgressBar {
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
        let length = u64::try_from(self.seconds.as_millis()).unwrap_or(u64::MAX);
        let bar = ProgressBar::with_draw_target(Some(length), target);
        match ProgressStyle::with_template("{wide_bar} {msg}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }

    fn show(&self, bar: &ProgressBar, progress: &Progress) {
        let part = match self.ops {
            Some(ops) if ops > 0 => progress.operations as f64 / ops as f64,
            _ => 0.0,
        };
        let part =
            part.max(self.until_kills.map_or(0.0, |kills| progress.kills as f64 / kills.max(1) as f64));
        let part = part.max(progress.worked.as_secs_f64() / self.seconds.as_secs_f64()).clamp(0.0, 1.0);
        bar.set_position((part * bar.length().unwrap_or(0) as f64) as u64);
        let judging = if progress.judging { ", judging" } else { "" };
        bar.set_message(format!(
            "{}, {}, {}, {}{judging}",
            summary::many(progress.operations, "operation"),
            counted(progress.kills, "kill"),
            counted(progress.pauses, "pause"),
            counted(progress.thread_stops, "thread stop")
        ));
    }
}

/// Returns a pool and the options for opening it.
fn site(url: &PoolUrl, kind: SubjectKind, credentials: &ClientArgs) -> Result<Site, Failure> {
    usable(url)?;
    Ok(Site { url: url.clone(), options: credentials.store_options(url)?, index: kind })
}

/// Returns the command that starts this program as a worker.
fn launch_worker(config: &WorkerConfig) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // A signal from the terminal is for the coordinator, which ends the workers.
    command
        .process_group(0)
        .arg(WORKER_COMMAND)
        .arg("--pool")
        .arg(config.pool.url.to_string())
        .args(["--index", config.pool.index.name()])
        .arg("--logs")
        .arg(&config.logs);
    for (name, number) in [
        ("--life", config.life),
        ("--slot", config.slot),
        ("--threads", config.threads),
        ("--keys", config.keys),
        ("--coordinator", config.coordinator),
    ] {
        command.arg(name).arg(number.to_string());
    }
    command.arg("--seed").arg(config.seed.to_string());
    let Jitter { share, longest, seed } = config.jitter;
    if share > 0.0 {
        command.arg(format!("--delays={share}:{}", longest.as_secs_f64() * 1000.0));
        command.arg("--delay-seed").arg(seed.to_string());
    }
    if config.large_values {
        command.arg("--large-values");
    }
    if config.transactions {
        command.arg("--transactions");
    }
    Ok(command)
}

/// Returns the command that starts this program as a memory node.
fn launch_node(config: &NodeConfig) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    without_credentials(&mut command);
    command.process_group(0).args(["memnode", "--until-stdin-closes", "--log-level", "warn"]);
    command.args(["--listen", &config.listen.to_string(), "--size", &config.bytes.to_string()]);
    match &config.replica {
        None => command.arg("--file").arg(&config.file),
        Some(replica) => command
            .args(["--replicas", &replica.address(), "--views", &replica.views])
            .args(["--group", &replica.group.to_string()])
            .args(["--suspect-after", &replica.patience.as_secs_f64().to_string()]),
    };
    Ok(command)
}

/// A worker of `stress`, which only `stress` itself starts.
#[derive(clap::Args)]
pub(crate) struct WorkerCommand {
    /// The pool
    #[arg(long)]
    pool: PoolUrl,
    /// Its index
    #[arg(long)]
    index: SubjectKind,
    #[command(flatten)]
    credentials: ClientArgs,
    /// Directory of the logs
    #[arg(long)]
    logs: PathBuf,
    /// The number of this process
    #[arg(long)]
    life: u32,
    /// Its place among the workers that run at the same time
    #[arg(long)]
    slot: u32,
    /// Working threads
    #[arg(long)]
    threads: u32,
    /// Keys
    #[arg(long)]
    keys: u32,
    /// Random seed
    #[arg(long)]
    seed: u64,
    /// The process whose death ends this one
    #[arg(long)]
    coordinator: u32,
    /// The share of batches to delay, and the longest delay
    #[arg(long, value_parser = delays, require_equals = true)]
    delays: Option<Jitter>,
    /// Random seed of the delays
    #[arg(long, default_value_t = 0)]
    delay_seed: u64,
    /// Write large values
    #[arg(long)]
    large_values: bool,
    /// Make transactions part of the operations
    #[arg(long)]
    transactions: bool,
}

impl WorkerCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let config = WorkerConfig {
            pool: site(&self.pool, self.index, &self.credentials)?,
            logs: self.logs.clone(),
            life: self.life,
            slot: self.slot,
            threads: self.threads,
            keys: self.keys,
            seed: self.seed,
            coordinator: self.coordinator,
            jitter: Jitter { seed: self.delay_seed, ..self.delays.unwrap_or_default() },
            large_values: self.large_values,
            transactions: self.transactions,
        };
        worker::run(&config).map_err(failure)?;
        Ok(Answer::Done)
    }
}
