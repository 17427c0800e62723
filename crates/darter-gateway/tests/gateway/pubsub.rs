//! Publish/subscribe at one gateway: the same bytes as redis-server sends, transactions, scripts,
//! and subscribers that do not read.

use crate::door::{Client, Door, Redis, Reply, index, request};
use crate::peers::{message, subscribe};
use darter::IndexKind;
use darter_gateway::GatewayOptions;
use std::io::{BufRead, Read};
use std::net::SocketAddr;

/// Sends a request, and returns all bytes up to the reply to a `PING` after it.
fn bytes_of(client: &mut Client, line: &str) -> String {
    client.send(format!("{line}\r\nPING end-of-this-step\r\n").as_bytes());
    bytes_until_end(client)
}

fn bytes_until_end(client: &mut Client) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"end-of-this-step\r\n") {
        assert!(client.reader.read_until(b'\n', &mut bytes).unwrap() > 0, "{}", bytes.escape_ascii());
    }
    String::from_utf8(bytes).unwrap()
}

/// Runs steps of a subscriber (`>`) and a publisher (`<`), and returns what the two receive.
pub fn transcript(address: SocketAddr, steps: &[&str]) -> Vec<String> {
    let (mut subscriber, mut publisher) = (Client::connect(address), Client::connect(address));
    let steps = steps.iter().map(|step| match step.split_at(1) {
        (">", line) => bytes_of(&mut subscriber, line),
        (_, line) => bytes_of(&mut publisher, line),
    });
    steps.collect()
}

const STEPS: &[&str] = &[
    ">SUBSCRIBE a b",
    ">SUBSCRIBE a",
    "<PUBLISH a one",
    "<PUBLISH b \"\"",
    ">PSUBSCRIBE ?",
    "<PUBLISH c two",
    ">PING",
    ">PING text",
    ">PING too many",
    ">GET k",
    ">CLIENT GETNAME",
    ">PUBLISH a self",
    ">NOSUCH",
    ">SUBSCRIBE",
    "<PUBSUB NUMSUB a b c",
    "<PUBSUB NUMPAT",
    "<PUBSUB CHANNELS b*",
    "<PUBSUB SHARDNUMSUB a",
    ">SSUBSCRIBE a",
    "<SPUBLISH a three",
    "<PUBSUB SHARDNUMSUB a",
    "<PUBSUB SHARDCHANNELS",
    ">UNSUBSCRIBE a",
    ">UNSUBSCRIBE nothing",
    ">UNSUBSCRIBE",
    ">UNSUBSCRIBE",
    ">PUNSUBSCRIBE nothing ?",
    ">PUNSUBSCRIBE",
    ">SUNSUBSCRIBE",
    ">SUNSUBSCRIBE",
    ">SUNSUBSCRIBE x",
    ">GET k",
    ">SUBSCRIBE a",
    ">RESET",
    "<PUBLISH a lost",
    ">PING",
    "<PUBSUB CHANNELS",
    "<PUBSUB NUMSUB",
    "<PUBSUB",
    "<PUBSUB NOSUCH",
    "<PUBSUB NUMPAT x",
    "<PUBSUB CHANNELS a b",
    "<PUBLISH a",
    "<SPUBLISH a",
    "<SSUBSCRIBE",
];

#[test]
fn subscribers_receive_the_bytes_that_redis_sends() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    for hello in ["HELLO 2", "HELLO 3"] {
        // What HELLO itself replies differs.
        let hello = [format!(">{hello}"), format!("<{hello}")];
        let steps: Vec<&str> = hello.iter().map(String::as_str).chain(STEPS.iter().copied()).collect();
        let replies = [redis.address, door.address].map(|address| transcript(address, &steps));
        for (at, step) in steps.iter().enumerate().skip(2) {
            assert_eq!(replies[1][at], replies[0][at], "{}, {step}", steps[0]);
        }
    }
}

#[test]
fn transactions_subscribe_and_publish_as_those_of_redis() {
    if index() == IndexKind::Dart {
        return;
    }
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let steps = [
        ">MULTI\r\nSUBSCRIBE a b\r\nSSUBSCRIBE c\r\nEXEC",
        "<MULTI\r\nPUBLISH a one\r\nPUBLISH b two\r\nPUBLISH c lost\r\nEXEC",
        ">PING",
        "<MULTI\r\nPUBLISH a lost\r\nDISCARD",
        ">UNSUBSCRIBE a b",
        "<EVAL \"return redis.call('PUBLISH', 'a', 'x')\" 0",
    ];
    let replies = [redis.address, door.address].map(|address| transcript(address, &steps));
    for (at, step) in steps.iter().enumerate() {
        assert_eq!(replies[1][at], replies[0][at], "{step}");
    }
}

#[test]
fn a_transaction_publishes_once_and_only_if_it_is_executed() {
    const EACH: usize = 200;
    if index() == IndexKind::Dart {
        return;
    }
    let door = Door::new(GatewayOptions { threads: 2, ..GatewayOptions::default() });
    let mut subscriber = door.client();
    subscribe(&mut subscriber, "c");
    // All transactions change one key, so that many run again.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = door.client();
                for _ in 0..EACH {
                    client.send(b"MULTI\r\nINCR k\r\nPUBLISH c text\r\nEXEC\r\n");
                    (0..3).for_each(|_| drop(client.reply()));
                    assert_eq!(client.reply().array()[1], Reply::Integer(1));
                }
            });
        }
    });
    let mut client = door.client();
    client.say("watch k");
    door.client().say("incr k");
    client.say("multi");
    client.say("publish c lost");
    assert_eq!(client.say("exec"), Reply::Null);
    client.say("eval redis.call('publish','c','script') 0");
    let failed = client.ask(&["eval", "redis.call('publish','c','failed') return redis.call('nosuch')", "0"]);
    assert!(matches!(failed, Reply::Error(_)));
    client.say("publish c last");
    for _ in 0..4 * EACH {
        assert_eq!(subscriber.reply(), message("c", "text"));
    }
    for text in ["script", "failed", "last"] {
        assert_eq!(subscriber.reply(), message("c", text));
    }
}

#[test]
fn a_subscriber_that_does_not_read_is_cut_off_and_no_other() {
    let door = Door::new(GatewayOptions { message_bytes_max: 1 << 20, ..GatewayOptions::default() });
    let (mut slow, mut quick) = (door.client(), door.client());
    subscribe(&mut slow, "c");
    subscribe(&mut quick, "c");
    let (mut publisher, text) = (door.client(), "x".repeat(64 << 10));
    let ask = request(&["publish", "c", &text]);
    let mut published = 0;
    // The sockets' buffers hold some megabytes.
    loop {
        assert!(published < 10_000, "a subscriber that does not read is not cut off");
        published += 1;
        publisher.send(&ask);
        let receivers = publisher.reply();
        assert_eq!(quick.reply(), message("c", &text));
        if receivers == Reply::Integer(1) {
            break;
        }
    }
    let received = slow.rest();
    assert!(received.len() < published * text.len(), "{} bytes", received.len());
    let info = String::from_utf8(publisher.say("info stats").bytes()).unwrap();
    assert!(info.contains("pubsub_channels:1\r\n"), "{info}");
}

#[test]
fn messages_that_no_memory_is_left_for_cut_their_subscribers_off() {
    let options = GatewayOptions { buffer_bytes_max: 8 << 20, ..GatewayOptions::default() };
    let door = Door::new(options);
    let mut subscribers: Vec<Client> = (0..20)
        .map(|number| {
            let mut client = door.client();
            subscribe(&mut client, &format!("c{number}"));
            client
        })
        .collect();
    let (mut publisher, text) = (door.client(), "x".repeat(256 << 10));
    let mut number = 0;
    // Each subscriber has its own messages, and none reads.
    while publisher.say("pubsub channels") != Reply::Array(Vec::new()) {
        assert!(number < 20_000, "subscribers are not cut off");
        number += 1;
        publisher.ask(&["publish", &format!("c{}", number % 20), &text]);
    }
    assert_eq!(publisher.say("ping"), Reply::Simple("PONG".to_owned()));
    for client in subscribers.drain(..) {
        assert!(client.rest().len() < number * text.len());
    }
}

#[test]
fn a_client_of_resp3_sends_requests_while_it_is_subscribed() {
    let door = Door::open();
    let (mut client, mut publisher) = (door.client(), door.client());
    client.say("hello 3");
    let subscribed = vec![Reply::bulk("subscribe"), Reply::bulk("c"), Reply::Integer(1)];
    assert_eq!(client.say("subscribe c"), Reply::Push(subscribed));
    assert_eq!(client.say("set k v"), Reply::Simple("OK".to_owned()));
    assert_eq!(publisher.say("publish c text"), Reply::Integer(1));
    client.send(b"GET k\r\n");
    let replies = [client.reply(), client.reply()];
    let push = Reply::Push(["message", "c", "text"].map(Reply::bulk).to_vec());
    assert_eq!(replies, [push, Reply::bulk("v")]);
}

#[test]
fn client_list_shows_subscriptions_and_transactions() {
    let door = Door::open();
    let (mut subscriber, mut client) = (door.client(), door.client());
    subscriber.send(b"SUBSCRIBE a b\r\nPSUBSCRIBE *\r\nSSUBSCRIBE a b c\r\n");
    (0..6).for_each(|_| drop(subscriber.reply()));
    let list = |client: &mut Client, words: &str| String::from_utf8(client.say(words).bytes()).unwrap();
    let subscribers = list(&mut client, "client list type pubsub");
    assert!(subscribers.contains("flags=P db=0 sub=2 psub=1 ssub=3 multi=-1 "), "{subscribers}");
    assert_eq!(subscribers.lines().count(), 1);
    assert!(!list(&mut client, "client list type normal").contains("psub=1"));
    let mut other = door.client();
    other.say("multi");
    // Over DART nothing is queued.
    let queued = usize::from(other.say("ping") == Reply::Simple("QUEUED".to_owned()));
    let state = format!("flags=x db=0 sub=0 psub=0 ssub=0 multi={queued} ");
    assert!(list(&mut client, "client list").contains(&state));
    assert_eq!(client.say("client kill type pubsub"), Reply::Integer(1));
    assert!(subscriber.rest().is_empty());
}

/// A pattern that takes long to match, and a channel to match it with.
#[test]
fn long_patterns_delay_no_other_client() {
    let door = Door::open();
    let mut subscriber = door.client();
    let pattern = format!("*{}b*", "a".repeat(2000));
    let subscribed = vec![Reply::bulk("psubscribe"), Reply::bulk(&pattern), Reply::Integer(1)];
    assert_eq!(subscriber.ask(&["psubscribe", &pattern]), Reply::Array(subscribed));
    let mut publisher = door.client();
    assert_eq!(publisher.ask(&["publish", &"a".repeat(200_000), "x"]), Reply::Integer(0));
    let longest = String::from_utf8(publisher.say("info stats").bytes()).unwrap();
    let longest = longest.lines().find_map(|line| line.strip_prefix("longest_turn_bytes:")).unwrap();
    assert!(longest.parse::<usize>().unwrap() < 1 << 20, "{longest}");
    let long = "?".repeat(100_000);
    assert!(matches!(publisher.ask(&["psubscribe", "a", &long]), Reply::Error(_)));
    assert_eq!(publisher.say("pubsub numpat"), Reply::Integer(1));
    let mut nothing = [0];
    subscriber.reader.get_mut().set_nonblocking(true).unwrap();
    assert!(subscriber.reader.read(&mut nothing).is_err());
}
