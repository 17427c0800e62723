//! The subcommands of commands, for `COMMAND` and `CLIENT LIST`.

use super::request::Arguments;
use super::table::{Command, CommandId};

/// A subcommand.
#[derive(Debug)]
pub(super) struct Subcommand {
    /// The command that it belongs to.
    pub of: CommandId,
    /// The name, with the command's: `client|list`.
    pub name: &'static str,
    /// The number of arguments, including both names; if negative, the minimum.
    pub arity: i64,
    /// The arguments that are keys, as for [`Command::keys`].
    pub keys: (i64, i64, i64),
}

const fn of(of: CommandId, name: &'static str, arity: i64) -> Subcommand {
    Subcommand { of, name, arity, keys: (0, 0, 0) }
}

const fn of_a_key(of: CommandId, name: &'static str, arity: i64) -> Subcommand {
    Subcommand { of, name, arity, keys: (2, 2, 1) }
}

/// All subcommands, by command.
pub(super) static SUBCOMMANDS: &[Subcommand] = &[
    of(CommandId::Acl, "acl|cat", -2),
    of(CommandId::Acl, "acl|deluser", -3),
    of(CommandId::Acl, "acl|dryrun", -4),
    of(CommandId::Acl, "acl|genpass", -2),
    of(CommandId::Acl, "acl|getuser", 3),
    of(CommandId::Acl, "acl|help", 2),
    of(CommandId::Acl, "acl|list", 2),
    of(CommandId::Acl, "acl|load", 2),
    of(CommandId::Acl, "acl|log", -2),
    of(CommandId::Acl, "acl|save", 2),
    of(CommandId::Acl, "acl|setuser", -3),
    of(CommandId::Acl, "acl|users", 2),
    of(CommandId::Acl, "acl|whoami", 2),
    of(CommandId::Client, "client|caching", 3),
    of(CommandId::Client, "client|getname", 2),
    of(CommandId::Client, "client|getredir", 2),
    of(CommandId::Client, "client|help", 2),
    of(CommandId::Client, "client|id", 2),
    of(CommandId::Client, "client|info", 2),
    of(CommandId::Client, "client|kill", -3),
    of(CommandId::Client, "client|list", -2),
    of(CommandId::Client, "client|no-evict", 3),
    of(CommandId::Client, "client|no-touch", 3),
    of(CommandId::Client, "client|pause", -3),
    of(CommandId::Client, "client|reply", 3),
    of(CommandId::Client, "client|setinfo", 4),
    of(CommandId::Client, "client|setname", 3),
    of(CommandId::Client, "client|tracking", -3),
    of(CommandId::Client, "client|trackinginfo", 2),
    of(CommandId::Client, "client|unblock", -3),
    of(CommandId::Client, "client|unpause", 2),
    of(CommandId::Command, "command|count", 2),
    of(CommandId::Command, "command|docs", -2),
    of(CommandId::Command, "command|getkeys", -3),
    of(CommandId::Command, "command|getkeysandflags", -3),
    of(CommandId::Command, "command|help", 2),
    of(CommandId::Command, "command|info", -2),
    of(CommandId::Command, "command|list", -2),
    of(CommandId::Config, "config|get", -3),
    of(CommandId::Config, "config|help", 2),
    of(CommandId::Config, "config|resetstat", 2),
    of(CommandId::Config, "config|rewrite", 2),
    of(CommandId::Config, "config|set", -4),
    of(CommandId::Function, "function|delete", 3),
    of(CommandId::Function, "function|dump", 2),
    of(CommandId::Function, "function|flush", -2),
    of(CommandId::Function, "function|help", 2),
    of(CommandId::Function, "function|kill", 2),
    of(CommandId::Function, "function|list", -2),
    of(CommandId::Function, "function|load", -3),
    of(CommandId::Function, "function|restore", -3),
    of(CommandId::Function, "function|stats", 2),
    of(CommandId::Latency, "latency|doctor", 2),
    of(CommandId::Latency, "latency|graph", 3),
    of(CommandId::Latency, "latency|help", 2),
    of(CommandId::Latency, "latency|histogram", -2),
    of(CommandId::Latency, "latency|history", 3),
    of(CommandId::Latency, "latency|latest", 2),
    of(CommandId::Latency, "latency|reset", -2),
    of(CommandId::Memory, "memory|doctor", 2),
    of(CommandId::Memory, "memory|help", 2),
    of(CommandId::Memory, "memory|malloc-stats", 2),
    of(CommandId::Memory, "memory|purge", 2),
    of(CommandId::Memory, "memory|stats", 2),
    of_a_key(CommandId::Memory, "memory|usage", -3),
    of(CommandId::Module, "module|help", 2),
    of(CommandId::Module, "module|list", 2),
    of_a_key(CommandId::Object, "object|encoding", 3),
    of_a_key(CommandId::Object, "object|freq", 3),
    of(CommandId::Object, "object|help", 2),
    of_a_key(CommandId::Object, "object|idletime", 3),
    of_a_key(CommandId::Object, "object|refcount", 3),
    of(CommandId::Pubsub, "pubsub|channels", -2),
    of(CommandId::Pubsub, "pubsub|help", 2),
    of(CommandId::Pubsub, "pubsub|numpat", 2),
    of(CommandId::Pubsub, "pubsub|numsub", -2),
    of(CommandId::Pubsub, "pubsub|shardchannels", -2),
    of(CommandId::Pubsub, "pubsub|shardnumsub", -2),
    of(CommandId::Script, "script|exists", -3),
    of(CommandId::Script, "script|flush", -2),
    of(CommandId::Script, "script|help", 2),
    of(CommandId::Script, "script|kill", 2),
    of(CommandId::Script, "script|load", 3),
    of(CommandId::Slowlog, "slowlog|get", -2),
    of(CommandId::Slowlog, "slowlog|help", 2),
    of(CommandId::Slowlog, "slowlog|len", 2),
    of(CommandId::Slowlog, "slowlog|reset", 2),
    of_a_key(CommandId::Xgroup, "xgroup|create", -5),
    of_a_key(CommandId::Xgroup, "xgroup|createconsumer", 5),
    of_a_key(CommandId::Xgroup, "xgroup|delconsumer", 5),
    of_a_key(CommandId::Xgroup, "xgroup|destroy", 4),
    of(CommandId::Xgroup, "xgroup|help", 2),
    of_a_key(CommandId::Xgroup, "xgroup|setid", -5),
    of_a_key(CommandId::Xinfo, "xinfo|consumers", 4),
    of_a_key(CommandId::Xinfo, "xinfo|groups", 3),
    of(CommandId::Xinfo, "xinfo|help", 2),
    of_a_key(CommandId::Xinfo, "xinfo|stream", -3),
];

impl Subcommand {
    /// Returns the subcommands of a command.
    pub(super) fn all_of(command: &Command) -> impl Iterator<Item = &'static Self> + Clone {
        let of = command.id;
        SUBCOMMANDS.iter().filter(move |subcommand| subcommand.of == of)
    }

    /// Returns the position of a command's subcommand in its list, by the subcommand's own name in
    /// upper or lower case.
    pub(super) fn position(command: &Command, name: &[u8]) -> Option<usize> {
        SUBCOMMANDS.iter().position(|subcommand| {
            subcommand.of == command.id && name.eq_ignore_ascii_case(subcommand.own_name().as_bytes())
        })
    }

    /// Returns whether a command has subcommands.
    pub(super) fn has(command: &Command) -> bool {
        use CommandId::{
            Acl, Client, Command as CommandOfCommands, Config, Function, Latency, Memory, Module, Object,
            Pubsub, Script, Slowlog, Xgroup, Xinfo,
        };
        matches!(
            command.id,
            Acl | Client
                | CommandOfCommands
                | Config
                | Function
                | Latency
                | Memory
                | Module
                | Object
                | Pubsub
                | Script
                | Slowlog
                | Xgroup
                | Xinfo
        )
    }

    /// Returns the name of a request's command, with that of its subcommand.
    pub(super) fn full_name(command: &Command, args: &Arguments<'_>) -> &'static str {
        let position = args.from(1).next().and_then(|name| Self::position(command, name));
        position.map_or(command.name, |position| SUBCOMMANDS[position].name)
    }

    /// Returns the name without the command's name.
    pub(super) fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// Returns whether the subcommand can have `arguments` arguments, including both names.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        super::table::takes(self.arity, arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::TABLE;
    use super::*;

    #[test]
    fn subcommands_are_found_by_their_names() {
        for (at, subcommand) in SUBCOMMANDS.iter().enumerate() {
            let command = &TABLE[subcommand.of as usize];
            assert!(subcommand.name.starts_with(&format!("{}|", command.name)) && Subcommand::has(command));
            let name = subcommand.own_name().to_ascii_uppercase();
            assert_eq!(Subcommand::position(command, name.as_bytes()), Some(at));
        }
        assert!(SUBCOMMANDS.is_sorted_by_key(|subcommand| subcommand.name));
        for command in TABLE {
            assert_eq!(Subcommand::has(command), Subcommand::all_of(command).next().is_some());
        }
    }
}
