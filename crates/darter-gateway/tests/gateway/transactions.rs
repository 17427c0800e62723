//! Transactions are rejected: a `MULTI` and everything up to its end.

use crate::door::{Client, Door, Reply, request};

fn error(reply: Reply) -> String {
    match reply {
        Reply::Error(text) => text,
        other => panic!("not an error: {other:?}"),
    }
}

fn open() -> (Door, Client) {
    let door = Door::open();
    let client = door.client();
    (door, client)
}

#[test]
fn a_refused_multi_executes_nothing_of_its_body() {
    let (_door, mut client) = open();
    // As redis-py and other clients send it: in one piece.
    let body = [&["multi"][..], &["set", "a", "1"], &["incr", "b"], &["nonsense"], &["get"], &["exec"]];
    client.send(&body.iter().flat_map(|words| request(words)).collect::<Vec<u8>>());
    assert!(error(client.reply()).starts_with("ERR MULTI is refused: transactions are not supported"));
    for _ in 0..4 {
        assert!(error(client.reply()).starts_with("ERR not executed: it follows a MULTI"));
    }
    assert_eq!(error(client.reply()), "EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(client.say("exists a b"), Reply::Integer(0));
    assert_eq!(client.say("set a 2"), Reply::Simple("OK".to_owned()));
}

#[test]
fn discard_ends_a_refused_multi() {
    let (door, mut client) = open();
    error(client.say("multi"));
    error(client.say("set a 1"));
    // Another client is not affected.
    assert_eq!(door.client().say("set other 1"), Reply::Simple("OK".to_owned()));
    assert_eq!(client.say("discard"), Reply::Simple("OK".to_owned()));
    assert_eq!(client.say("set a 2"), Reply::Simple("OK".to_owned()));
    assert_eq!(client.say("get a"), Reply::bulk("2"));
    assert_eq!(error(client.say("discard")), "ERR DISCARD without MULTI");
    assert_eq!(error(client.say("exec")), "ERR EXEC without MULTI");
}

#[test]
fn what_redis_hears_within_multi_is_heard_after_a_refused_one() {
    let (_door, mut client) = open();
    error(client.say("multi"));
    assert_eq!(error(client.say("multi")), "ERR MULTI calls can not be nested");
    assert_eq!(error(client.say("watch a")), "ERR WATCH inside MULTI is not allowed");
    assert!(error(client.say("ping")).starts_with("ERR not executed"));
    assert_eq!(client.say("reset"), Reply::Simple("RESET".to_owned()));
    assert_eq!(client.say("ping"), Reply::Simple("PONG".to_owned()));
    error(client.say("multi"));
    assert_eq!(client.say("quit"), Reply::Simple("OK".to_owned()));
    assert!(client.try_reply().is_none());
}

#[test]
fn watch_is_refused_and_changes_nothing() {
    let (_door, mut client) = open();
    assert_eq!(error(client.say("watch a b")), "ERR WATCH is refused: transactions are not supported");
    assert_eq!(error(client.say("unwatch")), "ERR UNWATCH is refused: transactions are not supported");
    assert_eq!(client.say("set a 1"), Reply::Simple("OK".to_owned()));
}
