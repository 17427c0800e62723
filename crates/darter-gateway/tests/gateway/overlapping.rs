//! Pipelines whose requests overlap, over a pool in which every request waits for round trips.

use crate::differential::{agree, shown};
use crate::door::{Client, Door, Reply, request};
use crate::sentences::{AGGREGATES, SENTENCES, SETS_AND_SORTING, sentence_of};
use darter::engine;
use darter_fabric::decorate::{Delay, Delaying};
use darter_fabric::{Local, Provider};
use darter_gateway::GatewayOptions;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Starts a gateway in which requests of one client overlap.
pub fn overlapping(options: GatewayOptions) -> Door {
    let delay = Delay { pending_before: 1, pending_after: 1, ..Delay::default() };
    let memory = Delaying::new(Local::memory(128 << 20, 1).unwrap(), delay);
    Door::of(engine::create_on(&crate::door::options(), Provider::foreign(memory)).unwrap(), options)
}

pub fn flushing() -> GatewayOptions {
    GatewayOptions { allow_flush: true, ..GatewayOptions::default() }
}

/// Sends requests at once, and reads all replies.
pub fn pipeline(client: &mut Client, requests: &[Vec<Vec<u8>>]) -> Vec<Reply> {
    client.send(&requests.iter().flat_map(|words| request(words)).collect::<Vec<u8>>());
    requests.iter().map(|_| client.reply()).collect()
}

/// Requests on few keys, so that most depend on others, and transactions among them.
#[test]
pub fn pipelines_have_the_replies_of_requests_one_by_one() {
    let (theirs, ours) = (Door::open(), overlapping(flushing()));
    for seed in 1..=6 {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let (mut singly, mut together) = (theirs.client(), ours.client());
        for client in [&mut singly, &mut together] {
            client.say("flushall");
            if seed % 2 == 0 {
                client.say("hello 3");
            }
        }
        for _ in 0..20 {
            let requests: Vec<Vec<Vec<u8>>> = (0..dice.random_range(1..100))
                .map(|_| match dice.random_range(0..60) {
                    0 => vec![b"multi".to_vec()],
                    1 | 2 => vec![b"exec".to_vec()],
                    3 => vec![b"ping".to_vec()],
                    number => {
                        sentence_of(&mut dice, [SENTENCES, AGGREGATES, SETS_AND_SORTING][number as usize % 3])
                    }
                })
                .filter(|words| !words.is_empty())
                .collect();
            let replies = pipeline(&mut together, &requests);
            for (number, (words, reply)) in requests.iter().zip(&replies).enumerate() {
                let expected = singly.ask(words);
                // Parts of the replies in it may be in any order.
                let is_like = match (&expected, reply) {
                    (Reply::Array(theirs), Reply::Array(ours)) if words[0] == b"exec" => {
                        theirs.len() == ours.len()
                    }
                    _ => agree(words, &expected, reply),
                };
                assert!(
                    is_like,
                    "seed {seed}, request {number}: {}\nexpected {expected:?}\nreceived {reply:?}",
                    shown(words)
                );
            }
        }
    }
}

/// Each request depends on the one before it, and on no other.
#[test]
fn a_request_sees_the_changes_of_earlier_ones_of_its_client() {
    let door = overlapping(flushing());
    let mut client = door.client();
    let words = |text: String| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let requests: Vec<_> = (0..200)
        .flat_map(|number| {
            let key = number % 7;
            [
                words(format!("set k{key} {number}")),
                words(format!("get k{key}")),
                words(format!("incr n{key}")),
                words(format!("hset h{key} f {number}")),
                words(format!("hget h{key} f")),
                words(format!("mget k{key} n{key}")),
            ]
        })
        .collect();
    for (number, replies) in (0..).zip(pipeline(&mut client, &requests).chunks(6)) {
        let (bulk, count) = (Reply::bulk(&number.to_string()), number / 7 + 1);
        assert_eq!(replies[1], bulk);
        assert_eq!(replies[2], Reply::Integer(count));
        assert_eq!(replies[4], bulk);
        assert_eq!(replies[5], Reply::Array(vec![bulk, Reply::bulk(&count.to_string())]));
    }
}

#[test]
fn requests_before_quit_are_executed_and_later_ones_are_not() {
    let door = overlapping(flushing());
    let mut client = door.client();
    let sets = (0..50).map(|key| request(&["set".to_owned(), format!("k{key}"), key.to_string()]));
    let mut sent: Vec<u8> = sets.flatten().collect();
    sent.extend(request(&["quit"]));
    sent.extend(request(&["set", "k0", "late"]));
    client.send(&sent);
    assert_eq!(client.rest(), b"+OK\r\n".repeat(51));
    let mut client = door.client();
    for key in 0..50 {
        assert_eq!(client.say(&format!("get k{key}")), Reply::bulk(&key.to_string()));
    }
}

/// Clients that are ended, or go, with requests in progress leave all sessions to others.
#[test]
fn clients_that_end_in_a_pipeline_leave_nothing() {
    let door = overlapping(GatewayOptions { sessions_max: 4, ..flushing() });
    let mut other = door.client();
    for round in 0..30 {
        let mut client = door.client();
        let Reply::Integer(id) = client.say("client id") else { panic!("a client has an id") };
        let requests: Vec<u8> = (0..64)
            .flat_map(|number| {
                request(&["hset".to_owned(), format!("h{number}"), "f".into(), round.to_string()])
            })
            .collect();
        client.send(&requests.repeat(4));
        if round % 2 == 0 {
            other.say(&format!("client kill id {id}"));
        }
        drop(client);
        assert_eq!(other.say(&format!("set k{round} v")), Reply::Simple("OK".to_owned()));
    }
    let gets = (0..64).map(|key| vec![b"hget".to_vec(), format!("h{key}").into_bytes(), b"f".to_vec()]);
    assert!(
        pipeline(&mut other, &gets.collect::<Vec<_>>()).iter().all(|reply| !matches!(reply, Reply::Error(_)))
    );
}

/// Replies of several elements that are too long to wait for earlier ones are produced again.
#[test]
fn long_replies_have_their_place() {
    const FIELDS: usize = 40;
    let door = overlapping(flushing());
    let mut client = door.client();
    let value = "v".repeat(50_000);
    for key in ["g", "h"] {
        for field in 0..FIELDS {
            client.ask(&["hset", key, &format!("f{field}"), &value]);
        }
    }
    let requests: Vec<Vec<Vec<u8>>> = (0..12)
        .map(|number| match number % 4 {
            0 => vec![b"hvals".to_vec(), b"g".to_vec()],
            1 => vec![b"incr".to_vec(), b"n".to_vec()],
            2 => vec![b"hvals".to_vec(), b"h".to_vec()],
            _ => vec![b"hdel".to_vec(), b"h".to_vec(), format!("f{}", number / 4).into_bytes()],
        })
        .collect();
    let replies = pipeline(&mut client, &requests);
    for (number, reply) in (0..).zip(replies) {
        let round = number / 4;
        match number % 4 {
            0 => assert_eq!(reply.array().len(), FIELDS),
            1 => assert_eq!(reply, Reply::Integer(round + 1)),
            2 => assert_eq!(reply.array().len(), FIELDS - usize::try_from(round).unwrap()),
            _ => assert_eq!(reply, Reply::Integer(1)),
        }
    }
}
