//! A Lua state for the runs of one script, and the functions that scripts call.

use super::library::{
    Answer, Changed, Library, Trouble, as_number, bad_argument, caught, error_table, integer, number, string,
};
use super::replies::{Unwritten, Writer, single, to_lua};
use super::task::{Ask, Invocation, Link, Loaded, Outcome, Task};
use super::{Stop, Words, bits, cache, json, msgpack, numbers, pack};
use crate::REDIS_VERSION;
use crate::number::general;
use crate::reply::Reply;
use darter_fabric::wire::Outbox;
use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, Value, VmState};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// Instructions of Lua between two checks whether the script must stop.
const CHECK_INTERVAL: u32 = 10_000;
/// The names of scripts and functions in messages.
const SCRIPT: &str = "@user_script";
const FUNCTION: &str = "@user_function";
/// The name of `prelude.lua`.
const PRELUDE: &str = "=prelude";

/// Most bytes of a state that is kept for the next run. A new one has about 100 KiB.
const KEPT_BYTES: usize = 512 << 10;
/// The next run in the same state may find traces of a script that has one of these names. All else
/// that a script can reach is new in each run, or read-only, or checked after the run.
const TRACES: [&[u8]; 8] = [
    b"_G",
    b"collectgarbage",
    b"getfenv",
    b"getmetatable",
    b"load",
    b"loadstring",
    b"setfenv",
    b"setmetatable",
];

/// The state that the functions of a script share.
#[derive(Default)]
pub(super) struct Context {
    link: RefCell<Option<Link>>,
    /// The script has chosen RESP3.
    is_resp3: Cell<bool>,
    /// The state of the random numbers, of which 48 bits are used.
    random: Cell<u64>,
    /// A library is being loaded.
    is_loading: Cell<bool>,
    functions: RefCell<Vec<(Loaded, Function)>>,
}

impl Context {
    /// Fails if the script must stop.
    fn check(&self) -> mlua::Result<()> {
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

fn is_memory_error(error: &Value) -> bool {
    match error {
        Value::String(text) => *text.as_bytes() == *b"not enough memory",
        Value::Error(error) => lacks_memory(error),
        _ => false,
    }
}

fn lacks_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } => lacks_memory(cause),
        _ => false,
    }
}

/// A Lua state.
pub(super) struct Machine {
    lua: Lua,
    context: Rc<Context>,
    set_keys: Function,
    set_loading: Function,
    run: Function,
    is_untouched: Function,
    /// The script that the state is for, if it can be kept.
    script: RefCell<Option<(Arc<Vec<u8>>, Function)>>,
    /// Lua 5.1 does not keep the names while it parses.
    _names: [LuaString; 2],
}

impl Machine {
    /// Creates a state.
    pub(super) fn new() -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::new())?;
        let context = Rc::new(Context::default());
        let rust = functions(&lua, &context)?;
        let entries: Table = prelude(&lua)?.call(rust)?;
        let entry = |name| entries.raw_get::<Function>(name);
        let (set_keys, set_loading, run) = (entry("set_keys")?, entry("set_loading")?, entry("run")?);
        let is_untouched = entry("is_untouched")?;
        let names = [lua.create_string(SCRIPT)?, lua.create_string(FUNCTION)?];
        let own = Rc::clone(&context);
        let triggers = HookTriggers::new().every_nth_instruction(CHECK_INTERVAL);
        lua.set_global_hook(triggers, move |_, _| own.check().map(|()| VmState::Continue))?;
        let script = RefCell::default();
        Ok(Self { lua, context, set_keys, set_loading, run, is_untouched, script, _names: names })
    }

    /// Returns whether this is the state of a task's script.
    pub(super) fn is_for(&self, task: &Task) -> bool {
        let Task::Call(invocation) = task else { return false };
        self.script.borrow().as_ref().is_some_and(|(code, _)| *code == invocation.code)
    }

    /// Does a thread's work. Another call must be for the same script. Returns whether there may be
    /// another one.
    pub(super) fn perform(&self, task: &Task, link: Link) -> (Outcome, bool) {
        let outcome = self.end_of(task, link);
        *self.context.link.borrow_mut() = None;
        let goes_on = self.script.borrow().is_some()
            && matches!(outcome, Outcome::Replied(_))
            && self.lua.used_memory() <= KEPT_BYTES
            && self.lua.app_data_ref::<Changed>().is_none()
            && self.is_untouched.call(()).unwrap_or(false);
        (outcome, goes_on)
    }

    fn end_of(&self, task: &Task, link: Link) -> Outcome {
        let (control, memory_max) = (Arc::clone(&link.control), link.memory_max);
        *self.context.link.borrow_mut() = Some(link);
        self.context.is_resp3.set(false);
        self.context.random.set(darter_fabric::random_word());
        let done = self.lua.set_memory_limit(memory_max).and_then(|_| match task {
            Task::Compile(code) => Ok(match self.compile(code, SCRIPT) {
                Ok(_) => Outcome::Loaded(Vec::new()),
                Err(error) => failed_to_compile(SCRIPT, &error),
            }),
            Task::Load(code) => self.load(code),
            Task::Call(invocation) => self.call(invocation),
        });
        match (control.stopped(), done) {
            (Some(stop), _) => Outcome::Stopped(stop),
            (None, Err(error)) if lacks_memory(&error) => Outcome::Stopped(Stop::Memory),
            (None, Err(error)) => Outcome::Failed(format!("ERR {error}")),
            (None, Ok(outcome)) => outcome,
        }
    }

    fn compile(&self, code: &[u8], name: &str) -> mlua::Result<Function> {
        self.lua.load(code).set_name(name).set_mode(ChunkMode::Text).into_function()
    }

    /// Returns the function of a script, which is compiled once in a state.
    fn body_of(&self, code: &Arc<Vec<u8>>) -> mlua::Result<Function> {
        if let Some((_, body)) = &*self.script.borrow() {
            return Ok(body.clone());
        }
        let body = self.compile(code, SCRIPT)?;
        let mut names = code.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        if !names.any(|name| TRACES.contains(&name)) {
            *self.script.borrow_mut() = Some((Arc::clone(code), body.clone()));
        }
        Ok(body)
    }

    /// Runs the code of a library.
    fn load(&self, code: &[u8]) -> mlua::Result<Outcome> {
        let body = match self.compile(code, FUNCTION) {
            Ok(body) => body,
            Err(error) => return Ok(failed_to_compile(FUNCTION, &error)),
        };
        self.set_loading.call::<()>(true)?;
        self.context.is_loading.set(true);
        let (is_done, result): (bool, Value) = self.run.call(body)?;
        self.set_loading.call::<()>(false)?;
        self.context.is_loading.set(false);
        if !is_done {
            let text = match &result {
                Value::Table(error) => error.raw_get::<Option<LuaString>>("err")?,
                Value::String(text) => Some(text.clone()),
                _ => None,
            };
            if is_memory_error(&result) {
                return Ok(Outcome::Stopped(Stop::Memory));
            }
            let text = text.map_or("execution failure".to_owned(), |text| text.to_string_lossy());
            return Ok(Outcome::Failed(format!("ERR Error registering functions: {text}")));
        }
        let functions = self.context.functions.borrow();
        Ok(Outcome::Loaded(functions.iter().map(|(loaded, _)| loaded.clone()).collect()))
    }

    fn array(&self, words: &[Vec<u8>]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(words.len(), 0)?;
        for (at, word) in words.iter().enumerate() {
            table.raw_set(at + 1, self.lua.create_string(word)?)?;
        }
        Ok(table)
    }

    /// Runs a script or a function.
    fn call(&self, invocation: &Invocation) -> mlua::Result<Outcome> {
        let (keys, arguments) = (self.array(&invocation.keys)?, self.array(&invocation.arguments)?);
        let (is_done, result): (bool, Value) = if invocation.is_function {
            match self.load(&invocation.code)? {
                Outcome::Loaded(_) => {}
                other => return Ok(other),
            }
            let functions = self.context.functions.borrow();
            let found =
                functions.iter().find(|(loaded, _)| loaded.name.eq_ignore_ascii_case(&invocation.name));
            let Some((_, function)) = found else {
                return Ok(Outcome::Failed("ERR Function not found".to_owned()));
            };
            let function = function.clone();
            drop(functions);
            self.run.call((function, keys, arguments))?
        } else {
            let body = match self.body_of(&invocation.code) {
                Ok(body) => body,
                Err(error) => return Ok(failed_to_compile(SCRIPT, &error)),
            };
            self.set_keys.call::<()>((keys, arguments))?;
            self.run.call(body)?
        };
        if !is_done {
            return failed(&invocation.name, &result);
        }
        let bytes_max = self.context.link.borrow().as_ref().map_or(0, |link| link.reply_bytes_max);
        let mut out = Outbox::default();
        let reply = Reply::new(&mut out, invocation.is_resp3);
        let writer = Writer { reply, is_resp3: self.context.is_resp3.get(), bytes_max };
        match writer.write_all(&result) {
            Ok(()) => Ok(Outcome::Replied(out.into_bytes())),
            Err(Unwritten::TooLong) => Ok(Outcome::Failed(crate::call::too_long().text().into_owned())),
            Err(Unwritten::Lua(error)) => Err(error),
        }
    }
}

/// How the error of a script that is not valid begins.
pub(crate) const COMPILE_ERROR: &str = "ERR Error compiling ";

/// Returns the function of `prelude.lua`, which is compiled once: that takes longer than everything
/// else in the creation of a state.
fn prelude(lua: &Lua) -> mlua::Result<Function> {
    static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(compiled) = COMPILED.get() {
        return lua.load(&compiled[..]).set_mode(ChunkMode::Binary).into_function();
    }
    let prelude = lua.load(include_str!("prelude.lua")).set_name(PRELUDE).into_function()?;
    COMPILED.get_or_init(|| prelude.dump(false));
    Ok(prelude)
}

fn failed_to_compile(name: &str, error: &mlua::Error) -> Outcome {
    if lacks_memory(error) {
        return Outcome::Stopped(Stop::Memory);
    }
    let what = if name == SCRIPT { "script (new function)" } else { "function" };
    let text = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    Outcome::Failed(format!("{COMPILE_ERROR}{what}: {text}"))
}

/// Returns the error reply for an error that the script has not caught.
fn failed(name: &str, error: &Value) -> mlua::Result<Outcome> {
    if is_memory_error(error) {
        return Ok(Outcome::Stopped(Stop::Memory));
    }
    let Value::Table(table) = error else {
        let text = error.as_string().map_or("execution failure".to_owned(), LuaString::to_string_lossy);
        let text: String = text.chars().take(100).collect();
        return Ok(Outcome::Failed(format!("ERR Error running script {name}, {text}")));
    };
    let field = |name| table.raw_get::<Option<LuaString>>(name);
    let mut text = field("err")?.map_or("ERR unknown error".to_owned(), |text| text.to_string_lossy());
    if let (Some(source), Some(line)) = (field("source")?, table.raw_get::<Option<i64>>("line")?) {
        let source = source.to_string_lossy();
        text = format!("{text} script: {name}, on {source}:{line}.");
    }
    Ok(Outcome::Failed(text))
}

/// Creates the functions that `prelude.lua` gets.
fn functions(lua: &Lua, context: &Rc<Context>) -> mlua::Result<Table> {
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
