//! Many clients at once, and values that are too long.

use crate::door::{Client, Door, Reply, request};
use darter_gateway::{Gateway, GatewayOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Returns a number of `INFO`.
fn info(client: &mut Client, name: &str) -> usize {
    let text = String::from_utf8(client.say("info all").bytes()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.parse().unwrap()
}

/// Returns the longest value, as the gateway reports it.
fn longest(client: &mut Client) -> usize {
    let reply = client.say("config get proto-max-bulk-len").array();
    String::from_utf8(reply[1].clone().bytes()).unwrap().parse().unwrap()
}

#[test]
fn a_thousand_clients_connect_before_the_first_is_accepted() {
    let system = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let clients = system.trim().parse::<usize>().unwrap().min(1000);
    let store = crate::door::store("mem:64M");
    let gateway = Gateway::bind("127.0.0.1:0".parse().unwrap(), store, GatewayOptions::default()).unwrap();
    // The gateway accepts no connection. Connections beyond the backlog would never be established.
    let address = gateway.address().unwrap();
    let connected: Vec<TcpStream> = (0..clients)
        .map(|_| TcpStream::connect_timeout(&address, Duration::from_secs(60)).unwrap())
        .collect();
    assert_eq!(connected.len(), clients);
}

#[test]
fn the_longest_value_is_what_config_says() {
    let door = Door::open();
    let mut client = door.client();
    let longest = longest(&mut client);
    let value = vec![b'x'; longest + 1];
    assert_eq!(client.ask(&[&b"set"[..], &b""[..], &value[1..]]), Reply::Simple("OK".to_owned()));
    assert_eq!(client.say("strlen "), Reply::Integer(i64::try_from(longest).unwrap()));
    let refused = format!(
        "ERR an argument of {} bytes is longer than this pool's largest value, {longest} bytes (proto-max-bulk-len)",
        longest + 1
    );
    let is_refused = |reply| matches!(reply, Reply::Error(text) if text.starts_with(&refused));
    assert!(is_refused(client.ask(&[&b"set"[..], &b""[..], &value])));
    assert!(is_refused(client.ask(&["append", "", "x"])));
    assert!(is_refused(client.ask(&["setrange", "k", &longest.to_string(), "x"])));
    assert_eq!(client.say("strlen "), Reply::Integer(i64::try_from(longest).unwrap()));
}

/// Sends a command that is rejected. Returns the limit that the error names.
fn limit(client: &mut Client, words: &[&[u8]], begins: &str) -> usize {
    let Reply::Error(text) = client.ask(words) else { panic!("{begins}: not refused") };
    assert!(text.starts_with(&format!("ERR {begins}")), "{text}");
    let (_, rest) = text.split_once("at most ").unwrap_or_else(|| panic!("{text}"));
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The key takes part of the space, and so does an expiry time.
#[test]
fn the_longest_value_under_a_key_is_what_the_error_says() {
    let door = Door::open();
    let mut client = door.client();
    let value = vec![b'x'; longest(&mut client)];
    let key = "k".repeat(100);
    for (name, options) in [
        ("set", &[][..]),
        ("set", &[&b"px"[..], b"1000000"]),
        ("setnx", &[]),
        ("getset", &[]),
        ("msetnx", &[]),
    ] {
        let words =
            |bytes: usize| [&[name.as_bytes(), key.as_bytes(), &value[..bytes]][..], options].concat();
        client.ask(&["del", &key]);
        let refused = format!("value of {} bytes", value.len());
        let most = limit(&mut client, &words(value.len()), &refused);
        let refused = format!("value of {} bytes", most + 1);
        assert_eq!(limit(&mut client, &words(most + 1), &refused), most, "{refused}");
        let reply = client.ask(&words(most));
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
        assert_eq!(client.ask(&["strlen", &key]), Reply::Integer(i64::try_from(most).unwrap()));
    }
}

#[test]
fn a_key_that_is_too_long_is_refused_with_the_limit_by_every_command() {
    const LONGEST: usize = 65_534;
    let door = Door::open();
    let mut client = door.client();
    client.say("set s 1");
    client.say("hset h f 1");
    client.say("zadd z 1 m");
    let long = "k".repeat(LONGEST + 1);
    let begins = format!("key of {} bytes", LONGEST + 1);
    for words in [
        "set K v",
        "get K",
        "append K v",
        "incr K",
        "getset K v",
        "setrange K 0 v",
        "strlen K",
        "mget s K",
        "mset s 1 K v",
        "msetnx K v",
        "setnx K v",
        "del K",
        "exists s K",
        "type K",
        "expire K 10",
        "ttl K",
        "persist K",
        "object encoding K",
        "memory usage K",
        "rename s K",
        "rename h K",
        "renamenx z K",
        "rename K s",
        "copy s K",
        "copy h K",
        "copy K t",
        "hset K f v",
        "hget K f",
        "hmget K f",
        "hgetall K",
        "hdel K f",
        "hincrby K f 1",
        "hscan K 0",
        "hlen K",
        "zadd K 1 m",
        "zscore K m",
        "zincrby K 1 m",
        "zrange K 0 -1",
        "zrem K m",
        "zrank K m",
        "zscan K 0",
        "zpopmin K",
        "zmscore K m",
    ] {
        let words: Vec<&[u8]> = words
            .split(' ')
            .map(|word| if word == "K" { long.as_bytes() } else { word.as_bytes() })
            .collect();
        assert_eq!(limit(&mut client, &words, &begins), LONGEST);
    }
    // Nothing was stored or lost, and the longest key is accepted.
    assert_eq!(client.say("exists s h z t"), Reply::Integer(3));
    let longest = &long[1..];
    for words in [["set", longest, "v"], ["get", longest, ""], ["del", longest, ""]] {
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let reply = client.ask(&words);
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    }
    // No key or element matches these.
    for words in ["keys", "scan 0 match", "hscan h 0 match", "zscan z 0 match"] {
        let pattern = format!("{long}*");
        let words: Vec<_> = words.split(' ').chain([pattern.as_str()]).collect();
        let reply = client.ask(&words);
        let found = match reply.clone().array() {
            parts if words[0] == "keys" => parts,
            parts => parts[1].clone().array(),
        };
        assert!(found.is_empty(), "{reply:?}");
    }
    let tail = "x".repeat(70_000);
    for (from, to, found) in [
        (format!("[a{tail}"), "+".to_owned(), 1),
        (format!("(m{tail}"), "+".to_owned(), 0),
        ("-".to_owned(), format!("(m{tail}"), 1),
        ("-".to_owned(), format!("[l{tail}"), 0),
    ] {
        let reply = client.ask(&["zlexcount", "z", &from, &to]);
        assert_eq!(reply, Reply::Integer(found), "{from:.2} to {to:.2}");
    }
}

/// The error counts as documented.
#[test]
fn the_longest_field_and_member_are_what_the_error_says() {
    let door = Door::open();
    let mut client = door.client();
    client.say("hset k f v");
    client.say("zadd z 1 m");
    let long = vec![b'x'; 70_000];
    for words in ["hset k N v", "hget k N", "hmget k f N", "hdel k N", "hincrby k N 1", "hsetnx k N v"] {
        let words: Vec<&[u8]> =
            words.split(' ').map(|word| if word == "N" { &long[..] } else { word.as_bytes() }).collect();
        assert_eq!(limit(&mut client, &words, "key of 1 bytes and field of 70000 bytes"), 65_524);
    }
    for words in ["zadd z 1 N", "zscore z N", "zmscore z m N", "zrem z N", "zincrby z 1 N", "zrank z N"] {
        let words: Vec<&[u8]> =
            words.split(' ').map(|word| if word == "N" { &long[..] } else { word.as_bytes() }).collect();
        assert_eq!(limit(&mut client, &words, "key of 1 bytes and member of 70000 bytes"), 65_506);
    }
    // A longer key leaves less room for a field, which also limits a copy.
    let field = &long[..65_523];
    assert_eq!(client.ask(&[&b"hset"[..], b"k", field, b"v"]), Reply::Integer(1));
    let begins = "key of 6 bytes and field of 65523 bytes";
    for words in ["rename k longer", "copy k longer"] {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        assert_eq!(limit(&mut client, &words, begins), 65_524);
    }
    assert_eq!(client.say("hlen k"), Reply::Integer(2));
    assert_eq!(client.say("exists longer"), Reply::Integer(0));
}

#[test]
fn refused_giants_leave_no_buffers_and_the_connection_goes_on() {
    const GIANT: usize = 64 << 20;
    let door = Door::open();
    let mut clients: Vec<Client> = (0..8).map(|_| door.client()).collect();
    let head = format!("*3\r\n$3\r\nset\r\n$5\r\ngiant\r\n${GIANT}\r\n");
    let piece = vec![b'x'; 1 << 20];
    for client in &mut clients {
        client.send(head.as_bytes());
    }
    let mut watcher = door.client();
    let mut most = 0;
    for _ in 0..GIANT / piece.len() {
        for client in &mut clients {
            client.reader.get_mut().write_all(&piece).unwrap();
        }
        most = most.max(info(&mut watcher, "mem_clients_normal"));
    }
    for client in &mut clients {
        client.send(&[&b"\r\n"[..], &request(&["ping"])].concat());
        let reply = client.reply();
        assert!(matches!(&reply, Reply::Error(text) if text.contains("proto-max-bulk-len")), "{reply:?}");
        assert_eq!(client.reply(), Reply::Simple("PONG".to_owned()));
    }
    // Each may have some reads of 64 KiB in progress.
    assert!(most < 4 << 20, "{most} bytes of buffers for eight giants");
    assert_eq!(watcher.say("exists giant"), Reply::Integer(0));
}

#[test]
fn buffers_of_large_values_are_given_up() {
    let door = Door::open();
    let value = vec![b'x'; 1 << 20];
    let mut clients: Vec<Client> = (0..8).map(|_| door.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&[&b"set"[..], b"key", &value]), Reply::Simple("OK".to_owned()));
        assert_eq!(client.say("get key"), Reply::Bulk(value.clone()));
    }
    let held = info(&mut clients[0], "mem_clients_normal");
    // At most eight spare buffers of requests with 256 KiB each, and small ones for replies.
    assert!(held < 4 << 20, "{held} bytes");
}

/// Waits until the gateway has ended a connection.
fn is_ended(mut connection: &TcpStream) -> bool {
    connection.set_read_timeout(Some(crate::door::LONG)).unwrap();
    !matches!(connection.read(&mut [0; 64]), Ok(bytes) if bytes > 0)
}

#[test]
fn strangers_do_not_keep_clients_from_a_gateway() {
    const CLIENTS: usize = 8;
    let options =
        GatewayOptions { password: "secret".into(), connections_max: CLIENTS, ..Default::default() };
    let door = Door::new(options);
    let is_in = |client: &mut Client| client.say("auth secret") == Reply::Simple("OK".to_owned());
    let mut known = door.client();
    assert!(is_in(&mut known));
    // More connections than the limit, repeatedly; the last ones stay.
    let mut strangers: Vec<TcpStream> =
        (0..CLIENTS * 5).map(|_| TcpStream::connect(door.address).unwrap()).collect();
    assert!(strangers.drain(..CLIENTS * 4).all(|stranger| is_ended(&stranger)));
    // Clients are admitted as long as there is a stranger, and no authenticated client is dropped.
    let mut clients = vec![known];
    for _ in 1..CLIENTS {
        let mut client = door.client();
        assert!(is_in(&mut client));
        clients.push(client);
    }
    assert!(strangers.iter().all(is_ended));
    for client in &mut clients {
        assert_eq!(client.say("ping"), Reply::Simple("PONG".to_owned()));
    }
    let mut refused = door.client();
    assert!(matches!(refused.reply(), Reply::Error(text) if text.contains("max number of clients")));
}

#[test]
fn a_gateway_without_a_password_ends_no_idle_client_for_another() {
    let door = Door::new(GatewayOptions { connections_max: 4, ..GatewayOptions::default() });
    let mut clients: Vec<Client> = (0..4).map(|_| door.client()).collect();
    assert_eq!(clients[3].say("ping"), Reply::Simple("PONG".to_owned()));
    let mut refused = door.client();
    assert!(matches!(refused.reply(), Reply::Error(text) if text.contains("max number of clients")));
    for client in &mut clients {
        assert_eq!(client.say("ping"), Reply::Simple("PONG".to_owned()));
    }
}
