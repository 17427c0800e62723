//! The keys that a command has changed, for clients that track keys. A session records them while a
//! client of any gateway tracks keys; otherwise a change costs one store.

use super::{Family, Keyspace, session};
use std::collections::HashSet;

/// Most bytes of keys that a command records. More count as all keys.
const BYTES_MAX: usize = 1 << 20;
/// Bytes that count for a key besides its own.
const KEY_BYTES: usize = 64;

/// What a command has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// Nothing.
    Nothing,
    /// These keys, in the order in which they were changed first.
    Keys(Vec<Vec<u8>>),
    /// More keys than are recorded, or keys that were not recorded.
    Everything,
}

/// The changes of a session since a command began.
#[derive(Debug, Default)]
pub(super) struct Changed {
    is_recording: bool,
    is_changing: bool,
    are_too_many: bool,
    keys: Vec<Vec<u8>>,
    bytes: usize,
}

/// Returns the key to which a record belongs; `None` if it is not part of a key's value.
fn key_of(place: &[u8]) -> Option<&[u8]> {
    let (&family, rest) = place.split_first()?;
    if family == Family::Key as u8 {
        return Some(rest);
    }
    // Index records of a sorted set change together with its members.
    let (bytes, rest) = rest.split_first_chunk::<2>().filter(|_| b"fmexyup".contains(&family))?;
    rest.get(..usize::from(u16::from_be_bytes(*bytes)))
}

impl Changed {
    fn begin(&mut self, is_recording: bool) {
        (self.is_recording, self.is_changing, self.are_too_many, self.bytes) =
            (is_recording, false, false, 0);
        self.keys.clear();
    }

    /// Notes that the record at a place has changed, or may have.
    #[inline]
    pub(super) fn note(&mut self, place: &[u8]) {
        self.is_changing = true;
        if self.is_recording {
            self.record(place);
        }
    }

    fn note_everything(&mut self) {
        (self.is_changing, self.are_too_many, self.keys) = (true, true, Vec::new());
    }

    #[cold]
    fn record(&mut self, place: &[u8]) {
        let Some(key) = key_of(place) else { return };
        if self.are_too_many || self.keys.last().is_some_and(|last| last == key) {
            return;
        }
        self.bytes += key.len() + KEY_BYTES;
        if self.bytes > BYTES_MAX {
            self.note_everything();
        } else {
            self.keys.push(key.to_vec());
        }
    }

    fn take(&mut self) -> Changes {
        if !std::mem::take(&mut self.is_changing) {
            return Changes::Nothing;
        }
        if !self.is_recording || self.are_too_many {
            return Changes::Everything;
        }
        let (mut keys, mut seen) = (std::mem::take(&mut self.keys), HashSet::new());
        keys.retain(|key| seen.insert(key.clone()));
        if keys.is_empty() { Changes::Nothing } else { Changes::Keys(keys) }
    }
}

impl Keyspace {
    /// Must be called when a command begins. Lets the session record the keys that it changes, or not.
    #[inline]
    pub(crate) fn begin_changes(&mut self, is_recording: bool) {
        if is_recording {
            // A command reports the error of a store that cannot be opened.
            let _ = session(&mut self.session, &self.store);
        }
        if let Some(session) = &mut self.session {
            session.changed.begin(is_recording);
        }
    }

    /// Notes that a command changes all keys, or too many to record them.
    pub(crate) fn note_everything(&mut self) {
        if let Ok(session) = session(&mut self.session, &self.store) {
            session.changed.note_everything();
        }
    }

    /// Returns the changes since the command began, and forgets them.
    #[inline]
    pub(crate) fn take_changes(&mut self) -> Changes {
        self.session.as_mut().map_or(Changes::Nothing, |session| session.changed.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::{Store, block_on};
    use std::sync::Arc;

    #[test]
    fn changed_keys_are_recorded_once_in_their_order() {
        let mut keys = Keyspace::new(Store::open("mem:16M").unwrap(), Arc::default());
        block_on(async {
            keys.begin_changes(true);
            for key in ["b", "a", "b"] {
                keys.set(key.as_bytes(), b"v", None).await.unwrap();
            }
            assert!(!keys.remove(b"none").await.unwrap());
            assert_eq!(keys.take_changes(), Changes::Keys(vec![b"b".to_vec(), b"a".to_vec()]));
            assert_eq!(keys.take_changes(), Changes::Nothing);
            keys.look(b"a", |head| assert!(head.is_some())).await.unwrap();
            assert_eq!(keys.take_changes(), Changes::Nothing);
            // An expired key is removed by the command that meets it.
            keys.now = 10;
            keys.set(b"a", b"v", Some(11)).await.unwrap();
            keys.now = 12;
            keys.begin_changes(true);
            assert!(!keys.look(b"a", |head| head.is_some()).await.unwrap());
            assert_eq!(keys.take_changes(), Changes::Keys(vec![b"a".to_vec()]));
        });
    }

    #[test]
    fn keys_that_are_not_recorded_count_as_everything() {
        let mut keys = Keyspace::new(Store::open("mem:64M").unwrap(), Arc::default());
        block_on(async {
            keys.begin_changes(false);
            keys.set(b"a", b"v", None).await.unwrap();
            assert_eq!(keys.take_changes(), Changes::Everything);
            keys.begin_changes(true);
            for number in 0..=BYTES_MAX / (KEY_BYTES + 4) {
                keys.set(format!("{number:04}").as_bytes(), b"", None).await.unwrap();
            }
            assert_eq!(keys.take_changes(), Changes::Everything);
            keys.begin_changes(true);
            assert_eq!(keys.take_changes(), Changes::Nothing);
        });
    }

    #[test]
    fn records_of_all_families_name_their_keys() {
        for (place, key) in [
            (&b"kname"[..], Some(&b"name"[..])),
            (b"f\0\x04name12345678field", Some(b"name")),
            (b"y\0\x04name12345678group", Some(b"name")),
            (b"s\0\x04name12345678", None),
            (b"gname", None),
            (b"f\0", None),
            (b"", None),
        ] {
            assert_eq!(key_of(place), key, "{}", place.escape_ascii());
        }
    }
}
