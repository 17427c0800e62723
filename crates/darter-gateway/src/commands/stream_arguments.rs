//! The arguments of stream commands: ids, ranges of ids, and trims.

use crate::call::Call;
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::{NewId, StreamId, Trim, TrimTo};
use crate::number;
#[cfg(feature = "scripts")]
use crate::request::Arguments;

/// Most bytes of an id in a request.
const ID_BYTES_MAX: usize = 127;
/// Most entries that an approximate trim without `LIMIT` removes.
const TRIMMED_MAX: u64 = 10_000;

fn invalid() -> Fault {
    Fault::said("ERR Invalid stream ID specified as stream command argument")
}

/// Parses a part of an id as `strtoull` does.
fn part(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let number = std::str::from_utf8(digits).ok()?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok()).flatten()
}

/// Parses an id. Its number is `seq` if the id has none.
pub(super) fn id(text: &[u8], seq: u64) -> Result<StreamId, Fault> {
    let parsed = match text {
        _ if text.len() > ID_BYTES_MAX => None,
        _ => match text.iter().position(|&byte| byte == b'-') {
            None => part(text).map(|ms| StreamId { ms, seq }),
            Some(at) => {
                part(&text[..at]).and_then(|ms| part(&text[at + 1..]).map(|seq| StreamId { ms, seq }))
            }
        },
    };
    parsed.ok_or_else(invalid)
}

/// Parses an id, or `-` and `+` for the least and the greatest one.
pub(super) fn id_or_end(text: &[u8], seq: u64) -> Result<StreamId, Fault> {
    match text {
        b"-" => Ok(StreamId::ZERO),
        b"+" => Ok(StreamId::MAX),
        _ => id(text, seq),
    }
}

/// Parses the lower bound of a range.
pub(super) fn start(text: &[u8]) -> Result<StreamId, Fault> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            id(rest, 0)?.next().ok_or_else(|| Fault::said("ERR invalid start ID for the interval"))
        }
        _ => id_or_end(text, 0),
    }
}

/// Parses the upper bound of a range.
pub(super) fn end(text: &[u8]) -> Result<StreamId, Fault> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            id(rest, u64::MAX)?.previous().ok_or_else(|| Fault::said("ERR invalid end ID for the interval"))
        }
        _ => id_or_end(text, u64::MAX),
    }
}

/// Parses the arguments from a position on as ids, and sorts them.
pub(super) fn ids_from(call: &Call<'_>, at: usize) -> Result<Vec<StreamId>, Fault> {
    let mut ids = call.args.from(at).map(|text| id(text, 0)).collect::<Result<Vec<_>, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Parses a count. A negative count is 0.
pub(super) fn count(text: &[u8]) -> Result<usize, Fault> {
    let count = number::integer(text).ok_or(NO_INTEGER)?.max(0);
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Returns whether a request reads streams and may wait.
#[cfg(feature = "scripts")]
pub(super) fn waits(args: &Arguments<'_>) -> bool {
    let reads = [&b"xread"[..], b"xreadgroup"].iter().any(|name| args.get(0).eq_ignore_ascii_case(name));
    let mut options = args.from(1).take_while(|word| !word.eq_ignore_ascii_case(b"streams"));
    reads && options.any(|word| word.eq_ignore_ascii_case(b"block"))
}

/// The arguments of `XADD` and `XTRIM` after the key.
#[derive(Debug, Default)]
pub(super) struct Adding {
    pub(super) trim: Option<Trim>,
    /// The stream must exist.
    pub(super) must_exist: bool,
    /// The id of a new entry; `None` if it is the time.
    pub(super) id: Option<NewId>,
    /// The position after the last argument that was parsed.
    pub(super) end: usize,
}

impl Adding {
    /// Parses the options of a command, and the id of `XADD`.
    pub(super) fn parse(call: &Call<'_>, is_add: bool) -> Result<Self, Fault> {
        let args = call.args;
        let (mut adding, mut to, mut is_approximate, mut limit) = (Self::default(), None, false, None);
        let mut at = 2;
        while at < args.len() {
            let (word, more) = (args.get(at), args.len() - 1 - at);
            match &word.to_ascii_lowercase()[..] {
                b"*" if is_add => {
                    at += 1;
                    break;
                }
                name @ (b"maxlen" | b"minid") if more > 0 => {
                    if to.is_some() {
                        return Err(Fault::said(
                            "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                        ));
                    }
                    let has_sign = more >= 2 && matches!(args.get(at + 1), b"~" | b"=");
                    is_approximate = has_sign && args.get(at + 1) == b"~";
                    at += 1 + usize::from(has_sign);
                    let value = args.get(at);
                    to = Some(if name == b"minid" { TrimTo::Id(id(value, 0)?) } else { length(value)? });
                }
                b"limit" if more > 0 => {
                    at += 1;
                    let said = number::integer(args.get(at)).ok_or(NO_INTEGER)?;
                    let none = |_| Fault::said("ERR The LIMIT argument must be >= 0.");
                    limit = Some(u64::try_from(said).map_err(none)?);
                }
                b"nomkstream" if is_add => adding.must_exist = true,
                _ if is_add => {
                    adding.id = Some(new_id(word)?);
                    at += 1;
                    break;
                }
                _ => return Err(SYNTAX),
            }
            at += 1;
        }
        adding.end = at;
        adding.trim = trim(to, is_approximate, limit, is_add)?;
        Ok(adding)
    }
}

/// Parses the number of entries to keep.
fn length(text: &[u8]) -> Result<TrimTo, Fault> {
    let most = u64::try_from(number::integer(text).ok_or(NO_INTEGER)?);
    most.map(TrimTo::Length).map_err(|_| Fault::said("ERR The MAXLEN argument must be >= 0."))
}

/// Parses the id of a new entry.
fn new_id(text: &[u8]) -> Result<NewId, Fault> {
    match text.strip_suffix(b"-*").filter(|_| text.len() <= ID_BYTES_MAX) {
        Some(ms) => part(ms).map(NewId::At).ok_or_else(invalid),
        None => id(text, 0).map(NewId::Given),
    }
}

fn trim(
    to: Option<TrimTo>,
    is_approximate: bool,
    limit: Option<u64>,
    is_add: bool,
) -> Result<Option<Trim>, Fault> {
    let Some(to) = to else {
        return match limit {
            Some(1..) => Err(Fault::said(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            )),
            _ if !is_add => {
                Err(Fault::said("ERR syntax error, XTRIM must be called with a trimming strategy"))
            }
            Some(0) => {
                Err(Fault::said("ERR syntax error, LIMIT cannot be used without the special ~ option"))
            }
            None => Ok(None),
        };
    };
    let whole_up_to = match (is_approximate, limit) {
        (true, None) => Some(TRIMMED_MAX),
        (true, Some(0)) => Some(u64::MAX),
        (true, limit) => limit,
        (false, None) => None,
        (false, Some(_)) => {
            return Err(Fault::said("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
    };
    Ok(Some(Trim { to, whole_up_to }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_or_two_parts() {
        let max = u64::MAX;
        for (text, ms, seq) in [
            ("5-7", 5, 7),
            ("5", 5, 9),
            ("0", 0, 9),
            ("007-+3", 7, 3),
            (" 5-1", 5, 1),
            ("18446744073709551615-18446744073709551615", max, max),
        ] {
            assert_eq!(id(text.as_bytes(), 9).unwrap(), StreamId { ms, seq }, "{text}");
        }
        for text in ["", "-", "+", "-1", "1-", "1-2-3", "x", "1-x", "18446744073709551616", "$", "*", "1-*"] {
            // An empty part is not a number.
            assert!(id(text.as_bytes(), 9).is_err(), "{text}");
        }
        assert!(id(&[b'1'; 200], 0).is_err());
    }

    #[test]
    fn bounds_may_be_excluded() {
        assert_eq!(start(b"(5").unwrap().to_string(), "5-1");
        assert_eq!(end(b"(5").unwrap().to_string(), "5-18446744073709551614");
        assert_eq!(end(b"5").unwrap().to_string(), "5-18446744073709551615");
        assert_eq!((start(b"-").unwrap(), end(b"+").unwrap()), (StreamId::ZERO, StreamId::MAX));
        for text in ["(", "(-", "(+", "(18446744073709551615-18446744073709551615"] {
            assert!(start(text.as_bytes()).is_err(), "{text}");
        }
        assert!(end(b"(0-0").is_err());
    }
}
