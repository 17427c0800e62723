//! Measures transactions: transfers between two accounts, next to two single puts, in rounds that
//! alternate. All accounts are equally popular, then their popularity follows Zipf's law. Verifies
//! that no money is lost.
//!
//! `cargo run --release -p darter --example transfers -- [CLIENTS] [ACCOUNTS] [POOL]`

use darter::{Error, Session, Store};
use rand::distr::Distribution;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;
use rand_pcg::Pcg64Mcg;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

const START: u64 = 100;
const ROUNDS: u32 = 20;
const ROUND: Duration = Duration::from_millis(200);
/// The exponent of Zipf's law.
const THETA: f64 = 0.99;
/// A prime: multiples of it spread the popular accounts over all.
const SPREAD: u64 = 2_654_435_761;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u32| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (clients, accounts) = (number(50), number(1_000_000).max(2));
    let pool = arguments.next().unwrap_or_else(|| "mem:2G".to_owned());
    let store = Store::options().cache_bytes(64 << 20).create(true).open(&pool)?;
    store.bulk_load((0..accounts).map(|account| (account.to_be_bytes(), START.to_le_bytes())))?;
    println!("{clients} clients, {accounts} accounts, {pool}");
    println!("accounts   pairs of puts/s  transfers/s  ratio  conflicts/transfer  most runs");
    for (name, popularity) in [("uniform", Popularity::uniform()), ("Zipf 0.99", Popularity::zipf(accounts))]
    {
        let (mut puts, mut transfers) = (Measured::default(), Measured::default());
        for round in 0..ROUNDS {
            let seed = round * clients;
            puts.add(&run(&store, clients, seed, |session, dice| {
                for _ in 0..2 {
                    let account = popularity.account(dice, accounts).to_be_bytes();
                    session.put([b"put ", &account[..]].concat(), START.to_le_bytes())?;
                }
                Ok(1)
            })?);
            let transfer = |session: &_, dice: &mut _| transfer(session, dice, &popularity, accounts);
            transfers.add(&run(&store, clients, seed, transfer)?);
        }
        let (puts_rate, transfers_rate) = (puts.per_second(), transfers.per_second());
        println!(
            "{name:<9} {puts_rate:>16.0} {transfers_rate:>12.0} {:>6.2} {:>19.5} {:>10}",
            transfers_rate / puts_rate,
            (transfers.runs - transfers.done) as f64 / transfers.done as f64,
            transfers.runs_max,
        );
    }
    let total: u64 = store
        .range(..)
        .filter_map(Result::ok)
        .filter(|(key, _)| key.len() == 4)
        .map(|(_, value)| amount(&value))
        .sum();
    assert_eq!(total, u64::from(accounts) * START, "money is conserved");
    Ok(())
}

/// How often each account is chosen.
struct Popularity(Option<Zipf<f64>>);

impl Popularity {
    fn uniform() -> Self {
        Self(None)
    }

    fn zipf(accounts: u32) -> Self {
        Self(Zipf::new(accounts.into(), THETA).ok())
    }

    fn account(&self, dice: &mut Pcg64Mcg, accounts: u32) -> u32 {
        match self.0 {
            None => dice.random_range(0..accounts),
            Some(zipf) => (zipf.sample(dice) as u64 * SPREAD % u64::from(accounts)) as u32,
        }
    }
}

fn amount(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Moves money between two accounts. Returns how often the transaction was run.
fn transfer(
    session: &Session,
    dice: &mut Pcg64Mcg,
    popularity: &Popularity,
    accounts: u32,
) -> Result<u64, Error> {
    let from = popularity.account(dice, accounts);
    let mut to = from;
    while to == from {
        to = popularity.account(dice, accounts);
    }
    let keys = [from.to_be_bytes(), to.to_be_bytes()];
    let mut runs = 0;
    session.transact(|tx| {
        runs += 1;
        let old: Vec<u64> =
            tx.get_many(&keys)?.iter().map(|value| amount(value.as_deref().unwrap_or_default())).collect();
        let sum = old[0].min(7);
        tx.put(keys[0], (old[0] - sum).to_le_bytes())?;
        tx.put(keys[1], (old[1] + sum).to_le_bytes())
    })?;
    Ok(runs)
}

/// The counts of some rounds.
#[derive(Default)]
struct Measured {
    done: u64,
    /// Runs of all operations, with those that ended with a conflict.
    runs: u64,
    /// The most runs of one operation.
    runs_max: u64,
    time: Duration,
}

impl Measured {
    fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.runs += other.runs;
        self.runs_max = self.runs_max.max(other.runs_max);
        self.time += other.time;
    }

    fn per_second(&self) -> f64 {
        self.done as f64 / self.time.as_secs_f64()
    }
}

/// Repeats an operation in each of several threads for a round. The operation returns how often it
/// was run.
fn run(
    store: &Store,
    clients: u32,
    seed: u32,
    operation: impl Fn(&Session, &mut Pcg64Mcg) -> Result<u64, Error> + Sync,
) -> Result<Measured, Error> {
    let (has_ended, start) = (AtomicBool::new(false), Instant::now());
    let each = &|seed: u32| -> Result<Measured, Error> {
        let (session, mut dice) = (store.session()?, Pcg64Mcg::seed_from_u64(seed.into()));
        let mut measured = Measured::default();
        while !has_ended.load(Ordering::Relaxed) {
            let runs = operation(&session, &mut dice)?;
            measured.add(&Measured { done: 1, runs, runs_max: runs, time: Duration::ZERO });
        }
        Ok(measured)
    };
    let mut sum = Measured::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|client| scope.spawn(move || each(seed + client))).collect();
        std::thread::sleep(ROUND);
        has_ended.store(true, Ordering::Relaxed);
        threads.into_iter().map(ScopedJoinHandle::join).try_for_each(|ended| {
            sum.add(&ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            Ok::<_, Error>(())
        })
    })?;
    Ok(Measured { time: start.elapsed(), ..sum })
}
