//! Commands that add to strings which are numbers.

use crate::call::Call;
use crate::extended::Extended;
use crate::fault::{Fault, NO_INTEGER};
use crate::keyspace::{Change, Head, Kind};
use crate::number;

/// `INCR key`.
pub(super) async fn incr(call: &mut Call<'_>) -> Result<(), Fault> {
    add(call, 1).await
}

/// `DECR key`.
pub(super) async fn decr(call: &mut Call<'_>) -> Result<(), Fault> {
    add(call, -1).await
}

/// `INCRBY key number`.
pub(super) async fn incrby(call: &mut Call<'_>) -> Result<(), Fault> {
    let number = call.integer(2)?;
    add(call, number).await
}

/// `DECRBY key number`.
pub(super) async fn decrby(call: &mut Call<'_>) -> Result<(), Fault> {
    let number = call.integer(2)?.checked_neg().ok_or_else(|| Fault::said("ERR decrement would overflow"))?;
    add(call, number).await
}

async fn add(call: &mut Call<'_>, number: i64) -> Result<(), Fault> {
    let sum = call.keys.change(call.args.get(1), |head, record| {
        let old = head.map_or(Ok(0), |head| number::integer(head.string()?).ok_or(NO_INTEGER))?;
        let overflow = || Fault::said("ERR increment or decrement would overflow");
        let sum = old.checked_add(number).ok_or_else(overflow)?;
        Head::begin(record, Kind::String, head.and_then(|head| head.expiry));
        record.extend_from_slice(itoa::Buffer::new().format(sum).as_bytes());
        Ok(Change::Put(sum))
    });
    let sum = sum.await?;
    call.reply.integer(sum);
    Ok(())
}

/// `INCRBYFLOAT key number`.
pub(super) async fn incrbyfloat(call: &mut Call<'_>) -> Result<(), Fault> {
    let read =
        |text: &[u8]| Extended::parse(text).ok_or_else(|| Fault::said("ERR value is not a valid float"));
    let sum = call.keys.change(call.args.get(1), |head, record| {
        let old = head.map_or(Ok(&b"0"[..]), |head| head.string())?;
        let sum = read(old)?.plus(&read(call.args.get(2))?);
        let sum = sum.ok_or_else(|| Fault::said("ERR increment would produce NaN or Infinity"))?.text();
        Head::begin(record, Kind::String, head.and_then(|head| head.expiry));
        record.extend_from_slice(sum.as_bytes());
        Ok(Change::Put(sum))
    });
    let sum = sum.await?;
    call.reply.bulk(sum.as_bytes());
    Ok(())
}
