//! The library `cmsgpack` of scripts: values as `MessagePack`, as in Redis.

use super::library::{Answer, Library, Trouble, integer, shape, string};
use crate::number::signed;
use mlua::{Lua, Table, Value};
use rmp::{Marker, decode, encode};

/// Tables nested deeper are packed as nil.
const NESTING_MAX: usize = 16;
/// Most levels of tables that are unpacked.
const LEVELS_MAX: usize = 1000;
/// Most values that one call unpacks.
const VALUES_MAX: usize = 7999;

/// Adds the library's functions.
pub(super) fn add(library: &Library<'_>) -> mlua::Result<()> {
    library.add("pack", pack)?;
    library.add("unpack", |lua, args| unpack(lua, args, None, 0))?;
    library.add("unpack_one", |lua, args| {
        let offset = integer(args, 1, "unpack_one", Some(0))?;
        unpack(lua, args, Some(1), offset)
    })?;
    library.add("unpack_limit", |lua, args| {
        let limit = integer(args, 1, "unpack_limit", None)?;
        let offset = integer(args, 2, "unpack_limit", Some(0))?;
        unpack(lua, args, Some(limit), offset)
    })?;
    library.table.raw_set("_NAME", "cmsgpack")?;
    Ok(())
}

fn pack(lua: &Lua, args: &[Value]) -> Answer {
    if args.is_empty() {
        return Err("bad argument #0 to 'pack' (MessagePack pack needs input.)".into());
    }
    let mut packed = Vec::new();
    for value in args {
        pack_value(&mut packed, value, 0)?;
    }
    Ok(vec![Value::String(lua.create_string(packed)?)])
}

fn pack_value(packed: &mut Vec<u8>, value: &Value, level: usize) -> Result<(), Trouble> {
    // Writing to a vector does not fail.
    let _ = match value {
        Value::String(text) => {
            let text = text.as_bytes();
            let _ = encode::write_str_len(packed, text.len() as u32);
            packed.extend_from_slice(&text);
            Ok(())
        }
        Value::Boolean(value) => encode::write_bool(packed, *value).map_err(drop),
        Value::Integer(number) => encode::write_sint(packed, *number).map(drop).map_err(drop),
        Value::Number(number) if f64::from(*number as f32).to_bits() == number.to_bits() => {
            encode::write_f32(packed, *number as f32).map_err(drop)
        }
        Value::Number(number) => encode::write_f64(packed, *number).map_err(drop),
        Value::Table(table) if level < NESTING_MAX => {
            pack_table(packed, table, level + 1)?;
            Ok(())
        }
        _ => encode::write_nil(packed).map_err(drop),
    };
    Ok(())
}

/// Packs a table as an array if its keys are 1, 2, …, else as a map.
fn pack_table(packed: &mut Vec<u8>, table: &Table, level: usize) -> Result<(), Trouble> {
    let (count, last) = shape(table)?;
    if last == Some(signed(count)) {
        let _ = encode::write_array_len(packed, count as u32);
        for at in 1..=count {
            pack_value(packed, &table.raw_get::<Value>(at)?, level)?;
        }
    } else {
        let _ = encode::write_map_len(packed, count as u32);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            pack_value(packed, &key, level)?;
            pack_value(packed, &value, level)?;
        }
    }
    Ok(())
}

fn unpack(lua: &Lua, args: &[Value], limit: Option<i64>, offset: i64) -> Answer {
    let text = string(lua, args, 0, "unpack")?;
    let text = text.as_bytes();
    let is_all = limit.is_none_or(|limit| limit == 0 && offset == 0);
    if offset < 0 || limit.is_some_and(|limit| limit < 0) {
        let bytes = text.len();
        return Err(format!("Invalid request to unpack with offset of {offset} and limit of {bytes}.").into());
    }
    let rest = usize::try_from(offset).ok().and_then(|offset| text.get(offset..));
    let Some(mut rest) = rest else {
        return Err(format!("Start offset {offset} greater than input length {}.", text.len()).into());
    };
    let most = if is_all { i64::MAX } else { limit.unwrap_or(i64::MAX) };
    let mut values = Vec::new();
    while !rest.is_empty() && signed(values.len()) < most {
        if values.len() == VALUES_MAX {
            return Err("too many return values at once; use unpack_one or unpack_limit instead.".into());
        }
        values.push(unpack_value(lua, &mut rest, 0)?);
    }
    if !is_all {
        let next = if rest.is_empty() { -1 } else { signed(text.len() - rest.len()) };
        values.insert(0, Value::Integer(next));
    }
    Ok(values)
}

/// Takes bytes from the front of the input.
fn take<'b>(rest: &mut &'b [u8], bytes: usize) -> Result<&'b [u8], Trouble> {
    let (taken, after) = rest.split_at_checked(bytes).ok_or("Missing bytes in input.")?;
    *rest = after;
    Ok(taken)
}

/// Takes a big-endian number from the front of the input.
fn take_number(rest: &mut &[u8], bytes: usize) -> Result<u64, Trouble> {
    Ok(take(rest, bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn unpack_value(lua: &Lua, rest: &mut &[u8], level: usize) -> Result<Value, Trouble> {
    let marker = decode::read_marker(rest).map_err(|_| "Missing bytes in input.")?;
    let unsigned = |number: u64| Value::Number(number as f64);
    let signed = |number: i64| Value::Number(number as f64);
    let mut count = |bytes| take_number(rest, bytes);
    let (kind, length) = match marker {
        Marker::FixPos(number) => return Ok(unsigned(number.into())),
        Marker::FixNeg(number) => return Ok(signed(number.into())),
        Marker::U8 => return Ok(unsigned(count(1)?)),
        Marker::U16 => return Ok(unsigned(count(2)?)),
        Marker::U32 => return Ok(unsigned(count(4)?)),
        Marker::U64 => return Ok(unsigned(count(8)?)),
        Marker::I8 => return Ok(signed((count(1)? as i8).into())),
        Marker::I16 => return Ok(signed((count(2)? as i16).into())),
        Marker::I32 => return Ok(signed((count(4)? as i32).into())),
        Marker::I64 => return Ok(signed(count(8)?.cast_signed())),
        Marker::F32 => return Ok(Value::Number(f32::from_bits(count(4)? as u32).into())),
        Marker::F64 => return Ok(Value::Number(f64::from_bits(count(8)?))),
        Marker::Null => return Ok(Value::Nil),
        Marker::True => return Ok(Value::Boolean(true)),
        Marker::False => return Ok(Value::Boolean(false)),
        Marker::FixStr(length) => (Kind::Text, length.into()),
        Marker::Str8 => (Kind::Text, count(1)?),
        Marker::Str16 => (Kind::Text, count(2)?),
        Marker::Str32 => (Kind::Text, count(4)?),
        Marker::FixArray(length) => (Kind::Array, length.into()),
        Marker::Array16 => (Kind::Array, count(2)?),
        Marker::Array32 => (Kind::Array, count(4)?),
        Marker::FixMap(length) => (Kind::Map, length.into()),
        Marker::Map16 => (Kind::Map, count(2)?),
        Marker::Map32 => (Kind::Map, count(4)?),
        _ => return Err("Bad data format in input.".into()),
    };
    if kind == Kind::Text {
        let text = take(rest, usize::try_from(length).unwrap_or(usize::MAX))?;
        return Ok(Value::String(lua.create_string(text)?));
    }
    if level == LEVELS_MAX {
        return Err("Bad data format in input.".into());
    }
    let table = lua.create_table()?;
    for at in 1..=length {
        let key = match kind {
            Kind::Map => unpack_value(lua, rest, level + 1)?,
            _ => unsigned(at),
        };
        let value = unpack_value(lua, rest, level + 1)?;
        if key.is_nil() {
            return Err("table index is nil".into());
        }
        table.raw_set(key, value)?;
    }
    Ok(Value::Table(table))
}

/// The kind of a value with a length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Array,
    Map,
}
