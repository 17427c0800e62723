//! Sets. A command that changes several members of a large set does so in a transaction, if the
//! index has transactions; a small set is one record. Unions, intersections and differences are in
//! `set_operations.rs`, random members in `random.rs`.

use super::elements::{count, some};
use super::transactions::{Body, atomically, supported};
use crate::call::Call;
use crate::fault::{Fault, WRONG_TYPE};
use crate::keyspace::{Keyspace, Kind, in_order};
use std::collections::BTreeSet;

/// Changes members of a set, in a transaction if `change` returns `None` outside of one.
async fn change_members(
    call: &mut Call<'_>,
    change: impl AsyncFn(&mut Call<'_>, &[&[u8]], bool) -> Result<Option<usize>, Fault>,
) -> Result<(), Fault> {
    let args = call.args;
    let names = in_order(args.from(2));
    let in_parts = !call.shared.has_transactions || call.keys.is_in_transaction();
    if let Some(changed) = change(call, &names, in_parts).await? {
        call.reply.count(changed);
        return Ok(());
    }
    let transaction = atomically(call, BTreeSet::new(), async |call| {
        let changed = change(call, &names, true).await?.unwrap_or_default();
        call.reply.count(changed);
        // To verify that records are absent would cost as much as to add them.
        Ok(if call.keys.is_changing() { Body::Done } else { Body::Abandoned })
    });
    Box::pin(transaction).await
}

/// `SADD key member…`.
pub(super) async fn sadd(call: &mut Call<'_>) -> Result<(), Fault> {
    change_members(call, async |call, names, in_parts| {
        call.keys.add_members(call.args.get(1), names, in_parts).await
    })
    .await
}

/// `SREM key member…`.
pub(super) async fn srem(call: &mut Call<'_>) -> Result<(), Fault> {
    change_members(call, async |call, names, in_parts| {
        call.keys.remove_members(call.args.get(1), names, in_parts).await
    })
    .await
}

/// Returns whether a set has a member.
async fn is_member(keys: &mut Keyspace, key: &[u8], name: &[u8]) -> Result<bool, Fault> {
    match keys.find(key, Kind::Set).await? {
        Some(set) => Ok(keys.element(&set, name).await?.is_some()),
        None => Ok(false),
    }
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
    let is_moved = call.keys.remove_members(from, &[name], true).await? == Some(1);
    if is_moved && !is_in_destination {
        call.keys.add_members(to, &[name], true).await?;
    }
    call.reply.flag(is_moved);
    Ok(())
}
