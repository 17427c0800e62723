//! Operations on several sorted sets and sets against a model, and `SORT`.

use crate::door::{Client, Door, Reply};
use crate::sets::{ask, integer, names};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

type Scores = BTreeMap<Vec<u8>, f64>;

/// Returns members with their scores, in the order of the reply.
fn scores(reply: Reply) -> Vec<(f64, Vec<u8>)> {
    let words = names(reply);
    let score = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap().parse().unwrap();
    words.chunks(2).map(|pair| (score(&pair[1]), pair[0].clone())).collect()
}

/// Returns members in the order of a sorted set.
fn in_order(scores: &Scores) -> Vec<(f64, Vec<u8>)> {
    let mut pairs: Vec<_> = scores.iter().map(|(name, score)| (*score, name.clone())).collect();
    pairs.sort_by(|a, b| a.partial_cmp(b).unwrap());
    pairs
}

/// Adds random members to a sorted set, or to a set.
fn prepare(client: &mut Client, dice: &mut Pcg64Mcg, key: &str, count: usize, is_set: bool) -> Scores {
    let mut scores = Scores::new();
    for _ in 0..count {
        let name = format!("{:05}", dice.random_range(0..4 * 200_u32)).into_bytes();
        scores.insert(name, if is_set { 1.0 } else { f64::from(dice.random_range(0..40_u8)) / 4.0 });
    }
    let pairs: Vec<_> = scores.iter().collect();
    for some in pairs.chunks(100) {
        let words: Vec<Vec<u8>> = if is_set {
            some.iter().map(|(name, _)| (*name).clone()).collect()
        } else {
            some.iter().flat_map(|(name, score)| [score.to_string().into_bytes(), (*name).clone()]).collect()
        };
        assert_eq!(integer(ask(client, if is_set { "sadd" } else { "zadd" }, key, &words)), some.len());
    }
    scores
}

/// Returns what an operation should return.
fn expected(command: &str, sets: &[&Scores], weights: &[f64], aggregate: &str) -> Scores {
    if command == "zdiff" {
        let is_elsewhere = |name: &Vec<u8>| sets[1..].iter().any(|set| set.contains_key(name));
        let rest = sets[0].iter().filter(|(name, _)| !is_elsewhere(name));
        return rest.map(|(name, score)| (name.clone(), *score)).collect();
    }
    let mut all = Scores::new();
    for name in sets.iter().flat_map(|set| set.keys()) {
        let weighted = sets.iter().zip(weights).filter_map(|(set, weight)| Some(set.get(name)? * weight));
        let weighted: Vec<f64> = weighted.collect();
        if command == "zunion" || weighted.len() == sets.len() {
            let combine = match aggregate {
                "min" => f64::min,
                "max" => f64::max,
                _ => |one: f64, other: f64| one + other,
            };
            all.insert(name.clone(), weighted.into_iter().reduce(combine).unwrap());
        }
    }
    all
}

#[test]
fn operations_on_sorted_sets_are_those_of_a_model() {
    let (door, mut dice) = (Door::open(), Pcg64Mcg::seed_from_u64(8));
    let mut client = door.client();
    let kinds =
        [("z1", 0, false), ("z2", 30, false), ("z3", 700, false), ("s1", 20, true), ("s2", 600, true)];
    let keys = kinds.map(|(key, count, is_set)| (key, prepare(&mut client, &mut dice, key, count, is_set)));
    for _ in 0..200 {
        let chosen: Vec<&(&str, Scores)> =
            (0..dice.random_range(1..4)).map(|_| keys.choose(&mut dice).unwrap()).collect();
        let sets: Vec<&Scores> = chosen.iter().map(|(_, scores)| scores).collect();
        let named = chosen.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(" ");
        let weights: Vec<f64> = chosen.iter().map(|_| f64::from(dice.random_range(1..9_u8)) / 2.0).collect();
        let said = weights.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
        let command = *["zunion", "zinter", "zdiff"].choose(&mut dice).unwrap();
        let aggregate = *["sum", "min", "max"].choose(&mut dice).unwrap();
        let options =
            if command == "zdiff" { String::new() } else { format!(" weights {said} aggregate {aggregate}") };
        let expected = in_order(&expected(command, &sets, &weights, aggregate));
        let reply = client.say(&format!("{command} {} {named}{options} withscores", chosen.len()));
        assert_eq!(scores(reply), expected, "{command} {named}{options}");
        let stored = client.say(&format!("{command}store stored {} {named}{options}", chosen.len()));
        assert_eq!(integer(stored), expected.len());
        assert_eq!(scores(client.say("zrange stored 0 -1 withscores")), expected);
        // The members are also found by their names.
        assert_eq!(integer(client.say("zcard stored")), expected.len());
        if command == "zinter" {
            let reply = client.say(&format!("zintercard {} {named} limit 7", chosen.len()));
            assert_eq!(integer(reply), expected.len().min(7));
        }
    }
}

#[test]
fn ranges_are_stored_and_members_are_popped_from_the_first_set_that_has_any() {
    let door = Door::open();
    let mut client = door.client();
    client.say("zadd z 1 a 2 b 3 c 4 d");
    for (range, expected) in [
        ("1 2", "b c"),
        ("-2 -1", "c d"),
        ("(1 3 byscore limit 1 5", "c"),
        ("+ [b bylex rev limit 0 2", "d c"),
        ("5 9", ""),
    ] {
        let stored = integer(client.say(&format!("zrangestore to z {range}")));
        let mut members = names(client.say("zrange to 0 -1"));
        if range.contains("rev") {
            members.reverse();
        }
        let members: Vec<String> = members.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
        assert_eq!((members.join(" "), stored), (expected.to_owned(), members.len()), "{range}");
    }
    assert_eq!(client.say("exists to"), Reply::Integer(0));
    let pair = |name: &str, score: &str| Reply::Array(vec![Reply::bulk(name), Reply::bulk(score)]);
    let popped = client.say("zmpop 3 none none z max count 2");
    assert_eq!(
        popped,
        Reply::Array(vec![Reply::bulk("z"), Reply::Array(vec![pair("d", "4"), pair("c", "3")])])
    );
    client.say("zadd y 7 m");
    let popped = client.say("zmpop 2 y z min");
    assert_eq!(popped, Reply::Array(vec![Reply::bulk("y"), Reply::Array(vec![pair("m", "7")])]));
    assert_eq!(client.say("zmpop 2 none y min"), Reply::Null);
}

#[test]
fn sort_orders_by_elements_keys_and_fields() {
    let door = Door::open();
    let mut client = door.client();
    client.say("sadd s 10 9 1 100 2.5");
    client.say("sadd words pear Plum apple");
    client.say("zadd z 1 b 2 a 3 c");
    for (name, weight) in [("10", "3"), ("9", "1"), ("1", "2")] {
        client.say(&format!("set w:{name} {weight}"));
        client.say(&format!("hset h:{name}:x weight -{weight} text {name}!"));
    }
    let mut sorted = |line: &str| {
        let word = |reply| match reply {
            Reply::Null => "-".to_owned(),
            reply => String::from_utf8(Reply::bytes(reply)).unwrap(),
        };
        client.say(line).array().into_iter().map(word).collect::<Vec<_>>().join(" ")
    };
    for (line, expected) in [
        ("sort s", "1 2.5 9 10 100"),
        ("sort s desc limit 1 2", "10 9"),
        ("sort s alpha", "1 10 100 2.5 9"),
        ("sort words alpha", "Plum apple pear"),
        ("sort s by w:*", "100 2.5 9 1 10"),
        ("sort s by w:* desc get # get w:*", "10 3 1 2 9 1 2.5 - 100 -"),
        ("sort s by h:*:x->weight get h:*:x->text limit 0 3", "10! 1! 9!"),
        ("sort s by nosort alpha", "1 10 100 2.5 9"),
        ("sort z by nosort", "b a c"),
        ("sort z by nosort desc limit 0 2", "c a"),
        ("sort z alpha desc", "c b a"),
        ("sort_ro z alpha get none", "- - -"),
        ("sort nothing", ""),
    ] {
        assert_eq!(sorted(line), expected, "{line}");
    }
    assert_eq!(
        client.say("sort words"),
        Reply::Error("ERR One or more scores can't be converted into double".to_owned())
    );
}

/// Elements whose keys need several round trips.
#[test]
fn sort_reads_the_keys_of_many_elements() {
    const MEMBERS: usize = 3000;
    let door = Door::open();
    let mut client = door.client();
    for first in (0..MEMBERS).step_by(500) {
        let some: Vec<Vec<u8>> = (first..first + 500).map(|number| number.to_string().into_bytes()).collect();
        assert_eq!(integer(ask(&mut client, "sadd", "s", &some)), 500);
        let weights: Vec<Vec<u8>> = (first..first + 500)
            .flat_map(|number| [format!("w{number}"), (number * 7 % MEMBERS).to_string()])
            .map(String::into_bytes)
            .collect();
        assert_eq!(
            ask(&mut client, "mset", "other", &[&[b"x".to_vec()], &weights[..]].concat()),
            Reply::Simple("OK".to_owned())
        );
    }
    let sorted = names(client.say("sort s by w* get #"));
    let mut expected: Vec<usize> = (0..MEMBERS).collect();
    expected.sort_by_key(|number| (number * 7 % MEMBERS, number.to_string()));
    assert!(sorted.into_iter().eq(expected.into_iter().map(|number| number.to_string().into_bytes())));
}
