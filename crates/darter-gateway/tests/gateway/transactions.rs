//! `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`. Over DART, which has no transactions, a `MULTI`
//! and everything up to its end are rejected.

use crate::door::{Client, Door, Reply, bulks, error, index, ok, request};
use darter::IndexKind;
use darter_gateway::GatewayOptions;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn queued() -> Reply {
    Reply::Simple("QUEUED".to_owned())
}

fn open() -> (Door, Client) {
    let door = Door::open();
    let client = door.client();
    (door, client)
}

/// Opens a gateway, unless its index has no transactions.
fn open_with_transactions() -> Option<(Door, Client)> {
    (index() != IndexKind::Dart).then(open)
}

/// Sends a transaction in one piece, and returns the reply to its `EXEC`.
pub fn transact(client: &mut Client, body: &[&str]) -> Reply {
    let words = ["multi"].into_iter().chain(body.iter().copied()).chain(["exec"]);
    let bytes: Vec<u8> = words.flat_map(|line| request(&line.split(' ').collect::<Vec<_>>())).collect();
    client.send(&bytes);
    assert_eq!(client.reply(), ok());
    for line in body {
        assert_eq!(client.reply(), queued(), "{line}");
    }
    client.reply()
}

#[test]
fn a_transaction_executes_its_commands_together() {
    let Some((door, mut client)) = open_with_transactions() else { return };
    let mut other = door.client();
    assert_eq!(client.say("multi"), ok());
    for line in ["set a 1", "incr a", "get a", "get b"] {
        assert_eq!(client.say(line), queued());
    }
    assert_eq!(other.say("exists a"), Reply::Integer(0));
    let expected = vec![ok(), Reply::Integer(2), Reply::bulk("2"), Reply::Null];
    assert_eq!(client.say("exec"), Reply::Array(expected));
    assert_eq!(other.say("get a"), Reply::bulk("2"));
    assert_eq!(transact(&mut client, &[]), Reply::Array(Vec::new()));
    // An error of one command does not stop the others.
    let replies = transact(&mut client, &["hset a f v", "set c 1", "incr c"]).array();
    assert!(error(replies[0].clone()).starts_with("WRONGTYPE"));
    assert_eq!(replies[1..], [ok(), Reply::Integer(2)]);
}

#[test]
fn errors_of_a_queue_are_those_of_redis() {
    let Some((_door, mut client)) = open_with_transactions() else { return };
    assert_eq!(error(client.say("exec")), "ERR EXEC without MULTI");
    assert_eq!(error(client.say("discard")), "ERR DISCARD without MULTI");
    for wrong in ["nonsense x", "get", "scan 0", "flushall", "auth x"] {
        assert_eq!(client.say("multi"), ok());
        assert_eq!(client.say("set a 1"), queued());
        let text = error(client.say(wrong));
        assert!(text.starts_with("ERR "), "{text}");
        assert_eq!(
            error(client.say("exec")),
            "EXECABORT Transaction discarded because of previous errors.",
            "{wrong}"
        );
        assert_eq!(client.say("exists a"), Reply::Integer(0));
    }
    assert_eq!(client.say("multi"), ok());
    assert_eq!(error(client.say("multi")), "ERR MULTI calls can not be nested");
    assert_eq!(error(client.say("watch a")), "ERR WATCH inside MULTI is not allowed");
    assert_eq!(client.say("set a 1"), queued());
    assert_eq!(client.say("discard"), ok());
    assert_eq!(client.say("exists a"), Reply::Integer(0));
    for end in ["reset", "quit"] {
        client.say("multi");
        assert_eq!(client.say("set a 1"), queued());
        client.say(end);
    }
    assert!(client.try_reply().is_none());
}

/// ioredis asks so for a server's state.
#[test]
fn settings_are_read_in_a_transaction_and_not_changed() {
    let Some((_door, mut client)) = open_with_transactions() else { return };
    let replies = transact(&mut client, &["incr n", "config get maxmemory", "info server"]).array();
    assert_eq!(replies[..2], [Reply::Integer(1), bulks(&["maxmemory", "0"])]);
    assert!(String::from_utf8(replies[2].clone().bytes()).unwrap().contains("redis_version:"));
    client.say("multi");
    let refused = error(client.say("config set maxmemory 0"));
    assert!(refused.contains("not allowed inside a transaction"), "{refused}");
    assert!(error(client.say("exec")).starts_with("EXECABORT"));
}

#[test]
fn a_connection_that_ends_in_a_transaction_executes_nothing() {
    let Some((door, mut client)) = open_with_transactions() else { return };
    assert_eq!(client.say("multi"), ok());
    assert_eq!(client.say("set a 1"), queued());
    drop(client);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(door.client().say("exists a"), Reply::Integer(0));
}

#[test]
fn keys_of_all_types_change_together() {
    let Some((_door, mut client)) = open_with_transactions() else { return };
    client.say("hset old f 1 g 2");
    client.say("zadd ranks 1 a 2 b");
    let body = [
        "set s x",
        "hset h f 1 g 2",
        "hincrby h f 4",
        "hdel h g",
        "hgetall h",
        "zadd z 2 b 1 a",
        "zincrby z 5 a",
        "zrange z 0 -1 withscores",
        "del old",
        "exists old",
        "rename ranks moved",
        "zrange moved 0 -1",
        "mset p 1 q 2",
        "msetnx p 3 r 3",
        "msetnx r 3",
        "mget p q r s",
        "zpopmin z",
        "expire s 100",
        "hset old n 1",
    ];
    let bulks = |words: &[&str]| Reply::Array(words.iter().map(|word| Reply::bulk(word)).collect());
    let replies = transact(&mut client, &body).array();
    let expected = [
        ok(),
        Reply::Integer(2),
        Reply::Integer(5),
        Reply::Integer(1),
        bulks(&["f", "5"]),
        Reply::Integer(2),
        Reply::bulk("6"),
        bulks(&["b", "2", "a", "6"]),
        Reply::Integer(1),
        Reply::Integer(0),
        ok(),
        bulks(&["a", "b"]),
        ok(),
        Reply::Integer(0),
        Reply::Integer(1),
        bulks(&["1", "2", "3", "x"]),
        bulks(&["b", "2"]),
        Reply::Integer(1),
        Reply::Integer(1),
    ];
    for ((line, reply), expected) in body.iter().zip(replies).zip(expected) {
        assert_eq!(reply, expected, "{line}");
    }
    // The same afterwards.
    assert_eq!(client.say("hgetall old"), bulks(&["n", "1"]));
    assert_eq!(client.say("hgetall h"), bulks(&["f", "5"]));
    assert_eq!(client.say("zrange moved 0 -1 withscores"), bulks(&["a", "1", "b", "2"]));
    assert_eq!(client.say("zrange z 0 -1 withscores"), bulks(&["a", "6"]));
    assert_eq!(client.say("exists ranks"), Reply::Integer(0));
    assert_eq!(client.say("ttl s"), Reply::Integer(100));
}

#[test]
fn exec_executes_nothing_if_a_watched_key_has_changed() {
    let Some(_) = open_with_transactions() else { return };
    let store = crate::door::store("mem:128M");
    let doors = [(); 2].map(|()| Door::of(store.clone(), GatewayOptions::default()));
    let mut client = doors[0].client();
    client.say("set s 1");
    client.say("hset h f 1");
    client.say("zadd z 1 a");
    for door in &doors {
        let mut other = door.client();
        for change in
            ["set s 2", "hset h g 1", "hset h f 2", "zadd z 2 a", "del z", "set new 1", "expire s 9"]
        {
            assert_eq!(client.say("watch s h z new"), ok());
            other.say(change);
            assert_eq!(transact(&mut client, &["set ran 1"]), Reply::Null, "{change}");
            // The watch has ended.
            assert_eq!(
                transact(&mut client, &["ping"]),
                Reply::Array(vec![Reply::Simple("PONG".to_owned())])
            );
            for undo in ["set s 1", "del h", "hset h f 1", "del z", "zadd z 1 a", "del new"] {
                other.say(undo);
            }
        }
        for end in ["unwatch", "discard"] {
            assert_eq!(client.say("watch s h"), ok());
            if end == "discard" {
                client.say("multi");
            }
            assert_eq!(client.say(end), ok());
            other.say("append s x");
            assert_eq!(transact(&mut client, &["del s", "set s 1"]).array().len(), 2);
        }
    }
    assert_eq!(client.say("exists ran"), Reply::Integer(0));
    // A key that expires has changed.
    client.say("set s 1 px 30");
    client.say("watch s");
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(transact(&mut client, &["set ran 1"]), Reply::Null);
    // An unchanged key has not, even if the client itself has read it.
    client.say("watch h z");
    client.say("hgetall h");
    assert_eq!(transact(&mut client, &["hset h x 1", "zadd z 5 x"]).array().len(), 2);
}

/// Runs an action in 20 clients of two gateways over one pool, and returns one of the gateways.
fn crowd(act: impl Fn(&mut Client) + Sync) -> [Door; 2] {
    let store = crate::door::store("mem:128M");
    let doors = [(); 2].map(|()| Door::of(store.clone(), GatewayOptions::default()));
    std::thread::scope(|scope| {
        for number in 0..20 {
            let (door, act) = (&doors[number % 2], &act);
            scope.spawn(move || act(&mut door.client()));
        }
    });
    doors
}

#[test]
fn no_increment_of_a_watched_counter_is_lost() {
    let Some(_) = open_with_transactions() else { return };
    let doors = crowd(|client| {
        for _ in 0..10 {
            loop {
                client.say("watch counter");
                let old = match client.say("get counter") {
                    Reply::Null => 0,
                    value => String::from_utf8(value.bytes()).unwrap().parse::<i64>().unwrap(),
                };
                if transact(client, &[&format!("set counter {}", old + 1)]) != Reply::Null {
                    break;
                }
            }
        }
    });
    assert_eq!(doors[0].client().say("get counter"), Reply::bulk("200"));
}

#[test]
fn transactions_of_many_clients_take_effect_one_after_the_other() {
    let Some(_) = open_with_transactions() else { return };
    let doors = crowd(|client| {
        for _ in 0..10 {
            let replies = transact(client, &["incr a", "hincrby h f 1", "zincrby z 1 m", "incr b"]).array();
            assert_eq!(replies[0], replies[1]);
            assert_eq!(replies[0], replies[3]);
            let Reply::Integer(count) = replies[0] else { panic!("{replies:?}") };
            assert_eq!(replies[2], Reply::bulk(&count.to_string()));
        }
    });
    assert_eq!(doors[1].client().say("mget a b"), Reply::Array(vec![Reply::bulk("200"); 2]));
}

#[test]
fn each_transaction_counts_the_elements_of_those_before_it() {
    let Some(_) = open_with_transactions() else { return };
    let (numbers, counts) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    crowd(|client| {
        for _ in 0..5 {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            let add = [format!("hset h {number} x"), format!("zadd z {number} {number}")];
            let replies = transact(client, &["hlen h", &add[0], "zcard z", &add[1], "zcard z"]).array();
            let [Reply::Integer(first), _, Reply::Integer(second), _, Reply::Integer(third)] = replies[..]
            else {
                panic!("{replies:?}")
            };
            assert_eq!((first, first + 1), (second, third));
            counts.lock().unwrap().push(first);
        }
    });
    let mut counts = counts.into_inner().unwrap();
    counts.sort_unstable();
    assert_eq!(counts, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_transaction_removes_no_acknowledged_element_that_it_has_not_counted() {
    let Some(_) = open_with_transactions() else { return };
    let (numbers, counted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = |client: &mut Client| {
        let replies = transact(client, &["hlen h", "zcard z", "del h", "del z"]).array();
        let [Reply::Integer(fields), Reply::Integer(members), ..] = replies[..] else {
            panic!("{replies:?}")
        };
        counted.fetch_add((fields + members) as usize, Ordering::Relaxed);
    };
    let doors = crowd(|client| {
        for _ in 0..20 {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            if number % 5 == 0 {
                count(client);
            } else {
                client.say(&format!("hset h {number} x"));
                client.say(&format!("zadd z 1 {number}"));
            }
        }
    });
    count(&mut doors[0].client());
    // An element may be counted twice: once in the generation that a transaction removed.
    assert!(counted.into_inner() >= 2 * 20 * 20 / 5 * 4);
}

#[test]
fn transactions_within_a_long_pipeline_keep_the_order_of_replies() {
    let Some((_door, mut client)) = open_with_transactions() else { return };
    let mut bytes = Vec::new();
    for number in 0..200 {
        let value = number.to_string();
        for words in [&["incr", "n"][..], &["multi"], &["set", "k", &value], &["get", "k"], &["exec"]] {
            bytes.extend(request(words));
        }
    }
    client.send(&bytes);
    for number in 0..200 {
        assert_eq!(client.reply(), Reply::Integer(number + 1));
        assert_eq!([client.reply(), client.reply(), client.reply()], [ok(), queued(), queued()]);
        assert_eq!(client.reply(), Reply::Array(vec![ok(), Reply::bulk(&number.to_string())]));
    }
}

#[test]
fn dart_refuses_transactions_and_executes_nothing_of_them() {
    let store = darter::Store::options().index(IndexKind::Dart).open("mem:64M").unwrap();
    let door = Door::of(store, GatewayOptions::default());
    let mut client = door.client();
    // As redis-py and other clients send it: in one piece.
    let body = [&["multi"][..], &["set", "a", "1"], &["incr", "b"], &["nonsense"], &["get"], &["exec"]];
    client.send(&body.iter().flat_map(|words| request(words)).collect::<Vec<u8>>());
    assert!(error(client.reply()).starts_with("ERR MULTI is refused: this pool's index has no transactions"));
    for _ in 0..4 {
        assert!(error(client.reply()).starts_with("ERR not executed: it follows a MULTI"));
    }
    assert_eq!(error(client.reply()), "EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(client.say("exists a b"), Reply::Integer(0));
    error(client.say("multi"));
    error(client.say("set a 1"));
    assert_eq!(error(client.say("multi")), "ERR MULTI calls can not be nested");
    assert_eq!(error(client.say("watch a")), "ERR WATCH inside MULTI is not allowed");
    // Another client is not affected.
    assert_eq!(door.client().say("set other 1"), ok());
    assert_eq!(client.say("discard"), ok());
    assert_eq!(client.say("set a 2"), ok());
    assert_eq!(error(client.say("watch a b")), "ERR WATCH is refused: this pool's index has no transactions");
    assert_eq!(error(client.say("unwatch")), "ERR UNWATCH is refused: this pool's index has no transactions");
    error(client.say("multi"));
    assert_eq!(client.say("reset"), Reply::Simple("RESET".to_owned()));
    assert_eq!(client.say("ping"), Reply::Simple("PONG".to_owned()));
    error(client.say("multi"));
    assert_eq!(client.say("quit"), ok());
    assert!(client.try_reply().is_none());
}
