//! Hashes and sorted sets through several gateways: no write is lost between gateways, or when one
//! is killed.

use crate::door::{Client, Door, Reply, request};
use darter::Store;
use darter::engine::Engine;
use darter_gateway::GatewayOptions;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

fn two_doors(store: &Store) -> [Door; 2] {
    [(); 2].map(|()| Door::of(store.clone(), GatewayOptions::default()))
}

fn number(reply: Reply) -> i64 {
    match reply {
        Reply::Integer(number) => number,
        other => String::from_utf8(other.bytes()).unwrap().parse().unwrap(),
    }
}

/// Returns members and scores, as a range returns them. Checks that each of them occurs once, in
/// order, and that other commands agree.
fn sorted_set(client: &mut Client, key: &str) -> BTreeMap<Vec<u8>, f64> {
    let replies = client.say(&format!("zrange {key} 0 -1 withscores")).array();
    let pairs: Vec<(f64, Vec<u8>)> = replies
        .chunks(2)
        .map(|pair| {
            let score = String::from_utf8(pair[1].clone().bytes()).unwrap().parse().unwrap();
            (score, pair[0].clone().bytes())
        })
        .collect();
    assert!(pairs.windows(2).all(|pair| pair[0] < pair[1]), "{pairs:?}");
    let members: BTreeMap<Vec<u8>, f64> = pairs.into_iter().map(|(score, member)| (member, score)).collect();
    assert_eq!(replies.len(), members.len() * 2, "a member came twice");
    for count in [format!("zcard {key}"), format!("zcount {key} -inf +inf")] {
        assert_eq!(number(client.say(&count)), i64::try_from(members.len()).unwrap(), "{count}");
    }
    for (member, score) in &members {
        let said = client.ask(&[&b"zscore"[..], key.as_bytes(), member]).bytes();
        let said: f64 = String::from_utf8(said).unwrap().parse().unwrap();
        assert!(said.total_cmp(score).is_eq(), "{said} {score}");
    }
    members
}

#[test]
fn two_gateways_lose_no_increment_of_fields_and_scores() {
    const EACH: usize = 1500;
    let store = crate::door::store("mem:128M");
    let doors = two_doors(&store);
    let (fields, scores) = ([const { AtomicI64::new(0) }; 3], [const { AtomicI64::new(0) }; 3]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (door, fields, scores) = (&doors[thread % 2], &fields, &scores);
            scope.spawn(move || {
                let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(thread as u64));
                for _ in 0..EACH {
                    let (which, by) = (dice.random_range(0..3), [-2, -1, 0, 1, 2][dice.random_range(0..5)]);
                    // Up and down again, so that scores return to earlier values.
                    number(client.say(&format!("hincrby h f{which} {by}")));
                    fields[which].fetch_add(by, Ordering::Relaxed);
                    number(client.say(&format!("zincrby z {by} m{which}")));
                    scores[which].fetch_add(by, Ordering::Relaxed);
                    let own = dice.random_range(0..50);
                    client.say(&format!("zadd z {own} own:{thread}:{own}"));
                    client.say(&format!("zrem z own:{thread}:{}", dice.random_range(0..50)));
                }
            });
        }
    });
    for door in &doors {
        let mut client = door.client();
        let members = sorted_set(&mut client, "z");
        for which in 0..3 {
            let field = number(client.say(&format!("hget h f{which}")));
            assert_eq!(field, fields[which].load(Ordering::Relaxed));
            let score = members[format!("m{which}").as_bytes()];
            assert_eq!(score as i64, scores[which].load(Ordering::Relaxed));
        }
    }
}

/// A command that empties a key, or gives it another type, removes no acknowledged element.
#[test]
fn what_takes_the_place_of_an_empty_key_takes_nothing_else() {
    const EACH: usize = 700;
    let store = crate::door::store("mem:128M");
    let doors = two_doors(&store);
    let is_wrong_type = |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("WRONGTYPE"));
    let met = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (door, met) = (&doors[thread % 2], &met);
            scope.spawn(move || {
                let mut client = door.client();
                let (add, tell, remove) = match thread / 2 {
                    0 => (
                        format!("hset k f{thread} v"),
                        format!("hget k f{thread}"),
                        format!("hdel k f{thread}"),
                    ),
                    1 => (
                        format!("zadd k 7 m{thread}"),
                        format!("zscore k m{thread}"),
                        format!("zrem k m{thread}"),
                    ),
                    _ => ("setnx k x".to_owned(), "get k".to_owned(), "del k".to_owned()),
                };
                for _ in 0..EACH {
                    let reply = client.say(&add);
                    if is_wrong_type(&reply) || thread / 2 == 2 && reply == Reply::Integer(0) {
                        met.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    assert_eq!(reply, Reply::Integer(1), "{add}");
                    assert!(matches!(client.say(&tell), Reply::Bulk(_)), "{add} is lost");
                    assert_eq!(client.say("exists k"), Reply::Integer(1));
                    assert_eq!(client.say(&remove), Reply::Integer(1), "{add} is lost");
                }
            });
        }
    });
    assert!(met.into_inner() > 0, "no two clients met");
    let mut client = doors[0].client();
    for words in ["exists k", "hlen k", "zcard k", "del k"] {
        assert_eq!(client.say(words), Reply::Integer(0), "{words}");
    }
    assert_eq!(client.say("type k"), Reply::Simple("none".to_owned()));
    assert_eq!(client.say("scan 0").array().pop(), Some(Reply::Array(Vec::new())));
}

/// Writes in three clients of two gateways, while another one sends `removal` again and again, with
/// some requests in between. `is_there` writes something that the removal removes, given the numbers
/// of the client and of the write, and returns whether it finds it afterwards: an acknowledged
/// write is only lost to a removal that came after it, or ran at the same time.
pub fn write_beside_removals(
    doors: &[Door; 2],
    (removal, pings): (&str, usize),
    is_there: impl Fn(&mut Client, usize, usize) -> bool + Sync,
) {
    let (begun, ended, lost) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|thread| {
                let (door, begun, ended, lost) = (&doors[thread % 2], &begun, &ended, &lost);
                let is_there = &is_there;
                scope.spawn(move || {
                    let mut client = door.client();
                    for number in 0..1000 {
                        let before = ended.load(Ordering::SeqCst);
                        if !is_there(&mut client, thread, number) {
                            assert!(begun.load(Ordering::SeqCst) > before, "{thread}:{number} is lost");
                            lost.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        let mut client = doors[1].client();
        while workers.iter().any(|worker| !worker.is_finished()) {
            begun.fetch_add(1, Ordering::SeqCst);
            client.say(removal);
            ended.fetch_add(1, Ordering::SeqCst);
            for _ in 0..pings {
                client.say("ping");
            }
        }
    });
    assert!(lost.into_inner() > 0, "no removal ever met a write");
}

/// Returns the number of records in a store that are not heads of keys.
pub fn elements_left(store: &Store) -> usize {
    let session = store.session_in(darter::engine::KeySpace::Gateway).unwrap();
    session.range(..).filter(|record| record.as_ref().is_ok_and(|(key, _)| key[0] != b'k')).count()
}

#[test]
fn only_a_removal_takes_fields_and_members() {
    let store = crate::door::store("mem:128M");
    let doors = two_doors(&store);
    write_beside_removals(&doors, ("del h z", 30), |client, thread, number| {
        client.say(&format!("hset h f{thread} {number}"));
        let value = client.say(&format!("hget h f{thread}"));
        client.say(&format!("zadd z {number} m{thread}"));
        let score = client.say(&format!("zscore z m{thread}"));
        let range = client.say(&format!("zrangebyscore z {number} {number}")).array();
        value == Reply::bulk(&number.to_string())
            && score == value
            && range.contains(&Reply::bulk(&format!("m{thread}")))
    });
    let mut client = doors[0].client();
    sorted_set(&mut client, "z");
    client.say("del h z");
    // Nothing is left, except perhaps the heads of empty keys.
    assert_eq!(elements_left(&store), 0);
}

/// One member's scores, set repeatedly by many clients at once: the member keeps its place.
#[test]
fn a_member_keeps_its_place_when_many_clients_move_it() {
    let store = crate::door::store("mem:64M");
    let doors = two_doors(&store);
    let barrier = Barrier::new(3);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (door, barrier) = (&doors[thread % 2], &barrier);
            scope.spawn(move || {
                let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(thread as u64));
                for round in 0..300 {
                    let scores = [(); 6].map(|()| dice.random_range(0..2).to_string());
                    let asked = scores.map(|score| request(&["zadd", &format!("z{round}"), &score, "m"]));
                    barrier.wait();
                    client.send(&asked.concat());
                    for _ in 0..6 {
                        client.reply();
                    }
                    barrier.wait();
                    assert_eq!(sorted_set(&mut client, &format!("z{round}")).len(), 1, "round {round}");
                }
            });
        }
    });
}

#[test]
fn what_is_popped_is_popped_once() {
    const EACH: usize = 1000;
    let store = crate::door::store("mem:128M");
    let doors = two_doors(&store);
    let mut popped: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads = (0..4).map(|thread| {
            let door = &doors[thread % 2];
            scope.spawn(move || {
                let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(thread as u64));
                let mut popped = Vec::new();
                for number in 0..EACH {
                    client.say(&format!("zadd z {} {thread}:{number}", dice.random_range(0..20)));
                    let replies = client.say(["zpopmin z", "zpopmax z 2"][number % 2]).array();
                    popped.extend(replies.chunks(2).map(|pair| pair[0].clone().bytes()));
                }
                popped
            })
        });
        threads.collect::<Vec<_>>().into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    popped.extend(sorted_set(&mut doors[0].client(), "z").into_keys());
    let count = popped.len();
    popped.sort();
    popped.dedup();
    assert_eq!((popped.len(), count), (4 * EACH, 4 * EACH));
}

/// A gateway in its own process; does nothing in a plain test run.
#[test]
fn gateway_process() {
    let Ok(url) = std::env::var("DARTER_GATEWAY_POOL") else { return };
    let door = Door::of(crate::door::store(&url), GatewayOptions::default());
    println!("\nlistens at {}", door.address);
    std::thread::sleep(Duration::from_secs(600));
}

pub struct Process {
    pub child: Child,
    pub client: Client,
}

impl Process {
    pub fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "aggregates::gateway_process", "--nocapture"])
            .env("DARTER_GATEWAY_POOL", url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|line| line.strip_prefix("listens at ").map(str::to_owned)).unwrap();
        Self { child, client: Client::connect(address.parse().unwrap()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_gateway_killed_during_zadds_leaves_ranges_right() {
    const MEMBERS: usize = 20;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("pool").display());
    let options = crate::door::options().block_bytes(1 << 20);
    let store = options.open(format!("{url}?size=128M")).unwrap();
    let door = Door::of(store, GatewayOptions::default());
    let (mut other, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(3));
    // The possible scores of each member: the last acknowledged one, or one requested since.
    let mut scores: Vec<Vec<Option<f64>>> = vec![vec![None]; MEMBERS];
    for round in 0..12 {
        let mut process = Process::start(&url);
        // Far more than it will have executed when it is killed.
        let (mut requests, mut bytes) = (Vec::new(), Vec::new());
        for _ in 0..40_000 {
            let (member, score) = (dice.random_range(0..MEMBERS), f64::from(dice.random_range(0..10)));
            let is_removal = dice.random_ratio(1, 5);
            requests.push((member, (!is_removal).then_some(score)));
            let (member, score) = (format!("m{member}"), score.to_string());
            bytes.extend(if is_removal {
                request(&["zrem", "z", &member])
            } else {
                request(&["zadd", "z", &score, &member])
            });
        }
        process.client.send(&bytes);
        let read = 1 + dice.random_range(0..1000);
        for _ in 0..read {
            assert!(matches!(process.client.reply(), Reply::Integer(_)));
        }
        process.child.kill().unwrap();
        // Replies sent before it died count too.
        let acknowledged = read + std::iter::from_fn(|| process.client.try_reply()).count();
        for (number, (member, score)) in requests.into_iter().enumerate() {
            if number < acknowledged {
                scores[member].clear();
            }
            scores[member].push(score);
        }
        let found = sorted_set(&mut other, "z");
        for (member, scores) in scores.iter_mut().enumerate() {
            let score = found.get(format!("m{member}").as_bytes()).copied();
            assert!(scores.contains(&score), "round {round}: m{member} has {score:?}, of {scores:?}");
            *scores = vec![score];
        }
    }
}
