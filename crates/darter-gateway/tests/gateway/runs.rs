//! Runs: requests of a pipeline on one key, which are executed as one transaction.

use crate::blocking::until_waiting;
use crate::differential::{agree, shown};
use crate::door::{Client, Door, Reply, has_transactions, request};
use crate::overlapping::{flushing, overlapping, pipeline};
use crate::several_keys::two_doors;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Requests on one key; `#` becomes a number. Some fail, or are not executed in a run.
const REQUESTS: &[&str] = &[
    "append k #",
    "decrby k #",
    "del k",
    "expire k 1000",
    "get k",
    "hincrby k f #",
    "hset k f # g #",
    "hset k f# #",
    "incr k",
    "incrbyfloat k 0.5",
    "lpop k",
    "lpop k 3",
    "lpop k x",
    "lpush k a# b#",
    "lpush k",
    "lpushx k #",
    "lrange k 0 -1",
    "persist k",
    "pfadd k #",
    "rpop k",
    "rpush k #",
    "sadd k #",
    "sadd k a b #",
    "set k #",
    "set k # nx get",
    "setbit k # 1",
    "setrange k # xyz",
    "smembers k",
    "xadd k 1-# f v",
    "zadd k # m#",
    "zincrby k # m",
    "zrange k 0 -1 withscores",
];

fn words(text: &str, dice: &mut Pcg64Mcg) -> Vec<Vec<u8>> {
    let number = dice.random_range(0..200).to_string();
    text.replace('#', &number).split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Sends requests one by one to a gateway and in a pipeline to another. Both must give the same replies.
fn assert_alike(singly: &mut Client, together: &mut Client, requests: &[Vec<Vec<u8>>], round: usize) {
    for (words, reply) in requests.iter().zip(pipeline(together, requests)) {
        let expected = singly.ask(words);
        assert!(
            agree(words, &expected, &reply),
            "round {round}: {}\nexpected {expected:?}\nreceived {reply:?}",
            shown(words)
        );
    }
}

#[test]
fn runs_have_the_replies_of_requests_one_by_one() {
    for together in [Door::open(), overlapping(flushing())] {
        let alone = Door::open();
        let (mut singly, mut together) = (alone.client(), together.client());
        let mut dice = Pcg64Mcg::seed_from_u64(3);
        for round in 0..400 {
            if round % 8 == 0 {
                singly.say("del k");
                together.say("del k");
            }
            // Mostly requests on one type, among which some are on others.
            let few = [(); 3].map(|()| *REQUESTS.choose(&mut dice).unwrap());
            let count = dice.random_range(1..40);
            let requests: Vec<Vec<Vec<u8>>> = (0..count)
                .map(|_| {
                    let from = if dice.random_ratio(1, 12) { REQUESTS } else { &few[..] };
                    let text = *from.choose(&mut dice).unwrap();
                    words(text, &mut dice)
                })
                .collect();
            assert_alike(&mut singly, &mut together, &requests, round);
        }
    }
}

/// Runs of one command on a list that becomes large and small again, and on a hash whose fields have
/// separate records.
#[test]
fn runs_of_one_command_have_the_replies_of_requests_one_by_one() {
    let (alone, door) = (Door::open(), Door::open());
    let (mut singly, mut together) = (alone.client(), door.client());
    for field in 0..200 {
        for client in [&mut singly, &mut together] {
            client.say(&format!("hset large {field} {}", "v".repeat(20)));
        }
    }
    let mut dice = Pcg64Mcg::seed_from_u64(7);
    let commands = [
        "lpush k #",
        "lpush k # ## ###",
        "rpush k #",
        "rpush k # #",
        "lpushx k #",
        "rpushx k #",
        "lpop k",
        "rpop k",
        "lpushx absent #",
        "lpop absent",
        "rpush large #",
        "rpop large",
        "hset large # x",
        "hincrby large n 1",
    ];
    let long = "x".repeat(300);
    for round in 0..400 {
        // Lists whose elements have separate records need transactions.
        let is_long = dice.random_ratio(1, 6) && has_transactions();
        let command = *commands.choose(&mut dice).unwrap();
        let requests: Vec<Vec<Vec<u8>>> = (0..dice.random_range(4..30))
            .map(|_| words(&command.replace('#', if is_long { &long } else { "#" }), &mut dice))
            .collect();
        if !has_transactions() && round % 4 == 0 {
            singly.say("del k");
            together.say("del k");
        }
        assert_alike(&mut singly, &mut together, &requests, round);
        for read in ["lrange k 0 -1", "hlen large"] {
            assert_eq!(together.say(read), singly.say(read), "round {round}: {read}");
        }
    }
}

fn bulk(reply: Reply) -> Option<Vec<u8>> {
    match reply {
        Reply::Null => None,
        reply => Some(reply.bytes()),
    }
}

/// Two clients at different gateways push, and two others pop, all in runs.
#[test]
fn elements_pushed_and_popped_in_runs_are_neither_lost_nor_doubled() {
    const PUSHED: usize = 100;
    if !has_transactions() {
        return; // without them, a list must fit into its head
    }
    let doors = two_doors(&crate::door::store("mem:128M"));
    let (pushing, popped) = (AtomicUsize::new(2), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for (number, door) in doors.iter().enumerate() {
            let (pushing, popped) = (&pushing, &popped);
            scope.spawn(move || {
                let mut client = door.client();
                for round in 0..PUSHED {
                    let element = |at| format!("{number}:{round}:{at}").into_bytes();
                    let push = |at| vec![b"lpush".to_vec(), b"q".to_vec(), element(at)];
                    let pushes: Vec<_> = (0..16).map(push).collect();
                    let replies = pipeline(&mut client, &pushes);
                    assert!(replies.iter().all(|reply| matches!(reply, Reply::Integer(1..))), "{replies:?}");
                }
                pushing.fetch_sub(1, Ordering::Release);
            });
            scope.spawn(move || {
                let mut client = door.client();
                let pops = vec![vec![b"rpop".to_vec(), b"q".to_vec()]; 16];
                loop {
                    let was_last = pushing.load(Ordering::Acquire) == 0;
                    let got: Vec<_> = pipeline(&mut client, &pops).into_iter().filter_map(bulk).collect();
                    if was_last && got.is_empty() {
                        break;
                    }
                    popped.lock().unwrap().extend(got);
                }
            });
        }
    });
    let popped = popped.into_inner().unwrap();
    let distinct: BTreeSet<_> = popped.iter().collect();
    assert_eq!((popped.len(), distinct.len()), (2 * PUSHED * 16, 2 * PUSHED * 16));
}

#[test]
fn increments_in_runs_are_all_counted() {
    const ROUNDS: usize = 60;
    let doors = two_doors(&crate::door::store("mem:128M"));
    std::thread::scope(|scope| {
        for door in doors.iter().chain(&doors) {
            scope.spawn(move || {
                let (mut client, mut last) = (door.client(), 0);
                for _ in 0..ROUNDS {
                    let requests = vec![vec![b"incr".to_vec(), b"n".to_vec()]; 8];
                    for reply in pipeline(&mut client, &requests) {
                        let Reply::Integer(next) = reply else { panic!("{reply:?}") };
                        assert!(next > last, "{next} after {last}");
                        last = next;
                    }
                }
            });
        }
    });
    assert_eq!(doors[0].client().say("get n"), Reply::bulk(&(4 * ROUNDS * 8).to_string()));
}

#[test]
fn a_run_wakes_the_clients_that_wait_for_its_key() {
    let doors = two_doors(&crate::door::store("mem:128M"));
    for door in &doors {
        let (mut waiting, mut pushing) = (doors[0].client(), door.client());
        waiting.send(&request(&["blpop", "q", "0"]));
        until_waiting(&mut doors[0].client(), 1);
        let pushes = vec![["rpush", "q", "a"].map(|word| word.as_bytes().to_vec()).to_vec(); 6];
        let lengths = pipeline(&mut pushing, &pushes);
        assert_eq!(lengths, (1..=6).map(Reply::Integer).collect::<Vec<_>>());
        assert_eq!(waiting.reply().array(), ["q", "a"].map(Reply::bulk));
        assert_eq!(pushing.say("del q"), Reply::Integer(1));
    }
}

/// Notifications and statistics are those of single commands.
#[test]
fn each_command_of_a_run_is_counted_and_announced() {
    let door = Door::open();
    let (mut client, mut listener) = (door.client(), door.client());
    client.say("config set notify-keyspace-events KEA");
    listener.say("psubscribe __keyevent@0__:*");
    let mut requests = vec![vec![b"incr".to_vec(), b"n".to_vec()]; 5];
    requests.push(["lpush", "n", "x"].map(|word| word.as_bytes().to_vec()).to_vec());
    let replies = pipeline(&mut client, &requests);
    assert_eq!(replies[4], Reply::Integer(5));
    assert!(matches!(&replies[5], Reply::Error(text) if text.starts_with("WRONGTYPE")), "{replies:?}");
    for _ in 0..5 {
        let message = listener.reply().array();
        assert_eq!(message[2..], ["__keyevent@0__:incrby", "n"].map(Reply::bulk));
    }
    let stats = String::from_utf8(client.say("info commandstats").bytes()).unwrap();
    for (command, counts) in [("incr", "calls=5"), ("lpush", "calls=1")] {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:"))).unwrap();
        assert!(line.contains(counts), "{line}");
    }
    assert!(stats.lines().any(|line| line.starts_with("cmdstat_lpush") && line.contains("failed_calls=1")));
}
