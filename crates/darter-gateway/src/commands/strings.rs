//! Commands for strings. Those that add to numbers are in `numbers.rs`, those for bits in `bits.rs`.

use super::expiry::{Unit, positive_end};
use super::transactions::supported;
use crate::call::{Call, wrong_arity};
use crate::fault::{Fault, SYNTAX};
use crate::keyspace::{Change, Head, Keyspace, Kind, TOGETHER_FIRST, TOGETHER_MAX};
use crate::number;
use crate::payload::check_length;
use crate::request::Arguments;
use crate::turns;

/// `GET key`.
pub(super) async fn get(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let look = keys.look(args.get(1), |head| match head {
        None => {
            reply.null();
            Ok(())
        }
        Some(head) => head.string().map(|value| reply.bulk(value)),
    });
    look.await?
}

/// `STRLEN key`.
pub(super) async fn strlen(call: &mut Call<'_>) -> Result<(), Fault> {
    let value = |head: Option<Head<'_>>| head.map_or(Ok(0), |head| head.string().map(<[u8]>::len));
    let bytes = call.keys.look(call.args.get(1), value).await??;
    call.reply.count(bytes);
    Ok(())
}

/// `GETRANGE key start end`.
pub(super) async fn getrange(call: &mut Call<'_>) -> Result<(), Fault> {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let Call { args, keys, reply, .. } = call;
    let look = keys.look(args.get(1), |head| {
        let value = head.map_or(Ok(&b""[..]), |head| head.string())?;
        reply.bulk(part(value, start, end));
        Ok(())
    });
    look.await?
}

/// Returns a range of the bytes, counted from the end if negative.
fn part(value: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let bytes = number::signed(value.len());
    let at = |index: i64| if index < 0 { (bytes + index).max(0) } else { index };
    let (start, end) = (at(start), at(end).min(bytes - 1));
    if start > end { b"" } else { &value[start as usize..=end as usize] }
}

/// When a value expires, as specified by the options of `SET` and `GETEX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends<'a> {
    Unsaid,
    /// Unchanged.
    Kept,
    Never,
    /// After a time to live, or at a point in time, as given by the text.
    Said {
        option: [u8; 4],
        text: &'a [u8],
    },
}

impl<'a> Ends<'a> {
    /// Parses an expiry option and its argument. Returns whether the option is one.
    fn take(&mut self, option: &[u8], next: Option<&'a [u8]>, is_set: bool) -> Result<bool, Fault> {
        let mut name = [0; 4];
        let said = match option {
            b"keepttl" if is_set => Self::Kept,
            b"persist" if !is_set => Self::Never,
            b"ex" | b"px" | b"exat" | b"pxat" => {
                name[..option.len()].copy_from_slice(option);
                Self::Said { option: name, text: next.ok_or(SYNTAX)? }
            }
            _ => return Ok(false),
        };
        let is_the_same = match (&*self, &said) {
            (Self::Unsaid, _) => true,
            (Self::Said { option, .. }, Self::Said { option: other, .. }) => option == other,
            (old, new) => old == new,
        };
        if !is_the_same {
            return Err(SYNTAX);
        }
        *self = said;
        Ok(true)
    }

    /// Returns the expiry time of a value whose previous expiry time was `old`.
    fn at(&self, command: &[u8], old: Option<u64>, now: u64) -> Result<Option<u64>, Fault> {
        let Self::Said { option, text } = self else {
            return Ok(if *self == Self::Kept { old } else { None });
        };
        let unit = if option[0] == b'e' { Unit::Seconds } else { Unit::Millis };
        let now = (option[2] == 0).then_some(now);
        positive_end(command, text, unit, now).map(Some)
    }

    /// Returns the number of arguments that an option takes, including itself.
    fn arguments(&self) -> usize {
        if matches!(self, Self::Said { .. }) { 2 } else { 1 }
    }
}

/// The options of `SET`.
#[derive(Debug)]
struct SetOptions<'a> {
    is_absent: bool,
    is_present: bool,
    tells: bool,
    ends: Ends<'a>,
}

impl<'a> SetOptions<'a> {
    fn parse(call: &Call<'a>) -> Result<Self, Fault> {
        let mut options = Self { is_absent: false, is_present: false, tells: false, ends: Ends::Unsaid };
        let mut at = 3;
        while at < call.args.len() {
            let option = call.args.get(at).to_ascii_lowercase();
            match &option[..] {
                b"nx" if !options.is_present => options.is_absent = true,
                b"xx" if !options.is_absent => options.is_present = true,
                b"get" => options.tells = true,
                option => {
                    let next = (at + 1 < call.args.len()).then(|| call.args.get(at + 1));
                    if !options.ends.take(option, next, true)? {
                        return Err(SYNTAX);
                    }
                    at += options.ends.arguments() - 1;
                }
            }
            at += 1;
        }
        Ok(options)
    }
}

/// `SET key value [NX|XX] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]`.
pub(super) async fn set(call: &mut Call<'_>) -> Result<(), Fault> {
    if call.args.len() == 3 {
        call.keys.set(call.args.get(1), call.args.get(2), None).await?;
        call.reply.ok();
        return Ok(());
    }
    let options = SetOptions::parse(call)?;
    let Call { args, keys, reply, .. } = call;
    let now = keys.now;
    let (key, value) = (args.get(1), args.get(2));
    let expiry = options.ends.at(args.get(0), None, now)?;
    let SetOptions { is_absent, is_present, tells, ends } = options;
    if !is_absent && !is_present && !tells && ends != Ends::Kept {
        keys.set(key, value, expiry).await?;
        reply.ok();
        return Ok(());
    }
    let start = reply.position();
    let change = keys.change(key, |head, record| {
        reply.take_back(start);
        if tells {
            reply.bulk_or_null(head.map(|head| head.string()).transpose()?);
        }
        if is_absent && head.is_some() || is_present && head.is_none() {
            if !tells {
                reply.null();
            }
            return Ok(Change::Keep(()));
        }
        if !tells {
            reply.ok();
        }
        let kept = if ends == Ends::Kept { head.and_then(|head| head.expiry) } else { expiry };
        Head::begin(record, Kind::String, kept);
        record.extend_from_slice(value);
        Ok(Change::Put(()))
    });
    change.await
}

/// `SETNX key value`.
pub(super) async fn setnx(call: &mut Call<'_>) -> Result<(), Fault> {
    let value = call.args.get(2);
    let is_set = call.keys.change(call.args.get(1), |head, record| {
        if head.is_some() {
            return Ok(Change::Keep(false));
        }
        Head::begin(record, Kind::String, None);
        record.extend_from_slice(value);
        Ok(Change::Put(true))
    });
    let is_set = is_set.await?;
    call.reply.flag(is_set);
    Ok(())
}

/// `SETEX key seconds value`, `PSETEX key ms value`.
pub(super) async fn setex(call: &mut Call<'_>, millis: u64) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let unit = if millis == 1 { Unit::Millis } else { Unit::Seconds };
    let end = positive_end(args.get(0), args.get(2), unit, Some(keys.now))?;
    keys.set(args.get(1), args.get(3), Some(end)).await?;
    reply.ok();
    Ok(())
}

/// `GETSET key value`.
pub(super) async fn getset(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let start = reply.position();
    let change = keys.change(args.get(1), |head, record| {
        reply.take_back(start);
        reply.bulk_or_null(head.map(|head| head.string()).transpose()?);
        Head::begin(record, Kind::String, None);
        record.extend_from_slice(args.get(2));
        Ok(Change::Put(()))
    });
    change.await
}

/// `GETDEL key`.
pub(super) async fn getdel(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let start = reply.position();
    let change = keys.change(args.get(1), |head, _| {
        reply.take_back(start);
        let value = head.map(|head| head.string()).transpose()?;
        reply.bulk_or_null(value);
        Ok(if value.is_some() { Change::Remove(()) } else { Change::Keep(()) })
    });
    change.await
}

/// `GETEX key [EX s|PX ms|EXAT s|PXAT ms|PERSIST]`.
pub(super) async fn getex(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let mut ends = Ends::Unsaid;
    let mut at = 2;
    while at < args.len() {
        let next = (at + 1 < args.len()).then(|| args.get(at + 1));
        if !ends.take(&args.get(at).to_ascii_lowercase(), next, false)? {
            return Err(SYNTAX);
        }
        at += ends.arguments();
    }
    let (now, start) = (keys.now, reply.position());
    let change = keys.change(args.get(1), |head, record| {
        reply.take_back(start);
        let Some(head) = head else {
            reply.null();
            return Ok(Change::Keep(()));
        };
        let value = head.string()?;
        let end = ends.at(args.get(0), head.expiry, now)?;
        reply.bulk(value);
        if ends == Ends::Unsaid || end == head.expiry {
            return Ok(Change::Keep(()));
        }
        if end.is_some_and(|end| end <= now) {
            return Ok(Change::Remove(()));
        }
        head.rewrite(record, end);
        Ok(Change::Put(()))
    });
    change.await
}

/// `MGET key…`.
pub(super) async fn mget(call: &mut Call<'_>) -> Result<(), Fault> {
    let keys = call.args.len() - 1;
    call.reply.array(keys);
    let (mut at, mut count) = (0, TOGETHER_FIRST);
    while at < keys {
        let Call { args, keys, reply, .. } = call;
        let visit = |head: Option<Head<'_>>| reply.bulk_or_null(head.and_then(|head| head.string().ok()));
        let looked_at = keys.look_at_first(args.from(1 + at).take(count), visit).await?;
        at += looked_at;
        count = (looked_at * 2).min(TOGETHER_MAX);
        call.limit()?;
    }
    Ok(())
}

/// `MSET key value…`.
pub(super) async fn mset(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    if args.len() % 2 == 0 {
        return Err(wrong_arity("mset"));
    }
    set_all(args, keys).await?;
    reply.ok();
    Ok(())
}

/// Sets the keys of `MSET` or `MSETNX` to their values.
async fn set_all(args: &Arguments<'_>, keys: &mut Keyspace) -> Result<(), Fault> {
    for at in (1..args.len()).step_by(2) {
        keys.set(args.get(at), args.get(at + 1), None).await?;
        turns::copied(args.get(at + 1).len()).await;
    }
    Ok(())
}

/// `MSETNX key value…`.
pub(super) async fn msetnx(call: &mut Call<'_>) -> Result<(), Fault> {
    if call.args.len().is_multiple_of(2) {
        return Err(wrong_arity("msetnx"));
    }
    if call.args.len() == 3 {
        return setnx(call).await;
    }
    supported(call, "MSETNX of several keys")?;
    let Call { args, keys, reply, .. } = call;
    for at in (1..args.len()).step_by(2) {
        if keys.look(args.get(at), |head| head.is_some()).await? {
            reply.flag(false);
            return Ok(());
        }
        turns::worked().await;
    }
    set_all(args, keys).await?;
    reply.flag(true);
    Ok(())
}

/// `APPEND key value`.
pub(super) async fn append(call: &mut Call<'_>) -> Result<(), Fault> {
    let (added, most) = (call.args.get(2), call.shared.argument_bytes_max);
    let bytes = call.keys.change(call.args.get(1), |head, record| {
        let old = head.map_or(Ok(&b""[..]), |head| head.string())?;
        check_length(old.len() + added.len(), most)?;
        Head::begin(record, Kind::String, head.and_then(|head| head.expiry));
        record.extend_from_slice(old);
        record.extend_from_slice(added);
        Ok(Change::Put(old.len() + added.len()))
    });
    let bytes = bytes.await?;
    call.reply.count(bytes);
    Ok(())
}

/// Begins a record with a key's value and expiry time, and adds zero bytes until the value has at
/// least `bytes` bytes. Returns the value. Fails before it allocates memory if that is too long.
pub(super) fn lengthened<'r>(
    head: Option<Head<'_>>,
    record: &'r mut Vec<u8>,
    bytes: usize,
    most: usize,
) -> Result<&'r mut [u8], Fault> {
    let old = head.map_or(Ok(&b""[..]), |head| head.string())?;
    check_length(bytes, most)?;
    Head::begin(record, Kind::String, head.and_then(|head| head.expiry));
    let at = record.len();
    record.extend_from_slice(old);
    record.resize(at + old.len().max(bytes), 0);
    Ok(&mut record[at..])
}

/// `SETRANGE key offset value`.
pub(super) async fn setrange(call: &mut Call<'_>) -> Result<(), Fault> {
    let offset = usize::try_from(call.integer(2)?).map_err(|_| Fault::said("ERR offset is out of range"))?;
    let (written, most) = (call.args.get(3), call.shared.argument_bytes_max);
    let bytes = call.keys.change(call.args.get(1), |head, record| {
        if written.is_empty() {
            return Ok(Change::Keep(head.map_or(Ok(0), |head| head.string().map(<[u8]>::len))?));
        }
        let end = offset.saturating_add(written.len());
        let value = lengthened(head, record, end, most)?;
        value[offset..end].copy_from_slice(written);
        Ok(Change::Put(value.len()))
    });
    let bytes = bytes.await?;
    call.reply.count(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_are_counted_from_either_end() {
        let value = b"This is a string";
        assert_eq!(part(value, 0, 3), b"This");
        assert_eq!(part(value, -3, -1), b"ing");
        assert_eq!(part(value, 0, -1), value);
        assert_eq!(part(value, 10, 100), b"string");
        assert_eq!(part(value, i64::MIN, i64::MAX), value);
        for (start, end) in [(-1, -3), (5, 4), (16, 20), (i64::MAX, i64::MIN)] {
            assert_eq!(part(value, start, end), b"", "{start} {end}");
        }
        assert_eq!(part(value, i64::MIN, i64::MIN), b"T");
        assert_eq!(part(b"", 0, -1), b"");
    }
}
