//! Sets: random commands against a model, through the conversion from the small to the large form, in
//! transactions and scripts. `sets_together.rs` has the tests of several gateways.

use crate::door::{Client, Door, Reply, has_transactions};
use crate::transactions::transact;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

pub type Names = BTreeSet<Vec<u8>>;

pub fn names(reply: Reply) -> Vec<Vec<u8>> {
    reply.array().into_iter().map(Reply::bytes).collect()
}

pub fn integer(reply: Reply) -> usize {
    match reply {
        Reply::Integer(number) => usize::try_from(number).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Sends a command on a key with further words.
pub fn ask(client: &mut Client, command: &str, key: &str, words: &[Vec<u8>]) -> Reply {
    let all: Vec<&[u8]> =
        [command.as_bytes(), key.as_bytes()].into_iter().chain(words.iter().map(Vec::as_slice)).collect();
    client.ask(&all)
}

/// The sets of a store and of a model.
struct Pair<'d> {
    client: Client,
    model: BTreeMap<&'static str, Names>,
    dice: &'d mut Pcg64Mcg,
}

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

impl Pair<'_> {
    fn key(&mut self) -> &'static str {
        KEYS.choose(self.dice).unwrap()
    }

    fn set(&self, key: &str) -> Names {
        self.model.get(key).cloned().unwrap_or_default()
    }

    fn replace(&mut self, key: &'static str, names: Names) {
        if names.is_empty() {
            self.model.remove(key);
        } else {
            self.model.insert(key, names);
        }
    }

    /// Some names, of which a head has room for about a hundred.
    fn some(&mut self, most: usize) -> Vec<Vec<u8>> {
        let count = self.dice.random_range(1..=most);
        let name = |dice: &mut Pcg64Mcg| match dice.random_range(0..500) {
            0 => vec![b'x'; dice.random_range(900..1200)],
            number => format!("{number}").into_bytes(),
        };
        (0..count).map(|_| name(self.dice)).collect()
    }

    /// Adds or removes members, and compares the reply.
    fn change(&mut self) {
        let key = self.key();
        let most = *[1, 1, 5, 100].choose(self.dice).unwrap();
        let (some, mut set) = (self.some(most), self.set(key));
        let before = set.len();
        if self.dice.random_bool(0.5) {
            set.extend(some.iter().cloned());
            let added = integer(ask(&mut self.client, "sadd", key, &some));
            assert_eq!(added, set.len() - before);
        } else {
            set.retain(|name| !some.contains(name));
            assert_eq!(integer(ask(&mut self.client, "srem", key, &some)), before - set.len());
        }
        self.replace(key, set);
    }

    /// Draws or pops members, and compares the reply.
    fn draw(&mut self) {
        let (key, count) = (self.key(), self.dice.random_range(1..12));
        let mut set = self.set(key);
        let drawn = names(self.client.say(&format!("srandmember {key} {count}")));
        let all: Names = drawn.iter().cloned().collect();
        assert_eq!((all.len(), drawn.len()), (count.min(set.len()), count.min(set.len())));
        assert!(all.is_subset(&set));
        let drawn = names(self.client.say(&format!("srandmember {key} -{count}")));
        assert_eq!(drawn.len(), if set.is_empty() { 0 } else { count });
        assert!(drawn.iter().all(|name| set.contains(name)));
        let popped = names(self.client.say(&format!("spop {key} {count}")));
        assert_eq!(popped.len(), count.min(set.len()));
        assert!(popped.iter().all(|name| set.remove(name)));
        match self.client.say(&format!("spop {key}")) {
            Reply::Bulk(name) => assert!(set.remove(&name)),
            other => assert!(other == Reply::Null && set.is_empty(), "{other:?}"),
        }
        self.replace(key, set);
    }

    /// Moves a member or a key, and compares the reply.
    fn relocate(&mut self) {
        let (from, to) = (self.key(), self.key());
        let (mut source, mut target) = (self.set(from), self.set(to));
        match self.dice.random_range(0..3) {
            0 if has_transactions() => {
                let name = self.some(1).remove(0);
                let reply = self.client.ask(&[b"smove", from.as_bytes(), to.as_bytes(), &name]);
                assert_eq!(integer(reply) == 1, source.contains(&name));
                if source.contains(&name) && from != to {
                    source.remove(&name);
                    target.insert(name);
                    self.replace(from, source);
                    self.replace(to, target);
                }
            }
            1 if from != to => {
                let copied = integer(self.client.say(&format!("copy {from} {to} replace")));
                assert_eq!(copied == 1, !source.is_empty());
                if copied == 1 {
                    self.replace(to, source);
                }
            }
            _ if from != to && !source.is_empty() => {
                assert_eq!(self.client.say(&format!("rename {from} {to}")), Reply::Simple("OK".to_owned()));
                self.replace(from, Names::new());
                self.replace(to, source);
            }
            _ => {}
        }
    }

    /// Combines sets, and compares the result.
    fn combine(&mut self) {
        let keys: Vec<&'static str> = (0..self.dice.random_range(1..4)).map(|_| self.key()).collect();
        let sets: Vec<Names> = keys.iter().map(|key| self.set(key)).collect();
        let rest = || sets[1..].iter();
        let (command, expected): (_, Names) = match self.dice.random_range(0..3) {
            0 => ("sunion", sets.iter().flatten().cloned().collect()),
            1 => ("sinter", rest().fold(sets[0].clone(), |all, set| &all & set)),
            _ => ("sdiff", rest().fold(sets[0].clone(), |all, set| &all - set)),
        };
        let joined = keys.join(" ");
        assert!(names(self.client.say(&format!("{command} {joined}"))).iter().eq(&expected), "{command}");
        if command == "sinter" {
            let limit = self.dice.random_range(0..100);
            let reply = self.client.say(&format!("sintercard {} {joined} limit {limit}", keys.len()));
            let most = if limit == 0 { usize::MAX } else { limit };
            assert_eq!(integer(reply), expected.len().min(most));
        }
        let destination = self.key();
        let stored = self.client.say(&format!("{command}store {destination} {joined}"));
        assert_eq!(integer(stored), expected.len());
        self.replace(destination, expected);
    }

    /// Removes a key, or lets it expire later.
    fn end(&mut self) {
        let key = self.key();
        let there = usize::from(!self.set(key).is_empty());
        match self.dice.random_range(0..3) {
            0 => {
                assert_eq!(integer(self.client.say(&format!("del {key}"))), there);
                self.replace(key, Names::new());
            }
            1 => assert_eq!(integer(self.client.say(&format!("expire {key} 100000"))), there),
            _ => drop(self.client.say(&format!("persist {key}"))),
        }
    }

    /// Compares all that can be read of a key.
    fn compare(&mut self) {
        let key = self.key();
        let set = self.set(key);
        assert!(names(self.client.say(&format!("smembers {key}"))).iter().eq(&set), "{key}");
        assert_eq!(integer(self.client.say(&format!("scard {key}"))), set.len());
        let some = self.some(9);
        let are_members = ask(&mut self.client, "smismember", key, &some).array().into_iter().map(integer);
        assert!(are_members.eq(some.iter().map(|name| usize::from(set.contains(name)))));
        let is_member = self.client.ask(&[b"sismember", key.as_bytes(), &some[0]]);
        assert_eq!(integer(is_member) == 1, set.contains(&some[0]));
        let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
        loop {
            let mut reply = self.client.say(&format!("sscan {key} {cursor} count 20")).array();
            seen.extend(names(reply.pop().unwrap()));
            cursor = String::from_utf8(reply.pop().unwrap().bytes()).unwrap();
            if cursor == "0" {
                break;
            }
        }
        assert!(seen.iter().eq(&set), "{key}: {} of {} members scanned", seen.len(), set.len());
        let kind = if set.is_empty() { "none" } else { "set" };
        assert_eq!(self.client.say(&format!("type {key}")), Reply::Simple(kind.to_owned()));
        let is_integer = |name: &Vec<u8>| name[0] != b'x';
        let encoding = if set.iter().all(is_integer) && set.len() <= 512 { "intset" } else { "hashtable" };
        let expected = if set.is_empty() { Reply::Null } else { Reply::bulk(encoding) };
        assert_eq!(self.client.say(&format!("object encoding {key}")), expected);
    }
}

#[test]
fn commands_by_chance_do_what_a_model_does() {
    for seed in 1..=4 {
        let (door, mut dice) = (Door::open(), Pcg64Mcg::seed_from_u64(seed));
        let mut pair = Pair { client: door.client(), model: BTreeMap::new(), dice: &mut dice };
        for _ in 0..1200 {
            match pair.dice.random_range(0..20) {
                0..10 => pair.change(),
                10..12 => pair.draw(),
                12..14 => pair.relocate(),
                14..16 => pair.combine(),
                16 => pair.end(),
                _ => pair.compare(),
            }
        }
    }
}

/// Adds members to a set.
pub fn fill(client: &mut Client, key: &str, members: usize) {
    for first in (0..members).step_by(100) {
        let some: Vec<Vec<u8>> =
            (first..members.min(first + 100)).map(|n| format!("m{n}").into_bytes()).collect();
        assert_eq!(integer(ask(client, "sadd", key, &some)), some.len());
    }
}

#[test]
fn transactions_and_scripts_see_their_own_sets() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    // The set becomes large within the transaction.
    let long = "x".repeat(600);
    let body = [
        "sadd s a b".to_owned(),
        format!("sadd s 1{long} 2{long}"),
        "srem s a nothing".to_owned(),
        "scard s".to_owned(),
        "sadd t b c".to_owned(),
        "sinterstore u s t".to_owned(),
        "smove t s c".to_owned(),
        "smembers t".to_owned(),
        "spop u".to_owned(),
        "exists u".to_owned(),
        "scard s".to_owned(),
    ];
    let replies = transact(&mut client, &body.iter().map(String::as_str).collect::<Vec<_>>()).array();
    let numbers = |at: usize| integer(replies[at].clone());
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(numbers), [2, 2, 1, 3, 2, 1, 1]);
    assert_eq!(replies[7], Reply::Array(vec![Reply::bulk("b")]));
    assert_eq!((replies[8].clone(), numbers(9), numbers(10)), (Reply::bulk("b"), 0, 4));
    assert_eq!(integer(client.say("scard s")), 4);
    client.say("watch s");
    door.client().say("sadd s more");
    assert_eq!(transact(&mut client, &["set ran 1"]), Reply::Null);
    client.say("watch t");
    door.client().say("sadd t more");
    assert_eq!(transact(&mut client, &["set ran 1"]), Reply::Null);
    let script = "redis.call('sadd', KEYS[1], 'b', 'a'); local all = redis.call('smembers', KEYS[1]); \
                  redis.call('sunionstore', KEYS[2], KEYS[1], 's'); return {#all, redis.call('scard', KEYS[2])}";
    let reply = client.ask(&["eval", script, "2", "new", "union"]);
    assert_eq!(reply, Reply::Array(vec![Reply::Integer(2), Reply::Integer(6)]));
    let refused = client.ask(&["eval", "return redis.call('sscan', 's', 0)", "0"]);
    assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
}

#[test]
fn sets_expire_and_are_named_by_their_type() {
    let door = Door::open();
    let mut client = door.client();
    client.say("sadd small a b");
    fill(&mut client, "large", 500);
    client.say("set string x");
    for key in ["small", "large"] {
        assert_eq!(client.say(&format!("pexpire {key} 1")), Reply::Integer(1));
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    for key in ["small", "large"] {
        assert_eq!(client.say(&format!("sadd {key} c")), Reply::Integer(1));
        assert_eq!(client.say(&format!("ttl {key}")), Reply::Integer(-1));
        assert_eq!(client.say(&format!("smembers {key}")), Reply::Array(vec![Reply::bulk("c")]));
    }
    let mut found = client.say("scan 0 type set count 100").array();
    let found = names(found.pop().unwrap());
    assert_eq!(found, [b"large".to_vec(), b"small".to_vec()]);
    for line in ["get small", "hset small f v", "zadd small 1 m", "incr small", "hlen small"] {
        let reply = client.say(line);
        assert!(matches!(&reply, Reply::Error(text) if text.starts_with("WRONGTYPE")), "{line}: {reply:?}");
    }
    assert_eq!(client.say("set small x"), Reply::Simple("OK".to_owned()));
    client.say("hset h f v");
    client.say("hdel h f");
    assert_eq!(client.say("sadd h m"), Reply::Integer(1));
    assert_eq!(client.say("type h"), Reply::Simple("set".to_owned()));
    let long = "k".repeat(65_000);
    let member = "m".repeat(600);
    for command in ["sadd", "srem"] {
        let reply = client.ask(&[command, &long, &member]);
        assert!(matches!(&reply, Reply::Error(text) if text.contains("together they hold")), "{reply:?}");
    }
}
