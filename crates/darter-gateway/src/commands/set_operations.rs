//! Unions, intersections and differences of sets: returned, counted or stored. To store one is a
//! transaction, unless the sets are large (`transactions.rs`).

use crate::call::Call;
use crate::fault::{Fault, SYNTAX};
use crate::keyspace::{Draft, Join, Joined, Keyspace, Kind, Retries};
use crate::number;
use crate::turns;
use std::collections::HashSet;

/// Returns keys, those after the first one without repetitions.
fn distinct<'k>(mut keys: impl Iterator<Item = &'k [u8]>) -> Vec<&'k [u8]> {
    let (first, mut known) = (keys.next(), HashSet::new());
    first.into_iter().chain(keys.filter(|key| known.insert(*key))).collect()
}

async fn begin(call: &mut Call<'_>, keys: &[&[u8]], join: Join) -> Result<Joined, Fault> {
    let most = call.shared.options.output_bytes_max;
    Ok(Joined::new(join, call.keys.find_all(keys, &[Kind::Set], most).await?))
}

/// `SINTER key…`, `SUNION key…`, `SDIFF key…`.
pub(super) async fn combine(call: &mut Call<'_>, join: Join) -> Result<(), Fault> {
    let (keys, start) = (distinct(call.args.from(1)), call.reply.position());
    let mut retries = Retries::default();
    loop {
        let mut joined = begin(call, &keys, join).await?;
        let mut count = 0;
        while let Some(name) = call.keys.next_joined(&mut joined).await? {
            call.reply.bulk(&name);
            call.limit()?;
            count += 1;
            turns::copied(name.len()).await;
        }
        if call.keys.all_stand(&joined).await? {
            call.reply.set_from(start, count);
            return Ok(());
        }
        call.reply.take_back(start);
        retries.again().await?;
    }
}

/// Parses the `LIMIT` of `SINTERCARD` and `ZINTERCARD`, in the arguments from a position on.
pub(super) fn limit(call: &Call<'_>, at: usize) -> Result<usize, Fault> {
    let (mut limit, mut options) = (0, call.args.from(at));
    while let Some(option) = options.next() {
        let said = options.next().filter(|_| option.eq_ignore_ascii_case(b"limit")).ok_or(SYNTAX)?;
        let said = number::integer(said).and_then(|said| usize::try_from(said).ok());
        limit = said.ok_or_else(|| Fault::said("ERR LIMIT can't be negative"))?;
    }
    Ok(if limit == 0 { usize::MAX } else { limit })
}

/// Counts the elements of an intersection, up to a limit. Returns `None` if a key has changed.
pub(super) async fn count_joined(
    keys: &mut Keyspace,
    mut joined: Joined,
    limit: usize,
) -> Result<Option<usize>, Fault> {
    let mut count = 0;
    while count < limit && keys.next_joined(&mut joined).await?.is_some() {
        count += 1;
        turns::worked().await;
    }
    Ok(keys.all_stand(&joined).await?.then_some(count))
}

/// `SINTERCARD numkeys key… [LIMIT limit]`.
pub(super) async fn sintercard(call: &mut Call<'_>) -> Result<(), Fault> {
    let count = call.key_count(1)?;
    if count > call.args.len() - 2 {
        return Err(Fault::said("ERR Number of keys can't be greater than number of args"));
    }
    let limit = limit(call, 2 + count)?;
    let keys = distinct(call.args.from(2).take(count));
    let mut retries = Retries::default();
    loop {
        let joined = begin(call, &keys, Join::Intersection).await?;
        if let Some(count) = count_joined(call.keys, joined, limit).await? {
            call.reply.count(count);
            return Ok(());
        }
        retries.again().await?;
    }
}

/// Writes the members of a join. Returns whether all keys are still the same.
async fn fill(keys: &mut Keyspace, joined: &mut Joined, draft: &mut Draft) -> Result<bool, Fault> {
    while let Some(name) = keys.next_joined(joined).await? {
        keys.draft_element(draft, &name, b"").await?;
        turns::copied(name.len()).await;
    }
    keys.all_stand(joined).await
}

/// Makes a value that was filled its key's, and replies with the number of its elements. Returns
/// false, and removes what was written, if it must be filled again.
pub(super) async fn replace(
    call: &mut Call<'_>,
    draft: Draft,
    filled: Result<bool, Fault>,
) -> Result<bool, Fault> {
    if !matches!(filled, Ok(true)) {
        call.keys.discard_draft(draft).await?;
        return filled;
    }
    let count = call.keys.replace_by(draft).await?;
    call.reply.count(count);
    Ok(true)
}

/// `SINTERSTORE destination key…`, `SUNIONSTORE destination key…`, `SDIFFSTORE destination key…`.
pub(super) async fn store(call: &mut Call<'_>, join: Join) -> Result<(), Fault> {
    let keys = distinct(call.args.from(2));
    let mut retries = Retries::default();
    loop {
        let mut joined = begin(call, &keys, join).await?;
        let mut draft = Draft::new(Kind::Set, call.args.get(1), None)?;
        let filled = fill(call.keys, &mut joined, &mut draft).await;
        if replace(call, draft, filled).await? {
            return Ok(());
        }
        retries.again().await?;
    }
}
