//! Transactions of a worker: transfers between accounts, and appends to lists.

use super::{Client, Step};
use crate::history::Outcome;
use crate::stress::StressError;
use crate::stress::clock::now_ns;
use crate::stress::ledger::{ACCOUNTS, LISTS, account, list, list_key, numbers};
use crate::stress::log::{Call, Entry};
use darter::{Error, Session, Transaction, TransactionError};

/// Time after which the lists are replaced by new ones.
const GENERATION_NS: u64 = 20_000_000;
/// One transaction over lists in this many is rolled back.
const ROLLED_BACK_ONE_IN: u64 = 16;

fn balances(transaction: &mut Transaction<'_>) -> Result<Vec<u64>, Error> {
    let keys: Vec<String> = (0..ACCOUNTS).map(account).collect();
    Ok(transaction.get_many(&keys)?.into_iter().map(|value| numbers(value).iter().sum()).collect())
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
