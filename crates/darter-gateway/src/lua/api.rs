//! The functions that scripts call, and the state that they share.

use super::library::{
    Answer, Library, Trouble, as_number, bad_argument, caught, error_table, integer, number, string,
};
use super::replies::{single, to_lua};
use super::task::{Ask, Link, Loaded};
use super::{Stop, Words, bits, cache, json, msgpack, numbers, pack};
use crate::REDIS_VERSION;
use crate::number::general;
use mlua::{Function, Lua, LuaString, Table, Value};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The name of `prelude.lua`.
pub(super) const PRELUDE: &str = "=prelude";

/// The state that the functions of a script share.
#[derive(Default)]
pub(super) struct Context {
    pub(super) link: RefCell<Option<Link>>,
    /// The script has chosen RESP3.
    pub(super) is_resp3: Cell<bool>,
    /// The state of the random numbers, of which 48 bits are used.
    pub(super) random: Cell<u64>,
    /// A library is being loaded.
    pub(super) is_loading: Cell<bool>,
    pub(super) functions: RefCell<Vec<(Loaded, Function)>>,
}

impl Context {
    /// Fails if the script must stop.
    pub(super) fn check(&self) -> mlua::Result<()> {
        match self.link.borrow().as_ref().and_then(|link| link.control.stopped()) {
            Some(_) => Err(mlua::Error::runtime("the script was stopped")),
            None => Ok(()),
        }
    }

    /// Fails if an error is the end of the script, which it may not catch.
    fn check_caught(&self, error: &Value) -> mlua::Result<()> {
        if let Some(link) = &*self.link.borrow()
            && is_memory_error(error)
        {
            link.control.stop(Stop::Memory);
        }
        self.check()
    }
}

pub(super) fn is_memory_error(error: &Value) -> bool {
    match error {
        Value::String(text) => *text.as_bytes() == *b"not enough memory",
        Value::Error(error) => lacks_memory(error),
        _ => false,
    }
}

pub(super) fn lacks_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } => lacks_memory(cause),
        _ => false,
    }
}

/// Creates the functions that `prelude.lua` gets.
pub(super) fn functions(lua: &Lua, context: &Rc<Context>) -> mlua::Result<Table> {
    let rust = Library::new(lua)?;
    let shared = |f: fn(&Lua, &Context, &[Value]) -> Answer| {
        let own = Rc::clone(context);
        move |lua: &Lua, args: &[Value]| f(lua, &own, args)
    };
    rust.add("register_function", shared(register_function))?;
    rust.add("random", shared(random))?;
    rust.add(
        "randomseed",
        shared(|_, context, args| {
            let seed = numbers::truncated(number(args, 0, "randomseed")?) as u32;
            context.random.set(u64::from(seed) << 16 | 0x330e);
            Ok(Vec::new())
        }),
    )?;
    let own = Rc::clone(context);
    let reason = move |lua: &Lua, error: Value| {
        own.check_caught(&error)?;
        caught(lua, error)
    };
    rust.table.raw_set("reason", lua.create_function(reason)?)?;
    rust.table.raw_set("position", lua.create_function(|lua, ()| Ok(position(lua)))?)?;
    let start = std::time::Instant::now();
    let clock = lua.create_function(move |_, ()| Ok(start.elapsed().as_secs_f64()))?;
    rust.table.raw_set("clock", clock)?;
    rust.table.raw_set("null", super::library::NULL)?;
    rust.table.raw_set("version", REDIS_VERSION)?;
    rust.table.raw_set("version_number", version_number())?;
    let api = Library::new(lua)?;
    add_api(&api, context)?;
    rust.table.raw_set("api", api.table)?;
    for (name, add) in [
        ("bit", bits::add as fn(&Library<'_>) -> mlua::Result<()>),
        ("cjson", json::add),
        ("cmsgpack", msgpack::add),
        ("struct", pack::add),
    ] {
        let library = Library::new(lua)?;
        add(&library)?;
        rust.table.raw_set(name, library.table)?;
    }
    Ok(rust.table)
}

/// Returns the version of Redis as a number, a byte for each part.
fn version_number() -> i64 {
    let parts = REDIS_VERSION.split('.').map(|part| part.parse().unwrap_or(0));
    parts.fold(0, |number, part: i64| number << 8 | part)
}

/// `math.random`.
fn random(_: &Lua, context: &Context, args: &[Value]) -> Answer {
    let drawn = draw(context);
    let bound = |at| Ok::<_, Trouble>(f64::from(integer(args, at, "random", None)? as i32));
    let (low, high) = match args.len() {
        0 => return Ok(vec![Value::Number(drawn)]),
        1 => (1.0, bound(0)?),
        2 => (bound(0)?, bound(1)?),
        _ => return Err("wrong number of arguments".into()),
    };
    if low > high {
        return Err(bad_argument(args.len() - 1, "random", "interval is empty"));
    }
    Ok(vec![Value::Number((drawn * (high - low + 1.0)).floor() + low)])
}

/// Draws a number from 0 to 1, without 1, as `lrand48` does.
fn draw(context: &Context) -> f64 {
    let next = context.random.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & ((1 << 48) - 1);
    context.random.set(next);
    let max = u64::from(i32::MAX.cast_unsigned());
    ((next >> 17) % max) as f64 / max as f64
}

/// Returns the source and the line of the innermost function of the script.
fn position(lua: &Lua) -> (Option<String>, usize) {
    for level in 2.. {
        let frame = lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let is_script = source.what != "C" && source.what != "tail";
            let name = source.source.map(Cow::into_owned).filter(|_| is_script);
            (name, frame.current_line().unwrap_or_default())
        });
        match frame {
            None => break,
            Some((Some(name), line)) if name != PRELUDE => return (Some(name), line),
            Some(_) => {}
        }
    }
    (None, 0)
}

/// Returns an error without a code.
fn coded(text: impl Into<Vec<u8>>) -> Trouble {
    Trouble::Coded(text.into())
}

/// Sends a command to the client's task, and returns the reply.
fn command(context: &Context, args: &[Value], ask: impl FnOnce(Words) -> Ask) -> Result<Vec<u8>, Trouble> {
    if args.is_empty() {
        return Err(coded("Please specify at least one argument for this redis lib call"));
    }
    let mut words = Words::default();
    for arg in args {
        match arg {
            Value::String(text) => words.push(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                words.push(general(as_number(arg).unwrap_or_default(), 17).as_bytes());
            }
            _ => return Err(coded("Lua redis lib command arguments must be strings or integers")),
        }
    }
    context.check()?;
    let link = context.link.borrow();
    let Some(link) = link.as_ref() else {
        return Err(coded("redis.call/pcall can only be called inside a script invocation"));
    };
    let is_sent = link.asks.send(ask(words)).is_ok();
    let reply = is_sent.then(|| link.answers.recv().ok()).flatten();
    match &reply {
        None => link.control.stop(Stop::Abandoned),
        Some(reply) if reply.len() > link.memory_max => link.control.stop(Stop::Memory),
        Some(_) => {}
    }
    context.check()?;
    Ok(reply.unwrap_or_default())
}

/// `redis.call`.
fn call(lua: &Lua, context: &Context, args: &[Value]) -> Answer {
    let reply = command(context, args, |words| Ask::Command(words, context.is_resp3.get()))?;
    match reply.strip_suffix(b"\r\n") {
        Some(error) if error.starts_with(b"-") => Err(coded(error)),
        _ => Ok(vec![to_lua(lua, &mut &reply[..])?]),
    }
}

/// `redis.pcall`.
fn pcall(lua: &Lua, context: &Context, args: &[Value]) -> Answer {
    match command(context, args, |words| Ask::Command(words, context.is_resp3.get())) {
        Ok(reply) => Ok(vec![to_lua(lua, &mut &reply[..])?]),
        Err(Trouble::Coded(text)) => Ok(vec![Value::Table(error_table(lua, &text)?)]),
        Err(other) => Err(other),
    }
}

/// Adds the functions of `redis`.
fn add_api(api: &Library<'_>, context: &Rc<Context>) -> mlua::Result<()> {
    let own = Rc::clone(context);
    api.add("call", move |lua, args| call(lua, &own, args))?;
    let own = Rc::clone(context);
    api.add("pcall", move |lua, args| pcall(lua, &own, args))?;
    api.add("sha1hex", |lua, args| {
        let [_] = args else { return Err(coded("wrong number of arguments")) };
        let text = string(lua, args, 0, "sha1hex").map(|text| text.as_bytes().to_vec());
        Ok(vec![Value::String(lua.create_string(cache::digest(&text.unwrap_or_default()))?)])
    })?;
    api.add("error_reply", |lua, args| {
        let [Value::String(text)] = args else { return wrong_reply(lua) };
        let text = text.as_bytes();
        let coded = if text.starts_with(b"-") { text.to_vec() } else { [b"-", &text[..]].concat() };
        Ok(vec![Value::Table(error_table(lua, &coded)?)])
    })?;
    api.add("status_reply", |lua, args| match args {
        [text @ Value::String(_)] => Ok(vec![single(lua, "ok", text.clone())?]),
        _ => wrong_reply(lua),
    })?;
    api.add("log", log)?;
    let own = Rc::clone(context);
    api.add("setresp", move |_, args| {
        let [version] = args else { return Err(coded("redis.setresp() requires one argument.")) };
        let version = as_number(version).map(numbers::truncated);
        let is_known = matches!(version, Some(2 | 3));
        own.is_resp3.set(version == Some(3));
        if is_known { Ok(Vec::new()) } else { Err(coded("RESP version must be 2 or 3.")) }
    })?;
    // There is neither a debugger nor replication.
    api.add("breakpoint", |_, _| Ok(vec![Value::Boolean(false)]))?;
    api.add("debug", |_, _| Ok(Vec::new()))?;
    api.add("replicate_commands", |_, _| Ok(vec![Value::Boolean(true)]))?;
    api.add("set_repl", |_, args| {
        let [flags] = args else { return Err(coded("redis.set_repl() requires two arguments.")) };
        let is_known = (0..=3).contains(&as_number(flags).map_or(0, numbers::truncated));
        let wrong = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        if is_known { Ok(Vec::new()) } else { Err(coded(wrong)) }
    })?;
    let own = Rc::clone(context);
    api.add("acl_check_cmd", move |_, args| match &command(&own, args, Ask::Permission)?[..] {
        b":1\r\n" => Ok(vec![Value::Boolean(true)]),
        b":0\r\n" => Ok(vec![Value::Boolean(false)]),
        _ => Err(coded("Invalid command passed to redis.acl_check_cmd()")),
    })
}

fn wrong_reply(lua: &Lua) -> Answer {
    Ok(vec![Value::Table(error_table(lua, b"wrong number or type of arguments")?)])
}

/// `redis.log`. Scripts' messages are part of the gateway's log at the level debug.
fn log(lua: &Lua, args: &[Value]) -> Answer {
    if args.len() < 2 {
        return Err(coded("redis.log() requires two arguments or more."));
    }
    let Some(level) = as_number(&args[0]).map(numbers::truncated) else {
        return Err(coded("First argument must be a number (log level)."));
    };
    if !(0..=3).contains(&level) {
        return Err(coded("Invalid debug level."));
    }
    let words: Vec<String> = (1..args.len())
        .filter_map(|at| string(lua, args, at, "log").ok().map(|text| text.to_string_lossy()))
        .collect();
    tracing::debug!(level, message = words.join(" "), "a script's message");
    Ok(Vec::new())
}

/// Returns the error for a wrong name of a library or a function, if it is wrong.
pub(crate) fn wrong_name(name: &str) -> Option<&'static str> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (name.is_empty() || !name.bytes().all(is_valid)).then_some(
        "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
    )
}

/// `redis.register_function`.
fn register_function(_: &Lua, context: &Context, args: &[Value]) -> Answer {
    if !context.is_loading.get() {
        return Err(coded("redis.register_function can only be called on FUNCTION LOAD command"));
    }
    let (loaded, callback) = match args {
        [Value::Table(named)] => named_arguments(named).map_err(without_position)?,
        [_] => {
            let text = "calling redis.register_function with a single argument is only applicable to Lua table \
                        (representing named arguments).";
            return Err(coded(text));
        }
        [name, callback] => {
            let Some(name) = text_in(name) else {
                return Err(coded("first argument to redis.register_function must be a string"));
            };
            let Value::Function(callback) = callback else {
                return Err(coded("second argument to redis.register_function must be a function"));
            };
            (Loaded { name, description: None, flags: Vec::new() }, callback.clone())
        }
        _ => return Err(coded("wrong number of arguments to redis.register_function")),
    };
    if let Some(why) = wrong_name(&loaded.name) {
        return Err(coded(why));
    }
    let mut functions = context.functions.borrow_mut();
    if functions.iter().any(|(other, _)| other.name.eq_ignore_ascii_case(&loaded.name)) {
        return Err(coded("Function already exists in the library"));
    }
    functions.push((loaded, callback));
    Ok(Vec::new())
}

/// Returns an error without the position in the script.
fn without_position(why: Trouble) -> Trouble {
    match why {
        Trouble::Said(text) => coded(text),
        other => other,
    }
}

fn text_in(value: &Value) -> Option<String> {
    value.as_string().map(LuaString::to_string_lossy)
}

/// Parses the named arguments of `redis.register_function`.
fn named_arguments(named: &Table) -> Result<(Loaded, Function), Trouble> {
    let (mut name, mut description, mut flags, mut callback) = (None, None, Vec::new(), None);
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let key =
            text_in(&key).ok_or("named argument key given to redis.register_function is not a string")?;
        let must_be_text =
            |key: &str| format!("{key} argument given to redis.register_function must be a string");
        match (&*key.to_ascii_lowercase(), &value) {
            ("function_name", value) => name = Some(text_in(value).ok_or(must_be_text("function_name"))?),
            ("description", value) => description = Some(text_in(value).ok_or(must_be_text("description"))?),
            ("callback", Value::Function(function)) => callback = Some(function.clone()),
            ("callback", _) => {
                return Err("callback argument given to redis.register_function must be a function".into());
            }
            ("flags", Value::Table(list)) => {
                for flag in list.sequence_values::<Value>() {
                    let flag = text_in(&flag?).filter(|flag| cache::FLAGS.contains(&&**flag));
                    flags.push(flag.ok_or("unknown flag given")?);
                }
            }
            ("flags", _) => {
                let text =
                    "flags argument to redis.register_function must be a table representing function flags";
                return Err(text.into());
            }
            _ => return Err("unknown argument given to redis.register_function".into()),
        }
    }
    let name = name.ok_or("redis.register_function must get a function name argument")?;
    let callback = callback.ok_or("redis.register_function must get a callback argument")?;
    Ok((Loaded { name, description, flags }, callback))
}
