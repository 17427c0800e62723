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
    // Nobody serves it. Beyond the backlog none would get through, however long it tries.
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
    // The key takes its part of the room, which the store says.
    let key = "k".repeat(100);
    let reply = client.ask(&[&b"set"[..], key.as_bytes(), &value[1..]]);
    assert!(matches!(&reply, Reply::Error(text) if text.contains("larger blocks")), "{reply:?}");
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
    // Each may have some reads of 64 KiB at work.
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
    // Eight spare buffers of requests with 256 KiB at most, and small ones for replies.
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
        GatewayOptions { password: b"secret".to_vec(), connections_max: CLIENTS, ..Default::default() };
    let door = Door::new(options);
    let is_in = |client: &mut Client| client.say("auth secret") == Reply::Simple("OK".to_owned());
    let mut known = door.client();
    assert!(is_in(&mut known));
    // More than may be, again and again; the last ones stay.
    let mut strangers: Vec<TcpStream> =
        (0..CLIENTS * 5).map(|_| TcpStream::connect(door.address).unwrap()).collect();
    assert!(strangers.drain(..CLIENTS * 4).all(|stranger| is_ended(&stranger)));
    // Clients come in as long as there is a stranger, and no known client has to go.
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
