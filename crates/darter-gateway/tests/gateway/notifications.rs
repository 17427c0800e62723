//! Keyspace notifications: the same events as those of redis-server, at all gateways.

use crate::door::{Client, Door, Redis, Reply, index};
use crate::peers::Pool;
use darter::IndexKind;
use std::net::SocketAddr;

/// Subscribes to all channels.
fn listener(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    let subscribed = vec![Reply::bulk("psubscribe"), Reply::bulk("*"), Reply::Integer(1)];
    assert_eq!(client.say("psubscribe *"), Reply::Array(subscribed));
    client
}

/// Reads a message, as channel and payload.
fn message(listener: &mut Client) -> (String, String) {
    let mut parts = listener.reply().array().into_iter().map(|part| String::from_utf8(part.bytes()).unwrap());
    assert_eq!((parts.next().as_deref(), parts.next().as_deref()), (Some("pmessage"), Some("*")));
    (parts.next().unwrap(), parts.next().unwrap())
}

/// Returns the events of some requests, up to a message that ends them.
fn events(address: SocketAddr, letters: &str, lines: &[&str]) -> Vec<(String, String)> {
    let (mut listener, mut client) = (listener(address), Client::connect(address));
    client.say("flushall");
    let ok = Reply::Simple("OK".to_owned());
    assert_eq!(client.say(&format!("config set notify-keyspace-events {letters}")), ok);
    for line in lines {
        client.send(format!("{line}\r\n").as_bytes());
        client.reply();
    }
    client.say("publish end end");
    let mut events = Vec::new();
    while events.last().is_none_or(|(channel, _): &(String, String)| channel != "end") {
        events.push(message(&mut listener));
    }
    assert_eq!(client.ask(&["config", "set", "notify-keyspace-events", ""]), ok);
    events
}

const LINES: &[&str] = &[
    "SET s 1",
    "SET s 2 EX 100",
    "SET s 3 NX",
    "SETNX s 3",
    "SETEX s 100 v",
    "PSETEX s 100000 1",
    "INCR s",
    "DECRBY s 2",
    "INCRBYFLOAT s 0.5",
    "APPEND s x",
    "SETRANGE s 0 y",
    "SETRANGE s 0 \"\"",
    "GETSET s z",
    "GETEX s EX 100",
    "GETEX s PERSIST",
    "GETEX s",
    "EXPIRE s 100",
    "EXPIRE none 100",
    "PERSIST s",
    "PERSIST s",
    "MSET a 1 b 2",
    "MSETNX a 1 c 2",
    "MSETNX c 1 d 2",
    "GETDEL a",
    "DEL b c none",
    "COPY s t",
    "RENAME t u",
    "RENAMENX u s",
    "EXPIRE u -1",
    "HSET h f v g w",
    "HSETNX h f v",
    "HSETNX h i v",
    "HINCRBY h n 1",
    "HINCRBYFLOAT h n 0.5",
    "HDEL h none",
    "HDEL h f g",
    "HDEL h i n",
    "ZADD z 1 a 2 b 3 c",
    "ZADD z 1 a",
    "ZADD z XX 5 none",
    "ZINCRBY z 1 a",
    "ZADD z INCR 1 a",
    "ZREM z none",
    "ZREM z b",
    "ZPOPMIN z",
    "ZREMRANGEBYSCORE z -inf +inf",
    "RPUSH l a b c d e",
    "LPUSHX l f",
    "LMPOP 1 l RIGHT",
    "BLMPOP 0 2 none l LEFT",
    "BRPOP l 0",
    "LMOVE l l LEFT RIGHT",
    "LMOVE l m LEFT RIGHT",
    "RPOPLPUSH l l",
    "RPOPLPUSH m l",
    "LINSERT l BEFORE a z",
    "LSET l 0 y",
    "LREM l 0 none",
    "LREM l 0 y",
    "COPY l m",
    "SORT l ALPHA STORE sorted",
    "SORT l ALPHA LIMIT 0 0 STORE sorted",
    "SORT l ALPHA",
    "LTRIM l 0 0",
    "LTRIM l 5 6",
    "SADD g a b 1",
    "SADD g a",
    "SREM g none",
    "SREM g 1",
    "SMOVE g n a",
    "SMOVE g n none",
    "SUNIONSTORE o g n",
    "SINTERSTORE o none g",
    "SDIFFSTORE o n none",
    "SPOP g",
    "SPOP o 5",
    "ZADD y 1 a 2 b 3 c 4 d",
    "ZMPOP 1 y MAX",
    "BZMPOP 0 2 none y MIN",
    "BZPOPMIN y 0",
    "ZUNIONSTORE x 1 y",
    "ZINTERSTORE x 1 none",
    "ZDIFFSTORE x 1 y",
    "ZRANGESTORE w x 0 -1",
    "BZPOPMAX y 0",
    "GEOADD p 1 1 a 2 2 b",
    "GEORADIUS p 1 1 1 km STORE q",
    "GEOSEARCHSTORE q p FROMMEMBER a BYRADIUS 1 km",
    "PFADD hll a",
    "PFMERGE hll hll",
    "SETBIT bits 1 1",
    "BITOP NOT bits hll",
    "GET s",
    "LPUSH s x",
    "FLUSHALL",
];

#[test]
fn events_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    for letters in ["KEA", "K$g", "Eh", "Ez", "K", "gx"] {
        // A copy of a string over DART takes two steps.
        if index() == IndexKind::Dart {
            return;
        }
        let [theirs, ours] = [redis.address, door.address].map(|address| events(address, letters, LINES));
        assert_eq!(ours, theirs, "{letters}");
    }
}

#[test]
fn events_of_transactions_and_scripts_follow_the_commit() {
    if index() == IndexKind::Dart {
        return;
    }
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let lines = [
        "SET k 1",
        "MULTI",
        "INCR k",
        "HSET h f v",
        "HDEL h f",
        "EXEC",
        "MULTI",
        "INCR k",
        "DISCARD",
        "HSET h f v",
        "MULTI",
        "INCR k",
        "HGETALL h",
        "HLEN h",
        "EXEC",
        "COPY h i",
        "EVAL \"redis.call('SET', KEYS[1], 1) return redis.call('DEL', KEYS[1])\" 1 e",
    ];
    let [theirs, ours] = [redis.address, door.address].map(|address| events(address, "KEA", &lines));
    assert_eq!(ours, theirs);
}

#[test]
fn keys_that_expire_are_reported_once_at_all_gateways() {
    const KEYS: usize = 30;
    let pool = Pool::new();
    let doors = pool.two_doors();
    let mut listeners = [listener(doors[0].address), listener(doors[1].address)];
    for door in &doors {
        let mut client = door.client();
        assert_eq!(client.say("config set notify-keyspace-events Ex"), Reply::Simple("OK".to_owned()));
        assert_eq!(
            client.say("config get notify-keyspace-events"),
            Reply::Array(vec![Reply::bulk("notify-keyspace-events"), Reply::bulk("xE")])
        );
    }
    let mut client = doors[0].client();
    for number in 0..KEYS {
        client.say(&format!("set k{number} v px 1"));
        // Some are met by a command, the others by the walk of a gateway.
        if number % 3 == 0 {
            client.say(&format!("get k{number}"));
        }
    }
    for listener in &mut listeners {
        let mut keys: Vec<String> = (0..KEYS)
            .map(|_| {
                let (channel, key) = message(listener);
                assert_eq!(channel, "__keyevent@0__:expired");
                key
            })
            .collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), KEYS);
    }
    assert!(matches!(client.say("config set notify-keyspace-events q"), Reply::Error(_)));
    assert!(matches!(client.say("config set maxmemory 1"), Reply::Error(_)));
}
