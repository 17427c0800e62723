//! Gateways under TLS.

use crate::authority::{Authority, LATER};
use crate::door::{Door, LONG, has, request};
use darter_fabric::wire::{Channel, ClientTls};
use darter_gateway::GatewayOptions;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// Sends bytes over TLS. Returns the first `wanted` bytes of the response, or fewer if the
/// connection ends.
pub fn talk(door: &Door, tls: &ClientTls, mut saying: &[u8], wanted: usize) -> Vec<u8> {
    let socket = TcpStream::connect(door.address).unwrap();
    let mut channel = Channel::connected(socket, Some(tls), &door.address.to_string()).unwrap();
    let (mut heard, mut buffer, since) = (Vec::new(), vec![0; 64 << 10], Instant::now());
    while heard.len() < wanted {
        assert!(since.elapsed() < LONG, "{} of {wanted} bytes arrived", heard.len());
        let sent = channel.write(&saying[..saying.len().min(30_000)]);
        match sent {
            Ok(count) => saying = &saying[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        let _ = channel.flush();
        match channel.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => heard.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => break,
        }
    }
    heard
}

#[test]
fn requests_go_through_tls() {
    let authority = Authority::new("ours");
    let door = Door::new(GatewayOptions { tls: Some(authority.node(None)), ..GatewayOptions::default() });
    let large = vec![b'x'; 1_000_000];
    let expected = [b"+OK\r\n$1000000\r\n", &large[..], b"\r\n"].concat();
    let saying = [request(&[&b"set"[..], b"k", &large]), request(&["get", "k"])].concat();
    assert!(talk(&door, &authority.client(None), &saying, expected.len()) == expected);
    // A stranger's certificate and plain text are rejected, and neither affects other clients.
    assert!(talk(&door, &Authority::new("others").client(None), b"PING\r\n", 7).is_empty());
    let mut plain = door.client();
    plain.send(b"PING\r\n");
    assert!(!plain.rest().starts_with(b"+"));
    assert_eq!(talk(&door, &authority.client(None), b"PING\r\n", 7), b"+PONG\r\n");
}

#[test]
fn clients_without_a_certificate_are_refused_if_one_is_required() {
    let authority = Authority::new("ours");
    let tls = authority.node(Some(&authority.ca()));
    let door = Door::new(GatewayOptions { tls: Some(tls), ..GatewayOptions::default() });
    assert!(talk(&door, &authority.client(None), b"PING\r\n", 7).is_empty());
    let known = authority.sign("known", LATER);
    assert_eq!(talk(&door, &authority.client(Some(&known)), b"PING\r\n", 7), b"+PONG\r\n");
}

#[test]
fn redis_cli_speaks_tls() {
    if !has("redis-cli", &["--tls", "--version"]) {
        return;
    }
    let authority = Authority::new("ours");
    let door = Door::new(GatewayOptions { tls: Some(authority.node(None)), ..GatewayOptions::default() });
    let (port, ca) = (door.address.port().to_string(), authority.ca());
    let mut cli = Command::new("redis-cli");
    cli.args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert"]).arg(ca).args(["ping"]);
    assert_eq!(String::from_utf8_lossy(&cli.output().unwrap().stdout), "PONG\n");
}
