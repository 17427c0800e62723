//! The databases 0 to 15: separate keys for everything that works on keys.

use crate::door::{Client, Door, Redis, Reply, has_transactions, ok};
use crate::peers::Pool;
use darter_gateway::{Database, GatewayOptions};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Requests about every type of key in several databases.
const LINES: &[&str] = &[
    "SET k zero",
    "SELECT 1",
    "GET k",
    "DBSIZE",
    "SET k one EX 1000",
    "HSET h f 1 g 2",
    "SADD s a b c",
    "ZADD z 1 a 2 b",
    "RPUSH l a b c",
    "DBSIZE",
    "MOVE k 0",
    "MOVE k 1",
    "MOVE none 2",
    "MOVE k 16",
    "MOVE k x",
    "MOVE k -1",
    "MOVE k 9223372036854775807",
    "MOVE k 2",
    "MOVE h 2",
    "MOVE s 2",
    "MOVE z 2",
    "MOVE l 2",
    "DBSIZE",
    "SELECT 2",
    "GET k",
    "PERSIST k",
    "HGETALL h",
    "SCARD s",
    "ZRANGE z 0 -1 WITHSCORES",
    "LRANGE l 0 -1",
    "COPY k k",
    "COPY k k DB 2",
    "COPY k other DB 2",
    "COPY k k DB 0",
    "COPY k k DB 0 REPLACE",
    "COPY h h DB 3",
    "COPY h h DB 3",
    "COPY none h DB 3 REPLACE",
    "COPY k k DB 16",
    "COPY k k DB",
    "COPY l l2 DB 3",
    "COPY z z2 DB 3",
    "SELECT 3",
    "HGET h f",
    "LRANGE l2 0 -1",
    "ZSCORE z2 b",
    "DBSIZE",
    "RENAME h h3",
    "SORT l2 ALPHA DESC STORE l2",
    "LINDEX l2 0",
    "FLUSHDB",
    "DBSIZE",
    "RANDOMKEY",
    "SELECT 2",
    "DBSIZE",
    // Within a transaction, and in scripts.
    "MULTI",
    "SET m 2",
    "SELECT 4",
    "SET m 4",
    "GET k",
    "SELECT 99",
    "SET n 4",
    "MOVE n 5",
    "SELECT x",
    "EXEC",
    "GET m",
    "DBSIZE",
    "SELECT 5",
    "GET n",
    "EVAL \"return{redis.call('select',2),redis.call('get','m')}\" 0",
    "EVAL \"redis.call('select',6);redis.call('set','script','6');redis.call('select',7);return{redis.call('set','script','7')}\" 0",
    "EVAL \"return{redis.pcall('select',16)}\" 0",
    "DBSIZE",
    "MULTI",
    "EVAL \"return{redis.call('select',6),redis.call('get','script')}\" 0",
    "GET n",
    "EXEC",
    "SELECT 7",
    "KEYS *",
    "SCAN 0 COUNT 100",
    "SELECT 0",
    "DISCARD",
    "WATCH k",
    "SELECT 4",
    "WATCH k",
    "SET k changed",
    "MULTI",
    "GET k",
    "EXEC",
    "WATCH k",
    "SELECT 8",
    "SET k 8",
    "MULTI",
    "GET k",
    "EXEC",
    "RESET",
    "GET k",
    "FLUSHALL",
    "SELECT 4",
    "DBSIZE",
];

#[test]
fn requests_about_databases_have_redis_replies() {
    if !has_transactions() {
        return;
    }
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let mut clients = [redis.address, door.address].map(Client::connect);
    for line in LINES {
        let [theirs, ours] = clients.each_mut().map(|client| {
            client.send(format!("{line}\r\n").as_bytes());
            client.reply()
        });
        assert_eq!(ours, theirs, "{line}");
    }
}

#[test]
fn what_moves_to_another_database_is_one_key_at_every_moment() {
    const MOVES: usize = 200;
    if !has_transactions() {
        return;
    }
    let pool = Pool::new();
    let doors = pool.two_doors();
    let mut client = doors[0].client();
    for member in 0..300 {
        client.say(&format!("hset h f{member} v"));
    }
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut client = doors[0].client();
            for number in 0..MOVES {
                let (from, to) = (number % 2 * 9, 9 - number % 2 * 9);
                client.say(&format!("select {from}"));
                assert_eq!(client.say(&format!("move h {to}")), Reply::Integer(1));
            }
        });
        let mut client = doors[1].client();
        while !mover.is_finished() {
            for line in ["select 0", "multi", "hlen h", "select 9", "hlen h"] {
                client.say(line);
            }
            let mut replies = client.say("exec").array();
            assert_eq!(replies.remove(1), ok());
            replies.sort_by_key(|reply| format!("{reply:?}"));
            assert_eq!(replies, [Reply::Integer(0), Reply::Integer(300)]);
        }
    });
}

#[test]
fn a_large_key_is_copied_to_another_database_whole() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    for chunk in 0..30 {
        let members: Vec<String> = (0..1000).map(|member| (chunk * 1000 + member).to_string()).collect();
        client.say(&format!("sadd s {}", members.join(" ")));
    }
    assert_eq!(client.say("copy s s db 1"), Reply::Integer(1));
    assert_eq!(client.say("move s 2"), Reply::Integer(1));
    assert_eq!(client.say("dbsize"), Reply::Integer(0));
    for database in 1..3 {
        client.say(&format!("select {database}"));
        assert_eq!(client.say("scard s"), Reply::Integer(30_000));
    }
}

#[test]
fn events_and_expiry_name_the_database() {
    if !has_transactions() {
        return;
    }
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let [theirs, ours] = [redis.address, door.address].map(|address| {
        let (mut client, mut listener) = (Client::connect(address), Client::connect(address));
        client.say("config set notify-keyspace-events KEA");
        listener.say("psubscribe *");
        for line in [
            "select 3",
            "set k v",
            "move k 4",
            "select 4",
            "copy k c db 5",
            "copy k c db 5 replace",
            "select 5",
            "rename c d",
            "set gone v px 1",
        ] {
            client.say(line);
        }
        // The walk or a command removes the key.
        (0..17).map(|_| listener.reply()).collect::<Vec<_>>()
    });
    assert_eq!(ours, theirs);
}

/// Reads the counts of keys of the databases that have any.
fn counted(client: &mut Client) -> Vec<String> {
    let info = String::from_utf8(client.say("info keyspace").bytes()).unwrap();
    info.lines().filter(|line| line.starts_with("db")).map(str::to_owned).collect()
}

#[test]
fn the_walk_counts_the_keys_of_each_database_and_removes_what_has_expired() {
    let door = Door::open();
    let mut client = door.client();
    for (database, keys) in [(0, 3), (2, 1), (15, 2)] {
        client.say(&format!("select {database}"));
        for key in 0..keys {
            client.say(&format!("set k{key} v"));
            client.say(&format!("set gone{key} v px 1"));
        }
        client.say("hset h f v");
        client.say("set h string ex 1000");
    }
    let expected = [
        "db0:keys=4,expires=1,avg_ttl=0",
        "db2:keys=2,expires=1,avg_ttl=0",
        "db15:keys=3,expires=1,avg_ttl=0",
    ];
    let since = Instant::now();
    while counted(&mut client) != expected {
        assert!(since.elapsed() < crate::door::LONG, "{:?}", counted(&mut client));
        std::thread::sleep(Duration::from_millis(20));
    }
    client.say("select 2");
    assert_eq!(client.say("flushdb"), ok());
    while counted(&mut client).len() != 2 {
        assert!(since.elapsed() < crate::door::LONG, "{:?}", counted(&mut client));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn scans_of_databases_are_separate() {
    let door = Door::open();
    let mut clients = [door.client(), door.client()];
    for (database, client) in clients.iter_mut().enumerate() {
        client.say(&format!("select {database}"));
        for key in 0..100 {
            client.say(&format!("set key:{database}:{key} v"));
        }
    }
    // Alternately, with one position in both.
    let (mut cursors, mut keys) = (["0", "0"].map(str::to_owned), [(); 2].map(|()| BTreeSet::new()));
    for _ in 0..40 {
        for (at, client) in clients.iter_mut().enumerate() {
            let mut reply = client.say(&format!("scan {} count 7", cursors[at])).array();
            keys[at].extend(reply.pop().unwrap().array().into_iter().map(Reply::bytes));
            cursors[at] = String::from_utf8(reply.pop().unwrap().bytes()).unwrap();
        }
    }
    for (database, keys) in keys.iter().enumerate() {
        let prefix = format!("key:{database}:").into_bytes();
        assert!(keys.len() == 100 && keys.iter().all(|key| key.starts_with(&prefix)));
    }
    assert!(clients[1].say("randomkey").bytes().starts_with(b"key:1:"));
}

#[test]
fn a_client_waits_for_elements_of_its_database_only_at_every_gateway() {
    let pool = Pool::new();
    let doors = pool.two_doors();
    let (mut waits, mut adds) = (doors[0].client(), doors[1].client());
    waits.say("select 6");
    waits.send(b"BLPOP l 0\r\n");
    let info = |client: &mut Client| String::from_utf8(client.say("client list").bytes()).unwrap();
    let mut here = doors[0].client();
    while !info(&mut here).contains("flags=b db=6 ") {
        std::thread::sleep(Duration::from_millis(5));
    }
    adds.say("rpush l zero");
    here.say("rpush l zero");
    adds.say("select 6");
    adds.say("rpush l six");
    assert_eq!(waits.reply(), Reply::Array(vec![Reply::bulk("l"), Reply::bulk("six")]));
    assert_eq!(here.say("llen l"), Reply::Integer(2));
    if has_transactions() {
        // A key that is moved there wakes it too, and one that a transaction adds.
        for lines in [&["move m 6"][..], &["multi", "select 6", "rpush m x", "exec"]] {
            here.say("select 0");
            here.say("del m");
            here.say("rpush m x");
            waits.send(b"BLPOP m 0\r\n");
            let mut other = doors[0].client();
            while !info(&mut other).contains("flags=b db=6 ") {
                std::thread::sleep(Duration::from_millis(5));
            }
            for line in lines {
                here.say(line);
            }
            assert_eq!(waits.reply(), Reply::Array(vec![Reply::bulk("m"), Reply::bulk("x")]));
        }
    }
}

#[test]
fn a_monitor_shows_the_database_of_each_command() {
    if !has_transactions() {
        return;
    }
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let [theirs, ours] = [redis.address, door.address].map(|address| {
        let (mut client, mut monitor) = (Client::connect(address), Client::connect(address));
        monitor.say("monitor");
        for line in ["set a 1", "select 3", "get a", "multi", "get b", "select 4", "get c", "exec", "get d"] {
            client.say(line);
        }
        client.ask(&[
            "eval",
            "redis.call('get','x');redis.call('select',5);return redis.call('get','y')",
            "0",
        ]);
        (0..13)
            .map(|_| {
                let Reply::Simple(line) = monitor.reply() else { panic!("not a line") };
                let (database, command) = line.split_once('[').unwrap().1.split_once(' ').unwrap();
                format!("{database} {}", command.split_once(']').unwrap().1)
            })
            .collect::<Vec<_>>()
    });
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    // EXEC is shown before its commands by one of the two.
    assert_eq!(sorted(ours), sorted(theirs));
}

#[test]
fn a_program_reads_the_databases_and_old_pools_have_database_0() {
    let store = crate::door::store("mem:64M");
    let door = Door::of(store.clone(), GatewayOptions::default());
    let mut client = door.client();
    for database in [0, 1, 15] {
        client.say(&format!("select {database}"));
        client.say(&format!("set k {database}"));
        let mut here = Database::numbered(store.clone(), database).unwrap().unwrap();
        assert_eq!(here.get(b"k").unwrap().unwrap(), database.to_string().as_bytes());
        assert!(here.set(b"p", b"v", darter::Condition::Absent).unwrap());
        assert_eq!(client.say("get p"), Reply::bulk("v"));
        let keys = here.scan(&darter::ScanRange::prefix(b"")).map(|pair| pair.unwrap().0);
        assert_eq!(keys.collect::<Vec<_>>(), [b"k", b"p"]);
    }
    assert_eq!(Database::new(store.clone()).get(b"k").unwrap().unwrap(), b"0");
    assert!(Database::numbered(store, Database::COUNT).unwrap().is_none());
}
