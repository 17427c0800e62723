//! Sets through several gateways: no member is lost or returned twice, also when a set becomes large,
//! when it gets another name, and when a gateway is killed.

use crate::aggregates::{Process, elements_left, write_beside_removals};
use crate::at_one_moment::meanwhile;
use crate::door::{Client, Door, Reply, has_transactions, request};
use crate::sets::{Names, ask, fill, integer, names};
use crate::several_keys::{by_four_clients, kill_amid, pool_in_a_file, two_doors};
use crate::transactions::transact;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Members that clients of two gateways add, pop and remove at once, in sets of both forms.
#[test]
fn every_member_is_popped_once() {
    const EACH: usize = 400;
    let store = crate::door::store("mem:128M");
    let doors = two_doors(&store);
    for (key, start) in [("small", 0), ("large", 300)] {
        let mut client = doors[0].client();
        for number in 0..start {
            assert_eq!(client.say(&format!("sadd {key} before:{number}")), Reply::Integer(1));
        }
        let adding = AtomicUsize::new(2);
        let (popped, removed) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for (thread, door) in doors.iter().enumerate() {
                let (adding, popped, removed) = (&adding, &popped, &removed);
                scope.spawn(move || {
                    let mut client = door.client();
                    for number in 0..EACH {
                        let name = format!("{thread}:{number}");
                        assert_eq!(client.say(&format!("sadd {key} {name}")), Reply::Integer(1));
                        if number % 5 == 0 {
                            removed.fetch_add(
                                integer(client.say(&format!("srem {key} {name}"))),
                                Ordering::Relaxed,
                            );
                        }
                    }
                    adding.fetch_sub(1, Ordering::Release);
                });
                scope.spawn(move || {
                    let mut client = door.client();
                    for round in 0.. {
                        let is_over = adding.load(Ordering::Acquire) == 0;
                        let some = match client.say(&format!("spop {key} {}", 1 + round % 3)) {
                            Reply::Array(some) => some,
                            other => panic!("{other:?}"),
                        };
                        if is_over && some.is_empty() {
                            return;
                        }
                        popped.lock().unwrap().extend(some.into_iter().map(Reply::bytes));
                    }
                });
            }
        });
        let popped = popped.into_inner().unwrap();
        let different: Names = popped.iter().cloned().collect();
        assert_eq!(different.len(), popped.len(), "a member was popped twice");
        assert_eq!(popped.len() + removed.into_inner(), start + 2 * EACH, "a member was lost");
        assert_eq!(client.say(&format!("exists {key}")), Reply::Integer(0));
    }
}

#[test]
fn every_member_is_popped_once_while_its_set_gets_other_names() {
    if !has_transactions() {
        return;
    }
    let doors = two_doors(&crate::door::store("mem:128M"));
    fill(&mut doors[0].client(), "a", 700);
    let popped = Mutex::new(Vec::new());
    let pop = |client: &mut Client, line: &str| popped.lock().unwrap().extend(names(client.say(line)));
    meanwhile(
        &doors,
        |client, round| {
            match round % 4 {
                0 => client.say("rename a b"),
                1 => client.say("rename b a"),
                2 => client.say("sunionstore a a"),
                _ => client.say("sinterstore b b b"),
            };
        },
        |client| {
            pop(client, "spop a 2");
            pop(client, "spop b 1");
        },
    );
    let mut client = doors[0].client();
    let left: Names = names(client.say("sunion a b")).into_iter().collect();
    let popped = popped.into_inner().unwrap();
    let different: Names = popped.iter().cloned().collect();
    assert_eq!(different.len(), popped.len(), "a member was popped twice");
    assert_eq!(different.union(&left).count(), 700, "a member was lost");
}

/// Clients of two gateways make one set large together.
#[test]
fn a_set_that_becomes_large_keeps_all_that_clients_add() {
    const ROUNDS: usize = 20;
    const EACH: usize = 60;
    let store = crate::door::store("mem:128M");
    let doors = two_doors(&store);
    by_four_clients(&doors, |client, thread| {
        for (round, number) in (0..ROUNDS).flat_map(|round| (0..EACH).map(move |number| (round, number))) {
            let added = client.say(&format!("sadd set:{round} {thread}:{number} {thread}:x{number}"));
            assert_eq!(added, Reply::Integer(2));
            let there = client.say(&format!("sismember set:{round} {thread}:{number}"));
            assert_eq!(there, Reply::Integer(1));
        }
    });
    let mut client = doors[1].client();
    for round in 0..ROUNDS {
        assert_eq!(integer(client.say(&format!("scard set:{round}"))), 4 * 2 * EACH);
    }
}

#[test]
fn only_a_removal_takes_members() {
    let store = crate::door::store("mem:128M");
    let doors = two_doors(&store);
    // Enough requests between removals for the set to become large in some rounds.
    write_beside_removals(&doors, ("del s", 60), |client, thread, number| {
        let name = format!("{thread}:{number:060}");
        client.say(&format!("sadd s {name}"));
        client.say(&format!("sismember s {name}")) == Reply::Integer(1)
    });
    doors[0].client().say("del s");
    assert_eq!(elements_left(&store), 0, "elements without a key");
}

#[test]
fn a_member_that_moves_is_in_one_set_at_any_moment() {
    if !has_transactions() {
        return;
    }
    // Two small sets, and two large ones.
    for members in [3, 400] {
        let doors = two_doors(&crate::door::store("mem:128M"));
        fill(&mut doors[0].client(), "a", members);
        fill(&mut doors[0].client(), "b", members);
        doors[0].client().say("sadd a moving");
        meanwhile(
            &doors,
            |client, round| {
                let (from, to) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
                client.say(&format!("smove {from} {to} moving"));
            },
            |client| {
                let seen = transact(client, &["sismember a moving", "sismember b moving"]).array();
                assert_eq!(seen.into_iter().map(integer).sum::<usize>(), 1);
            },
        );
    }
}

#[test]
fn what_is_stored_are_the_sets_of_one_moment() {
    if !has_transactions() {
        return;
    }
    for members in [3, 400] {
        let doors = two_doors(&crate::door::store("mem:128M"));
        for key in ["a", "b"] {
            fill(&mut doors[0].client(), key, members);
        }
        meanwhile(
            &doors,
            |client, round| {
                // Both sets have the same members at any moment.
                let add = format!("sadd a r{round}");
                let remove = format!("srem a r{}", round / 2);
                let same = [add.replacen(" a ", " b ", 1), remove.replacen(" a ", " b ", 1)];
                transact(client, &[&add, &same[0], &remove, &same[1]]);
            },
            |client| {
                assert_eq!(client.say("sdiffstore none a b"), Reply::Integer(0));
                let replies =
                    transact(client, &["zunionstore z 2 a b", "zrangestore y z 1 1 byscore"]).array();
                assert_eq!(replies[1], Reply::Integer(0), "a member is in one of them only");
                let stored = integer(client.say("sunionstore all a b"));
                assert!(stored >= members, "{stored} members");
            },
        );
    }
}

#[test]
fn a_killed_gateway_leaves_a_moved_member_in_one_set() {
    if !has_transactions() {
        return;
    }
    let (_directory, url, door) = pool_in_a_file();
    let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(31));
    fill(&mut client, "b", 400);
    for _ in 0..4 {
        client.say("srem b moving");
        client.say("sadd a moving");
        kill_amid(&url, &mut dice, |number| {
            let (from, to) = if number % 2 == 0 { ("a", "b") } else { ("b", "a") };
            request(&["smove", from, to, "moving"])
        });
        let seen = transact(&mut client, &["sismember a moving", "sismember b moving"]).array();
        assert_eq!(seen.into_iter().map(integer).sum::<usize>(), 1);
    }
}

#[test]
fn a_gateway_killed_while_a_set_becomes_large_loses_no_member() {
    let (_directory, url, door) = pool_in_a_file();
    let mut client = door.client();
    for round in 0..6 {
        let mut process = Process::start(&url);
        let key = format!("set:{round}");
        let requests: Vec<u8> =
            (0..60).flat_map(|number| request(&["sadd", &key, &format!("{number:040}")])).collect();
        process.client.send(&requests);
        // It becomes large with the 25th member.
        for _ in 0..20 + round * 2 {
            assert_eq!(process.client.reply(), Reply::Integer(1));
        }
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        let more = std::iter::from_fn(|| process.client.try_reply()).count();
        let found = names(client.say(&format!("smembers {key}")));
        let acknowledged = 20 + round * 2 + more;
        assert!((acknowledged..=acknowledged + 1).contains(&found.len()), "{acknowledged} {}", found.len());
        assert_eq!(client.say(&format!("sadd {key} another")), Reply::Integer(1));
    }
}

#[test]
fn sets_too_large_for_a_transaction_are_stored_without_one() {
    const MEMBERS: usize = 11_000;
    let door = Door::open();
    let mut client = door.client();
    for (key, step) in [("a", 1), ("b", 2)] {
        for first in (0..MEMBERS).step_by(1000) {
            let some: Vec<Vec<u8>> = (first..first + 1000)
                .step_by(step)
                .map(|number| format!("{number:06}").into_bytes())
                .collect();
            assert_eq!(integer(ask(&mut client, "sadd", key, &some)), some.len());
        }
    }
    client.say("zadd z 1 x");
    for (command, expected) in [
        ("sunionstore c a b", MEMBERS),
        ("sinterstore c a b", MEMBERS / 2),
        ("sdiffstore c a b", MEMBERS / 2),
        ("zunionstore z 2 a b", MEMBERS),
        ("zinterstore z 2 a b aggregate max", MEMBERS / 2),
        ("zrangestore y z 0 -1", MEMBERS / 2),
        ("sintercard 2 c b", 0),
        ("sintercard 2 a z", MEMBERS / 2),
    ] {
        let reply = client.say(command);
        if command.ends_with("a z") {
            assert!(matches!(reply, Reply::Error(text) if text.starts_with("WRONGTYPE")));
            continue;
        }
        assert_eq!(integer(reply), expected, "{command}");
    }
    assert_eq!(integer(client.say("scard c")), MEMBERS / 2);
    assert_eq!(integer(client.say("zcount y 1 1")), MEMBERS / 2);
}
