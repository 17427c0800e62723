//! Gateways as processes: over every index, and two on one pool, one of which is killed and started
//! again while clients continue. The checker checks all replies.

use crate::common::{darter, said};
use crate::daemon::{Client, Daemon};
use darter_check::history::{Action, Operation, Outcome};
use darter_check::linear::{Checker, Verdict, explain};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KEYS: u32 = 3;

/// Performs one random operation and returns it with the client's result.
fn operate(client: &mut Client, who: u32, dice: &mut Pcg64Mcg, clock: &AtomicU64) -> Operation {
    let chance: u64 = dice.random();
    let (key, value) = ((chance % u64::from(KEYS)) as u32, u64::from(who) << 32 | chance & 0xffff_ffff);
    if client.stream.is_none() {
        client.connect();
    }
    let invoked = clock.fetch_add(1, Ordering::SeqCst);
    let (action, words) = match chance >> 8 & 7 {
        0..=2 => (Action::Get, format!("get key:{key}")),
        3 => (Action::Put(value), format!("set key:{key} {value} get")),
        4 => (Action::Insert(value), format!("set key:{key} {value} nx")),
        5 => (Action::Update(value), format!("set key:{key} {value} xx")),
        6 => (Action::Put(value), format!("getset key:{key} {value}")),
        _ => (Action::Delete, format!("del key:{key}")),
    };
    let reply = client.ask(&words);
    let returned = reply.map(|(line, value)| {
        assert!(!line.starts_with('-'), "{words}: {line}");
        let is_null = line == "$-1";
        let outcome = match action {
            Action::Get => Outcome::Found((!is_null).then(|| value.parse().unwrap())),
            Action::Put(_) if is_null => Outcome::Inserted,
            Action::Put(_) => Outcome::Replaced,
            Action::Delete => Outcome::Deleted(line == ":1"),
            _ if is_null => Outcome::Refused,
            Action::Insert(_) => Outcome::Inserted,
            _ => Outcome::Replaced,
        };
        (clock.fetch_add(1, Ordering::SeqCst), outcome)
    });
    Operation { client: who, key, action, invoked, returned }
}

/// Runs clients of two gateways, one of which is killed and started again repeatedly. Checks all
/// their results.
fn kill_one_of_two(pool: &str, kills: usize) {
    let steady = Daemon::gateway(pool, "127.0.0.1:0");
    let mut mortal = Daemon::gateway(pool, "127.0.0.1:0");
    let resp = mortal.address.clone();
    let (clock, has_ended, done) = (AtomicU64::new(1), AtomicBool::new(false), AtomicU64::new(0));
    let history = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for who in 0..4 {
            let address = if who % 2 == 0 { &steady.address } else { &resp };
            let (clock, has_ended, history, done) = (&clock, &has_ended, &history, &done);
            scope.spawn(move || {
                let (mut client, mut dice, mut own) =
                    (Client::new(address), Pcg64Mcg::seed_from_u64(who.into()), Vec::new());
                while !has_ended.load(Ordering::SeqCst) {
                    own.push(operate(&mut client, who, &mut dice, clock));
                    done.fetch_add(1, Ordering::SeqCst);
                }
                history.lock().unwrap().extend(own);
            });
        }
        for _ in 0..kills {
            let before = done.load(Ordering::SeqCst);
            // Whether or not all continue, the clients of the steady gateway must.
            while done.load(Ordering::SeqCst) < before + 300 {
                std::thread::sleep(Duration::from_millis(1));
            }
            mortal.kill();
            mortal = Daemon::gateway(pool, &resp);
        }
        has_ended.store(true, Ordering::SeqCst);
    });
    let history = history.into_inner().unwrap();
    let mut checker = Checker::new();
    for key in 0..KEYS {
        let operations: Vec<Operation> =
            history.iter().filter(|operation| operation.key == key).copied().collect();
        let verdict = checker.check(&operations, None, 20_000_000);
        assert!(matches!(verdict, Verdict::Linearizable { .. }), "{}", explain(&operations, None, &verdict));
    }
}

#[test]
fn a_gateway_serves_any_index_that_keeps_what_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    for index in ["wort", "wort+woart", "wort+artcow", "art", "smart", "sherman", "chime"] {
        let pool = format!("file:{}?size=64M", folder.path().join(index).display());
        let gateway = Daemon::start(&["serve", "--resp", "127.0.0.1:0", "--pool", &pool, "--index", index]);
        let mut client = Client::new(&gateway.address);
        let mut said = |words: &str| client.ask(words).unwrap().0;
        assert_eq!(said("SET pear green"), "+OK", "{index}");
        assert_eq!(said("APPEND pear ish"), ":8", "{index}");
        assert_eq!(said("HSET fruit apple red plum blue"), ":2", "{index}");
        assert_eq!(said("ZADD ripe 2 pear 1 plum"), ":2", "{index}");
        assert_eq!(said("ZRANGE ripe 0 -1"), "*2", "{index}");
        drop(gateway);
        // Its data is there for a command that names the index.
        let again = Daemon::start(&["serve", "--resp", "127.0.0.1:0", "--pool", &pool, "--index", index]);
        let mut client = Client::new(&again.address);
        assert_eq!(client.ask("GET pear"), Some(("$8".to_owned(), "greenish".to_owned())), "{index}");
        assert_eq!(client.ask("HLEN fruit").unwrap().0, ":2", "{index}");
        let other = ["get", "pear", "--pool", &pool, "--index", "quiver"];
        assert_eq!(darter(&other).status.code(), Some(2), "{index}");
    }
}

#[test]
fn clients_of_a_shared_file_do_not_notice_a_killed_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let pool = format!("file:{}", dir.path().join("pool").display());
    kill_one_of_two(&format!("{pool}?size=64M"), 5);
    let check = darter(&["check", "--pool", &pool]);
    assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
}

#[test]
fn clients_of_memory_nodes_do_not_notice_a_killed_gateway() {
    let nodes: Vec<Daemon> =
        (0..2).map(|_| Daemon::start(&["memnode", "--listen", "127.0.0.1:0", "--size", "64M"])).collect();
    let pool = format!("tcp://{},{}", nodes[0].address, nodes[1].address);
    let created = darter(&["pool", "create", "--pool", &pool]);
    assert!(created.status.success(), "{}", said(&created));
    kill_one_of_two(&pool, 3);
    let check = darter(&["check", "--pool", &pool]);
    assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
}
