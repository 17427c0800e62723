//! `DUMP` and `RESTORE`: values that move from a redis-server to a gateway and back, options, and
//! payloads that are damaged.

use crate::differential::agree;
use crate::door::{Client, Door, Redis, Reply, index};
use darter::IndexKind;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn text(dice: &mut Pcg64Mcg) -> Vec<u8> {
    match dice.random_range(0..5) {
        0 => (dice.random::<i64>() >> dice.random_range(0..64)).to_string().into_bytes(),
        // Redis compresses this.
        1 => b"again and ".repeat(dice.random_range(0..30)),
        _ => (0..dice.random_range(0..90)).map(|_| dice.random::<u8>()).collect(),
    }
}

/// Requests that make a random value, and the one that reads it.
fn value(dice: &mut Pcg64Mcg) -> (Vec<Vec<Vec<u8>>>, Vec<Vec<u8>>) {
    let (key, words) = (b"k".to_vec(), |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect());
    let count = [1, 5, 200, 1000][dice.random_range(0..4)];
    match dice.random_range(0..5) {
        3 => {
            let add = (0..count).map(|_| vec![b"sadd".to_vec(), key.clone(), text(dice)]);
            (add.collect(), words(&[b"smembers", b"k"]))
        }
        4 => {
            // Over DART a list is one record.
            let count = if index() == IndexKind::Dart { 3 } else { count };
            let add = (0..count).map(|_| vec![b"rpush".to_vec(), key.clone(), text(dice)]);
            (add.collect(), words(&[b"lrange", b"k", b"0", b"-1"]))
        }
        0 => (vec![vec![b"set".to_vec(), key, text(dice)]], words(&[b"get", b"k"])),
        1 => {
            let set = (0..count).map(|_| vec![b"hset".to_vec(), key.clone(), text(dice), text(dice)]);
            (set.collect(), words(&[b"hgetall", b"k"]))
        }
        _ => {
            let score = |dice: &mut Pcg64Mcg| -> Vec<u8> {
                match dice.random_range(0..4) {
                    0 => dice.random_range(-1000..1000).to_string().into_bytes(),
                    1 => b"inf".to_vec(),
                    _ => dice.random_range(-1e6..1e6).to_string().into_bytes(),
                }
            };
            let add = (0..count).map(|_| vec![b"zadd".to_vec(), key.clone(), score(dice), text(dice)]);
            (add.collect(), words(&[b"zrange", b"k", b"0", b"-1", b"withscores"]))
        }
    }
}

#[test]
fn values_move_from_redis_to_a_gateway_and_back() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    let mut dice = Pcg64Mcg::seed_from_u64(5);
    for round in 0..60 {
        for client in [&mut theirs, &mut ours] {
            client.say("flushall");
        }
        let (requests, read) = value(&mut dice);
        for words in &requests {
            theirs.ask(words);
        }
        let payload = theirs.say("dump k").bytes();
        let restored = ours.ask(&[&b"restore"[..], b"k", b"0", &payload]);
        assert_eq!(restored, Reply::Simple("OK".to_owned()), "round {round}");
        assert!(agree(&read, &theirs.ask(&read), &ours.ask(&read)), "round {round}");
        let payload = ours.say("dump k").bytes();
        let restored = theirs.ask(&[&b"restore"[..], b"k", b"100000000", &payload, b"replace"]);
        assert_eq!(restored, Reply::Simple("OK".to_owned()), "round {round}");
        assert!(agree(&read, &theirs.ask(&read), &ours.ask(&read)), "round {round}");
    }
}

#[test]
fn options_and_errors_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    theirs.say("set k value");
    let payload = theirs.say("dump k").bytes();
    theirs.say("flushall");
    let mut damaged = payload.clone();
    damaged[3] ^= 1;
    let mut newer = payload.clone();
    newer[payload.len() - 10] = 11;
    let requests = [
        ("restore k 0", &payload[..], ""),
        ("restore k 0", &payload, ""),
        ("restore k 0", &payload, "replace"),
        ("restore k -1", &payload, "replace"),
        ("restore k x", &payload, "replace"),
        ("restore k 100000000", &payload, "replace"),
        ("restore k 1", &payload, "replace absttl"),
        ("restore k 4000000000000", &payload, "absttl"),
        ("restore k 0", &payload, "replace idletime 100"),
        ("restore k 0", &payload, "replace freq 255"),
        ("restore k 0", &payload, "replace freq 256"),
        ("restore k 0", &payload, "replace idletime -1"),
        ("restore k 0", &payload, "replace idletime 1 freq 1"),
        ("restore k 0", &payload, "replace idletime"),
        ("restore k 0", &payload, "foo"),
        ("restore k 0", &damaged, "replace"),
        ("restore k 0", &newer, "replace"),
        ("restore k 0", &payload[..9], "replace"),
        ("restore k 0", b"", "replace"),
        ("restore k 0", &damaged, ""),
        ("dump", b"none", ""),
    ];
    for (before, payload, behind) in requests {
        let mut words: Vec<&[u8]> = before.split(' ').map(str::as_bytes).collect();
        words.push(payload);
        words.extend(behind.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes));
        assert_eq!(theirs.ask(&words), ours.ask(&words), "{before} {behind}");
        for read in ["get k", "pexpiretime k"] {
            let words: Vec<Vec<u8>> = read.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            assert!(agree(&words, &theirs.ask(&words), &ours.ask(&words)), "{before} {behind}");
        }
    }
}

/// Seals a body as `DUMP` does. The checksum is computed bit by bit.
pub fn sealed(body: &[u8]) -> Vec<u8> {
    let mut payload = [body, &[10, 0]].concat();
    let checksum = payload.iter().fold(0_u64, |checksum, &byte| {
        (0..8).fold(checksum ^ u64::from(byte), |checksum, _| {
            // The polynomial of Redis, 0xad93d23594c935a9, with its bits reversed.
            if checksum & 1 == 1 { checksum >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { checksum >> 1 }
        })
    });
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

#[test]
fn damaged_payloads_are_refused_or_restored() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    let mut dice = Pcg64Mcg::seed_from_u64(9);
    for round in 0..400 {
        theirs.say("flushall");
        for words in value(&mut dice).0.into_iter().take(20) {
            theirs.ask(&words);
        }
        let payload = theirs.say("dump k").bytes();
        let mut body = payload[..payload.len() - 10].to_vec();
        assert_eq!(sealed(&body), payload);
        for _ in 0..dice.random_range(1..4) {
            let at = dice.random_range(0..body.len());
            match dice.random_range(0..4) {
                0 => body.truncate(at.max(1)),
                1 => body[at] = 0xff,
                _ => body[at] = dice.random(),
            }
        }
        match ours.ask(&[&b"restore"[..], b"k", b"0", &sealed(&body), b"replace"]) {
            Reply::Error(text) => assert_eq!(text, "ERR Bad data format", "round {round}"),
            reply => {
                assert_eq!(reply, Reply::Simple("OK".to_owned()), "round {round}");
                assert!(matches!(ours.say("dump k"), Reply::Bulk(_)), "round {round}");
            }
        }
    }
}

#[test]
fn small_payloads_take_little_memory() {
    let door = Door::open();
    let mut client = door.client();
    // A string that claims to have 4 GiB, compressed in many bytes and in few.
    for compressed in [3, 100_000] {
        let mut body = vec![0, 0xc3, 0x80];
        body.extend_from_slice(&(compressed as u32).to_be_bytes());
        body.extend_from_slice(&[0x80, 0xff, 0xff, 0xff, 0xff]);
        body.extend((0..compressed).map(|at| [0xe0, 0xff, 0][at % 3]));
        let reply = client.ask(&[&b"restore"[..], b"k", b"0", &sealed(&body)]);
        assert_eq!(reply, Reply::Error("ERR Bad data format".to_owned()));
    }
    // A string of 100 MiB that is compressed to one of 1.2 MB, and is longer than the pool allows.
    let mut input = b"\0a".to_vec();
    input.extend([0xe0, 0xff, 0].repeat(397_000));
    let mut body = vec![0, 0xc3, 0x80];
    body.extend_from_slice(&(input.len() as u32).to_be_bytes());
    body.push(0x80);
    body.extend_from_slice(&(1_u32 + 397_000 * 264).to_be_bytes());
    body.extend_from_slice(&input);
    let reply = client.ask(&[&b"restore"[..], b"k", b"0", &sealed(&body)]);
    assert!(matches!(&reply, Reply::Error(text) if text.contains("largest value")), "{reply:?}");
}

#[test]
fn payloads_are_part_of_transactions_and_scripts() {
    if index() == IndexKind::Dart {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    client.say("hset h f 1 g 2");
    client.say("zadd z 1 a 2 b");
    client.say("sadd s a b");
    client.ask(&["rpush", "l", &"x".repeat(2000), "b"]);
    let script = "for _, key in ipairs({'h', 'z', 's', 'l'}) do redis.call('restore', 'copy of ' .. key, 0, redis.call('dump', key)) end return redis.call('hgetall', 'copy of h')";
    let expected = ["f", "1", "g", "2"].map(Reply::bulk).to_vec();
    assert_eq!(client.ask(&["eval", script, "0"]), Reply::Array(expected.clone()));
    assert_eq!(client.ask(&["lindex", "copy of l", "-1"]), Reply::bulk("b"));
    assert_eq!(client.ask(&["sismember", "copy of s", "b"]), Reply::Integer(1));
    let payload = client.say("dump h").bytes();
    client.say("multi");
    client.say("del h");
    client.ask(&[&b"restore"[..], b"h", b"0", &payload]);
    client.ask(&[&b"restore"[..], b"h", b"0", &payload]);
    client.say("hgetall h");
    client.say("dump none");
    let busy = Reply::Error("BUSYKEY Target key name already exists.".to_owned());
    let expected =
        vec![Reply::Integer(1), Reply::Simple("OK".to_owned()), busy, Reply::Array(expected), Reply::Null];
    assert_eq!(client.say("exec"), Reply::Array(expected));
}
