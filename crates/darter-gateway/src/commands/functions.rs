//! `FUNCTION` and `FCALL`: libraries of functions, which all gateways of the pool share.

use super::evaluation::{in_transaction, invocation, invoke, is_read_only, kill};
use super::transactions::run_from_script;
use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::Fault;
use crate::glob::Glob;
use crate::lua::{self, Flags, Loaded, Outcome, Task};
use crate::reply::Reply;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A library without its code.
#[derive(Debug)]
pub(super) struct Library {
    /// The digest of its code.
    digest: String,
    functions: Vec<Loaded>,
}

/// All libraries, by name.
pub(super) type Directory = BTreeMap<String, Library>;

/// Reads the directory of libraries.
pub(super) async fn directory(call: &mut Call<'_>) -> Result<Directory, Fault> {
    let Some(record) = call.keys.library("").await? else { return Ok(Directory::new()) };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let function = |value: &Value| Loaded {
        name: text(&value["name"]),
        description: value["description"].as_str().map(str::to_owned),
        flags: value["flags"].as_array().into_iter().flatten().map(text).collect(),
    };
    let library = |value: &Value| Library {
        digest: text(&value["digest"]),
        functions: value["functions"].as_array().into_iter().flatten().map(function).collect(),
    };
    let parsed = serde_json::from_slice(&record).ok();
    let Some(Value::Object(libraries)) = parsed else {
        return Err(Fault::said("ERR the record of functions was not written by a gateway of this version"));
    };
    Ok(libraries.iter().map(|(name, value)| (name.clone(), library(value))).collect())
}

/// Stores the directory of libraries.
pub(super) async fn set_directory(call: &mut Call<'_>, directory: &Directory) -> Result<(), Fault> {
    let function = |function: &Loaded| json!({ "name": function.name, "description": function.description, "flags": function.flags });
    let library = |library: &Library| {
        let functions: Vec<Value> = library.functions.iter().map(function).collect();
        json!({ "digest": library.digest, "functions": functions })
    };
    let libraries = directory.iter().map(|(name, value)| (name.clone(), library(value)));
    let record = Value::Object(libraries.collect()).to_string();
    call.keys.set_library("", (!directory.is_empty()).then_some(record.as_bytes())).await
}

/// `FCALL` and `FCALL_RO`.
pub(super) async fn fcall(call: &mut Call<'_>, is_read_only_command: bool) -> Result<(), Fault> {
    let name = String::from_utf8_lossy(call.args.get(1)).into_owned();
    in_transaction(call, async |call| {
        let missing = || Fault::said("ERR Function not found");
        let directory = directory(call).await?;
        let found = directory.iter().find_map(|(library, Library { digest, functions })| {
            let function = functions.iter().find(|function| function.name.eq_ignore_ascii_case(&name))?;
            Some((library, digest, function))
        });
        let (library, digest, function) = found.ok_or_else(missing)?;
        let no_writes = function.flags.iter().any(|flag| flag == "no-writes");
        let known = call.shared.scripts.code(digest);
        let code = if let Some(code) = known {
            code
        } else {
            let text = call.keys.library(library).await?.ok_or_else(missing)?;
            let code = Arc::new(body(&text).to_vec());
            call.shared.scripts.keep_code(digest, &code);
            code
        };
        let wrong_count = Fault::said("ERR Bad number of keys provided");
        let mut invocation = invocation(call, &name, &code, wrong_count)?;
        invocation.is_function = true;
        let flags = Flags { are_declared: true, no_writes };
        invocation.is_read_only = is_read_only(flags, is_read_only_command)?;
        invoke(call, &Arc::new(invocation)).await
    })
    .await
}

/// Returns the code of a library without its first line, but with the end of that line.
fn body(text: &[u8]) -> &[u8] {
    text.iter().position(|&byte| byte == b'\n').map_or(&[], |end| &text[end..])
}

/// Returns the name in a library's first line, such as `#!lua name=example`.
pub(super) fn library_name(text: &[u8]) -> Result<String, Fault> {
    let invalid = || Fault::said("ERR Invalid library metadata");
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    if !line.starts_with(b"#!") {
        return Err(Fault::said("ERR Missing library metadata"));
    }
    if line.len() == text.len() {
        return Err(invalid());
    }
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split_whitespace();
    let engine = words.next().and_then(|word| word.strip_prefix("#!")).ok_or_else(invalid)?;
    let mut name = None;
    for word in words {
        let unknown = || Fault::said(format!("ERR Invalid metadata value given: {word}"));
        let given = word.strip_prefix("name=").ok_or_else(unknown)?;
        let is_quoted = |quote| given.len() > 1 && given.starts_with(quote) && given.ends_with(quote);
        let given = if is_quoted('"') || is_quoted('\'') { &given[1..given.len() - 1] } else { given };
        if name.replace(given.to_owned()).is_some() {
            return Err(Fault::said("ERR Invalid metadata value, name argument was given multiple times"));
        }
    }
    let name = name.ok_or_else(|| Fault::said("ERR Library name was not given"))?;
    if let Some(why) = lua::wrong_name(&name) {
        return Err(Fault::said(format!("ERR {why}")));
    }
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(Fault::said(format!("ERR Engine '{engine}' not found")));
    }
    Ok(name)
}

/// `FUNCTION LOAD [REPLACE] code`.
async fn load(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut replaces = false;
    for option in call.args.from(2).take(call.args.len().saturating_sub(3)) {
        if !option.eq_ignore_ascii_case(b"replace") {
            let option = String::from_utf8_lossy(option);
            return Err(Fault::said(format!("ERR Unknown option given: {option}")));
        }
        replaces = true;
    }
    let text = call.args.get(call.args.len() - 1);
    library_name(text)?;
    in_transaction(call, async |call| {
        let mut directory = directory(call).await?;
        let name = add(call, &mut directory, text, replaces).await?;
        set_directory(call, &directory).await?;
        call.reply.bulk(name.as_bytes());
        Ok(None)
    })
    .await
}

/// Stores a library and adds it to the directory, which remains to be stored. Returns its name.
pub(super) async fn add(
    call: &mut Call<'_>,
    directory: &mut Directory,
    text: &[u8],
    replaces: bool,
) -> Result<String, Fault> {
    let name = library_name(text)?;
    if directory.contains_key(&name) && !replaces {
        return Err(Fault::said(format!("ERR Library '{name}' already exists")));
    }
    let functions = match lua::run(call, Task::Load(Arc::new(body(text).to_vec())), run_from_script).await? {
        Outcome::Loaded(functions) => functions,
        Outcome::Failed(text) => return Err(Fault::said(text)),
        Outcome::Replied(_) | Outcome::Stopped(_) => Vec::new(),
    };
    if functions.is_empty() {
        return Err(Fault::said("ERR No functions registered"));
    }
    let others = directory.iter().filter(|(other, _)| **other != name);
    let others: Vec<_> = others.flat_map(|(_, library)| &library.functions).collect();
    let is_taken = |own: &&Loaded| others.iter().any(|other| other.name.eq_ignore_ascii_case(&own.name));
    if let Some(taken) = functions.iter().find(is_taken) {
        return Err(Fault::said(format!("ERR Function {} already exists", taken.name)));
    }
    directory.insert(name.clone(), Library { digest: lua::digest(text), functions });
    call.keys.set_library(&name, Some(text)).await?;
    Ok(name)
}

/// `FUNCTION DELETE name`, or `FUNCTION FLUSH` without a name.
async fn remove(call: &mut Call<'_>, name: Option<&[u8]>) -> Result<(), Fault> {
    in_transaction(call, async |call| {
        let mut directory = directory(call).await?;
        let names = match name {
            None => directory.keys().cloned().collect(),
            Some(name) => vec![String::from_utf8_lossy(name).into_owned()],
        };
        for name in names {
            directory.remove(&name).ok_or_else(|| Fault::said("ERR Library not found"))?;
            call.keys.set_library(&name, None).await?;
        }
        set_directory(call, &directory).await?;
        call.reply.ok();
        Ok(None)
    })
    .await
}

/// `FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]`.
async fn list(call: &mut Call<'_>) -> Result<(), Fault> {
    let (mut pattern, mut has_code) = (None, false);
    let mut options = call.args.from(2);
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"withcode") && !has_code {
            has_code = true;
        } else if option.eq_ignore_ascii_case(b"libraryname") && pattern.is_none() {
            let given = options.next();
            pattern = Some(given.ok_or_else(|| Fault::said("ERR library name argument was not given"))?);
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(Fault::said(format!("ERR Unknown argument {option}")));
        }
    }
    let glob = pattern.map(Glob::parse).transpose()?;
    in_transaction(call, async |call| {
        let directory = directory(call).await?;
        let is_meant = |name: &str| glob.as_ref().is_none_or(|glob| glob.matches(name.as_bytes()));
        let meant: Vec<_> = directory.iter().filter(|(name, _)| is_meant(name)).collect();
        call.reply.array(meant.len());
        for (name, library) in meant {
            call.reply.map(3 + usize::from(has_code));
            describe(&mut call.reply, name, library);
            if has_code {
                let code = call.keys.library(name).await?;
                call.reply.bulk(b"library_code");
                call.reply.bulk(&code.unwrap_or_default());
            }
            call.limit()?;
        }
        Ok(None)
    })
    .await
}

/// Writes the parts of a library's description.
fn describe(reply: &mut Reply<'_>, name: &str, library: &Library) {
    for text in ["library_name", name, "engine", "LUA", "functions"] {
        reply.bulk(text.as_bytes());
    }
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(function.name.as_bytes());
        reply.bulk(b"description");
        reply.bulk_or_null(function.description.as_deref().map(str::as_bytes));
        reply.bulk(b"flags");
        reply.set(function.flags.len());
        for flag in &function.flags {
            reply.simple(flag);
        }
    }
}

/// `FUNCTION STATS`.
async fn stats(call: &mut Call<'_>) -> Result<(), Fault> {
    let running = call.shared.scripts.oldest(true);
    in_transaction(call, async |call| {
        let directory = directory(call).await?;
        let functions = directory.values().map(|library| library.functions.len()).sum();
        let reply = &mut call.reply;
        reply.map(2);
        reply.bulk(b"running_script");
        match &running {
            None => reply.null(),
            Some(control) => {
                reply.map(3);
                reply.bulk(b"name");
                reply.bulk(control.name.as_bytes());
                reply.bulk(b"command");
                reply.array(2);
                reply.bulk(b"FCALL");
                reply.bulk(control.name.as_bytes());
                reply.bulk(b"duration_ms");
                let duration: Duration = control.since.elapsed();
                reply.integer(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX));
            }
        }
        reply.bulk(b"engines");
        reply.map(1);
        reply.bulk(b"LUA");
        reply.map(2);
        for (name, count) in [("libraries_count", directory.len()), ("functions_count", functions)] {
            reply.bulk(name.as_bytes());
            reply.count(count);
        }
        Ok(None)
    })
    .await
}

/// `FUNCTION` and its subcommands, except for valid requests of `DUMP` and `RESTORE`.
pub(super) async fn function(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"load", 3..) => load(call).await,
        (b"delete", 3) => remove(call, Some(args.get(2))).await,
        (b"flush", 2 | 3) => {
            let is_mode =
                |mode: &[u8]| mode.eq_ignore_ascii_case(b"sync") || mode.eq_ignore_ascii_case(b"async");
            if args.len() == 3 && !is_mode(args.get(2)) {
                return Err(Fault::said("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
            }
            remove(call, None).await
        }
        (b"list", _) => list(call).await,
        (b"stats", 2) => stats(call).await,
        (b"kill", 2) => kill(call, true),
        (b"help", 2) => {
            let lines = [
                "FUNCTION DELETE library",
                "FUNCTION DUMP",
                "FUNCTION FLUSH [ASYNC|SYNC]",
                "FUNCTION KILL",
                "FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]",
                "FUNCTION LOAD [REPLACE] code",
                "FUNCTION RESTORE payload [APPEND|FLUSH|REPLACE]",
                "FUNCTION STATS",
            ];
            help(&mut call.reply, &lines);
            Ok(())
        }
        (b"flush" | b"restore", 3..) => {
            let name = String::from_utf8_lossy(&subcommand);
            let text = format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try FUNCTION HELP."
            );
            Err(Fault::said(text))
        }
        (b"dump" | b"restore" | b"flush" | b"load" | b"delete" | b"stats" | b"kill" | b"help", _) => {
            Err(wrong_arity(&format!("function|{}", String::from_utf8_lossy(&subcommand))))
        }
        _ => Err(unknown_subcommand("FUNCTION", args.get(1))),
    }
}
