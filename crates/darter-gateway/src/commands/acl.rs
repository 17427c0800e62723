//! `ACL` and its subcommands.

use super::permission::needs;
use crate::acl::{
    CATEGORIES, Denied, Selector, User, categories_of, category_named, joined, name_of, own_units,
    unit_of_request,
};
use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::clock::now_ms;
use crate::fault::{Fault, NO_INTEGER};
use crate::number;
use crate::peers::MessageKind;
use crate::reply::Reply;
use crate::subcommands::{SUBCOMMANDS, Subcommand};
use crate::table::Command;
use crate::users;
use std::fmt::Write;
use std::sync::Arc;

/// Most bits of a generated password.
const BITS_MAX: i64 = 4096;
/// Most bytes of a user's rules.
const RULES_BYTES_MAX: usize = 64 << 10;

const HELP: &[&str] = &[
    "ACL CAT [category]",
    "ACL DELUSER user...",
    "ACL DRYRUN user command [argument...]",
    "ACL GENPASS [bits]",
    "ACL GETUSER user",
    "ACL LIST",
    "ACL LOAD",
    "ACL LOG [count|RESET]",
    "ACL SAVE",
    "ACL SETUSER user [rule...]",
    "ACL USERS",
    "ACL WHOAMI",
];

/// `ACL` and its subcommands.
pub(super) async fn acl(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"setuser", 3..) => set_user(call).await,
        (b"deluser", 3..) => delete_users(call).await,
        (b"getuser", 3) => {
            get_user(call);
            Ok(())
        }
        (b"list", 2) => {
            list(call, false);
            Ok(())
        }
        (b"users", 2) => {
            list(call, true);
            Ok(())
        }
        (b"whoami", 2) => {
            let name = call.client.info.names().user.clone();
            call.reply.bulk(name.as_bytes());
            Ok(())
        }
        (b"cat", 2 | 3) => categories(call),
        (b"genpass", 2 | 3) => generate(call),
        (b"log", 2 | 3) => log(call),
        (b"dryrun", 4..) => dry_run(call),
        // The users are always saved in the pool.
        (b"load" | b"save", 2) => {
            reload(call).await?;
            call.reply.ok();
            Ok(())
        }
        (b"help", 2) => {
            help(&mut call.reply, HELP);
            Ok(())
        }
        _ => match Command::named(b"acl").and_then(|acl| Subcommand::position(acl, args.get(1))) {
            Some(position) if SUBCOMMANDS[position].takes(args.len()) => {
                let name = String::from_utf8_lossy(args.get(1));
                let text = format!(
                    "ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP."
                );
                Err(Fault::said(text))
            }
            Some(position) => Err(wrong_arity(SUBCOMMANDS[position].name)),
            None => Err(unknown_subcommand("ACL", args.get(1))),
        },
    }
}

/// Reads the users again.
async fn reload(call: &mut Call<'_>) -> Result<(), Fault> {
    let own = call.client.info.id;
    call.client.is_closing |= users::load(call.shared, call.keys, Some(own)).await?;
    Ok(())
}

/// Reads the users again, and tells the other gateways.
async fn changed(call: &mut Call<'_>) -> Result<(), Fault> {
    call.shared.peers.broadcast(MessageKind::Users, b"", b"");
    reload(call).await
}

/// `ACL SETUSER user [rule…]`.
async fn set_user(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let name = std::str::from_utf8(args.get(2)).ok().filter(|name| !crate::acl::has_spaces(name.as_bytes()));
    let name = name.ok_or_else(|| Fault::said("ERR Usernames can't contain spaces or null characters"))?;
    let rules = joined(args.from(3)).map_err(|first| {
        let first = String::from_utf8_lossy(&first).into_owned();
        Fault::said(format!("ERR Unmatched parenthesis in acl selector starting at '{first}'."))
    })?;
    let own_default = call.shared.acl.own_default();
    call.keys
        .change_user(name, |record| {
            let mut user = match record {
                Some(record) => User::parse(record).map_err(|refused| {
                    Fault::said(format!(
                        "ERR the user's rules are not known to this version: {}",
                        refused.text()
                    ))
                })?,
                None if name == crate::acl::DEFAULT => own_default.clone(),
                None => User::default(),
            };
            for rule in &rules {
                user.apply(rule).map_err(|refused| {
                    let (rule, why) = (String::from_utf8_lossy(rule), refused.text());
                    Fault::said(format!("ERR Error in ACL SETUSER modifier '{rule}': {why}"))
                })?;
            }
            let described = user.describe();
            if described.len() > RULES_BYTES_MAX {
                return Err(Fault::said("ERR the user has too many rules"));
            }
            Ok(Some(described))
        })
        .await?;
    changed(call).await?;
    call.reply.ok();
    Ok(())
}

/// `ACL DELUSER user…`.
async fn delete_users(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    if args.from(2).any(|name| name == crate::acl::DEFAULT.as_bytes()) {
        return Err(Fault::said("ERR The 'default' user cannot be removed"));
    }
    let mut count = 0;
    for name in args.from(2).filter_map(|name| std::str::from_utf8(name).ok()) {
        count += usize::from(call.keys.change_user(name, |_| Ok(None)).await?);
    }
    changed(call).await?;
    call.reply.count(count);
    Ok(())
}

/// Returns a user by its name.
fn user(call: &Call<'_>, name: &[u8]) -> Option<Arc<User>> {
    call.shared.acl.users().get(std::str::from_utf8(name).ok()?).cloned()
}

/// Writes the parts of a selector's description.
fn describe(reply: &mut Reply<'_>, selector: &Selector) {
    for (name, text) in [
        ("commands", selector.commands().into_bytes()),
        ("keys", selector.keys()),
        ("channels", selector.channels()),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(&text);
    }
}

/// `ACL GETUSER user`.
fn get_user(call: &mut Call<'_>) {
    let Some(user) = user(call, call.args.get(2)) else {
        call.reply.null();
        return;
    };
    let reply = &mut call.reply;
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    for flag in flags {
        reply.bulk(flag.as_bytes());
    }
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    for password in user.passwords() {
        reply.bulk(password.as_bytes());
    }
    describe(reply, user.root());
    reply.bulk(b"selectors");
    reply.array(user.others().len());
    for selector in user.others() {
        reply.map(3);
        describe(reply, selector);
    }
}

/// `ACL LIST`, or `ACL USERS`.
fn list(call: &mut Call<'_>, names_only: bool) {
    let users = call.shared.acl.users();
    call.reply.array(users.len());
    for (name, user) in &*users {
        if names_only {
            call.reply.bulk(name.as_bytes());
        } else {
            call.reply.bulk(&[format!("user {name} ").as_bytes(), &user.describe()].concat());
        }
    }
}

/// `ACL CAT [category]`.
fn categories(call: &mut Call<'_>) -> Result<(), Fault> {
    let Some(asked) = call.args.from(2).next() else {
        call.reply.array(CATEGORIES.len());
        for category in CATEGORIES {
            call.reply.bulk(category.as_bytes());
        }
        return Ok(());
    };
    let unknown = || Fault::said(format!("ERR Unknown category '{}'", crate::call::shown(asked, 128)));
    let category = category_named(asked).ok_or_else(unknown)?;
    let names: Vec<&str> =
        (0..own_units()).filter(|unit| categories_of(*unit).contains(&category)).map(name_of).collect();
    call.reply.array(names.len());
    for name in names {
        call.reply.bulk(name.as_bytes());
    }
    Ok(())
}

/// `ACL GENPASS [bits]`.
fn generate(call: &mut Call<'_>) -> Result<(), Fault> {
    let said = call.args.from(2).next().map_or(Some(256), number::integer).ok_or(NO_INTEGER)?;
    let bits = usize::try_from(said).ok().filter(|_| (1..=BITS_MAX).contains(&said)).ok_or_else(|| {
        Fault::said(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {BITS_MAX}"
        ))
    })?;
    let mut digits = String::new();
    while digits.len() < bits.div_ceil(4) {
        let _ = write!(digits, "{:016x}", darter_fabric::random_word());
    }
    digits.truncate(bits.div_ceil(4));
    call.reply.bulk(digits.as_bytes());
    Ok(())
}

/// `ACL LOG [count|RESET]`.
fn log(call: &mut Call<'_>) -> Result<(), Fault> {
    let asked = call.args.from(2).next();
    if asked.is_some_and(|word| word.eq_ignore_ascii_case(b"reset")) {
        call.shared.acl.log().clear();
        call.reply.ok();
        return Ok(());
    }
    let count = asked.map_or(Some(10), number::integer).ok_or(NO_INTEGER)?;
    let entries = call.shared.acl.log().last(usize::try_from(count).unwrap_or(0));
    let now = now_ms();
    let reply = &mut call.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.map(7);
        reply.bulk(b"count");
        reply.integer(entry.count.cast_signed());
        for (name, text) in [
            ("reason", entry.reason.as_bytes()),
            ("context", entry.context.as_bytes()),
            ("object", &entry.object),
            ("username", entry.user.as_bytes()),
        ] {
            reply.bulk(name.as_bytes());
            reply.bulk(text);
        }
        reply.bulk(b"age-seconds");
        reply.double(now.saturating_sub(entry.time) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
    }
    Ok(())
}

/// `ACL DRYRUN user command [argument…]`.
fn dry_run(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let shown = |at: usize| String::from_utf8_lossy(args.get(at)).into_owned();
    let none = || Fault::said(format!("ERR User '{}' not found", shown(2)));
    let user = user(call, args.get(2)).ok_or_else(none)?;
    let none = || Fault::said(format!("ERR Command '{}' not found", shown(3)));
    let command = Command::named(args.get(3)).ok_or_else(none)?;
    let position = args.from(4).next().and_then(|name| Subcommand::position(command, name));
    let subcommand = position.map(|position| &SUBCOMMANDS[position]);
    let given = args.len() - 3;
    if !subcommand.map_or_else(|| command.takes(given), |subcommand| subcommand.takes(given)) {
        return Err(wrong_arity(subcommand.map_or(command.name, |subcommand| subcommand.name)));
    }
    let needs = needs(command, &args, 3);
    match user.check(&needs) {
        Ok(()) => call.reply.ok(),
        Err((denied, at)) => {
            let object = String::from_utf8_lossy(needs.words[at]).into_owned();
            let name = name_of(unit_of_request(command, needs.words.get(1).copied()));
            call.reply.bulk(
                match denied {
                    Denied::Command => format!("This user has no permissions to run the '{name}' command"),
                    Denied::Key => format!("This user has no permissions to access the '{object}' key"),
                    Denied::Channel => {
                        format!("This user has no permissions to access the '{object}' channel")
                    }
                }
                .as_bytes(),
            );
        }
    }
    Ok(())
}
