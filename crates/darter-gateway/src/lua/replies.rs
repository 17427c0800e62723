//! Replies of commands as Lua values, and values of scripts as replies, as Redis converts them.

use super::library::{as_number, error_table, shape};
use super::numbers::truncated;
use crate::reply::Reply;
use mlua::{Lua, Table, Value};

/// Levels of tables in a reply.
const LEVELS_MAX: usize = 1000;

/// Returns a line of a reply and advances to the next.
fn line<'b>(rest: &mut &'b [u8]) -> &'b [u8] {
    let end = rest.windows(2).position(|two| two == b"\r\n").unwrap_or(rest.len());
    let line = &rest[..end];
    *rest = rest.get(end + 2..).unwrap_or_default();
    line
}

fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Returns a table with one field.
pub(super) fn single(lua: &Lua, name: &str, value: Value) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

/// Converts the next reply of a command.
pub(super) fn to_lua(lua: &Lua, rest: &mut &[u8]) -> mlua::Result<Value> {
    let head = line(rest);
    let (kind, text) = head.split_first().map_or((b'_', head), |(kind, text)| (*kind, text));
    let count = usize::try_from(text_of(text).parse().unwrap_or(-1_i64));
    Ok(match (kind, count) {
        (b'$' | b'*', Err(_)) => Value::Boolean(false),
        (b'$', Ok(bytes)) => Value::String(lua.create_string(bulk(rest, bytes))?),
        (b'=', Ok(bytes)) => {
            let (format, text) = bulk(rest, bytes).split_at_checked(4).unwrap_or_default();
            let verbatim = lua.create_table()?;
            verbatim.raw_set("format", lua.create_string(format.get(..3).unwrap_or_default())?)?;
            verbatim.raw_set("string", lua.create_string(text)?)?;
            single(lua, "verbatim_string", Value::Table(verbatim))?
        }
        (b'+', _) => single(lua, "ok", Value::String(lua.create_string(text)?))?,
        (b'-', _) => Value::Table(error_table(lua, head)?),
        (b':', _) => Value::Number(text_of(text).parse::<i64>().unwrap_or_default() as f64),
        (b'#', _) => Value::Boolean(text == b"t"),
        (b',', _) => single(lua, "double", Value::Number(text_of(text).parse().unwrap_or_default()))?,
        (b'(', _) => single(lua, "big_number", Value::String(lua.create_string(text)?))?,
        (b'*', Ok(count)) => {
            let table = lua.create_table_with_capacity(count, 0)?;
            for at in 1..=count {
                table.raw_set(at, to_lua(lua, rest)?)?;
            }
            Value::Table(table)
        }
        (b'%', Ok(count)) => {
            let table = lua.create_table()?;
            for _ in 0..count {
                let key = to_lua(lua, rest)?;
                table.raw_set(key, to_lua(lua, rest)?)?;
            }
            single(lua, "map", Value::Table(table))?
        }
        (b'~', Ok(count)) => {
            let table = lua.create_table()?;
            for _ in 0..count {
                table.raw_set(to_lua(lua, rest)?, true)?;
            }
            single(lua, "set", Value::Table(table))?
        }
        _ => Value::Nil,
    })
}

/// Takes the bytes of a bulk string.
fn bulk<'b>(rest: &mut &'b [u8], bytes: usize) -> &'b [u8] {
    let (bulk, after) = rest.split_at_checked(bytes).unwrap_or((rest, &[]));
    *rest = after.get(2..).unwrap_or_default();
    bulk
}

/// The value of a script does not become a reply.
pub(super) enum Unwritten {
    /// The reply is too long.
    TooLong,
    /// Lua failed.
    Lua(mlua::Error),
}

impl From<mlua::Error> for Unwritten {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

/// Writes a script's value as a reply.
pub(super) struct Writer<'r> {
    pub(super) reply: Reply<'r>,
    /// The script has chosen RESP3.
    pub(super) is_resp3: bool,
    pub(super) bytes_max: usize,
}

impl Writer<'_> {
    /// Writes the whole value.
    pub(super) fn write_all(mut self, value: &Value) -> Result<(), Unwritten> {
        self.write(value, 0)?;
        self.check()
    }

    fn check(&self) -> Result<(), Unwritten> {
        if self.reply.written() > self.bytes_max { Err(Unwritten::TooLong) } else { Ok(()) }
    }

    fn write(&mut self, value: &Value, level: usize) -> Result<(), Unwritten> {
        self.check()?;
        match value {
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Boolean(flag) if self.is_resp3 => self.reply.boolean(*flag),
            Value::Boolean(true) => self.reply.integer(1),
            Value::Integer(_) | Value::Number(_) => {
                self.reply.integer(truncated(as_number(value).unwrap_or_default()));
            }
            Value::Table(_) if level == LEVELS_MAX => self.reply.error("ERR reached lua stack limit"),
            Value::Table(table) => self.table(table, level + 1)?,
            _ => self.reply.null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, level: usize) -> Result<(), Unwritten> {
        if let Value::String(text) = table.raw_get("err")? {
            self.reply.error(&text.to_string_lossy());
        } else if let Value::String(text) = table.raw_get("ok")? {
            self.reply.simple(&text.to_string_lossy().replace(['\r', '\n'], " "));
        } else if let Some(number) = number_in(table)? {
            self.reply.double(number);
        } else if let Value::String(text) = table.raw_get("big_number")? {
            self.reply.big_number(&text.to_string_lossy().replace(['\r', '\n'], " "));
        } else if let Some((format, text)) = verbatim_in(table)? {
            self.reply.verbatim(&format, &text);
        } else if let Value::Table(pairs) = table.raw_get("map")? {
            let (start, mut count) = (self.reply.position(), 0);
            for pair in pairs.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.write(&key, level)?;
                self.write(&value, level)?;
                count += 1;
            }
            self.reply.map_from(start, count);
        } else if let Value::Table(members) = table.raw_get("set")? {
            self.reply.set(shape(&members)?.0);
            for pair in members.pairs::<Value, Value>() {
                self.write(&pair?.0, level)?;
            }
        } else {
            let (start, mut count) = (self.reply.position(), 0);
            loop {
                let value: Value = table.raw_get(count + 1)?;
                if value.is_nil() {
                    break;
                }
                self.write(&value, level)?;
                count += 1;
            }
            self.reply.array_from(start, count);
        }
        Ok(())
    }
}

fn number_in(table: &Table) -> mlua::Result<Option<f64>> {
    let value: Value = table.raw_get("double")?;
    Ok(matches!(value, Value::Integer(_) | Value::Number(_)).then(|| as_number(&value)).flatten())
}

fn verbatim_in(table: &Table) -> mlua::Result<Option<(String, Vec<u8>)>> {
    let Value::Table(verbatim) = table.raw_get("verbatim_string")? else { return Ok(None) };
    match (verbatim.raw_get("format")?, verbatim.raw_get("string")?) {
        (Value::String(format), Value::String(text)) => {
            Ok(Some((format.to_string_lossy(), text.as_bytes().to_vec())))
        }
        _ => Ok(None),
    }
}
