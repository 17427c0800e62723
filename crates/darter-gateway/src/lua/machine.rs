//! A Lua state for the runs of one script.

use super::Stop;
use super::api::{Context, PRELUDE, functions, is_memory_error, lacks_memory};
use super::library::Changed;
use super::replies::{Unwritten, Writer};
use super::task::{Invocation, Link, Outcome, Task};
use crate::reply::Reply;
use darter_fabric::wire::Outbox;
use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, Value, VmState};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// Instructions of Lua between two checks whether the script must stop.
const CHECK_INTERVAL: u32 = 10_000;
/// The names of scripts and functions in messages.
const SCRIPT: &str = "@user_script";
const FUNCTION: &str = "@user_function";
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
