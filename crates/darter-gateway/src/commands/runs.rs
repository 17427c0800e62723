//! Runs: consecutive requests of a pipeline that change the same key. They are executed as one
//! transaction, which reads the key once and changes it once. Each request has the reply that it
//! would have alone.
//!
//! A run is tried once. If another client changes the key at the same time, if the changes are too
//! large for a transaction, or if the key's elements have separate records, the requests are
//! executed one by one.

use super::runs_of_lists::at_one_end;
use super::transactions::{Body, is_too_large, once, run_one};
use super::{admit, notifying, tracking, wake};
use crate::call::{Call, Client};
use crate::conflicts::are_executed_at_once;
use crate::fault::Fault;
use crate::request::Arguments;
use crate::statistics::Ending;
use crate::table::{Command, CommandId};
use crate::turns;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Fewest requests for which a transaction is worthwhile.
const RUN_MIN: usize = 4;
/// Most bytes of the arguments of a run.
const BYTES_MAX: usize = 64 << 10;

/// The commands of a run, with their arguments and how they ended.
pub(crate) type Executed<'r> = SmallVec<[(&'static Command, Arguments<'r>, Ending); 16]>;

/// Returns whether a command changes one key, and reads only few of its records.
fn is_for_runs(id: CommandId) -> bool {
    use CommandId::{
        Append, Decr, Decrby, Expire, Expireat, Hincrby, Hincrbyfloat, Hmset, Hset, Hsetnx, Incr, Incrby,
        Incrbyfloat, Lpop, Lpush, Lpushx, Persist, Pexpire, Pexpireat, Pfadd, Rpop, Rpush, Rpushx, Sadd, Set,
        Setbit, Setnx, Setrange, Xadd, Zadd, Zincrby,
    };
    matches!(
        id,
        Append
            | Decr
            | Decrby
            | Expire
            | Expireat
            | Hincrby
            | Hincrbyfloat
            | Hmset
            | Hset
            | Hsetnx
            | Incr
            | Incrby
            | Incrbyfloat
            | Lpop
            | Lpush
            | Lpushx
            | Persist
            | Pexpire
            | Pexpireat
            | Pfadd
            | Rpop
            | Rpush
            | Rpushx
            | Sadd
            | Set
            | Setbit
            | Setnx
            | Setrange
            | Xadd
            | Zadd
            | Zincrby
    )
}

/// Returns the number of requests at the beginning of a client's requests that are a run; 0 if it
/// would be too short.
pub(crate) fn run_length<'r>(
    requests: impl ExactSizeIterator<Item = Arguments<'r>> + Clone,
    client: &Client,
) -> usize {
    let key_of = |args: &Arguments<'r>| (args.len() > 1).then(|| args.get(1));
    let mut keys = requests.clone().take(RUN_MIN).map(|args| key_of(&args));
    let Some(Some(key)) = keys.next() else { return 0 };
    if requests.len() < RUN_MIN || !keys.all(|other| other == Some(key)) || !are_executed_at_once(client) {
        return 0;
    }
    let mut bytes = 0;
    let is_of_run = |args: &Arguments<'r>| {
        bytes += args.from(0).map(<[u8]>::len).sum::<usize>();
        let command = Command::named(args.get(0)).filter(|command| command.takes(args.len()));
        bytes <= BYTES_MAX
            && key_of(args) == Some(key)
            && command.is_some_and(|command| is_for_runs(command.id))
    };
    let length = requests.take_while(is_of_run).count();
    if length < RUN_MIN { 0 } else { length }
}

/// Executes the requests of a run. Returns their commands and how they ended; `None` if nothing has
/// changed, and the requests must be executed one by one.
pub(crate) async fn execute_run<'r>(
    call: &mut Call<'_>,
    requests: impl Iterator<Item = Arguments<'r>>,
) -> Option<Executed<'r>> {
    let start = call.reply.position();
    let mut run = Executed::new();
    for args in requests {
        let command = admit(&mut of(call, args), Command::named(args.get(0))).ok()?;
        run.push((command, args, Ending::Failed));
    }
    let key = run.first()?.1.get(1);
    notifying::begin(call);
    let unreported = tracking::begin(call);
    let done = match at_one_end(call, &mut run).await {
        Ok(false) => in_transaction(call, key, &mut run).await,
        done => done,
    };
    unreported.report(call);
    if !matches!(done, Ok(true)) {
        call.reply.take_back(start);
        let fault = done.err().filter(|fault| !is_without_effect(fault))?;
        // Whether the changes have taken effect is not known.
        call.shared.note(&fault);
        for (.., ending) in &mut run {
            call.reply.error(&fault.text());
            *ending = Ending::Failed;
        }
        return Some(run);
    }
    call.keys.changed.clear();
    if call.shared.waiting.is_any()
        && let Some((command, args, _)) = run.first()
    {
        // All have changed the same key.
        wake(&mut of(call, *args), command);
    }
    for (command, args, _) in &run {
        call.client.info.did(command, args, call.client.is_resp3);
    }
    Some(run)
}

/// Executes the requests of a run in one transaction. Returns false if nothing has changed.
async fn in_transaction(call: &mut Call<'_>, key: &[u8], run: &mut Executed<'_>) -> Result<bool, Fault> {
    let locks = call.keys.locks();
    let _guard = locks.lock_head(key).await;
    let mut is_spread = false;
    let mut body = async |call: &mut Call<'_>| {
        for (command, args, ending) in &mut *run {
            *ending = run_one(command, &mut of(call, *args)).await?;
            call.limit()?;
            turns::worked().await;
            // Each request would add its records to the commit.
            is_spread = call.keys.has_read_large(key)?;
            if is_spread {
                return Ok(Body::Abandoned);
            }
        }
        Ok(if call.keys.is_changing() { Body::Done } else { Body::Abandoned })
    };
    let done = once(call, &mut BTreeSet::new(), 0, &mut body).await?;
    Ok(done && !is_spread)
}

/// Returns whether an error of a run shows that nothing has changed.
fn is_without_effect(fault: &Fault) -> bool {
    matches!(fault, Fault::Said(_)) || is_too_large(fault)
}

/// Returns the same call with the arguments of a request.
fn of<'c>(call: &'c mut Call<'_>, args: Arguments<'c>) -> Call<'c> {
    let Call { keys, reply, client, shared, .. } = call;
    Call { args, keys, reply: reply.again(), client, shared }
}
