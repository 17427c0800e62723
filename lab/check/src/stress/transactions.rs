//! Transactions of the stress, on other keys than its single operations: lists, whose history
//! [`elle`](crate::elle) checks, and accounts, whose sum must never change.
//!
//! The keys are in the key space of gateways, so that scans do not meet them. Lists are replaced by
//! new ones many times per second, which keeps them short.

use super::StressError;
use super::clock::now_ns;
use super::log::{Call, Entry};
use super::worker::{Client, Step};
use crate::elle;
use crate::history::Outcome;
use darter::engine::{Engine, KeySpace};
use darter::{Error, Session, Store, Transaction, TransactionError};

/// Lists at a time.
pub(super) const LISTS: u32 = 4;
/// Time after which the lists are replaced by new ones.
const GENERATION_NS: u64 = 20_000_000;
const ACCOUNTS: u64 = 8;
/// The sum of all accounts.
pub(super) const MONEY: u64 = ACCOUNTS * 1000;
/// One transaction over lists in this many is rolled back.
const ROLLED_BACK_ONE_IN: u64 = 16;

/// The session of transactions.
pub(super) fn session(store: &Store) -> Result<Session, Error> {
    store.session_in(KeySpace::Gateway)
}

fn account(number: u64) -> String {
    format!("account-{number}")
}

fn list_key(list: u32) -> String {
    format!("list-{list}")
}

/// Returns the number of a list from that of its generation and its place there.
pub(super) fn list(generation: u32, place: u32) -> u32 {
    generation.wrapping_mul(LISTS).wrapping_add(place)
}

/// Returns the numbers that a value holds.
fn numbers(value: Option<Vec<u8>>) -> Vec<u64> {
    value.unwrap_or_default().as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

fn balances(transaction: &mut Transaction<'_>) -> Result<Vec<u64>, Error> {
    let keys: Vec<String> = (0..ACCOUNTS).map(account).collect();
    Ok(transaction.get_many(&keys)?.into_iter().map(|value| numbers(value).iter().sum()).collect())
}

/// Gives every account its money.
pub(super) fn begin(store: &Store) -> Result<(), Error> {
    session(store)?.transact(|transaction| {
        (0..ACCOUNTS)
            .try_for_each(|number| transaction.put(account(number), (MONEY / ACCOUNTS).to_le_bytes()))
    })
}

/// The contents of the pool under the keys of transactions after a round.
pub(super) struct Final {
    /// Number of keys.
    pub(super) keys: u64,
    /// The sum of all accounts.
    pub(super) money: u64,
    /// A transaction of the coordinator's that read every list.
    pub(super) lists: elle::Transaction,
}

/// Reads all keys of transactions.
pub(super) fn read_all(store: &Store) -> Result<Final, Error> {
    let invoked = now_ns();
    let (mut keys, mut money, mut steps) = (0, 0, Vec::new());
    for pair in session(store)?.range(..) {
        let (key, value) = pair?;
        keys += 1;
        let key = String::from_utf8_lossy(&key);
        match key.strip_prefix("list-").and_then(|number| number.parse().ok()) {
            Some(list) => steps.push(elle::Step::Read { list, elements: numbers(Some(value)) }),
            None => money += numbers(Some(value)).iter().sum::<u64>(),
        }
    }
    let end = elle::End::Committed(now_ns());
    Ok(Final { keys, money, lists: elle::Transaction { client: 0, steps, invoked, end } })
}

/// Removes all keys of transactions.
pub(super) fn clear(store: &Store) -> Result<(), Error> {
    let session = session(store)?;
    let keys: Vec<Vec<u8>> =
        session.range(..).map(|pair| pair.map(|(key, _)| key)).collect::<Result<_, _>>()?;
    keys.iter().try_for_each(|key| session.discard(key).map(drop))
}

impl Client<'_> {
    /// Moves money between two accounts, or none, and records the sum of all.
    pub(super) fn transfer(&mut self, session: &Session) -> Result<Step, StressError> {
        let (from, to) = (self.dice.below(ACCOUNTS), self.dice.below(ACCOUNTS));
        let part = self.dice.below(5);
        self.log.begin(Call::Transfer, 0, 0, 0)?;
        let outcome = session.transact(|transaction| {
            let held = balances(transaction)?;
            let moved = part.min(held[from as usize]);
            if from != to && moved > 0 {
                transaction.put(account(from), (held[from as usize] - moved).to_le_bytes())?;
                transaction.put(account(to), (held[to as usize] + moved).to_le_bytes())?;
            }
            Ok(held.iter().sum())
        });
        match outcome {
            Ok(sum) => {
                self.log.end(0, Entry::End(Outcome::Found(Some(sum))))?;
                Ok(Step::Done)
            }
            Err(error) => self.fail_transaction(error),
        }
    }

    /// Reads some lists, and appends an element that is used only once to some of them.
    pub(super) fn append(&mut self, session: &Session) -> Result<Step, StressError> {
        let element = self.fresh_value();
        let generation = (now_ns() / GENERATION_NS) as u32;
        // At least one list; a third of the transactions only read.
        let touched = 1 + self.dice.below((1 << LISTS) - 1);
        let appended = if self.dice.one_in(3) { 0 } else { touched & self.dice.below(1 << LISTS) };
        let places: Vec<u32> = (0..LISTS).filter(|place| touched >> place & 1 == 1).collect();
        let is_rolled_back = self.dice.one_in(ROLLED_BACK_ONE_IN);
        self.log.begin(Call::Append, 0, element, appended << 32 | u64::from(generation))?;
        let mut found = Vec::new();
        let mut body = |transaction: &mut Transaction<'_>| {
            found.clear();
            for &place in &places {
                let key = list_key(list(generation, place));
                let value = transaction.get(&key)?;
                if appended >> place & 1 == 1 {
                    let mut longer = value.clone().unwrap_or_default();
                    longer.extend_from_slice(&element.to_le_bytes());
                    transaction.put(&key, longer)?;
                }
                found.push((place, numbers(value)));
            }
            Ok(())
        };
        let outcome = if is_rolled_back {
            session.transaction().and_then(|mut transaction| body(&mut transaction))
        } else {
            session.transact(body)
        };
        match outcome {
            Ok(()) if is_rolled_back => {
                self.log.end(0, Entry::End(Outcome::Refused))?;
                Ok(Step::Done)
            }
            Ok(()) => {
                // A record for each element, or one for an empty list.
                let records: Vec<(u32, Option<u64>)> = found
                    .iter()
                    .flat_map(|(place, elements)| {
                        let first = if elements.is_empty() { vec![None] } else { Vec::new() };
                        let all = elements.iter().map(|&element| Some(element));
                        first.into_iter().chain(all).map(|element| (*place, element))
                    })
                    .collect();
                self.log.end_reads(&records)?;
                // A kill can cut the records short: they count only after this one.
                self.log.end(0, Entry::End(Outcome::Replaced))?;
                Ok(Step::Done)
            }
            Err(error) => self.fail_transaction(error),
        }
    }

    fn fail_transaction(&mut self, error: Error) -> Result<Step, StressError> {
        if matches!(error, Error::Transaction(TransactionError::Conflict)) {
            self.log.end(0, Entry::End(Outcome::Refused))?;
            return Ok(Step::Done);
        }
        self.fail(0, error)
    }
}
