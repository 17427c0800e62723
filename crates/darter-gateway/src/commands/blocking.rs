//! Commands that wait for elements: `BLPOP` and others. Each tries to take an element from the first
//! key that has one. If there is none, the client waits (`waiting.rs`), and its connection runs the
//! command again when the client is woken.

use super::lists::{end_of, move_element, parse_popping, pop_from, write_elements};
use super::sorted_sets::{parse_taking, take, write_popped};
use crate::call::Call;
use crate::clients::Unblock;
use crate::extended::Extended;
use crate::fault::Fault;
use crate::keyspace::End;
use crate::number;
use crate::turns;
use crate::waiting::{Waiter, Wanted};
use std::time::{Duration, Instant};

/// Longest wait; a longer one has no end.
const WAIT_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Parses a timeout in seconds; `None` if the wait has no end.
fn timeout(text: &[u8]) -> Result<Option<Duration>, Fault> {
    let out_of_range = || Fault::said("ERR timeout is out of range");
    let number = Extended::parse(text);
    let number = number.ok_or_else(|| Fault::said("ERR timeout is not a float or out of range"))?;
    if number == Extended::Infinite {
        return Err(out_of_range());
    }
    let seconds: f64 = number.text().parse().map_err(|_| out_of_range())?;
    if seconds < 0.0 {
        return Err(Fault::said("ERR timeout is negative"));
    }
    if number.is_zero() {
        return Ok(None);
    }
    // Clients send the least number there is.
    let millis = (seconds * 1000.0).ceil().max(1.0);
    if millis >= i64::MAX as f64 {
        return Err(out_of_range());
    }
    Ok(Some(Duration::from_millis(millis as u64)).filter(|wait| *wait <= WAIT_MAX))
}

/// Parses a timeout in ms; `None` if the wait has no end.
pub(super) fn timeout_in_ms(text: &[u8]) -> Result<Option<Duration>, Fault> {
    let number = number::integer(text);
    let number = number.ok_or_else(|| Fault::said("ERR timeout is not an integer or out of range"))?;
    let millis = u64::try_from(number).map_err(|_| Fault::said("ERR timeout is negative"))?;
    Ok((millis > 0).then(|| Duration::from_millis(millis)).filter(|wait| *wait <= WAIT_MAX))
}

/// Returns whether the client may take an element of a key now: no other client came before it.
fn may_try(call: &Call<'_>, key: &[u8]) -> bool {
    may_try_for(call, key, &Wanted::Element)
}

/// Returns whether it is the client's turn to try for a key.
pub(super) fn may_try_for(call: &Call<'_>, key: &[u8], wanted: &Wanted) -> bool {
    if call.keys.is_in_transaction() {
        return true;
    }
    let key = (call.client.database, key.to_vec());
    match &call.client.waiter {
        None => !call.shared.waiting.has(&key, wanted),
        Some(waiter) => waiter.ended().is_none() && waiter.may_try(&key),
    }
}

/// Passes on an error, unless it is about a key whose type has changed while the client waits.
fn still(call: &Call<'_>, fault: Fault) -> Result<(), Fault> {
    let is_wrong_type = matches!(&fault, Fault::Said(text) if text.starts_with("WRONGTYPE"));
    if is_wrong_type && call.client.waiter.is_some() { Ok(()) } else { Err(fault) }
}

/// Lets the client wait for keys, or writes null if it cannot wait or has waited long enough.
fn wait<'k>(
    call: &mut Call<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
    timeout: Option<Duration>,
) -> Result<(), Fault> {
    wait_for(call, keys, Wanted::Element, timeout)
}

/// Lets the client wait for some keys, as `wait` does.
pub(super) fn wait_for<'k>(
    call: &mut Call<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
    wanted: Wanted,
    timeout: Option<Duration>,
) -> Result<(), Fault> {
    if call.keys.is_in_transaction() {
        call.reply.null_array();
        return Ok(());
    }
    match &mut call.client.waiter {
        None => {
            let until = timeout.map(|timeout| Instant::now() + timeout);
            let keys = keys.map(|key| (call.client.database, key.to_vec())).collect();
            call.client.waiter = Some(Box::new(Waiter::new(&call.shared.waiting, keys, wanted, until)));
        }
        Some(waiter) => match waiter.ended() {
            None => waiter.goes_on = true,
            Some(Unblock::Timeout) => call.reply.null_array(),
            Some(Unblock::Error) => {
                return Err(Fault::said("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
            }
        },
    }
    Ok(())
}

/// `BLPOP key… timeout`, `BRPOP key… timeout`.
pub(super) async fn pop(call: &mut Call<'_>, end: End) -> Result<(), Fault> {
    let args = call.args;
    let timeout = timeout(args.get(args.len() - 1))?;
    let keys = args.from(1).take(args.len() - 2);
    for key in keys.clone().filter(|key| may_try(call, key)).collect::<Vec<_>>() {
        match pop_from(call, key, end, 1).await {
            Ok(Some(popped)) => {
                call.reply.array(2);
                call.reply.bulk(key);
                for element in &popped {
                    call.reply.bulk(element);
                }
                return Ok(());
            }
            Ok(None) => {}
            Err(fault) => still(call, fault)?,
        }
        turns::worked().await;
    }
    wait(call, keys, timeout)
}

/// `BLMPOP timeout numkeys key… LEFT|RIGHT [COUNT count]`.
pub(super) async fn blmpop(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let timeout = timeout(args.get(1))?;
    let (count, end, most) = parse_popping(&args, 2)?;
    let keys = args.from(3).take(count);
    for key in keys.clone().filter(|key| may_try(call, key)).collect::<Vec<_>>() {
        match pop_from(call, key, end, most).await {
            Ok(Some(popped)) => {
                call.reply.array(2);
                call.reply.bulk(key);
                write_elements(call, &popped).await;
                return Ok(());
            }
            Ok(None) => {}
            Err(fault) => still(call, fault)?,
        }
        turns::worked().await;
    }
    wait(call, keys, timeout)
}

/// `BLMOVE source destination LEFT|RIGHT LEFT|RIGHT timeout`.
pub(super) async fn blmove(call: &mut Call<'_>) -> Result<(), Fault> {
    let (from, to) = (end_of(call.args.get(3))?, end_of(call.args.get(4))?);
    let timeout = timeout(call.args.get(5))?;
    move_or_wait(call, from, to, timeout).await
}

/// `BRPOPLPUSH source destination timeout`.
pub(super) async fn brpoplpush(call: &mut Call<'_>) -> Result<(), Fault> {
    let timeout = timeout(call.args.get(3))?;
    move_or_wait(call, End::Right, End::Left, timeout).await
}

async fn move_or_wait(
    call: &mut Call<'_>,
    from: End,
    to: End,
    timeout: Option<Duration>,
) -> Result<(), Fault> {
    let source = call.args.get(1);
    if may_try(call, source) {
        match call.keys.list_length(source).await {
            Ok(0) => {}
            Ok(_) => {
                if let Some(moved) = move_element(call, from, to).await? {
                    call.reply.bulk(&moved);
                    return Ok(());
                }
            }
            Err(fault) => still(call, fault)?,
        }
    }
    wait(call, std::iter::once(source), timeout)
}

/// `BZPOPMIN key… timeout`, `BZPOPMAX key… timeout`.
pub(super) async fn zpop(call: &mut Call<'_>, is_reverse: bool) -> Result<(), Fault> {
    let args = call.args;
    let timeout = timeout(args.get(args.len() - 1))?;
    let keys = args.from(1).take(args.len() - 2);
    for key in keys.clone().filter(|key| may_try(call, key)).collect::<Vec<_>>() {
        let popped = match take(call.keys, key, 1, is_reverse).await {
            Ok(popped) => popped,
            Err(fault) => still(call, fault).map(|()| Vec::new())?,
        };
        if let Some(member) = popped.first() {
            call.reply.array(3);
            call.reply.bulk(key);
            call.reply.bulk(&member.name);
            call.reply.double(member.score);
            return Ok(());
        }
        turns::worked().await;
    }
    wait(call, keys, timeout)
}

/// `BZMPOP timeout numkeys key… MIN|MAX [COUNT count]`.
pub(super) async fn bzmpop(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let timeout = timeout(args.get(1))?;
    let count = super::lists::positive(args.get(2), "numkeys")?;
    let (is_reverse, wanted) = parse_taking(call, count.saturating_add(3))?;
    let keys = args.from(3).take(count);
    for key in keys.clone().filter(|key| may_try(call, key)).collect::<Vec<_>>() {
        let popped = match take(call.keys, key, wanted, is_reverse).await {
            Ok(popped) => popped,
            Err(fault) => still(call, fault).map(|()| Vec::new())?,
        };
        if !popped.is_empty() {
            call.reply.array(2);
            call.reply.bulk(key);
            write_popped(&mut call.reply, popped, true).await;
            return Ok(());
        }
        turns::worked().await;
    }
    wait(call, keys, timeout)
}

#[cfg(test)]
mod tests {
    use super::timeout;
    use std::time::Duration;

    #[test]
    fn timeouts_are_seconds_in_steps_of_a_millisecond() {
        for (text, expected) in
            [("0", 0), ("1", 1000), ("0.001", 1), ("0.0001", 1), ("1.5", 1500), ("0x2", 2000)]
        {
            let expected = (expected > 0).then(|| Duration::from_millis(expected));
            assert_eq!(timeout(text.as_bytes()).unwrap(), expected, "{text}");
        }
        assert_eq!(timeout(b"9000000000").unwrap(), None, "longer than anything lasts");
        for text in ["", "x", "-1", "nan", "inf", "-inf", "1e300", "9223372036854775808", " 1"] {
            assert!(timeout(text.as_bytes()).is_err(), "{text}");
        }
    }
}
