//! Measures transactions: transfers between two accounts, next to two single puts, in rounds that
//! alternate. Verifies that no money is lost.
//!
//! `cargo run --release -p darter --example transfers -- [CLIENTS] [ACCOUNTS] [POOL]`

use darter::{Error, Session, Store};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

const START: u64 = 100;
const ROUND: Duration = Duration::from_millis(500);

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u32| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (clients, accounts) = (number(50), number(1_000_000).max(2));
    let pool = arguments.next().unwrap_or_else(|| "mem:2G".to_owned());
    let store = Store::options().cache_bytes(64 << 20).open(&pool)?;
    store.bulk_load((0..accounts).map(|account| (account.to_be_bytes(), START.to_le_bytes())))?;
    println!("{clients} clients, {accounts} accounts, {pool}");
    for round in 1..=3 {
        let (puts, _) = run(&store, clients, |session, dice| {
            for _ in 0..2 {
                let account = dice.random_range(0..accounts).to_be_bytes();
                session.put([b"put ", &account[..]].concat(), START.to_le_bytes())?;
            }
            Ok(1)
        })?;
        let (transfers, runs) = run(&store, clients, |session, dice| transfer(session, dice, accounts))?;
        println!(
            "round {round}: {puts:.0} pairs of puts a second, {transfers:.0} transfers a second ({:.2}), \
             {:.3} runs a transfer",
            transfers / puts,
            runs / transfers,
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

fn amount(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Moves money between two accounts. Returns how often the transaction was run.
fn transfer(session: &Session, dice: &mut Pcg64Mcg, accounts: u32) -> Result<u64, Error> {
    let from = dice.random_range(0..accounts);
    let to = (from + dice.random_range(1..accounts)) % accounts;
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

/// Repeats an operation in each of several threads for a round. Returns operations a second, and
/// the sum of the operations' results a second.
fn run(
    store: &Store,
    clients: u32,
    operation: impl Fn(&Session, &mut Pcg64Mcg) -> Result<u64, Error> + Sync,
) -> Result<(f64, f64), Error> {
    let (has_ended, done, sum) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    let each = &|seed: u32| -> Result<(), Error> {
        let (session, mut dice) = (store.session()?, Pcg64Mcg::seed_from_u64(seed.into()));
        while !has_ended.load(Ordering::Relaxed) {
            sum.fetch_add(operation(&session, &mut dice)?, Ordering::Relaxed);
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|seed| scope.spawn(move || each(seed))).collect();
        std::thread::sleep(ROUND);
        has_ended.store(true, Ordering::Relaxed);
        let mut ended = threads.into_iter().map(ScopedJoinHandle::join);
        ended.try_for_each(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((done.into_inner() as f64 / seconds, sum.into_inner() as f64 / seconds))
}
