//! Gateways of one pool: how they find each other, and what reaches their clients.

use crate::aggregates::Process;
use crate::authority::{Authority, LATER};
use crate::door::{Client, Door, LONG, Reply};
use darter::Store;
use darter_gateway::GatewayOptions;
use std::time::{Duration, Instant};

/// A pool in a file.
pub struct Pool {
    pub url: String,
    pub store: Store,
    _directory: tempfile::TempDir,
}

impl Pool {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file:{}", directory.path().join("pool").display());
        let store = crate::door::options().block_bytes(1 << 20).open(format!("{url}?size=128M")).unwrap();
        Self { url, store, _directory: directory }
    }

    pub fn door(&self, options: GatewayOptions) -> Door {
        Door::of(self.store.clone(), options)
    }

    /// Starts two gateways that have found each other.
    pub fn two_doors(&self) -> [Door; 2] {
        let doors = [(); 2].map(|()| self.door(GatewayOptions::default()));
        for door in &doors {
            wait_for_gateways(&mut door.client(), 1);
        }
        doors
    }
}

/// Returns the number of other gateways to which a client's gateway is connected.
fn gateways(client: &mut Client) -> usize {
    let info = String::from_utf8(client.say("info clients").bytes()).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("connected_gateways:"));
    line.unwrap().parse().unwrap()
}

/// Waits until a client's gateway is connected to `count` others.
pub fn wait_for_gateways(client: &mut Client, count: usize) {
    let since = Instant::now();
    while gateways(client) != count {
        assert!(since.elapsed() < LONG, "not connected to {count} gateways");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn message(channel: &str, text: &str) -> Reply {
    Reply::Array(["message", channel, text].map(Reply::bulk).to_vec())
}

pub fn subscribe(client: &mut Client, channel: &str) {
    let subscribed = vec![Reply::bulk("subscribe"), Reply::bulk(channel), Reply::Integer(1)];
    assert_eq!(client.say(&format!("subscribe {channel}")), Reply::Array(subscribed));
}

#[test]
fn messages_reach_the_clients_of_other_gateways() {
    let pool = Pool::new();
    let doors = pool.two_doors();
    let (mut here, mut there) = (doors[0].client(), doors[1].client());
    subscribe(&mut here, "c");
    subscribe(&mut there, "c");
    let mut publisher = doors[0].client();
    // The receivers at this gateway are counted.
    assert_eq!(publisher.say("publish c one"), Reply::Integer(1));
    assert_eq!(doors[1].client().say("publish c two"), Reply::Integer(1));
    assert_eq!(publisher.say("publish other lost"), Reply::Integer(0));
    for client in [&mut here, &mut there] {
        let mut texts = [client.reply(), client.reply()];
        texts.sort_by_key(|reply| format!("{reply:?}"));
        assert_eq!(texts, [message("c", "one"), message("c", "two")]);
    }
    let mut sharded = doors[1].client();
    let subscribed = vec![Reply::bulk("ssubscribe"), Reply::bulk("c"), Reply::Integer(1)];
    assert_eq!(sharded.say("ssubscribe c"), Reply::Array(subscribed));
    assert_eq!(publisher.say("spublish c three"), Reply::Integer(0));
    assert_eq!(sharded.reply(), Reply::Array(["smessage", "c", "three"].map(Reply::bulk).to_vec()));
}

#[test]
fn messages_of_a_publisher_keep_their_order_at_all_gateways() {
    const MESSAGES: usize = 20_000;
    let pool = Pool::new();
    let doors = pool.two_doors();
    let mut subscribers = [doors[0].client(), doors[1].client()];
    for client in &mut subscribers {
        subscribe(client, "c");
    }
    let mut publisher = doors[0].client();
    let requests: Vec<u8> =
        (0..MESSAGES).flat_map(|number| format!("PUBLISH c {number}\r\n").into_bytes()).collect();
    publisher.send(&requests);
    for client in &mut subscribers {
        for number in 0..MESSAGES {
            assert_eq!(client.reply(), message("c", &number.to_string()));
        }
    }
    for _ in 0..MESSAGES {
        assert_eq!(publisher.reply(), Reply::Integer(1));
    }
}

#[test]
fn a_publisher_is_not_faster_than_the_connection_to_another_gateway() {
    const MESSAGES: usize = 20_000;
    let pool = Pool::new();
    // Far less than all messages.
    let door = pool.door(GatewayOptions { message_bytes_max: 256 << 10, ..GatewayOptions::default() });
    let other = pool.door(GatewayOptions::default());
    wait_for_gateways(&mut door.client(), 1);
    let (mut subscriber, mut publisher) = (other.client(), door.client());
    subscribe(&mut subscriber, "c");
    let text = "x".repeat(100);
    let request = format!("PUBLISH c {text}\r\n").into_bytes();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            publisher.send(&request.repeat(MESSAGES));
            (0..MESSAGES).for_each(|_| assert_eq!(publisher.reply(), Reply::Integer(0)));
        });
        for _ in 0..MESSAGES {
            assert_eq!(subscriber.reply(), message("c", &text));
        }
    });
}

#[test]
fn a_gateway_that_is_killed_is_left_out_and_one_that_starts_is_found() {
    let pool = Pool::new();
    let door = pool.door(GatewayOptions::default());
    let mut client = door.client();
    for _ in 0..2 {
        let mut process = Process::start(&pool.url);
        wait_for_gateways(&mut client, 1);
        wait_for_gateways(&mut process.client, 1);
        subscribe(&mut process.client, "c");
        assert_eq!(client.say("publish c text"), Reply::Integer(0));
        assert_eq!(process.client.reply(), message("c", "text"));
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        wait_for_gateways(&mut client, 0);
        assert_eq!(client.say("publish c lost"), Reply::Integer(0));
    }
}

#[test]
fn a_gateway_that_ends_removes_its_record() {
    use darter::engine::{Engine, KeySpace};
    let pool = Pool::new();
    let records = || pool.store.session_in(KeySpace::Gateway).unwrap().prefix(b"g").count();
    let doors = pool.two_doors();
    assert_eq!(records(), 2);
    let [first, second] = doors;
    drop(second);
    assert_eq!(records(), 1);
    drop(first);
    assert_eq!(records(), 0);
}

/// Options of a gateway with a password and TLS.
fn secured(authority: &Authority) -> GatewayOptions {
    let identity = authority.sign("127.0.0.1", LATER);
    GatewayOptions {
        password: "open sesame".into(),
        tls: Some(authority.node(Some(&authority.ca()))),
        peer_tls: Some(authority.client(Some(&identity))),
        ..GatewayOptions::default()
    }
}

#[test]
fn gateways_with_a_password_and_tls_connect_to_each_other() {
    let (pool, authority) = (Pool::new(), Authority::new("ours"));
    let doors = [(); 2].map(|()| pool.door(secured(&authority)));
    let identity = authority.sign("client", LATER);
    let tls = authority.client(Some(&identity));
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < LONG);
        let heard = crate::tls::talk(
            &doors[0],
            &tls,
            b"AUTH \"open sesame\"\r\nINFO clients\r\nQUIT\r\n",
            usize::MAX,
        );
        let heard = String::from_utf8(heard).unwrap();
        if heard.contains("connected_gateways:1\r\n") {
            break;
        }
    }
}

#[test]
fn gateways_with_other_passwords_are_not_connected() {
    let pool = Pool::new();
    let open = pool.door(GatewayOptions::default());
    let closed = pool.door(GatewayOptions { password: "secret".into(), ..GatewayOptions::default() });
    let mut client = closed.client();
    assert_eq!(client.say("auth secret"), Reply::Simple("OK".to_owned()));
    // The gateway without a password rejects AUTH, and the other one a stranger.
    for _ in 0..50 {
        assert_eq!((gateways(&mut client), gateways(&mut open.client())), (0, 0));
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn requests_of_gateways_do_nothing_more_than_those_of_clients() {
    let pool = Pool::new();
    let door = pool.door(GatewayOptions::default());
    let mut client = door.client();
    let refused = |reply: Reply, why: &str| {
        assert!(matches!(&reply, Reply::Error(text) if text.contains(why)), "{reply:?}");
    };
    refused(client.say("darter.tell publish c text"), "after DARTER.MEET");
    refused(client.say("darter.meet x y"), "invalid id");
    refused(client.say("darter.meet 0000000000000001 0000000000000002"), "another gateway");
    refused(client.say("darter.meet 0000000000000001"), "wrong number of arguments");
    // Over DART all of it is refused.
    let why = match client.say("multi") {
        Reply::Simple(_) => "not allowed inside a transaction",
        _ => "MULTI that was refused",
    };
    refused(client.say("darter.tell publish c text"), why);
    refused(client.say("exec"), "EXECABORT");
    let closed = pool.door(GatewayOptions { password: "x".into(), ..GatewayOptions::default() });
    refused(closed.client().say("darter.meet 0000000000000001 0000000000000002"), "NOAUTH");
}
