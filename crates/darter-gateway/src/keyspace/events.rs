//! What a command does to keys, for keyspace notifications. A session records the keys whose records
//! it changes, if that is requested; otherwise each change costs one comparison.
//!
//! The futures of changes are boxed here. A command calls them through several functions, each of
//! which would move as many bytes.

use super::aggregate::Session;
use super::key_event::KeyEvent;
use super::{Family, Keyspace, session};
use darter::{Change, Condition, Error, PutOutcome};

/// The families of elements: of hashes and sets, of sorted sets, and the chunks of lists and streams.
const ELEMENTS: [u8; 4] = *b"fmex";

/// Returns the key to which a record belongs.
fn key_of(place: &[u8]) -> Option<&[u8]> {
    let (&family, rest) = place.split_first()?;
    if family == Family::Key as u8 {
        return Some(rest);
    }
    let (bytes, rest) = rest.split_first_chunk::<2>().filter(|_| ELEMENTS.contains(&family))?;
    rest.get(..usize::from(u16::from_be_bytes(*bytes)))
}

impl Session {
    /// Records that the record at a place has changed. Consecutive changes of a key count as one.
    #[inline]
    pub(super) fn touched(&mut self, place: &[u8]) {
        self.changed.note(place);
        if let Some(events) = &mut self.events
            && let Some(key) = key_of(place)
            && !matches!(events.last(), Some((database, KeyEvent::Touched(last))) if *database == self.database && last == key)
        {
            events.push((self.database, KeyEvent::Touched(key.to_vec())));
        }
    }

    /// Returns the outcome of a change of the record at a place. After an error it may have taken effect.
    fn noted<T>(&mut self, place: &[u8], outcome: Result<T, Error>) -> Result<T, Error> {
        if outcome.is_err() {
            self.changed.note(place);
        }
        outcome
    }

    /// Replaces the changes since `before`, which are those of one key, by the event that it has
    /// expired.
    pub(super) fn expired(&mut self, key: &[u8], before: usize) {
        if let Some(events) = &mut self.events {
            events.truncate(before);
            events.push((self.database, KeyEvent::Expired(key.to_vec())));
        }
    }

    /// Returns the number of events, for [`Session::expired`].
    pub(super) fn events(&self) -> usize {
        self.events.as_ref().map_or(0, Vec::len)
    }

    /// As [`darter::engine::Worker::put`].
    #[inline]
    pub(super) async fn put(
        &mut self,
        at: impl AsRef<[u8]>,
        record: impl AsRef<[u8]>,
    ) -> Result<PutOutcome, Error> {
        let outcome = Box::pin(self.worker.put(at.as_ref(), record)).await;
        let outcome = self.noted(at.as_ref(), outcome)?;
        self.touched(at.as_ref());
        Ok(outcome)
    }

    /// As [`darter::engine::Worker::put_if`].
    #[inline]
    pub(super) async fn put_if(
        &mut self,
        at: impl AsRef<[u8]>,
        record: impl AsRef<[u8]>,
        condition: Condition<'_>,
    ) -> Result<PutOutcome, Error> {
        let outcome = Box::pin(self.worker.put_if(at.as_ref(), record, condition)).await;
        let outcome = self.noted(at.as_ref(), outcome)?;
        if outcome != PutOutcome::Refused {
            self.touched(at.as_ref());
        }
        Ok(outcome)
    }

    /// As [`darter::engine::Worker::update`].
    #[inline]
    pub(super) async fn update(
        &mut self,
        at: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&[u8]>) -> Change + Send,
    ) -> Result<bool, Error> {
        let changes = if self.worker.is_in_transaction() {
            self.worker.update_in_transaction(at.as_ref(), decide).await
        } else {
            Box::pin(self.worker.update(at.as_ref(), decide)).await
        };
        let changes = self.noted(at.as_ref(), changes)?;
        if changes {
            self.touched(at.as_ref());
        }
        Ok(changes)
    }

    /// As [`darter::engine::Worker::remove_if`].
    #[inline]
    pub(super) async fn remove_if(
        &mut self,
        at: impl AsRef<[u8]>,
        is_wanted: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<bool, Error> {
        let is_removed = Box::pin(self.worker.remove_if(at.as_ref(), is_wanted)).await;
        let is_removed = self.noted(at.as_ref(), is_removed)?;
        if is_removed {
            self.touched(at.as_ref());
        }
        Ok(is_removed)
    }

    /// As [`darter::engine::Worker::discard`].
    #[inline]
    pub(super) async fn discard(&mut self, at: impl AsRef<[u8]>) -> Result<bool, Error> {
        let is_removed = Box::pin(self.worker.discard(at.as_ref())).await;
        let is_removed = self.noted(at.as_ref(), is_removed)?;
        if is_removed {
            self.touched(at.as_ref());
        }
        Ok(is_removed)
    }

    /// As [`darter::engine::Worker::write_blind`].
    pub(super) fn write_blind(&mut self, at: &[u8], record: Option<Vec<u8>>) -> Result<(), Error> {
        self.worker.write_blind(at, record)?;
        self.touched(at);
        Ok(())
    }
}

impl Keyspace {
    /// Begins or ends to record what commands do to keys.
    pub(crate) fn record_events(&mut self, yes: bool) {
        // A command reports the error of a store that cannot be opened.
        if let Ok(session) = session(&mut self.session, &self.store)
            && session.events.is_some() != yes
        {
            session.events = yes.then(Vec::new);
        }
    }

    /// Notes what a command has done with a key, besides the changes that are recorded anyway.
    pub(crate) fn note_event(&mut self, key: &[u8], what: &'static str) {
        let Some(session) = &mut self.session else { return };
        if let Some(events) = &mut session.events {
            events.push((session.database, KeyEvent::Did(key.to_vec(), what)));
        }
    }

    /// Returns the events since the last call, in their order, with the numbers of their databases.
    pub(crate) fn take_events(&mut self) -> Vec<(u8, KeyEvent)> {
        let events = self.session.as_mut().and_then(|session| session.events.as_mut());
        events.map(std::mem::take).unwrap_or_default()
    }

    /// Returns whether events are recorded.
    #[inline]
    pub(crate) fn records_events(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.events.is_some())
    }
}
