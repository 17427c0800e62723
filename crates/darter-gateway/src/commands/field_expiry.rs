//! Expiry times of a hash's fields: `HEXPIRE` and related commands, `HGETDEL`, `HGETEX` and `HSETEX`.

use super::elements::{add, change_fields, change_values};
use super::expiry::{Only, Unit, invalid};
use super::transactions::within;
use crate::call::{Call, wrong_arity};
use crate::fault::{Fault, NO_INTEGER};
use crate::keyspace::{Field, Kind};
use crate::number;
use crate::turns;
use std::collections::BTreeSet;

/// The latest time at which a field may expire, in ms since the Unix epoch, as in Redis.
const LATEST: i64 = (1 << 46) - 1;
/// A time before that of any command: a field that ends then is removed.
const PAST: Option<u64> = Some(1);

/// The replies for a field.
const ABSENT: i64 = -2;
const NO_END: i64 = -1;
const UNCHANGED: i64 = 0;
const SET: i64 = 1;
const REMOVED: i64 = 2;

/// Computes when a field expires from a time to live or a point in time.
fn end_of(call: &Call<'_>, text: &[u8], unit: Unit, is_relative: bool) -> Result<i64, Fault> {
    let time = number::integer(text).ok_or(NO_INTEGER)?;
    if time < 0 {
        return Err(Fault::said("ERR invalid expire time, must be >= 0"));
    }
    let base = if is_relative { call.keys.now.cast_signed() } else { 0 };
    let end = time.checked_mul(unit.millis()).and_then(|time| time.checked_add(base));
    end.filter(|end| *end <= LATEST).ok_or_else(|| invalid(call.args.get(0)))
}

/// Returns the end that a field gets: one in the past if the time has come.
fn end_at(end: i64, now: u64) -> Option<u64> {
    u64::try_from(end).ok().filter(|end| *end > now).or(PAST)
}

/// Returns the arguments behind `FIELDS` and their number, which `at` is the position of. Each field has
/// `parts` arguments.
fn fields<'a>(
    call: &Call<'a>,
    at: usize,
    parts: usize,
    no_count: &'static str,
) -> Result<Vec<&'a [u8]>, Fault> {
    let args = call.args;
    if at + 1 >= args.len() {
        return Err(wrong_arity(&String::from_utf8_lossy(args.get(0)).to_ascii_lowercase()));
    }
    if !args.get(at).eq_ignore_ascii_case(b"fields") {
        return Err(Fault::said("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = number::integer(args.get(at + 1)).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count > 0).ok_or_else(|| Fault::said(no_count))?;
    let given = args.from(at + 2).collect::<Vec<_>>();
    if count.checked_mul(parts) != Some(given.len()) {
        return Err(Fault::said("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(given)
}

const NO_COUNT: &str = "ERR Number of fields must be a positive integer";

/// `HEXPIRE key time [NX|XX|GT|LT] FIELDS count field…` and related commands.
pub(super) async fn hexpire(call: &mut Call<'_>, unit: Unit, is_relative: bool) -> Result<(), Fault> {
    let args = call.args;
    let end = end_of(call, args.get(2), unit, is_relative)?;
    let has_option = Only::is_one(args.get(3));
    let only = Only::parse(args.from(3).take(usize::from(has_option)))?;
    let no_count = "ERR Parameter `numFields` should be greater than 0";
    let names = fields(call, 3 + usize::from(has_option), 1, no_count)?;
    let (now, mut replies) = (call.keys.now, vec![ABSENT; names.len()]);
    change_fields(call, &names, |at, old, new| {
        replies[at] = ABSENT;
        let Some(field) = old else { return Ok(false) };
        if !only.allows(field.end, end) {
            replies[at] = UNCHANGED;
            return Ok(false);
        }
        let end = end_at(end, now);
        replies[at] = if end == PAST { REMOVED } else { SET };
        Field { end, ..field }.write(new);
        Ok(true)
    })
    .await?;
    reply_integers(call, &replies).await
}

/// `HPERSIST key FIELDS count field…`.
pub(super) async fn hpersist(call: &mut Call<'_>) -> Result<(), Fault> {
    let names = fields(call, 2, 1, NO_COUNT)?;
    let mut replies = vec![ABSENT; names.len()];
    let found = ends(call, &names).await?;
    if !found.iter().flatten().any(Option::is_some) {
        // A hash whose fields do not expire keeps its form.
        let replies: Vec<i64> = found.iter().map(|end| end.map_or(ABSENT, |_| NO_END)).collect();
        return reply_integers(call, &replies).await;
    }
    change_fields(call, &names, |at, old, new| {
        replies[at] = match old {
            None => ABSENT,
            Some(Field { end: None, .. }) => NO_END,
            Some(field) => {
                Field { end: None, ..field }.write(new);
                SET
            }
        };
        Ok(replies[at] == SET)
    })
    .await?;
    reply_integers(call, &replies).await
}

/// Returns the ends of fields; `None` for an absent field.
async fn ends(call: &mut Call<'_>, names: &[&[u8]]) -> Result<Vec<Option<Option<u64>>>, Fault> {
    let mut found = vec![None; names.len()];
    let key = call.args.get(1);
    call.keys.some_fields(key, names, |at, field| found[at] = field.map(|field| field.end)).await?;
    Ok(found)
}

/// `HTTL key FIELDS count field…` and related commands.
pub(super) async fn httl(call: &mut Call<'_>, unit: Unit, is_relative: bool) -> Result<(), Fault> {
    let names = fields(call, 2, 1, NO_COUNT)?;
    let base = if is_relative { call.keys.now } else { 0 };
    let left = |end: u64| {
        let left = end.saturating_sub(base);
        let left = if unit == Unit::Seconds { left.div_ceil(1000) } else { left };
        i64::try_from(left).unwrap_or(i64::MAX)
    };
    let found = ends(call, &names).await?;
    let replies: Vec<i64> =
        found.into_iter().map(|end| end.map_or(ABSENT, |end| end.map_or(NO_END, left))).collect();
    reply_integers(call, &replies).await
}

async fn reply_integers(call: &mut Call<'_>, replies: &[i64]) -> Result<(), Fault> {
    call.reply.array(replies.len());
    for reply in replies {
        call.reply.integer(*reply);
        turns::worked().await;
    }
    Ok(())
}

async fn reply_values(call: &mut Call<'_>, values: &[Option<Vec<u8>>]) -> Result<(), Fault> {
    call.reply.array(values.len());
    for value in values {
        call.reply.bulk_or_null(value.as_deref());
        turns::worked().await;
    }
    Ok(())
}

/// `HGETDEL key FIELDS count field…`.
pub(super) async fn hgetdel(call: &mut Call<'_>) -> Result<(), Fault> {
    let names = fields(call, 2, 1, NO_COUNT)?;
    let key = call.args.get(1);
    let mut values = vec![None; names.len()];
    if let Some(taken) = call.keys.take_fields(key, &names).await? {
        values = taken;
    } else {
        let mut take = async |call: &mut Call<'_>| {
            read_values(call, &names, &mut values).await?;
            let mut seen = BTreeSet::new();
            for (name, value) in names.iter().zip(&mut values) {
                // A field is returned once.
                *value = value.take().filter(|_| seen.insert(*name));
            }
            call.keys.remove_elements((key, Kind::Hash), &names, true).await.map(drop)
        };
        if call.shared.has_transactions { within(call, take).await? } else { take(call).await? }
    }
    reply_values(call, &values).await
}

/// Reads the values of fields.
async fn read_values(
    call: &mut Call<'_>,
    names: &[&[u8]],
    values: &mut [Option<Vec<u8>>],
) -> Result<(), Fault> {
    let visit = |at: usize, field: Option<Field<'_>>| values[at] = field.map(|field| field.value.to_vec());
    call.keys.some_fields(call.args.get(1), names, visit).await
}

/// The expiry time that a command gives fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewEnd {
    /// That which they have.
    Kept,
    /// None.
    Off,
    At(i64),
}

/// The options before `FIELDS`.
struct Options {
    end: Option<NewEnd>,
    /// No field may exist, or each must.
    if_absent: bool,
    if_present: bool,
    /// The position of `FIELDS`.
    fields_at: usize,
}

impl Options {
    fn parse(call: &Call<'_>, sets: bool) -> Result<Self, Fault> {
        let args = call.args;
        let mut options = Self { end: None, if_absent: false, if_present: false, fields_at: 2 };
        while options.fields_at < args.len() && !args.get(options.fields_at).eq_ignore_ascii_case(b"fields") {
            options.take(call, sets)?;
        }
        Ok(options)
    }

    /// Parses an option.
    fn take(&mut self, call: &Call<'_>, sets: bool) -> Result<(), Fault> {
        let (args, at) = (call.args, self.fields_at);
        let word = args.get(at).to_ascii_lowercase();
        self.fields_at += 1;
        let end = match &word[..] {
            b"fnx" | b"fxx" if sets => {
                if self.if_absent || self.if_present {
                    return Err(Fault::said("ERR Only one of FXX or FNX arguments can be specified"));
                }
                (self.if_absent, self.if_present) = (word == b"fnx", word == b"fxx");
                return Ok(());
            }
            b"keepttl" if sets => NewEnd::Kept,
            b"persist" if !sets => NewEnd::Off,
            b"ex" | b"px" | b"exat" | b"pxat" => {
                let unit = if word.starts_with(b"e") { Unit::Seconds } else { Unit::Millis };
                self.fields_at += 1;
                if at + 1 >= args.len() {
                    return Err(wrong_arity(&String::from_utf8_lossy(args.get(0)).to_ascii_lowercase()));
                }
                NewEnd::At(end_of(call, args.get(at + 1), unit, word.len() == 2)?)
            }
            _ => {
                let word = crate::call::shown(args.get(at), 128);
                return Err(Fault::said(format!("ERR unknown argument: {word}")));
            }
        };
        if self.end.replace(end).is_some() {
            let last = if sets { "KEEPTTL" } else { "PERSIST" };
            return Err(Fault::said(format!(
                "ERR Only one of EX, PX, EXAT, PXAT or {last} arguments can be specified"
            )));
        }
        Ok(())
    }
}

/// `HGETEX key [EX time|PX time|EXAT time|PXAT time|PERSIST] FIELDS count field…`.
pub(super) async fn hgetex(call: &mut Call<'_>) -> Result<(), Fault> {
    let options = Options::parse(call, false)?;
    let names = fields(call, options.fields_at, 1, NO_COUNT)?;
    let (now, mut values) = (call.keys.now, vec![None; names.len()]);
    let has_ends = ends(call, &names).await?.iter().flatten().any(Option::is_some);
    let end = match options.end {
        Some(NewEnd::At(end)) => end_at(end, now),
        Some(_) if has_ends => None,
        _ => {
            read_values(call, &names, &mut values).await?;
            return reply_values(call, &values).await;
        }
    };
    change_fields(call, &names, |at, old, new| {
        values[at] = old.map(|field| field.value.to_vec());
        let Some(field) = old.filter(|field| field.end != end) else { return Ok(false) };
        Field { end, ..field }.write(new);
        Ok(true)
    })
    .await?;
    reply_values(call, &values).await
}

/// Sets fields to values, if the options allow it. Returns whether they do.
async fn set_fields(
    call: &mut Call<'_>,
    options: &Options,
    names: &[&[u8]],
    pairs: &[&[u8]],
) -> Result<bool, Fault> {
    if options.if_absent || options.if_present {
        let found = ends(call, names).await?;
        if found.iter().any(|end| end.is_some() == options.if_absent) {
            return Ok(false);
        }
    }
    let now = call.keys.now;
    let set = |at: usize, _: Option<&[u8]>, new: &mut Vec<u8>| {
        new.extend_from_slice(pairs[2 * at + 1]);
        Ok(true)
    };
    match options.end {
        None | Some(NewEnd::Off) => add(call, Kind::Hash, names, set).await?,
        Some(NewEnd::Kept) => change_values(call, names, set).await?,
        Some(NewEnd::At(end)) => {
            let end = end_at(end, now);
            change_fields(call, names, |at, _, new| {
                Field { value: pairs[2 * at + 1], end }.write(new);
                Ok(true)
            })
            .await?
        }
    };
    Ok(true)
}

/// `HSETEX key [FNX|FXX] [EX time|PX time|EXAT time|PXAT time|KEEPTTL] FIELDS count field value…`.
pub(super) async fn hsetex(call: &mut Call<'_>) -> Result<(), Fault> {
    let options = Options::parse(call, true)?;
    let pairs = fields(call, options.fields_at, 2, NO_COUNT)?;
    let names: Vec<&[u8]> = pairs.iter().copied().step_by(2).collect();
    let mut is_set = true;
    if options.if_absent || options.if_present {
        within(call, async |call| {
            is_set = set_fields(call, &options, &names, &pairs).await?;
            Ok(())
        })
        .await?;
    } else {
        set_fields(call, &options, &names, &pairs).await?;
    }
    call.reply.flag(is_set);
    Ok(())
}
