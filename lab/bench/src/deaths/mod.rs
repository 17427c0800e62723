//! The effect of a client's death on other clients (`bench deaths`): their latencies, and when
//! memory is reclaimed again.
//!
//! The measurement starts memory nodes with a pool over them, observers in this process, and
//! *victims*: processes that write as fast as they can. In a *disturbed* block victims are killed
//! by SIGKILL, one after the other, at random moments. In the *undisturbed* block that follows, the
//! same number end by themselves, after the same pauses, and are replaced after the same times: the
//! cost of processes that come and go is in both, and a slow hour of the machine affects both.
//!
//! A victim is replaced after reclamation has resumed without it, never before: a process that
//! joins checks for dead members at once, and would find them sooner than the existing members.
//! Observers run one operation after another, so that a delay counts as one slow operation.

mod observers;
mod report;
mod victim;

pub use report::{DeathsReport, LatencyRow, Reclamation};
pub use victim::{VictimArgs, run_victim};

use crate::child_process::ChildProcess;
use crate::datasets::{Dataset, RandInt};
use crate::{Program, Setting};
use darter::engine::Engine;
use darter::{ByteSize, PoolUrl, Store, block_on};
use darter_bench::BenchError;
use darter_bench::args::{THREADS_MAX, VALUE_BYTES_MAX, parse_count};
use darter_bench::executor::Values;
use darter_bench::outcome::latency_histogram;
use darter_bench::progress::Progress;
use darter_bench::report::print_json;
use observers::{Block, Latencies};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use report::{Gathered, both, ratios};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Maximum number of kills of a block: each costs its observers' memory for latencies.
const BLOCK_MAX: u64 = 100;
/// Maximum number of records.
const RECORDS_MAX: u64 = 100_000_000;
/// Bytes of the pool's blocks: small, since the memory that a victim leaves is idle until the next
/// repair.
const POOL_BLOCK_BYTES: u64 = 256 << 10;
/// Pause between two checks of the pool's epoch and members.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// Number of leases after which reclamation counts as not resumed.
const PATIENCE_LEASES: u32 = 10;
/// Number of epochs after which retired memory is freed.
const GRACE_EPOCHS: u64 = 2;

/// Arguments of `bench deaths`.
#[derive(Clone, Debug, clap::Args)]
pub struct DeathsArgs {
    /// Victims to kill
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub kills: u64,
    /// Kills of a block, which an undisturbed one follows
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..=BLOCK_MAX))]
    pub block: u64,
    /// The pool's lease, such as 500ms or 5s
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_time)]
    pub lease: Duration,
    /// Longest pause before a kill, after the previous victim has been replaced
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_time)]
    pub pause: Duration,
    /// Victims at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub victims: u16,
    /// Observing threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=THREADS_MAX as i64))]
    pub observers: u16,
    /// Memory nodes to start
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub memnodes: u8,
    /// Bytes of each memory node
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub node_size: ByteSize,
    /// Records to load (K, M for powers of 1000)
    #[arg(long, value_name = "N", default_value = "10K", value_parser = parse_count)]
    pub records: u64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub value_size: usize,
    /// Seed of keys and times
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A time in milliseconds or seconds, from 1 ms to an hour.
fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time from 1ms to 1h; write 500ms or 5s");
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 1000),
        (None, None) => return Err(wrong()),
    };
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    millis.filter(|millis| (1..=3_600_000).contains(millis)).map(Duration::from_millis).ok_or_else(wrong)
}

/// The times of a victim's end, repeated in the next undisturbed block.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Index of the victim.
    place: usize,
    /// Pause before its end.
    pause: Duration,
    /// From its end until it was replaced.
    gone: Duration,
}

/// What happened after an end.
#[derive(Clone, Copy, Debug)]
struct Aftermath {
    /// Time until the epoch had advanced by two; `None` if it did not.
    resumed: Option<Duration>,
    /// Whether the victim was a member at the first check.
    was_member: bool,
    /// Whether it was still a member when its lease had expired.
    lapsed: bool,
}

/// The measurement.
struct Run<'a> {
    args: &'a DeathsArgs,
    program: &'a Program,
    pool: PoolUrl,
    dataset: RandInt,
    rng: Pcg64Mcg,
    gathered: Gathered,
    report: DeathsReport,
}

/// Runs the measurement that `args` describe, and writes a table, or with `--json` one object, to
/// `out`. `setting` contains the commands that start memory nodes and victims.
///
/// # Errors
/// Fails if the arguments cannot be met ([`BenchError::is_usage`]), a process does not start, the
/// pool fails or returns a wrong result; [`BenchError::Unsound`], after the results, when an
/// invariant of the pool is broken.
pub fn run_deaths(
    args: &DeathsArgs,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<DeathsReport, BenchError> {
    let usage = |what: String| Err(BenchError::Usage(what));
    if args.records == 0 || args.records > RECORDS_MAX {
        return usage(format!("--records: choose from 1 to {RECORDS_MAX}"));
    }
    if args.value_size > VALUE_BYTES_MAX.min(POOL_BLOCK_BYTES as usize / 4) {
        return usage(format!("--value-size: choose from 0 to {}", POOL_BLOCK_BYTES / 4));
    }
    let begin = Instant::now();
    let node_words = ["--size".to_owned(), args.node_size.to_string()];
    let nodes = (0..args.memnodes)
        .map(|_| ChildProcess::memnode(&setting.program, &node_words))
        .collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<&str> = nodes.iter().map(ChildProcess::address).collect();
    let pool = format!("tcp://{}", addresses.join(",")).parse().map_err(darter::Error::from)?;
    let mut run = Run::new(args, &setting.program, pool);
    run.load()?;
    let measured = match run.measure(&setting.stop) {
        // Results measured until then are reported.
        Err(BenchError::Interrupted) if run.report.kills > 0 => Err(BenchError::Interrupted),
        outcome => Ok(outcome?),
    };
    run.report.seconds = begin.elapsed().as_secs_f64();
    let Run { mut report, mut gathered, .. } = run;
    report.judge(&mut gathered);
    if args.json {
        print_json(out, &report)?;
    } else {
        report.print(out)?;
    }
    for node in nodes {
        node.end()?;
    }
    match report.violations.first() {
        Some(violation) => Err(BenchError::Unsound(violation.clone())),
        None => measured.map(|()| report),
    }
}

impl<'a> Run<'a> {
    fn new(args: &'a DeathsArgs, program: &'a Program, pool: PoolUrl) -> Self {
        let gathered = Gathered {
            undisturbed: Latencies::new(),
            outside: Latencies::new(),
            early: Latencies::new(),
            kill_p99: Vec::new(),
            end_p99: Vec::new(),
            ratios: Vec::new(),
            resumed: latency_histogram(),
            resumed_undisturbed: latency_histogram(),
            never: 0,
            never_undisturbed: 0,
        };
        let report = DeathsReport {
            lease_ms: args.lease.as_millis() as u64,
            memnodes: args.memnodes,
            records: args.records,
            observers: args.observers.into(),
            victims: args.victims.into(),
            seed: args.seed,
            ..DeathsReport::default()
        };
        let (dataset, rng) = (RandInt::new(args.seed), Pcg64Mcg::seed_from_u64(args.seed));
        Self { args, program, pool, dataset, rng, gathered, report }
    }

    fn load(&self) -> Result<(), BenchError> {
        let options = Store::options().create(true).lease(self.args.lease).block_bytes(POOL_BLOCK_BYTES);
        let store = options.open(&self.pool)?;
        let mut values = Values::new(self.args.value_size, self.args.seed);
        let keys = self.dataset.sorted(self.args.records);
        store.session()?.bulk_load(keys.map(|key| (key, values.next().to_vec())))?;
        Ok(())
    }

    fn open(&self) -> Result<Store, BenchError> {
        // Leftover memory is freed by repairs, between the measurements.
        Ok(Store::options().create(false).sweep(false).open(&self.pool)?)
    }

    fn measure(&mut self, stop: &Arc<AtomicBool>) -> Result<(), BenchError> {
        let bar = Progress::new("kills", self.args.kills, stop);
        while self.report.kills < self.args.kills {
            bar.go_on()?;
            let ends = self.args.block.min(self.args.kills - self.report.kills);
            let mut paces: Vec<Option<Pace>> = vec![None; ends as usize];
            let outside = self.block(&mut paces, true)?;
            let undisturbed = self.block(&mut paces, false)?;
            let [get, update] = ratios(&outside, &undisturbed);
            self.gathered.ratios.push(get.max(update));
            self.gathered.outside.add(&outside);
            self.gathered.undisturbed.add(&undisturbed);
            let check = self.open()?.repair()?;
            self.report.violations.extend(check.violations);
            self.report.repaired_bytes += check.repaired_bytes;
            bar.set_position(self.report.kills);
        }
        bar.finish_and_clear();
        // From a fresh process's view the observers' blocks no longer have an owner.
        let store = self.open()?;
        self.report.leaked_bytes_before_repair = store.check()?.leaked_bytes;
        let check = store.repair()?;
        self.report.violations.extend(check.violations);
        self.report.leaked_bytes = check.leaked_bytes;
        Ok(())
    }

    /// Runs one block with an end for each of `paces`, which a disturbed block fills in and an
    /// undisturbed one follows. Returns the observers' latencies outside of the first moments after
    /// kills.
    fn block(&mut self, paces: &mut [Option<Pace>], is_disturbed: bool) -> Result<Latencies, BenchError> {
        let store = self.open()?;
        let block = Block::new(paces.len(), is_disturbed);
        let sessions = (0..self.args.observers).map(|_| store.session()).collect::<Result<Vec<_>, _>>()?;
        let mut victims =
            (0..self.args.victims).map(|_| self.victim()).collect::<Result<Vec<_>, BenchError>>()?;
        let (dataset, records, value_bytes) =
            (RandInt::new(self.args.seed), self.args.records, self.args.value_size);
        std::thread::scope(|scope| {
            let threads: Vec<_> = sessions
                .into_iter()
                .map(|session| {
                    let seed = self.rng.random();
                    let (block, dataset) = (&block, &dataset);
                    scope.spawn(move || {
                        let mut values = Values::new(value_bytes, seed);
                        block.observe(&session, dataset, records, &mut values, seed)
                    })
                })
                .collect();
            let mut outcome = Ok(());
            for pace in paces.iter_mut() {
                // An observer that has ended has failed; its error is reported below.
                if outcome.is_err() || threads.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                    break;
                }
                outcome = self.end_one(&store, &block, &mut victims, pace, is_disturbed);
            }
            block.finish();
            for thread in threads {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            outcome
        })?;
        victims.into_iter().try_for_each(ChildProcess::end)?;
        let (turns, early) = block.into_seen();
        let mut outside = Latencies::new();
        for turn in &turns {
            outside.add(turn);
            let p99 = both(turn).value_at_quantile(0.99);
            if is_disturbed { &mut self.gathered.kill_p99 } else { &mut self.gathered.end_p99 }.push(p99);
        }
        self.gathered.early.add(&early);
        Ok(outside)
    }

    fn victim(&mut self) -> Result<ChildProcess, BenchError> {
        let victim = VictimArgs {
            pool: self.pool.clone(),
            records: self.args.records,
            value_size: self.args.value_size,
            keys: self.args.seed,
            seed: self.rng.random(),
        };
        ChildProcess::start(self.program, &self.program.victim, &victim.words())
    }

    /// Ends one victim, observes how the others continue, and replaces it.
    fn end_one(
        &mut self,
        store: &Store,
        block: &Block,
        victims: &mut [ChildProcess],
        pace: &mut Option<Pace>,
        is_disturbed: bool,
    ) -> Result<(), BenchError> {
        let pause = self.args.pause.mul_f64(self.rng.random::<f64>());
        let place = self.rng.random_range(0..victims.len());
        let Pace { place, pause, gone } = pace.unwrap_or(Pace { place, pause, gone: Duration::ZERO });
        std::thread::sleep(pause);
        for victim in victims.iter_mut() {
            if victim.has_ended()? {
                self.report.lost += 1;
                *victim = self.victim()?;
            }
        }
        let victim = &mut victims[place];
        let at = block.note_end();
        if is_disturbed {
            victim.kill()?;
        } else {
            victim.ask_to_end();
        }
        let aftermath = self.watch(store, victim.pid(), at, gone)?;
        *pace = Some(Pace { place, pause, gone: at.elapsed() });
        let fresh = self.victim()?;
        let gone = std::mem::replace(&mut victims[place], fresh);
        let gathered = &mut self.gathered;
        let (times, never) = if is_disturbed {
            self.report.kills += 1;
            self.report.members_left += u64::from(aftermath.was_member);
            self.report.lapsed += u64::from(aftermath.lapsed);
            (&mut gathered.resumed, &mut gathered.never)
        } else {
            self.report.ends += 1;
            gone.end()?;
            (&mut gathered.resumed_undisturbed, &mut gathered.never_undisturbed)
        };
        match aftermath.resumed {
            Some(time) => times.saturating_record(time.as_nanos() as u64),
            None => *never += 1,
        }
        Ok(())
    }

    /// Watches the pool until memory retired before the victim's end can be freed, and for `least`
    /// at least.
    fn watch(&self, store: &Store, pid: u32, at: Instant, least: Duration) -> Result<Aftermath, BenchError> {
        let pool = store.pool();
        let mut client = pool.client().map_err(darter::Error::from)?;
        let patience = (self.args.lease * PATIENCE_LEASES).max(least);
        let mut aftermath = Aftermath { resumed: None, was_member: false, lapsed: false };
        let mut first = None;
        loop {
            let usage = block_on(pool.usage(&mut client)).map_err(darter::Error::from)?;
            let line = usage.members.iter().find(|member| member.pid == u64::from(pid));
            aftermath.lapsed |= line.is_some_and(|line| line.lease_left_ms < 0);
            aftermath.was_member |= first.is_none() && line.is_some();
            let began = *first.get_or_insert(usage.epoch);
            if usage.epoch >= began + GRACE_EPOCHS {
                aftermath.resumed.get_or_insert_with(|| at.elapsed());
            }
            let elapsed = at.elapsed();
            if elapsed >= least && aftermath.resumed.is_some() || elapsed > patience {
                return Ok(aftermath);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("5s"), Ok(Duration::from_secs(5)));
        for wrong in
            ["", "ms", "s", "5", "0ms", "-1s", "2h", "3601s", "99999999999999999999s", "18446744073709551s"]
        {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn verdict_follows_from_the_measurements() {
        let latencies = |us: u64| {
            let mut latencies = Latencies::new();
            latencies.get.record_n(us * 1000, 100).unwrap();
            latencies.update.record_n(us * 1000, 100).unwrap();
            latencies
        };
        let judged = |outside: u64, leases: u64, never: u64| {
            let mut resumed = latency_histogram();
            resumed.record(leases * 500_000_000).unwrap();
            let mut gathered = Gathered {
                undisturbed: latencies(100),
                outside: latencies(outside),
                early: latencies(9000),
                kill_p99: vec![outside * 1000, 1000],
                end_p99: vec![100_000],
                ratios: vec![3.0, 1.0, 2.0],
                resumed,
                resumed_undisturbed: latency_histogram(),
                never,
                never_undisturbed: 0,
            };
            let mut report = DeathsReport { lease_ms: 500, ..DeathsReport::default() };
            report.judge(&mut gathered);
            report
        };
        let report = judged(150, 1, 0);
        assert!(report.reached && report.misses.is_empty(), "{report:?}");
        assert!((report.ratio_get - 1.5).abs() < 0.01 && (report.ratio_median - 2.0).abs() < 0.01);
        assert!((report.reclamation.max - 1.0).abs() < 0.01);
        assert_eq!((report.kills_within, report.ends_within, report.latencies.len()), (2, 1, 6));
        let report = judged(250, 3, 1);
        assert!(!report.reached, "{report:?}");
        assert_eq!((report.misses.len(), report.kills_within), (4, 1), "{report:?}");
    }
}
