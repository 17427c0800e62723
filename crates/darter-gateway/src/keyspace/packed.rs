//! The members of a small set, which lie in its head.
//!
//! ```text
//! for each member, in ascending order: length, 2 bytes, little-endian | member
//! ```

use crate::fault::{FOREIGN, Fault};

/// Most bytes of the members in a head.
pub(super) const PACKED_BYTES: usize = 1024;

/// Members in ascending order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'b>(&'b [u8]);

/// Splits the first member off.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

/// Appends a member to a body that begins at `start`. Returns false if there is no room.
pub(super) fn push(body: &mut Vec<u8>, start: usize, name: &[u8]) -> bool {
    if body.len() - start + 2 + name.len() > PACKED_BYTES {
        return false;
    }
    body.extend_from_slice(&(name.len() as u16).to_le_bytes());
    body.extend_from_slice(name);
    true
}

impl<'b> Packed<'b> {
    /// No members.
    pub(super) const NONE: Self = Self(&[]);

    /// Parses the body of a record.
    ///
    /// # Errors
    /// Fails if it is not valid.
    pub(super) fn parse(body: &'b [u8]) -> Result<Self, Fault> {
        let (mut left, mut last) = (body, None);
        while !left.is_empty() {
            let (name, rest) = split(left).ok_or(FOREIGN)?;
            if last.is_some_and(|last| last >= name) {
                return Err(FOREIGN);
            }
            (left, last) = (rest, Some(name));
        }
        Ok(Self(body))
    }

    /// Returns the members of a body that was parsed before.
    pub(super) fn of_valid(body: &'b [u8]) -> Self {
        Self(body)
    }

    /// Returns the members in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = &'b [u8]> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let (name, rest) = split(left)?;
            left = rest;
            Some(name)
        })
    }

    /// Returns whether a name is one of the members.
    pub(super) fn has(self, name: &[u8]) -> bool {
        self.iter().find(|&member| member >= name) == Some(name)
    }

    /// Passes the members and other names, both in ascending order, to `visit`, each once and in
    /// ascending order, and says of each whether it is new. Stops when `visit` returns false.
    pub(super) fn merge<'n>(self, names: &[&'n [u8]], mut visit: impl FnMut(&[u8], bool) -> bool)
    where
        'b: 'n,
    {
        let (mut own, mut new) = (self.iter().peekable(), names.iter().copied().peekable());
        loop {
            let (name, is_new) = match (own.peek().copied(), new.peek().copied()) {
                (None, None) => return,
                (Some(member), None) => (member, false),
                (None, Some(name)) => (name, true),
                (Some(member), Some(name)) => (member.min(name), name < member),
            };
            own.next_if_eq(&name);
            new.next_if_eq(&name);
            if !visit(name, is_new) {
                return;
            }
        }
    }

    /// Appends the members and other names, in ascending order, to a record. Returns the number of
    /// new ones; `None` if there is no room.
    pub(super) fn with(self, names: &[&[u8]], record: &mut Vec<u8>) -> Option<usize> {
        let (start, mut added, mut has_room) = (record.len(), 0, true);
        self.merge(names, |name, is_new| {
            added += usize::from(is_new);
            has_room = push(record, start, name);
            has_room
        });
        has_room.then_some(added)
    }

    /// Appends the members other than some names, in ascending order, to a record. Returns the
    /// number of members left out.
    pub(super) fn without(self, names: &[&[u8]], record: &mut Vec<u8>) -> usize {
        let (start, mut removed) = (record.len(), 0);
        for name in self.iter() {
            if names.binary_search(&name).is_ok() {
                removed += 1;
            } else {
                push(record, start, name);
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(names: &[&[u8]]) -> Vec<u8> {
        let mut body = Vec::new();
        assert_eq!(Packed::NONE.with(names, &mut body), Some(names.len()));
        body
    }

    #[test]
    fn members_are_added_and_removed_in_order() {
        let old = body(&[b"", b"a", b"c"]);
        let packed = Packed::parse(&old).unwrap();
        assert!(packed.iter().eq([&b""[..], b"a", b"c"]));
        assert!(packed.has(b"") && packed.has(b"c") && !packed.has(b"b") && !packed.has(b"d"));
        let mut record = b"before".to_vec();
        assert_eq!(packed.with(&[b"a", b"b", b"c\0"], &mut record), Some(2));
        let new = Packed::parse(&record[6..]).unwrap();
        assert!(new.iter().eq([&b""[..], b"a", b"b", b"c", b"c\0"]));
        let mut record = Vec::new();
        assert_eq!(new.without(&[b"", b"b", b"x"], &mut record), 2);
        assert!(Packed::parse(&record).unwrap().iter().eq([&b"a"[..], b"c", b"c\0"]));
    }

    #[test]
    fn there_is_room_for_a_kibibyte() {
        let names: Vec<Vec<u8>> = (0..128_u16).map(|name| format!("{name:06}").into_bytes()).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let full = body(&names);
        assert_eq!(full.len(), PACKED_BYTES);
        let packed = Packed::parse(&full).unwrap();
        let mut record = vec![0; 9];
        assert_eq!(packed.with(&[names[5]], &mut record), Some(0));
        assert_eq!(packed.with(&[b"x"], &mut record), None);
        assert_eq!(Packed::NONE.with(&[&[b'x'; PACKED_BYTES - 2]], &mut Vec::new()), Some(1));
        assert_eq!(Packed::NONE.with(&[&[b'x'; PACKED_BYTES - 1]], &mut Vec::new()), None);
        assert_eq!(Packed::NONE.with(&[&vec![b'x'; 70_000]], &mut Vec::new()), None);
    }

    #[test]
    fn bytes_that_are_not_members_are_refused() {
        for bytes in
            [&b"\x01"[..], b"\x02\0a", b"\x01\0b\x01\0a", b"\x01\0a\x01\0a", b"\0\0\0\0", b"\x01\0ab"]
        {
            assert!(Packed::parse(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
