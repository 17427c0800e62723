//! Hostile and slow clients: their requests cost them at most their connection, and do not affect
//! other clients.

use crate::corpus;
use crate::door::{Client, Door, Reply, request};
use crate::sentences::sentence;
use darter_gateway::GatewayOptions;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::Write;
use std::time::Duration;

/// Returns this process's resident memory, as counted by the system, in bytes.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
}

fn assert_serves(door: &Door) {
    assert_eq!(door.client().say("ping"), Reply::Simple("PONG".to_owned()));
}

#[test]
fn what_is_announced_and_never_sent_costs_nothing() {
    let door = Door::open();
    let before = resident_bytes();
    let mut clients: Vec<Client> = (0..100).map(|_| door.client()).collect();
    for client in &mut clients {
        client.send(b"*1048576\r\n$536870912\r\nonly a little");
    }
    assert_serves(&door);
    let grown = resident_bytes().saturating_sub(before);
    // Other tests run at the same time.
    assert!(grown < 200 << 20, "{grown} bytes for 100 announcements of 512 MiB");
}

#[test]
fn a_hundred_thousand_nested_arrays_are_refused() {
    let door = Door::open();
    let mut client = door.client();
    let _ = client.reader.get_mut().write_all(&b"*1\r\n".repeat(100_000));
    assert_eq!(client.reply(), Reply::Error("ERR Protocol error: expected '$', got '*'".to_owned()));
    assert!(client.try_reply().is_none());
    assert_serves(&door);
}

#[test]
fn slow_senders_have_their_replies() {
    let door = Door::open();
    let (mut slow, mut other) = (door.client(), door.client());
    for byte in [&request(&["set", "slow", "value"])[..], b"get slow\r\n"].concat() {
        slow.send(&[byte]);
        if byte == b'\n' {
            assert_eq!(other.say("ping"), Reply::Simple("PONG".to_owned()));
        }
    }
    assert_eq!(slow.reply(), Reply::Simple("OK".to_owned()));
    assert_eq!(slow.reply(), Reply::bulk("value"));
}

#[test]
fn a_client_that_never_reads_is_dropped_when_too_many_requests_wait() {
    let options = GatewayOptions { input_bytes_max: 4 << 20, ..GatewayOptions::default() };
    let door = Door::new(options);
    let mut client = door.client();
    client.ask(&["set", "large", &"x".repeat(100_000)]);
    let asking = request(&["get", "large"]).repeat(50);
    let mut deaf = door.client();
    deaf.reader.get_mut().set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    // Until the gateway closes the connection. The system itself holds more on some machines than
    // on others.
    let is_dropped = (0..100_000).any(|_| {
        assert_eq!(client.say("strlen large"), Reply::Integer(100_000));
        deaf.reader.get_mut().write_all(&asking).is_err_and(|error| {
            !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
        })
    });
    assert!(is_dropped);
    assert_serves(&door);
}

#[test]
fn a_client_that_keeps_reading_is_never_dropped() {
    // 50 replies are outstanding at any time, and 400 MB are sent in total.
    const REPLY: usize = 100_000;
    let options = GatewayOptions { buffer_bytes_max: 32 << 20, ..GatewayOptions::default() };
    let door = Door::new(options);
    let mut client = door.client();
    client.ask(&["set", "large", &"x".repeat(REPLY)]);
    let ask = request(&["get", "large"]);
    client.send(&ask.repeat(50));
    for _ in 0..4000 {
        client.send(&ask);
        assert!(matches!(client.reply(), Reply::Bulk(value) if value.len() == REPLY));
    }
}

#[test]
fn a_client_that_writes_much_before_reading_gets_all_replies() {
    const REQUESTS: usize = 200_000;
    let door = Door::open();
    let mut client = door.client();
    client.say("set key 0123456789012345678901234567890123456789");
    // More than sockets hold, in both directions, without any reading.
    client.send(&request(&["get", "key"]).repeat(REQUESTS));
    for _ in 0..REQUESTS {
        assert!(matches!(client.reply(), Reply::Bulk(_)));
    }
}

#[test]
fn a_reply_that_is_too_long_is_refused() {
    let door = Door::new(GatewayOptions { output_bytes_max: 1 << 20, ..GatewayOptions::default() });
    let mut client = door.client();
    for number in 0..100 {
        client.ask(&["set", &format!("k{number}"), &"x".repeat(50_000)]);
    }
    for words in [
        "range - +",
        "mget k1 k2 k3 k4 k5 k6 k7 k8 k9 k10 k11 k12 k13 k14 k15 k16 k17 k18 k19 k20 k21 k22 k23",
    ] {
        assert!(
            matches!(client.say(words), Reply::Error(text) if text.contains("--output-bytes")),
            "{words}"
        );
    }
    assert_eq!(client.say("range - + limit 10").array().len(), 20);
}

#[test]
fn too_many_are_turned_away() {
    let door = Door::new(GatewayOptions { connections_max: 3, ..GatewayOptions::default() });
    let mut clients: Vec<Client> = (0..3).map(|_| door.client()).collect();
    for client in &mut clients {
        client.say("ping");
    }
    let mut fourth = door.client();
    assert_eq!(fourth.try_reply(), Some(Reply::Error("ERR max number of clients reached".to_owned())));
    assert!(fourth.try_reply().is_none());
    drop(clients.pop());
    for attempt in 0.. {
        let mut client = door.client();
        let _ = client.reader.get_mut().write_all(b"PING\r\n");
        if client.try_reply() == Some(Reply::Simple("PONG".to_owned())) {
            break;
        }
        assert!(attempt < 1000, "the place stays occupied");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn strangers_are_let_in_by_the_password_only() {
    let door = Door::new(GatewayOptions { password: "open sesame".into(), ..GatewayOptions::default() });
    let mut client = door.client();
    let no_auth = Reply::Error("NOAUTH Authentication required.".to_owned());
    assert_eq!(client.say("get a"), no_auth);
    assert_eq!(client.say("ping"), no_auth);
    assert!(matches!(client.say("hello 3"), Reply::Error(text) if text.starts_with("NOAUTH HELLO")));
    for wrong in [&["auth", "sesame"][..], &["auth", "other", "open sesame"], &["auth", "default", ""]] {
        assert!(
            matches!(client.ask(wrong), Reply::Error(text) if text.starts_with("WRONGPASS")),
            "{wrong:?}"
        );
    }
    assert_eq!(client.ask(&["auth", "open sesame"]), Reply::Simple("OK".to_owned()));
    assert_eq!(client.say("get a"), Reply::Null);
    assert_eq!(client.say("reset"), Reply::Simple("RESET".to_owned()));
    assert_eq!(client.say("get a"), no_auth);
    assert!(matches!(
        client.ask(&["hello", "3", "auth", "default", "open sesame", "setname", "me"]),
        Reply::Map(_)
    ));
    assert_eq!(client.say("client getname"), Reply::bulk("me"));
    let mut stranger = door.client();
    stranger.send(b"*1\r\n$20000\r\n");
    assert_eq!(stranger.reply(), Reply::Error("ERR Protocol error: unauthenticated bulk length".to_owned()));
    assert!(stranger.try_reply().is_none());
}

#[test]
fn requests_after_the_password_are_trusted() {
    let door = Door::new(GatewayOptions { password: "open sesame".into(), ..GatewayOptions::default() });
    let mut client = door.client();
    let (auth, long) = (request(&["auth", "open sesame"]), request(&["set", "a", &"x".repeat(20_000)]));
    client.send(&[auth, long].concat());
    assert_eq!(client.reply(), Reply::Simple("OK".to_owned()));
    assert_eq!(client.reply(), Reply::Simple("OK".to_owned()));
}

#[test]
fn clients_can_be_listed_and_ended() {
    let door = Door::new(GatewayOptions { threads: 2, ..GatewayOptions::default() });
    let (mut client, mut other) = (door.client(), door.client());
    let Reply::Integer(id) = other.say("client id") else { panic!("no number") };
    let list = String::from_utf8(client.say("client list").bytes()).unwrap();
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains(&format!("id={id} ")), "{list}");
    assert_eq!(client.say(&format!("client kill id {id}")), Reply::Integer(1));
    assert!(other.try_reply().is_none());
    let Reply::Integer(own) = client.say("client id") else { panic!("no number") };
    assert_eq!(client.say(&format!("client kill id {own} skipme no")), Reply::Integer(1));
    assert!(client.try_reply().is_none());
}

#[test]
fn a_waiting_client_holds_no_buffers() {
    let door = Door::open();
    let mut clients: Vec<Client> = (0..1000).map(|_| door.client()).collect();
    let before = resident_bytes();
    let value = "x".repeat(100_000);
    clients[0].ask(&["set", "key", &value]);
    for client in &mut clients {
        assert!(matches!(client.ask(&["echo", &value]), Reply::Bulk(_)));
        assert!(matches!(client.say("get key"), Reply::Bulk(_)));
    }
    let grown = resident_bytes().saturating_sub(before);
    // Apart from each client's own memory, there is this end's and that of other tests.
    assert!(grown < 1000 * (64 << 10), "{} bytes for each of 1000 clients", grown / 1000);
}

/// Sends bytes in pieces. Returns the complete response.
fn provoke(door: &Door, pieces: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut client = door.client();
    for piece in pieces {
        if client.reader.get_mut().write_all(&piece).is_err() {
            break;
        }
    }
    client.reader.get_mut().shutdown(std::net::Shutdown::Write).unwrap_or_default();
    client.rest()
}

/// `DARTER_FUZZ_KEEP=1` writes the actual outcomes to the files.
#[test]
fn the_corpus_is_true() {
    let keeps = std::env::var_os("DARTER_FUZZ_KEEP").is_some();
    for case in corpus::read() {
        let door = Door::open();
        let outcome = provoke(&door, case.pieces().into_iter());
        if keeps {
            case.keep(&outcome);
        } else {
            assert_eq!(corpus::shown(&outcome), case.outcome(), "{}", case.path.display());
        }
        assert_serves(&door);
    }
}

/// Requests of the corpus and random ones, cut, doubled and damaged: the gateway keeps serving.
/// `DARTER_FUZZ_SEED` sets another seed, `DARTER_FUZZ_CASES` the number of cases.
#[test]
fn damaged_requests_harm_no_other_client() {
    let door = Door::new(GatewayOptions { threads: 2, ..GatewayOptions::default() });
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first = number("DARTER_FUZZ_SEED", 1);
    let cases: Vec<Vec<u8>> = corpus::read().iter().map(|case| case.pieces().concat()).collect();
    for seed in first..first + number("DARTER_FUZZ_CASES", 200) {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let mut bytes = Vec::new();
        for _ in 0..=dice.random_range(0..20) {
            if dice.random_ratio(1, 8) {
                let case = &cases[dice.random_range(0..cases.len())];
                bytes.extend_from_slice(&case[..case.len().min(10_000)]);
            }
            bytes.extend(request(&sentence(&mut dice)));
        }
        for _ in 0..dice.random_range(0..4) {
            let (at, to) = (dice.random_range(0..bytes.len()), dice.random_range(0..bytes.len()));
            match dice.random_range(0..4) {
                0 => bytes[at] = dice.random::<u8>(),
                1 => bytes.truncate(at.max(1)),
                2 => bytes.insert(at, b"*$\r\n0"[dice.random_range(0..5)]),
                _ => bytes.extend_from_within(at.min(to)..at.max(to)),
            }
        }
        let size = 1 + dice.random_range(0..bytes.len());
        // The gateway may reply and close the connection; it serves the next client in any case.
        let replies = provoke(&door, bytes.chunks(size).map(<[u8]>::to_vec));
        assert!(replies.len() < 16 << 20, "DARTER_FUZZ_SEED={seed} DARTER_FUZZ_CASES=1");
        let pong = door.client().say("ping");
        assert_eq!(pong, Reply::Simple("PONG".to_owned()), "DARTER_FUZZ_SEED={seed} DARTER_FUZZ_CASES=1");
    }
}
