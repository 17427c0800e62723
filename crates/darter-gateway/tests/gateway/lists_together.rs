//! Lists through several gateways: each element that was pushed is found once, whatever other clients
//! do at the same time.

use crate::at_one_moment::meanwhile;
use crate::door::{Reply, has_transactions, request};
use crate::lists::integer;
use crate::several_keys::{kill_amid, pool_in_a_file, two_doors};
use crate::transactions::transact;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Several clients push through two gateways and others pop: each element arrives once, and those of
/// one client in their order.
#[test]
fn each_pushed_element_is_popped_once() {
    const EACH: usize = 1500;
    if !has_transactions() {
        return;
    }
    // Short elements, and such that only a few are in a chunk.
    for bytes in [0, 3000] {
        let doors = two_doors(&crate::door::store("mem:256M"));
        let (popped, left) = (Mutex::new(Vec::new()), AtomicUsize::new(4 * EACH));
        let filling = ".".repeat(bytes);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (door, filling) = (&doors[thread % 2], &filling);
                scope.spawn(move || {
                    let mut client = door.client();
                    for number in (0..EACH).step_by(3) {
                        let own = |at: usize| format!("{thread}:{at}:{filling}");
                        let reply = client.say(&format!(
                            "lpush q {} {} {}",
                            own(number),
                            own(number + 1),
                            own(number + 2)
                        ));
                        assert!(matches!(reply, Reply::Integer(3..)), "{reply:?}");
                    }
                });
                let (popped, left) = (&popped, &left);
                scope.spawn(move || {
                    let (mut client, mut own) = (door.client(), Vec::new());
                    while left.load(Ordering::Acquire) > 0 {
                        let words = if thread == 0 { "rpop q 7" } else { "rpop q" };
                        let elements = match client.say(words) {
                            Reply::Null => continue,
                            Reply::Array(elements) => elements,
                            element => vec![element],
                        };
                        left.fetch_sub(elements.len(), Ordering::AcqRel);
                        own.extend(elements.into_iter().map(Reply::bytes));
                    }
                    popped.lock().unwrap().push(own);
                });
            }
        });
        let name = |element: &[u8]| {
            let text = String::from_utf8_lossy(element);
            let mut parts = text.split(':').map(|part| part.parse::<usize>().unwrap_or(0));
            (parts.next().unwrap(), parts.next().unwrap())
        };
        let popped: Vec<Vec<(usize, usize)>> = popped
            .into_inner()
            .unwrap()
            .iter()
            .map(|own| own.iter().map(|element| name(element)).collect())
            .collect();
        for own in &popped {
            for thread in 0..4 {
                assert!(
                    own.iter().filter(|(of, _)| *of == thread).is_sorted(),
                    "elements of one client changed places"
                );
            }
        }
        let found: BTreeSet<_> = popped.iter().flatten().copied().collect();
        assert_eq!(found.len(), 4 * EACH);
        assert_eq!(popped.iter().map(Vec::len).sum::<usize>(), 4 * EACH, "an element came twice");
        assert_eq!(doors[0].client().say("exists q"), Reply::Integer(0));
    }
}

/// Elements move between lists in circles, at both ends and through both gateways, while others are
/// inserted and removed in the middle.
#[test]
fn elements_that_move_between_lists_are_never_lost() {
    if !has_transactions() {
        return;
    }
    let doors = two_doors(&crate::door::store("mem:128M"));
    let filling = ".".repeat(400);
    let mut client = doors[0].client();
    for number in 0..60 {
        client.say(&format!("rpush a {number}{filling}"));
    }
    meanwhile(
        &doors,
        |client, round| {
            client.say(if round % 2 == 0 { "rpoplpush a b" } else { "lmove b a left right" });
            client.say("lmove a a right left");
            let inserted = client.say(&format!("linsert a after {}{filling} new:{round}", 30 + round % 20));
            if inserted != Reply::Integer(-1) {
                // It moves too, and is in one of the lists.
                let removed =
                    transact(client, &[&format!("lrem a 1 new:{round}"), &format!("lrem b 1 new:{round}")]);
                let removed = removed.array();
                assert!(
                    removed.contains(&Reply::Integer(1)) && removed.contains(&Reply::Integer(0)),
                    "{removed:?}"
                );
            }
        },
        |client| {
            let lists = transact(client, &["lrange a 0 -1", "lrange b 0 -1", "llen a", "llen b"]).array();
            let (a, b) = (lists[0].clone().array(), lists[1].clone().array());
            assert_eq!([integer(a.len()), integer(b.len())], [lists[2].clone(), lists[3].clone()]);
            let names: Vec<Vec<u8>> = a.into_iter().chain(b).map(Reply::bytes).collect();
            let own = names.iter().filter(|name| !name.starts_with(b"new")).count();
            assert_eq!((own, names.iter().collect::<BTreeSet<_>>().len()), (60, names.len()));
        },
    );
}

#[test]
fn a_script_sees_and_changes_lists_at_one_moment() {
    if !has_transactions() {
        return;
    }
    let doors = two_doors(&crate::door::store("mem:128M"));
    let script = "local n = redis.call('incr', 'n') for i = 1, 40 do redis.call('rpush', 'l', n .. ':' .. i) end \
                  if n % 3 == 0 then redis.call('lpop', 'l', 40) end return redis.call('llen', 'l')";
    meanwhile(
        &doors,
        |client, _| {
            let length = client.ask(&["eval", script, "0"]);
            assert!(matches!(length, Reply::Integer(length) if length % 40 == 0), "{length:?}");
        },
        |client| {
            let seen = client.ask(&["eval", "return redis.call('lrange', 'l', 0, -1)", "0"]).array();
            assert_eq!(seen.len() % 40, 0);
            for run in seen.chunks(40) {
                let number = |reply: &Reply| {
                    let text = String::from_utf8(reply.clone().bytes()).unwrap();
                    text.split_once(':').unwrap().0.to_owned()
                };
                assert!(run.iter().all(|element| number(element) == number(&run[0])));
            }
        },
    );
}

#[test]
fn a_list_that_is_renamed_has_one_name_and_all_pushes() {
    if !has_transactions() {
        return;
    }
    let doors = two_doors(&crate::door::store("mem:128M"));
    let filling = ".".repeat(100);
    let (renamed, pushed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    meanwhile(
        &doors,
        |client, round| {
            for number in 0..20 {
                let reply = client.say(&format!("rpush from {round}:{number}:{filling}"));
                assert!(matches!(reply, Reply::Integer(1..)), "{reply:?}");
                pushed.fetch_add(1, Ordering::Relaxed);
            }
        },
        |client| {
            let number = renamed.fetch_add(1, Ordering::Relaxed);
            match client.say(&format!("rename from to:{number}")) {
                Reply::Error(text) => assert_eq!(text, "ERR no such key"),
                reply => assert_eq!(reply, Reply::Simple("OK".to_owned())),
            }
        },
    );
    let (mut client, mut found, mut count) = (doors[1].client(), BTreeSet::new(), 0);
    for key in (0..renamed.into_inner()).map(|number| format!("to:{number}")).chain(["from".to_owned()]) {
        let elements = client.say(&format!("lrange {key} 0 -1")).array();
        assert_eq!(client.say(&format!("llen {key}")), integer(elements.len()));
        count += elements.len();
        found.extend(elements.into_iter().map(Reply::bytes));
    }
    assert_eq!((found.len(), count), (pushed.into_inner(), count), "lost or found twice");
    assert_eq!(found.len(), count);
}

/// What is pushed after a removal is there, and no removal leaves a part.
#[test]
fn a_list_that_is_removed_while_others_push_is_whole() {
    if !has_transactions() {
        return;
    }
    let doors = two_doors(&crate::door::store("mem:128M"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pushers: Vec<_> = (0..3)
            .map(|thread| {
                let (door, is_over) = (&doors[thread % 2], &is_over);
                scope.spawn(move || {
                    let (mut client, mut number) = (door.client(), 0);
                    loop {
                        let is_last = is_over.load(Ordering::Acquire);
                        for _ in 0..30 {
                            let reply = client.say(&format!("rpush l {thread}:{number}"));
                            assert!(matches!(reply, Reply::Integer(1..)), "{reply:?}");
                            number += 1;
                        }
                        if is_last {
                            return number;
                        }
                    }
                })
            })
            .collect();
        let mut client = doors[0].client();
        for round in 0..150 {
            let seen = client.say("lrange l 0 -1").array();
            for thread in 0..3 {
                let own = seen.iter().filter_map(|element| {
                    let text = String::from_utf8(element.clone().bytes()).unwrap();
                    let (of, number) = text.split_once(':').unwrap();
                    (of == thread.to_string()).then(|| number.parse::<usize>().unwrap())
                });
                let own: Vec<usize> = own.collect();
                assert!(own.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{own:?}");
            }
            let words = ["del l", "pexpire l 0", "unlink l m", "ltrim l 1 0"][round % 4];
            assert!(!matches!(client.say(words), Reply::Error(_)));
        }
        is_over.store(true, Ordering::Release);
        let pushed: Vec<_> = pushers.into_iter().map(|pusher| pusher.join().unwrap()).collect();
        let left = client.say("lrange l 0 -1").array();
        for (thread, end) in pushed.into_iter().enumerate() {
            for number in end - 30..end {
                let pushed = Reply::bulk(&format!("{thread}:{number}"));
                assert!(left.contains(&pushed), "an element is lost that was pushed after the last removal");
            }
        }
    });
}

#[test]
fn a_killed_gateway_leaves_each_command_whole_or_undone() {
    if !has_transactions() {
        return;
    }
    let (_directory, url, door) = pool_in_a_file();
    let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(3));
    let filling = ".".repeat(300);
    for _ in 0..4 {
        client.say("del a b");
        client.say("rpush a x");
        let acknowledged = kill_amid(&url, &mut dice, |number| match number % 4 {
            // Pairs of elements, in one order.
            0 | 1 => {
                request(&["rpush", "a", &format!("{number}:1{filling}"), &format!("{number}:2{filling}")])
            }
            2 => request(&["lmove", "a", "b", "left", "right"]),
            _ => request(&["lmove", "b", "a", "right", "left"]),
        });
        let lists = transact(&mut client, &["lrange a 0 -1", "lrange b 0 -1", "llen a", "llen b"]).array();
        let lengths = lists[..2].iter().map(|list| integer(list.clone().array().len()));
        assert!(lengths.eq(lists[2..].iter().cloned()));
        let mut names: Vec<Vec<u8>> =
            lists[..2].iter().rev().flat_map(|list| list.clone().array()).map(Reply::bytes).collect();
        assert_eq!(names.remove(0), b"x");
        let pairs = acknowledged.div_ceil(4) + (acknowledged + 2) / 4;
        assert!(
            names.len().is_multiple_of(2) && names.len() / 2 >= pairs.saturating_sub(1),
            "{} {pairs}",
            names.len()
        );
        for pair in names.chunks(2) {
            let number = |name: &[u8]| String::from_utf8_lossy(name).split_once(':').unwrap().0.to_owned();
            assert!(number(&pair[0]) == number(&pair[1]) && pair[0] < pair[1]);
        }
        // The remains of the dead gateway block no client.
        assert_eq!(client.say("lpush a y"), integer(lists[0].clone().array().len() + 1));
        assert_eq!(client.say("lmove a b left left"), Reply::bulk("y"));
    }
}
