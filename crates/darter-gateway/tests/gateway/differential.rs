//! The same requests to a redis-server and to a gateway must get the same replies.
//!
//! `DARTER_DIFFERENTIAL=SEED:REQUESTS` runs longer, from another seed.

use crate::door::{Client, Door, Redis, Reply, index};
use crate::sentences::{AGGREGATES, DATABASES, LISTS, SENTENCES, SETS_AND_SORTING, STREAMS, sentence_of};
use darter::IndexKind;
use darter::engine::Engine;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn is(words: &[Vec<u8>], names: &[&str]) -> bool {
    words.first().is_some_and(|name| names.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes())))
}

/// Returns whether replies agree. They may differ in their order, by the elapsed time, or because
/// they describe different servers.
pub fn agree(words: &[Vec<u8>], redis: &Reply, ours: &Reply) -> bool {
    let keys = |reply: &Reply| {
        let mut keys = reply.clone().array();
        keys.sort_by_key(|key| key.clone().bytes());
        keys
    };
    // The parts of a reply without a defined order, one by one or as pairs.
    let parts = |reply: &Reply, size: usize| {
        let (Reply::Array(replies) | Reply::Map(replies) | Reply::Set(replies)) = reply else {
            panic!("{reply:?}")
        };
        let mut parts: Vec<String> = replies.chunks(size).map(|part| format!("{part:?}")).collect();
        parts.sort();
        parts
    };
    match (redis, ours) {
        (Reply::Array(_), Reply::Array(_)) | (Reply::Map(_), Reply::Map(_)) if is(words, &["hgetall"]) => {
            parts(redis, 2) == parts(ours, 2)
        }
        (Reply::Array(_), Reply::Array(_)) if is(words, &["hkeys", "hvals", "hrandfield"]) => {
            parts(redis, 1) == parts(ours, 1)
        }
        (Reply::Array(_), Reply::Array(_)) | (Reply::Set(_), Reply::Set(_)) if is(words, UNORDERED) => {
            parts(redis, 1) == parts(ours, 1)
        }
        // Redis takes the error of a number that an earlier request had for its own (`errno`).
        (Reply::Error(text), Reply::Array(_)) if is(words, &["sort", "sort_ro"]) => {
            text == "ERR One or more scores can't be converted into double"
        }
        // The keys that give the order are compared, but not elements with equal keys.
        (Reply::Array(a), Reply::Array(b)) if is(words, &["sort"]) && has_ties(words, a) => {
            a.len() == b.len()
        }
        (Reply::Array(a), Reply::Array(b)) if is(words, &["sscan"]) => {
            a[0] != b[0] || parts(&a[1], 1) == parts(&b[1], 1)
        }
        // Redis returns small keys at once, regardless of the count, and formats scores differently
        // in small sets.
        (Reply::Array(a), Reply::Array(b)) if is(words, &["hscan"]) => {
            a[0] != b[0] || parts(&a[1], 2) == parts(&b[1], 2)
        }
        (Reply::Array(a), Reply::Array(b)) if is(words, &["zscan"]) => {
            a[0] != b[0] || parts(&with_scores_read(&a[1]), 2) == parts(&with_scores_read(&b[1]), 2)
        }
        (Reply::Array(_), Reply::Error(text)) if is(words, &["hscan", "zscan", "sscan"]) => {
            text.contains("unknown cursor")
        }
        (Reply::Array(_), Reply::Array(_)) if is(words, &["keys"]) => keys(redis) == keys(ours),
        // The position of a scan differs; scans have their own test.
        (Reply::Array(_), Reply::Array(_) | Reply::Error(_)) if is(words, &["scan"]) => true,
        // Redis also counts expired keys that were not removed yet.
        (Reply::Integer(a), Reply::Integer(b)) if is(words, &["dbsize"]) => a >= b,
        (Reply::Integer(a), Reply::Integer(b)) if is(words, &["ttl"]) && *a > 0 => a.abs_diff(*b) <= 2,
        (Reply::Integer(a), Reply::Integer(b)) if is(words, &["pttl"]) && *a > 0 => a.abs_diff(*b) <= 2000,
        (Reply::Integer(a), Reply::Integer(b)) if is(words, &["expiretime"]) && *a > 0 => a.abs_diff(*b) <= 2,
        (Reply::Integer(a), Reply::Integer(b)) if is(words, &["pexpiretime"]) && *a > 0 => {
            a.abs_diff(*b) <= 2000
        }
        (Reply::Array(_), Reply::Array(_)) if is(words, &["time"]) => true,
        (Reply::Array(_), Reply::Array(_)) | (Reply::Map(_), Reply::Map(_))
            if is(words, &["xinfo", "xpending"]) =>
        {
            without_times(redis, words) == without_times(ours, words)
        }
        _ => redis == ours,
    }
}

/// A description of a stream, or of pending entries, without times and numbers of records.
fn without_times(reply: &Reply, words: &[Vec<u8>]) -> Reply {
    let mut parts = match reply {
        Reply::Array(parts) | Reply::Map(parts) => parts.clone(),
        Reply::Integer(1_000_000_000_000..) => return Reply::Null,
        reply => return reply.clone(),
    };
    if is(words, &["xpending"]) && parts.len() == 4 && matches!(parts[2], Reply::Integer(_)) {
        parts[2] = Reply::Null;
    }
    for at in 1..parts.len() {
        let varies = ["idle", "radix-tree-keys", "radix-tree-nodes"];
        if varies.iter().any(|name| parts[at - 1] == Reply::bulk(name)) {
            parts[at] = Reply::Null;
        }
    }
    Reply::Array(parts.iter().map(|part| without_times(part, words)).collect())
}

/// Commands whose replies have no order.
const UNORDERED: &[&str] = &["smembers", "sinter", "sunion", "sdiff", "spop", "srandmember"];

/// Returns whether a request, which has lost or got a word, draws some elements.
fn is_random(words: &[Vec<u8>]) -> bool {
    let count = words.get(2).map(|word| String::from_utf8_lossy(word).parse::<i64>());
    let draws_some = match count {
        None => words.len() == 2,
        Some(count) => count.is_ok_and(|count| count != 0 && count < 1000),
    };
    is(words, &["spop", "srandmember", "zrandmember", "hrandfield"]) && draws_some
}

/// Returns whether a `SORT` leaves elements in any order: the members of a set that is not sorted, elements
/// with equal weights, and elements that are equal up to a zero byte, which ends a text for Redis.
fn has_ties(words: &[Vec<u8>], reply: &[Reply]) -> bool {
    let by = words.windows(2).find(|pair| pair[0].eq_ignore_ascii_case(b"by"));
    let is_alphabetic = words.contains(&b"alpha".to_vec());
    let has_zeros = |reply: &Reply| matches!(reply, Reply::Bulk(bytes) if bytes.contains(&0));
    by.is_some_and(|by| is_alphabetic || !by[1].contains(&b'*'))
        || is_alphabetic && reply.iter().any(has_zeros)
}

/// Members and scores, with the scores in one format.
fn with_scores_read(reply: &Reply) -> Reply {
    let mut replies = reply.clone().array();
    for score in replies.iter_mut().skip(1).step_by(2) {
        let number: f64 = String::from_utf8(score.clone().bytes()).unwrap().parse().unwrap();
        *score = Reply::Double(number.to_string());
    }
    Reply::Array(replies)
}

pub fn shown(words: &[Vec<u8>]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("'{}'", word.escape_ascii())).collect();
    words.join(" ")
}

fn compare(redis: &mut Client, ours: &mut Client, words: &[Vec<u8>], of: &str) {
    let (theirs, reply) = (redis.ask(words), ours.ask(words));
    assert!(agree(words, &theirs, &reply), "{of}: {}\nredis  {theirs:?}\ndarter {reply:?}", shown(words));
}

#[test]
fn requests_by_chance_have_redis_replies() {
    compare_by_chance(|dice| sentence_of(dice, SENTENCES));
}

#[test]
fn requests_by_chance_of_hashes_and_sorted_sets_have_redis_replies() {
    compare_by_chance(|dice| sentence_of(dice, AGGREGATES));
}

#[test]
fn requests_by_chance_of_lists_have_redis_replies() {
    if index() != IndexKind::Dart {
        compare_by_chance(|dice| sentence_of(dice, LISTS));
    }
}

#[test]
fn requests_by_chance_of_streams_have_redis_replies() {
    if index() != IndexKind::Dart {
        compare_by_chance(|dice| sentence_of(dice, STREAMS));
    }
}

#[test]
fn requests_by_chance_of_several_databases_have_redis_replies() {
    if index() != IndexKind::Dart {
        compare_by_chance(|dice| sentence_of(dice, DATABASES));
    }
}

#[test]
fn requests_by_chance_of_sets_and_sorting_have_redis_replies() {
    compare_by_chance(|dice| sentence_of(dice, SETS_AND_SORTING));
}

/// Compares the replies to random requests that `sentence` makes.
pub fn compare_by_chance(sentence: impl Fn(&mut Pcg64Mcg) -> Vec<Vec<u8>>) {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let said = std::env::var("DARTER_DIFFERENTIAL").ok();
    let said =
        said.as_deref().map(|text| text.split_once(':').expect("DARTER_DIFFERENTIAL is SEED:REQUESTS"));
    let (first, requests) =
        said.map_or((1, 6000), |(seed, count)| (seed.parse().unwrap(), count.parse().unwrap()));
    for seed in first..first + 4 {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
        for client in [&mut theirs, &mut ours] {
            assert_eq!(client.say("flushall"), Reply::Simple("OK".to_owned()));
            if seed % 2 == 0 {
                assert!(matches!(client.say("hello 3"), Reply::Map(_)));
            }
        }
        for number in 0..requests / 4 {
            let mut words = sentence(&mut dice);
            if words.is_empty() {
                continue;
            }
            // Without its last word this one has Redis reply with that many fields.
            let is_endless = is(&words, &["hrandfield", "srandmember"])
                && words.ends_with(&[b"-9223372036854775807".to_vec()]);
            // These need transactions.
            let is_refused = index() == IndexKind::Dart && is(&words, &["msetnx", "smove"]);
            // Some other `seed` may be at the other end of a lost key.
            if is(&words, &["flushall"]) || is_endless || is_refused || is_random(&words) {
                words = vec![b"ping".to_vec()];
            }
            compare(
                &mut theirs,
                &mut ours,
                &words,
                &format!("DARTER_DIFFERENTIAL={seed}:{requests}, request {number}"),
            );
        }
    }
}

/// Formats a number as Java does, for clients written in it.
fn java(number: f64) -> String {
    let power = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    if (-3..7).contains(&power) {
        return format!("{number:?}");
    }
    let written = format!("{number:E}");
    let (digits, power) = written.split_once('E').unwrap();
    format!("{digits}{}E{power}", if digits.contains('.') { "" } else { ".0" })
}

/// Returns the score that YCSB's binding for Redis gives a key in `_indices`: the hash of a Java
/// string.
fn place_in_java(key: &str) -> String {
    java(f64::from(key.bytes().fold(0_i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()))))
}

/// The requests of YCSB's binding for Redis: records are hashes, and a sorted set holds their keys
/// for scans.
#[test]
fn a_binding_of_ycsb_has_redis_replies() {
    assert_eq!(
        [0.0, 12.0, -1_234_567.0, 1e7, -123_456_789.0].map(java),
        ["0.0", "12.0", "-1234567.0", "1.0E7", "-1.23456789E8"]
    );
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    let mut dice = Pcg64Mcg::seed_from_u64(1);
    let mut records = 0;
    for step in 0..3000 {
        let fresh = records < 100 || dice.random_ratio(1, 20);
        records += usize::from(fresh);
        let key = format!(
            "user{}",
            (if fresh { records } else { 1 + dice.random_range(0..records) } as u64)
                .wrapping_mul(0x9e37_79b9_7f4a)
        );
        let value = |dice: &mut Pcg64Mcg| {
            (0..100).map(|_| b' ' + dice.random_range(0..95) as u8).collect::<Vec<u8>>()
        };
        let field = format!("field{}", dice.random_range(0..10)).into_bytes();
        let place = place_in_java(&key).into_bytes();
        let (key, index) = (key.into_bytes(), b"_indices".to_vec());
        let requests = match dice.random_range(0..8) {
            _ if fresh => {
                let mut insert = vec![b"HMSET".to_vec(), key.clone()];
                insert.extend((0..10).flat_map(|at| [format!("field{at}").into_bytes(), value(&mut dice)]));
                vec![insert, vec![b"ZADD".to_vec(), index, place, key]]
            }
            0 | 1 => vec![vec![b"HGETALL".to_vec(), key]],
            2 => vec![vec![b"HMGET".to_vec(), key, field]],
            3 | 4 => vec![vec![b"HMSET".to_vec(), key, field, value(&mut dice)]],
            5 if dice.random_ratio(1, 4) => {
                vec![vec![b"DEL".to_vec(), key.clone()], vec![b"ZREM".to_vec(), index, key]]
            }
            _ => {
                let count = (1 + dice.random_range(0..100)).to_string().into_bytes();
                let words = [&b"ZRANGEBYSCORE"[..], &index, &place, b"+inf", b"LIMIT", b"0", &count];
                vec![words.map(<[u8]>::to_vec).to_vec()]
            }
        };
        for words in requests {
            compare(&mut theirs, &mut ours, &words, &format!("step {step}"));
        }
    }
}

/// One request for each word that a client may get wrong.
#[test]
fn wrong_words_have_redis_replies() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    for line in [
        "foo",
        "foo bar",
        "foo bar baz qux",
        "client",
        "client foo",
        "client getname x",
        "client setname a\u{1}b",
        "client setname me",
        "client getname",
        "client no-evict maybe",
        "client no-evict on",
        "client kill 1.2.3.4:5",
        "client kill id x",
        "client kill id 0",
        "client kill foo bar baz",
        "client list type foo",
        "client list id x",
        "client list foo",
        "config",
        "config foo",
        "config get",
        "command foo",
        "command count x",
        "hello 4",
        "hello x",
        "hello 2 foo",
        "hello 2 auth x",
        "hello 2 setname",
        "auth x",
        "auth default x",
        "auth other x",
        "auth a b c",
        "select -1",
        "select 16",
        "select 9223372036854775807",
        "select 1x",
        "echo",
        "echo a b",
        "ping a b",
        "quit2",
        "set k",
        "set k v ex 0",
        "set k v ex -1",
        "set k v ex 9223372036854775807",
        "setex k 0 v",
        "psetex k -1 v",
        "setrange k -1 v",
        "setrange k 536870912 v",
        "incrby k 1.0",
        "incrbyfloat k nan",
        "expire k 10 nx xx",
        "expire k 9223372036854775807",
        "pexpire k 9223372036854775807",
        "expireat k 9223372036854775807",
        "expire k -9223372036854775808",
        "scan",
        "scan 0 count x",
        "scan 0 count -5",
        "scan 0 type",
        "scan -x",
        "flushall now",
        "flushdb async sync",
        "mset",
        "mset a",
        "mset a 1 b",
        "getex k foo",
        "command info nothing",
        "reset",
        "client getname",
        "info nothing",
        "config get nothing",
        "client list type pubsub",
        "hset k",
        "hset k f",
        "hset k f v f",
        "hmset k f v f",
        "hincrby k f x",
        "hincrby k f 9223372036854775808",
        "hincrbyfloat k f x",
        "hincrbyfloat k f inf",
        "hscan k",
        "hscan k x",
        "hscan k 0 count",
        "hset h f v",
        "hscan h 0 count x",
        "hscan h 0 count 0",
        "hscan h 0 match",
        "hscan h -x",
        "hincrby h f 1",
        "hincrbyfloat h f 1",
        "zadd h 1 m",
        "zrange h 0 -1",
        "zrange h 0 x",
        "get h",
        "zadd k",
        "zadd k 1",
        "zadd k x m",
        "zadd k 1 m x n",
        "zadd k nan m",
        "zadd k inf m",
        "zincrby k -inf m",
        "zadd k incr -inf m",
        "zadd k 1 m 2",
        "zadd k nx xx 1 m",
        "zadd k gt lt 1 m",
        "zadd k nx gt 1 m",
        "zadd k nx xx gt 1",
        "zadd k incr 1 m 2 n",
        "zrange k 0 -1 limit 0 1",
        "zrange k 0 -1 limit 0 -1",
        "zrange k 0 -1 limit 0",
        "zrange k - + bylex withscores",
        "zrange k x y bylex",
        "zrange k x y byscore",
        "zrange k 0 -1 foo",
        "zrangebyscore k x 1",
        "zrangebylex k x y",
        "zcount k 1 x",
        "zlexcount k 1 x",
        "zpopmin k x",
        "zpopmin k -1",
        "zpopmin h 0",
        "zpopmin k 1 2",
        "zremrangebyrank k 0 x",
        "zremrangebyscore k 0 x",
        "zremrangebylex k 0 x",
        "zrank k m withscore",
        "lpush k",
        "lpush h a",
        "rpush q a b c",
        "get q",
        "lpop q x",
        "lpop q -1",
        "lpop q 0",
        "lpop none 0",
        "lpop none x",
        "lpop h 0",
        "lpop q 1 2",
        "rpop q 9223372036854775808",
        "lrange q x 1",
        "lrange q 0 x",
        "lrange h 0 1",
        "lindex q x",
        "lindex none x",
        "lindex h x",
        "lset q x v",
        "lset none x v",
        "lset none 0 v",
        "lset q 9 v",
        "lset q -9 v",
        "lset h 0 v",
        "lset q -9223372036854775808 v",
        "ltrim q x 0",
        "ltrim q 0 x",
        "ltrim h 0 1",
        "lrem q x a",
        "lrem h 0 a",
        "lrem q -9223372036854775808 none",
        "linsert q near a b",
        "linsert none before a b",
        "linsert q before none b",
        "linsert h before a b",
        "lpos q a rank 0",
        "lpos q a rank x",
        "lpos q a rank -9223372036854775808",
        "lpos q a rank -9223372036854775807",
        "lpos q a rank 9223372036854775807",
        "lpos q a count -1",
        "lpos q a count x",
        "lpos q a maxlen -1",
        "lpos q a maxlen x",
        "lpos q a maxlen",
        "lpos q a foo 1",
        "lpos q a count 0 rank -1 maxlen 2",
        "lpos none a count 0",
        "lpos none a",
        "lpos none a rank 0",
        "lpos h a",
        "lmove q q up left",
        "lmove q h left left",
        "lmove h q left left",
        "lmove none h left left",
        "rpoplpush none h",
        "rpoplpush q h",
        "lmpop 0 q left",
        "lmpop x q left",
        "lmpop 1 q",
        "lmpop 2 q left",
        "lmpop 1 q up",
        "lmpop 1 q left count",
        "lmpop 1 q left count 0",
        "lmpop 1 q left count x",
        "lmpop 1 q left count 1 count 1",
        "lmpop 1 q left foo 1",
        "lmpop -1 q left",
        "lmpop 2 none h left",
        "lmpop 9223372036854775807 q left",
        "llen h",
        "object encoding q",
        "command getkeys lmpop 2 a b left",
        "command getkeys lmove a b left left",
        "command getkeysandflags lmpop 1 a left",
        "command getkeysandflags lmove a b left left",
        "command getkeysandflags rpush a b",
        "command getkeysandflags ltrim a 0 1",
        "command getkeysandflags lset a 0 1",
        "command getkeysandflags lrange a 0 1",
        "sadd s",
        "sadd s 1 2 3",
        "object encoding s",
        "sadd s x",
        "object encoding s",
        "sadd h x",
        "smove s h 1",
        "smove none h 1",
        "smove s s 1",
        "smove s s 7",
        "sinter s h",
        "sinter none h",
        "sinterstore s none s",
        "exists s",
        "sintercard 0 s",
        "sintercard x s",
        "sintercard 3 s s",
        "sintercard 1 s limit -1",
        "sintercard 1 s limit x",
        "spop s 1 x",
        "srandmember s x y",
        "zunion x s",
        "zunionstore s -1 s",
        "zunionstore s 9223372036854775807 s",
        "zinterstore s 1 h weights 1",
        "zunion 1 h foo",
        "zmpop 0 s min",
        "zmpop 9223372036854775807 s min",
        "zmpop 1 s min count 0",
        "zmpop 2 none h min",
        "zrangestore s h 0 1",
        "zrangestore s none x 1",
        "zrangestore s none 0 1",
        "sort h",
        "sort none",
        "sort s limit x 1",
        "sort s limit 1",
        "command getkeys sinterstore a b c",
        "command getkeys sintercard 2 a b limit 1",
        "command getkeys zunionstore a 2 b c weights 1 1",
        "command getkeysandflags zunionstore a 2 b c",
        "command getkeysandflags zmpop 2 a b min",
        "command getkeysandflags smove a b c",
        "command getkeysandflags sinterstore a b c",
        "command getkeys sort a by x store y get z store w",
        "hello",
        "dbsize x",
        "randomkey x",
    ] {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        if line == "hello" {
            // The servers differ; only the form of the replies is compared.
            let (a, b) = (theirs.ask(&words).array(), ours.ask(&words).array());
            assert_eq!(a.len(), b.len());
            continue;
        }
        compare(&mut theirs, &mut ours, &words, "fixed");
    }
    for long in ["x".repeat(500), "x\r\ny".to_owned(), "x\0y".to_owned()] {
        let words = [long.clone().into_bytes(), long.clone().into_bytes(), long.into_bytes()];
        compare(&mut theirs, &mut ours, &words, "fixed");
    }
}

/// Errors in the frames themselves.
#[test]
fn broken_frames_have_redis_replies() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let long = "1".repeat(70_000);
    let frames = [
        "*x\r\n",
        "*1\r\n$x\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*1\r\n",
        "*1\r\n$536870913\r\n",
        "*+1\r\n",
        "*01\r\n",
        "get \"a\r\n",
        "get 'a'b\r\n",
        "*1\r\n\r\n",
        "*99999999999999999999\r\n",
        "*-5\r\nPING\r\n*1\r\nx",
        "set \"a\\x41\" 'it\\'s'\r\nget aA\r\nquit\r\n",
        "PING\n\n\r\nPING\r\nQUIT\r\n",
        "*0\r\n*1\r\n$4\r\nQUIT\r\n",
        "*2\r\n$3\r\nget\r\n$1\r\nabcQUIT\r\n*1\r\n$x\r\n",
    ];
    let frames = frames.map(str::to_owned).into_iter().chain([
        format!("{long}\r\n"),
        format!("*{long}"),
        format!("*1\r\n${long}"),
    ]);
    for frame in frames {
        let replies = [redis.address, door.address].map(|address| {
            let mut client = Client::connect(address);
            client.send(frame.as_bytes());
            client.reader.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
            String::from_utf8_lossy(&client.rest()).into_owned()
        });
        assert_eq!(replies[0], replies[1], "{:.60}", frame.escape_debug().to_string());
    }
}

/// A whole scan, in steps, returns every key once.
#[test]
fn scans_return_every_key_once() {
    let door = Door::open();
    let mut client = door.client();
    for number in 0..1000 {
        client.say(&format!("set key:{number} {number}"));
    }
    for (options, expected) in [
        ("", 1000),
        (" count 7", 1000),
        (" match key:1*", 111),
        (" match *5 count 100", 100),
        (" type hash", 0),
    ] {
        let (mut cursor, mut keys, mut steps) = ("0".to_owned(), Vec::new(), 0);
        loop {
            let mut reply = client.say(&format!("scan {cursor}{options}")).array();
            keys.extend(reply.pop().unwrap().array().into_iter().map(Reply::bytes));
            cursor = String::from_utf8(reply.pop().unwrap().bytes()).unwrap();
            steps += 1;
            assert!(cursor.parse::<i64>().unwrap() >= 0);
            if cursor == "0" {
                break;
            }
        }
        let told = keys.len();
        assert!(keys.is_sorted());
        keys.dedup();
        assert_eq!((keys.len(), told), (expected, expected), "{options}");
        assert!(steps < 400, "{steps} steps{options}");
    }
}

#[test]
fn ranges_have_bounds_limits_and_directions() {
    let door = Door::open();
    let mut client = door.client();
    for key in ["a", "b", "c", "d"] {
        client.say(&format!("set {key} {key}{key}"));
    }
    let mut keys = |words: &str| -> String {
        let keys = client.say(words).array();
        keys.into_iter().map(|key| String::from_utf8(key.bytes()).unwrap()).collect::<Vec<_>>().join(" ")
    };
    for (words, expected) in [
        ("range - + keysonly", "a b c d"),
        ("range [b [c keysonly", "b c"),
        ("range (b + keysonly", "c d"),
        ("range - (b keysonly", "a"),
        ("range + - keysonly", ""),
        ("range [c [b keysonly", ""),
        ("range + - rev keysonly", "d c b a"),
        ("range (d [b keysonly rev limit 1", "c"),
        ("range - + limit 2", "a aa b bb"),
        ("range - + limit 0", ""),
        ("range [bb + limit 1", "c cc"),
    ] {
        assert_eq!(keys(words), expected, "{words}");
    }
    assert_eq!(client.say("rangecount - +"), Reply::Integer(4));
    assert_eq!(client.say("rangecount (a (d"), Reply::Integer(2));
    for words in [
        "range a b",
        "range - + limit x",
        "range - + limit",
        "range - + foo",
        "range - + limit -1",
        "rangecount ( x",
    ] {
        assert!(matches!(client.say(words), Reply::Error(_)), "{words}");
    }
    client.say("hello 3");
    let pair = Reply::Array(vec![Reply::bulk("a"), Reply::bulk("aa")]);
    assert_eq!(client.say("range - + limit 1"), Reply::Array(vec![pair]));
}

/// Expired keys are gone for all clients, and their records are also removed without any request.
#[test]
fn what_is_over_goes_by_itself() {
    let store = crate::door::store("mem:64M");
    let door = Door::of(store.clone(), darter_gateway::GatewayOptions::default());
    let mut client = door.client();
    for number in 0..500 {
        client.say(&format!("set short:{number} x px 1"));
        client.say(&format!("set long:{number} x px 100000000"));
    }
    let session = store.session_in(darter::engine::KeySpace::Gateway).unwrap();
    let records = || session.range(..).count();
    for _ in 0..6000 {
        if records() == 500 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(records(), 500);
    assert_eq!(client.say("dbsize"), Reply::Integer(500));
    assert_eq!(client.say("get short:1"), Reply::Null);
    assert!(matches!(client.say("randomkey"), Reply::Bulk(key) if key.starts_with(b"long:")));
}
