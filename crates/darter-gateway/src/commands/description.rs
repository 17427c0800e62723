//! `COMMAND`: the contents of the command table, in the replies that clients expect.

use super::arguments::{arguments_of, write_arguments};
use super::key_specs::{KeySpec, key_flags};
use crate::acl::{categories_of, unit_of_request};
use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::{Fault, SYNTAX};
use crate::glob::Glob;
use crate::named_keys;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::subcommands::{SUBCOMMANDS, Subcommand};
use crate::table::{Command, TABLE};
use crate::turns;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

/// What Redis 7.0 tells clients about some commands and subcommands, in its words: whether the reply is
/// always the same, and for clusters to which servers a request goes, and how replies are combined. A
/// line has a name and its tips.
static TIPS: LazyLock<BTreeMap<&str, &str>> =
    LazyLock::new(|| include_str!("tips.txt").lines().filter_map(|line| line.split_once(' ')).collect());

/// `COMMAND` and its subcommands.
pub(super) async fn command(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let reply = &mut call.reply;
    if args.len() == 1 {
        describe_all(reply);
        return Ok(());
    }
    match &args.get(1).to_ascii_lowercase()[..] {
        b"count" if args.len() == 2 => reply.count(TABLE.len()),
        b"count" => return Err(wrong_arity("command|count")),
        b"info" if args.len() == 2 => describe_all(reply),
        b"info" => {
            reply.array(args.len() - 2);
            for name in args.from(2) {
                match Described::named(name) {
                    Some(described) => described.write(&mut call.reply),
                    None => call.reply.null_array(),
                }
                call.limit()?;
                turns::worked().await;
            }
        }
        b"docs" if args.len() == 2 => {
            reply.map(TABLE.len());
            for command in TABLE {
                document(reply, Described::Command(command));
            }
        }
        b"docs" => {
            let (start, mut documented) = (reply.position(), 0);
            for name in args.from(2) {
                if let Some(described) = Described::named(name) {
                    document(&mut call.reply, described);
                    documented += 1;
                }
                call.limit()?;
                turns::worked().await;
            }
            call.reply.map_from(start, documented);
        }
        b"getkeys" | b"getkeysandflags" if args.len() < 3 => {
            let name = String::from_utf8_lossy(args.get(1)).to_ascii_lowercase();
            return Err(wrong_arity(&format!("command|{name}")));
        }
        b"getkeys" => write_keys(call, false).await?,
        b"getkeysandflags" => write_keys(call, true).await?,
        b"list" => list(reply, &args)?,
        b"help" => help(
            reply,
            &[
                "COMMAND",
                "COMMAND COUNT",
                "COMMAND DOCS [name...]",
                "COMMAND GETKEYS command [argument...]",
                "COMMAND GETKEYSANDFLAGS command [argument...]",
                "COMMAND INFO [name...]",
                "COMMAND LIST [FILTERBY ACLCAT category|MODULE name|PATTERN pattern]",
            ],
        ),
        _ => return Err(unknown_subcommand("COMMAND", args.get(1))),
    }
    Ok(())
}

fn describe_all(reply: &mut Reply<'_>) {
    reply.array(TABLE.len());
    for command in TABLE {
        Described::Command(command).write(reply);
    }
}

/// The command or subcommand that `COMMAND INFO` describes.
#[derive(Clone, Copy, Debug)]
enum Described {
    Command(&'static Command),
    Subcommand(&'static Command, &'static Subcommand),
}

impl Described {
    /// Returns the command with a name, or the subcommand with a name such as `client|list`.
    fn named(name: &[u8]) -> Option<Self> {
        match name.iter().position(|&byte| byte == b'|') {
            None => Command::named(name).map(Self::Command),
            Some(at) => {
                let command = Command::named(&name[..at])?;
                let subcommand = &SUBCOMMANDS[Subcommand::position(command, &name[at + 1..])?];
                Some(Self::Subcommand(command, subcommand))
            }
        }
    }

    /// Returns the name of a subcommand without that of its command.
    fn own_name(self) -> Option<&'static [u8]> {
        match self {
            Self::Command(_) => None,
            Self::Subcommand(_, subcommand) => Some(subcommand.own_name().as_bytes()),
        }
    }

    /// Writes the ten parts of the description.
    fn write(self, reply: &mut Reply<'_>) {
        let (command, name, arity, keys) = match self {
            Self::Command(command) => (command, command.name, command.arity, command.keys),
            Self::Subcommand(command, subcommand) => {
                (command, subcommand.name, subcommand.arity, subcommand.keys)
            }
        };
        reply.array(10);
        reply.bulk(name.as_bytes());
        reply.integer(arity);
        reply.set(command.flags.len());
        for flag in command.flags {
            reply.simple(flag);
        }
        let (first, last, step) = keys;
        for place in [first, last, step] {
            reply.integer(place);
        }
        let categories = categories_of(unit_of_request(command, self.own_name()));
        reply.set(categories.len());
        for category in categories {
            reply.simple(&format!("@{category}"));
        }
        let tips: Vec<&str> = TIPS.get(name).into_iter().flat_map(|tips| tips.split(' ')).collect();
        reply.set(tips.len());
        for tip in tips {
            reply.bulk(tip.as_bytes());
        }
        let specs = match self {
            Self::Command(command) => KeySpec::all_of(command),
            Self::Subcommand(_, subcommand) => KeySpec::of_subcommand(subcommand).into_iter().collect(),
        };
        reply.set(specs.len());
        for spec in specs {
            spec.write(reply);
        }
        let Self::Command(command) = self else {
            reply.array(0);
            return;
        };
        let subcommands = Subcommand::all_of(command);
        reply.array(subcommands.clone().count());
        for subcommand in subcommands {
            Self::Subcommand(command, subcommand).write(reply);
        }
    }
}

/// Writes the name and the documentation of a command for `COMMAND DOCS`.
fn document(reply: &mut Reply<'_>, described: Described) {
    let (name, texts) = match described {
        Described::Command(command) => {
            let texts =
                vec![("summary", command.summary), ("since", command.since), ("group", command.group)];
            (command.name, texts)
        }
        Described::Subcommand(command, subcommand) => (subcommand.name, vec![("group", command.group)]),
    };
    let arguments = arguments_of(name);
    let subcommands: Vec<_> = match described {
        Described::Command(command) => {
            Subcommand::all_of(command).map(|subcommand| Described::Subcommand(command, subcommand)).collect()
        }
        Described::Subcommand(..) => Vec::new(),
    };
    reply.bulk(name.as_bytes());
    reply.map(texts.len() + usize::from(arguments.is_some()) + usize::from(!subcommands.is_empty()));
    for (what, text) in texts {
        reply.bulk(what.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if let Some(arguments) = arguments {
        reply.bulk(b"arguments");
        write_arguments(reply, &arguments);
    }
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subcommands.len());
        for subcommand in subcommands {
            document(reply, subcommand);
        }
    }
}

/// The commands that `COMMAND LIST` lists.
#[derive(Debug)]
enum Filter {
    None,
    /// Commands of a module; there are none.
    Module,
    /// Commands of an access category, in lower case.
    Category(Vec<u8>),
    /// Commands whose names match a pattern, in lower case.
    Pattern(Glob),
}

impl Filter {
    fn parse(kind: &[u8], wanted: &[u8]) -> Result<Self, Fault> {
        match &kind.to_ascii_lowercase()[..] {
            b"module" => Ok(Self::Module),
            b"aclcat" => Ok(Self::Category(wanted.to_ascii_lowercase())),
            b"pattern" => Ok(Self::Pattern(Glob::parse(&wanted.to_ascii_lowercase())?)),
            _ => Err(SYNTAX),
        }
    }

    /// Returns whether a command, or its subcommand with that name, is listed.
    fn accepts(&self, command: &Command, name: &str) -> bool {
        match self {
            Self::None => true,
            Self::Module => false,
            Self::Category(wanted) => {
                let own = name.split_once('|').map(|(_, own)| own.as_bytes());
                let categories = categories_of(unit_of_request(command, own));
                categories.iter().any(|category| category.as_bytes() == wanted)
            }
            Self::Pattern(pattern) => pattern.matches(name.as_bytes()),
        }
    }
}

/// `COMMAND LIST [FILTERBY ACLCAT category|MODULE name|PATTERN pattern]`.
fn list(reply: &mut Reply<'_>, args: &Arguments<'_>) -> Result<(), Fault> {
    let filter = match args.len() {
        2 => Filter::None,
        5 if args.get(2).eq_ignore_ascii_case(b"filterby") => Filter::parse(args.get(3), args.get(4))?,
        _ => return Err(SYNTAX),
    };
    let names = TABLE.iter().flat_map(|command| {
        let own = std::iter::once((command, command.name));
        own.chain(Subcommand::all_of(command).map(move |subcommand| (command, subcommand.name)))
    });
    let listed: Vec<&str> =
        names.filter(|(command, name)| filter.accepts(command, name)).map(|(_, name)| name).collect();
    reply.set(listed.len());
    for name in listed {
        reply.bulk(name.as_bytes());
    }
    Ok(())
}

/// Returns the positions of the arguments that are keys, of a command with `arguments` arguments.
fn places(keys: (i64, i64, i64), arguments: usize) -> impl Iterator<Item = usize> {
    let (first, last, step) = keys;
    let last = if last < 0 { crate::number::signed(arguments) + last } else { last };
    let range: Range<i64> = if first == 0 { 0..0 } else { first..last + 1 };
    range.step_by(usize::try_from(step).unwrap_or(0).max(1)).filter_map(|place| usize::try_from(place).ok())
}

/// Returns the positions of the keys of a command that begins with argument `first`.
pub(super) fn keys_at(
    command: &Command,
    keys: (i64, i64, i64),
    args: &Arguments<'_>,
    first: usize,
) -> Vec<usize> {
    let mut found: Vec<usize> = places(keys, args.len() - first).collect();
    if command.is("movablekeys") {
        found.extend(named_keys::sources(command.id, args, first));
    }
    found.extend(named_keys::destinations(command.id, args, first));
    found
}

/// `COMMAND GETKEYS command argument…`, `COMMAND GETKEYSANDFLAGS command argument…`.
async fn write_keys(call: &mut Call<'_>, has_flags: bool) -> Result<(), Fault> {
    let args = call.args;
    let invalid = || Fault::said("ERR Invalid command specified");
    let command = Command::named(args.get(2)).ok_or_else(invalid)?;
    let given = args.len() - 2;
    let wrong_number = || Fault::said("ERR Invalid number of arguments specified for command");
    let keys = if Subcommand::has(command) {
        let position = (given > 1).then(|| Subcommand::position(command, args.get(3))).flatten();
        let subcommand = &SUBCOMMANDS[position.ok_or_else(invalid)?];
        if !subcommand.takes(given) {
            return Err(wrong_number());
        }
        subcommand.keys
    } else {
        if !command.takes(given) {
            return Err(wrong_number());
        }
        command.keys
    };
    if keys.0 == 0 && !command.is("movablekeys") {
        return Err(Fault::said("ERR The command has no key arguments"));
    }
    let keys = keys_at(command, keys, &args, 2);
    call.reply.array(keys.len());
    for (number, place) in keys.into_iter().enumerate() {
        call.limit()?;
        turns::worked().await;
        let reply = &mut call.reply;
        if has_flags {
            reply.array(2);
        }
        reply.bulk(args.get(2 + place));
        if has_flags {
            let flags = key_flags(command, number);
            reply.set(flags.len());
            for flag in flags {
                reply.simple(flag);
            }
        }
    }
    Ok(())
}
