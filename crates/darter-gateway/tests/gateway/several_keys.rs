//! Commands on several keys, through several gateways and when one is killed: `MSETNX`, `RENAME`,
//! `COPY`.

use crate::aggregates::Process;
use crate::door::{Client, Door, Reply, index, integer, request};
use darter::{IndexKind, Store};
use darter_gateway::GatewayOptions;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

pub fn two_doors(store: &Store) -> [Door; 2] {
    [(); 2].map(|()| Door::of(store.clone(), GatewayOptions::default()))
}

/// Runs the same actions at the same time in four clients, two at each gateway, with their numbers.
pub fn by_four_clients(doors: &[Door; 2], act: impl Fn(&mut Client, usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (door, act) = (&doors[thread % 2], &act);
            scope.spawn(move || act(&mut door.client(), thread));
        }
    });
}

/// Runs the same actions in four clients, two at each gateway, in every round. Each client gets the
/// barrier at which they start together, the round's number and its own number. Returns the sum of
/// the clients' results in each round.
fn race(
    doors: &[Door; 2],
    rounds: usize,
    act: impl Fn(&mut Client, &Barrier, usize, usize) -> i64 + Sync,
) -> Vec<i64> {
    let start = Barrier::new(4);
    let sums: Vec<_> = (0..rounds).map(|_| AtomicI64::new(0)).collect();
    by_four_clients(doors, |client, thread| {
        for (round, sum) in sums.iter().enumerate() {
            sum.fetch_add(act(client, &start, round, thread), Ordering::Relaxed);
        }
    });
    sums.into_iter().map(AtomicI64::into_inner).collect()
}

#[test]
fn of_clients_that_want_overlapping_keys_one_sets_all_of_its() {
    if index() == IndexKind::Dart {
        return;
    }
    let store = crate::door::store("mem:128M");
    let doors = two_doors(&store);
    let winners = race(&doors, 150, |client, start, round, thread| {
        start.wait();
        // Each in another order, and all with one key in common.
        let mut keys = [format!("{round}:own:{thread}"), format!("{round}:common")];
        keys.rotate_left(thread % 2);
        integer(client.say(&format!("msetnx {} {thread} {} {thread}", keys[0], keys[1])))
    });
    let mut client = doors[0].client();
    for (round, winners) in winners.into_iter().enumerate() {
        assert_eq!(winners, 1, "round {round}");
        let winner = String::from_utf8(client.say(&format!("get {round}:common")).bytes()).unwrap();
        for thread in 0..4 {
            let own = client.say(&format!("get {round}:own:{thread}"));
            let expected = if thread.to_string() == winner { Reply::bulk(&winner) } else { Reply::Null };
            assert_eq!(own, expected, "round {round}, thread {thread}");
        }
    }
}

#[test]
fn what_is_set_at_once_is_seen_at_once() {
    if index() == IndexKind::Dart {
        return;
    }
    let store = crate::door::store("mem:128M");
    let doors = two_doors(&store);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = doors[0].client();
            for round in 0..500 {
                assert_eq!(
                    client.say(&format!("msetnx {round}:b x {round}:a x {round}:c x")),
                    Reply::Integer(1)
                );
            }
            is_over.store(true, Ordering::Release);
        });
        let mut client = doors[1].client();
        let mut round = 0;
        while !is_over.load(Ordering::Acquire) {
            // A client that has seen one of them sees the others afterwards.
            if client.say(&format!("exists {round}:c")) == Reply::Integer(1) {
                let values = client.say(&format!("mget {round}:a {round}:b {round}:c"));
                assert_eq!(values, Reply::Array(vec![Reply::bulk("x"); 3]), "round {round}");
                round += 1;
            }
        }
    });
}

#[test]
fn msetnx_knows_keys_of_every_kind() {
    if index() == IndexKind::Dart {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    client.say("hset hash f v");
    client.say("set over x px 1");
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(client.say("msetnx a 1 hash 2"), Reply::Integer(0));
    assert_eq!(client.say("exists a"), Reply::Integer(0));
    client.say("hdel hash f");
    assert_eq!(client.say("msetnx a 1 hash 2 over 3 a 4"), Reply::Integer(1));
    assert_eq!(client.say("mget a hash over"), Reply::Array(["4", "2", "3"].map(Reply::bulk).to_vec()));
    assert!(matches!(client.say("msetnx a 1 b"), Reply::Error(text) if text.contains("wrong number")));
}

/// Starts a gateway over a pool, sends it requests, and kills it before it can execute all of them.
/// Returns the number of acknowledged requests.
pub fn kill_amid(url: &str, dice: &mut Pcg64Mcg, ask: impl Fn(usize) -> Vec<u8>) -> usize {
    let mut process = Process::start(url);
    let done = 1 + dice.random_range(0..20);
    for number in 0..done {
        process.client.send(&ask(number));
        assert!(!matches!(process.client.reply(), Reply::Error(_)));
    }
    process.client.send(&(done..done + 500).flat_map(&ask).collect::<Vec<u8>>());
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    done + std::iter::from_fn(|| process.client.try_reply()).count()
}

/// A pool in a file, and a gateway over it that keeps running.
pub fn pool_in_a_file() -> (tempfile::TempDir, String, Door) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("pool").display());
    let store = crate::door::options().block_bytes(1 << 20).open(format!("{url}?size=128M")).unwrap();
    (directory, url, Door::of(store, GatewayOptions::default()))
}

#[test]
fn a_gateway_killed_during_msetnx_has_set_all_keys_or_none() {
    if index() == IndexKind::Dart {
        return;
    }
    let (_directory, url, door) = pool_in_a_file();
    let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(11));
    for round in 0..4 {
        let keys = |number: usize| ["a", "b", "c"].map(|part| format!("{round}:{number}:{part}"));
        let acknowledged = kill_amid(&url, &mut dice, |number| {
            let [a, b, c] = keys(number);
            request(&["msetnx", &c, "x", &a, "x", &b, "x"])
        });
        for number in 0..acknowledged + 200 {
            let [a, b, c] = keys(number);
            let count = integer(client.ask(&["exists", &a, &b, &c]));
            let expected: &[i64] = if number < acknowledged { &[3] } else { &[0, 3] };
            assert!(expected.contains(&count), "round {round}, {number}: {count} of three keys");
            if count == 0 {
                // The remains of the dead gateway block no client.
                assert_eq!(client.ask(&["msetnx", &b, "y", &a, "y"]), Reply::Integer(1));
                assert_eq!(client.ask(&["set", &c, "y", "nx"]), Reply::Simple("OK".to_owned()));
            }
        }
    }
}

#[test]
fn a_gateway_killed_during_renames_loses_no_hash() {
    // A hash cycles through three names.
    let name = |number: usize| format!("h{}", number % 3);
    let fields: Vec<String> = (0..20).flat_map(|field| [format!("f{field}"), "v".repeat(field)]).collect();
    let (_directory, url, door) = pool_in_a_file();
    let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(12));
    for round in 0..4 {
        client.ask(&["del", "h0", "h1", "h2"]);
        client.ask(&[&["hset", "h0"], &fields.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
        kill_amid(&url, &mut dice, |number| request(&["rename", &name(number), &name(number + 1)]));
        // Whole, under one name, or under two if the gateway was between the steps.
        let counts = [0, 1, 2].map(|number| integer(client.ask(&["hlen", &name(number)])));
        assert!(counts.iter().all(|count| [0, 20].contains(count)), "round {round}: {counts:?}");
        let whole = counts.iter().filter(|&&count| count == 20).count();
        assert!((1..=2).contains(&whole), "round {round}: {counts:?}");
    }
}

#[test]
fn a_rename_loses_nothing_that_is_added_while_it_runs() {
    const RENAMES: usize = 60;
    let store = crate::door::store("mem:128M");
    let doors = two_doors(&store);
    let is_over = AtomicBool::new(false);
    let added = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut client, mut added) = (doors[0].client(), 0);
            while !is_over.load(Ordering::Acquire) {
                assert_eq!(client.say(&format!("hset from f{added} v")), Reply::Integer(1));
                added += 1;
                // A rename needs a moment without any change.
                client.send(&request(&["ping"]).repeat(200));
                (0..200).for_each(|_| drop(client.reply()));
            }
            added
        });
        let mut client = doors[1].client();
        let mut unexpected = Vec::new();
        for number in 0..RENAMES {
            match client.say(&format!("rename from to:{number}")) {
                Reply::Simple(_) => {}
                Reply::Error(text) if text == "ERR no such key" => {}
                Reply::Error(text) if text.starts_with("ERR other clients keep changing the key") => {
                    client.say(&format!("del to:{number}"));
                }
                other => unexpected.push(other),
            }
        }
        is_over.store(true, Ordering::Release);
        assert_eq!(unexpected, []);
        writer.join().unwrap()
    });
    // A field written during the removal of its key may be found twice, as with a DEL.
    let (mut client, mut found) = (doors[0].client(), BTreeSet::new());
    for key in (0..RENAMES).map(|number| format!("to:{number}")).chain(["from".to_owned()]) {
        found.extend(client.say(&format!("hkeys {key}")).array().into_iter().map(Reply::bytes));
    }
    let missing = (0_usize..added).filter(|number| !found.contains(format!("f{number}").as_bytes()));
    assert_eq!(missing.count(), 0, "acknowledged fields are missing");
}

#[test]
fn of_clients_that_rename_to_one_key_one_gets_it() {
    let store = crate::door::store("mem:128M");
    let winners = race(&two_doors(&store), 100, |client, start, round, thread| {
        let own = format!("{round}:{thread}");
        if thread < 2 {
            client.say(&format!("zadd {own} {thread} m"));
        } else {
            client.say(&format!("set {own} {thread}"));
        }
        start.wait();
        let is_mine = integer(client.say(&format!("renamenx {own} {round}:taken")));
        assert_eq!(integer(client.say(&format!("exists {own}"))), 1 - is_mine);
        is_mine
    });
    assert!(winners.into_iter().all(|winners| winners == 1));
}
