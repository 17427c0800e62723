//! Sets. Unions, intersections and differences are in
//! `set_operations.rs`, random members in `random.rs`.

use super::elements::{add, count, some};
use super::transactions::supported;
use crate::call::Call;
use crate::fault::{Fault, WRONG_TYPE};
use crate::keyspace::{Keyspace, Kind};

/// `SADD key member…`.
pub(super) async fn sadd(call: &mut Call<'_>) -> Result<(), Fault> {
    let names: Vec<&[u8]> = call.args.from(2).collect();
    let tally = add(call, Kind::Set, &names, |_, old, _| Ok(old.is_none())).await?;
    call.reply.count(tally.added);
    Ok(())
}

/// Returns whether a set has a member.
async fn is_member(keys: &mut Keyspace, key: &[u8], name: &[u8]) -> Result<bool, Fault> {
    Ok(keys.element_of((key, Kind::Set), name).await?.is_some())
}

/// `SISMEMBER key member`.
pub(super) async fn sismember(call: &mut Call<'_>) -> Result<(), Fault> {
    let is_member = is_member(call.keys, call.args.get(1), call.args.get(2)).await?;
    call.reply.flag(is_member);
    Ok(())
}

/// `SMISMEMBER key member…`.
pub(super) async fn smismember(call: &mut Call<'_>) -> Result<(), Fault> {
    some(call, Kind::Set, |reply, record| reply.flag(record.is_some())).await
}

/// `SCARD key`.
pub(super) async fn scard(call: &mut Call<'_>) -> Result<(), Fault> {
    let count = count(call, Kind::Set).await?;
    call.reply.count(count);
    Ok(())
}

/// `SMOVE source destination member`, which is executed in a transaction.
pub(super) async fn smove(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = &mut *call;
    let (from, to, name) = (args.get(1), args.get(2), args.get(3));
    match keys.look(from, |head| head.map(|head| head.kind)).await? {
        None => {
            reply.flag(false);
            return Ok(());
        }
        Some(Kind::Set) => {}
        Some(_) => return Err(WRONG_TYPE),
    }
    let is_in_destination = is_member(keys, to, name).await?;
    if from == to {
        reply.flag(is_in_destination);
        return Ok(());
    }
    supported(call, "SMOVE")?;
    let is_moved = call.keys.remove_elements((from, Kind::Set), &[name], true).await? == Some(1);
    if is_moved && !is_in_destination {
        call.keys.add_elements((to, Kind::Set), &[name], true, &mut |_, old, _| Ok(old.is_none())).await?;
    }
    call.reply.flag(is_moved);
    Ok(())
}
