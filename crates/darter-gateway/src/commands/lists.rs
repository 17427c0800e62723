//! Lists. A command that needs one record changes it in place; all others run in a transaction.

use super::list_edits::{Insert, Rotate, Set, Strip, Trim};
use super::transactions::within;
use crate::call::{Call, wrong_arity};
use crate::fault::{Fault, SYNTAX};
use crate::keyspace::{Edit, End, InPlace};
use crate::number;
use crate::payload::Limits;
use crate::request::Arguments;
use crate::turns;
use smallvec::SmallVec;

/// Returns the end of a list that an argument names.
pub(super) fn end_of(argument: &[u8]) -> Result<End, Fault> {
    match &argument.to_ascii_lowercase()[..] {
        b"left" => Ok(End::Left),
        b"right" => Ok(End::Right),
        _ => Err(SYNTAX),
    }
}

/// Fails if an element is too long for lists.
fn check(call: &Call<'_>, key: &[u8], elements: impl Iterator<Item = usize>) -> Result<(), Fault> {
    Limits::of_gateway(call.shared).check_elements(key, elements)
}

/// `LPUSH key element…`, `RPUSH key element…`, `LPUSHX key element…`, `RPUSHX key element…`.
pub(super) async fn push(call: &mut Call<'_>, end: End, must_exist: bool) -> Result<(), Fault> {
    let (key, elements) = (call.args.get(1), call.args.from(2).collect::<SmallVec<[&[u8]; 8]>>());
    check(call, key, elements.iter().map(|element| element.len()))?;
    let length = match call.keys.push_in_place(key, end, &elements, must_exist).await? {
        InPlace::Done(length) => length,
        InPlace::Several => {
            let mut exists = true;
            within(call, async |call| {
                let mut list = call.keys.open_list(key).await?;
                exists = list.exists() || !must_exist;
                if !exists {
                    return Ok(());
                }
                call.keys.push_to_list(&mut list, end, &elements).await?;
                call.keys.close_list(list).await
            })
            .await?;
            // Outside of the transaction, whose commit then does not depend on the other end.
            if exists { Box::pin(call.keys.list_length(key)).await?.max(elements.len()) } else { 0 }
        }
    };
    call.reply.count(length);
    Ok(())
}

/// Removes up to `count` elements at an end. Returns `None` if the key is absent.
pub(super) async fn pop_from(
    call: &mut Call<'_>,
    key: &[u8],
    end: End,
    count: usize,
) -> Result<Option<Vec<Vec<u8>>>, Fault> {
    let mut popped = Vec::new();
    let mut exists = true;
    match call.keys.pop_in_place(key, end, count, &mut popped).await? {
        InPlace::Done(is_there) => exists = is_there,
        InPlace::Several => {
            within(call, async |call| {
                popped.clear();
                let mut list = call.keys.open_list(key).await?;
                exists = list.exists();
                if exists {
                    let keep = |element: &[u8]| popped.push(element.to_vec());
                    call.keys.pop_from_list(&mut list, end, count, keep).await?;
                    call.keys.close_list(list).await?;
                }
                Ok(())
            })
            .await?;
        }
    }
    Ok(exists.then_some(popped))
}

/// `LPOP key [count]`, `RPOP key [count]`.
pub(super) async fn pop(call: &mut Call<'_>, end: End) -> Result<(), Fault> {
    if call.args.len() > 3 {
        return Err(wrong_arity(&String::from_utf8_lossy(call.args.get(0)).to_ascii_lowercase()));
    }
    let key = call.args.get(1);
    if call.args.len() == 2 {
        let popped = pop_from(call, key, end, 1).await?;
        call.reply.bulk_or_null(popped.and_then(|mut popped| popped.pop()).as_deref());
        return Ok(());
    }
    let count = number::integer(call.args.get(2)).and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or_else(|| Fault::said("ERR value is out of range, must be positive"))?;
    let popped = if count == 0 {
        let exists = call.keys.list_length(key).await? > 0;
        exists.then(Vec::new)
    } else {
        pop_from(call, key, end, count).await?
    };
    let Some(popped) = popped else {
        call.reply.null_array();
        return Ok(());
    };
    write_elements(call, &popped).await;
    Ok(())
}

/// Replies with elements.
pub(super) async fn write_elements(call: &mut Call<'_>, elements: &[Vec<u8>]) {
    call.reply.array(elements.len());
    for element in elements {
        call.reply.bulk(element);
        turns::worked().await;
    }
}

/// `LLEN key`.
pub(super) async fn llen(call: &mut Call<'_>) -> Result<(), Fault> {
    let length = call.keys.list_length(call.args.get(1)).await?;
    call.reply.count(length);
    Ok(())
}

/// Applies an edit to a list from an end. Returns it, or `None` if the key is absent.
async fn edit<E: Edit>(call: &mut Call<'_>, from: End, edit: E) -> Result<Option<E>, Fault> {
    let key = call.args.get(1);
    if let InPlace::Done(done) = call.keys.edit_in_place(key, &edit).await? {
        return Ok(done);
    }
    let mut done = None;
    within(call, async |call| {
        let mut list = call.keys.open_list(key).await?;
        done = None;
        if list.exists() {
            let edit = done.insert(edit.clone());
            if call.keys.edit_list(&mut list, from, edit).await? {
                call.keys.close_list(list).await?;
            }
        }
        Ok(())
    })
    .await?;
    Ok(done)
}

/// `LSET key index element`.
pub(super) async fn lset(call: &mut Call<'_>) -> Result<(), Fault> {
    let no_such_key = || Fault::said("ERR no such key");
    let number = match call.integer(2) {
        Ok(number) => number,
        // Redis reads the key first.
        Err(fault) => {
            let exists = call.keys.list_length(call.args.get(1)).await? > 0;
            return Err(if exists { fault } else { no_such_key() });
        }
    };
    check(call, call.args.get(1), std::iter::once(call.args.get(3).len()))?;
    let (from, at) = if number < 0 { (End::Right, !number) } else { (End::Left, number) };
    let set = edit(call, from, Set::new(from, at as usize, call.args.get(3))).await?;
    let set = set.ok_or_else(no_such_key)?;
    if !set.is_done {
        return Err(Fault::said("ERR index out of range"));
    }
    call.reply.ok();
    Ok(())
}

/// `LINSERT key BEFORE|AFTER pivot element`.
pub(super) async fn linsert(call: &mut Call<'_>) -> Result<(), Fault> {
    let is_after = match &call.args.get(2).to_ascii_lowercase()[..] {
        b"before" => false,
        b"after" => true,
        _ => return Err(SYNTAX),
    };
    check(call, call.args.get(1), std::iter::once(call.args.get(4).len()))?;
    let insert = Insert::new(is_after, call.args.get(3), call.args.get(4));
    match edit(call, End::Left, insert).await? {
        None => call.reply.integer(0),
        Some(insert) if !insert.is_done => call.reply.integer(-1),
        Some(_) => {
            let length = call.keys.list_length(call.args.get(1)).await?;
            call.reply.count(length.max(1));
        }
    }
    Ok(())
}

/// `LREM key count element`.
pub(super) async fn lrem(call: &mut Call<'_>) -> Result<(), Fault> {
    let count = call.integer(2)?;
    let from = if count < 0 { End::Right } else { End::Left };
    let most =
        if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
    let removed = edit(call, from, Strip::new(from, most, call.args.get(3))).await?;
    call.reply.count(removed.map_or(0, |strip| strip.removed));
    Ok(())
}

/// `LTRIM key start stop`.
pub(super) async fn ltrim(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, start, stop) = (call.args.get(1), call.integer(2)?, call.integer(3)?);
    let trim = Trim::new(start, stop);
    if let InPlace::Several = call.keys.edit_in_place(key, &trim).await? {
        // A list that is short enough is not changed, nor is a transaction begun.
        if trim.excess(call.keys.list_length(key).await?) == (0, 0) {
            call.reply.ok();
            return Ok(());
        }
        within(call, async |call| {
            let length = call.keys.list_length(key).await?;
            let mut list = call.keys.open_list(key).await?;
            let (left, right) = trim.excess(length);
            if left + right >= length {
                call.keys.clear_list(&mut list).await?;
            } else {
                for (end, count) in [(End::Left, left), (End::Right, right)] {
                    call.keys.pop_from_list(&mut list, end, count, |_| {}).await?;
                }
            }
            call.keys.close_list(list).await
        })
        .await?;
    }
    call.reply.ok();
    Ok(())
}

/// `LMOVE source destination LEFT|RIGHT LEFT|RIGHT`.
pub(super) async fn lmove(call: &mut Call<'_>) -> Result<(), Fault> {
    let (from, to) = (end_of(call.args.get(3))?, end_of(call.args.get(4))?);
    let moved = move_element(call, from, to).await?;
    call.reply.bulk_or_null(moved.as_deref());
    Ok(())
}

/// `RPOPLPUSH source destination`.
pub(super) async fn rpoplpush(call: &mut Call<'_>) -> Result<(), Fault> {
    let moved = move_element(call, End::Right, End::Left).await?;
    call.reply.bulk_or_null(moved.as_deref());
    Ok(())
}

/// Moves an element from the list of the first argument to that of the second. Returns it, or `None`
/// if there is none.
pub(super) async fn move_element(call: &mut Call<'_>, from: End, to: End) -> Result<Option<Vec<u8>>, Fault> {
    let (source, destination) = (call.args.get(1), call.args.get(2));
    if source == destination
        && let InPlace::Done(done) = call.keys.edit_in_place(source, &Rotate::new(from, to)).await?
    {
        return Ok(done.and_then(|rotate| rotate.moved));
    }
    if !call.shared.has_transactions {
        // A wrong type is reported first.
        if call.keys.list_length(source).await? == 0 {
            return Ok(None);
        }
        call.keys.list_length(destination).await?;
    }
    let mut moved = None;
    within(call, async |call| {
        moved = None;
        let keys = &mut *call.keys;
        let mut list = keys.open_list(source).await?;
        if !list.exists() {
            return Ok(());
        }
        // Before the source changes, since it may have the wrong type.
        let mut other = if source == destination { None } else { Some(keys.open_list(destination).await?) };
        keys.pop_from_list(&mut list, from, 1, |element| moved = Some(element.to_vec())).await?;
        let element = moved.as_deref().unwrap_or_default();
        keys.push_to_list(other.as_mut().unwrap_or(&mut list), to, &[element]).await?;
        keys.close_list(list).await?;
        match other {
            Some(other) => keys.close_list(other).await,
            None => Ok(()),
        }
    })
    .await?;
    Ok(moved)
}

/// Returns an argument that must be a positive integer.
pub(super) fn positive(text: &[u8], what: &str) -> Result<usize, Fault> {
    let number = number::integer(text).and_then(|number| usize::try_from(number).ok());
    let number = number.filter(|&number| number > 0);
    number.ok_or_else(|| Fault::said(format!("ERR {what} should be greater than 0")))
}

/// Parses the arguments of `LMPOP` from the number of keys on. Returns this number, the end, and the
/// most elements to remove.
pub(super) fn parse_popping(args: &Arguments<'_>, at: usize) -> Result<(usize, End, usize), Fault> {
    let keys = positive(args.get(at), "numkeys")?;
    let place = keys.checked_add(at + 1).filter(|&place| place < args.len()).ok_or(SYNTAX)?;
    let end = end_of(args.get(place))?;
    let (mut count, mut options) = (None, args.from(place + 1));
    while let Some(option) = options.next() {
        let value = options.next().filter(|_| option.eq_ignore_ascii_case(b"count") && count.is_none());
        count = Some(positive(value.ok_or(SYNTAX)?, "count")?);
    }
    Ok((keys, end, count.unwrap_or(1)))
}

/// `LMPOP numkeys key… LEFT|RIGHT [COUNT count]`.
pub(super) async fn lmpop(call: &mut Call<'_>) -> Result<(), Fault> {
    let (keys, end, most) = parse_popping(&call.args, 1)?;
    for key in call.args.from(2).take(keys) {
        if let Some(popped) = pop_from(call, key, end, most).await? {
            call.reply.array(2);
            call.reply.bulk(key);
            write_elements(call, &popped).await;
            return Ok(());
        }
        turns::worked().await;
    }
    call.reply.null_array();
    Ok(())
}
