//! The coordinator: creates the pool, disturbs the workers, and has the results checked.

use super::cluster::{Cluster, NODES_MAX, REPLICAS_MAX};
use super::collect::Collected;
use super::fleet::{Failed, Fleet};
use super::judge::{self, PoolJudgement, check_pool, read_all};
use super::keys::{KEYS_MAX, KeySet};
use super::ledger::{self, LISTS, MONEY};
use super::log_reader::LogSet;
use super::repairer::{Repairs, next_in, repair_often};
use super::tally::WorkerCounts;
use super::worker::{THREADS_MAX, WorkerConfig, last_words};
use super::{
    EVENTS_MIN, Environment, Launch, Progress, Report, Site, StressConfig, StressError, SubjectKind, Verdict,
};
use crate::dice::Dice;
use crate::elle;
use darter::engine::{Engine, KeySpace};
use darter::{PoolUrl, Store, StoreOptions};
use darter_fabric::counted;
use darter_fabric::decorate::Jitter;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Maximum number of worker processes at a time.
pub const PROCESSES_MAX: u32 = 64;

/// The lease of a new pool: short, so that pauses outlast it.
const LEASE: Duration = Duration::from_millis(100);
/// The same if replicas of memory nodes fail over to each other, which a lease must outlast.
const LEASE_OVER_FAILOVERS: Duration = Duration::from_secs(1);
/// Block size of a new pool: small, so that there is room for many processes and objects often end
/// where a block does.
const BLOCK_BYTES: u64 = 256 << 10;
/// Operations of a round, few enough for the checker to hold in memory.
const ROUND_OPERATIONS: u64 = 500_000;
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(400);
/// The longest of the short pauses.
const SHORT_PAUSE_MAX: Duration = Duration::from_millis(20);
/// The longest delay that can be configured: workers must still be able to open the pool.
pub const DELAY_MAX: Duration = Duration::from_secs(1);
/// The longest time for which a memory node is down.
const DOWN_MAX: Duration = Duration::from_millis(300);
/// Anomalies of transactions that are explained; the history of all is kept.
const ANOMALIES_TOLD: usize = 4;
/// Time between two checks of the workers and their logs.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the stress and checks its results. Call it from a thread that outlives the call: workers
/// die with the thread that started them.
///
/// # Errors
/// Fails if the configuration is invalid, or if an error prevents a verdict. Violations are in the
/// report.
pub fn run(
    config: &StressConfig,
    launch: Launch<'_>,
    observe: &mut dyn FnMut(&Progress),
) -> Result<Report, StressError> {
    validate(config)?;
    let mut cluster = None;
    let pool = match &config.environment {
        Environment::Pool(site) => prepare_pool(site)?,
        Environment::Cluster(nodes, index) => {
            let lease = if nodes.replicas > 1 { LEASE_OVER_FAILOVERS } else { LEASE };
            let started = cluster.insert(Cluster::start(nodes, config.processes, launch.node)?);
            let url = started.pool()?;
            let site = Site::plain(url, *index);
            let options = for_a_new_pool(site.options.clone()).lease(lease).create(true);
            drop(Site { options, ..site.clone() }.make()?);
            site
        }
    };
    let logs = log_directory(&pool.url)?;
    let run = Run {
        config,
        cluster,
        pool: &pool,
        logs: logs.path(),
        keys: KeySet::new(config.keys),
        dice: Dice::new(config.seed),
        lives: 0,
        launch,
        observe,
        tallies: Vec::new(),
        report: Report {
            worked: Duration::ZERO,
            rounds: 0,
            counts: Collected::new(config.keys),
            kills: 0,
            pauses: 0,
            pause_max: Duration::ZERO,
            thread_stops: 0,
            thread_stop_max: Duration::ZERO,
            inside: WorkerCounts::default(),
            written_bytes: 0,
            pool_bytes: 0,
            node_kills: 0,
            node_pauses: 0,
            cuts: 0,
            repairs: 0,
            repaired_bytes: 0,
            longest_history: 0,
            checker_steps: 0,
            failures: Vec::new(),
            appends: 0,
            pool: PoolJudgement::default(),
            findings: Vec::new(),
            logs: None,
        },
    };
    match run.finish() {
        Ok(report) if report.verdict() == Verdict::Linearizable => Ok(report),
        Ok(mut report) => {
            for failure in &report.failures {
                let path = logs.path().join(format!("key-{}.txt", failure.rank));
                std::fs::write(&path, &failure.explanation).map_err(|source| StressError::File {
                    path,
                    action: "write it",
                    source,
                })?;
            }
            report.logs = Some(logs.keep());
            Ok(report)
        }
        Err(source) => Err(StressError::Interrupted { logs: logs.keep(), source: Box::new(source) }),
    }
}

fn validate(config: &StressConfig) -> Result<(), StressError> {
    let usage = |what: String| Err(StressError::Usage(what));
    let between = |what: &str, n: u32, max: u32| match n {
        n if (1..=max).contains(&n) => Ok(()),
        n => usage(format!("{n} {what}: the number must be from 1 to {max}")),
    };
    between("processes", config.processes, PROCESSES_MAX)?;
    between("threads", config.threads, THREADS_MAX)?;
    between("keys", config.keys, KEYS_MAX)?;
    if config.transactions {
        let index = match &config.environment {
            Environment::Pool(site) => site.index,
            Environment::Cluster(_, index) => *index,
        };
        if index != SubjectKind::Quiver || config.keys < LISTS {
            return usage(format!("transactions need the index quiver and at least {LISTS} keys"));
        }
    }
    let Jitter { share, longest, .. } = config.jitter;
    if !(0.0..=1.0).contains(&share) || longest > DELAY_MAX {
        return usage(format!(
            "delays of {share} of all batches for up to {} ms: the share must be from 0 to 1, the delay at most {} ms",
            longest.as_millis(),
            DELAY_MAX.as_millis()
        ));
    }
    let mut rates = vec![config.kills_per_second, config.pauses_per_second, config.repairs_per_second];
    rates.push(config.thread_stops_per_second);
    if let Environment::Cluster(cluster, _) = &config.environment {
        between("memory nodes", cluster.nodes.into(), NODES_MAX.into())?;
        between("replicas", cluster.replicas.into(), REPLICAS_MAX.into())?;
        rates.extend([cluster.kills_per_second, cluster.pauses_per_second, cluster.cuts_per_second]);
        if cluster.cuts_per_second > 0.0 && !cluster.apart {
            return usage(
                "cutting links needs a separate network for each node and worker: add --apart".to_owned(),
            );
        }
    }
    for rate in rates {
        if !(0.0..=1000.0).contains(&rate) {
            return usage(format!("{rate} events per second: the rate must be from 0 to 1000"));
        }
    }
    match &config.environment {
        Environment::Pool(site) if site.url.path().is_none() && site.url.addresses().is_none() => {
            usage(format!(
                "pool `{}`: other processes cannot reach a pool in this process's memory; use `file:PATH?size=256M`",
                site.url
            ))
        }
        _ => Ok(()),
    }
}

/// The options of a new pool.
fn for_a_new_pool(options: StoreOptions) -> StoreOptions {
    options.block_bytes(BLOCK_BYTES).lease(LEASE)
}

/// Creates or opens the pool, which must have no keys, and returns its site with a URL without a
/// size.
fn prepare_pool(site: &Site) -> Result<Site, StressError> {
    let url = &site.url;
    let store = Site { options: for_a_new_pool(site.options.clone()), ..site.clone() }.make()?;
    if let Some(pair) = store.session_in(KeySpace::Whole)?.range(..).limit(1).next() {
        let (key, _) = pair?;
        return Err(StressError::Usage(format!(
            "pool `{url}` holds keys, such as `{}`, and the stress would overwrite them; name a new file, as in \
             `file:PATH?size=256M`",
            key.escape_ascii()
        )));
    }
    let url = url.path().map_or_else(|| url.clone(), PoolUrl::file);
    Ok(Site { url, ..site.clone() })
}

/// Creates a directory for the logs, next to the pool if possible: a place with room for the pool
/// has room for the logs.
fn log_directory(pool: &PoolUrl) -> Result<TempDir, StressError> {
    let prefix = "darter-stress-";
    let beside = pool.path().and_then(Path::parent).map(|parent| {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        tempfile::Builder::new().prefix(prefix).tempdir_in(parent)
    });
    match beside {
        // The directory of a device cannot hold files.
        Some(Ok(directory))
            if !directory.path().starts_with("/dev") || directory.path().starts_with("/dev/shm") =>
        {
            Ok(directory)
        }
        _ => tempfile::Builder::new()
            .prefix(prefix)
            .tempdir()
            .map_err(|error| StressError::system("create a directory for the logs", error)),
    }
}

/// A fault or repair that the coordinator injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Kill,
    Pause,
    StopThread,
    KillNode,
    PauseNode,
    Cut,
}

/// A run in progress.
struct Run<'r> {
    config: &'r StressConfig,
    cluster: Option<Cluster<'r>>,
    pool: &'r Site,
    logs: &'r Path,
    keys: KeySet,
    dice: Dice,
    /// Workers started so far.
    lives: u32,
    launch: Launch<'r>,
    observe: &'r mut dyn FnMut(&Progress),
    report: Report,
    /// Files in which the workers of a round keep their counts.
    tallies: Vec<PathBuf>,
}

impl Run<'_> {
    /// Performs all rounds, and the final checks.
    fn finish(mut self) -> Result<Report, StressError> {
        let mut initial = BTreeMap::new();
        loop {
            let collected = self.round()?;
            initial = self.judge(collected, &initial)?;
            self.report.rounds += 1;
            if self.report.verdict() != Verdict::Linearizable {
                return Ok(self.report);
            }
            if self.is_over(self.report.worked, 0) {
                break;
            }
        }
        self.empty(&initial)?;
        Ok(self.report)
    }

    /// Whether the workers have done enough: `operations` in addition to the rounds before.
    fn is_over(&self, worked: Duration, operations: u64) -> bool {
        let enough = |events: u64, rate: f64| events >= EVENTS_MIN || rate == 0.0;
        let by_count = self.config.operations.is_some_and(|limit| {
            self.report.counts.operations() + operations >= limit
                && enough(self.report.kills, self.config.kills_per_second)
                && enough(self.report.pauses, self.config.pauses_per_second)
                && enough(self.report.thread_stops, self.config.thread_stops_per_second)
        });
        let by_kills = self.config.kills.is_some_and(|kills| self.report.kills >= kills);
        let is_asked = self.config.stop.load(Ordering::Relaxed);
        is_asked || by_count || by_kills || worked >= self.config.duration
    }

    /// Lets workers work, disturbed, until the round is over and they have ended.
    fn round(&mut self) -> Result<Collected, StressError> {
        if self.config.transactions {
            ledger::begin(&self.pool.open()?)?;
        }
        let stop = AtomicBool::new(false);
        let repairs = Mutex::new(Repairs::default());
        let (pool, per_second, seed) = (self.pool, self.config.repairs_per_second, self.dice.next());
        let collected = std::thread::scope(|scope| {
            scope.spawn(|| repair_often(pool, per_second, seed, &stop, &repairs));
            let collected = self.disturb(&repairs);
            stop.store(true, Ordering::Relaxed);
            collected
        })?;
        let repairs = repairs.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.report.repairs += repairs.count;
        self.report.repaired_bytes += repairs.repaired_bytes;
        self.report.findings.extend(repairs.findings);
        Ok(collected)
    }

    fn disturb(&mut self, repairs: &Mutex<Repairs>) -> Result<Collected, StressError> {
        let mut fleet = Fleet::default();
        let mut logs = LogSet::new();
        for slot in 0..self.config.processes {
            self.start(&mut fleet, &mut logs, slot)?;
        }
        let begin = Instant::now();
        let worked_before = self.report.worked;
        let mut blows: Vec<(Blow, f64, Option<Instant>)> = Vec::new();
        for (blow, per_second) in self.blows() {
            blows.push((blow, per_second, self.next(begin, per_second)));
        }
        let mut look_at = begin;
        loop {
            let now = Instant::now();
            fleet.wake(now)?;
            if let Some(cluster) = &mut self.cluster {
                cluster.heal(now)?;
            }
            for (blow, per_second, at) in &mut blows {
                if at.is_some_and(|at| at <= now) {
                    self.strike(*blow, &mut fleet, &mut logs, now)?;
                    *at = self.next(now, *per_second);
                }
            }
            if look_at <= now {
                let failed = fleet.ended()?;
                self.complain(&failed);
                let ended = self.cluster.as_mut().map_or(Ok(Vec::new()), Cluster::ended)?;
                let is_broken = !failed.is_empty() || !ended.is_empty();
                self.report.findings.extend(ended);
                self.report.worked = worked_before + begin.elapsed();
                let operations = logs.operations()?;
                self.show(operations, false);
                let found = !repairs.lock().unwrap_or_else(PoisonError::into_inner).findings.is_empty();
                if is_broken
                    || found
                    || operations >= ROUND_OPERATIONS
                    || self.is_over(self.report.worked, operations)
                {
                    break;
                }
                look_at = now + LOOK;
            }
            let heal = self.cluster.as_ref().and_then(Cluster::next_heal);
            let due = blows.iter().map(|(_, _, at)| *at).chain([fleet.next_wake(), heal]);
            let next = due.flatten().fold(look_at, Instant::min);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.heal_all()?;
        }
        let failed = fleet.end()?;
        self.complain(&failed);
        Ok(logs.read(self.config.keys)?)
    }

    /// Returns the faults and repairs of this run, and how often each happens per second.
    fn blows(&self) -> Vec<(Blow, f64)> {
        let mut blows = vec![
            (Blow::Kill, self.config.kills_per_second),
            (Blow::Pause, self.config.pauses_per_second),
            (Blow::StopThread, self.config.thread_stops_per_second),
        ];
        if let Environment::Cluster(cluster, _) = &self.config.environment {
            blows.extend([
                (Blow::KillNode, cluster.kills_per_second),
                (Blow::PauseNode, cluster.pauses_per_second),
                (Blow::Cut, cluster.cuts_per_second),
            ]);
        }
        blows
    }

    fn next(&mut self, now: Instant, per_second: f64) -> Option<Instant> {
        next_in(&mut self.dice, per_second).map(|wait| now + wait)
    }

    fn start(&mut self, fleet: &mut Fleet, logs: &mut LogSet, slot: u32) -> Result<(), StressError> {
        self.lives += 1;
        let config = WorkerConfig {
            pool: self.pool.clone(),
            logs: self.logs.to_owned(),
            life: self.lives,
            slot,
            threads: self.config.threads,
            keys: self.config.keys,
            seed: self.config.seed,
            coordinator: std::process::id(),
            jitter: Jitter { seed: self.config.seed, ..self.config.jitter },
            large_values: self.config.large_values,
            transactions: self.config.transactions,
        };
        self.tallies.push(config.tally());
        logs.follow(log_paths(&config));
        let command = (self.launch.worker)(&config).map(|command| match &self.cluster {
            Some(cluster) => cluster.place(slot, command),
            None => command,
        });
        fleet.start(config, command)
    }

    /// Injects a fault or repair at a random target.
    fn strike(
        &mut self,
        blow: Blow,
        fleet: &mut Fleet,
        logs: &mut LogSet,
        now: Instant,
    ) -> Result<(), StressError> {
        // Half of the pauses are long.
        let max = if self.dice.one_in(2) { PAUSE_MAX } else { SHORT_PAUSE_MAX };
        let pause = max.mul_f64(self.dice.fraction());
        match (blow, &mut self.cluster) {
            (Blow::Kill, _) => {
                let killed = fleet.kill(self.dice.below(fleet.len() as u64) as usize)?;
                logs.end(&log_paths(&killed))?;
                self.report.kills += 1;
                self.start(fleet, logs, killed.slot)?;
            }
            (Blow::Pause, _) => {
                // One worker always keeps running.
                let index = self.dice.below(fleet.len() as u64) as usize;
                if fleet.stopped() + 1 < fleet.len().max(2) && fleet.stop(index, now + pause)? {
                    self.report.pauses += 1;
                    self.report.pause_max = self.report.pause_max.max(pause);
                }
            }
            (Blow::StopThread, _) => {
                let index = self.dice.below(fleet.len() as u64) as usize;
                if fleet.stop_thread(index, |threads| self.dice.below(threads), pause)? {
                    self.report.thread_stops += 1;
                    self.report.thread_stop_max = self.report.thread_stop_max.max(pause);
                }
            }
            (Blow::KillNode, Some(cluster)) => {
                let down = DOWN_MAX.mul_f64(self.dice.fraction());
                let is_hit = cluster.kill(self.dice.below(cluster.len()), now + down)?;
                self.report.node_kills += u64::from(is_hit);
            }
            (Blow::PauseNode, Some(cluster)) => {
                let is_hit = cluster.stop(self.dice.below(cluster.len()), now + pause)?;
                self.report.node_pauses += u64::from(is_hit);
            }
            (Blow::Cut, Some(cluster)) => {
                let is_cut = !self.dice.one_in(3);
                let is_hit = cluster.hurt(self.dice.below(cluster.links()), is_cut, now + pause)?;
                self.report.cuts += u64::from(is_hit);
            }
            (Blow::KillNode | Blow::PauseNode | Blow::Cut, None) => {}
        }
        Ok(())
    }

    /// Records workers that ended by themselves or did not end.
    fn complain(&mut self, failed: &[Failed]) {
        for Failed { config, status } in failed {
            let words = last_words(&config.complaints());
            self.report.findings.push(match status {
                Some(status) => format!("worker {} ended by itself, {status}:\n  {words}", config.life),
                None => format!(
                    "worker {} does not end: an operation hangs; see the last records of its logs\n  {words}",
                    config.life
                ),
            });
        }
    }

    fn show(&mut self, operations: u64, judging: bool) {
        let Report { worked, kills, pauses, thread_stops, .. } = self.report;
        let operations = self.report.counts.operations() + operations;
        (self.observe)(&Progress { worked, operations, kills, pauses, thread_stops, judging });
    }

    /// Checks a round; returns the values of the keys after it.
    fn judge(
        &mut self,
        mut collected: Collected,
        initial: &BTreeMap<u32, u64>,
    ) -> Result<BTreeMap<u32, u64>, StressError> {
        self.report.counts.add_counts(&collected);
        self.report.written_bytes += collected.written_bytes();
        for path in self.tallies.drain(..) {
            self.report.inside.add(&WorkerCounts::read(&path));
        }
        self.show(0, true);
        let store = self.pool.open()?;
        self.report.pool_bytes = store.usage()?.bytes();
        let state = read_all(&store, &self.keys, &mut collected)?;
        self.report.findings.extend(state.broken);
        let mut keys = state.values.len() as u64;
        if self.config.transactions {
            keys += self.judge_transactions(&store, &mut collected)?;
        }
        drop(store);
        if self.config.canary {
            collected.falsify();
        }
        let judgement = judge::judge(&self.keys, &collected, initial);
        self.report.longest_history = self.report.longest_history.max(judgement.longest_history);
        self.report.checker_steps += judgement.steps;
        self.report.failures.extend(judgement.failures);
        self.check_pool(keys)?;
        if self.report.verdict() == Verdict::Linearizable {
            self.remove_logs()?;
            if self.config.transactions {
                ledger::clear(&self.pool.open()?)?;
            }
        }
        Ok(state.values)
    }

    /// Checks the transactions of a round; returns the number of their keys.
    fn judge_transactions(&mut self, store: &Store, collected: &mut Collected) -> Result<u64, StressError> {
        let found = ledger::read_all(store)?;
        self.report.findings.append(&mut collected.wrong_sums);
        if found.money != MONEY {
            let what = format!("the accounts hold {} after the round, instead of {MONEY}", found.money);
            self.report.findings.push(what);
        }
        let mut history = std::mem::take(&mut collected.appends);
        self.report.appends += history.len() as u64;
        history.push(found.lists);
        let anomalies = elle::check(&history);
        if !anomalies.is_empty() {
            let path = self.logs.join("transactions.edn");
            std::fs::write(&path, elle::to_edn(&history)).map_err(|source| StressError::File {
                path,
                action: "write it",
                source,
            })?;
        }
        let told = anomalies.iter().take(ANOMALIES_TOLD).map(|anomaly| format!("transactions: {anomaly}"));
        self.report.findings.extend(told);
        Ok(found.keys)
    }

    fn check_pool(&mut self, keys: u64) -> Result<(), StressError> {
        let found = check_pool(self.pool)?;
        if found.keys != keys {
            let what = format!(
                "a walk of the index counted {}, but searches found {keys}",
                counted(found.keys, "key")
            );
            self.report.findings.push(what);
        }
        self.report.pool.add(found);
        Ok(())
    }

    /// Deletes every key, so that another run can follow, and checks the remaining pool.
    fn empty(&mut self, values: &BTreeMap<u32, u64>) -> Result<(), StressError> {
        let store = self.pool.open()?;
        let session = store.session()?;
        for &rank in values.keys() {
            if !session.discard(self.keys.key(rank))? {
                self.report.findings.push(format!("key {rank} was present but could not be deleted"));
            }
        }
        drop((session, store));
        self.check_pool(0)
    }

    /// Removes the logs of a round without findings.
    fn remove_logs(&self) -> Result<(), StressError> {
        let refused = |path: &Path, source| StressError::File {
            path: path.to_owned(),
            action: "clear the logs of a finished round",
            source,
        };
        let entries = std::fs::read_dir(self.logs).map_err(|error| refused(self.logs, error))?;
        for entry in entries {
            let path = entry.map_err(|error| refused(self.logs, error))?.path();
            std::fs::remove_file(&path).map_err(|error| refused(&path, error))?;
        }
        Ok(())
    }
}

/// Returns the logs of a worker's threads.
fn log_paths(config: &WorkerConfig) -> Vec<PathBuf> {
    (0..config.threads).map(|thread| config.log(thread)).collect()
}
