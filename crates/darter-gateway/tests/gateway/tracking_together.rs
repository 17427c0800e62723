//! Clients that cache the values that they read, and the changes of other gateways: no client keeps an old
//! value for ever, even if messages between gateways are lost.

use crate::aggregates::Process;
use crate::door::{Client, Door, LONG, Reply, has_transactions, request};
use crate::peers::{Pool, wait_for_gateways};
use crate::tracking::{Cache, Told, Tracking, hears_of_all, hears_of_keys_that_expire};
use darter::engine::{Engine, KeySpace};
use darter::{Condition, Store};
use darter_gateway::{Database, GatewayOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

fn flushing() -> GatewayOptions {
    GatewayOptions { allow_flush: true, ..GatewayOptions::default() }
}

#[test]
fn a_client_hears_of_every_kind_of_change_through_another_gateway() {
    if !has_transactions() {
        return;
    }
    let pool = Pool::new();
    let doors = [(); 2].map(|()| pool.door(flushing()));
    for door in &doors {
        wait_for_gateways(&mut door.client(), 1);
    }
    hears_of_all(&mut Tracking::begin(doors[0].address, ""), &mut doors[1].client());
    hears_of_keys_that_expire(&mut Tracking::begin(doors[0].address, ""), &mut doors[1].client());
    let mut tracking = Tracking::begin(doors[0].address, "bcast prefix a");
    doors[1].client().say("mset b 1 a1 1 a2 1");
    assert_eq!(tracking.hear(), Told::keys(&["a1", "a2"]));
}

/// A gateway that the test plays: it is in the directory, and sends and gets messages.
struct Played {
    id: String,
    other: String,
    address: std::net::SocketAddr,
    /// The connection on which the other gateway sends its messages.
    listener: TcpListener,
    hears: Client,
    /// That for its own messages.
    tells: Client,
}

/// Returns the ids of the gateways in the directory.
fn gateways(store: &Store) -> Vec<String> {
    let session = store.session_in(KeySpace::Gateway).unwrap();
    let id = |key: Vec<u8>| key[1..].iter().fold(String::new(), |id, byte| id + &format!("{byte:02x}"));
    session.prefix(b"g").map(|record| id(record.unwrap().0)).collect()
}

impl Played {
    fn begin(pool: &Pool, door: &Door) -> Self {
        // A gateway that serves clients is in the directory.
        door.client().say("ping");
        let other = gateways(&pool.store).pop().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let record = [&1_u64.to_le_bytes()[..], address.to_string().as_bytes()].concat();
        let session = pool.store.session_in(KeySpace::Gateway).unwrap();
        session.put([b"g", &b"aaaaaaaa"[..]].concat(), record).unwrap();
        let id = "61".repeat(8);
        let tells = Self::meet(door, &id, &other);
        let hears = Self::accept(&listener);
        Self { id, other, address: door.address, listener, hears, tells }
    }

    fn meet(door: &Door, id: &str, other: &str) -> Client {
        let mut tells = door.client();
        assert_eq!(tells.ask(&["darter.meet", id, other]), crate::door::ok());
        tells
    }

    /// Waits for the other gateway's connection.
    fn accept(listener: &TcpListener) -> Client {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut hears = Client { reader: std::io::BufReader::new(stream) };
        assert_eq!(hears.reply().array()[0], Reply::bulk("darter.meet"));
        hears.send(b"+OK\r\n");
        hears
    }

    /// Ends the connection for its own messages, and begins another one.
    fn meet_again(&mut self) {
        let mut tells = Client::connect(self.address);
        assert_eq!(tells.ask(&["darter.meet", &self.id, &self.other]), crate::door::ok());
        self.tells = tells;
    }

    /// Waits for a request to report the keys that it changes. Returns its payload.
    fn request(&mut self) -> Vec<u8> {
        loop {
            let mut message = self.hears.reply().array();
            if message[1] == Reply::bulk("track") {
                return message.pop().unwrap().bytes();
            }
        }
    }

    fn confirm(&mut self, payload: &[u8]) {
        self.tell("tracked", payload);
    }

    fn tell(&mut self, kind: &str, payload: &[u8]) {
        self.tells.send(&request(&[&b"darter.tell"[..], kind.as_bytes(), b"", payload]));
    }

    /// Confirms all requests until `is_done`.
    fn confirm_until(&mut self, is_done: &AtomicBool) {
        while !is_done.load(Ordering::Acquire) {
            let payload = self.request();
            self.confirm(&payload);
        }
    }
}

/// Sets a key without a report.
fn set_silently(pool: &Pool, value: &str) {
    let mut database = Database::new(pool.store.clone());
    assert!(database.set(b"k", value.as_bytes(), Condition::Always).unwrap());
}

/// Lets a played gateway confirm all requests while `run` runs.
fn confirming<R>(played: &mut Played, run: impl FnOnce() -> R) -> R {
    struct Done<'d>(&'d AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| played.confirm_until(&is_done));
        // Also if it panics.
        let _done = Done(&is_done);
        run()
    })
}

/// Reads the key, and returns whether it has a value.
fn reads(tracking: &mut Tracking, value: &str) -> bool {
    tracking.say("get k") == Reply::bulk(value)
}

#[test]
fn values_read_before_another_gateway_confirms_are_forgotten() {
    let pool = Pool::new();
    let door = pool.door(GatewayOptions::default());
    set_silently(&pool, "old");
    let mut played = Played::begin(&pool, &door);
    wait_for_gateways(&mut door.client(), 1);
    // It does not confirm, and the client does not wait for it for ever.
    let mut tracking = Tracking::begin(door.address, "");
    assert!(reads(&mut tracking, "old"));
    set_silently(&pool, "new");
    // From now on it reports its changes. This one it has not reported.
    confirming(&mut played, || {
        assert_eq!(tracking.hear(), Told::Everything);
    });
}

#[test]
fn a_client_tracks_as_soon_as_the_other_gateway_has_confirmed() {
    let pool = Pool::new();
    let door = pool.door(GatewayOptions::default());
    let mut played = Played::begin(&pool, &door);
    wait_for_gateways(&mut door.client(), 1);
    set_silently(&pool, "old");
    let mut tracking = confirming(&mut played, || Tracking::begin(door.address, ""));
    assert!(reads(&mut tracking, "old"));
    set_silently(&pool, "new");
    // A message with one key, and one that stands for all.
    played.tell("changed", b"\x01\0\0\0k");
    while tracking.hear() != Told::keys(&["k"]) {}
    assert!(reads(&mut tracking, "new"));
    for everything in [&b""[..], b"\x09\0\0\0k"] {
        played.tell("changed", everything);
        assert_eq!(tracking.hear(), Told::Everything);
    }
}

#[test]
fn a_connection_that_ends_and_begins_again_makes_clients_forget() {
    let pool = Pool::new();
    let door = pool.door(GatewayOptions::default());
    let mut played = Played::begin(&pool, &door);
    wait_for_gateways(&mut door.client(), 1);
    set_silently(&pool, "old");
    let mut tracking = confirming(&mut played, || Tracking::begin(door.address, ""));
    for (before, after) in [("old", "new"), ("new", "newer")] {
        let payload = played.request();
        played.confirm(&payload);
        while !tracking.heard().is_empty() {}
        assert!(reads(&mut tracking, before));
        // The report of this change is lost with the connection.
        set_silently(&pool, after);
        played.meet_again();
        confirming(&mut played, || {
            assert_eq!(tracking.hear(), Told::Everything);
            assert!(reads(&mut tracking, after));
        });
    }
    drop(played.listener);
}

#[test]
fn a_gateway_that_joins_or_is_killed_makes_clients_forget() {
    let pool = Pool::new();
    let door = pool.door(GatewayOptions::default());
    let mut tracking = Tracking::begin(door.address, "");
    for round in 0..2 {
        let mut process = Process::start(&pool.url);
        process.client.say(&format!("set k joined{round}"));
        // It may have written before it knew of the client.
        let mut cache = Cache::default();
        let joined = Reply::bulk(&format!("joined{round}"));
        cache.read(&mut tracking, "get k");
        until_cached(&mut tracking, &mut cache, "get k", &joined);
        wait_for_gateways(&mut process.client, 1);
        process.client.say(&format!("set k last{round}"));
        until_cached(&mut tracking, &mut cache, "get k", &Reply::bulk(&format!("last{round}")));
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        while tracking.hear() != Told::Everything {}
    }
}

/// Waits until a client's cache has a value, which it reads only after an invalidation.
fn until_cached(tracking: &mut Tracking, cache: &mut Cache, request: &str, value: &Reply) {
    let since = Instant::now();
    while cache.0.get(request) != Some(value) {
        assert!(since.elapsed() < LONG, "{request} stays {:?}, and is {value:?}", cache.0.get(request));
        if cache.0.contains_key(request) {
            tracking.say_and_hear("ping", |told| cache.forget(&told));
        } else {
            cache.read(tracking, request);
        }
    }
}

/// Returns a request that changes some of a few keys.
fn change(dice: &mut Pcg64Mcg) -> String {
    let mut number = || dice.random_range(0..6);
    let (a, b, c, which) = (number(), number(), number(), dice.random_range(0..34));
    match which {
        0..3 => format!("SET s{a} {b}{c}\r\n"),
        3 => format!("SET s{a} {b} PX {}\r\n", c + 1),
        4 => format!("INCR s{a}\r\n"),
        5 => format!("MSET s{a} x s{b} y\r\n"),
        6 => format!("RENAME s{a} s{b}\r\n"),
        7 => format!("COPY s{a} s{b} REPLACE\r\n"),
        8 => format!("DEL s{a} s{b} h{a} z{b}\r\n"),
        9 => format!("PEXPIRE {}{a} {}\r\n", ["s", "h", "l", "z"][b % 4], c + 1),
        10..13 => format!("HSET h{a} f{b} {c}\r\n"),
        13 => format!("HDEL h{a} f{b} f{c}\r\n"),
        14 => format!("HSET h{a} long{b}{c} {}\r\n", "x".repeat(300)),
        15..17 => format!("RPUSH l{a} {b} {c}\r\n"),
        17 => format!("LPOP l{a}\r\n"),
        18 => format!("LMOVE l{a} l{b} LEFT RIGHT\r\n"),
        19 => format!("LTRIM l{a} -3 -1\r\n"),
        20 => format!("RPUSH l{a} {}\r\n", "x".repeat(500)),
        21..24 => format!("ZADD z{a} {b} m{c}\r\n"),
        24 => format!("ZPOPMIN z{a}\r\n"),
        25 => format!("ZUNIONSTORE z{a} 2 z{b} z{c}\r\n"),
        26 => format!("ZADD z{a} {b} {}{c}\r\n", "x".repeat(300)),
        27 => format!("RENAME h{a} h{b}\r\n"),
        28 => format!("MULTI\r\nSET s{a} m\r\nHSET h{b} f m\r\nGET s{c}\r\nEXEC\r\n"),
        29 => {
            format!("EVAL \"redis.call('APPEND', KEYS[1], 'e') redis.call('DEL', KEYS[2])\" 2 s{a} s{b}\r\n")
        }
        30 => format!("APPEND s{a} {b}\r\n").repeat(6),
        31 => format!("RPUSH l{a} {b}\r\n").repeat(6),
        32 => format!("GETEX s{a} PX 2\r\n"),
        _ => "FLUSHALL\r\n".to_owned(),
    }
}

/// Sends random changes, and waits for their replies.
fn write_randomly(address: std::net::SocketAddr, seed: u64, rounds: usize) {
    let (mut client, mut dice) = (Client::connect(address), Pcg64Mcg::seed_from_u64(seed));
    for _ in 0..rounds {
        let lines: String = (0..dice.random_range(1..6)).map(|_| change(&mut dice)).collect();
        // Lines with quotes are sent as they are.
        let requests = lines.lines().flat_map(|line| {
            if line.contains('"') {
                return format!("{line}\r\n").into_bytes();
            }
            request(&line.split(' ').collect::<Vec<_>>())
        });
        client.send(&requests.collect::<Vec<u8>>());
        lines.lines().for_each(|_| drop(client.reply()));
    }
}

/// Returns all requests that caching clients send.
fn readings() -> Vec<String> {
    let of = |key| {
        let requests = ["get s", "hgetall h", "lrange l", "zrange z"];
        requests.map(|request| {
            let range = if request.contains("range") { " 0 -1" } else { "" };
            format!("{request}{key}{range}")
        })
    };
    (0..6).flat_map(of).collect()
}

/// Writers at two gateways change a few keys in all ways while clients read them through caches.
/// After the writers have stopped, all that is cached soon is what the pool has.
#[test]
fn caches_become_what_the_pool_has_after_changes_through_two_gateways() {
    const ROUNDS: usize = 150;
    if !has_transactions() {
        return;
    }
    let pool = Pool::new();
    let options = [GatewayOptions { threads: 2, ..flushing() }, flushing()];
    let doors = options.map(|options| pool.door(options));
    for door in &doors {
        wait_for_gateways(&mut door.client(), 1);
    }
    let (is_done, requests) = (AtomicBool::new(false), readings());
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_usize)
            .map(|seed| {
                let address = doors[seed % 2].address;
                scope.spawn(move || write_randomly(address, seed as u64, ROUNDS))
            })
            .collect();
        for (number, options) in ["", "optin", "bcast", "noloop"].into_iter().enumerate() {
            let (door, is_done, requests) = (&doors[number % 2], &is_done, &requests);
            scope.spawn(move || {
                let mut tracking = Tracking::begin(door.address, options);
                let (mut cache, mut dice) = (Cache::default(), Pcg64Mcg::seed_from_u64(number as u64));
                let is_opt_in = options == "optin";
                let read = |tracking: &mut Tracking, cache: &mut Cache, request: &str| {
                    if is_opt_in {
                        tracking.say_and_hear("client caching yes", |told| cache.forget(&told));
                    }
                    cache.read(tracking, request);
                };
                while !is_done.load(Ordering::Acquire) {
                    let request = &requests[dice.random_range(0..requests.len())];
                    if cache.0.contains_key(request) {
                        tracking.say_and_hear("ping", |told| cache.forget(&told));
                    } else {
                        read(&mut tracking, &mut cache, request);
                    }
                }
                let mut plain = door.client();
                plain.say("hello 3");
                for request in requests {
                    let since = Instant::now();
                    // A key may still expire.
                    while cache.0.get(request) != Some(&plain.say(request)) {
                        assert!(since.elapsed() < LONG, "{options}, {request}: {:?}", cache.0.get(request));
                        if cache.0.contains_key(request) {
                            tracking.say_and_hear("ping", |told| cache.forget(&told));
                        } else {
                            read(&mut tracking, &mut cache, request);
                        }
                    }
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        is_done.store(true, Ordering::Release);
    });
}

/// A gateway is killed again and again while it changes a key that a client of another one caches.
#[test]
fn caches_survive_gateways_that_come_and_go() {
    let pool = Pool::new();
    let door = pool.door(GatewayOptions::default());
    let mut tracking = Tracking::begin(door.address, "");
    let mut cache = Cache::default();
    for round in 0..3 {
        let mut process = Process::start(&pool.url);
        if round > 0 {
            wait_for_gateways(&mut process.client, 1);
        }
        // Far more than it will have executed when it is killed.
        let lines: Vec<u8> =
            (0..20_000).flat_map(|number| format!("SET k {round}:{number}\r\n").into_bytes()).collect();
        let mut stream: TcpStream = process.client.reader.get_ref().try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || drop(std::io::Write::write_all(&mut stream, &lines)));
            for _ in 0..200 {
                if cache.0.contains_key("get k") {
                    tracking.say_and_hear("ping", |told| cache.forget(&told));
                } else {
                    cache.read(&mut tracking, "get k");
                }
            }
            process.child.kill().unwrap();
        });
        process.child.wait().unwrap();
        let last = door.client().say("get k");
        until_cached(&mut tracking, &mut cache, "get k", &last);
    }
}
