//! `FUNCTION DUMP` and `FUNCTION RESTORE`, between gateways and a redis-server in both directions.

use crate::door::{Client, Door, Redis, Reply, bulks, error, has_transactions, ok};

/// The code of a library with one function, which returns a word.
fn library(name: &str, function: &str, word: &str) -> String {
    format!("#!lua name={name}\nredis.register_function('{function}', function() return '{word}' end)")
}

fn load(client: &mut Client, code: &str) {
    assert!(matches!(client.ask(&["function", "load", "replace", code]), Reply::Bulk(_)));
}

fn restore(client: &mut Client, payload: &[u8], policy: &str) -> Reply {
    client.ask(&[&b"function"[..], b"restore", payload, policy.as_bytes()])
}

/// Returns what a function replies.
fn called(client: &mut Client, function: &str) -> Reply {
    client.ask(&["fcall", function, "0"])
}

#[test]
fn libraries_move_between_servers() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut ours = door.client();
    let long = format!("{}\n--{}", library("long", "f", "long"), "x".repeat(30_000));
    load(&mut ours, &long);
    load(&mut ours, &library("short", "g", "short"));
    let payload = ours.ask(&["function", "dump"]).bytes();

    let other = Door::open();
    let redis = Redis::start();
    let theirs = redis.as_ref().map(|redis| Client::connect(redis.address));
    for mut client in [Some(other.client()), theirs].into_iter().flatten() {
        load(&mut client, &library("gone", "h", "gone"));
        assert_eq!(restore(&mut client, &payload, "flush"), ok());
        assert_eq!([called(&mut client, "f"), called(&mut client, "g")], ["long", "short"].map(Reply::bulk));
        assert!(error(called(&mut client, "h")).contains("not found"));
        // What this server dumps is restored here.
        load(&mut client, &library("short", "g", "new"));
        let payload = client.ask(&["function", "dump"]).bytes();
        assert_eq!(restore(&mut ours, &payload, "REPLACE"), ok());
        assert_eq!([called(&mut ours, "f"), called(&mut ours, "g")], ["long", "new"].map(Reply::bulk));
        load(&mut ours, &library("short", "g", "short"));
    }
}

#[test]
fn all_libraries_are_restored_or_none() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut ours = door.client();
    let redis = Redis::start();
    let theirs = redis.as_ref().map(|redis| Client::connect(redis.address));
    let mut replies = Vec::new();
    load(&mut ours, &library("a", "f", "a"));
    load(&mut ours, &library("b", "g", "b"));
    let two = ours.ask(&["function", "dump"]).bytes();
    for mut client in [Some(ours), theirs].into_iter().flatten() {
        client.ask(&["function", "flush"]);
        let none = client.ask(&["function", "dump"]).bytes();
        // A library with the name of the second, and then one with its function.
        for taken in [library("b", "h", "here"), library("c", "g", "here")] {
            client.ask(&["function", "flush"]);
            load(&mut client, &taken);
            replies.push(restore(&mut client, &two, "append"));
            replies.push(called(&mut client, "f"));
            replies.push(restore(&mut client, &two, "replace"));
            replies.push(called(&mut client, "f"));
            replies.push(called(&mut client, "h"));
        }
        client.ask(&["function", "flush"]);
        replies.push(Reply::Bulk(none.clone()));
        replies.push(restore(&mut client, &none, "append"));
        replies.push(restore(&mut client, &none, "nosuch"));
        replies.push(restore(&mut client, b"x", "append"));
        let mut damaged = two.clone();
        damaged[3] ^= 1;
        replies.push(restore(&mut client, &damaged, "append"));
        client.say("set k v");
        let value = client.say("dump k").bytes();
        replies.push(restore(&mut client, &value, "append"));
        for line in ["function dump x", "function restore", "function restore a b c"] {
            replies.push(client.say(line));
        }
        replies.push(client.say("function list"));
    }
    let (ours, theirs) = replies.split_at(20);
    assert!(error(ours[0].clone()).contains("Library b already exists"));
    assert!(error(ours[1].clone()).contains("not found") && error(ours[6].clone()).contains("not found"));
    assert_eq!([&ours[2], &ours[3]], [&ok(), &Reply::bulk("a")]);
    assert_eq!(ours[19], bulks(&[]));
    if !theirs.is_empty() {
        for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            assert_eq!(ours, theirs, "reply {at}");
        }
    }
}
