//! Cursors of `SCAN`: numbers that are valid at every gateway of the pool.
//!
//! A number refers to a record with the last key examined. The number is derived from that key, so
//! clients that scan with the same steps get the same numbers, and there are at most as many
//! records as keys. The records expire, as keys do.

use super::{Family, Keyspace, place, session};
use crate::fault::Fault;
use darter::Change;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The lifetime of a cursor. A cursor lasts at least half of it after it was returned.
pub(super) const CURSOR_MS: u64 = 3_600_000;

/// Numbers that clients can parse as signed ones.
const NUMBERS: u64 = i64::MAX as u64;

/// Parses a record into its expiry time and the key.
pub(super) fn parse(record: &[u8]) -> Option<(u64, &[u8])> {
    let (ends, key) = record.split_first_chunk()?;
    Some((u64::from_le_bytes(*ends), key))
}

/// Numbers tried for a key; each may be taken by another key.
const NUMBERS_TRIED: u64 = 16;

/// Returns the number for a key at an attempt, counted from 0. It is never 0.
fn number_of(key: &[u8], attempts: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, attempts).hash(&mut hasher);
    hasher.finish() % NUMBERS + 1
}

impl Keyspace {
    /// Returns a number for the position after a key.
    ///
    /// The store's errors; also if all numbers tried for this key belong to other keys.
    /// The store's; or all numbers that are tried for this key are those of other keys.
    pub(crate) async fn remember(&mut self, key: &[u8]) -> Result<u64, Fault> {
        for attempts in 0..NUMBERS_TRIED {
            let number = number_of(key, attempts);
            let Self { store, session: slot, now, key: at, .. } = self;
            place(at, Family::Cursor, &number.to_be_bytes());
            let mut is_taken = false;
            let modified = session(slot, store)?.update(at, |record| {
                let kept = record.and_then(parse).filter(|(ends, _)| ends >= now);
                is_taken = kept.is_some_and(|(_, theirs)| theirs != key);
                if is_taken || kept.is_some_and(|(ends, _)| ends - *now > CURSOR_MS / 2) {
                    return Change::Keep;
                }
                Change::Put([&(*now + CURSOR_MS).to_le_bytes(), key].concat())
            });
            modified.await?;
            if !is_taken {
                return Ok(number);
            }
        }
        Err(Fault::said("ERR other scans have taken all cursors for this position; use another COUNT"))
    }

    /// Returns the key that a number refers to, as long as the record exists: a step of the wall
    /// clock does not end a scan.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn recall(&mut self, number: u64) -> Result<Option<Vec<u8>>, Fault> {
        place(&mut self.key, Family::Cursor, &number.to_be_bytes());
        let record = session(&mut self.session, &self.store)?.get(&self.key).await?;
        Ok(record.as_deref().and_then(parse).map(|(_, key)| key.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::engine::Engine;
    use darter::{Store, block_on};

    const NOW: u64 = 1_800_000_000_000;

    #[test]
    fn a_number_is_one_keys_as_long_as_it_is_remembered() {
        let store = Store::open("mem:64M").unwrap();
        let mut keys = Keyspace::new(store.clone(), std::sync::Arc::default());
        keys.now = NOW;
        // Another key had the number first.
        let (number, mut at) = (number_of(b"one", 0), Vec::new());
        place(&mut at, Family::Cursor, &number.to_be_bytes());
        let taken = [&(NOW + 10).to_le_bytes()[..], b"two"].concat();
        store.session_in(darter::engine::KeySpace::Gateway).unwrap().put(at, taken).unwrap();
        block_on(async {
            let other = keys.remember(b"one").await.unwrap();
            assert_ne!(other, number);
            assert_eq!(keys.recall(number).await.unwrap().as_deref(), Some(&b"two"[..]));
            assert_eq!(keys.recall(other).await.unwrap().as_deref(), Some(&b"one"[..]));
            keys.now = NOW + 11;
            assert_eq!(keys.remember(b"one").await.unwrap(), number);
            // A step of the clock by ten years does not end a scan.
            for now in [NOW + 315_360_000_000, NOW - 315_360_000_000] {
                keys.now = now;
                assert_eq!(keys.recall(number).await.unwrap().as_deref(), Some(&b"one"[..]));
            }
            assert_eq!(keys.recall(number - 1).await.unwrap(), None);
        });
    }

    #[test]
    fn a_position_whose_numbers_are_all_taken_is_refused() {
        let store = Store::open("mem:64M").unwrap();
        let mut keys = Keyspace::new(store.clone(), std::sync::Arc::default());
        keys.now = NOW;
        let session = store.session_in(darter::engine::KeySpace::Gateway).unwrap();
        let take = |attempts| {
            let mut at = Vec::new();
            place(&mut at, Family::Cursor, &number_of(b"one", attempts).to_be_bytes());
            session.put(at, [&(NOW + 10).to_le_bytes()[..], b"two"].concat()).unwrap();
        };
        (0..NUMBERS_TRIED - 1).for_each(take);
        let last = block_on(keys.remember(b"one")).unwrap();
        assert_eq!(last, number_of(b"one", NUMBERS_TRIED - 1));
        take(NUMBERS_TRIED - 1);
        assert!(matches!(block_on(keys.remember(b"one")), Err(Fault::Said(_))));
        assert!(block_on(keys.remember(b"two")).is_ok());
    }
}
