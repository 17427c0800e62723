//! The commands, a file for each family, and the table that lists them.
//!
//! A line of the table: place, name, arity, flags, keys, since; what does it; what it does, in words; how atomic it is.

mod connection;
mod expiry;
mod keys;
mod ordered;
mod scan;
mod server;
mod strings;

use super::call::Call;
use super::fault::Fault;
use super::table::Command;

macro_rules! commands {
    ($call:ident; $($group:literal {$(
        $id:ident $name:literal $arity:literal [$($flag:ident)*] ($first:literal $last:literal $step:literal) $since:literal
        => $run:expr, $summary:literal, $note:literal;
    )*})*) => {
        /// A command's place in the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub(super) enum Id { $($($id,)*)* }

        /// All commands, by their groups.
        pub(super) static TABLE: &[Command] = &[$($(
            Command {
                id: Id::$id,
                name: $name,
                arity: $arity,
                flags: &[$(stringify!($flag)),*],
                keys: ($first, $last, $step),
                since: $since,
                group: $group,
                summary: $summary,
                note: $note,
            },
        )*)*];

        /// Does what a command says.
        pub(super) async fn run(id: Id, $call: &mut Call<'_>) -> Result<(), Fault> {
            match id {
                $($(Id::$id => $run,)*)*
            }
        }
    };
}

commands! { call;
    "string" {
        Append "append" 3 [write denyoom fast] (1 1 1) "2.0.0" => strings::append(call).await,
            "Adds bytes to the end of a value", "atomic";
        Decr "decr" 2 [write denyoom fast] (1 1 1) "1.0.0" => strings::decr(call).await,
            "Takes one from a number", "atomic";
        Decrby "decrby" 3 [write denyoom fast] (1 1 1) "1.0.0" => strings::decrby(call).await,
            "Takes from a number", "atomic";
        Get "get" 2 [readonly fast] (1 1 1) "1.0.0" => strings::get(call).await,
            "Tells a value", "atomic";
        Getdel "getdel" 2 [write fast] (1 1 1) "6.2.0" => strings::getdel(call).await,
            "Tells a value and removes it", "atomic";
        Getex "getex" -2 [write fast] (1 1 1) "6.2.0" => strings::getex(call).await,
            "Tells a value and sets when it ends", "atomic";
        Getrange "getrange" 4 [readonly] (1 1 1) "2.4.0" => strings::getrange(call).await,
            "Tells a part of a value", "atomic";
        Getset "getset" 3 [write denyoom fast] (1 1 1) "1.0.0" => strings::getset(call).await,
            "Sets a value and tells the old one", "atomic";
        Incr "incr" 2 [write denyoom fast] (1 1 1) "1.0.0" => strings::incr(call).await,
            "Adds one to a number", "atomic";
        Incrby "incrby" 3 [write denyoom fast] (1 1 1) "1.0.0" => strings::incrby(call).await,
            "Adds to a number", "atomic";
        Incrbyfloat "incrbyfloat" 3 [write denyoom fast] (1 1 1) "2.6.0" => strings::incrbyfloat(call).await,
            "Adds to a decimal number, in 64 bits of precision", "atomic";
        Mget "mget" -2 [readonly fast] (1 -1 1) "1.0.0" => strings::mget(call).await,
            "Tells several values", "each key by itself: others may change one between two reads";
        Mset "mset" -3 [write denyoom] (1 -1 2) "1.0.1" => strings::mset(call).await,
            "Sets several values", "each key by itself, in their order: others may see some set and some not";
        Msetnx "msetnx" -3 [write denyoom] (1 -1 2) "1.0.1" => strings::msetnx(),
            "Refused: it is all or nothing over several keys", "refused";
        Psetex "psetex" 4 [write denyoom] (1 1 1) "2.6.0" => strings::setex(call, 1).await,
            "Sets a value that ends in so many ms", "atomic";
        Set "set" -3 [write denyoom] (1 1 1) "1.0.0" => strings::set(call).await,
            "Sets a value; NX, XX, GET, EX, PX, EXAT, PXAT, KEEPTTL", "atomic";
        Setex "setex" 4 [write denyoom] (1 1 1) "2.0.0" => strings::setex(call, 1000).await,
            "Sets a value that ends in so many seconds", "atomic";
        Setnx "setnx" 3 [write denyoom fast] (1 1 1) "1.0.0" => strings::setnx(call).await,
            "Sets a value if there is none", "atomic";
        Setrange "setrange" 4 [write denyoom] (1 1 1) "2.2.0" => strings::setrange(call).await,
            "Writes over a part of a value", "atomic";
        Strlen "strlen" 2 [readonly fast] (1 1 1) "2.2.0" => strings::strlen(call).await,
            "Tells how long a value is", "atomic";
        Substr "substr" 4 [readonly] (1 1 1) "1.0.0" => strings::getrange(call).await,
            "As GETRANGE", "atomic";
    }
    "generic" {
        Del "del" -2 [write] (1 -1 1) "1.0.0" => keys::del(call).await,
            "Removes keys", "each key by itself";
        Exists "exists" -2 [readonly fast] (1 -1 1) "1.0.0" => keys::exists(call).await,
            "Counts which of some keys are there", "each key by itself";
        Expire "expire" -3 [write fast] (1 1 1) "1.0.0" => expiry::expire(call, expiry::Unit::Seconds, true).await,
            "Has a key end in so many seconds; NX, XX, GT, LT", "atomic; by the gateway's clock";
        Expireat "expireat" -3 [write fast] (1 1 1) "1.2.0" => expiry::expire(call, expiry::Unit::Seconds, false).await,
            "Has a key end at a time in seconds", "atomic; by the gateway's clock";
        Expiretime "expiretime" 2 [readonly fast] (1 1 1) "7.0.0" => expiry::ttl(call, expiry::Unit::Seconds, false).await,
            "Tells when a key ends, in seconds", "atomic";
        Keys "keys" 2 [readonly] (0 0 0) "1.0.0" => scan::keys(call).await,
            "Tells the keys that match a pattern, in order",
            "keys that are there throughout come, once; what a pattern begins with is looked for, not filtered";
        Persist "persist" 2 [write fast] (1 1 1) "2.2.0" => expiry::persist(call).await,
            "Has a key last", "atomic";
        Pexpire "pexpire" -3 [write fast] (1 1 1) "2.6.0" => expiry::expire(call, expiry::Unit::Millis, true).await,
            "Has a key end in so many ms; NX, XX, GT, LT", "atomic; by the gateway's clock";
        Pexpireat "pexpireat" -3 [write fast] (1 1 1) "2.6.0" => expiry::expire(call, expiry::Unit::Millis, false).await,
            "Has a key end at a time in ms", "atomic; by the gateway's clock";
        Pexpiretime "pexpiretime" 2 [readonly fast] (1 1 1) "7.0.0" => expiry::ttl(call, expiry::Unit::Millis, false).await,
            "Tells when a key ends, in ms", "atomic";
        Pttl "pttl" 2 [readonly fast] (1 1 1) "2.6.0" => expiry::ttl(call, expiry::Unit::Millis, true).await,
            "Tells how many ms a key has left", "atomic; by the gateway's clock";
        Randomkey "randomkey" 1 [readonly] (0 0 0) "1.0.0" => scan::randomkey(call).await,
            "Tells some key", "every key can come; keys in thinly used parts of the key space come more often";
        Scan "scan" -2 [readonly] (0 0 0) "2.8.0" => scan::scan(call).await,
            "Tells keys step by step, in order; MATCH, COUNT, TYPE",
            "keys that are there throughout come, once; a cursor is good at every gateway, for half an hour at least";
        Ttl "ttl" 2 [readonly fast] (1 1 1) "1.0.0" => expiry::ttl(call, expiry::Unit::Seconds, true).await,
            "Tells how many seconds a key has left", "atomic; by the gateway's clock";
        Type "type" 2 [readonly fast] (1 1 1) "1.0.0" => keys::kind(call).await,
            "Tells what a key holds", "atomic";
        Unlink "unlink" -2 [write fast] (1 -1 1) "4.0.0" => keys::del(call).await,
            "As DEL", "each key by itself";
    }
    "ordered" {
        Range "range" -3 [readonly] (0 0 0) "darter 0.1" => ordered::range(call).await,
            "Tells keys and values between two bounds, `[key`, `(key`, `-` or `+`, in order; LIMIT n, REV (bounds then from high to \
             low), KEYSONLY", "keys that are there throughout come, once, in order";
        Rangecount "rangecount" 3 [readonly] (0 0 0) "darter 0.1" => ordered::rangecount(call).await,
            "Counts the keys between two bounds", "keys that are there throughout count, once; takes as long as there are keys";
    }
    "connection" {
        Auth "auth" -2 [noscript loading stale fast no_auth] (0 0 0) "1.0.0" => connection::auth(call),
            "Shows the password; the user is `default`", "";
        Client "client" -2 [noscript loading stale] (0 0 0) "2.4.0" => connection::client(call),
            "ID, GETNAME, SETNAME, SETINFO, INFO, LIST, KILL, NO-EVICT", "this gateway's clients";
        Echo "echo" 2 [loading stale fast] (0 0 0) "1.0.0" => connection::echo(call),
            "Tells what it was told", "";
        Hello "hello" -1 [noscript loading stale fast no_auth] (0 0 0) "6.0.0" => connection::hello(call),
            "Chooses RESP2 or RESP3; AUTH, SETNAME", "";
        Ping "ping" -1 [loading stale fast] (0 0 0) "1.0.0" => connection::ping(call),
            "Answers", "";
        Quit "quit" -1 [noscript loading stale fast no_auth] (0 0 0) "1.0.0" => connection::quit(call),
            "Ends the connection", "";
        Reset "reset" 1 [noscript loading stale fast no_auth] (0 0 0) "6.2.0" => connection::reset(call),
            "Makes the connection as it was when it was new", "";
        Select "select" 2 [loading stale fast] (0 0 0) "1.0.0" => connection::select(call),
            "Chooses database 0, the only one", "";
    }
    "server" {
        Command "command" -1 [loading stale] (0 0 0) "2.8.13" => server::command(call),
            "Tells of the commands; COUNT, INFO, DOCS, LIST", "";
        Config "config" -2 [admin noscript loading stale] (0 0 0) "2.0.0" => server::config(call),
            "GET of what clients ask for; the rest is the command line's", "this gateway's";
        Dbsize "dbsize" 1 [readonly] (0 0 0) "1.0.0" => scan::dbsize(call).await,
            "Counts the keys", "keys that are there throughout count, once; takes as long as there are keys";
        Flushall "flushall" -1 [write] (0 0 0) "1.0.0" => keys::flush(call).await,
            "Removes all keys; wants `--allow-flush`", "each key by itself; keys that come meanwhile may stay";
        Flushdb "flushdb" -1 [write] (0 0 0) "1.0.0" => keys::flush(call).await,
            "As FLUSHALL", "each key by itself; keys that come meanwhile may stay";
        Info "info" -1 [loading stale] (0 0 0) "1.0.0" => server::info(call),
            "Tells how the gateway is", "this gateway's; the number of keys is of the last round of its walk";
    }
}
