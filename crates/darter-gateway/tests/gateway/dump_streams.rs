//! `DUMP` and `RESTORE` of streams with consumer groups: streams by chance that move from a redis-server
//! to a gateway and back, payloads of other versions, and damaged ones.

use crate::differential::agree;
use crate::door::{Client, Door, Redis, Reply, error, has_transactions, integer, ok, request};
use crate::dump::sealed;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Streams made by chance.
const ROUNDS: usize = 40;

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A request that adds an entry.
fn add(dice: &mut Pcg64Mcg, ms: u64) -> Vec<Vec<u8>> {
    let mut add = words(&format!("xadd k {ms}-{}", dice.random_range(0..3_u64) * 40_000));
    match dice.random_range(0..8) {
        0 => add.extend(words("other 1 fields 22")),
        1 => add.extend([vec![0; dice.random_range(0..3000)], vec![b'x'; dice.random_range(0..200)]]),
        _ => {
            let number = dice.random::<i64>() >> dice.random_range(0..64);
            add.extend(words(&format!("same {number} as before")));
        }
    }
    add
}

/// Requests that make a stream.
fn stream(dice: &mut Pcg64Mcg, has_groups: bool) -> Vec<Vec<Vec<u8>>> {
    let count = [0, 1, 8, 300][dice.random_range(0..4)];
    let mut ms = dice.random_range(1..1_u64 << 41);
    let mut requests = vec![words("xgroup create k g 0 mkstream"), words("xgroup destroy k g")];
    let mut known = vec![ms];
    for _ in 0..count {
        ms += dice.random_range(1..2000);
        known.push(ms);
        requests.push(add(dice, ms));
        let any = known[dice.random_range(0..known.len())];
        let (group, consumer) = (dice.random_range(0..3), dice.random_range(0..3));
        requests.push(match dice.random_range(0..24) {
            0 => words(&format!("xdel k {any}-0 {ms}-40000")),
            1 => words(&format!("xtrim k minid {}", known[known.len() / 4])),
            2 if has_groups => words(&format!("xgroup create k g{group} {any}")),
            3 if has_groups => words(&format!("xgroup createconsumer k g{group} c{consumer}")),
            4..10 if has_groups => {
                let many = dice.random_range(1..30);
                words(&format!("xreadgroup group g{group} c{consumer} count {many} streams k >"))
            }
            10..14 if has_groups => words(&format!("xack k g{group} {any}-0 {any}-40000 {any}-80000")),
            14 if has_groups => words(&format!(
                "xclaim k g{group} c{consumer} 0 {any}-0 time 1700000000000 retrycount 300 force"
            )),
            15 => words(&format!("xsetid k {}-0 entriesadded 1000000 maxdeletedid {any}-0", ms + 1)),
            _ => continue,
        });
    }
    requests
}

/// Whether the streams of two servers are equal.
fn assert_equal(theirs: &mut Client, ours: &mut Client, of: &str) {
    let read = words("xinfo stream k full count 0");
    let (redis, darter) = (theirs.ask(&read), ours.ask(&read));
    assert!(!matches!(redis, Reply::Error(_)), "{of}: {redis:?}");
    assert!(agree(&read, &redis, &darter), "{of}\nredis  {redis:?}\ndarter {darter:?}");
}

#[test]
fn streams_move_from_redis_to_a_gateway_and_back() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    assert_eq!(theirs.say("config set sanitize-dump-payload yes"), ok());
    let mut dice = Pcg64Mcg::seed_from_u64(11);
    for round in 0..ROUNDS {
        for client in [&mut theirs, &mut ours] {
            client.say("flushall");
        }
        for words in stream(&mut dice, has_transactions()) {
            theirs.ask(&words);
        }
        let payload = theirs.say("dump k").bytes();
        let reply = ours.ask(&[&b"restore"[..], b"k", b"0", &payload]);
        if !has_transactions() && matches!(reply, Reply::Error(_)) {
            assert!(error(reply).contains("several records"));
            continue;
        }
        assert_eq!(reply, ok(), "round {round}");
        assert_equal(&mut theirs, &mut ours, &format!("round {round}, from Redis"));
        let payload = ours.say("dump k").bytes();
        assert_eq!(theirs.ask(&[&b"restore"[..], b"k", b"0", &payload, b"replace"]), ok(), "round {round}");
        assert_equal(&mut theirs, &mut ours, &format!("round {round}, to Redis"));
        let copied = ours.ask(&[&b"restore"[..], b"k", b"100000000", &payload, b"replace"]);
        assert_eq!(copied, ok(), "round {round}");
        assert_equal(&mut theirs, &mut ours, &format!("round {round}, to itself"));
        if !has_transactions() {
            continue;
        }
        for words in (0..20).map(|ms| add(&mut dice, (1 << 60) + ms)).chain([words("xtrim k maxlen 7")]) {
            assert_eq!(theirs.ask(&words), ours.ask(&words), "round {round}");
        }
        assert_equal(&mut theirs, &mut ours, &format!("round {round}, after changes"));
    }
}

/// The payload of a test of Redis (`type/stream-cgroups`), written by Redis 5: without counts of entries
/// that were read.
const OF_REDIS_5: &str = "\
    0f011000000000000000010000000000000000c3404a405716570000002300020104010101846461746105000103010020010381610204200a0001400a0062600a\
    0002400a0063600a4022018164200a4039200a0065600a0005400a0066200a00ff02060002026731050004000000000000000100000000000000003ef783437a01\
    000001000000000000000200000000000000003ef783437a01000001000000000000000400000000000000003ef783437a01000001000000000000000500000000\
    000000003ef783437a0100000101036331313ef783437a010000040000000000000001000000000000000000000000000000020000000000000000000000000000\
    000400000000000000000000000000000005000000000000000002673200000000";

fn bytes(text: &str) -> Vec<u8> {
    let text: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    text.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn streams_of_redis_5_are_restored_as_by_redis_7() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    let payload = sealed(&bytes(OF_REDIS_5));
    let restore = [&b"restore"[..], b"k", b"0", &payload];
    assert_eq!(theirs.ask(&restore), ok());
    if has_transactions() {
        assert_eq!(ours.ask(&restore), ok());
        assert_equal(&mut theirs, &mut ours, "Redis 5");
    } else {
        assert!(error(ours.ask(&restore)).contains("several records"));
    }
}

#[test]
fn damaged_streams_are_refused_or_restored() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    let mut dice = Pcg64Mcg::seed_from_u64(12);
    let mut refused = 0;
    for round in 0..300 {
        theirs.say("flushall");
        let requests: Vec<_> = stream(&mut dice, has_transactions()).into_iter().take(40).collect();
        theirs.send(&requests.iter().flat_map(|words| request(words)).collect::<Vec<_>>());
        for _ in &requests {
            theirs.reply();
        }
        let payload = theirs.say("dump k").bytes();
        let mut body = payload[..payload.len() - 10].to_vec();
        for _ in 0..dice.random_range(1..3) {
            let at = dice.random_range(0..body.len());
            match dice.random_range(0..6) {
                0 => body.truncate(at.max(1)),
                1 => body[at] = 0xff,
                _ => body[at] = dice.random(),
            }
        }
        match ours.ask(&[&b"restore"[..], b"k", b"0", &sealed(&body), b"replace"]) {
            Reply::Error(text) => {
                let is_known = text == "ERR Bad data format" || text.contains("several records");
                assert!(is_known, "round {round}: {text}");
                refused += 1;
            }
            reply => {
                assert_eq!(reply, ok(), "round {round}");
                assert!(matches!(ours.say("dump k"), Reply::Bulk(_)), "round {round}");
                // Another type may have come out.
                let info = ours.say("xinfo stream k full count 0");
                assert!(!matches!(&info, Reply::Error(text) if !text.starts_with("WRONGTYPE")), "{info:?}");
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_stream_is_dumped_while_others_change_it() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    client.say("xgroup create k g 0 mkstream");
    let address = door.address;
    let worker = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        for number in 1..600 {
            client.say(&format!("xadd k {number}-0 f v"));
            client.say("xreadgroup group g c streams k >");
            client.say(&format!("xack k g {}-0", number / 2));
        }
    });
    let mut dumps = 0;
    while dumps == 0 || !worker.is_finished() {
        let payload = client.say("dump k").bytes();
        assert_eq!(client.ask(&[&b"restore"[..], b"copy", b"0", &payload, b"replace"]), ok());
        // Each entry was acknowledged, is pending, or has not been delivered.
        let length = integer(client.say("xlen copy")) as usize;
        let pending = client.say("xpending copy g - + 10000").array();
        let mut rest = 0;
        if let Reply::Array(streams) = client.say("xreadgroup group g d streams copy >") {
            rest = streams[0].clone().array()[1].clone().array().len();
        }
        let first = pending.first().map(|entry| entry.clone().array()[0].clone().bytes());
        let first = first.map_or(length - rest + 1, |id| {
            String::from_utf8(id).unwrap().split('-').next().unwrap().parse().unwrap()
        });
        assert_eq!(first - 1 + pending.len() + rest, length, "{dumps}");
        dumps += 1;
    }
    worker.join().unwrap();
}
