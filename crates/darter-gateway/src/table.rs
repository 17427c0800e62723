//! The table of commands: what each is called, takes and does, for dispatch, for `COMMAND`, and for docs/commands.md.

use super::commands::{Id, TABLE};
use std::fmt::Write;
use std::sync::LazyLock;

/// A command, as the table describes it.
#[derive(Debug)]
pub(super) struct Command {
    /// Its place in the table.
    pub id: Id,
    /// Its name, in lower case.
    pub name: &'static str,
    /// Arguments with the name; at least so many when negative.
    pub arity: i64,
    /// What it is, in Redis's words.
    pub flags: &'static [&'static str],
    /// Which arguments are keys: the first, the last (from the end when negative), the step. All 0 for none.
    pub keys: (i64, i64, i64),
    /// The version of Redis, or of darter, that brought it.
    pub since: &'static str,
    /// The group it belongs to, in Redis's words.
    pub group: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// How atomic it is across all gateways, and where it differs from Redis.
    pub note: &'static str,
}

/// Slots of the names' hash table: a power of two, more than twice the commands.
const SLOTS: usize = 512;

static SLOT_OF_NAME: LazyLock<[Option<&'static Command>; SLOTS]> = LazyLock::new(|| {
    let mut slots = [None; SLOTS];
    for command in TABLE {
        let mut slot = hash(command.name.as_bytes());
        while slots[slot].is_some() {
            slot = (slot + 1) % SLOTS;
        }
        slots[slot] = Some(command);
    }
    slots
});

fn hash(name: &[u8]) -> usize {
    let hash = name.iter().fold(0_u32, |hash, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte | 0x20));
    (hash ^ hash >> 9) as usize % SLOTS
}

impl Command {
    /// The command of a name, in whichever case.
    #[inline]
    pub(super) fn named(name: &[u8]) -> Option<&'static Self> {
        let mut slot = hash(name);
        while let Some(command) = SLOT_OF_NAME[slot] {
            if name.eq_ignore_ascii_case(command.name.as_bytes()) {
                return Some(command);
            }
            slot = (slot + 1) % SLOTS;
        }
        None
    }

    /// The command of a place in the table.
    pub(super) fn numbered(number: u32) -> Option<&'static Self> {
        TABLE.get(number as usize)
    }

    /// Whether so many arguments, the name among them, are as many as it wants.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        let arguments = super::number::signed(arguments);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// Whether who has not shown the password may use it.
    pub(super) fn is_for_strangers(&self) -> bool {
        self.flags.contains(&"no_auth")
    }
}

/// The page docs/commands.md.
pub fn page() -> String {
    let mut page = String::from(
        "# Commands of the gateway\n\n\
         Made from the table of commands, by `DARTER_KEEP_DOCS=1 cargo test -p darter-gateway --test gateway`. A command \
         that is not here is refused.\nError texts and edge cases are those of Redis 7. *Atomic* means atomic for its key, across all \
         gateways of a pool; how, is told in [gateway.md](gateway.md).\n",
    );
    let mut groups: Vec<&str> = TABLE.iter().map(|command| command.group).collect();
    groups.dedup();
    for group in groups {
        let _ = write!(
            page,
            "\n## {group}\n\n| command | since | arity | does | across gateways |\n|---|---|---|---|---|\n"
        );
        for command in TABLE.iter().filter(|command| command.group == group) {
            let Command { name, since, arity, summary, note, .. } = command;
            let name = name.to_ascii_uppercase();
            let _ = writeln!(page, "| `{name}` | {since} | {arity} | {summary} | {note} |");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        assert!(TABLE.len() * 2 < SLOTS);
        for (number, command) in TABLE.iter().enumerate() {
            assert_eq!(command.id as usize, number, "{}", command.name);
            for name in [command.name.to_owned(), command.name.to_ascii_uppercase()] {
                assert!(std::ptr::eq(Command::named(name.as_bytes()).unwrap(), command), "{name}");
            }
        }
        for name in ["", "ge", "gett", "\0", "g\u{45}\u{34}"] {
            assert!(Command::named(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn arguments_are_counted_with_the_name() {
        let (get, del) = (Command::named(b"get").unwrap(), Command::named(b"del").unwrap());
        assert!(get.takes(2) && !get.takes(1) && !get.takes(3));
        assert!(del.takes(2) && del.takes(9) && !del.takes(1));
    }
}
