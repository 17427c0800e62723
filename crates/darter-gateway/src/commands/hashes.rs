//! Hashes. A command that changes several fields does so in their order, in a transaction if the
//! index has transactions.

use super::elements::{count, some};
use crate::call::{Call, wrong_arity};
use crate::extended::Extended;
use crate::fault::Fault;
use crate::keyspace::{Kind, Retries};
use crate::number;
use crate::turns;

/// Sets fields to the values that follow them. Returns the number of new fields.
async fn set_fields(call: &mut Call<'_>) -> Result<usize, Fault> {
    let Call { args, keys, .. } = call;
    if args.len() % 2 == 1 {
        return Err(wrong_arity(&String::from_utf8_lossy(args.get(0)).to_ascii_lowercase()));
    }
    let mut retries = Retries::default();
    loop {
        let hash = keys.open(args.get(1), Kind::Hash).await?;
        keys.read_elements(&hash, args.from(2).step_by(2)).await?;
        let mut new = 0;
        for at in (2..args.len()).step_by(2) {
            new += usize::from(keys.set_field(&hash, args.get(at), args.get(at + 1), false).await?);
            turns::copied(args.get(at + 1).len()).await;
        }
        if keys.confirm(&hash).await? {
            return Ok(new);
        }
        retries.again().await?;
    }
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
    let Call { args, keys, reply, .. } = call;
    let mut retries = Retries::default();
    loop {
        let hash = keys.open(args.get(1), Kind::Hash).await?;
        let is_new = keys.set_field(&hash, args.get(2), args.get(3), true).await?;
        if !is_new || keys.confirm(&hash).await? {
            reply.flag(is_new);
            return Ok(());
        }
        retries.again().await?;
    }
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
    let Call { args, keys, .. } = call;
    match keys.find(args.get(1), Kind::Hash).await? {
        Some(hash) => keys.element(&hash, args.get(2)).await,
        None => Ok(None),
    }
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

/// `HDEL key field…`.
pub(super) async fn hdel(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let mut removed = 0;
    if let Some(hash) = keys.find(args.get(1), Kind::Hash).await? {
        keys.read_elements(&hash, args.from(2)).await?;
        for field in args.from(2) {
            removed += usize::from(keys.remove_field(&hash, field).await?);
            turns::worked().await;
        }
    }
    reply.count(removed);
    Ok(())
}

/// `HINCRBY key field number`.
pub(super) async fn hincrby(call: &mut Call<'_>) -> Result<(), Fault> {
    let number = call.integer(3)?;
    let Call { args, keys, reply, .. } = call;
    let mut sum = 0;
    let mut retries = Retries::default();
    loop {
        let hash = keys.open(args.get(1), Kind::Hash).await?;
        let change = keys.change_field(&hash, args.get(2), |old| {
            let no_integer = || Fault::said("ERR hash value is not an integer");
            let old = old.map_or(Some(0), number::integer).ok_or_else(no_integer)?;
            let overflow = || Fault::said("ERR increment or decrement would overflow");
            sum = old.checked_add(number).ok_or_else(overflow)?;
            Ok(itoa::Buffer::new().format(sum).to_owned())
        });
        change.await?;
        if keys.confirm(&hash).await? {
            reply.integer(sum);
            return Ok(());
        }
        retries.again().await?;
    }
}

/// `HINCRBYFLOAT key field number`.
pub(super) async fn hincrbyfloat(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let number = Extended::parse(args.get(3));
    let number = number.ok_or_else(|| Fault::said("ERR value is not a valid float"))?;
    if number == Extended::Infinite {
        return Err(Fault::said("ERR value is NaN or Infinity"));
    }
    let mut retries = Retries::default();
    loop {
        let hash = keys.open(args.get(1), Kind::Hash).await?;
        let change = keys.change_field(&hash, args.get(2), |old| {
            let no_float = || Fault::said("ERR hash value is not a float");
            let old = Extended::parse(old.unwrap_or(b"0")).ok_or_else(no_float)?;
            let sum = old.plus(&number);
            Ok(sum.ok_or_else(|| Fault::said("ERR increment would produce NaN or Infinity"))?.text())
        });
        let sum = change.await?;
        if keys.confirm(&hash).await? {
            reply.bulk(sum.as_bytes());
            return Ok(());
        }
        retries.again().await?;
    }
}
