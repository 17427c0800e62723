//! How functions written in Rust are made available to scripts, and their arguments and errors.
//!
//! In Lua, the error of such a function is an object of the library mlua. When a script catches it,
//! `prelude.lua` replaces it with the string or the table that Redis would have raised
//! ([`caught`]).

use mlua::{LightUserData, Lua, LuaString, MultiValue, Table, Value};

/// The error of a function.
#[derive(Debug)]
pub(super) enum Trouble {
    /// A string for the script, to which the position in the script is added.
    Said(String),
    /// A table for the script, with a text that begins with a minus sign and its code, or without
    /// a code.
    Coded(Vec<u8>),
    /// The end of the script, or the lack of memory.
    Ends(mlua::Error),
}

/// An error on its way through Lua.
#[derive(Debug, thiserror::Error)]
#[error("{}", String::from_utf8_lossy(text))]
struct Raised {
    text: Vec<u8>,
    is_table: bool,
}

/// Returns the table for an error that begins with its code, and with a minus sign if the code is
/// not `ERR`.
pub(super) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let text = match text.strip_prefix(b"-") {
        Some(coded) if coded.contains(&b' ') => coded.to_vec(),
        Some(text) => [b"ERR ", text].concat(),
        None => [b"ERR ", text].concat(),
    };
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text.trim_ascii_end())?)?;
    Ok(table)
}

/// Returns the value that a script gets for an error that it has caught.
pub(super) fn caught(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let Value::Error(wrapped) = &error else { return Ok(error) };
    match wrapped.downcast_ref::<Raised>() {
        Some(Raised { text, is_table: true }) => Ok(Value::Table(error_table(lua, text)?)),
        Some(Raised { text, .. }) => Ok(Value::String(lua.create_string(text)?)),
        None => Ok(Value::String(lua.create_string(without_traceback(wrapped).to_string())?)),
    }
}

/// Returns the cause of an error of a function written in Rust.
fn without_traceback(error: &mlua::Error) -> &mlua::Error {
    match error {
        mlua::Error::CallbackError { cause, .. } => without_traceback(cause),
        other => other,
    }
}

/// Returns the position of the function that called the current one, as Lua writes it before
/// errors.
fn caller(lua: &Lua) -> String {
    let position = lua.inspect_stack(1, |frame| {
        let (source, line) = (frame.source().short_src?.into_owned(), frame.current_line()?);
        Some(format!("{source}:{line}: "))
    });
    position.flatten().unwrap_or_default()
}

impl From<mlua::Error> for Trouble {
    fn from(error: mlua::Error) -> Self {
        Self::Ends(error)
    }
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self::Said(text)
    }
}

impl From<&str> for Trouble {
    fn from(text: &str) -> Self {
        Self::Said(text.to_owned())
    }
}

/// The results of a function.
pub(super) type Answer = Result<Vec<Value>, Trouble>;

/// A table of functions that is being filled.
pub(super) struct Library<'l> {
    pub(super) lua: &'l Lua,
    pub(super) table: Table,
}

impl<'l> Library<'l> {
    /// Begins an empty library.
    pub(super) fn new(lua: &'l Lua) -> mlua::Result<Self> {
        Ok(Self { lua, table: lua.create_table()? })
    }

    /// Adds a function.
    pub(super) fn add(&self, name: &str, f: impl Fn(&Lua, &[Value]) -> Answer + 'static) -> mlua::Result<()> {
        let f = self.lua.create_function(move |lua, args: MultiValue| {
            let args: Vec<Value> = args.into_iter().collect();
            let (text, is_table) = match f(lua, &args) {
                Ok(values) => return Ok(MultiValue::from_vec(values)),
                Err(Trouble::Said(text)) => ((caller(lua) + &text).into_bytes(), false),
                Err(Trouble::Coded(text)) => (text, true),
                Err(Trouble::Ends(error)) => return Err(error),
            };
            Err(mlua::Error::external(Raised { text, is_table }))
        })?;
        self.table.raw_set(name, f)
    }
}

/// In the app data of a state in which a script has changed an option of a library.
pub(super) struct Changed;

/// The null that `cjson` uses in tables.
pub(super) const NULL: Value = Value::LightUserData(LightUserData(std::ptr::null_mut()));

/// Returns the number of a table's pairs, and its last index if all its keys are positive integers.
///
/// Values of a table must not be collected: mlua has room for some thousands at a time.
pub(super) fn shape(table: &Table) -> mlua::Result<(usize, Option<i64>)> {
    let (mut count, mut last) = (0, Some(0));
    for pair in table.pairs::<Value, Value>() {
        count += 1;
        last = match pair?.0 {
            Value::Integer(index) if index > 0 => last.map(|last| index.max(last)),
            _ => None,
        };
    }
    Ok((count, last))
}

/// Returns the name of a value's type in Lua's words; of a missing argument, `no value`.
pub(super) fn type_name(value: Option<&Value>) -> &'static str {
    match value {
        None => "no value",
        Some(Value::Nil) => "nil",
        Some(Value::Boolean(_)) => "boolean",
        Some(Value::Integer(_) | Value::Number(_)) => "number",
        Some(Value::String(_)) => "string",
        Some(Value::Table(_)) => "table",
        Some(Value::Function(_)) => "function",
        Some(Value::Thread(_)) => "thread",
        Some(_) => "userdata",
    }
}

/// Returns the error for a wrong argument.
pub(super) fn bad_argument(at: usize, function: &str, why: &str) -> Trouble {
    Trouble::Said(format!("bad argument #{} to '{function}' ({why})", at + 1))
}

fn wrong_type(args: &[Value], at: usize, function: &str, expected: &str) -> Trouble {
    let got = type_name(args.get(at));
    bad_argument(at, function, &format!("{expected} expected, got {got}"))
}

/// Returns a value as a number, as Lua converts it.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        Value::String(text) => crate::score::parse(text.as_bytes().trim_ascii()),
        _ => None,
    }
}

/// Returns an argument that must be a number.
pub(super) fn number(args: &[Value], at: usize, function: &str) -> Result<f64, Trouble> {
    args.get(at).and_then(as_number).ok_or_else(|| wrong_type(args, at, function, "number"))
}

/// Returns an argument that must be an integer, or a default if it is missing.
pub(super) fn integer(
    args: &[Value],
    at: usize,
    function: &str,
    default: Option<i64>,
) -> Result<i64, Trouble> {
    match (args.get(at), default) {
        (None | Some(Value::Nil), Some(default)) => Ok(default),
        _ => number(args, at, function).map(super::numbers::truncated),
    }
}

/// Returns an argument that must be a string or a number.
pub(super) fn string(lua: &Lua, args: &[Value], at: usize, function: &str) -> Result<LuaString, Trouble> {
    match args.get(at) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(number @ (Value::Integer(_) | Value::Number(_))) => {
            let text = crate::number::general(as_number(number).unwrap_or_default(), 14);
            Ok(lua.create_string(text)?)
        }
        _ => Err(wrong_type(args, at, function, "string")),
    }
}
