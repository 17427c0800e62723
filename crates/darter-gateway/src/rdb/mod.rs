//! Values in the format of Redis's `DUMP` and `RESTORE`, which is that of its RDB files.
//!
//! ```text
//! type, 1 byte | value | version, 2 bytes | checksum of all before, 8 bytes
//! ```
//!
//! Both numbers are little-endian. A value is read in every form that Redis writes for its type
//! (`read.rs`, `packed.rs`, `lzf.rs`, `streams.rs`), and written in the plain one, which all versions
//! read.

mod file;
#[cfg(feature = "scripts")]
mod functions;
mod lzf;
mod packed;
mod read;
mod streams;
mod timed;

use crc::{CRC_64_REDIS, Crc, Table};
use file::{MODULE, module_name};
pub use file::{RdbError, RdbFile, RdbItem, RdbKey};
#[cfg(feature = "scripts")]
pub(crate) use functions::{NoLibraries, dumped_libraries, libraries_of};
use packed::{integers, listpack, ziplist};
use read::Reader;
pub(crate) use streams::dumped_stream;
use streams::read_stream;
use timed::timed_fields;
pub(crate) use timed::{TimedField, dumped_fields};

use crate::keyspace::WholeStream;
use std::borrow::Cow;
use std::collections::HashSet;

/// The version of the format that is written, that of Redis 7.0.
const VERSION: u16 = 10;
/// The latest version that is read, that of Redis 7.4 and 8.
const VERSION_MAX: u16 = 12;
/// Bytes of the version and the checksum.
const FOOTER_BYTES: usize = 10;
/// Most bytes of a value in memory.
const VALUE_BYTES_MAX: usize = 256 << 20;

static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The types of values that are written.
const STRING: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
const HASH: u8 = 4;
const SORTED_SET: u8 = 5;
const STREAM: u8 = 19;
const TIMED_HASH: u8 = 24;
/// Further forms, which are only read.
const SORTED_SET_IN_TEXT: u8 = 3;
const LIST_IN_ZIPLIST: u8 = 10;
const SET_OF_INTEGERS: u8 = 11;
const SORTED_SET_IN_ZIPLIST: u8 = 12;
const HASH_IN_ZIPLIST: u8 = 13;
const LIST_IN_ZIPLISTS: u8 = 14;
const STREAM_OF_REDIS_5: u8 = 15;
const HASH_IN_LISTPACK: u8 = 16;
const SORTED_SET_IN_LISTPACK: u8 = 17;
const LIST_IN_LISTPACKS: u8 = 18;
const SET_IN_LISTPACK: u8 = 20;
const STREAM_OF_REDIS_7_2: u8 = 21;
const TIMED_HASH_IN_LISTPACK: u8 = 25;

/// Bytes of a value that may be a part of the payload.
pub(crate) type Text<'p> = Cow<'p, [u8]>;

/// A value that was read.
#[derive(Debug, PartialEq)]
pub(crate) enum Value<'p> {
    String(Text<'p>),
    /// Fields with values.
    Hash(Vec<(Text<'p>, Text<'p>)>),
    /// Fields with values and the times at which they end.
    TimedHash(Vec<(Text<'p>, Text<'p>, Option<u64>)>),
    /// Members with scores.
    SortedSet(Vec<(Text<'p>, f64)>),
    /// Members.
    Set(Vec<Text<'p>>),
    /// Elements in their order.
    List(Vec<Text<'p>>),
    Stream(Box<WholeStream>),
}

/// A value as `DUMP` returns it, without its version and checksum.
#[derive(Clone, Debug)]
pub struct Payload(Vec<u8>);

impl Payload {
    /// Returns the value that `DUMP` has returned, if its version is known and its checksum is right.
    #[must_use]
    pub fn of_dump(mut payload: Vec<u8>) -> Option<Self> {
        let bytes = verified(&payload)?.len();
        payload.truncate(bytes);
        Some(Self(payload))
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Reads the value, which may take `room` bytes of memory.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn value(&self, room: usize) -> Result<Value<'_>, String> {
        let (&kind, rest) = self.0.split_first().ok_or("an empty value")?;
        let mut reader = Reader::new(rest, room);
        if kind == MODULE {
            let module = reader.length().map(|id| module_name(id as u64)).unwrap_or_default();
            return Err(format!("a value of the module {module}, which gateways do not have"));
        }
        match read_from(kind, &mut reader) {
            Some(value) if reader.is_at_end() => Ok(value),
            _ if reader.is_out_of_room() => Err(format!("takes more than {room} bytes of memory")),
            _ => Err(format!("of the type {kind}, and damaged at its byte {}", self.0.len() - reader.left())),
        }
    }
}

/// Returns a payload without its version and checksum, if both are valid.
pub(crate) fn verified(payload: &[u8]) -> Option<&[u8]> {
    let (rest, checksum) = payload.split_last_chunk()?;
    let (body, version) = rest.split_last_chunk()?;
    let is_known = u16::from_le_bytes(*version) <= VERSION_MAX;
    (is_known && CHECKSUM.checksum(rest) == u64::from_le_bytes(*checksum)).then_some(body)
}

/// Adds the version and the checksum to a payload.
fn seal(payload: Vec<u8>) -> Vec<u8> {
    seal_as(payload, VERSION)
}

fn seal_as(mut payload: Vec<u8>, version: u16) -> Vec<u8> {
    payload.extend_from_slice(&version.to_le_bytes());
    let checksum = CHECKSUM.checksum(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// Appends a length.
fn push_length(payload: &mut Vec<u8>, length: usize) {
    match length {
        ..64 => payload.push(length as u8),
        64..16_384 => payload.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
        _ => {
            if let Ok(length) = u32::try_from(length) {
                payload.push(0x80);
                payload.extend_from_slice(&length.to_be_bytes());
            } else {
                payload.push(0x81);
                payload.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
    }
}

/// Appends a string.
fn push_string(payload: &mut Vec<u8>, string: &[u8]) {
    push_length(payload, string.len());
    payload.extend_from_slice(string);
}

/// Returns the payload of a string.
pub(crate) fn dumped_string(value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(value.len() + 6 + FOOTER_BYTES);
    payload.push(STRING);
    push_string(&mut payload, value);
    seal(payload)
}

/// The elements of a key, for its payload.
#[derive(Debug)]
pub(crate) struct Elements {
    kind: u8,
    count: usize,
    bytes: Vec<u8>,
}

impl Elements {
    /// Begins the payload of a hash.
    pub(crate) fn of_hash() -> Self {
        Self { kind: HASH, count: 0, bytes: Vec::new() }
    }

    /// Begins the payload of a sorted set.
    pub(crate) fn of_sorted_set() -> Self {
        Self { kind: SORTED_SET, count: 0, bytes: Vec::new() }
    }

    /// Begins the payload of a set.
    pub(crate) fn of_set() -> Self {
        Self { kind: SET, count: 0, bytes: Vec::new() }
    }

    /// Begins the payload of a list.
    pub(crate) fn of_list() -> Self {
        Self { kind: LIST, count: 0, bytes: Vec::new() }
    }

    /// Adds a member of a set, or an element of a list.
    pub(crate) fn push(&mut self, element: &[u8]) {
        self.count += 1;
        push_string(&mut self.bytes, element);
    }

    /// Adds a field of a hash.
    pub(crate) fn push_field(&mut self, name: &[u8], value: &[u8]) {
        self.count += 1;
        push_string(&mut self.bytes, name);
        push_string(&mut self.bytes, value);
    }

    /// Adds a member of a sorted set.
    pub(crate) fn push_member(&mut self, name: &[u8], score: f64) {
        self.count += 1;
        push_string(&mut self.bytes, name);
        self.bytes.extend_from_slice(&score.to_le_bytes());
    }

    /// Returns the bytes of the elements so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the payload, if there are elements.
    pub(crate) fn dumped(self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let mut payload = Vec::with_capacity(self.bytes.len() + 10 + FOOTER_BYTES);
        payload.push(self.kind);
        push_length(&mut payload, self.count);
        payload.extend_from_slice(&self.bytes);
        Some(seal(payload))
    }
}

/// Returns whether no two names are equal.
fn are_different<V>(elements: &[(Text<'_>, V)]) -> bool {
    let mut names = HashSet::new();
    elements.iter().all(|(name, _)| names.insert(&name[..]))
}

/// Returns elements, unless there are none or two have one name.
fn checked<V>(elements: Vec<(Text<'_>, V)>) -> Option<Vec<(Text<'_>, V)>> {
    (!elements.is_empty() && are_different(&elements)).then_some(elements)
}

/// Returns names, unless there are none or two are equal.
fn names(names: Vec<(Text<'_>, ())>) -> Option<Vec<Text<'_>>> {
    Some(checked(names)?.into_iter().map(|(name, ())| name).collect())
}

/// Returns the elements of a list, unless there are none.
fn in_order(elements: Vec<Text<'_>>) -> Option<Value<'_>> {
    (!elements.is_empty()).then_some(Value::List(elements))
}

/// Reads a node of a list, one element or a listpack, after the number that says which it is.
fn node<'p>(reader: &mut Reader<'p>) -> Option<Vec<Text<'p>>> {
    match reader.length()? {
        1 => {
            reader.take_element()?;
            Some(vec![reader.string()?])
        }
        2 => reader.packed(listpack),
        _ => None,
    }
}

/// Combines strings to pairs.
fn pairs(strings: Vec<Text<'_>>) -> Option<Vec<(Text<'_>, Text<'_>)>> {
    if strings.len() % 2 == 1 {
        return None;
    }
    let mut strings = strings.into_iter();
    Some(std::iter::from_fn(|| Some((strings.next()?, strings.next()?))).collect())
}

/// Reads the scores behind the members of a sorted set.
fn scored<'p>(pairs: Vec<(Text<'p>, Text<'p>)>) -> Option<Vec<(Text<'p>, f64)>> {
    pairs.into_iter().map(|(name, score)| Some((name, crate::score::parse(&score)?))).collect()
}

/// Reads a value that [`verified`] has returned. `None` if it is damaged, of another type, or too
/// large.
pub(crate) fn read(body: &[u8]) -> Option<Value<'_>> {
    let (&kind, rest) = body.split_first()?;
    read_from(kind, &mut Reader::new(rest, VALUE_BYTES_MAX))
}

/// Reads a value of a type.
fn read_from<'p>(kind: u8, reader: &mut Reader<'p>) -> Option<Value<'p>> {
    match kind {
        STRING => reader.string().map(Value::String),
        LIST => in_order(reader.elements(|_| Some(()))?.into_iter().map(|(element, ())| element).collect()),
        LIST_IN_ZIPLIST => in_order(reader.packed(ziplist)?),
        LIST_IN_ZIPLISTS => in_order(reader.nodes(|reader| reader.packed(ziplist))?),
        LIST_IN_LISTPACKS => in_order(reader.nodes(node)?),
        SET => names(reader.elements(|_| Some(()))?).map(Value::Set),
        SET_OF_INTEGERS => {
            names(reader.packed(integers)?.into_iter().map(|name| (name, ())).collect()).map(Value::Set)
        }
        SET_IN_LISTPACK => {
            names(reader.packed(listpack)?.into_iter().map(|name| (name, ())).collect()).map(Value::Set)
        }
        TIMED_HASH | TIMED_HASH_IN_LISTPACK => timed_fields(reader, kind),
        STREAM | STREAM_OF_REDIS_5 | STREAM_OF_REDIS_7_2 => {
            read_stream(reader, kind).map(|stream| Value::Stream(Box::new(stream)))
        }
        HASH => checked(reader.elements(Reader::string)?).map(Value::Hash),
        SORTED_SET => checked(reader.elements(Reader::score)?).map(Value::SortedSet),
        SORTED_SET_IN_TEXT => checked(reader.elements(Reader::score_in_text)?).map(Value::SortedSet),
        HASH_IN_ZIPLIST => checked(pairs(reader.packed(ziplist)?)?).map(Value::Hash),
        HASH_IN_LISTPACK => checked(pairs(reader.packed(listpack)?)?).map(Value::Hash),
        SORTED_SET_IN_ZIPLIST => checked(scored(pairs(reader.packed(ziplist)?)?)?).map(Value::SortedSet),
        SORTED_SET_IN_LISTPACK => checked(scored(pairs(reader.packed(listpack)?)?)?).map(Value::SortedSet),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn texts() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..100),
            proptest::collection::vec(any::<u8>(), 16_380..16_390),
            any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        ]
    }

    proptest! {
        #[test]
        fn values_are_read_as_they_were_written(
            string in texts(),
            fields in proptest::collection::btree_map(texts(), texts(), 1..10),
            scores in proptest::collection::btree_map(texts(), any::<f64>(), 1..100),
            list in proptest::collection::vec(texts(), 1..100),
        ) {
            let payload = dumped_string(&string);
            prop_assert_eq!(read(verified(&payload).unwrap()), Some(Value::String(string.into())));
            let (mut hash, mut set) = (Elements::of_hash(), Elements::of_sorted_set());
            for (name, value) in &fields {
                hash.push_field(name, value);
            }
            for (name, &score) in &scores {
                set.push_member(name, score);
            }
            let (hash, set) = (hash.dumped().unwrap(), set.dumped().unwrap());
            let fields = fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            prop_assert_eq!(read(verified(&hash).unwrap()), Some(Value::Hash(fields)));
            let scores = scores.into_iter().map(|(name, score)| (name.into(), score)).collect();
            prop_assert_eq!(read(verified(&set).unwrap()), Some(Value::SortedSet(scores)));
            let names: BTreeSet<Vec<u8>> = list.iter().cloned().collect();
            let (mut set, mut ordered) = (Elements::of_set(), Elements::of_list());
            for name in &names {
                set.push(name);
            }
            for element in &list {
                ordered.push(element);
            }
            let (set, ordered) = (set.dumped().unwrap(), ordered.dumped().unwrap());
            let names = names.into_iter().map(Text::from).collect();
            prop_assert_eq!(read(verified(&set).unwrap()), Some(Value::Set(names)));
            let list = list.into_iter().map(Text::from).collect();
            prop_assert_eq!(read(verified(&ordered).unwrap()), Some(Value::List(list)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..300), kind in 0_u8..30) {
            let _ = read(&[&[kind], &body[..]].concat());
            prop_assert!(verified(&body).is_none());
        }

        #[test]
        fn changed_bytes_have_another_checksum(string in texts(), at: usize, change in 1_u8..) {
            let mut payload = dumped_string(&string);
            let at = at % payload.len();
            payload[at] ^= change;
            prop_assert!(verified(&payload).is_none());
        }
    }

    fn hash(fields: &[(&'static str, &'static str)]) -> Value<'static> {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into()));
        Value::Hash(fields.collect())
    }

    fn sorted_set(members: &[(&'static str, f64)]) -> Value<'static> {
        Value::SortedSet(members.iter().map(|(name, score)| (name.as_bytes().into(), *score)).collect())
    }

    fn set(names: &[&'static str]) -> Value<'static> {
        Value::Set(names.iter().map(|name| name.as_bytes().into()).collect())
    }

    fn list(elements: &[&'static str]) -> Value<'static> {
        Value::List(elements.iter().map(|element| element.as_bytes().into()).collect())
    }

    fn bytes(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn payloads_of_redis_are_read() {
        let long = b"hello hello hello hello hello hello hello";
        // The replies of redis-server 7.0.15 to DUMP.
        for (payload, value) in [
            ("00c00a0a006e9f57450eae63bb", Value::String(b"10".into())),
            ("00c30e290668656c6c6f2068e01705016c6f0a009f008366da650881", Value::String(long.into())),
            (
                "101414000000040081660201018167028374776f04ff0a00e318742b61db6fdf",
                hash(&[("f", "1"), ("g", "two")]),
            ),
            (
                "1115150000000400816202dffe0281610283312e3504ff0a006c359df633d08b5d",
                sorted_set(&[("b", -2.0), ("a", 1.5)]),
            ),
            ("1201020f0f00000004000301010102010a01ff0a00add0efc8419b1a49", list(&["3", "1", "2", "10"])),
            ("0b0e0200000003000000010002002c010a00e510b28e7b9529aa", set(&["1", "2", "300"])),
            ("0202016101620a00fe642125eb033d0d", set(&["a", "b"])),
            ("040201670374776f0166c0010a0095d21544c6b41c61", hash(&[("g", "two"), ("f", "1")])),
            (
                "05020161000000000000f83f016200000000000000c00a00333818d03a99d3d3",
                sorted_set(&[("a", 1.5), ("b", -2.0)]),
            ),
        ] {
            assert_eq!(read(verified(&bytes(payload)).unwrap()), Some(value), "{payload}");
        }
        // From files of earlier versions.
        for (body, value) in [
            (
                "0d1b1b00000016000000040000026631040276310402663204027632ff",
                hash(&[("f1", "v1"), ("f2", "v2")]),
            ),
            (
                "0c191900000016000000040000036f6e6505f2020374776f05f3ff",
                sorted_set(&[("one", 1.0), ("two", 2.0)]),
            ),
            ("0a1b1b00000016000000040000026631040276310402663204027632ff", list(&["f1", "v1", "f2", "v2"])),
            (
                "0e021b1b00000016000000040000026631040276310402663204027632ff0b0b0000000a0000000000ff",
                list(&["f1", "v1", "f2", "v2"]),
            ),
            ("1202010161020a0a0000000100816202ff", list(&["a", "b"])),
            ("140d0d0000000200816102816202ff", set(&["a", "b"])),
            ("0103016101620161", list(&["a", "b", "a"])),
            ("0302016103312e350162ff", sorted_set(&[("a", 1.5), ("b", f64::NEG_INFINITY)])),
        ] {
            assert_eq!(read(&bytes(body)), Some(value), "{body}");
        }
    }

    #[test]
    fn values_that_cannot_exist_are_refused() {
        for body in [
            &[][..],
            &[HASH, 0],
            &[SORTED_SET, 0],
            &[HASH, 2, 1, b'f', 1, b'v', 1, b'f', 1, b'w'],
            &[HASH, 1, 1, b'f'],
            &[HASH, 0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, b'f', 1, b'v'],
            &[SORTED_SET, 1, 1, b'm', 0, 0, 0, 0, 0, 0, 0xf8, 0x7f],
            &[SORTED_SET_IN_TEXT, 1, 1, b'm', 253],
            &[SORTED_SET_IN_TEXT, 1, 1, b'm', 1, b'x'],
            &[STRING, 0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[STRING, 0xc3, 1, 0x80, 0xff, 0xff, 0xff, 0xff, 0],
            &[STRING, 0xc4],
            &[15, 1],
            &[LIST, 0],
            &[LIST, 1],
            &[LIST_IN_LISTPACKS, 0],
            &[LIST_IN_LISTPACKS, 1, 3, 1, b'a'],
            &[LIST_IN_LISTPACKS, 1, 1, 0xc4],
            &[SET, 0],
            &[SET, 2, 1, b'a', 1, b'a'],
            &[SET_OF_INTEGERS, 12, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 1, 0],
            &[SET_OF_INTEGERS, 12, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1, 0],
            &[SET_OF_INTEGERS, 12, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1, 0],
            &[SET_OF_INTEGERS, 8, 2, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(read(body), None, "{body:?}");
        }
    }
}
