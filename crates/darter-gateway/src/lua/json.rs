//! The library `cjson` of scripts: JSON with the options, numbers and errors of lua-cjson 2.1.
//! Strings may hold any bytes.

use super::json_parser::Parser;
use super::library::{
    Answer, Changed, Library, NULL, Trouble, as_number, bad_argument, integer, shape, string, type_name,
};
use crate::number::{general, signed};
use mlua::{Lua, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// Most levels of tables, by default.
const DEPTH_MAX: usize = 1000;
/// Most levels for which there is a stack.
const DEPTH_POSSIBLE: usize = 4000;

/// How infinity and NaN are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

/// The options, which scripts can change.
#[derive(Debug)]
struct Options {
    /// Whether sparse arrays are encoded as objects.
    converts_sparse: bool,
    /// An array is sparse if its last index exceeds this many times its number of elements.
    sparse_ratio: i64,
    /// Arrays with lower last indexes are not sparse.
    sparse_safe: i64,
    encode_depth_max: usize,
    decode_depth_max: usize,
    /// Significant digits of numbers.
    precision: usize,
    encode_invalid: Invalid,
    decodes_invalid: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            converts_sparse: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: DEPTH_MAX,
            decode_depth_max: DEPTH_MAX,
            precision: 14,
            encode_invalid: Invalid::Refused,
            decodes_invalid: true,
        }
    }
}

/// Adds the library's functions.
pub(super) fn add(library: &Library<'_>) -> mlua::Result<()> {
    let options = Rc::new(RefCell::new(Options::default()));
    let own = Rc::clone(&options);
    library.add("encode", move |lua, args| {
        let [value] = args else { return Err(bad_argument(0, "encode", "expected 1 argument")) };
        let mut text = Vec::new();
        encode(&mut text, &own.borrow(), value, 0)?;
        Ok(vec![Value::String(lua.create_string(text)?)])
    })?;
    let own = Rc::clone(&options);
    library.add("decode", move |lua, args| {
        let [_] = args else { return Err(bad_argument(0, "decode", "expected 1 argument")) };
        let text = string(lua, args, 0, "decode")?;
        let Options { decode_depth_max, decodes_invalid, .. } = *own.borrow();
        Ok(vec![
            Parser::new(lua, &text.as_bytes(), decode_depth_max.min(DEPTH_POSSIBLE), decodes_invalid)
                .document()?,
        ])
    })?;
    add_settings(library, &options)
}

/// Adds the functions that change options. They return the options' values.
fn add_settings(library: &Library<'_>, options: &Rc<RefCell<Options>>) -> mlua::Result<()> {
    let setting = |name: &'static str, set: fn(&Lua, &mut Options, &[Value]) -> Answer| {
        let own = Rc::clone(options);
        library.add(name, move |lua, args| {
            lua.set_app_data(Changed);
            set(lua, &mut own.borrow_mut(), args)
        })
    };
    setting("encode_sparse_array", |_, options, args| {
        const NAME: &str = "encode_sparse_array";
        if let Some(Value::Boolean(converts)) = args.first() {
            options.converts_sparse = *converts;
        }
        options.sparse_ratio = integer(args, 1, NAME, Some(options.sparse_ratio))?;
        options.sparse_safe = integer(args, 2, NAME, Some(options.sparse_safe))?;
        let numbers = [options.sparse_ratio, options.sparse_safe].map(Value::Integer);
        Ok([Value::Boolean(options.converts_sparse)].into_iter().chain(numbers).collect())
    })?;
    setting("encode_max_depth", |_, options, args| {
        depth(&mut options.encode_depth_max, args, "encode_max_depth")
    })?;
    setting("decode_max_depth", |_, options, args| {
        depth(&mut options.decode_depth_max, args, "decode_max_depth")
    })?;
    setting("encode_number_precision", |_, options, args| {
        let digits = integer(args, 0, "encode_number_precision", Some(signed(options.precision)))?;
        if !(1..=16).contains(&digits) {
            let why = "expected integer between 1 and 16";
            return Err(bad_argument(0, "encode_number_precision", why));
        }
        options.precision = digits as usize;
        Ok(vec![Value::Integer(digits)])
    })?;
    setting("encode_invalid_numbers", |lua, options, args| {
        options.encode_invalid = match args.first() {
            None | Some(Value::Nil) => options.encode_invalid,
            Some(Value::Boolean(true)) => Invalid::Written,
            Some(Value::String(text)) if *text.as_bytes() == *b"null" => Invalid::Null,
            Some(_) => Invalid::Refused,
        };
        Ok(vec![match options.encode_invalid {
            Invalid::Null => Value::String(lua.create_string("null")?),
            other => Value::Boolean(other == Invalid::Written),
        }])
    })?;
    setting("decode_invalid_numbers", |_, options, args| {
        if let Some(Value::Boolean(decodes)) = args.first() {
            options.decodes_invalid = *decodes;
        }
        Ok(vec![Value::Boolean(options.decodes_invalid)])
    })?;
    // The buffer is never kept.
    setting("encode_keep_buffer", |_, _, args| {
        Ok(vec![args.first().cloned().unwrap_or(Value::Boolean(true))])
    })
}

fn depth(depth_max: &mut usize, args: &[Value], function: &str) -> Answer {
    let levels = integer(args, 0, function, Some(signed(*depth_max)))?;
    if !(1..=i64::from(i32::MAX)).contains(&levels) {
        return Err(bad_argument(0, function, "expected integer between 1 and 2147483647"));
    }
    *depth_max = levels as usize;
    Ok(vec![Value::Integer(levels)])
}

fn cannot(value: &Value, why: &str) -> Trouble {
    format!("Cannot serialise {}: {why}", type_name(Some(value))).into()
}

fn encode(text: &mut Vec<u8>, options: &Options, value: &Value, depth: usize) -> Result<(), Trouble> {
    match value {
        Value::String(string) => encode_string(text, &string.as_bytes()),
        Value::Integer(_) | Value::Number(_) => encode_number(text, options, value)?,
        Value::Boolean(flag) => text.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Value::Table(table) => {
            let depth = depth + 1;
            if depth > options.encode_depth_max.min(DEPTH_POSSIBLE) {
                return Err(format!("Cannot serialise, excessive nesting ({depth})").into());
            }
            encode_table(text, options, table, depth)?;
        }
        Value::Nil => text.extend_from_slice(b"null"),
        null if *null == NULL => text.extend_from_slice(b"null"),
        other => return Err(cannot(other, "type not supported")),
    }
    Ok(())
}

fn encode_string(text: &mut Vec<u8>, string: &[u8]) {
    text.push(b'"');
    for &byte in string {
        let escape = match byte {
            b'"' | b'\\' | b'/' => byte,
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0c => b'f',
            b'\r' => b'r',
            0..0x20 | 0x7f => {
                text.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                continue;
            }
            _ => {
                text.push(byte);
                continue;
            }
        };
        text.extend_from_slice(&[b'\\', escape]);
    }
    text.push(b'"');
}

fn encode_number(text: &mut Vec<u8>, options: &Options, value: &Value) -> Result<(), Trouble> {
    let number = as_number(value).unwrap_or_default();
    match options.encode_invalid {
        _ if number.is_finite() => {}
        Invalid::Refused => return Err(cannot(value, "must not be NaN or Inf")),
        Invalid::Written if number.is_nan() => {
            text.extend_from_slice(b"nan");
            return Ok(());
        }
        Invalid::Written => {}
        Invalid::Null => {
            text.extend_from_slice(b"null");
            return Ok(());
        }
    }
    text.extend_from_slice(general(number, options.precision).as_bytes());
    Ok(())
}

/// Encodes a table as an array if all its keys are positive integers, else as an object. An empty
/// table is an object.
fn encode_table(text: &mut Vec<u8>, options: &Options, table: &Table, depth: usize) -> Result<(), Trouble> {
    let (count, last) = shape(table)?;
    let is_sparse = |last: i64| {
        options.sparse_ratio > 0
            && last > signed(count).saturating_mul(options.sparse_ratio)
            && last > options.sparse_safe
    };
    if last.is_some_and(is_sparse) && !options.converts_sparse {
        return Err(cannot(&Value::Table(table.clone()), "excessively sparse array"));
    }
    if let Some(last) = last.filter(|last| *last > 0 && !is_sparse(*last)) {
        text.push(b'[');
        for at in 1..=last {
            if at > 1 {
                text.push(b',');
            }
            encode(text, options, &table.raw_get::<Value>(at)?, depth)?;
        }
        text.push(b']');
        return Ok(());
    }
    text.push(b'{');
    for (number, pair) in table.pairs::<Value, Value>().enumerate() {
        let (key, value) = pair?;
        if number > 0 {
            text.push(b',');
        }
        match &key {
            Value::String(name) => encode_string(text, &name.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                text.push(b'"');
                encode_number(text, options, &key)?;
                text.push(b'"');
            }
            other => return Err(cannot(other, "table key must be a number or string")),
        }
        text.push(b':');
        encode(text, options, &value, depth)?;
    }
    text.push(b'}');
    Ok(())
}
