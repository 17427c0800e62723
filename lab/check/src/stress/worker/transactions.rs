//! Transactions of a worker: transfers between accounts, and appends to lists. Single operations on
//! lists are between them.

use super::{Client, Step};
use crate::history::Outcome;
use crate::stress::StressError;
use crate::stress::clock::now_ns;
use crate::stress::ledger::{ACCOUNTS, LISTS, account, list, list_key, list_of, numbers};
use crate::stress::log::{Call, Entry};
use darter::{Error, ScanRange, Session, Transaction, TransactionError};
use std::ops::Bound;

/// Time after which the lists are replaced by new ones.
const GENERATION_NS: u64 = 20_000_000;
/// One transaction over lists in this many is rolled back.
const ROLLED_BACK_ONE_IN: u64 = 16;

/// A list, as it was found.
struct Seen {
    generation: u32,
    place: u32,
    value: Option<Vec<u8>>,
}

fn balances(transaction: &mut Transaction<'_>) -> Result<Vec<u64>, Error> {
    let keys: Vec<String> = (0..ACCOUNTS).map(account).collect();
    Ok(transaction.get_many(&keys)?.into_iter().map(|value| numbers(value).iter().sum()).collect())
}

/// The generation of lists that is in use now.
fn generation() -> u32 {
    (now_ns() / GENERATION_NS) as u32
}

impl Client<'_> {
    /// Performs a transaction, or a single operation on a list.
    pub(super) fn transact(&mut self, session: &Session) -> Result<Step, StressError> {
        match self.dice.below(8) {
            0 | 1 => self.transfer(session),
            2 => self.get_list(session).map(|(step, _)| step),
            3 => self.replace_list(session),
            4 if self.dice.one_in(4) => self.put_list(session),
            4 if self.dice.one_in(2) => self.scan_lists(session),
            _ => self.append(session),
        }
    }

    /// Moves money between two accounts, or none, and records the sum of all.
    fn transfer(&mut self, session: &Session) -> Result<Step, StressError> {
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
    fn append(&mut self, session: &Session) -> Result<Step, StressError> {
        let element = self.fresh_value();
        let generation = generation();
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
            Ok(()) => self.end_found(&found),
            Err(error) => self.fail_transaction(error),
        }
    }

    /// Records that an operation took effect, and the lists that it found.
    fn end_found(&mut self, found: &[(u32, Vec<u64>)]) -> Result<Step, StressError> {
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

    /// Reads a list. Returns its generation, its place and its value too.
    fn get_list(&mut self, session: &Session) -> Result<(Step, Option<Seen>), StressError> {
        let (generation, place) = (generation(), self.dice.below(LISTS.into()) as u32);
        self.log.begin(Call::ListGet, 0, 0, generation.into())?;
        match session.get(list_key(list(generation, place))) {
            Ok(value) => {
                let step = self.end_found(&[(place, numbers(value.clone()))])?;
                Ok((step, Some(Seen { generation, place, value })))
            }
            Err(error) => Ok((self.fail(0, error)?, None)),
        }
    }

    /// Reads a list, and appends to it unless another client changes it in between.
    fn replace_list(&mut self, session: &Session) -> Result<Step, StressError> {
        let (step, seen) = self.get_list(session)?;
        let Some(Seen { generation, place, value }) = seen else { return Ok(step) };
        let element = self.fresh_value();
        self.log.begin(Call::ListReplace, 0, element, 1 << place << 32 | u64::from(generation))?;
        let key = list_key(list(generation, place));
        let outcome = match &value {
            Some(old) => session.compare_exchange(key, old, [&old[..], &element.to_le_bytes()].concat()),
            None => session.try_insert(key, element.to_le_bytes()),
        };
        match outcome {
            Ok(true) => self.end_found(&[(place, numbers(value))]),
            Ok(false) => {
                self.log.end(0, Entry::End(Outcome::Refused))?;
                Ok(Step::Done)
            }
            Err(error) => self.fail(0, error),
        }
    }

    /// Replaces a list by one of a single element.
    fn put_list(&mut self, session: &Session) -> Result<Step, StressError> {
        let (generation, place) = (generation(), self.dice.below(LISTS.into()) as u32);
        let element = self.fresh_value();
        self.log.begin(Call::ListPut, 0, element, 1 << place << 32 | u64::from(generation))?;
        match session.put(list_key(list(generation, place)), element.to_le_bytes()) {
            Ok(_) => {
                self.log.end(0, Entry::End(Outcome::Replaced))?;
                Ok(Step::Done)
            }
            Err(error) => self.fail(0, error),
        }
    }

    /// Scans all lists of a generation.
    fn scan_lists(&mut self, session: &Session) -> Result<Step, StressError> {
        let generation = generation();
        let bound = |place| Bound::Included(list_key(list(generation, place)).into_bytes());
        let range = ScanRange { from: bound(0), to: bound(LISTS - 1), reverse: self.dice.one_in(2) };
        self.log.begin(Call::ListScan, 0, 0, generation.into())?;
        match session.range(&range).collect::<Result<Vec<_>, _>>() {
            Ok(pairs) => {
                let mut found: Vec<(u32, Vec<u64>)> = (0..LISTS).map(|place| (place, Vec::new())).collect();
                for (key, value) in pairs {
                    let place = list_of(&key).map(|number| number.wrapping_sub(list(generation, 0)));
                    match place.and_then(|place| found.get_mut(place as usize)) {
                        Some(known) => known.1 = numbers(Some(value)),
                        None => return Err(self.broken(format_args!("a scan of {range:?} found {key:?}"))),
                    }
                }
                self.end_found(&found)
            }
            Err(error) => self.fail(0, error),
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
