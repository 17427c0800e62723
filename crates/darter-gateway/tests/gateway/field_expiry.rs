//! Expiry of a hash's fields, with the replies of Redis 7.4 and 8.0: in small hashes, which lie in their
//! heads, and in large ones.

use crate::door::{Client, Door, Reply, bulks, error, has_transactions, integer, ok};
use crate::dump::sealed;
use darter::Store;
use darter_gateway::GatewayOptions;
use std::time::{SystemTime, UNIX_EPOCH};

/// Fields that make a hash large.
const LARGE: i64 = 200;

fn integers(numbers: &[i64]) -> Reply {
    Reply::Array(numbers.iter().copied().map(Reply::Integer).collect())
}

#[expect(clippy::disallowed_methods, reason = "the gateway's clock")]
fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn integer_of(count: usize) -> i64 {
    i64::try_from(count).unwrap()
}

/// Sets a hash `h` of the fields a to d, and more if it is large.
fn set(client: &mut Client, is_large: bool) {
    client.say("del h");
    client.say("hset h a 1 b 2 c 3 d 4");
    if is_large {
        let more = (0..LARGE).map(|number| format!(" filler{number} {}", "x".repeat(20)));
        client.say(&format!("hset h{}", more.collect::<Vec<_>>().concat()));
        assert!(integer(client.say("memory usage h")) > 5000);
    }
}

/// Lets a field of a hash end, and waits until the gateway takes it for absent.
fn end(client: &mut Client, key: &str, field: &str) {
    assert_eq!(client.say(&format!("hpexpire {key} 1 fields 1 {field}")), integers(&[1]));
    while client.say(&format!("hexists {key} {field}")) != Reply::Integer(0) {}
}

/// Runs a test on a small hash and on a large one.
fn on_both(test: impl Fn(&mut Client, i64)) {
    let door = Door::open();
    let mut client = door.client();
    for is_large in [false, true] {
        set(&mut client, is_large);
        test(&mut client, if is_large { 4 + LARGE } else { 4 });
    }
}

#[test]
fn times_are_set_read_and_taken_off() {
    on_both(|client, _| {
        assert_eq!(client.say("httl h fields 3 a none b"), integers(&[-1, -2, -1]));
        assert_eq!(client.say("hexpire h 1000 fields 2 a none"), integers(&[1, -2]));
        let Reply::Array(left) = client.say("httl h fields 2 a b") else { panic!() };
        assert!((1..=1000).contains(&integer(left[0].clone())) && left[1] == Reply::Integer(-1));
        let at = now_ms() / 1000 + 5000;
        assert_eq!(client.say(&format!("hexpireat h {at} fields 1 a")), integers(&[1]));
        assert_eq!(client.say("hexpiretime h fields 1 a"), integers(&[at]));
        assert_eq!(client.say("hpexpiretime h fields 1 a"), integers(&[at * 1000]));
        assert_eq!(client.say(&format!("hpexpireat h {} fields 1 b", at * 1000 + 1)), integers(&[1]));
        assert_eq!(client.say("hpexpiretime h fields 1 b"), integers(&[at * 1000 + 1]));
        assert_eq!(client.say("hexpiretime h fields 1 b"), integers(&[at + 1]));
        assert_eq!(client.say("hpexpire h 100000 fields 1 c"), integers(&[1]));
        let Reply::Array(left) = client.say("hpttl h fields 1 c") else { panic!() };
        assert!((1..=100_000).contains(&integer(left[0].clone())));
        // Values are unchanged.
        assert_eq!(client.say("hmget h a b c d"), bulks(&["1", "2", "3", "4"]));
        assert_eq!(client.say("hpersist h fields 3 a d none"), integers(&[1, -1, -2]));
        assert_eq!(client.say("httl h fields 1 a"), integers(&[-1]));
        assert_eq!(client.say("type h"), Reply::Simple("hash".to_owned()));
        assert_eq!(client.say("httl none fields 2 a b"), integers(&[-2, -2]));
        assert_eq!(client.say("hexpire none 10 fields 2 a b"), integers(&[-2, -2]));
        assert_eq!(client.say("hpersist none fields 1 a"), integers(&[-2]));
        assert_eq!(client.say("exists none"), Reply::Integer(0));
    });
}

#[test]
fn conditions_are_those_of_redis() {
    on_both(|client, _| {
        for (line, reply) in [
            ("hexpire h 100 xx fields 1 a", 0),
            ("hexpire h 100 gt fields 1 a", 0),
            ("hexpire h 100 lt fields 1 a", 1),
            ("hexpire h 200 nx fields 1 a", 0),
            ("hexpire h 200 lt fields 1 a", 0),
            ("hexpire h 200 GT fields 1 a", 1),
            ("hexpire h 100 gt fields 1 a", 0),
            ("hexpire h 300 XX fields 1 a", 1),
            ("hexpire h 200 nx fields 1 b", 1),
        ] {
            assert_eq!(client.say(line), integers(&[reply]), "{line}");
        }
        // A condition is checked before a field whose time has come is removed.
        assert_eq!(client.say("hexpire h 0 nx fields 1 a"), integers(&[0]));
        assert_eq!(client.say("hexists h a"), Reply::Integer(1));
    });
}

#[test]
fn a_time_that_has_come_removes_the_field() {
    on_both(|client, count| {
        assert_eq!(client.say("hexpire h 0 fields 2 a a"), integers(&[2, -2]));
        assert_eq!(client.say("hpexpireat h 1 fields 2 b none"), integers(&[2, -2]));
        assert_eq!(client.say("hlen h"), Reply::Integer(count - 2));
        assert_eq!(
            client.say("hmget h a b c"),
            Reply::Array(vec![Reply::Null, Reply::Null, Reply::bulk("3")])
        );
    });
    let door = Door::open();
    let mut client = door.client();
    client.say("hset h a 1");
    assert_eq!(client.say("hpexpire h 0 fields 1 a"), integers(&[2]));
    assert_eq!(client.say("exists h"), Reply::Integer(0));
    assert_eq!(client.say("type h"), Reply::Simple("none".to_owned()));
}

#[test]
fn a_field_that_has_ended_is_absent_for_every_command() {
    on_both(|client, count| {
        end(client, "h", "b");
        let left = count - 1;
        assert_eq!(client.say("hget h b"), Reply::Null);
        assert_eq!(client.say("hstrlen h b"), Reply::Integer(0));
        assert_eq!(client.say("hmget h a b"), Reply::Array(vec![Reply::bulk("1"), Reply::Null]));
        assert_eq!(client.say("hlen h"), Reply::Integer(left));
        for (line, parts) in [("hgetall h", 2), ("hkeys h", 1), ("hvals h", 1)] {
            assert_eq!(integer_of(client.say(line).array().len()), left * parts, "{line}");
        }
        let mut scanned = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let mut parts = client.say(&format!("hscan h {cursor} count 7")).array().into_iter();
            cursor = String::from_utf8(parts.next().unwrap().bytes()).unwrap();
            scanned.extend(parts.next().unwrap().array());
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(integer_of(scanned.len()), left * 2);
        assert!(!scanned.contains(&Reply::bulk("b")));
        let drawn = client.say("hrandfield h 1000").array();
        assert!(integer_of(drawn.len()) == left && !drawn.contains(&Reply::bulk("b")));
        assert_eq!(client.say("httl h fields 1 b"), integers(&[-2]));
        assert_eq!(client.say("hpersist h fields 1 b"), integers(&[-2]));
        assert_eq!(client.say("hexpire h 10 fields 1 b"), integers(&[-2]));
        assert_eq!(client.say("hdel h b"), Reply::Integer(0));
        client.say("rpush ids b a");
        let sorted = client.say("sort ids by nosort get h->*");
        client.say("set b b");
        assert_eq!(sorted, Reply::Array(vec![Reply::Null, Reply::Null]));
        client.say("del ids b x");
        assert_eq!(client.say("hsetnx h b new"), Reply::Integer(1));
        assert_eq!(client.say("hget h b"), Reply::bulk("new"));
        assert_eq!(client.say("httl h fields 1 b"), integers(&[-1]));
        end(client, "h", "c");
        // It counts from nothing, without the old time.
        assert_eq!(client.say("hincrby h c 5"), Reply::Integer(5));
        assert_eq!(client.say("httl h fields 1 c"), integers(&[-1]));
        end(client, "h", "d");
        assert_eq!(client.say("hset h d 9 a 8"), Reply::Integer(1));
    });
}

#[test]
fn sort_reads_fields_that_have_not_ended() {
    let door = Door::open();
    let mut client = door.client();
    client.say("rpush ids 1 2");
    client.say("hset h:1 f one g x");
    client.say("hset h:2 f two g x");
    end(&mut client, "h:1", "f");
    client.say("hexpire h:2 100 fields 1 f");
    assert_eq!(
        client.say("sort ids by nosort get h:*->f"),
        Reply::Array(vec![Reply::Null, Reply::bulk("two")])
    );
}

#[test]
fn writes_take_the_time_off_and_increments_keep_it() {
    on_both(|client, _| {
        client.say("hexpire h 1000 fields 3 a b c");
        assert_eq!(client.say("hincrby h a 5"), Reply::Integer(6));
        assert_eq!(client.say("hincrbyfloat h b 0.5"), Reply::bulk("2.5"));
        client.say("hset h c new");
        let Reply::Array(left) = client.say("httl h fields 3 a b c") else { panic!() };
        assert!(integer(left[0].clone()) > 0 && integer(left[1].clone()) > 0, "{left:?}");
        assert_eq!(left[2], Reply::Integer(-1));
        assert_eq!(client.say("hsetnx h a x"), Reply::Integer(0));
        assert_eq!(client.say("hmget h a b c d"), bulks(&["6", "2.5", "new", "4"]));
    });
}

#[test]
fn a_hash_is_gone_when_its_last_field_has_ended() {
    let door = Door::open();
    let mut client = door.client();
    for count in [1, LARGE] {
        let pairs =
            (0..count).map(|number| format!(" {number} {}", "x".repeat(20))).collect::<Vec<_>>().concat();
        client.say(&format!("hset h{pairs}"));
        client.say("expire h 1000");
        let names = (0..count).map(|number| format!(" {number}")).collect::<Vec<_>>().concat();
        let reply = client.say(&format!("hpexpire h 1 fields {count}{names}"));
        assert_eq!(reply, integers(&vec![1; usize::try_from(count).unwrap()]));
        while client.say("exists h") != Reply::Integer(0) {}
        assert_eq!(client.say("type h"), Reply::Simple("none".to_owned()));
        assert_eq!(client.say("keys *"), Reply::Array(Vec::new()));
        assert_eq!(client.say("dbsize"), Reply::Integer(0));
        assert_eq!(client.say("randomkey"), Reply::Null);
        assert_eq!(client.say("hgetall h"), Reply::Array(Vec::new()));
        assert_eq!(client.say("rename h other"), Reply::Error("ERR no such key".to_owned()));
        assert_eq!(client.say("dump h"), Reply::Null);
        assert_eq!(client.say("del h"), Reply::Integer(0));
        // Another type, and the old key's time is gone.
        assert_eq!(client.say("rpush h x"), Reply::Integer(1));
        assert_eq!(client.say("ttl h"), Reply::Integer(-1));
        client.say("del h");
    }
}

#[test]
fn times_move_with_the_hash() {
    on_both(|client, count| {
        end(client, "h", "b");
        client.say("hexpire h 1000 fields 1 a");
        client.say("expire h 5000");
        assert_eq!(client.say("copy h copy"), Reply::Integer(1));
        assert_eq!(client.say("rename h moved"), ok());
        let payload = client.say("dump moved").bytes();
        assert_eq!(client.ask(&[&b"restore"[..], b"restored", b"0", &payload]), ok());
        for key in ["copy", "moved", "restored"] {
            let Reply::Array(left) = client.say(&format!("httl {key} fields 3 a b c")) else { panic!() };
            assert!((1..=1000).contains(&integer(left[0].clone())), "{key} {left:?}");
            assert_eq!(left[1..], [Reply::Integer(-2), Reply::Integer(-1)], "{key}");
            assert_eq!(client.say(&format!("hlen {key}")), Reply::Integer(count - 1), "{key}");
            assert_eq!(client.say(&format!("hmget {key} a c")), bulks(&["1", "3"]), "{key}");
        }
        client.say("del copy moved restored");
    });
}

#[test]
fn hashes_of_redis_7_4_are_restored() {
    let door = Door::open();
    let mut client = door.client();
    let end = now_ms().cast_unsigned() + 1_000_000;
    // Fields a, which ends, b, which does not, and c, which has ended; as records and as a listpack.
    let mut records = [&[24][..], &1000_u64.to_le_bytes(), &[3, 0x81]].concat();
    records.extend((end - 1000 + 1).to_be_bytes());
    records.extend(b"\x01a\x011\x00\x01b\x012\x01\x01c\x013");
    let mut packed = [&[25][..], &1000_u64.to_le_bytes()].concat();
    let mut listpack = b"\x81a\x02\x01\x01\xf4".to_vec();
    listpack.extend(end.to_le_bytes());
    listpack.extend(b"\x09\x81b\x02\x02\x01\x00\x01\x81c\x02\x03\x01\xc3\xe8\x02\xff");
    let bytes = listpack.len() as u8 + 6;
    packed.extend([bytes, bytes, 0, 0, 0, 9, 0]);
    packed.extend(listpack);
    for body in [records, packed] {
        assert_eq!(client.ask(&[&b"restore"[..], b"h", b"0", &sealed(&body), b"replace"]), ok());
        assert_eq!(client.say("hgetall h"), bulks(&["a", "1", "b", "2"]));
        assert_eq!(client.say("hpexpiretime h fields 3 a b c"), integers(&[end.cast_signed(), -1, -2]));
    }
    // All fields have ended.
    let over = [&[24][..], &1000_u64.to_le_bytes(), b"\x01\x01\x01a\x011"].concat();
    assert_eq!(client.ask(&[&b"restore"[..], b"h", b"0", &sealed(&over), b"replace"]), ok());
    assert_eq!(client.say("exists h"), Reply::Integer(0));
}

#[test]
fn fields_are_read_removed_and_set_with_times() {
    on_both(|client, count| {
        assert_eq!(
            client.say("hgetdel h fields 3 a none a"),
            Reply::Array(vec![Reply::bulk("1"), Reply::Null, Reply::Null])
        );
        assert_eq!(client.say("hlen h"), Reply::Integer(count - 1));
        assert_eq!(
            client.say("hgetex h ex 100 fields 2 b none"),
            Reply::Array(vec![Reply::bulk("2"), Reply::Null])
        );
        let Reply::Array(left) = client.say("httl h fields 1 b") else { panic!() };
        assert!((1..=100).contains(&integer(left[0].clone())));
        assert_eq!(client.say("hgetex h fields 1 b"), bulks(&["2"]));
        assert_ne!(client.say("httl h fields 1 b"), integers(&[-1]));
        assert_eq!(client.say("hgetex h persist fields 1 b"), bulks(&["2"]));
        assert_eq!(client.say("httl h fields 1 b"), integers(&[-1]));
        assert_eq!(client.say("hgetex h pxat 1 fields 1 c"), bulks(&["3"]));
        assert_eq!(client.say("hexists h c"), Reply::Integer(0));
        assert_eq!(client.say("hsetex h ex 100 fields 2 a x b y"), Reply::Integer(1));
        assert_ne!(client.say("httl h fields 1 a"), integers(&[-1]));
        assert_eq!(client.say("hsetex h keepttl fields 1 a z"), Reply::Integer(1));
        assert_ne!(client.say("httl h fields 1 a"), integers(&[-1]));
        assert_eq!(client.say("hsetex h fields 1 a w"), Reply::Integer(1));
        assert_eq!(client.say("httl h fields 1 a"), integers(&[-1]));
        assert_eq!(client.say("hmget h a b"), bulks(&["w", "y"]));
        if has_transactions() {
            assert_eq!(client.say("hsetex h fnx fields 2 new 1 a 2"), Reply::Integer(0));
            assert_eq!(client.say("hsetex h fxx fields 2 new 1 a 2"), Reply::Integer(0));
            assert_eq!(client.say("hget h a"), Reply::bulk("w"));
            assert_eq!(client.say("hsetex h fxx px 100000 fields 2 b 1 a 2"), Reply::Integer(1));
            assert_eq!(client.say("hsetex h fnx fields 1 new 1"), Reply::Integer(1));
        }
        client.say("del k");
        assert_eq!(client.say("hsetex k px 0 fields 1 f v"), Reply::Integer(1));
        assert_eq!(client.say("exists k"), Reply::Integer(0));
    });
}

#[test]
fn small_hashes_become_large_with_their_times() {
    let door = Door::open();
    let mut client = door.client();
    client.say("hset h a 1 b 2");
    end(&mut client, "h", "b");
    client.say("hexpire h 1000 fields 1 a");
    for number in 0..LARGE {
        client.say(&format!("hset h field{number} {}", "x".repeat(20)));
    }
    assert_eq!(client.say("hlen h"), Reply::Integer(LARGE + 1));
    let Reply::Array(left) = client.say("httl h fields 3 a field0 b") else { panic!() };
    assert!(integer(left[0].clone()) > 0 && left[1..] == [Reply::Integer(-1), Reply::Integer(-2)]);
    // A hash that is almost full, and becomes large because of the times.
    let pairs =
        (0..35).map(|number| format!(" field{number:02} {}", "x".repeat(16))).collect::<Vec<_>>().concat();
    client.say(&format!("hset full{pairs}"));
    assert_eq!(client.say("hexpire full 1000 fields 1 field07"), integers(&[1]));
    assert_eq!(client.say("hlen full"), Reply::Integer(35));
    assert_ne!(client.say("httl full fields 1 field07"), integers(&[-1]));
    assert_eq!(client.say("hget full field08"), Reply::bulk(&"x".repeat(16)));
}

#[test]
fn transactions_and_scripts_see_the_same() {
    if !has_transactions() {
        return;
    }
    on_both(|client, _| {
        end(client, "h", "b");
        client.say("multi");
        client.say("hexpire h 1000 fields 2 a b");
        client.say("hget h b");
        client.say("hset h b again");
        client.say("httl h fields 1 b");
        client.say("hpexpire h 0 fields 1 c");
        client.say("hexists h c");
        let Reply::Array(replies) = client.say("exec") else { panic!() };
        assert_eq!(
            replies,
            [
                integers(&[1, -2]),
                Reply::Null,
                Reply::Integer(1),
                integers(&[-1]),
                integers(&[2]),
                Reply::Integer(0)
            ]
        );
        let script = "redis.call('hexpire', 'h', 100, 'fields', 1, 'd') return redis.call('httl', 'h', 'fields', 1, 'd')";
        let Reply::Array(left) = client.ask(&["eval", script, "0"]) else { panic!() };
        assert!((1..=100).contains(&integer(left[0].clone())));
    });
}

#[test]
fn the_walk_removes_what_has_ended() {
    let store: Store = crate::door::store("mem:128M");
    let door = Door::of(store.clone(), GatewayOptions::default());
    let mut client = door.client();
    client.say(&format!("hset small a 1 b {}", "x".repeat(100)));
    client.say("hset large a 1 b 2");
    let pairs = (0..LARGE).map(|number| format!(" {number} {}", "x".repeat(20))).collect::<Vec<_>>().concat();
    client.say(&format!("hset large{pairs}"));
    let (small, large) = ("memory usage small", "memory usage large");
    let before = [small, large].map(|line| integer(client.say(line)));
    let names = (0..LARGE).map(|number| format!(" {number}")).collect::<Vec<_>>().concat();
    client.say(&format!("hpexpire large 1 fields {LARGE}{names}"));
    end(&mut client, "small", "b");
    while integer(client.say(small)) >= before[0] || integer(client.say(large)) > before[1] / 10 {}
    assert_eq!(client.say("hgetall small"), bulks(&["a", "1"]));
    assert_eq!(client.say("hgetall large"), bulks(&["a", "1", "b", "2"]));
}

#[test]
fn wrong_arguments_are_refused_as_by_redis() {
    let door = Door::open();
    let mut client = door.client();
    client.say("hset h a 1");
    client.say("set string x");
    for (line, text) in [
        ("hexpire h 10 fields 1", "wrong number of arguments for 'hexpire' command"),
        ("hexpire h x fields 1 a", "value is not an integer or out of range"),
        ("hexpire h -1 fields 1 a", "invalid expire time, must be >= 0"),
        ("hexpire h 9223372036854775807 fields 1 a", "invalid expire time in 'hexpire' command"),
        ("hpexpireat h 70368744177664 fields 1 a", "invalid expire time in 'hpexpireat' command"),
        ("hexpire h 10 a fields 1", "Mandatory argument FIELDS is missing or not at the right position"),
        (
            "hexpire h 10 nx xx fields 1 a",
            "Mandatory argument FIELDS is missing or not at the right position",
        ),
        ("hexpire h 10 fields 0 a", "Parameter `numFields` should be greater than 0"),
        ("hexpire h 10 fields 2 a", "The `numfields` parameter must match the number of arguments"),
        ("hexpire h 10 fields 1 a b", "The `numfields` parameter must match the number of arguments"),
        ("httl h field 1 a", "Mandatory argument FIELDS is missing or not at the right position"),
        ("httl h fields x a", "Number of fields must be a positive integer"),
        ("httl h fields 2 a", "The `numfields` parameter must match the number of arguments"),
        (
            "hpersist h fields 9223372036854775807 a",
            "The `numfields` parameter must match the number of arguments",
        ),
        (
            "hgetex h ex 10 px 10 fields 1 a",
            "Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
        ),
        ("hgetex h foo fields 1 a", "unknown argument: foo"),
        ("hgetex h ex fields 1 a", "value is not an integer or out of range"),
        ("hsetex h fnx fxx fields 1 a b", "Only one of FXX or FNX arguments can be specified"),
        ("hsetex h fields 1 a b c", "The `numfields` parameter must match the number of arguments"),
    ] {
        assert_eq!(error(client.say(line)), format!("ERR {text}"), "{line}");
    }
    for line in [
        "hexpire string 10 fields 1 a",
        "httl string fields 1 a",
        "hpersist string fields 1 a",
        "hgetdel string fields 1 a",
        "hgetex string fields 1 a",
        "hsetex string fields 1 a b",
    ] {
        assert!(error(client.say(line)).starts_with("WRONGTYPE"), "{line}");
    }
    assert_eq!(client.say("hget h a"), Reply::bulk("1"));
}
