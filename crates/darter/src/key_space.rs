//! The places of a session's keys in the index, chosen so that a program's keys and the records of
//! gateways cannot collide.
//!
//! Both are in one index. Places that begin with [`RESERVED`] belong to gateways; no key of a
//! program has such a place. A program's key that begins with [`ESCAPE`] or [`RESERVED`] is stored
//! with an [`ESCAPE`] in front, every other key unchanged. Both rules keep the bytewise order, so
//! ranges and their directions can be translated too.
//!
//! The session translates keys and ranges passed to the index, and keys returned by it.

use crate::Error;
use darter_index::{IndexError, KEY_BYTES_MAX, KeyValue, ScanRange};
use std::ops::Bound;

/// The first byte of places that belong to gateways.
const RESERVED: u8 = 0xff;
/// The byte in front of a program's key that begins with it or with [`RESERVED`].
const ESCAPE: u8 = 0xfe;
/// Capacity in bytes of a session's buffer that is kept for the next key.
const KEPT_BYTES: usize = 4 << 10;

/// The keys of an index that a session works on.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::engine::{Engine, KeySpace};
///
/// store.put("pear", "green")?;
/// let gateway = store.session_in(KeySpace::Gateway)?;
/// assert!(!gateway.contains_key("pear")?, "another key space");
/// gateway.put("pear", "of a gateway")?;
/// assert_eq!(store.session_in(KeySpace::Whole)?.range(..).count(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySpace {
    /// The program's keys: any bytes.
    Program,
    /// The records of gateways: any bytes, separate from the program's keys.
    Gateway,
    /// Both, as stored in the index. For copying and displaying a whole pool; an arbitrary key may
    /// have a place that neither of the other key spaces reaches.
    Whole,
}

impl KeySpace {
    /// Returns the byte in front of the key in its place, if there is one.
    #[inline]
    fn front(self, key: &[u8]) -> Option<u8> {
        match self {
            Self::Program => key.first().filter(|&&first| first >= ESCAPE).map(|_| ESCAPE),
            Self::Gateway => Some(RESERVED),
            Self::Whole => None,
        }
    }

    /// Returns the byte in front of the key in this place, if there is one.
    #[inline]
    fn front_of_place(self, place: &[u8]) -> Option<u8> {
        match self {
            Self::Program => place.first().copied().filter(|&first| first == ESCAPE),
            Self::Gateway => place.first().copied(),
            Self::Whole => None,
        }
    }

    /// Fails if a key that needs a byte in front is too long with it; the index refuses all other
    /// keys that are too long.
    pub(crate) fn check(self, key: &[u8]) -> Result<(), Error> {
        if key.len() < KEY_BYTES_MAX || self.front(key).is_none() {
            return Ok(());
        }
        Err(IndexError::KeyTooLong { bytes: key.len(), max: KEY_BYTES_MAX - 1 }.into())
    }

    /// Returns the key space of a place, `Program` or `Gateway`.
    ///
    /// ```
    /// use darter::engine::KeySpace;
    ///
    /// let place = KeySpace::Gateway.into_place(b"pear".to_vec());
    /// assert_eq!(KeySpace::of_place(&place), KeySpace::Gateway);
    /// assert_eq!(KeySpace::of_place(b"pear"), KeySpace::Program);
    /// ```
    pub fn of_place(place: &[u8]) -> Self {
        if place.first() == Some(&RESERVED) { Self::Gateway } else { Self::Program }
    }

    /// Returns the place of a key, built in `buffer` unless it is the key itself.
    ///
    /// # Errors
    /// Fails if the key is too long.
    #[inline]
    pub(crate) fn place<'k>(self, key: &'k [u8], buffer: &'k mut Vec<u8>) -> Result<&'k [u8], Error> {
        let Some(front) = self.front(key) else { return Ok(key) };
        self.check(key)?;
        if buffer.capacity() > KEPT_BYTES {
            *buffer = Vec::new();
        }
        buffer.clear();
        buffer.push(front);
        buffer.extend_from_slice(key);
        Ok(buffer)
    }

    /// Returns the place of a key. A place that is too long is returned too; the index refuses it.
    ///
    /// ```
    /// use darter::engine::KeySpace;
    ///
    /// assert_eq!(KeySpace::Program.into_place(b"pear".to_vec()), b"pear");
    /// assert_eq!(KeySpace::Program.into_place(vec![0xff, 1]), [0xfe, 0xff, 1]);
    /// assert_eq!(KeySpace::Gateway.into_place(vec![1]), [0xff, 1]);
    /// ```
    pub fn into_place(self, mut key: Vec<u8>) -> Vec<u8> {
        if let Some(front) = self.front(&key) {
            key.insert(0, front);
        }
        key
    }

    /// Returns the places of a range of keys.
    pub(crate) fn range(self, range: &ScanRange) -> ScanRange {
        let place = |bound: &Bound<Vec<u8>>| bound.clone().map(|key| self.into_place(key));
        let (mut from, mut to) = (place(&range.from), place(&range.to));
        match (self, &from, &to) {
            (Self::Program, _, Bound::Unbounded) => to = Bound::Excluded(vec![RESERVED]),
            (Self::Gateway, Bound::Unbounded, _) => from = Bound::Included(vec![RESERVED]),
            _ => {}
        }
        ScanRange { from, to, reverse: range.reverse }
    }

    /// Returns the key with this place.
    ///
    /// ```
    /// use darter::engine::KeySpace;
    ///
    /// let place = KeySpace::Gateway.into_place(b"pear".to_vec());
    /// assert_eq!(KeySpace::of_place(&place).key(&place), b"pear");
    /// ```
    #[inline]
    pub fn key(self, place: &[u8]) -> &[u8] {
        if self.front_of_place(place).is_some() { &place[1..] } else { place }
    }

    /// Converts places to keys.
    pub(crate) fn keys(self, mut pairs: Vec<KeyValue>) -> Vec<KeyValue> {
        for (place, _) in &mut pairs {
            if self.front_of_place(place).is_some() {
                place.remove(0);
            }
        }
        pairs
    }
}

/// The places of several keys.
pub(crate) struct Places {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Places {
    /// Returns the places of these keys, in their order.
    ///
    /// # Errors
    /// Fails if a key is too long.
    pub(crate) fn of<'k>(space: KeySpace, keys: impl Iterator<Item = &'k [u8]>) -> Result<Self, Error> {
        let mut places = Self { bytes: Vec::new(), ends: Vec::with_capacity(keys.size_hint().0) };
        for key in keys {
            if let Some(front) = space.front(key) {
                space.check(key)?;
                places.bytes.push(front);
            }
            places.bytes.extend_from_slice(key);
            places.ends.push(places.bytes.len());
        }
        Ok(places)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        self.ends.iter().map(move |&end| &self.bytes[std::mem::replace(&mut from, end)..end])
    }

    pub(crate) fn to_vec(&self) -> Vec<&[u8]> {
        self.iter().collect()
    }
}
