//! Commands that change several keys or elements take effect at one moment: what transactions see
//! while clients of two gateways run them, and what a killed gateway leaves.

use crate::door::{Client, Door, Reply, has_transactions, request};
use crate::several_keys::{kill_amid, pool_in_a_file, two_doors};
use crate::transactions::transact;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often each client that changes keys does so.
const ROUNDS: usize = 60;

/// Opens two gateways of a pool, if the index has transactions.
fn transacting_doors() -> Option<[Door; 2]> {
    has_transactions().then(|| two_doors(&crate::door::store("mem:128M")))
}

fn values(reply: Reply) -> Vec<Reply> {
    reply.array()
}

/// Runs `change` in two clients, one at each gateway, with the number of its round; and at the same
/// time `check` in two others, until all rounds are over.
pub fn meanwhile(
    doors: &[Door; 2],
    change: impl Fn(&mut Client, usize) + Sync,
    check: impl Fn(&mut Client) + Sync,
) {
    let running = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for (number, door) in doors.iter().enumerate() {
            let (running, change, check) = (&running, &change, &check);
            scope.spawn(move || {
                let mut client = door.client();
                (0..ROUNDS).for_each(|round| change(&mut client, 2 * round + number));
                running.fetch_sub(1, Ordering::Release);
            });
            scope.spawn(move || {
                let mut client = door.client();
                while running.load(Ordering::Acquire) > 0 {
                    check(&mut client);
                }
                check(&mut client);
            });
        }
    });
}

#[test]
fn keys_that_mset_sets_are_always_equal() {
    let Some(doors) = transacting_doors() else { return };
    meanwhile(
        &doors,
        |client, round| {
            let ok = client.say(&format!("mset a {round} b {round} c {round}"));
            assert_eq!(ok, Reply::Simple("OK".to_owned()));
            if round % 4 == 0 {
                // All three keys, or none.
                let removed = client.say("del c a b");
                assert!([Reply::Integer(0), Reply::Integer(3)].contains(&removed), "{removed:?}");
                client.say(&format!("msetnx b {round} c {round} a {round}"));
            }
        },
        |client| {
            let seen = values(transact(client, &["mget a b c", "exists c a b"]).array().remove(0));
            assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
        },
    );
}

#[test]
fn fields_and_members_that_are_set_together_are_always_equal() {
    set_together("0");
}

#[test]
fn fields_and_members_of_large_keys_that_are_set_together_are_always_equal() {
    set_together(&"x".repeat(1100));
}

/// Sets elements of keys together, in which another element has this name.
fn set_together(other: &str) {
    let Some(doors) = transacting_doors() else { return };
    doors[0].client().say(&format!("hset h {other} v"));
    doors[0].client().say(&format!("zadd z -1 {other}"));
    meanwhile(
        &doors,
        |client, round| {
            client.say(&format!("hset h f {round} g {round}"));
            client.say(&format!("zadd z {round} m {round} n"));
            match round % 4 {
                0 => {
                    let removed = [client.say("hdel h f g"), client.say("zrem z n m")];
                    let whole = [Reply::Integer(0), Reply::Integer(2)];
                    assert!(removed.iter().all(|removed| whole.contains(removed)), "{removed:?}");
                }
                1 => drop(client.say(&format!("hmset h g {round} f {round}"))),
                _ => {}
            }
        },
        |client| {
            let replies = transact(client, &["hmget h f g", "zmscore z m n"]).array();
            for pair in replies.into_iter().map(values) {
                assert_eq!(pair[0], pair[1]);
            }
            let replies = transact(client, &["hgetall h", "zrange z 0 -1 withscores"]).array();
            for mut all in replies.into_iter().map(values) {
                let own = all.iter().position(|reply| *reply == Reply::bulk(other)).unwrap();
                all.drain(own..own + 2);
                assert!(all.is_empty() || all.len() == 4 && all[1] == all[3], "{all:?}");
            }
        },
    );
}

#[test]
fn values_are_combined_as_they_were_at_one_moment() {
    let Some(doors) = transacting_doors() else { return };
    meanwhile(
        &doors,
        |client, round| {
            // The values are always equal, and the members always in one place.
            client.say(&format!("mset a {round} b {round}"));
            assert!(matches!(client.say("bitop xor c a b"), Reply::Integer(1..)));
            client.say(&format!("geoadd g {0} 0 m {0} 0 n", round % 2));
            let stored = client.say("geosearchstore near g fromlonlat 0 0 byradius 1 km");
            assert!([Reply::Integer(0), Reply::Integer(2)].contains(&stored), "{stored:?}");
        },
        |client| {
            let replies = transact(client, &["bitcount c", "zcard near"]).array();
            assert_eq!(replies[0], Reply::Integer(0));
            assert!([Reply::Integer(0), Reply::Integer(2)].contains(&replies[1]), "{replies:?}");
        },
    );
}

#[test]
fn a_key_that_is_renamed_has_one_name_at_any_moment() {
    for set in ["set a x", "hset a f 1 g 2 h 3", "zadd a 1 m 2 n 3 o"] {
        let Some(doors) = transacting_doors() else { return };
        doors[0].client().say(set);
        meanwhile(
            &doors,
            |client, round| {
                let names = if round % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                let command = if round % 3 == 0 { "renamenx" } else { "rename" };
                match client.say(&format!("{command} {} {}", names[0], names[1])) {
                    Reply::Error(text) => assert_eq!(text, "ERR no such key"),
                    renamed => assert_ne!(renamed, Reply::Integer(0), "both names existed"),
                }
            },
            |client| {
                let there = transact(client, &["exists a", "exists b"]).array();
                assert!(
                    there.contains(&Reply::Integer(0)) && there.contains(&Reply::Integer(1)),
                    "{there:?}"
                );
            },
        );
    }
}

#[test]
fn a_copy_has_the_elements_of_one_moment() {
    let Some(doors) = transacting_doors() else { return };
    doors[0].client().say("hset h f 0 g 0");
    meanwhile(
        &doors,
        |client, round| drop(client.say(&format!("hset h f {round} g {round}"))),
        |client| {
            assert_eq!(client.say("copy h copied replace"), Reply::Integer(1));
            let seen = values(transact(client, &["hmget copied f g"]).array().remove(0));
            assert!(seen[0] == seen[1] && seen[0] != Reply::Null, "{seen:?}");
        },
    );
}

#[test]
fn fields_added_during_renames_are_each_found_once() {
    let Some(doors) = transacting_doors() else { return };
    let renamed = AtomicUsize::new(0);
    meanwhile(
        &doors,
        |client, round| {
            assert_eq!(client.say(&format!("hset from {round}:a v {round}:b v")), Reply::Integer(2));
        },
        |client| {
            let number = renamed.fetch_add(1, Ordering::Relaxed);
            client.say(&format!("rename from to:{number}"));
        },
    );
    let (mut client, mut found) = (doors[0].client(), BTreeSet::new());
    for key in (0..renamed.into_inner()).map(|number| format!("to:{number}")).chain(["from".to_owned()]) {
        for field in client.say(&format!("hkeys {key}")).array() {
            assert!(found.insert(field.bytes()), "found under two names");
        }
    }
    assert_eq!(found.len(), 2 * 2 * ROUNDS);
}

#[test]
fn a_killed_gateway_leaves_each_command_whole_or_undone() {
    if !has_transactions() {
        return;
    }
    let (_directory, url, door) = pool_in_a_file();
    let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(21));
    for _ in 0..3 {
        client.say("del a b c h r0 r1 r2");
        client.say("hset r0 f 1 g 2");
        // One of these at a time, as in a pipeline.
        let acknowledged = kill_amid(&url, &mut dice, |number| {
            let value = number.to_string();
            match number % 3 {
                0 => request(&["mset", "b", &value, "a", &value, "c", &value]),
                1 => request(&["hset", "h", "f", &value, "g", &value]),
                _ => {
                    let name = |at: usize| format!("r{}", at / 3 % 3);
                    request(&["rename", &name(number), &name(number + 3)])
                }
            }
        });
        let number =
            |value: &Reply| String::from_utf8(value.clone().bytes()).unwrap().parse::<usize>().unwrap();
        let replies =
            transact(&mut client, &["mget a b c", "hmget h f g", "exists r0", "exists r1", "exists r2"]);
        let mut replies = replies.array();
        let names: Vec<_> = replies.split_off(2);
        assert_eq!(names.iter().filter(|name| **name == Reply::Integer(1)).count(), 1, "{names:?}");
        for group in replies.into_iter().map(values) {
            assert!(group.windows(2).all(|pair| pair[0] == pair[1]), "{group:?}");
            if acknowledged > 3 {
                assert!(number(&group[0]) + 3 >= acknowledged - 1, "an acknowledged command is lost");
            }
        }
        // The remains of the dead gateway block no client.
        assert_eq!(client.say("mset a 1 b 2"), Reply::Simple("OK".to_owned()));
        assert_eq!(client.say("hset h f 1 g 1 i 1"), Reply::Integer(1));
    }
}

#[test]
fn watch_notices_each_of_these_commands() {
    let Some(doors) = transacting_doors() else { return };
    let mut client = doors[0].client();
    let mut other = doors[1].client();
    for change in [
        "mset s 2 t 2",
        "del s t",
        "unlink h t",
        "hset h f 2 g 2",
        "hdel h f g",
        "zadd z 5 a 6 b",
        "zrem z a b",
        "rename s t",
        "renamenx s new",
        "copy t s replace",
        "msetnx new 1 newer 1",
    ] {
        for set in ["del s t h z new newer", "set s 1", "set t x", "hset h f 1", "zadd z 1 a"] {
            client.say(set);
        }
        assert_eq!(client.say("watch s h z new"), Reply::Simple("OK".to_owned()));
        other.say(change);
        assert_eq!(transact(&mut client, &["set ran 1"]), Reply::Null, "{change}");
    }
    assert_eq!(client.say("exists ran"), Reply::Integer(0));
}

#[test]
fn a_command_that_fails_has_changed_nothing() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    client.say("set s 1");
    client.say("zadd z inf a");
    let long = "k".repeat(65_535);
    for line in [
        format!("mset a 1 {long} 1 b 1"),
        format!("msetnx a 1 b 1 s 2 {long} 1"),
        format!("del s {long}"),
        format!("hset a f 1 {long} 1"),
        format!("zadd a 1 m 2 {long}"),
        "zadd a 1 m nan n".to_owned(),
        "mset a 1 b".to_owned(),
        format!("rename s {long}"),
    ] {
        let reply = client.say(&line);
        let is_refused = matches!(reply, Reply::Error(_) | Reply::Integer(0));
        assert!(is_refused, "{} {reply:?}", &line[..line.len().min(40)]);
        assert_eq!(client.say("exists a b"), Reply::Integer(0), "{}", &line[..line.len().min(40)]);
        assert_eq!(client.say("get s"), Reply::bulk("1"));
    }
    // More keys than a transaction may have.
    let many: Vec<String> = (0..100_001).map(|number| format!("k{number}")).collect();
    let pairs = many.iter().flat_map(|key| [key.as_str(), "v"]);
    let reply = client.ask(&["mset"].into_iter().chain(pairs).collect::<Vec<_>>());
    assert!(matches!(&reply, Reply::Error(text) if text.contains("at most 100000")), "{reply:?}");
    assert_eq!(client.say("dbsize"), Reply::Integer(2));
}

#[test]
fn keys_can_be_set_again_after_many_were_added_at_once_and_removed() {
    let door = Door::open();
    let mut client = door.client();
    let words: Vec<String> = (0..1000).flat_map(|field| [field.to_string(), "v".to_owned()]).collect();
    let all = || words.iter().map(String::as_str);
    for _ in 0..2 {
        assert_eq!(
            client.ask(&["hset", "h"].into_iter().chain(all()).collect::<Vec<_>>()),
            Reply::Integer(1000)
        );
        assert_eq!(client.say("del h"), Reply::Integer(1));
        assert_eq!(client.say("hset h f v"), Reply::Integer(1));
        assert_eq!(client.say("hset h f v g v"), Reply::Integer(1));
        assert_eq!(client.say("rename h moved"), Reply::Simple("OK".to_owned()));
    }
}

#[test]
fn a_hash_too_large_for_a_transaction_is_renamed_without_one() {
    const FIELDS: usize = 11_000;
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    for first in (0..FIELDS).step_by(1000) {
        let adds =
            (first..first + 1000).flat_map(|field| request(&["hset", "large", &field.to_string(), "v"]));
        client.send(&adds.collect::<Vec<u8>>());
        (0..1000).for_each(|_| assert_eq!(client.reply(), Reply::Integer(1)));
    }
    assert_eq!(client.say("rename large moved"), Reply::Simple("OK".to_owned()));
    assert_eq!(client.say("exists large"), Reply::Integer(0));
    let count = i64::try_from(FIELDS).unwrap();
    assert_eq!(client.say("hlen moved"), Reply::Integer(count));
    assert_eq!(client.say("copy moved copied"), Reply::Integer(1));
    assert_eq!(client.say("hlen copied"), Reply::Integer(count));
}
