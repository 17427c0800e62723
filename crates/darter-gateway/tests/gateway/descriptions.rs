//! Descriptions of commands and keys, as those of a redis-server: `COMMAND INFO`, `OBJECT`, `CONFIG`.

use crate::door::{Client, Door, Redis, Reply};

/// Commands of Redis 7.0 that a gateway has.
const NAMES: &str = "\
    blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin lindex linsert llen lmove lmpop \
    lpop lpos lpush lpushx lrange lrem lset ltrim rpop rpoplpush rpush rpushx sadd scard sdiff \
    sdiffstore sinter sintercard sinterstore sismember smembers smismember smove sort sort_ro spop \
    srandmember srem sscan sunion sunionstore zdiff zdiffstore zinter zintercard zinterstore zmpop \
    zrangestore zunion zunionstore \
    xack xadd xautoclaim xclaim xdel xgroup xinfo xlen xpending xrange xread xreadgroup xrevrange xsetid \
    xtrim \
    append auth bitcount bitfield bitfield_ro bitop bitpos client command config copy dbsize decr \
    decrby del discard dump echo eval eval_ro evalsha evalsha_ro exec exists expire expireat \
    expiretime fcall fcall_ro flushall flushdb function geoadd geodist geohash geopos georadius \
    georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore get getbit getdel \
    getex getrange getset hdel hello hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget \
    hmset hrandfield hscan hset hsetnx hstrlen hvals incr incrby incrbyfloat info keys lastsave lcs lolwut \
    memory module replicaof role slaveof wait \
    mget mset msetnx multi object persist pexpire pexpireat pexpiretime pfadd pfcount pfdebug \
    pfmerge ping psetex pttl quit randomkey rename renamenx reset restore scan script select set \
    setbit setex setnx setrange slowlog strlen substr time touch ttl type unlink unwatch watch zadd \
    zcard zcount zincrby zlexcount zmscore zpopmax zpopmin zrandmember zrange zrangebylex \
    zrangebyscore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange \
    zrevrangebylex zrevrangebyscore zrevrank zscan zscore";

#[test]
fn commands_have_the_keys_that_redis_describes() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    for name in NAMES.split(' ') {
        let [theirs, ours] = [&mut theirs, &mut ours]
            .map(|client| client.ask(&["command", "info", name]).array().remove(0).array());
        // Name, arity, first key, last key, step, tips, key specifications.
        for part in [0, 1, 3, 4, 5, 7, 8] {
            assert_eq!(theirs[part], ours[part], "{name}, part {part}");
        }
    }
}

#[test]
fn subcommands_have_the_keys_that_redis_describes() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    for name in [
        "object|encoding",
        "object|refcount",
        "memory|usage",
        "config|get",
        "client|list",
        "xgroup|create",
        "xinfo|stream",
    ] {
        let [theirs, ours] = [&mut theirs, &mut ours]
            .map(|client| client.ask(&["command", "info", name]).array().remove(0).array());
        assert_eq!((&theirs[7], &theirs[8]), (&ours[7], &ours[8]), "{name}");
    }
}

/// Returns a part of what `COMMAND DOCS` says of a command.
fn documented(client: &mut Client, name: &str, part: &str) -> Option<Reply> {
    let documented = client.ask(&["command", "docs", name]).array().remove(1).array();
    let at = documented.iter().step_by(2).position(|other| *other == Reply::bulk(part))?;
    Some(documented[2 * at + 1].clone())
}

#[test]
fn commands_have_the_arguments_that_redis_documents() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    for name in NAMES.split(' ').chain(["client|kill", "object|encoding", "config|get", "script|exists"]) {
        for part in ["arguments", "group"] {
            assert_eq!(documented(&mut theirs, name, part), documented(&mut ours, name, part), "{name}");
        }
    }
}

#[test]
fn keys_have_the_encodings_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    let long = |bytes| "x".repeat(bytes);
    let fields = |count| (0..count).map(|at| format!(" f{at} {at}")).collect::<Vec<_>>().concat();
    let integers = |count| (0..count).map(|at| format!(" {at}")).collect::<Vec<_>>().concat();
    let members = |count| (0..count).map(|at| format!(" {at} m{at}")).collect::<Vec<_>>().concat();
    for request in [
        "set k 0".to_owned(),
        "set k 9999".to_owned(),
        "set k 10000".to_owned(),
        "set k -1".to_owned(),
        "set k 012".to_owned(),
        format!("set k {}", long(44)),
        format!("set k {}", long(45)),
        format!("hset k{}", fields(512)),
        format!("hset k{}", fields(513)),
        format!("hset k f {}", long(64)),
        format!("hset k f {}", long(65)),
        format!("hset k {} v", long(65)),
        format!("zadd k{}", members(128)),
        format!("zadd k{}", members(129)),
        format!("zadd k 1 {}", long(64)),
        format!("zadd k 1 {}", long(65)),
        format!("sadd k{}", integers(512)),
        format!("sadd k{}", integers(513)),
        "sadd k 1 x".to_owned(),
        "sadd k -9223372036854775808".to_owned(),
        "rpush k 1".to_owned(),
        format!("rpush k {}", long(900)),
    ] {
        for client in [&mut theirs, &mut ours] {
            client.say("del k");
            client.say(&request);
        }
        for read in ["object encoding k", "object refcount k"] {
            assert_eq!(theirs.say(read), ours.say(read), "{read} after {request:.40}");
        }
    }
    assert_eq!(ours.say("object encoding none"), Reply::Null);
    for name in [
        "hash-max-listpack-entries",
        "zset-max-listpack-value",
        "hash-max-ziplist-value",
        "hll-sparse-max-bytes",
    ] {
        let request = format!("config get {name}");
        assert_eq!(theirs.say(&request), ours.say(&request));
    }
}
