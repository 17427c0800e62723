//! Hashes.

use super::elements::{add, change_values, count, some};
use crate::call::{Call, wrong_arity};
use crate::extended::Extended;
use crate::fault::Fault;
use crate::keyspace::Kind;
use crate::number;

/// Sets fields to the values that follow them. Returns the number of new fields.
async fn set_fields(call: &mut Call<'_>) -> Result<usize, Fault> {
    let args = call.args;
    if args.len() % 2 == 1 {
        return Err(wrong_arity(&String::from_utf8_lossy(args.get(0)).to_ascii_lowercase()));
    }
    let names: Vec<&[u8]> = args.from(2).step_by(2).collect();
    let set = |at, _: Option<&[u8]>, new: &mut Vec<u8>| {
        new.extend_from_slice(args.get(3 + 2 * at));
        Ok(true)
    };
    Ok(add(call, Kind::Hash, &names, set).await?.added)
}

/// `HSET key field value…`.
pub(super) async fn hset(call: &mut Call<'_>) -> Result<(), Fault> {
    let new = set_fields(call).await?;
    call.reply.count(new);
    Ok(())
}

/// `HMSET key field value…`.
pub(super) async fn hmset(call: &mut Call<'_>) -> Result<(), Fault> {
    set_fields(call).await?;
    call.reply.ok();
    Ok(())
}

/// `HSETNX key field value`.
pub(super) async fn hsetnx(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let set = |_, old: Option<&[u8]>, new: &mut Vec<u8>| {
        new.extend_from_slice(args.get(3));
        Ok(old.is_none())
    };
    let is_new = add(call, Kind::Hash, &[args.get(2)], set).await?.added > 0;
    call.reply.flag(is_new);
    Ok(())
}

/// `HGET key field`.
pub(super) async fn hget(call: &mut Call<'_>) -> Result<(), Fault> {
    let value = value(call).await?;
    call.reply.bulk_or_null(value.as_deref());
    Ok(())
}

/// `HEXISTS key field`.
pub(super) async fn hexists(call: &mut Call<'_>) -> Result<(), Fault> {
    let value = value(call).await?;
    call.reply.flag(value.is_some());
    Ok(())
}

/// `HSTRLEN key field`.
pub(super) async fn hstrlen(call: &mut Call<'_>) -> Result<(), Fault> {
    let value = value(call).await?;
    call.reply.count(value.map_or(0, |value| value.len()));
    Ok(())
}

async fn value(call: &mut Call<'_>) -> Result<Option<Vec<u8>>, Fault> {
    call.keys.element_of((call.args.get(1), Kind::Hash), call.args.get(2)).await
}

/// `HMGET key field…`.
pub(super) async fn hmget(call: &mut Call<'_>) -> Result<(), Fault> {
    #[allow(clippy::redundant_closure_for_method_calls)] // the method has a single lifetime
    some(call, Kind::Hash, |reply, value| reply.bulk_or_null(value)).await
}

/// `HLEN key`.
pub(super) async fn hlen(call: &mut Call<'_>) -> Result<(), Fault> {
    let count = count(call, Kind::Hash).await?;
    call.reply.count(count);
    Ok(())
}

/// `HINCRBY key field number`.
pub(super) async fn hincrby(call: &mut Call<'_>) -> Result<(), Fault> {
    let (number, mut sum) = (call.integer(3)?, 0);
    let increase = |_, old: Option<&[u8]>, new: &mut Vec<u8>| {
        let no_integer = || Fault::said("ERR hash value is not an integer");
        let old = old.map_or(Some(0), number::integer).ok_or_else(no_integer)?;
        let overflow = || Fault::said("ERR increment or decrement would overflow");
        sum = old.checked_add(number).ok_or_else(overflow)?;
        new.extend_from_slice(itoa::Buffer::new().format(sum).as_bytes());
        Ok(true)
    };
    change_values(call, &[call.args.get(2)], increase).await?;
    call.reply.integer(sum);
    Ok(())
}

/// `HINCRBYFLOAT key field number`.
pub(super) async fn hincrbyfloat(call: &mut Call<'_>) -> Result<(), Fault> {
    let number = Extended::parse(call.args.get(3));
    let number = number.ok_or_else(|| Fault::said("ERR value is not a valid float"))?;
    if number == Extended::Infinite {
        return Err(Fault::said("ERR value is NaN or Infinity"));
    }
    let mut sum = Vec::new();
    let increase = |_, old: Option<&[u8]>, new: &mut Vec<u8>| {
        let no_float = || Fault::said("ERR hash value is not a float");
        let old = Extended::parse(old.unwrap_or(b"0")).ok_or_else(no_float)?;
        let no_number = || Fault::said("ERR increment would produce NaN or Infinity");
        sum = old.plus(&number).ok_or_else(no_number)?.text().into_bytes();
        new.extend_from_slice(&sum);
        Ok(true)
    };
    change_values(call, &[call.args.get(2)], increase).await?;
    call.reply.bulk(&sum);
    Ok(())
}
