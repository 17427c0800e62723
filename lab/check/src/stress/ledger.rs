//! The keys of the stress's transactions, which are other ones than those whose history is judged
//! key by key: lists, which single operations use too and whose history [`elle`](crate::elle)
//! checks, and accounts, whose sum must never change.
//!
//! The keys are in the key space of gateways, so that scans do not meet them. Lists are replaced by
//! new ones many times per second, which keeps them short.

use super::clock::now_ns;
use crate::elle;
use darter::engine::{Engine, KeySpace};
use darter::{Error, Session, Store};

/// Lists at a time.
pub(super) const LISTS: u32 = 4;
/// Number of accounts.
pub(super) const ACCOUNTS: u64 = 8;
/// The sum of all accounts.
pub(super) const MONEY: u64 = ACCOUNTS * 1000;

/// The session of transactions.
pub(super) fn session(store: &Store) -> Result<Session, Error> {
    store.session_in(KeySpace::Gateway)
}

/// Returns the key of an account.
pub(super) fn account(number: u64) -> String {
    format!("account-{number}")
}

/// Returns the key of a list. Keys are in the order of their numbers.
pub(super) fn list_key(list: u32) -> String {
    format!("list-{list:010}")
}

/// Returns the list of a key.
pub(super) fn list_of(key: &[u8]) -> Option<u32> {
    str::from_utf8(key).ok()?.strip_prefix("list-")?.parse().ok()
}

/// Returns the number of a list from that of its generation and its place there.
pub(super) fn list(generation: u32, place: u32) -> u32 {
    generation.wrapping_mul(LISTS).wrapping_add(place)
}

/// Returns the numbers that a value holds.
pub(super) fn numbers(value: Option<Vec<u8>>) -> Vec<u64> {
    value.unwrap_or_default().as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
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
        match list_of(&key) {
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
