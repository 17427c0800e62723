//! Commands for HyperLogLogs: `PFADD`, `PFCOUNT`, `PFMERGE`, `PFDEBUG`. They are strings, with the
//! same bytes as in Redis. A value whose registers are damaged is refused before it is changed.

use crate::call::Call;
use crate::fault::Fault;
use crate::hyperloglog::{self, Form, Mark, REGISTERS, Registers};
use crate::keyspace::{Change, Head, Keyspace, Kind};
use crate::turns;

/// Writes a record with a key's expiry time and a new value.
fn write(record: &mut Vec<u8>, head: Option<Head<'_>>, value: &[u8]) {
    Head::begin(record, Kind::String, head.and_then(|head| head.expiry));
    record.extend_from_slice(value);
}

/// `PFADD key [element…]`.
pub(super) async fn pfadd(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut marks = Vec::with_capacity(call.args.len() - 2);
    for element in call.args.from(2) {
        marks.push(Mark::of(element));
        turns::copied(element.len()).await;
    }
    let changed = call.keys.change(call.args.get(1), |head, record| {
        let mut value =
            head.map_or_else(|| Ok(hyperloglog::empty()), |head| head.string().map(<[u8]>::to_vec))?;
        let mut known = hyperloglog::registers(&value)?;
        let mut is_changed = head.is_none();
        for &mark in &marks {
            is_changed |= hyperloglog::raise(&mut value, &mut known, mark)?;
        }
        if !is_changed {
            return Ok(Change::Keep(false));
        }
        hyperloglog::set_cached(&mut value, None);
        write(record, head, &value);
        Ok(Change::Put(true))
    });
    let is_changed = changed.await?;
    call.reply.flag(is_changed);
    Ok(())
}

/// Raises registers to those of a key's value. Returns the form of the value, if the key exists.
async fn merge(keys: &mut Keyspace, registers: &mut Registers, key: &[u8]) -> Result<Option<Form>, Fault> {
    let merged = keys.look(key, |head| {
        let Some(head) = head else { return Ok(None) };
        let value = head.string()?;
        hyperloglog::merge(registers, value)?;
        hyperloglog::form(value).map(Some)
    });
    merged.await?
}

/// Counts the elements of one key, and keeps the result in its value.
async fn count_one(call: &mut Call<'_>) -> Result<u64, Fault> {
    let count = call.keys.change(call.args.get(1), |head, record| {
        let Some(some) = head else { return Ok(Change::Keep(0)) };
        let value = some.string()?;
        hyperloglog::form(value)?;
        if let Some(cached) = hyperloglog::cached(value) {
            return Ok(Change::Keep(cached));
        }
        let mut value = value.to_vec();
        let count = hyperloglog::estimate(&*hyperloglog::registers(&value)?);
        hyperloglog::set_cached(&mut value, Some(count));
        write(record, head, &value);
        Ok(Change::Put(count))
    });
    count.await
}

/// `PFCOUNT key…`.
pub(super) async fn pfcount(call: &mut Call<'_>) -> Result<(), Fault> {
    let count = if call.args.len() == 2 {
        count_one(call).await?
    } else {
        let mut registers = Box::new([0; REGISTERS]);
        for key in call.args.from(1) {
            merge(call.keys, &mut registers, key).await?;
            turns::copied(REGISTERS).await;
        }
        hyperloglog::estimate(&registers)
    };
    call.reply.integer(count.cast_signed());
    Ok(())
}

/// `PFMERGE destination [key…]`.
pub(super) async fn pfmerge(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let (mut registers, mut is_dense) = (Box::new([0; REGISTERS]), false);
    for key in args.from(1) {
        is_dense |= merge(keys, &mut registers, key).await? == Some(Form::Dense);
        turns::copied(REGISTERS).await;
    }
    let changed = keys.change(args.get(1), |head, record| {
        let mut value =
            head.map_or_else(|| Ok(hyperloglog::empty()), |head| head.string().map(<[u8]>::to_vec))?;
        let mut known = hyperloglog::registers(&value)?;
        if is_dense {
            hyperloglog::make_dense(&mut value)?;
        }
        for (register, &count) in (0..).zip(registers.iter()) {
            hyperloglog::raise(&mut value, &mut known, Mark { register, count })?;
        }
        hyperloglog::set_cached(&mut value, None);
        write(record, head, &value);
        Ok(Change::Put(()))
    });
    changed.await?;
    reply.ok();
    Ok(())
}

/// `PFDEBUG GETREG|DECODE|ENCODING|TODENSE key`.
pub(super) async fn pfdebug(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let start = reply.position();
    let change = keys.change(args.get(2), |head, record| {
        reply.take_back(start);
        let Some(some) = head else { return Err(Fault::said("ERR The specified key does not exist")) };
        let value = some.string()?;
        let is_sparse = hyperloglog::form(value)? == Form::Sparse;
        match &args.get(1).to_ascii_lowercase()[..] {
            b"encoding" => reply.simple(if is_sparse { "sparse" } else { "dense" }),
            b"decode" if !is_sparse => return Err(Fault::said("ERR HLL encoding is not sparse")),
            b"decode" => reply.bulk(hyperloglog::decoded(value).as_bytes()),
            what @ (b"getreg" | b"todense") => {
                let mut value = value.to_vec();
                hyperloglog::make_dense(&mut value)?;
                if what == b"todense" {
                    reply.flag(is_sparse);
                } else {
                    reply.array(REGISTERS);
                    hyperloglog::registers(&value)?.iter().for_each(|&count| reply.integer(count.into()));
                }
                if is_sparse {
                    write(record, head, &value);
                    return Ok(Change::Put(()));
                }
            }
            _ => {
                let name = crate::call::shown(args.get(1), 128);
                return Err(Fault::said(format!("ERR Unknown PFDEBUG subcommand '{name}'")));
            }
        }
        Ok(Change::Keep(()))
    });
    change.await
}
