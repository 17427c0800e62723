//! Commands about the storage of a key: `OBJECT`, `MEMORY`.

use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::{Kind, Walked};
use crate::number;

/// Length in bytes of the longest string that Redis stores next to its header.
const EMBEDDED_BYTES_MAX: usize = 44;
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

/// Returns the name that Redis gives the encoding of a set that has only ever had its members.
async fn encoding_of_set(call: &mut Call<'_>, key: &[u8]) -> Result<&'static str, Fault> {
    let Some(set) = call.keys.find(key, Kind::Set).await? else { return Ok("hashtable") };
    let (mut members, mut are_integers) = (set.elements(), true);
    let walk = call.keys.walk_elements(&mut members, INTEGERS_MAX + 1, |name, _| {
        are_integers &= number::integer(name).is_some();
    });
    let is_short = walk.await? == Walked::Through;
    Ok(if is_short && are_integers { "intset" } else { "hashtable" })
}

/// `OBJECT` and its subcommands. Hashes and sorted sets have the encodings that Redis uses for
/// large ones, because their elements are separate index records, even if there are few. Reads of a
/// key are not recorded, so there is neither an idle time nor a frequency.
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
    let encoding = call.keys.look(args.get(2), |head| {
        head.map(|head| match head.kind {
            Kind::String => Some(encoding_of(head.string().unwrap_or_default())),
            Kind::Hash => Some("hashtable"),
            Kind::SortedSet => Some("skiplist"),
            Kind::Set => None,
        })
    });
    let encoding = match encoding.await? {
        Some(Some(encoding)) => encoding,
        Some(None) => encoding_of_set(call, args.get(2)).await?,
        None => {
            call.reply.null();
            return Ok(());
        }
    };
    match &subcommand[..] {
        b"encoding" => call.reply.bulk(encoding.as_bytes()),
        b"refcount" => call.reply.integer(1),
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

/// `MEMORY USAGE key [SAMPLES count]`, `MEMORY HELP`.
pub(super) async fn memory(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    match &args.get(1).to_ascii_lowercase()[..] {
        b"usage" => {}
        b"help" if args.len() == 2 => {
            help(&mut call.reply, &["MEMORY USAGE key [SAMPLES count]", "MEMORY HELP"]);
            return Ok(());
        }
        b"help" => return Err(wrong_arity("memory|help")),
        _ => return Err(unknown_subcommand("MEMORY", args.get(1))),
    }
    if args.len() < 3 {
        return Err(wrong_arity("memory|usage"));
    }
    let mut options = args.from(3);
    while let Some(option) = options.next() {
        // All elements are counted, regardless of the number of samples.
        let samples = options.next().filter(|_| option.eq_ignore_ascii_case(b"samples")).ok_or(SYNTAX)?;
        if number::integer(samples).ok_or(NO_INTEGER)? < 0 {
            return Err(SYNTAX);
        }
    }
    match call.keys.usage(args.get(2)).await? {
        Some(bytes) => call.reply.count(bytes),
        None => call.reply.null(),
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
