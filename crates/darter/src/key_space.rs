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
/// The byte after [`RESERVED`] in the places of gateways' databases other than 0. The database's
/// number follows.
const DATABASE: u8 = b'd';

/// The bytes in front of the keys of each database.
static DATABASES: [[u8; 3]; 256] = {
    let (mut fronts, mut number) = ([[RESERVED, DATABASE, 0]; 256], 0);
    while number < fronts.len() {
        fronts[number][2] = number as u8;
        number += 1;
    }
    fronts
};
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
    /// The records of a database of gateways other than 0, by the database's number: any bytes,
    /// separate from those of other databases. In [`KeySpace::Gateway`] they follow `d` and the number.
    Database(u8),
    /// Both, as stored in the index. For copying and displaying a whole pool; an arbitrary key may
    /// have a place that neither of the other key spaces reaches.
    Whole,
}

impl KeySpace {
    /// Returns the bytes in front of the key in its place.
    #[inline]
    fn front(self, key: &[u8]) -> &'static [u8] {
        match self {
            Self::Program if key.first().is_some_and(|&first| first >= ESCAPE) => &[ESCAPE],
            Self::Gateway => &[RESERVED],
            Self::Database(number) => &DATABASES[usize::from(number)],
            Self::Program | Self::Whole => &[],
        }
    }

    /// Returns the number of bytes in front of the key in this place.
    #[inline]
    fn front_bytes(self, place: &[u8]) -> usize {
        match self {
            Self::Program => usize::from(place.first() == Some(&ESCAPE)),
            Self::Gateway => place.len().min(1),
            Self::Database(_) => place.len().min(DATABASES[0].len()),
            Self::Whole => 0,
        }
    }

    /// Fails if a key that needs bytes in front is too long with them; the index refuses all other
    /// keys that are too long.
    pub(crate) fn check(self, key: &[u8]) -> Result<(), Error> {
        let front = self.front(key).len();
        if front == 0 || key.len() + front <= KEY_BYTES_MAX {
            return Ok(());
        }
        Err(IndexError::KeyTooLong { bytes: key.len(), max: KEY_BYTES_MAX - front }.into())
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
        let front = self.front(key);
        if front.is_empty() {
            return Ok(key);
        }
        self.check(key)?;
        if buffer.capacity() > KEPT_BYTES {
            *buffer = Vec::new();
        }
        buffer.clear();
        match front {
            // The most frequent case needs no copy of unknown length.
            [front] => buffer.push(*front),
            front => buffer.extend_from_slice(front),
        }
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
    /// assert_eq!(KeySpace::Database(2).into_place(vec![1]), [0xff, b'd', 2, 1]);
    /// ```
    pub fn into_place(self, mut key: Vec<u8>) -> Vec<u8> {
        let front = self.front(&key);
        drop(key.splice(0..0, front.iter().copied()));
        key
    }

    /// Returns the places of a range of keys.
    pub(crate) fn range(self, range: &ScanRange) -> ScanRange {
        let place = |bound: &Bound<Vec<u8>>| bound.clone().map(|key| self.into_place(key));
        let (mut from, mut to) = (place(&range.from), place(&range.to));
        match (self, &from, &to) {
            (Self::Program, _, Bound::Unbounded) => to = Bound::Excluded(vec![RESERVED]),
            (Self::Gateway, Bound::Unbounded, _) => from = Bound::Included(vec![RESERVED]),
            (Self::Database(_), ..) => {
                let whole = ScanRange::prefix(self.front(b""));
                from = if from == Bound::Unbounded { whole.from } else { from };
                to = if to == Bound::Unbounded { whole.to } else { to };
            }
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
        &place[self.front_bytes(place)..]
    }

    /// Returns the least key whose place is this one or a greater one; `None` if there is none.
    pub(crate) fn bound(self, place: &[u8]) -> Option<Vec<u8>> {
        match (self, place) {
            (Self::Program, [RESERVED, ..]) => None,
            // Places that begin with ESCAPE go on with ESCAPE or RESERVED.
            (Self::Program, [ESCAPE, rest @ ..]) => {
                Some(if rest < &[ESCAPE][..] { vec![ESCAPE] } else { rest.to_vec() })
            }
            (Self::Program | Self::Whole, _) => Some(place.to_vec()),
            (Self::Gateway | Self::Database(_), _) => {
                let front = self.front(b"");
                let before = (place < front).then(Vec::new);
                place.strip_prefix(front).map(<[u8]>::to_vec).or(before)
            }
        }
    }

    /// Converts places to keys.
    pub(crate) fn keys(self, mut pairs: Vec<KeyValue>) -> Vec<KeyValue> {
        for (place, _) in &mut pairs {
            place.drain(..self.front_bytes(place));
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
            space.check(key)?;
            places.bytes.extend_from_slice(space.front(key));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each bound of places, and the least key whose place is not below it, as found among many keys.
    #[test]
    fn bounds_of_places_are_bounds_of_keys() {
        let bytes = [0, 1, b'd', 0xfd, ESCAPE, RESERVED];
        let mut all: Vec<Vec<u8>> = vec![Vec::new()];
        for length in 0..3 {
            let longer: Vec<_> = all.iter().filter(|key| key.len() == length).cloned().collect();
            all.extend(longer.iter().flat_map(|key| bytes.map(|byte| [&key[..], &[byte]].concat())));
        }
        all.sort();
        for space in [KeySpace::Program, KeySpace::Gateway, KeySpace::Database(1), KeySpace::Whole] {
            for place in &all {
                let is_behind = |key: &&Vec<u8>| space.into_place((*key).clone()) >= *place;
                let expected = all.iter().find(is_behind);
                let bound = space.bound(place);
                let found = bound.as_ref().and_then(|bound| all.iter().find(|key| *key >= bound));
                assert_eq!(found, expected, "{space:?}, {place:x?}: {bound:x?}");
            }
        }
    }
}
