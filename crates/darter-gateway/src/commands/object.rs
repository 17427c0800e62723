//! `OBJECT`: how a key is stored.

use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::Fault;
use crate::keyspace::{Aggregate, Head, Keyspace, Kind, Walked};
use crate::number;

/// Length in bytes of the longest string that Redis stores next to its header.
const EMBEDDED_BYTES_MAX: usize = 44;
/// Most fields of a hash that Redis stores as a listpack.
pub(super) const LISTPACK_FIELDS_MAX: usize = 512;
/// Most members of a sorted set that Redis stores as a listpack.
pub(super) const LISTPACK_MEMBERS_MAX: usize = 128;
/// Most bytes of a name or a value in such a listpack.
pub(super) const LISTPACK_BYTES_MAX: usize = 64;
/// Redis stores the integers below this once.
const SHARED_INTEGERS: i64 = 10_000;
/// Most members of a set of integers that Redis stores as one array.
const INTEGERS_MAX: usize = 512;

/// Returns the name that Redis gives the encoding of a string.
fn encoding_of(value: &[u8]) -> &'static str {
    match value.len() {
        _ if number::integer(value).is_some() => "int",
        ..=EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

/// Returns whether Redis would store the elements of a hash or a sorted set as a listpack.
async fn is_small(keys: &mut Keyspace, kind: Kind, aggregate: &Aggregate) -> Result<bool, Fault> {
    let most = if kind == Kind::Hash { LISTPACK_FIELDS_MAX } else { LISTPACK_MEMBERS_MAX };
    let (mut count, mut are_short) = (0, true);
    let mut elements = aggregate.elements();
    let walk = keys.walk_elements(&mut elements, most + 1, |name, record| {
        count += 1;
        let bytes = if kind == Kind::Hash { name.len().max(record.len()) } else { name.len() };
        are_short &= bytes <= LISTPACK_BYTES_MAX;
    });
    walk.await?;
    Ok(are_short && count <= most)
}

/// Returns the name that Redis gives the encoding of a set that has only ever had its members.
async fn encoding_of_set(keys: &mut Keyspace, set: &Aggregate) -> Result<&'static str, Fault> {
    let (mut members, mut are_integers) = (set.elements(), true);
    let walk = keys.walk_elements(&mut members, INTEGERS_MAX + 1, |name, _| {
        are_integers &= number::integer(name).is_some();
    });
    let is_short = walk.await? == Walked::Through;
    Ok(if is_short && are_integers { "intset" } else { "hashtable" })
}

/// Returns the name that Redis gives the encoding of a key, and how often Redis would refer to the
/// value; `None` if the key is absent.
async fn stored(keys: &mut Keyspace, key: &[u8]) -> Result<Option<(&'static str, i64)>, Fault> {
    let Some((record, _)) = keys.source(key).await? else { return Ok(None) };
    let head = Head::parse(&record)?;
    let kind = head.kind.seen();
    match kind {
        Kind::String => {
            let value = head.string()?;
            let integer = number::integer(value);
            let is_shared = integer.is_some_and(|number| (0..SHARED_INTEGERS).contains(&number));
            return Ok(Some((encoding_of(value), if is_shared { i32::MAX.into() } else { 1 })));
        }
        Kind::List => return Ok(Some(("quicklist", 1))),
        Kind::Stream => return Ok(Some(("stream", 1))),
        Kind::Hash | Kind::TimedHash | Kind::Set | Kind::SortedSet => {}
    }
    let Some(aggregate) = keys.found(key, &record, &[kind]).await? else { return Ok(None) };
    let encoding = match kind {
        Kind::Set => encoding_of_set(keys, &aggregate).await?,
        _ if head.kind == Kind::TimedHash && is_small(keys, kind, &aggregate).await? => "listpackex",
        kind if is_small(keys, kind, &aggregate).await? => "listpack",
        Kind::SortedSet => "skiplist",
        _ => "hashtable",
    };
    Ok(Some((encoding, 1)))
}

/// `OBJECT` and its subcommands. The encodings are those that Redis gives values that were set at
/// once, whatever their representation here. Reads of a key are not recorded, so there is neither an
/// idle time nor a frequency.
pub(super) async fn object(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    if &subcommand[..] == b"help" {
        if args.len() != 2 {
            return Err(wrong_arity("object|help"));
        }
        help(&mut call.reply, &["OBJECT ENCODING key", "OBJECT REFCOUNT key", "OBJECT HELP"]);
        return Ok(());
    }
    if !matches!(&subcommand[..], b"encoding" | b"refcount" | b"idletime" | b"freq") {
        return Err(unknown_subcommand("OBJECT", args.get(1)));
    }
    if args.len() != 3 {
        return Err(wrong_arity(&format!("object|{}", String::from_utf8_lossy(&subcommand))));
    }
    let Some((encoding, references)) = stored(call.keys, args.get(2)).await? else {
        call.reply.null();
        return Ok(());
    };
    match &subcommand[..] {
        b"encoding" => call.reply.bulk(encoding.as_bytes()),
        b"refcount" => call.reply.integer(references),
        b"idletime" => {
            return Err(Fault::said("ERR idle time is not tracked: a gateway records no reads of keys"));
        }
        _ => {
            return Err(Fault::said(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
                 between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::encoding_of;

    #[test]
    fn strings_have_redis_encodings() {
        for (value, encoding) in
            [("", "embstr"), ("12", "int"), ("012", "embstr"), ("9223372036854775808", "embstr")]
        {
            assert_eq!(encoding_of(value.as_bytes()), encoding, "{value}");
        }
        assert_eq!((encoding_of(&[b'x'; 44]), encoding_of(&[b'x'; 45])), ("embstr", "raw"));
    }
}
