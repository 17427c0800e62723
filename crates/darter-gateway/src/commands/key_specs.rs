//! The key specifications of `COMMAND INFO`: where the keys of a command are among its arguments, and
//! what it does with them, in Redis's words.

use crate::named_keys;
use crate::reply::Reply;
use crate::subcommands::Subcommand;
use crate::table::{Command, CommandId};

/// Where the search for keys begins.
#[derive(Clone, Copy, Debug)]
enum Begin {
    /// At an argument.
    At(i64),
    /// Behind a word, which is searched for from an argument on.
    Behind(&'static str, i64),
    /// Redis does not describe it.
    Unknown,
}

/// Which arguments are keys from there on.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// Up to an argument, counted from the first key, or from the end if negative.
    Range { last: i64, step: i64 },
    /// As many as the argument says; they follow it.
    Counted,
    /// The first half of the arguments.
    FirstHalf,
    /// Redis does not describe it.
    Unknown,
}

/// The place of some keys of a command, and their use.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySpec {
    notes: Option<&'static str>,
    flags: &'static [&'static str],
    begin: Begin,
    keys: Keys,
}

/// What Redis notes about the keys that options of `SORT` name.
const SORTED_BY: &str = "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the \
                         content of the key we sort";
const STORED: &str = "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in \
                      the argument array";

/// Returns the flags of a command's key: the kind of access, and its purpose.
pub(super) fn key_flags(command: &Command, number: usize) -> &'static [&'static str] {
    use CommandId::{
        Append, Bitfield, Bitop, Blmove, Blmpop, Blpop, Brpop, Brpoplpush, Bzmpop, Bzpopmax, Bzpopmin, Copy,
        Del, Exists, Expire, Expireat, Geoadd, Georadius, Georadiusbymember, Geosearchstore, Getdel, Hdel,
        Hexists, Hlen, Hmset, Hset, Hsetnx, Hstrlen, Linsert, Llen, Lmove, Lmpop, Lpop, Lpush, Lpushx, Lrem,
        Lset, Ltrim, Memory, Mset, Msetnx, Object, Persist, Pexpire, Pexpireat, Pfadd, Pfcount, Pfdebug,
        Pfmerge, Psetex, Rename, Renamenx, Restore, Rpop, Rpoplpush, Rpush, Rpushx, Sadd, Scard, Sdiffstore,
        Set, Setex, Setnx, Setrange, Sinterstore, Sismember, Smove, Sort, Spop, Srem, Strlen, Sunionstore,
        Touch, Type, Unlink, Watch, Xack, Xadd, Xautoclaim, Xclaim, Xdel, Xgroup, Xlen, Xreadgroup, Xsetid,
        Xtrim, Zadd, Zcard, Zdiffstore, Zinterstore, Zmpop, Zpopmax, Zpopmin, Zrangestore, Zrem,
        Zremrangebylex, Zremrangebyrank, Zremrangebyscore, Zunionstore,
    };
    match command.id {
        Exists | Hexists | Hlen | Hstrlen | Llen | Memory | Object | Scard | Sismember | Strlen | Touch
        | Type | Watch | Xlen | Zcard => &["RO"],
        Bitop | Geosearchstore | Pfmerge | Sdiffstore | Sinterstore | Sunionstore | Zdiffstore
        | Zinterstore | Zrangestore | Zunionstore
            if number > 0 =>
        {
            &["RO", "access"]
        }
        Copy | Georadius | Georadiusbymember | Sort if number == 0 => &["RO", "access"],
        Bitfield | Set => &["RW", "access", "update", "variable_flags"],
        Del | Unlink => &["RM", "delete"],
        Blmpop | Blpop | Brpop | Bzmpop | Bzpopmax | Bzpopmin | Getdel | Lmpop | Lpop | Rpop | Spop
        | Zmpop | Zpopmax | Zpopmin => &["RW", "access", "delete"],
        Blmove | Brpoplpush | Lmove | Rename | Renamenx | Rpoplpush | Smove if number == 0 => {
            &["RW", "access", "delete"]
        }
        Hdel | Lrem | Ltrim | Srem | Xautoclaim | Xdel | Xtrim | Zrem | Zremrangebylex | Zremrangebyrank
        | Zremrangebyscore => &["RW", "delete"],
        Append | Blmove | Brpoplpush | Hsetnx | Linsert | Lmove | Lpush | Lpushx | Pfadd | Rpoplpush
        | Rpush | Rpushx | Sadd | Smove => &["RW", "insert"],
        Pfcount | Pfdebug => &["RW", "access"],
        Pfmerge => &["RW", "access", "insert"],
        Msetnx | Setnx | Renamenx => &["OW", "insert"],
        Bitop | Copy | Georadius | Georadiusbymember | Geosearchstore | Mset | Psetex | Rename | Restore
        | Sdiffstore | Setex | Sort | Sunionstore | Zdiffstore | Zinterstore | Zrangestore | Zunionstore => {
            &["OW", "update"]
        }
        Expire | Expireat | Geoadd | Hmset | Hset | Lset | Persist | Pexpire | Pexpireat | Setrange
        | Sinterstore | Xack | Xadd | Xclaim | Xgroup | Xsetid | Zadd => &["RW", "update"],
        Xreadgroup => &["RO", "access"],
        _ if command.is("readonly") => &["RO", "access"],
        _ => &["RW", "access", "update"],
    }
}

/// Returns what Redis notes about the use of a command's keys.
fn notes(command: &Command) -> Option<&'static str> {
    use CommandId::{Bitfield, Eval, EvalRo, Fcall, FcallRo, Getex, Pfcount, Set, Xadd};
    match command.id {
        Bitfield => Some("This command allows both access and modification of the key"),
        Eval | Fcall => {
            Some("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE")
        }
        EvalRo | FcallRo => {
            Some("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS")
        }
        Getex => Some("RW and UPDATE because it changes the TTL"),
        Pfcount => {
            Some("RW because it may change the internal representation of the key, and propagate to replicas")
        }
        Xadd => Some("UPDATE instead of INSERT because of the optional trimming feature"),
        Set => Some("RW and ACCESS due to the optional `GET` argument"),
        _ => None,
    }
}

impl KeySpec {
    fn of(command: &Command, number: usize, begin: Begin, keys: Keys) -> Self {
        Self { notes: notes(command), flags: key_flags(command, number), begin, keys }
    }

    /// Returns the key specifications of a command.
    pub(super) fn all_of(command: &Command) -> Vec<Self> {
        use CommandId::{
            Bitop, Blmove, Brpoplpush, Copy, Georadius, Georadiusbymember, Geosearchstore, Lmove, Pfmerge,
            Rename, Renamenx, Rpoplpush, Sdiffstore, Sinterstore, Smove, Sort, SortRo, Sunionstore, Xread,
            Xreadgroup, Zrangestore,
        };
        let one = Keys::Range { last: 0, step: 1 };
        let (first, last, step) = command.keys;
        let counted = named_keys::count_at(command.id).map(|at| {
            let number = usize::from(first > 0);
            Self::of(command, number, Begin::At(crate::number::signed(at)), Keys::Counted)
        });
        if matches!(command.id, Xread | Xreadgroup) {
            let from = if command.id == Xread { 1 } else { 4 };
            return vec![Self::of(command, 0, Begin::Behind("STREAMS", from), Keys::FirstHalf)];
        }
        if first == 0 {
            return counted.into_iter().collect();
        }
        match command.id {
            // The first key is used in another way than the others.
            Bitop | Blmove | Brpoplpush | Copy | Geosearchstore | Lmove | Pfmerge | Rename | Renamenx
            | Rpoplpush | Sdiffstore | Sinterstore | Smove | Sunionstore | Zrangestore => {
                let others = Keys::Range { last: last.min(0), step: 1 };
                vec![
                    Self::of(command, 0, Begin::At(first), one),
                    Self::of(command, 1, Begin::At(first + 1), others),
                ]
            }
            Georadius | Georadiusbymember => {
                let from = if command.id == Georadius { 6 } else { 5 };
                let destination = |word| Self::of(command, 1, Begin::Behind(word, from), one);
                let source = Self::of(command, 0, Begin::At(first), one);
                vec![source, destination("STORE"), destination("STOREDIST")]
            }
            Sort | SortRo => {
                let unknown = |number, notes| {
                    let spec = Self::of(command, number, Begin::Unknown, Keys::Unknown);
                    Self { notes: Some(notes), ..spec }
                };
                let mut specs = vec![Self::of(command, 0, Begin::At(first), one), unknown(0, SORTED_BY)];
                if command.id == Sort {
                    specs.push(unknown(1, STORED));
                }
                specs
            }
            _ => {
                let last = if last < 0 { last } else { last - first };
                let own = Self::of(command, 0, Begin::At(first), Keys::Range { last, step });
                std::iter::once(own).chain(counted).collect()
            }
        }
    }

    /// Returns the key specification of a subcommand, if it has a key.
    pub(super) fn of_subcommand(subcommand: &Subcommand) -> Option<Self> {
        let begin = Begin::At(subcommand.keys.0);
        let keys = Keys::Range { last: 0, step: 1 };
        let flags: &[&str] = match subcommand.name {
            "xgroup|create" | "xgroup|createconsumer" => &["RW", "insert"],
            "xgroup|delconsumer" | "xgroup|destroy" => &["RW", "delete"],
            "xgroup|setid" => &["RW", "update"],
            _ if subcommand.of == CommandId::Xinfo => &["RO", "access"],
            _ => &["RO"],
        };
        (subcommand.keys.0 > 0).then_some(Self { notes: None, flags, begin, keys })
    }

    /// Writes the specification.
    pub(super) fn write(&self, reply: &mut Reply<'_>) {
        reply.map(3 + usize::from(self.notes.is_some()));
        if let Some(notes) = self.notes {
            reply.bulk(b"notes");
            reply.bulk(notes.as_bytes());
        }
        reply.bulk(b"flags");
        reply.set(self.flags.len());
        for flag in self.flags {
            reply.simple(flag);
        }
        reply.bulk(b"begin_search");
        match self.begin {
            Begin::At(index) => write_part(reply, "index", &[("index", index)]),
            Begin::Behind(word, from) => {
                write_type(reply, "keyword", 2);
                reply.bulk(b"keyword");
                reply.bulk(word.as_bytes());
                reply.bulk(b"startfrom");
                reply.integer(from);
            }
            Begin::Unknown => write_type(reply, "unknown", 0),
        }
        reply.bulk(b"find_keys");
        match self.keys {
            Keys::Range { last, step } => {
                write_part(reply, "range", &[("lastkey", last), ("keystep", step), ("limit", 0)]);
            }
            Keys::FirstHalf => {
                write_part(reply, "range", &[("lastkey", -1), ("keystep", 1), ("limit", 2)]);
            }
            Keys::Counted => {
                write_part(reply, "keynum", &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)]);
            }
            Keys::Unknown => write_type(reply, "unknown", 0),
        }
    }
}

/// Begins a part of a specification, whose type has some fields.
fn write_type(reply: &mut Reply<'_>, name: &str, fields: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(name.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields);
}

fn write_part(reply: &mut Reply<'_>, name: &str, fields: &[(&str, i64)]) {
    write_type(reply, name, fields.len());
    for &(name, number) in fields {
        reply.bulk(name.as_bytes());
        reply.integer(number);
    }
}
