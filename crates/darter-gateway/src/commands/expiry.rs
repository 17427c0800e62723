//! Expiry times: `EXPIRE` and related commands.

use crate::call::Call;
use crate::fault::{Fault, NO_INTEGER};
use crate::keyspace::Change;
use crate::number;

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
}

impl Unit {
    pub(super) fn millis(self) -> i64 {
        match self {
            Self::Seconds => 1000,
            Self::Millis => 1,
        }
    }
}

/// Returns the error for an invalid time.
pub(super) fn invalid(command: &[u8]) -> Fault {
    let command = String::from_utf8_lossy(command).to_ascii_lowercase();
    Fault::said(format!("ERR invalid expire time in '{command}' command"))
}

/// Computes when a key expires from a time to live or a point in time. Fails if the time is
/// negative or overflows.
pub(super) fn positive_end(command: &[u8], text: &[u8], unit: Unit, now: Option<u64>) -> Result<u64, Fault> {
    let time = number::integer(text).ok_or(NO_INTEGER)?;
    let end = time.checked_mul(unit.millis()).filter(|&time| time > 0);
    let end = end.and_then(|time| time.checked_add(now.unwrap_or(0).cast_signed()));
    end.map(|end| end as u64).ok_or_else(|| invalid(command))
}

/// The conditions under which `EXPIRE` takes effect.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // switches, most of which go together
pub(super) struct Only {
    without: bool,
    with: bool,
    later: bool,
    earlier: bool,
}

impl Only {
    /// Returns whether a word is a condition.
    pub(super) fn is_one(word: &[u8]) -> bool {
        [&b"nx"[..], b"xx", b"gt", b"lt"].iter().any(|name| word.eq_ignore_ascii_case(name))
    }

    pub(super) fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Fault> {
        let mut only = Self::default();
        for option in options {
            match &option.to_ascii_lowercase()[..] {
                b"nx" => only.without = true,
                b"xx" => only.with = true,
                b"gt" => only.later = true,
                b"lt" => only.earlier = true,
                _ => {
                    let option = crate::call::shown(option, option.len());
                    return Err(Fault::said(format!("ERR Unsupported option {option}")));
                }
            }
        }
        if only.without && (only.with || only.later || only.earlier) {
            return Err(Fault::said("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if only.later && only.earlier {
            return Err(Fault::said("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(only)
    }

    /// Returns whether the time `old` may be replaced by `new`.
    pub(super) fn allows(self, old: Option<u64>, new: i64) -> bool {
        // A key that does not expire counts as expiring after all others.
        let old = old.map(u64::cast_signed);
        !(self.without && old.is_some()
            || self.with && old.is_none()
            || self.later && old.is_none_or(|old| new <= old)
            || self.earlier && old.is_some_and(|old| new >= old))
    }
}

/// `EXPIRE key time [NX|XX|GT|LT]` and related commands.
pub(super) async fn expire(call: &mut Call<'_>, unit: Unit, is_relative: bool) -> Result<(), Fault> {
    let only = Only::parse(call.args.from(3))?;
    let now = call.keys.now;
    let base = if is_relative { now.cast_signed() } else { 0 };
    let time = call.integer(2)?.checked_mul(unit.millis());
    let end = time.and_then(|time| time.checked_add(base)).ok_or_else(|| invalid(call.args.get(0)))?;
    let is_done = call.keys.change(call.args.get(1), |head, record| {
        let Some(head) = head.filter(|head| only.allows(head.expiry, end)) else {
            return Ok(Change::Keep(false));
        };
        match u64::try_from(end) {
            Ok(end) if end > now => {
                head.rewrite(record, Some(end));
                Ok(Change::Put(true))
            }
            _ => Ok(Change::Remove(true)),
        }
    });
    let is_done = is_done.await?;
    call.reply.flag(is_done);
    Ok(())
}

/// `PERSIST key`.
pub(super) async fn persist(call: &mut Call<'_>) -> Result<(), Fault> {
    let is_done = call.keys.change(call.args.get(1), |head, record| {
        let Some(head) = head.filter(|head| head.expiry.is_some()) else { return Ok(Change::Keep(false)) };
        head.rewrite(record, None);
        Ok(Change::Put(true))
    });
    let is_done = is_done.await?;
    call.reply.flag(is_done);
    Ok(())
}

/// `TTL key` and related commands: -1 if the key does not expire, -2 if it does not exist.
pub(super) async fn ttl(call: &mut Call<'_>, unit: Unit, is_relative: bool) -> Result<(), Fault> {
    let base = if is_relative { call.keys.now } else { 0 };
    let expiry = call.keys.look(call.args.get(1), |head| head.map(|head| head.expiry)).await?;
    call.reply.integer(match expiry {
        None => -2,
        Some(None) => -1,
        Some(Some(end)) => {
            let left = end.saturating_sub(base);
            let left = if unit == Unit::Seconds { (left + 500) / 1000 } else { left };
            i64::try_from(left).unwrap_or(i64::MAX)
        }
    });
    Ok(())
}
