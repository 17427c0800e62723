//! Runs of pushes, or of pops, at one end of a list. If one record is enough for all of them, they
//! change it once, without a transaction.

use crate::call::Call;
use crate::fault::Fault;
use crate::keyspace::{End, InPlace};
use crate::payload::Limits;
use crate::request::Arguments;
use crate::statistics::Ending;
use crate::table::{Command, CommandId};
use crate::turns;

/// A request of a run, and how it ended.
type Request<'r> = (&'static Command, Arguments<'r>, Ending);

/// A command at an end of a list.
enum Kind {
    Push { must_exist: bool },
    Pop,
}

fn kind_of(id: CommandId) -> Option<(Kind, End)> {
    Some(match id {
        CommandId::Lpush => (Kind::Push { must_exist: false }, End::Left),
        CommandId::Lpushx => (Kind::Push { must_exist: true }, End::Left),
        CommandId::Rpush => (Kind::Push { must_exist: false }, End::Right),
        CommandId::Rpushx => (Kind::Push { must_exist: true }, End::Right),
        CommandId::Lpop => (Kind::Pop, End::Left),
        CommandId::Rpop => (Kind::Pop, End::Right),
        _ => return None,
    })
}

/// Executes a run if its requests have the same command, and one record is enough. Returns whether it
/// did; nothing has changed otherwise.
///
/// # Errors
/// The store's errors. Whether the run has taken effect is not known then.
pub(super) async fn at_one_end(call: &mut Call<'_>, run: &mut [Request<'_>]) -> Result<bool, Fault> {
    let Some(&(first, args, _)) = run.first() else { return Ok(false) };
    let Some((kind, end)) = kind_of(first.id) else { return Ok(false) };
    // Each push and each pop would have an event.
    if run.iter().any(|(command, ..)| command.id != first.id) || call.keys.records_events() {
        return Ok(false);
    }
    call.keys.select(call.client.database)?;
    let is_done = match kind {
        Kind::Push { must_exist } => push(call, args.get(1), end, must_exist, run).await,
        Kind::Pop => pop(call, args.get(1), end, run).await,
    };
    match is_done {
        Ok(true) => {}
        // Such as a wrong type, which each request reports.
        Ok(false) | Err(Fault::Said(_)) => return Ok(false),
        Err(fault) => return Err(fault),
    }
    for (.., ending) in run {
        *ending = Ending::Done;
        turns::worked().await;
    }
    Ok(true)
}

async fn push(
    call: &mut Call<'_>,
    key: &[u8],
    end: End,
    must_exist: bool,
    run: &[Request<'_>],
) -> Result<bool, Fault> {
    let elements: Vec<&[u8]> = run.iter().flat_map(|(_, args, _)| args.from(2)).collect();
    Limits::of_gateway(call.shared).check_elements(key, elements.iter().map(|element| element.len()))?;
    let InPlace::Done(length) = call.keys.push_in_place(key, end, &elements, must_exist).await? else {
        return Ok(false);
    };
    let mut later = elements.len();
    for (_, args, _) in run {
        later -= args.len() - 2;
        call.reply.count(length.saturating_sub(later));
    }
    Ok(true)
}

async fn pop(call: &mut Call<'_>, key: &[u8], end: End, run: &[Request<'_>]) -> Result<bool, Fault> {
    // With a count, a reply is an array.
    if run.iter().any(|(_, args, _)| args.len() != 2) {
        return Ok(false);
    }
    let mut popped = Vec::new();
    let InPlace::Done(_) = call.keys.pop_in_place(key, end, run.len(), &mut popped).await? else {
        return Ok(false);
    };
    for number in 0..run.len() {
        call.reply.bulk_or_null(popped.get(number).map(Vec::as_slice));
    }
    Ok(true)
}
