//! Streams in payloads.
//!
//! ```text
//! nodes, then for each: id of its first entry, 16 bytes | listpack
//! | entries | last id | first id | greatest deleted id | entries ever added
//! | groups, then for each: name | last id | entries read
//!     | pending entries, then for each: id, 16 bytes | time, 8 bytes | deliveries
//!     | consumers, then for each: name | seen, 8 bytes | active, 8 bytes | ids of its pending entries
//! ```
//!
//! Numbers without a size are lengths, and ids without a size are two of them. Ids of 16 bytes are
//! big-endian, times little-endian. The oldest form, that of Redis 5 and 6, lacks the first id, the
//! greatest deleted one, the entries ever added and those read; only the newest, that of Redis 7.2, says
//! when a consumer was active.
//!
//! ```text
//! a node:   entries | deleted entries | fields, then their names | 0
//!           | for each entry: flags | ms | number in the ms | fields and values, or values | parts
//! ```
//!
//! Each is an element of the listpack. The names at the beginning are those of an entry whose flags say
//! so; other entries have their number of fields before them. An entry's id is relative to the node's.

use super::packed::{Listpack, listpack};
use super::read::Reader;
use super::{STREAM, STREAM_OF_REDIS_5, STREAM_OF_REDIS_7_2, Text, push_length, push_string, seal};
use crate::keyspace::{Pending, StreamEntry, StreamId, WholeGroup, WholeStream, body_of};
use crate::number;
use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, HashSet};

/// The flag of an entry that was deleted.
const DELETED: i64 = 1;
/// The flag of an entry with the names at the beginning of its node.
const SAME_FIELDS: i64 = 2;
/// Most entries and bytes of a node that is written, as in Redis.
const NODE_ENTRIES: usize = 100;
const NODE_BYTES: usize = 4096;

/// Returns the payload of a stream.
pub(crate) fn dumped_stream(stream: &WholeStream) -> Vec<u8> {
    let mut payload = vec![STREAM];
    let nodes = nodes(&stream.entries);
    push_length(&mut payload, nodes.len());
    for node in nodes {
        let Some((first, _)) = node.first() else { continue };
        push_string(&mut payload, &id_bytes(*first));
        push_string(&mut payload, &written_node(*first, node));
    }
    let first = stream.entries.first().map_or(StreamId::ZERO, |(id, _)| *id);
    push_length(&mut payload, stream.entries.len());
    for id in [stream.last, first, stream.deleted] {
        push_id(&mut payload, id);
    }
    push_number(&mut payload, stream.added);
    push_length(&mut payload, stream.groups.len());
    for group in &stream.groups {
        push_group(&mut payload, group);
    }
    seal(payload)
}

fn push_number(payload: &mut Vec<u8>, number: u64) {
    push_length(payload, number as usize);
}

fn push_id(payload: &mut Vec<u8>, id: StreamId) {
    push_number(payload, id.ms);
    push_number(payload, id.seq);
}

fn id_bytes(id: StreamId) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes()
}

fn push_group(payload: &mut Vec<u8>, group: &WholeGroup) {
    push_string(payload, &group.name);
    push_id(payload, group.last);
    push_number(payload, group.read.unwrap_or(u64::MAX));
    push_length(payload, group.pending.len());
    let mut own = BTreeMap::<&[u8], Vec<StreamId>>::new();
    for entry in &group.pending {
        payload.extend_from_slice(&id_bytes(entry.id));
        payload.extend_from_slice(&entry.time.to_le_bytes());
        push_number(payload, entry.deliveries);
        own.entry(&entry.consumer).or_default().push(entry.id);
    }
    push_length(payload, group.consumers.len());
    for (name, seen) in &group.consumers {
        push_string(payload, name);
        payload.extend_from_slice(&seen.to_le_bytes());
        let ids = own.remove(&name[..]).unwrap_or_default();
        push_length(payload, ids.len());
        for id in &ids {
            payload.extend_from_slice(&id_bytes(*id));
        }
    }
}

/// Divides entries into nodes.
fn nodes(entries: &[(StreamId, Vec<u8>)]) -> Vec<&[(StreamId, Vec<u8>)]> {
    let (mut nodes, mut left) = (Vec::new(), entries);
    while !left.is_empty() {
        let mut bytes = 0;
        let is_next = |(_, body): &&(StreamId, Vec<u8>)| {
            bytes += body.len();
            bytes <= NODE_BYTES
        };
        let count = left.iter().take(NODE_ENTRIES).take_while(is_next).count().max(1);
        let (node, rest) = left.split_at(count);
        nodes.push(node);
        left = rest;
    }
    nodes
}

/// Returns the listpack of a node.
fn written_node(first: StreamId, entries: &[(StreamId, Vec<u8>)]) -> Vec<u8> {
    let mut node = Listpack::new();
    let texts_of = |id: StreamId, body: &'_ [u8]| -> Vec<Vec<u8>> {
        StreamEntry { id, body }.texts().into_iter().map(<[u8]>::to_vec).collect()
    };
    let names: Vec<_> =
        entries.first().map(|(id, body)| texts_of(*id, body)).into_iter().flatten().step_by(2).collect();
    node.push_count(entries.len());
    node.push_number(0);
    node.push_count(names.len());
    for name in &names {
        node.push(name);
    }
    node.push_number(0);
    for (id, body) in entries {
        let texts = texts_of(*id, body);
        let is_same = texts.iter().step_by(2).eq(&names);
        let before = node.count();
        node.push_number(if is_same { SAME_FIELDS } else { 0 });
        node.push_number(id.ms.wrapping_sub(first.ms).cast_signed());
        node.push_number(id.seq.wrapping_sub(first.seq).cast_signed());
        if is_same {
            for value in texts.iter().skip(1).step_by(2) {
                node.push(value);
            }
        } else {
            node.push_count(texts.len() / 2);
            for text in &texts {
                node.push(text);
            }
        }
        node.push_count(node.count() - before);
    }
    node.finished()
}

/// Reads a stream of one of the types.
pub(super) fn read_stream(reader: &mut Reader<'_>, kind: u8) -> Option<WholeStream> {
    let mut stream = WholeStream::default();
    for _ in 0..reader.length()? {
        let first = id_of(&reader.string()?)?;
        let node = reader.packed(listpack)?;
        read_node(reader, first, &node, &mut stream.entries)?;
    }
    let is_old = kind == STREAM_OF_REDIS_5;
    let count = reader.length()?;
    stream.last = read_id(reader)?;
    stream.added = stream.entries.len() as u64;
    if !is_old {
        let _first = read_id(reader)?;
        stream.deleted = read_id(reader)?;
        stream.added = reader.length()? as u64;
    }
    let is_in_order = stream.entries.is_sorted_by(|(one, _), (other, _)| one < other);
    let is_last = stream.entries.last().is_none_or(|(id, _)| *id <= stream.last);
    if count != stream.entries.len() || !is_in_order || !is_last {
        return None;
    }
    let mut names = HashSet::new();
    for _ in 0..reader.length()? {
        reader.take_element()?;
        let group = read_group(reader, kind)?;
        if !names.insert(group.name.clone()) {
            return None;
        }
        stream.groups.push(group);
    }
    if is_old {
        stream.compute_reads();
    }
    Some(stream)
}

fn id_of(bytes: &[u8]) -> Option<StreamId> {
    let number = u128::from_be_bytes(bytes.try_into().ok()?);
    Some(StreamId { ms: (number >> 64) as u64, seq: number as u64 })
}

fn read_id(reader: &mut Reader<'_>) -> Option<StreamId> {
    Some(StreamId { ms: reader.length()? as u64, seq: reader.length()? as u64 })
}

/// The elements of a node that are still to be read.
struct Parts<'n> {
    left: std::slice::Iter<'n, Text<'n>>,
}

impl<'n> Parts<'n> {
    fn text(&mut self) -> Option<&'n [u8]> {
        self.left.next().map(|text| &text[..])
    }

    fn number(&mut self) -> Option<i64> {
        number::integer(self.text()?)
    }

    fn texts(&mut self, count: usize) -> Option<Vec<&'n [u8]>> {
        if count > self.left.len() {
            return None;
        }
        Some((0..count).map_while(|_| self.text()).collect())
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }
}

/// Appends the entries of a node that were not deleted.
fn read_node(
    reader: &mut Reader<'_>,
    first: StreamId,
    node: &[Text<'_>],
    entries: &mut Vec<(StreamId, Vec<u8>)>,
) -> Option<()> {
    let mut parts = Parts { left: node.iter() };
    let (living, deleted, fields) = (parts.count()?, parts.count()?, parts.count()?);
    let names = parts.texts(fields)?;
    if parts.number()? != 0 {
        return None;
    }
    let (mut met, before) = (0, entries.len());
    while parts.left.len() > 0 {
        let start = parts.left.len();
        let flags = parts.number()?;
        let ms = first.ms.wrapping_add(parts.number()?.cast_unsigned());
        let seq = first.seq.wrapping_add(parts.number()?.cast_unsigned());
        let texts: Vec<&[u8]> = if flags & SAME_FIELDS != 0 {
            let values = parts.texts(names.len())?;
            names.iter().zip(values).flat_map(|(name, value)| [*name, value]).collect()
        } else {
            let fields = parts.count()?;
            parts.texts(fields.checked_mul(2)?)?
        };
        let length = start - parts.left.len();
        if parts.count()? != length {
            return None;
        }
        met += 1;
        if flags & DELETED == 0 {
            reader.take_element()?;
            reader.take_room(texts.iter().map(|text| text.len() + 4).sum())?;
            entries.push((StreamId { ms, seq }, body_of(texts.into_iter())));
        }
    }
    (entries.len() - before == living && met == living.checked_add(deleted)?).then_some(())
}

fn read_group(reader: &mut Reader<'_>, kind: u8) -> Option<WholeGroup> {
    let mut group = WholeGroup { name: reader.string()?.into_owned(), ..WholeGroup::default() };
    group.last = read_id(reader)?;
    if kind != STREAM_OF_REDIS_5 {
        group.read = Some(reader.length()? as u64).filter(|read| *read != u64::MAX);
    }
    // The consumers follow.
    let mut pending = BTreeMap::new();
    for _ in 0..reader.length()? {
        reader.take_room(size_of::<Pending>())?;
        let id = id_of(&reader.chunk::<16>()?)?;
        let (time, deliveries) = (reader.time()?, reader.length()? as u64);
        let entry = Pending { id, time, deliveries, consumer: Vec::new() };
        if pending.insert(id, (entry, false)).is_some() {
            return None;
        }
    }
    for _ in 0..reader.length()? {
        let name = reader.string()?.into_owned();
        reader.take_element()?;
        reader.take_room(name.len())?;
        let seen = reader.time()?;
        if kind == STREAM_OF_REDIS_7_2 {
            reader.time()?;
        }
        for _ in 0..reader.length()? {
            let id = id_of(&reader.chunk::<16>()?)?;
            reader.take_room(name.len())?;
            let (entry, is_owned) = pending.get_mut(&id)?;
            if std::mem::replace(is_owned, true) {
                return None;
            }
            entry.consumer.clone_from(&name);
        }
        match group.consumers.entry(name) {
            Place::Vacant(place) => place.insert(seen),
            Place::Occupied(_) => return None,
        };
    }
    let are_owned = pending.values().all(|(_, is_owned)| *is_owned);
    group.pending = pending.into_values().map(|(entry, _)| entry).collect();
    are_owned.then_some(group)
}

#[cfg(test)]
mod tests {
    use super::super::{Value, read, verified};
    use super::*;
    use proptest::prelude::*;

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: ms % 3 }
    }

    /// The ids of pending entries, with their owners and deliveries, and the entries read.
    type Of = (BTreeMap<u64, (u8, u32)>, Option<u32>);

    fn stream() -> impl Strategy<Value = WholeStream> {
        let text = || proptest::collection::vec(any::<u8>(), 0..40);
        let texts = proptest::collection::vec((text(), text()), 1..4);
        let entries = proptest::collection::btree_map(1..u64::MAX / 2, texts, 0..150);
        let owners = proptest::collection::btree_map(any::<u64>(), (0..3_u8, any::<u32>()), 0..40);
        let groups = proptest::collection::btree_map(text(), (owners, any::<Option<u32>>()), 0..3);
        (entries, groups, any::<u64>()).prop_map(|(entries, groups, added)| {
            let body = |texts: Vec<(Vec<u8>, Vec<u8>)>| {
                let texts: Vec<&[u8]> = texts.iter().flat_map(|(name, value)| [&name[..], value]).collect();
                body_of(texts.into_iter())
            };
            let group = |(name, (owners, read)): (_, Of)| {
                let pending = owners.iter().map(|(ms, (owner, number))| {
                    let (deliveries, consumer) = (u64::from(*number), vec![*owner]);
                    Pending { id: id(*ms), time: ms >> 1, deliveries, consumer }
                });
                let pending = pending.collect();
                let consumers = (0..3).map(|owner| (vec![owner], 7)).collect();
                WholeGroup { name, last: id(5), read: read.map(u64::from), consumers, pending }
            };
            WholeStream {
                entries: entries.into_iter().map(|(ms, texts)| (id(ms), body(texts))).collect(),
                last: StreamId::MAX,
                deleted: id(1),
                added,
                groups: groups.into_iter().map(group).collect(),
            }
        })
    }

    proptest! {
        #[test]
        fn streams_are_read_as_they_were_written(stream in stream(), at: usize, byte: u8) {
            let payload = dumped_stream(&stream);
            let mut body = verified(&payload).unwrap().to_vec();
            prop_assert_eq!(read(&body), Some(Value::Stream(Box::new(stream))));
            let at = at % body.len();
            body[at] = byte;
            if let Some(Value::Stream(stream)) = read(&body) {
                prop_assert!(read(verified(&dumped_stream(&stream)).unwrap()).is_some());
            }
            body.truncate(at);
            prop_assert_eq!(read(&body), None);
        }
    }

    /// A stream without entries, and a group with a consumer that may have two times.
    fn of_version(kind: u8, times: usize, ids: &[u8]) -> Vec<u8> {
        let times = 5_u64.to_le_bytes().repeat(times);
        let counts: &[u8] = if kind == STREAM_OF_REDIS_5 { &[] } else { &[0, 0, 0, 0, 0] };
        let read: &[u8] = if kind == STREAM_OF_REDIS_5 { &[] } else { &[0] };
        [&[kind, 0, 0, 9, 9], counts, &[1, 1, b'g', 0, 0], read, &[0, 1, 1, b'c'], &times, ids].concat()
    }

    #[test]
    fn the_forms_of_all_versions_are_read() {
        for (kind, times) in [(STREAM_OF_REDIS_5, 1), (STREAM, 1), (STREAM_OF_REDIS_7_2, 2)] {
            let Some(Value::Stream(stream)) = read(&of_version(kind, times, &[0])) else { panic!("{kind}") };
            assert_eq!(stream.last, StreamId { ms: 9, seq: 9 });
            assert_eq!(stream.groups[0].consumers, BTreeMap::from([(b"c".to_vec(), 5)]));
            assert_eq!(stream.groups[0].read, Some(0));
            assert_eq!(read(&of_version(kind, times - 1, &[0])), None);
            // A consumer may only own an entry that is pending.
            assert_eq!(read(&of_version(kind, times, &[&[1][..], &[0; 16]].concat())), None);
        }
    }

    #[test]
    fn few_bytes_do_not_take_much_memory() {
        let mut node = Listpack::new();
        node.push_number(20_000);
        for number in [0, 1] {
            node.push_number(number);
        }
        node.push(&vec![b'n'; 1 << 20]);
        node.push_number(0);
        for number in 0..20_000 {
            for number in [SAME_FIELDS, 0, number] {
                node.push_number(number);
            }
            node.push(b"v");
            node.push_number(4);
        }
        let mut body = vec![STREAM, 1];
        push_string(&mut body, &[0; 16]);
        push_string(&mut body, &node.finished());
        body.extend([0; 20]);
        assert_eq!(read(&body), None);
    }
}
