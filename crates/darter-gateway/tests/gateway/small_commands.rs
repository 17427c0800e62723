//! Commands that clients and tools need in addition to data commands: their replies, and whether
//! these are true.

use crate::door::{Client, Door, Redis, Reply, integer};

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        Reply::Text(text) | Reply::Simple(text) => text,
        other => panic!("not a text: {other:?}"),
    }
}

fn words(reply: Reply) -> Vec<String> {
    reply.array().into_iter().map(text).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "expiry times are the wall clock's")]
fn deadlines_are_kept_to_the_millisecond() {
    let door = Door::open();
    let mut client = door.client();
    let now = || {
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
        now.as_millis() as i64
    };
    client.say("set k v");
    for _ in 0..50 {
        let end = now() + 100_000;
        client.say(&format!("getex k pxat {end}"));
        assert_eq!(client.say("pexpiretime k"), Reply::Integer(end));
        // A clock that lags would show more time than there is.
        let before = now();
        let left = integer(client.say("pttl k"));
        assert!(left <= end - before && left >= end - now(), "{left}");
    }
    client.say("getex k px 1");
    std::thread::sleep(std::time::Duration::from_millis(3));
    assert_eq!(client.say("get k"), Reply::Null);
}

#[test]
fn time_is_the_systems() {
    let door = Door::open();
    let mut client = door.client();
    let micros = |client: &mut Client| {
        let parts: Vec<i64> = words(client.say("time")).iter().map(|part| part.parse().unwrap()).collect();
        assert!((0..1_000_000).contains(&parts[1]));
        parts[0] * 1_000_000 + parts[1]
    };
    let (first, second) = (micros(&mut client), micros(&mut client));
    assert!(first <= second && first > 1_700_000_000_000_000);
}

#[test]
fn copies_are_whole_and_their_own() {
    let door = Door::open();
    let mut client = door.client();
    client.say("hset h a 1 b 2");
    client.say("zadd z 1.5 a 2 b");
    client.say("set s text px 100000000");
    for (from, to) in [("h", "h2"), ("z", "z2"), ("s", "s2")] {
        assert_eq!(client.say(&format!("copy {from} {to}")), Reply::Integer(1));
        assert_eq!(client.say(&format!("copy {from} {to}")), Reply::Integer(0));
        assert_eq!(client.say(&format!("copy {from} {to} db 0 replace")), Reply::Integer(1));
        assert_eq!(client.say(&format!("type {from}")), client.say(&format!("type {to}")));
    }
    client.say("hset h a 9");
    client.say("zadd z 9 a");
    assert_eq!(words(client.say("hgetall h2")), ["a", "1", "b", "2"]);
    assert_eq!(words(client.say("zrange z2 0 -1 withscores")), ["a", "1.5", "b", "2"]);
    assert!(integer(client.say("pttl s2")) > 0);
    assert_eq!(client.say("copy nothing k"), Reply::Integer(0));
    assert_eq!(client.say("rename nothing k"), Reply::Error("ERR no such key".to_owned()));
    // Over a key of another type, and back.
    assert_eq!(text(client.say("rename z2 h2")), "OK");
    assert_eq!(words(client.say("zrange h2 0 -1")), ["a", "b"]);
    assert_eq!((client.say("exists z2"), client.say("hlen h")), (Reply::Integer(0), Reply::Integer(2)));
    assert_eq!(text(client.say("rename s h2")), "OK");
    assert_eq!((text(client.say("get h2")), client.say("zcard z")), ("text".to_owned(), Reply::Integer(2)));
}

#[test]
fn random_elements_are_of_the_key() {
    let door = Door::open();
    let mut client = door.client();
    let fields: Vec<String> = (0..30).flat_map(|field| [format!("f{field}"), field.to_string()]).collect();
    client.ask(&[&["hset", "h"], &fields.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
    client.say("zadd z 1 a 2 b 3 c");
    let mut some = words(client.say("hrandfield h 10"));
    some.sort();
    some.dedup();
    assert_eq!(some.len(), 10);
    assert_eq!(words(client.say("hrandfield h 100")).len(), 30);
    for pair in words(client.say("hrandfield h -50 withvalues")).chunks(2) {
        assert_eq!(pair[0], format!("f{}", pair[1]));
    }
    let mut all = words(client.say("zrandmember z 3 withscores"));
    all.sort();
    assert_eq!(all, ["1", "2", "3", "a", "b", "c"]);
    assert_eq!(client.say("hrandfield nothing"), Reply::Null);
    assert_eq!(client.say("zrandmember nothing 5"), Reply::Array(Vec::new()));
}

#[test]
fn numbers_are_read_in_hexadecimal_too() {
    let door = Door::open();
    let mut client = door.client();
    client.say("zadd z 0x1p4 a -0x.8 b 0X1.8P-1 c");
    assert_eq!(words(client.say("zrange z 0 -1 withscores")), ["b", "-0.5", "c", "0.75", "a", "16"]);
    assert_eq!(words(client.say("zrangebyscore z (0x0 0xff")), ["c", "a"]);
    assert_eq!(text(client.say("incrbyfloat k 0x1.8p1")), "3");
    for wrong in ["0x", "0x.", "0xg", "0x1p", "0x1p+", "0x1.8.1", "x1"] {
        assert!(matches!(client.say(&format!("zadd z {wrong} m")), Reply::Error(_)), "{wrong}");
        assert!(matches!(client.say(&format!("incrbyfloat k {wrong}")), Reply::Error(_)), "{wrong}");
    }
}

#[test]
fn memory_usage_grows_with_what_a_key_holds() {
    let door = Door::open();
    let mut client = door.client();
    assert_eq!(client.say("memory usage k"), Reply::Null);
    client.say(&format!("set k {}", "x".repeat(1000)));
    assert!((1000..1100).contains(&integer(client.say("memory usage k"))));
    client.say("hset h f v");
    let one = integer(client.say("memory usage h"));
    for field in 0..1000 {
        client.say(&format!("hset h f{field} {}", "x".repeat(100)));
    }
    assert!(integer(client.say("memory usage h samples 0")) > one + 100_000);
}

/// The names of the fields in a client's line, in order.
fn fields(line: &str) -> Vec<String> {
    line.split_whitespace().map(|field| field.split_once('=').unwrap().0.to_owned()).collect()
}

#[test]
fn client_list_has_all_of_redis_fields() {
    let door = Door::open();
    let mut client = door.client();
    let line = text(client.say("client info"));
    let list = text(client.say("client list"));
    assert_eq!(fields(&line), fields(&list));
    assert!(line.contains(" cmd=client|info ") && list.contains(" cmd=client|list "), "{list}");
    let value = |name: &str| -> i64 {
        let field = list.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        field.unwrap().parse().unwrap()
    };
    // The request itself.
    assert_eq!(value("qbuf"), 26);
    assert!(value("fd") > 0 && value("tot-mem") >= value("qbuf") + value("qbuf-free"));
    let Some(redis) = Redis::start() else { return };
    let theirs = fields(&text(Client::connect(redis.address).say("client list")));
    assert_eq!(fields(&list)[..theirs.len()], theirs);
}

#[test]
fn clients_are_killed_by_type_and_user() {
    let door = Door::open();
    let (mut client, mut other) = (door.client(), door.client());
    other.say("ping");
    assert_eq!(client.say("client kill type pubsub"), Reply::Integer(0));
    assert!(
        matches!(client.say("client kill type x"), Reply::Error(text) if text.contains("Unknown client type"))
    );
    assert!(matches!(client.say("client kill user me"), Reply::Error(text) if text.contains("No such user")));
    assert_eq!(client.say("client kill type normal user default"), Reply::Integer(1));
    assert!(other.try_reply().is_none());
    assert_eq!(text(client.say("ping")), "PONG");
}

#[test]
fn commands_are_listed_by_pattern_and_category() {
    let door = Door::open();
    let mut client = door.client();
    assert_eq!(words(client.say("command list filterby pattern rename*")), ["rename", "renamenx"]);
    assert_eq!(
        words(client.say("command list filterby pattern memory|*")),
        [
            "memory|doctor",
            "memory|help",
            "memory|malloc-stats",
            "memory|purge",
            "memory|stats",
            "memory|usage"
        ]
    );
    assert!(words(client.say("command list filterby aclcat hash")).contains(&"hset".to_owned()));
    assert!(words(client.say("command list filterby aclcat transaction")).contains(&"exec".to_owned()));
    assert_eq!(words(client.say("command getkeys mset a 1 b 2")), ["a", "b"]);
    assert_eq!(words(client.say("command getkeys object encoding k")), ["k"]);
    assert!(matches!(client.say("command getkeys ping"), Reply::Error(_)));
    let usage = client.say("command info memory|usage get|x").array();
    assert_eq!(usage[0].clone().array()[0], Reply::bulk("memory|usage"));
    assert_eq!(usage[1], Reply::Null);
}

#[test]
fn info_counts_commands_and_errors_and_can_be_reset() {
    let door = Door::open();
    let mut client = door.client();
    client.say("set k v");
    client.say("incr k");
    client.say("get");
    let stats = text(client.say("info commandstats errorstats stats"));
    for expected in [
        "cmdstat_set:calls=1,",
        "cmdstat_incr:calls=1,",
        "rejected_calls=0,failed_calls=1",
        "cmdstat_get:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0",
        "errorstat_ERR:count=2",
        "total_error_replies:2",
    ] {
        assert!(stats.contains(expected), "{expected}: {stats}");
    }
    assert_eq!(text(client.say("config resetstat")), "OK");
    let stats = text(client.say("info commandstats errorstats"));
    assert!(!stats.contains("cmdstat_set") && !stats.contains("errorstat_"), "{stats}");
    let persistence = text(client.say("info persistence"));
    assert!(persistence.contains("pool_persistent:0\r\npool_durability:never\r\n"), "{persistence}");
    let cpu = text(client.say("info cpu"));
    for name in ["used_cpu_sys:", "used_cpu_user:", "used_cpu_user_children:", "used_cpu_sys_main_thread:"] {
        assert!(cpu.contains(name), "{cpu}");
    }
    assert!(!text(client.say("info")).contains("# Commandstats"));
}

/// The maximum length of key and member together is documented.
#[test]
fn the_longest_member_is_as_documented() {
    let door = Door::open();
    let mut client = door.client();
    // The gateway byte, the family, the key's length, the generation; in the index of scores also
    // the score, an end mark and a stamp, and two bytes for each zero byte.
    let (field, member) = (65_536 - 12 - 1, 65_536 - 12 - 18 - 1);
    for (words, most, byte) in [("hset k", field, b'x'), ("zadd k", member, b'x'), ("zadd k", member / 2, 0)]
    {
        client.say("del k");
        for (length, is_accepted) in [(most, true), (most + 1, false)] {
            let name = vec![byte; length];
            let last: [&[u8]; 2] = if words == "hset k" { [&name, b"v"] } else { [b"1", &name] };
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).chain(last).collect();
            let reply = client.ask(&words);
            assert_eq!(reply == Reply::Integer(1), is_accepted, "{length} bytes of {byte}: {reply:?}");
        }
    }
}
