//! The table of commands: the name, arguments and effect of each, for dispatch, for `COMMAND` and
//! for docs/commands.md.
//!
//! To add a command, add an entry to the list in this file and a function to its family's file in
//! `commands/`.

use std::fmt::Write;
use std::ops::Range;
use std::sync::LazyLock;

/// An entry of the table.
#[derive(Debug)]
pub(super) struct Command {
    /// The command's position in the table.
    pub id: CommandId,
    /// The command's name in lower case.
    pub name: &'static str,
    /// The number of arguments, including the name; if negative, the minimum.
    pub arity: i64,
    /// The command's flags, in Redis's words.
    pub flags: &'static [&'static str],
    /// The arguments that are keys: the first, the last (from the end if negative) and the step.
    /// All are 0 if there are none.
    pub keys: (i64, i64, i64),
    /// The version of Redis, or of darter, that introduced it.
    pub since: &'static str,
    /// The group that it belongs to, in Redis's words.
    pub group: &'static str,
    /// A summary in one line.
    pub summary: &'static str,
    /// How atomic it is across gateways, and where it differs from Redis.
    pub note: &'static str,
}

/// Passes the list of commands, by group, to a macro: `table!` below builds the table, and
/// `commands/mod.rs` the dispatch.
///
/// An entry gives the command's id, name, arity, flags, keys and the version that introduced it;
/// an expression whose value is the future that runs it; a summary; and how atomic it is across
/// gateways.
macro_rules! for_each_command {
    ($with:ident) => {
        $with! { call;
            "string" {
                Append "append" 3 [write denyoom fast] (1 1 1) "2.0.0" => strings::append(call),
                    "Adds bytes to the end of a value", "atomic";
                Decr "decr" 2 [write denyoom fast] (1 1 1) "1.0.0" => numbers::decr(call),
                    "Takes one from a number", "atomic";
                Decrby "decrby" 3 [write denyoom fast] (1 1 1) "1.0.0" => numbers::decrby(call),
                    "Takes from a number", "atomic";
                Get "get" 2 [readonly fast] (1 1 1) "1.0.0" => strings::get(call),
                    "Returns a value", "atomic";
                Getdel "getdel" 2 [write fast] (1 1 1) "6.2.0" => strings::getdel(call),
                    "Returns a value and removes it", "atomic";
                Getex "getex" -2 [write fast] (1 1 1) "6.2.0" => strings::getex(call),
                    "Returns a value and sets its expiry time", "atomic";
                Getrange "getrange" 4 [readonly] (1 1 1) "2.4.0" => strings::getrange(call),
                    "Returns a part of a value", "atomic";
                Getset "getset" 3 [write denyoom fast] (1 1 1) "1.0.0" => strings::getset(call),
                    "Sets a value and returns the old one", "atomic";
                Incr "incr" 2 [write denyoom fast] (1 1 1) "1.0.0" => numbers::incr(call),
                    "Adds one to a number", "atomic";
                Incrby "incrby" 3 [write denyoom fast] (1 1 1) "1.0.0" => numbers::incrby(call),
                    "Adds to a number", "atomic";
                Incrbyfloat "incrbyfloat" 3 [write denyoom fast] (1 1 1) "2.6.0" => numbers::incrbyfloat(call),
                    "Adds to a decimal number, in 64 bits of precision", "atomic";
                Lcs "lcs" -3 [readonly] (1 2 1) "7.0.0" => lcs::lcs(call),
                    "Returns the longest common subsequence of two values; LEN, IDX, MINMATCHLEN, WITHMATCHLEN",
                    "each key separately; takes time linear in the product of both lengths, which is at most 134,217,728";
                Mget "mget" -2 [readonly fast] (1 -1 1) "1.0.0" => strings::mget(call),
                    "Returns several values", "each key separately: other clients may change one between two reads";
                Mset "mset" -3 [write denyoom] (1 -1 2) "1.0.1" => strings::mset(call),
                    "Sets several values", "over Quiver at one moment, also if the gateway dies; over DART each key separately";
                Msetnx "msetnx" -3 [write denyoom] (1 -1 2) "1.0.1" => strings::msetnx(call),
                    "Sets several values if none of the keys exists",
                    "over Quiver at one moment, also if the gateway dies; over DART several keys are refused";
                Psetex "psetex" 4 [write denyoom] (1 1 1) "2.6.0" => strings::setex(call, 1),
                    "Sets a value with a time to live in ms", "atomic";
                Set "set" -3 [write denyoom] (1 1 1) "1.0.0" => strings::set(call),
                    "Sets a value; NX, XX, GET, EX, PX, EXAT, PXAT, KEEPTTL", "atomic";
                Setex "setex" 4 [write denyoom] (1 1 1) "2.0.0" => strings::setex(call, 1000),
                    "Sets a value with a time to live in seconds", "atomic";
                Setnx "setnx" 3 [write denyoom fast] (1 1 1) "1.0.0" => strings::setnx(call),
                    "Sets a value if there is none", "atomic";
                Setrange "setrange" 4 [write denyoom] (1 1 1) "2.2.0" => strings::setrange(call),
                    "Writes over a part of a value", "atomic";
                Strlen "strlen" 2 [readonly fast] (1 1 1) "2.2.0" => strings::strlen(call),
                    "Returns the length of a value", "atomic";
                Substr "substr" 4 [readonly] (1 1 1) "1.0.0" => strings::getrange(call),
                    "As GETRANGE", "atomic";
            }
            "bitmap" {
                Bitcount "bitcount" -2 [readonly] (1 1 1) "2.6.0" => bits::bitcount(call),
                    "Counts the bits that are set, in a range; BYTE, BIT", "atomic";
                Bitfield "bitfield" -2 [write denyoom] (1 1 1) "3.2.0" => bit_fields::bitfield(call, false),
                    "Reads and changes integers of 1 to 64 bits at any bits of a value; GET, SET, INCRBY, OVERFLOW", "atomic";
                BitfieldRo "bitfield_ro" -2 [readonly fast] (1 1 1) "6.0.0" => bit_fields::bitfield(call, true),
                    "As BITFIELD, with GET only", "atomic";
                Bitop "bitop" -4 [write denyoom] (2 -1 1) "2.6.0" => bits::bitop(call),
                    "Stores a combination of values, bit by bit; AND, OR, XOR, NOT", "over Quiver at one moment; over DART each key separately";
                Bitpos "bitpos" -3 [readonly] (1 1 1) "2.8.7" => bits::bitpos(call),
                    "Returns the first bit that is set, or that is not, in a range; BYTE, BIT", "atomic";
                Getbit "getbit" 3 [readonly fast] (1 1 1) "2.2.0" => bits::getbit(call),
                    "Returns a bit of a value", "atomic";
                Setbit "setbit" 4 [write denyoom] (1 1 1) "2.2.0" => bits::setbit(call),
                    "Sets or clears a bit of a value", "atomic";
            }
            "generic" {
                Copy "copy" -3 [write denyoom] (1 2 1) "6.2.0" => keys::copy(call),
                    "Copies a key; DB, REPLACE",
                    "over Quiver at one moment, up to 10,000 elements; else the new key appears whole, and elements are read one \
                     by one; takes time linear in the number of elements; to another database as MOVE";
                Del "del" -2 [write] (1 -1 1) "1.0.0" => keys::del(call),
                    "Removes keys", "over Quiver at one moment; over DART each key separately";
                Dump "dump" 2 [readonly] (1 1 1) "2.6.0" => dump::dump(call),
                    "Returns a value in the format of Redis's RDB files, for RESTORE of a gateway or of Redis 7.0",
                    "a string: atomic; others as HGETALL; each group of a stream as it was at one moment";
                Exists "exists" -2 [readonly fast] (1 -1 1) "1.0.0" => keys::exists(call),
                    "Counts how many of the given keys exist", "each key separately";
                Expire "expire" -3 [write fast] (1 1 1) "1.0.0" => expiry::expire(call, expiry::Unit::Seconds, true),
                    "Sets the time to live of a key, in seconds; NX, XX, GT, LT", "atomic; by the gateway's clock";
                Expireat "expireat" -3 [write fast] (1 1 1) "1.2.0" => expiry::expire(call, expiry::Unit::Seconds, false),
                    "Sets the expiry time of a key, in seconds; NX, XX, GT, LT", "atomic; by the gateway's clock";
                Expiretime "expiretime" 2 [readonly fast] (1 1 1) "7.0.0" => expiry::ttl(call, expiry::Unit::Seconds, false),
                    "Returns the expiry time of a key, in seconds", "atomic";
                Keys "keys" 2 [readonly] (0 0 0) "1.0.0" => scan::keys(call),
                    "Returns the keys that match a pattern, in order",
                    "keys that exist throughout are returned once; a pattern's literal prefix is searched for, not filtered";
                Move "move" 3 [write fast] (1 1 1) "1.0.0" => keys::move_key(call),
                    "Moves a key to another database", "at one moment, up to the limits of transactions; refused over DART";
                Object "object" -2 [readonly] (0 0 0) "2.2.3" => object::object(call),
                    "ENCODING, REFCOUNT; IDLETIME and FREQ are refused: reads are not recorded", "atomic";
                Persist "persist" 2 [write fast] (1 1 1) "2.2.0" => expiry::persist(call),
                    "Removes the expiry time of a key", "atomic";
                Pexpire "pexpire" -3 [write fast] (1 1 1) "2.6.0" => expiry::expire(call, expiry::Unit::Millis, true),
                    "Sets the time to live of a key, in ms; NX, XX, GT, LT", "atomic; by the gateway's clock";
                Pexpireat "pexpireat" -3 [write fast] (1 1 1) "2.6.0" => expiry::expire(call, expiry::Unit::Millis, false),
                    "Sets the expiry time of a key, in ms; NX, XX, GT, LT", "atomic; by the gateway's clock";
                Pexpiretime "pexpiretime" 2 [readonly fast] (1 1 1) "7.0.0" => expiry::ttl(call, expiry::Unit::Millis, false),
                    "Returns the expiry time of a key, in ms", "atomic";
                Pttl "pttl" 2 [readonly fast] (1 1 1) "2.6.0" => expiry::ttl(call, expiry::Unit::Millis, true),
                    "Returns the time to live of a key, in ms", "atomic; by the gateway's clock";
                Randomkey "randomkey" 1 [readonly] (0 0 0) "1.0.0" => scan::randomkey(call),
                    "Returns a random key", "every key is possible; keys in sparse parts of the key space are returned more often";
                Rename "rename" 3 [write] (1 2 1) "1.0.0" => keys::rename(call),
                    "Renames a key",
                    "over Quiver at one moment, up to 10,000 elements; else two steps: the new key appears whole, then the old one is \
                     removed if it is unchanged, or the command starts over; other clients may see both, and a gateway that dies may leave both; takes \
                     time linear in the number of elements";
                Renamenx "renamenx" 3 [write fast] (1 2 1) "1.0.0" => keys::renamenx(call),
                    "Renames a key if the new one does not exist", "as RENAME; if several clients rename to one new key, one succeeds";
                Restore "restore" -4 [write denyoom] (1 1 1) "2.6.0" => dump::restore(call),
                    "Sets a key to a value that DUMP of a gateway or of Redis returned; REPLACE, ABSTTL; IDLETIME and FREQ are ignored",
                    "the key appears whole; takes time linear in the number of elements";
                Scan "scan" -2 [readonly] (0 0 0) "2.8.0" => scan::scan(call),
                    "Returns keys step by step, in order; MATCH, COUNT, TYPE",
                    "keys that exist throughout are returned once; a cursor is valid at every gateway, for at least half an hour; an unknown cursor starts over";
                Sort "sort" -2 [write denyoom movablekeys] (1 1 1) "1.0.0" => sort::sort(call, false),
                    "Returns the elements of a list, a set or a sorted set in order, or stores them as a list; BY, LIMIT, GET, ASC, DESC, ALPHA, STORE",
                    "each key separately: other clients may change one between two reads; with STORE over Quiver at one moment, up to the \
                     limits of transactions; else the list appears whole";
                SortRo "sort_ro" -2 [readonly movablekeys] (1 1 1) "7.0.0" => sort::sort(call, true),
                    "As SORT, without STORE", "as SORT";
                Touch "touch" -2 [readonly fast] (1 -1 1) "3.2.1" => keys::exists(call),
                    "As EXISTS: reads are not recorded", "each key separately";
                Ttl "ttl" 2 [readonly fast] (1 1 1) "1.0.0" => expiry::ttl(call, expiry::Unit::Seconds, true),
                    "Returns the time to live of a key, in seconds", "atomic; by the gateway's clock";
                Type "type" 2 [readonly fast] (1 1 1) "1.0.0" => keys::kind(call),
                    "Returns the type of a key", "atomic";
                Unlink "unlink" -2 [write fast] (1 -1 1) "4.0.0" => keys::del(call),
                    "As DEL", "over Quiver at one moment; over DART each key separately";
                Wait "wait" 3 [noscript] (0 0 0) "3.0.0" => ready(server::wait(call)),
                    "Returns the number of replicas that have acknowledged the connection's writes: 0, at once", "";
            }
            "hash" {
                Hdel "hdel" -3 [write fast] (1 1 1) "2.0.0" => elements::remove(call, Kind::Hash),
                    "Removes fields",
                    "over Quiver at one moment; over DART those of a large hash each separately, in order; a hash without fields is absent";
                Hexists "hexists" 3 [readonly fast] (1 1 1) "2.0.0" => hashes::hexists(call),
                    "Returns whether a field exists", "atomic";
                Hexpire "hexpire" -6 [write denyoom fast] (1 1 1) "7.4.0" => field_expiry::hexpire(call, expiry::Unit::Seconds, true),
                    "Sets the time to live of fields, in seconds; NX, XX, GT, LT", "as HINCRBY; several fields as HSET; of a large hash, the first one takes time linear in the number of fields";
                Hexpireat "hexpireat" -6 [write denyoom fast] (1 1 1) "7.4.0" => field_expiry::hexpire(call, expiry::Unit::Seconds, false),
                    "Sets the expiry time of fields, in seconds; NX, XX, GT, LT", "as HEXPIRE";
                Hexpiretime "hexpiretime" -5 [readonly fast] (1 1 1) "7.4.0" => field_expiry::httl(call, expiry::Unit::Seconds, false),
                    "Returns the expiry times of fields, in seconds", "as HMGET";
                Hget "hget" 3 [readonly fast] (1 1 1) "2.0.0" => hashes::hget(call),
                    "Returns the value of a field", "atomic";
                Hgetall "hgetall" 2 [readonly] (1 1 1) "2.0.0" => elements::all(call, Kind::Hash, true, true),
                    "Returns all fields and values, in the order of the fields",
                    "atomic for a small hash; each field of a large one separately: other clients may change one between two reads; a hash that is \
                     removed is returned whole or not at all";
                Hgetdel "hgetdel" -5 [write fast] (1 1 1) "8.0.0" => field_expiry::hgetdel(call),
                    "Returns the values of fields, and removes them", "as HEXPIRE";
                Hgetex "hgetex" -5 [write fast] (1 1 1) "8.0.0" => field_expiry::hgetex(call),
                    "Returns the values of fields, and sets their expiry time; EX, PX, EXAT, PXAT, PERSIST", "as HEXPIRE";
                Hincrby "hincrby" 4 [write denyoom fast] (1 1 1) "2.0.0" => hashes::hincrby(call),
                    "Adds to a field that is a number",
                    "atomic; while a DEL of its key runs, the change of a large hash may be seen before the DEL and again after it";
                Hincrbyfloat "hincrbyfloat" 4 [write denyoom fast] (1 1 1) "2.6.0" => hashes::hincrbyfloat(call),
                    "Adds to a field that is a decimal number, in 64 bits of precision", "as HINCRBY";
                Hkeys "hkeys" 2 [readonly] (1 1 1) "2.0.0" => elements::all(call, Kind::Hash, true, false),
                    "Returns all fields, in order", "as HGETALL";
                Hlen "hlen" 2 [readonly fast] (1 1 1) "2.0.0" => hashes::hlen(call),
                    "Counts the fields",
                    "atomic for a small hash; of a large one, fields that exist throughout are counted once, in time linear in their number";
                Hmget "hmget" -3 [readonly fast] (1 1 1) "2.0.0" => hashes::hmget(call),
                    "Returns the values of several fields", "as HGETALL";
                Hmset "hmset" -4 [write denyoom fast] (1 1 1) "2.0.0" => hashes::hmset(call),
                    "As HSET, and returns OK", "as HSET";
                Hpersist "hpersist" -5 [write fast] (1 1 1) "7.4.0" => field_expiry::hpersist(call),
                    "Takes the expiry times of fields off", "as HEXPIRE";
                Hpexpire "hpexpire" -6 [write denyoom fast] (1 1 1) "7.4.0" => field_expiry::hexpire(call, expiry::Unit::Millis, true),
                    "As HEXPIRE, in ms", "as HEXPIRE";
                Hpexpireat "hpexpireat" -6 [write denyoom fast] (1 1 1) "7.4.0" => field_expiry::hexpire(call, expiry::Unit::Millis, false),
                    "As HEXPIREAT, in ms", "as HEXPIRE";
                Hpexpiretime "hpexpiretime" -5 [readonly fast] (1 1 1) "7.4.0" => field_expiry::httl(call, expiry::Unit::Millis, false),
                    "As HEXPIRETIME, in ms", "as HMGET";
                Hpttl "hpttl" -5 [readonly fast] (1 1 1) "7.4.0" => field_expiry::httl(call, expiry::Unit::Millis, true),
                    "As HTTL, in ms", "as HMGET";
                Hrandfield "hrandfield" -2 [readonly] (1 1 1) "6.2.0" => random::random(call, Kind::Hash),
                    "Returns random fields, each as likely as every other; WITHVALUES", "as HGETALL; takes time linear in the number of fields";
                Hscan "hscan" -3 [readonly] (1 1 1) "2.8.0" => elements::scan(call, Kind::Hash),
                    "Returns fields and values step by step, in the order of the fields; MATCH, COUNT, NOVALUES",
                    "fields that exist throughout are returned once; a small hash is returned at once; a cursor is valid at every gateway, for at least \
                     half an hour; an unknown cursor starts over";
                Hset "hset" -4 [write denyoom fast] (1 1 1) "2.0.0" => hashes::hset(call),
                    "Sets fields to values",
                    "over Quiver several fields at one moment; over DART those of a large hash each separately, in order; while a DEL of its key runs, a \
                     change of a large hash may be seen before the DEL and again after it";
                Hsetex "hsetex" -6 [write denyoom fast] (1 1 1) "8.0.0" => field_expiry::hsetex(call),
                    "Sets fields to values with an expiry time; FNX, FXX, EX, PX, EXAT, PXAT, KEEPTTL", "as HEXPIRE; FNX and FXX over Quiver at one moment, and refused over DART";
                Hsetnx "hsetnx" 4 [write denyoom fast] (1 1 1) "2.0.0" => hashes::hsetnx(call),
                    "Sets a field to a value if it is absent", "as HINCRBY";
                Hstrlen "hstrlen" 3 [readonly fast] (1 1 1) "3.2.0" => hashes::hstrlen(call),
                    "Returns the length of a field's value", "atomic";
                Httl "httl" -5 [readonly fast] (1 1 1) "7.4.0" => field_expiry::httl(call, expiry::Unit::Seconds, true),
                    "Returns the times to live of fields, in seconds", "as HMGET";
                Hvals "hvals" 2 [readonly] (1 1 1) "2.0.0" => elements::all(call, Kind::Hash, false, true),
                    "Returns all values, in the order of the fields", "as HGETALL";
            }
            "set" {
                Sadd "sadd" -3 [write denyoom fast] (1 1 1) "1.0.0" => sets::sadd(call),
                    "Adds members",
                    "over Quiver several members at one moment; over DART those of a large set each separately, in order; while a DEL of its \
                     key runs, a change of a large set may be seen before the DEL and again after it";
                Scard "scard" 2 [readonly fast] (1 1 1) "1.0.0" => sets::scard(call),
                    "Counts the members",
                    "atomic for a small set; of a large one, members that exist throughout are counted once, in time linear in their number";
                Sdiff "sdiff" -2 [readonly] (1 -1 1) "1.0.0" => set_operations::combine(call, Join::Difference),
                    "Returns the members of the first set that no other has, in order", "as SUNION";
                Sdiffstore "sdiffstore" -3 [write denyoom] (1 -1 1) "1.0.0" => set_operations::store(call, Join::Difference),
                    "Stores the members of the first set that no other has", "as SUNIONSTORE";
                Sinter "sinter" -2 [readonly] (1 -1 1) "1.0.0" => set_operations::combine(call, Join::Intersection),
                    "Returns the members that all sets have, in order", "as SUNION; takes time by the smallest set";
                Sintercard "sintercard" -3 [readonly movablekeys] (0 0 0) "7.0.0" => set_operations::sintercard(call),
                    "Counts the members that all sets have; LIMIT", "as SINTER";
                Sinterstore "sinterstore" -3 [write denyoom] (1 -1 1) "1.0.0" => set_operations::store(call, Join::Intersection),
                    "Stores the members that all sets have", "as SUNIONSTORE";
                Sismember "sismember" 3 [readonly fast] (1 1 1) "1.0.0" => sets::sismember(call),
                    "Returns whether a member exists", "atomic";
                Smembers "smembers" 2 [readonly] (1 1 1) "1.0.0" => elements::all(call, Kind::Set, true, false),
                    "Returns all members, in order",
                    "atomic for a small set; each member of a large one separately: other clients may change one between two reads; a set that is \
                     removed is returned whole or not at all";
                Smismember "smismember" -3 [readonly fast] (1 1 1) "6.2.0" => sets::smismember(call),
                    "Returns which members exist", "as SMEMBERS";
                Smove "smove" 4 [write fast] (1 2 1) "1.0.0" => sets::smove(call),
                    "Moves a member to another set", "at one moment, also if the gateway dies; refused over DART";
                Spop "spop" -2 [write fast] (1 1 1) "1.0.0" => random::pop(call),
                    "Removes and returns random members, each as likely as every other",
                    "atomic for a small set; no other client gets a member that was returned, also if the key is renamed or stored; several members of \
                     a large set in one or more steps; takes time linear in the number of members";
                Srandmember "srandmember" -2 [readonly] (1 1 1) "1.0.0" => random::random(call, Kind::Set),
                    "Returns random members, each as likely as every other", "as SMEMBERS; takes time linear in the number of members";
                Srem "srem" -3 [write fast] (1 1 1) "1.0.0" => elements::remove(call, Kind::Set),
                    "Removes members",
                    "over Quiver at one moment; over DART those of a large set each separately, in order; a set without members is absent";
                Sscan "sscan" -3 [readonly] (1 1 1) "2.8.0" => elements::scan(call, Kind::Set),
                    "Returns members step by step, in order; MATCH, COUNT",
                    "members that exist throughout are returned once; a small set is returned at once; a cursor is valid at every gateway, for at \
                     least half an hour; an unknown cursor starts over";
                Sunion "sunion" -2 [readonly] (1 -1 1) "1.0.0" => set_operations::combine(call, Join::Union),
                    "Returns the members that any set has, in order",
                    "each set separately: other clients may change one between two reads";
                Sunionstore "sunionstore" -3 [write denyoom] (1 -1 1) "1.0.0" => set_operations::store(call, Join::Union),
                    "Stores the members that any set has",
                    "over Quiver at one moment, up to 10,000 elements of large sets; else the result appears whole, and the sets are read one by one";
            }
            "sorted-set" {
                Bzmpop "bzmpop" -5 [write blocking movablekeys] (0 0 0) "7.0.0" => blocking::bzmpop(call),
                    "Removes and returns members of the first sorted set that has any; waits for one; MIN, MAX, COUNT", "as ZPOPMIN and BLPOP";
                Bzpopmax "bzpopmax" -3 [write noscript fast blocking] (1 -2 1) "5.0.0" => blocking::zpop(call, true),
                    "As BZPOPMIN, with the highest score", "as ZPOPMIN and BLPOP";
                Bzpopmin "bzpopmin" -3 [write noscript fast blocking] (1 -2 1) "5.0.0" => blocking::zpop(call, false),
                    "Removes and returns the member with the lowest score of the first sorted set that has any; waits for one", "as ZPOPMIN and BLPOP";
                Zadd "zadd" -4 [write denyoom fast] (1 1 1) "1.2.0" => sorted_sets::zadd(call),
                    "Sets the scores of members; NX, XX, GT, LT, CH, INCR",
                    "over Quiver several members at one moment; over DART those of a large sorted set each separately, in order; while a DEL of its key \
                     runs, a change of a large sorted set may be seen before the DEL and again after it";
                Zcard "zcard" 2 [readonly fast] (1 1 1) "1.2.0" => sorted_sets::zcard(call),
                    "Counts the members",
                    "atomic for a small sorted set; of a large one, members that exist throughout are counted once, in time linear in their number";
                Zcount "zcount" 4 [readonly fast] (1 1 1) "2.0.0" => ranks::count(call, By::Score),
                    "Counts the members with scores between two bounds", "as ZRANGE; takes time linear in the number of such members";
                Zdiff "zdiff" -3 [readonly movablekeys] (0 0 0) "6.2.0" => sorted_set_operations::combine(call, Join::Difference),
                    "Returns the members of the first sorted set that no other has, by score; WITHSCORES", "as ZUNION";
                Zdiffstore "zdiffstore" -4 [write denyoom movablekeys] (1 1 1) "6.2.0" => sorted_set_operations::store(call, Join::Difference),
                    "Stores the members of the first sorted set that no other has", "as ZUNIONSTORE";
                Zincrby "zincrby" 4 [write denyoom fast] (1 1 1) "1.2.0" => sorted_sets::zincrby(call),
                    "Adds to a member's score", "atomic; while a DEL of its key runs, the change may be seen before the DEL and again after it";
                Zinter "zinter" -3 [readonly movablekeys] (0 0 0) "6.2.0" => sorted_set_operations::combine(call, Join::Intersection),
                    "Returns the members that all sorted sets have, by score; WEIGHTS, AGGREGATE, WITHSCORES",
                    "as ZUNION; takes time by the smallest sorted set";
                Zintercard "zintercard" -3 [readonly movablekeys] (0 0 0) "7.0.0" => sorted_set_operations::zintercard(call),
                    "Counts the members that all sorted sets have; LIMIT", "as ZINTER";
                Zinterstore "zinterstore" -4 [write denyoom movablekeys] (1 1 1) "2.0.0" => sorted_set_operations::store(call, Join::Intersection),
                    "Stores the members that all sorted sets have; WEIGHTS, AGGREGATE", "as ZUNIONSTORE";
                Zlexcount "zlexcount" 4 [readonly fast] (1 1 1) "2.8.9" => ranks::count(call, By::Name),
                    "Counts the members between two names, regardless of their scores", "as ZCARD; takes time linear in the number of such members";
                Zmpop "zmpop" -4 [write movablekeys] (0 0 0) "7.0.0" => sorted_sets::zmpop(call),
                    "Removes and returns the members with the lowest or the highest scores of the first sorted set that has any; COUNT", "as ZPOPMIN";
                Zmscore "zmscore" -3 [readonly fast] (1 1 1) "6.2.0" => sorted_sets::zmscore(call),
                    "Returns the scores of several members",
                    "atomic for a small sorted set; each member of a large one separately: other clients may change one between two reads";
                Zpopmax "zpopmax" -2 [write fast] (1 1 1) "5.0.0" => sorted_sets::pop(call, true),
                    "Removes and returns the members with the highest scores", "as ZPOPMIN";
                Zpopmin "zpopmin" -2 [write fast] (1 1 1) "5.0.0" => sorted_sets::pop(call, false),
                    "Removes and returns the members with the lowest scores",
                    "atomic for a small sorted set; each member of a large one separately, and no other client gets it; a lower one may be added at the same time";
                Zrandmember "zrandmember" -2 [readonly] (1 1 1) "6.2.0" => random::random(call, Kind::SortedSet),
                    "Returns random members, each as likely as every other; WITHSCORES",
                    "atomic for a small sorted set; each member of a large one separately, in time linear in their number";
                Zrange "zrange" -4 [readonly] (1 1 1) "1.2.0" => ranks::range(call, None, None),
                    "Returns members by rank, score or name, in order; BYSCORE, BYLEX, REV, LIMIT, WITHSCORES",
                    "atomic for a small sorted set; of a large one, members that exist throughout with one score are returned once, in order; a member \
                     whose score changes is returned once or not; a set that is removed is returned whole or not at all; takes time linear in the \
                     number of members up to the last";
                Zrangebylex "zrangebylex" -4 [readonly] (1 1 1) "2.8.9" => ranks::range(call, Some(By::Name), Some(false)),
                    "Returns the members between two names, regardless of their scores; LIMIT", "members that exist throughout are returned once, in order";
                Zrangebyscore "zrangebyscore" -4 [readonly] (1 1 1) "1.0.5" => ranks::range(call, Some(By::Score), Some(false)),
                    "Returns the members with scores between two bounds; LIMIT, WITHSCORES", "as ZRANGE; starts directly at the first member in range";
                Zrangestore "zrangestore" -5 [write denyoom] (1 2 1) "6.2.0" => ranks::store(call),
                    "Stores members by rank, score or name; BYSCORE, BYLEX, REV, LIMIT", "as ZUNIONSTORE";
                Zrank "zrank" 3 [readonly fast] (1 1 1) "2.0.0" => ranks::rank(call, false),
                    "Returns the number of members before one", "as ZRANGE; takes time linear in the number of such members";
                Zrem "zrem" -3 [write fast] (1 1 1) "1.2.0" => elements::remove(call, Kind::SortedSet),
                    "Removes members",
                    "over Quiver at one moment; over DART those of a large sorted set each separately, in order; a sorted set without members is absent";
                Zremrangebylex "zremrangebylex" 4 [write] (1 1 1) "2.8.9" => ranks::remove(call, By::Name),
                    "Removes the members between two names, regardless of their scores", "as ZREMRANGEBYRANK";
                Zremrangebyrank "zremrangebyrank" 4 [write] (1 1 1) "2.0.0" => ranks::remove(call, By::Rank),
                    "Removes the members from one rank to another",
                    "atomic for a small sorted set; each member of a large one separately: the members that ZRANGE would return are removed; other clients \
                     may see some removed and some not";
                Zremrangebyscore "zremrangebyscore" 4 [write] (1 1 1) "1.2.0" => ranks::remove(call, By::Score),
                    "Removes the members with scores between two bounds",
                    "atomic for a small sorted set; each member of a large one separately, and none whose score is out of bounds by then; other clients may \
                     see some removed and some not";
                Zrevrange "zrevrange" -4 [readonly] (1 1 1) "1.2.0" => ranks::range(call, Some(By::Rank), Some(true)),
                    "Returns members by rank from the highest; WITHSCORES", "as ZRANGE";
                Zrevrangebylex "zrevrangebylex" -4 [readonly] (1 1 1) "2.8.9" => ranks::range(call, Some(By::Name), Some(true)),
                    "As ZRANGEBYLEX, in descending order", "as ZRANGEBYLEX";
                Zrevrangebyscore "zrevrangebyscore" -4 [readonly] (1 1 1) "2.2.0" => ranks::range(call, Some(By::Score), Some(true)),
                    "As ZRANGEBYSCORE, in descending order", "as ZRANGEBYSCORE";
                Zrevrank "zrevrank" 3 [readonly fast] (1 1 1) "2.0.0" => ranks::rank(call, true),
                    "Returns the number of members after one", "as ZRANK";
                Zscan "zscan" -3 [readonly] (1 1 1) "2.8.0" => elements::scan(call, Kind::SortedSet),
                    "Returns members and scores step by step, in the order of the members; MATCH, COUNT",
                    "members that exist throughout are returned once; a small sorted set is returned at once; a cursor is valid at every gateway, for at \
                     least half an hour; an unknown cursor starts over";
                Zscore "zscore" 3 [readonly fast] (1 1 1) "1.2.0" => sorted_sets::zscore(call),
                    "Returns the score of a member", "atomic";
                Zunion "zunion" -3 [readonly movablekeys] (0 0 0) "6.2.0" => sorted_set_operations::combine(call, Join::Union),
                    "Returns the members that any sorted set has, by score; WEIGHTS, AGGREGATE, WITHSCORES",
                    "each key separately: other clients may change one between two reads; a key may also be a set, whose members have the score 1";
                Zunionstore "zunionstore" -4 [write denyoom movablekeys] (1 1 1) "2.0.0" => sorted_set_operations::store(call, Join::Union),
                    "Stores the members that any sorted set has; WEIGHTS, AGGREGATE",
                    "over Quiver at one moment, up to 10,000 elements; else the result appears whole, and the keys are read one by one";
            }
            "hyperloglog" {
                Pfadd "pfadd" -2 [write denyoom fast] (1 1 1) "2.8.9" => hyperloglog::pfadd(call),
                    "Adds elements to a HyperLogLog", "atomic";
                Pfcount "pfcount" -2 [readonly] (1 -1 1) "2.8.9" => hyperloglog::pfcount(call),
                    "Estimates how many different elements were added to one or several HyperLogLogs", "one key: atomic; several: each separately";
                Pfdebug "pfdebug" 3 [write denyoom admin] (2 2 1) "2.8.9" => hyperloglog::pfdebug(call),
                    "ENCODING, DECODE, GETREG, TODENSE: the representation of a HyperLogLog", "atomic";
                Pfmerge "pfmerge" -2 [write denyoom] (1 -1 1) "2.8.9" => hyperloglog::pfmerge(call),
                    "Adds the elements of HyperLogLogs to another one", "over Quiver at one moment; over DART each key separately";
            }
            "geo" {
                Geoadd "geoadd" -5 [write denyoom] (1 1 1) "3.2.0" => geo::geoadd(call),
                    "Sets the positions of members; NX, XX, CH", "as ZADD";
                Geodist "geodist" -4 [readonly] (1 1 1) "3.2.0" => geo::geodist(call),
                    "Returns the distance of two members; M, KM, FT, MI", "as ZMSCORE";
                Geohash "geohash" -2 [readonly] (1 1 1) "3.2.0" => geo::geohash(call),
                    "Returns the positions of members as geohashes of 11 characters", "as GEODIST";
                Geopos "geopos" -2 [readonly] (1 1 1) "3.2.0" => geo::geopos(call),
                    "Returns the longitudes and latitudes of members", "as GEODIST";
                Georadius "georadius" -6 [write denyoom movablekeys] (1 1 1) "3.2.0" => geo_search::search(call, geo_search::Form::Position, true),
                    "As GEOSEARCH around a position; STORE, STOREDIST", "as GEOSEARCH; with a destination as GEOSEARCHSTORE";
                GeoradiusRo "georadius_ro" -6 [readonly] (1 1 1) "3.2.10" => geo_search::search(call, geo_search::Form::Position, false),
                    "As GEORADIUS, without a destination", "as GEOSEARCH";
                Georadiusbymember "georadiusbymember" -5 [write denyoom movablekeys] (1 1 1) "3.2.0" => geo_search::search(call, geo_search::Form::Member, true),
                    "As GEOSEARCH around a member; STORE, STOREDIST", "as GEOSEARCH; with a destination as GEOSEARCHSTORE";
                GeoradiusbymemberRo "georadiusbymember_ro" -5 [readonly] (1 1 1) "3.2.10" => geo_search::search(call, geo_search::Form::Member, false),
                    "As GEORADIUSBYMEMBER, without a destination", "as GEOSEARCH";
                Geosearch "geosearch" -7 [readonly] (1 1 1) "6.2.0" => geo_search::search(call, geo_search::Form::Search, false),
                    "Returns the members in a circle or a box; FROMMEMBER, FROMLONLAT, BYRADIUS, BYBOX, ASC, DESC, COUNT, ANY, WITHCOORD, WITHDIST, WITHHASH",
                    "as ZRANGE; takes time linear in the number of members in up to nine cells that cover the area";
                Geosearchstore "geosearchstore" -8 [write denyoom] (1 2 1) "6.2.0" => geo_search::search(call, geo_search::Form::Store, false),
                    "Stores the members in a circle or a box in a sorted set; STOREDIST and the options of GEOSEARCH",
                    "over Quiver at one moment; over DART the destination appears whole, and members are read one by one";
            }
            "list" {
                Blmove "blmove" 6 [write denyoom noscript blocking] (1 2 1) "6.2.0" => blocking::blmove(call),
                    "As LMOVE; waits for an element", "as LMOVE and BLPOP";
                Blmpop "blmpop" -5 [write blocking movablekeys] (0 0 0) "7.0.0" => blocking::blmpop(call),
                    "As LMPOP; waits for an element", "as LMPOP and BLPOP";
                Blpop "blpop" -3 [write noscript blocking] (1 -2 1) "2.0.0" => blocking::pop(call, End::Left),
                    "Removes and returns the first element of the first list that has any; waits for one",
                    "atomic; the clients of one gateway are served in the order in which they came, and compete with those of other gateways";
                Brpop "brpop" -3 [write noscript blocking] (1 -2 1) "2.0.0" => blocking::pop(call, End::Right),
                    "As BLPOP, with the last element", "as BLPOP";
                Brpoplpush "brpoplpush" 4 [write denyoom noscript blocking] (1 2 1) "2.2.0" => blocking::brpoplpush(call),
                    "As RPOPLPUSH; waits for an element", "as LMOVE and BLPOP";
                Lindex "lindex" 3 [readonly] (1 1 1) "1.0.0" => list_reads::lindex(call),
                    "Returns the element at an index", "as LRANGE; reads from the nearer end, and takes time linear in the distance from it";
                Linsert "linsert" 5 [write denyoom] (1 1 1) "2.2.0" => lists::linsert(call),
                    "Inserts an element before or after another; BEFORE, AFTER", "atomic; takes time linear in the number of elements before it";
                Llen "llen" 2 [readonly fast] (1 1 1) "1.0.0" => lists::llen(call),
                    "Returns the number of elements", "over one record atomic; else each end as it was at some time";
                Lmove "lmove" 5 [write denyoom] (1 2 1) "6.2.0" => lists::lmove(call),
                    "Moves an element from an end of a list to an end of another; LEFT, RIGHT", "at one moment; over DART only within one short list";
                Lmpop "lmpop" -4 [write movablekeys] (0 0 0) "7.0.0" => lists::lmpop(call),
                    "Removes and returns elements of the first list that has any; LEFT, RIGHT, COUNT", "atomic for the list; the lists are looked at in order";
                Lpop "lpop" -2 [write fast] (1 1 1) "1.0.0" => lists::pop(call, End::Left),
                    "Removes and returns the first elements", "atomic";
                Lpos "lpos" -3 [readonly] (1 1 1) "6.0.6" => list_reads::lpos(call),
                    "Returns the indexes of elements that are equal to one; RANK, COUNT, MAXLEN", "as LRANGE";
                Lpush "lpush" -3 [write denyoom fast] (1 1 1) "1.0.0" => lists::push(call, End::Left, false),
                    "Adds elements before the first one",
                    "all at one moment; the returned length is that of some time while the command runs; while a DEL of its key runs, the elements may be \
                     seen before the DEL and again after it";
                Lpushx "lpushx" -3 [write denyoom fast] (1 1 1) "2.2.0" => lists::push(call, End::Left, true),
                    "As LPUSH, if the list exists", "as LPUSH";
                Lrange "lrange" 4 [readonly] (1 1 1) "1.0.0" => list_reads::lrange(call),
                    "Returns the elements from one index to another",
                    "over one record atomic; else each part of about 1 KiB as it was at some time, and elements that exist throughout are returned once";
                Lrem "lrem" 4 [write] (1 1 1) "1.0.0" => lists::lrem(call),
                    "Removes elements that are equal to one", "atomic; takes time linear in the number of elements";
                Lset "lset" 4 [write denyoom] (1 1 1) "1.0.0" => lists::lset(call),
                    "Sets the element at an index", "atomic; takes time linear in the distance from the end";
                Ltrim "ltrim" 4 [write] (1 1 1) "1.0.0" => lists::ltrim(call),
                    "Removes the elements outside of a range", "atomic";
                Rpop "rpop" -2 [write fast] (1 1 1) "1.0.0" => lists::pop(call, End::Right),
                    "Removes and returns the last elements", "atomic";
                Rpoplpush "rpoplpush" 3 [write denyoom] (1 2 1) "1.2.0" => lists::rpoplpush(call),
                    "Moves the last element of a list to the front of another", "as LMOVE";
                Rpush "rpush" -3 [write denyoom fast] (1 1 1) "1.0.0" => lists::push(call, End::Right, false),
                    "Adds elements after the last one", "as LPUSH";
                Rpushx "rpushx" -3 [write denyoom fast] (1 1 1) "2.2.0" => lists::push(call, End::Right, true),
                    "As RPUSH, if the list exists", "as LPUSH";
            }
            "stream" {
                Xack "xack" -4 [write fast] (1 1 1) "5.0.0" => stream_groups::xack(call),
                    "Removes entries from the pending ones of a consumer group", "at one moment; refused over DART";
                Xadd "xadd" -5 [write denyoom fast] (1 1 1) "5.0.0" => streams::xadd(call),
                    "Adds an entry; NOMKSTREAM, MAXLEN, MINID, LIMIT", "atomic";
                Xautoclaim "xautoclaim" -6 [write fast] (1 1 1) "6.2.0" => stream_claims::xautoclaim(call),
                    "Gives the entries that have been pending for long to a consumer; COUNT, JUSTID", "as XCLAIM";
                Xclaim "xclaim" -6 [write fast] (1 1 1) "5.0.0" => stream_claims::xclaim(call),
                    "Gives pending entries to a consumer; IDLE, TIME, RETRYCOUNT, FORCE, JUSTID, LASTID",
                    "at one moment; the entries are read before; refused over DART";
                Xdel "xdel" -3 [write fast] (1 1 1) "5.0.0" => streams::xdel(call),
                    "Deletes entries", "atomic";
                Xgroup "xgroup" -2 [write] (0 0 0) "5.0.0" => stream_groups::xgroup(call),
                    "CREATE, CREATECONSUMER, DELCONSUMER, DESTROY, SETID: changes consumer groups; MKSTREAM, ENTRIESREAD",
                    "at one moment; refused over DART";
                Xinfo "xinfo" -2 [readonly] (0 0 0) "5.0.0" => stream_info::xinfo(call),
                    "CONSUMERS, GROUPS, STREAM: describes a stream and its consumer groups; FULL, COUNT", "each record separately";
                Xlen "xlen" 2 [readonly fast] (1 1 1) "5.0.0" => streams::xlen(call),
                    "Returns the number of entries", "atomic";
                Xpending "xpending" -3 [readonly] (1 1 1) "5.0.0" => stream_groups::xpending(call),
                    "Returns the pending entries of a consumer group; IDLE", "each part of about 4 KiB as it was at some time";
                Xrange "xrange" -4 [readonly] (1 1 1) "5.0.0" => stream_reads::xrange(call, false),
                    "Returns the entries between two ids; COUNT",
                    "of the last about 1 KiB of entries atomic; else each part of about 1 KiB as it was at some time, and entries that exist \
                     throughout are returned once";
                Xread "xread" -4 [readonly blocking movablekeys] (0 0 0) "5.0.0" => stream_reads::xread(call),
                    "Returns the entries of streams after given ids; COUNT; waits for one with BLOCK", "each stream separately, as XRANGE";
                Xreadgroup "xreadgroup" -7 [write blocking movablekeys] (0 0 0) "5.0.0" => group_reads::xreadgroup(call),
                    "Delivers entries of streams to a consumer of a group; COUNT, NOACK; waits for one with BLOCK",
                    "at one moment; the entries are read before; the clients of one gateway and group are served in the order in which \
                     they came; refused over DART";
                Xrevrange "xrevrange" -4 [readonly] (1 1 1) "5.0.0" => stream_reads::xrange(call, true),
                    "As XRANGE, in descending order", "as XRANGE";
                Xsetid "xsetid" -3 [write denyoom fast] (1 1 1) "5.0.0" => streams::xsetid(call),
                    "Sets the last id of a stream; ENTRIESADDED, MAXDELETEDID", "atomic";
                Xtrim "xtrim" -4 [write] (1 1 1) "5.0.0" => streams::xtrim(call),
                    "Removes the oldest entries; MAXLEN, MINID, LIMIT", "atomic";
            }
            "ordered" {
                Range "range" -3 [readonly] (0 0 0) "darter 0.1" => ordered::range(call),
                    "Returns keys and values between two bounds, `[key`, `(key`, `-` or `+`, in order; LIMIT n, REV (bounds then from high to \
                     low), KEYSONLY", "keys that exist throughout are returned once, in order";
                Rangecount "rangecount" 3 [readonly] (0 0 0) "darter 0.1" => ordered::rangecount(call),
                    "Counts the keys between two bounds", "keys that exist throughout are counted once; takes time linear in the number of keys";
            }
            "transactions" {
                Discard "discard" 1 [noscript loading stale fast] (0 0 0) "2.0.0" => ready(transactions::discard(call)),
                    "Ends a transaction without executing its commands", "";
                Exec "exec" 1 [noscript loading stale skip_slowlog] (0 0 0) "1.2.0" => transactions::exec(call),
                    "Executes the commands since MULTI",
                    "all at one moment, for all clients of all gateways; executed again after a conflict";
                Multi "multi" 1 [noscript loading stale fast] (0 0 0) "1.2.0" => ready(transactions::multi(call)),
                    "Begins a transaction: the commands up to EXEC are executed together", "refused over DART";
                Unwatch "unwatch" 1 [noscript loading stale fast] (0 0 0) "2.2.0" => ready(transactions::unwatch(call)),
                    "Forgets the watched keys", "";
                Watch "watch" -2 [noscript loading stale fast] (1 -1 1) "2.2.0" => transactions::watch(call),
                    "Lets the next EXEC execute nothing if a key has changed by then",
                    "through every gateway; compares values; takes time linear in the number of elements; refused over DART";
            }
            "pubsub" {
                Psubscribe "psubscribe" -2 [pubsub noscript loading stale] (0 0 0) "2.0.0" => ready(publishing::subscribe(call, pubsub::Kind::Pattern)),
                    "Receives the messages to all channels that match a pattern", "through every gateway";
                Publish "publish" 3 [pubsub loading stale fast] (0 0 0) "2.0.0" => publishing::publish(call, false),
                    "Sends a message to the subscribers of a channel",
                    "to the clients of all gateways, at most once; returns the number of receivers at this gateway";
                Pubsub "pubsub" -2 [] (0 0 0) "2.8.0" => publishing::pubsub(call),
                    "CHANNELS, NUMSUB, NUMPAT, SHARDCHANNELS, SHARDNUMSUB", "this gateway's subscriptions";
                Punsubscribe "punsubscribe" -1 [pubsub noscript loading stale] (0 0 0) "2.0.0" => ready(publishing::unsubscribe(call, pubsub::Kind::Pattern)),
                    "Ends PSUBSCRIBE", "";
                Spublish "spublish" 3 [pubsub loading stale fast] (1 1 1) "7.0.0" => publishing::publish(call, true),
                    "Sends a message to the subscribers of a sharded channel", "as PUBLISH";
                Ssubscribe "ssubscribe" -2 [pubsub noscript loading stale] (1 -1 1) "7.0.0" => ready(publishing::subscribe(call, pubsub::Kind::Shard)),
                    "Receives the messages to sharded channels", "through every gateway, since each has all shards";
                Subscribe "subscribe" -2 [pubsub noscript loading stale] (0 0 0) "2.0.0" => ready(publishing::subscribe(call, pubsub::Kind::Channel)),
                    "Receives the messages to channels", "through every gateway";
                Sunsubscribe "sunsubscribe" -1 [pubsub noscript loading stale] (1 -1 1) "7.0.0" => ready(publishing::unsubscribe(call, pubsub::Kind::Shard)),
                    "Ends SSUBSCRIBE", "";
                Unsubscribe "unsubscribe" -1 [pubsub noscript loading stale] (0 0 0) "2.0.0" => ready(publishing::unsubscribe(call, pubsub::Kind::Channel)),
                    "Ends SUBSCRIBE", "";
            }
            "scripting" {
                Eval "eval" -3 [noscript stale skip_monitor movablekeys] (0 0 0) "2.6.0" => scripting::run(call, CommandId::Eval),
                    "Runs a Lua script", "one transaction: at one moment, for all clients of all gateways; run again after a conflict; refused over DART";
                EvalRo "eval_ro" -3 [readonly noscript stale skip_monitor movablekeys] (0 0 0) "7.0.0" => scripting::run(call, CommandId::EvalRo),
                    "As EVAL, for scripts that do not write", "as EVAL";
                Evalsha "evalsha" -3 [noscript stale skip_monitor movablekeys] (0 0 0) "2.6.0" => scripting::run(call, CommandId::Evalsha),
                    "Runs a script by its digest", "as EVAL; each gateway has its own scripts";
                EvalshaRo "evalsha_ro" -3 [readonly noscript stale skip_monitor movablekeys] (0 0 0) "7.0.0" => scripting::run(call, CommandId::EvalshaRo),
                    "As EVALSHA, for scripts that do not write", "as EVALSHA";
                Fcall "fcall" -3 [noscript stale skip_monitor movablekeys] (0 0 0) "7.0.0" => scripting::run(call, CommandId::Fcall),
                    "Calls a function", "as EVAL; all gateways have the same functions";
                FcallRo "fcall_ro" -3 [readonly noscript stale skip_monitor movablekeys] (0 0 0) "7.0.0" => scripting::run(call, CommandId::FcallRo),
                    "As FCALL, for functions that do not write", "as FCALL";
                Function "function" -2 [noscript] (0 0 0) "7.0.0" => scripting::run(call, CommandId::Function),
                    "LOAD, DELETE, FLUSH, LIST, DUMP, RESTORE: the libraries of functions, which all gateways share; KILL, STATS: those that this gateway runs", "atomic";
                Script "script" -2 [noscript] (0 0 0) "2.6.0" => scripting::run(call, CommandId::Script),
                    "LOAD, EXISTS, FLUSH, KILL", "this gateway's scripts";
            }
            "connection" {
                Auth "auth" -2 [noscript loading stale fast no_auth] (0 0 0) "1.0.0" => ready(connection::auth(call)),
                    "Authenticates the connection as a user, or as `default`", "";
                Client "client" -2 [noscript loading stale] (0 0 0) "2.4.0" => client::client(call),
                    "ID, GETNAME, SETNAME, SETINFO, INFO, LIST, KILL, NO-EVICT, PAUSE, UNPAUSE, REPLY, UNBLOCK, TRACKING, TRACKINGINFO, CACHING, GETREDIR",
                    "this gateway's clients; TRACKING reports the changes of all gateways";
                Meet "darter.meet" 3 [noscript loading stale] (0 0 0) "darter 0.1" => peer::meet(call),
                    "Begins a connection between gateways: the sender's id, and the receiver's", "";
                Tell "darter.tell" 4 [noscript loading stale] (0 0 0) "darter 0.1" => peer::tell(call),
                    "Sends a message from gateway to gateway: kind, channel, payload; without a reply", "";
                Echo "echo" 2 [loading stale fast] (0 0 0) "1.0.0" => ready(connection::echo(call)),
                    "Returns its argument", "";
                Hello "hello" -1 [noscript loading stale fast no_auth] (0 0 0) "6.0.0" => ready(connection::hello(call)),
                    "Chooses RESP2 or RESP3; AUTH, SETNAME", "";
                Ping "ping" -1 [loading stale fast] (0 0 0) "1.0.0" => ready(connection::ping(call)),
                    "Returns PONG, or its argument", "";
                Quit "quit" -1 [noscript loading stale fast no_auth] (0 0 0) "1.0.0" => ready(connection::quit(call)),
                    "Ends the connection", "";
                Reset "reset" 1 [noscript loading stale fast no_auth] (0 0 0) "6.2.0" => ready(connection::reset(call)),
                    "Resets the connection to its initial state", "";
                Select "select" 2 [loading stale fast] (0 0 0) "1.0.0" => ready(connection::select(call)),
                    "Chooses one of the databases 0 to 15", "";
            }
            "server" {
                Acl "acl" -2 [admin noscript loading stale] (0 0 0) "6.0.0" => acl::acl(call),
                    "SETUSER, GETUSER, DELUSER, LIST, USERS, WHOAMI, CAT, LOG, GENPASS, DRYRUN, LOAD, SAVE: users and what each may do",
                    "all gateways of a pool have the same users; a change reaches the others at once, or within five seconds if a message is lost; \
                     LOG is this gateway's";
                Command "command" -1 [loading stale] (0 0 0) "2.8.13" => description::command(call),
                    "Describes the commands; COUNT, DOCS, GETKEYS, GETKEYSANDFLAGS, INFO, LIST", "";
                Config "config" -2 [admin noscript loading stale] (0 0 0) "2.0.0" => config::config(call),
                    "GET of the settings that clients read, SET of notify-keyspace-events, slowlog-log-slower-than, slowlog-max-len and tracking-table-max-keys, RESETSTAT; the rest is set by the command line, and SET accepts the value that it has", "this gateway's";
                Dbsize "dbsize" 1 [readonly] (0 0 0) "1.0.0" => scan::dbsize(call),
                    "Counts the keys", "keys that exist throughout are counted once; takes time linear in the number of keys, and reads each hash and sorted set";
                Flushall "flushall" -1 [write] (0 0 0) "1.0.0" => keys::flush(call, true),
                    "Removes all keys of all databases; requires `--allow-flush`", "each key separately; keys added during the command may stay";
                Flushdb "flushdb" -1 [write] (0 0 0) "1.0.0" => keys::flush(call, false),
                    "Removes all keys of the database; requires `--allow-flush`", "each key separately; keys added during the command may stay";
                Info "info" -1 [loading stale] (0 0 0) "1.0.0" => information::info(call),
                    "Describes the state of the gateway", "this gateway's; the number of keys is from the last round of its walk";
                Lastsave "lastsave" 1 [loading stale fast] (0 0 0) "1.0.0" => ready(server::lastsave(call)),
                    "Returns when the gateway started, in seconds since the epoch: writes are in the pool when they are acknowledged", "this gateway's";
                Latency "latency" -2 [] (0 0 0) "2.8.13" => ready(latency::latency(call)),
                    "LATEST, HISTORY, GRAPH, DOCTOR, RESET, HISTOGRAM: as Redis replies without latency monitoring", "";
                Lolwut "lolwut" -1 [readonly fast] (0 0 0) "5.0.0" => ready(server::lolwut(call)),
                    "Returns the versions of darter and of Redis", "";
                Memory "memory" -2 [readonly] (0 0 0) "4.0.0" => memory::memory(call),
                    "USAGE: the bytes of a key and all its elements in the index; STATS, DOCTOR, MALLOC-STATS, PURGE", "USAGE as HGETALL, in time linear in the number of elements; the rest is this gateway's";
                Module "module" -2 [] (0 0 0) "4.0.0" => ready(server::module(call)),
                    "LIST: an empty list", "";
                Monitor "monitor" 1 [admin noscript loading stale] (0 0 0) "1.0.0" => ready(monitor::monitor(call)),
                    "Shows each command", "those of this gateway's clients; a transaction that runs again shows the commands of its scripts again";
                Replicaof "replicaof" 3 [admin noscript stale] (0 0 0) "5.0.0" => ready(server::replicaof(call)),
                    "NO ONE: a gateway is not a replica", "";
                Role "role" 1 [noscript loading stale fast] (0 0 0) "2.8.12" => ready(server::role(call)),
                    "Returns the role of a master without replicas", "";
                Slaveof "slaveof" 3 [admin noscript stale] (0 0 0) "1.0.0" => ready(server::replicaof(call)),
                    "As REPLICAOF", "";
                Slowlog "slowlog" -2 [admin loading stale] (0 0 0) "2.2.12" => slowlog::slowlog(call),
                    "GET, LEN, RESET: the last commands that took `--slow-us` or longer", "this gateway's";
                Time "time" 1 [loading stale fast] (0 0 0) "2.6.0" => ready(information::time(call)),
                    "Returns the time in seconds, and the microseconds within the second", "by the gateway's clock";
            }
        }
    };
}
pub(crate) use for_each_command;

macro_rules! table {
    ($call:ident; $($group:literal {$(
        $id:ident $name:literal $arity:literal [$($flag:ident)*] ($first:literal $last:literal $step:literal) $since:literal
        => $run:expr, $summary:literal, $note:literal;
    )*})*) => {
        /// A command's position in the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub(super) enum CommandId { $($($id,)*)* }

        /// All commands, by group.
        pub(super) static TABLE: &[Command] = &[$($(
            Command {
                id: CommandId::$id,
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
    };
}

for_each_command! { table }

/// Slots of the hash table of names: a power of two, more than twice the number of commands.
const SLOTS: usize = 1024;

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
    /// Returns the command with a name, in upper or lower case.
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

    /// Returns the command at a position of the table.
    pub(super) fn numbered(number: u32) -> Option<&'static Self> {
        TABLE.get(number as usize)
    }

    /// Returns whether the command can have `arguments` arguments, including its name.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        takes(self.arity, arguments)
    }

    /// Returns the positions of the first key and after the last one, of a command with `arguments`
    /// arguments, and the step between two keys.
    fn key_range(&self, arguments: usize) -> (Range<usize>, usize) {
        let (first, last, step) = self.keys;
        let last = if last < 0 { super::number::signed(arguments) + last } else { last };
        let end = if step > 0 { usize::try_from(last + 1).unwrap_or(0).min(arguments) } else { 0 };
        (first as usize..end, step.max(1) as usize)
    }

    /// Returns the positions of the arguments that are keys, of a command with `arguments`
    /// arguments.
    pub(super) fn keys_at(&self, arguments: usize) -> impl ExactSizeIterator<Item = usize> + use<> {
        let (keys, step) = self.key_range(arguments);
        keys.step_by(step)
    }

    /// Returns whether the argument at a position is a key, of a command with `arguments`
    /// arguments.
    pub(super) fn has_key_at(&self, position: usize, arguments: usize) -> bool {
        let (keys, step) = self.key_range(arguments);
        keys.contains(&position) && (position - keys.start).is_multiple_of(step)
    }

    /// Returns whether the command has a flag.
    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Returns whether a client may run the command before it has authenticated.
    pub(super) fn is_for_strangers(&self) -> bool {
        self.is("no_auth")
    }
}

/// Returns whether a command of an arity can have `arguments` arguments, including its name.
pub(super) fn takes(arity: i64, arguments: usize) -> bool {
    let arguments = super::number::signed(arguments);
    if arity < 0 { arguments >= -arity } else { arguments == arity }
}

/// Returns the page docs/commands.md.
pub fn page() -> String {
    let mut page = String::from(
        "# Commands of the gateway\n\n\
         Generated from the table of commands by `DARTER_KEEP_DOCS=1 cargo test -p darter-gateway --test gateway`. A command \
         that is not listed is refused.\nError texts and edge cases are those of Redis 7. *Atomic* means atomic for its key, across all \
         gateways of a pool; [gateway.md](gateway.md) describes how.\n",
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

    #[test]
    fn keys_are_distinguished_from_other_arguments() {
        let keys = |name: &[u8], arguments| {
            let command = Command::named(name).unwrap();
            (0..arguments).filter(|at| command.has_key_at(*at, arguments)).collect::<Vec<_>>()
        };
        for command in TABLE {
            for arguments in 1..8 {
                let keys = (0..10).filter(|at| command.has_key_at(*at, arguments));
                assert!(command.keys_at(arguments).eq(keys), "{}", command.name);
            }
        }
        assert_eq!(keys(b"get", 2), [1]);
        assert_eq!(keys(b"set", 5), [1]);
        assert_eq!(keys(b"del", 4), [1, 2, 3]);
        assert_eq!(keys(b"mset", 5), [1, 3]);
        assert!(keys(b"ping", 2).is_empty() && keys(b"range", 3).is_empty());
    }
}
