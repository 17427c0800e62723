//! The access categories of commands, and the commands by number, for access rules.
//!
//! `categories.txt` has a line for each command and subcommand of Redis 7.0: its name, and its
//! categories in Redis's order. The categories of commands of other versions follow from their groups
//! and flags. Rules may also name commands of Redis that a gateway does not have.

use crate::subcommands::{SUBCOMMANDS, Subcommand};
use crate::table::{Command, CommandId, TABLE};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static LINES: &str = include_str!("categories.txt");

/// The categories, in Redis's order.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// A command or a subcommand, as rules see it: the number of the command in the table, or, after all
/// commands, that of the subcommand, or, after these, that of a command that only Redis has.
pub(crate) type Unit = usize;

/// The commands and subcommands that only Redis has, in order.
static OTHERS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let names = LINES.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name);
    names.filter(|name| own_unit_named(name.as_bytes()).is_none()).collect()
});

/// The number of commands and subcommands of a gateway.
pub(crate) fn own_units() -> usize {
    TABLE.len() + SUBCOMMANDS.len()
}

/// The number of all commands and subcommands.
pub(crate) fn units() -> usize {
    own_units() + OTHERS.len()
}

/// Returns the name of a command, or of a subcommand such as `client|list`.
pub(crate) fn name_of(unit: Unit) -> &'static str {
    match unit.checked_sub(TABLE.len()) {
        None => TABLE[unit].name,
        Some(at) => SUBCOMMANDS.get(at).map_or_else(|| OTHERS[unit - own_units()], |own| own.name),
    }
}

/// Returns the command or the subcommand with a name.
pub(crate) fn unit_named(name: &[u8]) -> Option<Unit> {
    let other = || OTHERS.iter().position(|other| other.as_bytes().eq_ignore_ascii_case(name));
    own_unit_named(name).or_else(|| other().map(|at| own_units() + at))
}

fn own_unit_named(name: &[u8]) -> Option<Unit> {
    let Some(at) = name.iter().position(|&byte| byte == b'|') else {
        return Command::named(name).map(unit_of);
    };
    let command = Command::named(&name[..at])?;
    Subcommand::position(command, &name[at + 1..]).map(|position| TABLE.len() + position)
}

/// Returns the number of a command.
pub(crate) fn unit_of(command: &Command) -> Unit {
    command.id as usize
}

/// Returns the number of the command of a request, or of its subcommand, from the argument after the
/// name.
pub(crate) fn unit_of_request(command: &Command, argument: Option<&[u8]>) -> Unit {
    let named = argument.filter(|_| Subcommand::has(command));
    let position = named.and_then(|name| Subcommand::position(command, name));
    position.map_or_else(|| unit_of(command), |position| TABLE.len() + position)
}

/// Returns the subcommands of a command.
pub(crate) fn subunits(unit: Unit) -> impl Iterator<Item = Unit> {
    let of = name_of(unit);
    let is_part = move |name: &str| name.strip_prefix(of).is_some_and(|rest| rest.starts_with('|'));
    (TABLE.len()..units()).filter(move |unit| is_part(name_of(*unit)))
}

/// Returns the categories of a command that `categories.txt` does not have.
fn derived(command: &Command) -> Vec<&'static str> {
    let is_dangerous = command.is("admin");
    let group = match command.group {
        "generic" | "ordered" => "keyspace",
        "sorted-set" => "sortedset",
        "transactions" => "transaction",
        group => group,
    };
    let is_of = |category: &str| match category {
        "read" => command.is("readonly") && group != "scripting",
        "dangerous" => is_dangerous,
        "slow" => !command.is("fast"),
        "write" | "admin" | "pubsub" | "fast" | "blocking" if command.is(category) => true,
        category => category == group,
    };
    CATEGORIES.into_iter().filter(|category| is_of(category)).collect()
}

/// The categories of all commands and subcommands, by number.
static ALL: LazyLock<Vec<Vec<&'static str>>> = LazyLock::new(|| {
    let lines: BTreeMap<&str, &str> = LINES.lines().filter_map(|line| line.split_once(' ')).collect();
    let listed = |name: &str| lines.get(name).map(|words| words.split(' ').collect::<Vec<_>>());
    let of = |id: CommandId| derived(&TABLE[id as usize]);
    let commands = TABLE.iter().map(|command| listed(command.name).unwrap_or_else(|| derived(command)));
    let own = |subcommand: &Subcommand| listed(subcommand.name).unwrap_or_else(|| of(subcommand.of));
    let others = OTHERS.iter().filter_map(|name| listed(name));
    commands.chain(SUBCOMMANDS.iter().map(own)).chain(others).collect()
});

/// Returns the categories of a command or a subcommand.
pub(crate) fn categories_of(unit: Unit) -> &'static [&'static str] {
    &ALL[unit]
}

/// Returns the name of the category with a name in upper or lower case.
pub(crate) fn category_named(name: &[u8]) -> Option<&'static str> {
    CATEGORIES.into_iter().find(|category| category.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_categories_of_the_list() {
        for unit in 0..units() {
            let of = categories_of(unit);
            assert!(of.iter().all(|category| CATEGORIES.contains(category)), "{}", name_of(unit));
            assert_ne!(of.contains(&"fast"), of.contains(&"slow"), "{}", name_of(unit));
            assert_eq!(unit_named(name_of(unit).as_bytes()), Some(unit));
        }
        assert_eq!(categories_of(unit_named(b"GET").unwrap()), ["read", "string", "fast"]);
        let list = unit_named(b"client|LIST").unwrap();
        assert_eq!(categories_of(list), ["admin", "slow", "dangerous", "connection"]);
        let client = Command::named(b"client").unwrap();
        assert_eq!(unit_of_request(client, Some(b"list")), list);
        assert_eq!(unit_of_request(client, Some(b"none")), unit_of(client));
        assert!(subunits(unit_of(client)).any(|unit| unit == list));
        assert_eq!(category_named(b"SortedSet"), Some("sortedset"));
        assert!(unit_named(b"client|none").is_none() && category_named(b"all").is_none());
        // Only Redis has these.
        let [debug, setslot] = [&b"debug"[..], b"cluster|SETSLOT"].map(|name| unit_named(name).unwrap());
        assert!(debug >= own_units() && subunits(debug).next().is_none());
        assert!(subunits(unit_named(b"cluster").unwrap()).any(|unit| unit == setslot));
    }
}
