//! Hashes and sorted sets that become large: random commands against a model, in transactions and
//! scripts, and through scans. `aggregates.rs` has the tests of several gateways.

use crate::door::{Client, Door, Reply, has_transactions};
use crate::sets::{ask, integer, names};
use crate::several_keys::{by_four_clients, two_doors};
use crate::transactions::transact;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// Elements with the texts of their values or scores.
type Elements = BTreeMap<Vec<u8>, Vec<u8>>;

/// The commands of a type of keys.
#[derive(Debug)]
struct Words {
    kind: &'static str,
    set: &'static str,
    remove: &'static str,
    one: &'static str,
    some: &'static str,
    all: &'static str,
    count: &'static str,
    scan: &'static str,
    increase: &'static str,
    random: &'static str,
    /// The encodings of small and large keys, and most elements of a small one.
    encodings: (&'static str, &'static str, usize),
}

const HASH: Words = Words {
    kind: "hash",
    set: "hset",
    remove: "hdel",
    one: "hget",
    some: "hmget",
    all: "hgetall",
    count: "hlen",
    scan: "hscan",
    increase: "hincrby",
    random: "hrandfield",
    encodings: ("listpack", "hashtable", 512),
};

const SORTED_SET: Words = Words {
    kind: "zset",
    set: "zadd",
    remove: "zrem",
    one: "zscore",
    some: "zmscore",
    all: "zrange",
    count: "zcard",
    scan: "zscan",
    increase: "zincrby",
    random: "zrandmember",
    encodings: ("listpack", "skiplist", 128),
};

const KEYS: [&str; 3] = ["a", "b", "c"];

/// The keys of a store and of a model.
struct Pair<'d> {
    words: &'static Words,
    client: Client,
    model: BTreeMap<&'static str, Elements>,
    dice: &'d mut Pcg64Mcg,
}

/// Returns pairs of names and texts.
fn pairs(reply: Reply) -> Elements {
    let all = names(reply);
    let pairs: Elements = all.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    assert_eq!(pairs.len() * 2, all.len(), "an element was returned twice");
    pairs
}

impl Pair<'_> {
    fn key(&mut self) -> &'static str {
        KEYS.choose(self.dice).unwrap()
    }

    fn elements(&self, key: &str) -> Elements {
        self.model.get(key).cloned().unwrap_or_default()
    }

    fn replace(&mut self, key: &'static str, elements: Elements) {
        if elements.is_empty() {
            self.model.remove(key);
        } else {
            self.model.insert(key, elements);
        }
    }

    fn is_hash(&self) -> bool {
        self.words.kind == "hash"
    }

    fn name(&mut self) -> Vec<u8> {
        match self.dice.random_range(0..100) {
            0 => vec![b'x'; self.dice.random_range(300..1200)],
            number => format!("{number}").into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let number = self.dice.random_range(-9..9_i32).to_string().into_bytes();
        let is_long = self.is_hash() && self.dice.random_ratio(1, 60);
        if is_long { vec![b'v'; self.dice.random_range(300..1200)] } else { number }
    }

    /// Sets elements, some of them twice, and compares the reply.
    fn set(&mut self) {
        let (key, most) = (self.key(), *[1, 1, 5, 40].choose(self.dice).unwrap());
        let (mut elements, mut words) = (self.elements(key), Vec::new());
        let before = elements.len();
        for _ in 0..self.dice.random_range(1..=most) {
            let (name, value) = (self.name(), self.value());
            words.extend(if self.is_hash() {
                [name.clone(), value.clone()]
            } else {
                [value.clone(), name.clone()]
            });
            elements.insert(name, value);
        }
        let added = integer(ask(&mut self.client, self.words.set, key, &words));
        assert_eq!(added, elements.len() - before);
        self.replace(key, elements);
    }

    fn remove(&mut self) {
        let (key, most) = (self.key(), *[1, 5, 60].choose(self.dice).unwrap());
        let some: Vec<Vec<u8>> = (0..self.dice.random_range(1..=most)).map(|_| self.name()).collect();
        let mut elements = self.elements(key);
        let before = elements.len();
        elements.retain(|name, _| !some.contains(name));
        assert_eq!(integer(ask(&mut self.client, self.words.remove, key, &some)), before - elements.len());
        self.replace(key, elements);
    }

    fn increase(&mut self) {
        let (key, name) = (self.key(), self.name());
        let mut elements = self.elements(key);
        let old: Option<i64> =
            elements.get(&name).map_or(Some(0), |old| String::from_utf8_lossy(old).parse().ok());
        let words =
            if self.is_hash() { [name.clone(), b"3".to_vec()] } else { [b"3".to_vec(), name.clone()] };
        let reply = ask(&mut self.client, self.words.increase, key, &words);
        let Some(old) = old else {
            assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
            return;
        };
        let new = (old + 3).to_string().into_bytes();
        match reply {
            Reply::Integer(number) => assert_eq!(number, old + 3),
            reply => assert_eq!(reply.bytes(), new),
        }
        elements.insert(name, new);
        self.replace(key, elements);
    }

    /// Removes members with the lowest scores, or of a range.
    fn take(&mut self) {
        if self.is_hash() {
            return;
        }
        let key = self.key();
        let mut elements = self.elements(key);
        let score = |text: &[u8]| String::from_utf8_lossy(text).parse::<i32>().unwrap();
        let mut order: Vec<_> = elements.iter().map(|(name, text)| (score(text), name.clone())).collect();
        order.sort();
        let count = self.dice.random_range(0..9);
        let gone: Vec<Vec<u8>> = match self.dice.random_range(0..4) {
            0 => {
                let popped = pairs(self.client.say(&format!("zpopmin {key} {count}")));
                popped.into_keys().collect()
            }
            1 => {
                order.reverse();
                let popped = names(self.client.say(&format!("zpopmax {key} {count}")));
                popped.chunks(2).map(|pair| pair[0].clone()).collect()
            }
            2 => {
                let removed = integer(self.client.say(&format!("zremrangebyrank {key} 0 {}", count - 1)));
                assert_eq!(removed, if count == 0 { order.len() } else { order.len().min(count as usize) });
                order.iter().take(removed).map(|(_, name)| name.clone()).collect()
            }
            _ => {
                order.retain(|(score, _)| (-1..=1).contains(score));
                let removed = integer(self.client.say(&format!("zremrangebyscore {key} -1 1")));
                assert_eq!(removed, order.len());
                order.iter().map(|(_, name)| name.clone()).collect()
            }
        };
        let mut expected: Vec<_> = order.into_iter().take(gone.len()).map(|(_, name)| name).collect();
        let mut found = gone;
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        elements.retain(|name, _| !found.contains(name));
        self.replace(key, elements);
    }

    /// Copies, renames, dumps or removes a key, or lets it expire later.
    fn relocate(&mut self) {
        let (from, to) = (self.key(), self.key());
        let source = self.elements(from);
        if from == to || source.is_empty() {
            assert_eq!(integer(self.client.say(&format!("del {from}"))), usize::from(!source.is_empty()));
            self.replace(from, Elements::new());
            return;
        }
        match self.dice.random_range(0..4) {
            0 => assert_eq!(integer(self.client.say(&format!("copy {from} {to} replace"))), 1),
            1 => {
                assert_eq!(self.client.say(&format!("rename {from} {to}")), Reply::Simple("OK".to_owned()));
                self.replace(from, Elements::new());
            }
            2 => {
                assert_eq!(integer(self.client.say(&format!("expire {from} 100000"))), 1);
                assert_eq!(self.client.say(&format!("persist {from}")), Reply::Integer(1));
                return;
            }
            _ => {
                let dumped = self.client.say(&format!("dump {from}")).bytes();
                let reply = self.client.ask(&[b"restore", to.as_bytes(), b"0", &dumped, b"replace"]);
                assert_eq!(reply, Reply::Simple("OK".to_owned()));
            }
        }
        self.replace(to, source);
    }

    fn scanned(&mut self, key: &str) -> Elements {
        let (mut cursor, mut seen) = ("0".to_owned(), Elements::new());
        loop {
            let mut reply = self.client.say(&format!("{} {key} {cursor} count 7", self.words.scan)).array();
            seen.extend(pairs(reply.pop().unwrap()));
            cursor = String::from_utf8(reply.pop().unwrap().bytes()).unwrap();
            if cursor == "0" {
                return seen;
            }
        }
    }

    /// Compares all that can be read of a key.
    fn compare(&mut self) {
        let (key, words) = (self.key(), self.words);
        let elements = self.elements(key);
        let options = if self.is_hash() { "" } else { " 0 -1 withscores" };
        assert_eq!(pairs(self.client.say(&format!("{} {key}{options}", words.all))), elements);
        assert_eq!(integer(self.client.say(&format!("{} {key}", words.count))), elements.len());
        assert_eq!(self.scanned(key), elements);
        let some: Vec<Vec<u8>> = (0..5).map(|_| self.name()).collect();
        let expected =
            |name: &Vec<u8>| elements.get(name).map_or(Reply::Null, |text| Reply::Bulk(text.clone()));
        assert_eq!(
            ask(&mut self.client, words.some, key, &some),
            Reply::Array(some.iter().map(expected).collect())
        );
        assert_eq!(ask(&mut self.client, words.one, key, &some[..1]), expected(&some[0]));
        let drawn = names(self.client.say(&format!("{} {key} 4", words.random)));
        assert!(drawn.len() == 4.min(elements.len()) && drawn.iter().all(|name| elements.contains_key(name)));
        let (small, large, most) = words.encodings;
        let is_short = |(name, text): (&Vec<u8>, &Vec<u8>)| name.len().max(text.len()) <= 64;
        let encoding = if elements.len() <= most && elements.iter().all(is_short) { small } else { large };
        let (kind, encoding) =
            if elements.is_empty() { ("none", Reply::Null) } else { (words.kind, Reply::bulk(encoding)) };
        assert_eq!(self.client.say(&format!("type {key}")), Reply::Simple(kind.to_owned()));
        assert_eq!(self.client.say(&format!("object encoding {key}")), encoding);
        if !self.is_hash() {
            let low = elements.values().filter(|text| text[0] == b'-').count();
            assert_eq!(integer(self.client.say(&format!("zcount {key} -inf (0"))), low);
            let ranked = names(self.client.say(&format!("zrange {key} 0 -1")));
            for (rank, name) in ranked.iter().enumerate().step_by(9) {
                assert_eq!(integer(self.client.ask(&[b"zrank", key.as_bytes(), name])), rank);
            }
            assert!(names(self.client.say(&format!("zrevrange {key} 0 -1"))).iter().rev().eq(&ranked));
            let last: Vec<_> = ranked.iter().skip(ranked.len().saturating_sub(3)).cloned().collect();
            assert_eq!(names(self.client.say(&format!("zrange {key} -3 -1"))), last);
        }
    }
}

#[test]
fn commands_by_chance_on_hashes_and_sorted_sets_do_what_a_model_does() {
    for words in [&HASH, &SORTED_SET] {
        for seed in 1..=3 {
            let (door, mut dice) = (Door::open(), Pcg64Mcg::seed_from_u64(seed));
            let mut pair = Pair { words, client: door.client(), model: BTreeMap::new(), dice: &mut dice };
            for _ in 0..1000 {
                match pair.dice.random_range(0..20) {
                    0..6 => pair.set(),
                    6..9 => pair.remove(),
                    9..11 => pair.increase(),
                    11..13 => pair.take(),
                    13..15 => pair.relocate(),
                    _ => pair.compare(),
                }
            }
        }
    }
}

#[test]
fn transactions_and_scripts_see_keys_that_become_large() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    let long = "x".repeat(600);
    let body = [
        "hset h a 1 b 2".to_owned(),
        format!("hset h c {long} d {long}"),
        "hincrby h a 4".to_owned(),
        "hlen h".to_owned(),
        "hdel h c d".to_owned(),
        "hgetall h".to_owned(),
        "zadd z 2 a 1 b".to_owned(),
        format!("zadd z 3 c{long} 4 d{long}"),
        "zincrby z 9 b".to_owned(),
        "zpopmin z 2".to_owned(),
        "zrange z -1 -1".to_owned(),
    ];
    let replies = transact(&mut client, &body.iter().map(String::as_str).collect::<Vec<_>>()).array();
    let number = |at: usize| integer(replies[at].clone());
    assert_eq!([0, 1, 2, 3, 4, 6, 7].map(number), [2, 2, 5, 4, 2, 2, 2]);
    assert_eq!(names(replies[5].clone()), [b"a", b"5", b"b", b"2"]);
    assert_eq!(replies[8], Reply::bulk("10"));
    let popped = names(replies[9].clone());
    assert_eq!((&popped[0][..], popped[2].len()), (&b"a"[..], 601));
    assert_eq!(names(replies[10].clone()), [b"b"]);
    // Both are read as a whole, and watched.
    for (watched, change) in [("small", "hset small f 2"), ("h", "hset h f 2"), ("z", "zadd z 7 b")] {
        client.say("hset small f 1");
        client.say(&format!("watch {watched}"));
        door.client().say(change);
        assert_eq!(transact(&mut client, &["set ran 1"]), Reply::Null, "{watched}");
    }
    let script = "redis.call('hset', KEYS[1], 'a', 1, 'b', 2); redis.call('hincrby', KEYS[1], 'a', 2); \
                  redis.call('zadd', KEYS[2], 5, 'm', 4, 'n'); \
                  return {redis.call('hget', KEYS[1], 'a'), redis.call('zrange', KEYS[2], 0, 0)[1]}";
    let reply = client.ask(&["eval", script, "2", "new", "ranks"]);
    assert_eq!(reply, Reply::Array(vec![Reply::bulk("3"), Reply::bulk("n")]));
}

#[test]
fn small_keys_expire_and_give_way_to_other_types() {
    let door = Door::open();
    let mut client = door.client();
    for (add, read) in [("hset k c 1", "hgetall k"), ("zadd k 1 c", "zrange k 0 -1 withscores")] {
        for start in [add.replace('c', "x"), "set k x".to_owned(), "sadd k x".to_owned()] {
            client.say(&start);
            assert_eq!(client.say("pexpire k 1"), Reply::Integer(1));
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert_eq!(client.say(add), Reply::Integer(1), "{start}");
            assert_eq!(client.say("ttl k"), Reply::Integer(-1));
            assert_eq!(names(client.say(read)), [b"c", b"1"]);
            client.say("del k");
        }
    }
    client.say("hset h f v");
    client.say("zadd z 1 m");
    for line in
        ["get h", "zadd h 1 m", "sadd h m", "hset z f v", "hget z f", "zscore h m", "zpopmin h", "hlen z"]
    {
        let reply = client.say(line);
        assert!(matches!(&reply, Reply::Error(text) if text.starts_with("WRONGTYPE")), "{line}: {reply:?}");
    }
    assert_eq!(names(client.say("scan 0 type zset").array().pop().unwrap()), [b"z"]);
    client.say("hdel h f");
    assert_eq!(client.say("exists h"), Reply::Integer(0));
    assert_eq!(client.say("zadd h 1 m"), Reply::Integer(1));
    assert_eq!(client.say("zpopmax h"), Reply::Array(vec![Reply::bulk("m"), Reply::bulk("1")]));
    assert_eq!(client.say("set h x nx"), Reply::Simple("OK".to_owned()));
    let (long, name) = ("k".repeat(65_000), "m".repeat(600));
    for words in [&["hset", &long, &name, "v"][..], &["zadd", &long, "1", &name], &["hdel", &long, &name]] {
        let reply = client.ask(words);
        assert!(matches!(&reply, Reply::Error(text) if text.contains("together they hold")), "{reply:?}");
    }
    // Bytes in the index: of the head alone, and of the head and each element.
    client.say("hset usage f v");
    let small = integer(client.say("memory usage usage"));
    client.ask(&["hset", "usage", "long", &"v".repeat(1024)]);
    let large = integer(client.say("memory usage usage"));
    assert!(small < 64 && large > 1024 + small, "{small} {large}");
}

/// A scan returns every element that exists throughout, also if the key becomes large, or small again,
/// between two of its steps.
#[test]
fn scans_go_on_when_a_key_changes_its_form() {
    let door = Door::open();
    let mut client = door.client();
    for words in [&HASH, &SORTED_SET] {
        let name = |number: usize| format!("{number:03}");
        let element = |number: usize| match words.kind {
            "hash" => format!("{} {number}", name(number)),
            _ => format!("{number} {}", name(number)),
        };
        let step = |client: &mut Client, cursor: &str| {
            let mut reply = client.say(&format!("{} k {cursor} count 5", words.scan)).array();
            let found = pairs(reply.pop().unwrap());
            (String::from_utf8(reply.pop().unwrap().bytes()).unwrap(), found)
        };
        for number in 0..200 {
            client.say(&format!("{} k {}", words.set, element(number)));
        }
        let (mut cursor, mut seen) = step(&mut client, "0");
        assert_ne!(cursor, "0");
        // Ten elements exist throughout. The key that takes the place of the large one is small.
        for number in 0..10 {
            client.say(&format!("{} other {}", words.set, element(number * 20)));
        }
        client.say("rename other k");
        while cursor != "0" {
            let (next, found) = step(&mut client, &cursor);
            seen.extend(found);
            cursor = next;
        }
        assert!((0..10).all(|number| seen.contains_key(name(number * 20).as_bytes())), "{seen:?}");
        let (cursor, found) = step(&mut client, "0");
        assert_eq!((cursor.as_str(), found.len()), ("0", 10), "a small key is returned at once");
        client.say("del k");
    }
}

/// Clients of two gateways make one key large together.
#[test]
fn a_key_that_becomes_large_keeps_all_that_clients_add() {
    const ROUNDS: usize = 12;
    const EACH: usize = 40;
    let doors = two_doors(&crate::door::store("mem:128M"));
    by_four_clients(&doors, |client, thread| {
        for (round, number) in (0..ROUNDS).flat_map(|round| (0..EACH).map(move |number| (round, number))) {
            let field = format!("hset h:{round} {thread}:{number} v {thread}:x{number} w");
            assert_eq!(client.say(&field), Reply::Integer(2));
            client.say(&format!("hincrby h:{round} sum 1"));
            let member = format!("zadd z:{round} {number} {thread}:{number} 5 {thread}:x{number}");
            assert_eq!(client.say(&member), Reply::Integer(2));
            client.say(&format!("zincrby z:{round} 1 sum"));
        }
    });
    let mut client = doors[1].client();
    for round in 0..ROUNDS {
        assert_eq!(integer(client.say(&format!("hlen h:{round}"))), 4 * 2 * EACH + 1);
        assert_eq!(integer(client.say(&format!("zcard z:{round}"))), 4 * 2 * EACH + 1);
        assert_eq!(integer(client.say(&format!("zcount z:{round} -inf +inf"))), 4 * 2 * EACH + 1);
        let sum = Reply::bulk(&(4 * EACH).to_string());
        assert_eq!(client.say(&format!("hget h:{round} sum")), sum);
        assert_eq!(client.say(&format!("zscore z:{round} sum")), sum);
    }
}
