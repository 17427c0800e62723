//! A connection driven by hand: turns, waiting bytes, and the cost of an idle client.

use super::*;
use crate::options::GatewayOptions;
use crate::state::GatewayState;
use crate::turns::TURN_BYTES;
use darter::{Store, engine};
use darter_fabric::decorate::{Delay, Delaying};
use darter_fabric::{Local, Provider};
use std::fmt::Write as _;
use std::future::Future;
use std::io::{Read, Write as _};
use std::net::TcpListener;
use std::pin::pin;
use tokio::runtime::Builder;
use tokio::task::yield_now;

/// Returns a connection whose client does nothing, and the client's end.
fn connection() -> (Connection, std::net::TcpStream) {
    connection_over(Store::open("mem:64M").unwrap(), GatewayOptions::default())
}

fn connection_over(store: Store, options: GatewayOptions) -> (Connection, std::net::TcpStream) {
    let shared = Arc::new(GatewayState::new(store, options));
    let worker = Rc::new(Worker::new(Arc::clone(&shared), 0));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, address) = listener.accept().unwrap();
    let info = shared.clients.admit(address, address, 0, false);
    (Connection::new(socket, worker, info).unwrap(), client)
}

/// Returns a connection whose requests wait once for each round trip. Each poll of its requests
/// waits for the round trips of all requests in progress.
fn remote_connection(options: GatewayOptions) -> (Connection, std::net::TcpStream) {
    let delay = Delay { pending_before: 1, ..Delay::default() };
    let memory = Delaying::new(Local::memory(64 << 20, 3).unwrap(), delay);
    connection_over(engine::create_on(&Store::options(), Provider::foreign(memory)).unwrap(), options)
}

/// Puts requests into the inbox, as if they had arrived.
fn arrive(connection: &mut Connection, mut requests: &[u8]) {
    while !requests.is_empty() {
        connection.inbox.receive(&mut requests).unwrap();
    }
}

/// The most work of a turn: a full turn and its last step.
const LONGEST: usize = TURN_BYTES + (256 << 10);

/// Executes the received requests in at most `most` turns. Returns the number of turns.
async fn turns(connection: &mut Connection, most: usize) -> usize {
    works(connection, most).await.len()
}

/// Executes the received requests in at most `most` turns. Returns the work of each turn.
async fn works(connection: &mut Connection, most: usize) -> Vec<usize> {
    let mut requests = pin!(connection.do_requests());
    let mut works = Vec::new();
    poll_fn(|context| {
        let (polled, turn) = turns::take(TURN_BYTES, || requests.as_mut().poll(context));
        works.push(turn.work);
        if polled.is_pending() && works.len() < most {
            // Poll again, regardless of what the future waits for.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
    works
}

fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build().unwrap();
    runtime.block_on(test);
}

fn request(words: impl IntoIterator<Item = String>) -> Vec<u8> {
    let words: Vec<String> = words.into_iter().collect();
    let mut request = format!("*{}\r\n", words.len());
    for word in &words {
        let _ = write!(request, "${}\r\n{word}\r\n", word.len());
    }
    request.into_bytes()
}

#[test]
fn long_commands_end_their_turn_after_some_records() {
    const ARGUMENTS: usize = 4096;
    /// Arguments of two turns, at most.
    const RECORDS: usize = 1024;
    run(async {
        let (mut connection, _client) = connection();
        let numbered = |name: &'static str| (0..ARGUMENTS).map(move |number| format!("{name}{number}"));
        let pairs = |first: &'static str, second: &'static str| {
            numbered(first).zip(numbered(second)).flat_map(|(first, second)| [first, second])
        };
        let command = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        for words in [
            command(&["MSET"]).into_iter().chain(pairs("k", "")).collect(),
            command(&["HSET", "h"]).into_iter().chain(pairs("f", "")).collect(),
            command(&["ZADD", "z"]).into_iter().chain(pairs("", "m")).collect(),
            command(&["MGET"]).into_iter().chain(numbered("k")).collect(),
            command(&["EXISTS"]).into_iter().chain(numbered("k")).collect(),
            command(&["HMGET", "h"]).into_iter().chain(numbered("f")).collect(),
            command(&["ZMSCORE", "z"]).into_iter().chain(numbered("m")).collect(),
            command(&["HMGET", "none"]).into_iter().chain(numbered("f")).collect(),
            command(&["KEYS", "*"]),
            command(&["ZRANGE", "z", "0", "-1"]),
            command(&["ZRANGE", "z", "-4096", "-1"]),
            command(&["ZPOPMIN", "z", "2048"]),
            command(&["HRANDFIELD", "h", "-4096"]),
            command(&["SCAN", "0", "COUNT", "10000"]),
            command(&["HSCAN", "h", "0", "COUNT", "10000"]),
            command(&["HDEL", "h"]).into_iter().chain(numbered("f")).collect(),
            command(&["ZREM", "z"]).into_iter().chain(numbered("m")).collect(),
            command(&["CLIENT", "LIST", "ID"])
                .into_iter()
                .chain((1..=ARGUMENTS).map(|n| n.to_string()))
                .collect(),
            command(&["CONFIG", "GET"]).into_iter().chain(numbered("p")).collect(),
            command(&["COMMAND", "INFO"]).into_iter().chain(numbered("get")).collect(),
            command(&["COMMAND", "DOCS"]).into_iter().chain(numbered("get")).collect(),
            command(&["COMMAND", "GETKEYS", "DEL"]).into_iter().chain(numbered("k")).collect(),
            command(&["INFO"]).into_iter().chain(numbered("section")).collect(),
            command(&["DEL"]).into_iter().chain(numbered("k")).collect(),
            command(&["MSETNX"]).into_iter().chain(pairs("k", "")).collect(),
        ] {
            let words: Vec<String> = words;
            arrive(&mut connection, &request(words.clone()));
            // Replies would wait for the client.
            let works = works(&mut connection, usize::MAX).await;
            connection.outbox = Outbox::default();
            let name = &words[..words.len().min(4)];
            assert!(works.len() >= ARGUMENTS / RECORDS / 2, "{} turns for {name:?}", works.len());
            let longest = works.into_iter().max().unwrap();
            assert!(longest <= LONGEST, "a turn of {longest} bytes for {name:?}");
            yield_now().await;
        }
    });
}

#[test]
fn pipelines_end_their_turn_after_some_bytes() {
    run(async {
        let (mut connection, _client) = connection();
        arrive(&mut connection, &request(["SET".to_owned(), "k".to_owned(), "v".repeat(1 << 20)]));
        assert!(turns(&mut connection, usize::MAX).await >= 1);
        arrive(&mut connection, &b"GET k\r\n".repeat(12));
        // Two values per turn.
        let took = turns(&mut connection, usize::MAX).await;
        assert!(took >= 5, "{took} turns for 12 MiB");
        connection.outbox = Outbox::default();
        arrive(&mut connection, &b"EXISTS k\r\n".repeat(2000));
        let took = turns(&mut connection, usize::MAX).await;
        assert!(took >= 2000 * 1024 / TURN_BYTES, "{took} turns for 2000 requests");
    });
}

/// No turn sends more than a part of the replies, however fast the client reads.
#[test]
fn a_turn_sends_a_bounded_part_of_the_replies() {
    const BYTES: usize = 64 << 20;
    run(async {
        let (mut connection, mut client) = connection();
        let reader = std::thread::spawn(move || {
            let (mut read, mut buffer) = (0, vec![0; 1 << 20]);
            while read < BYTES {
                read += client.read(&mut buffer).unwrap();
            }
        });
        connection.outbox.bytes = vec![7; BYTES];
        let (mut turns, mut most_sent) = (0, 0);
        poll_fn(|context| {
            let before = connection.outbox.waiting();
            let sent = connection.poll_send(0, context);
            turns += 1;
            most_sent = most_sent.max(before - connection.outbox.waiting());
            sent
        })
        .await
        .unwrap();
        reader.join().unwrap();
        assert!(most_sent <= SENT_AT_ONCE + SENT_AT_A_TIME, "{most_sent} bytes in one turn");
        assert!(turns >= BYTES / (SENT_AT_ONCE + SENT_AT_A_TIME), "{turns} turns");
    });
}

#[test]
fn requests_wait_while_the_client_reads_no_replies() {
    const REPLY: usize = 100_000;
    const REQUESTS: usize = 2000;
    run(async {
        let (mut connection, mut client) = connection();
        arrive(&mut connection, &request(["SET".to_owned(), "k".to_owned(), "v".repeat(REPLY)]));
        turns(&mut connection, usize::MAX).await;
        let asked = b"GET k\r\n".repeat(REQUESTS);
        arrive(&mut connection, &asked);
        assert_eq!(turns(&mut connection, 5000).await, 5000, "the requests wait for the client");
        let held = connection.outbox.buffer_bytes();
        assert!(held <= UNSENT_MAX + 4 * REPLY, "{held} bytes of replies");
        assert!(connection.inbox.arrived().len() <= asked.len() + (64 << 10));
        // The requests given up above are sent again.
        let rest = connection.inbox.arrived().len();
        connection.inbox.take(rest);
        connection.parser = Parser::default();
        connection.outbox = Outbox::default();
        arrive(&mut connection, &asked);
        let reader = std::thread::spawn(move || {
            let (mut read, mut buffer) = (0, vec![0; 1 << 20]);
            loop {
                let count = client.read(&mut buffer).unwrap();
                if count == 0 {
                    return read;
                }
                read += count;
            }
        });
        connection.do_requests().await.unwrap();
        poll_fn(|context| connection.poll_send(0, context)).await.unwrap();
        drop(connection);
        let reply = format!("${REPLY}\r\n").len() + REPLY + 2;
        assert!(reader.join().unwrap() >= REQUESTS * reply);
    });
}

#[test]
fn a_client_that_has_shut_its_side_down_gets_all_replies() {
    const REPLY: usize = 100_000;
    run(async {
        let (mut connection, mut client) = connection();
        arrive(&mut connection, &request(["SET".to_owned(), "k".to_owned(), "v".repeat(REPLY)]));
        turns(&mut connection, usize::MAX).await;
        client.write_all(&b"GET k\r\n".repeat(500)).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut serving = pin!(connection.run());
        // The client does not read, and the sockets hold less: the end arrives while replies are
        // waiting.
        for _ in 0..5000 {
            let is_pending = poll_fn(|context| {
                context.waker().wake_by_ref();
                Poll::Ready(serving.as_mut().poll(context).is_pending())
            });
            assert!(is_pending.await, "the connection ends while replies are waiting");
            yield_now().await;
        }
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            client.read_to_end(&mut read).unwrap();
            read.len()
        });
        serving.await;
        let reply = format!("${REPLY}\r\n").len() + REPLY + 2;
        assert_eq!(reader.join().unwrap(), b"+OK\r\n".len() + 500 * reply);
    });
}

#[test]
fn an_idle_client_holds_no_futures_of_commands() {
    run(async {
        let (connection, _client) = connection();
        let bytes = size_of_val(&connection.run());
        assert!(bytes <= 2048, "{bytes} bytes for the task of a client");
    });
}

/// All work of one request is divided into turns, except for a pass over one value.
#[test]
fn turns_have_a_bound_whatever_a_request_is() {
    const VALUE: usize = 1 << 20;
    let command = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let evil = format!("*{}b", "*a".repeat(3000));
    let nearly = format!("*{}b*", "a".repeat(3000));
    let classes = "[a-z]".repeat(3000);
    let value = "v".repeat(VALUE);
    run(async {
        let (mut connection, _client) = connection();
        let many = |name: &str, each: &str| {
            std::iter::once(name.to_owned()).chain((0..50_000).map(|n| format!("{each}{n}"))).collect()
        };
        let setup = (0..3).map(|n| command(&["SET", &format!("{}{n}", "a".repeat(6000)), ""]));
        let large = (0..8).map(|n| command(&["HSET", "h", &format!("f{n}"), &value]));
        let large = large.chain((0..8).map(|n| command(&["SET", &format!("big{n}"), &value])));
        let lists = [many("DEL", "absent"), many("COMMAND", "x"), many("NOSUCHCOMMAND", "")];
        let patterns = [
            command(&["KEYS", &evil]),
            command(&["KEYS", &nearly]),
            command(&["KEYS", &classes]),
            command(&["SCAN", "0", "MATCH", &nearly, "COUNT", "1000"]),
            command(&["CONFIG", "GET", &classes]),
            command(&["COMMAND", "LIST", "FILTERBY", "PATTERN", &evil]),
        ];
        // Walks also read values.
        let without_values = lists.into_iter().chain(setup).chain(patterns);
        for words in without_values.chain(large).chain([
            command(&["HGETALL", "h"]),
            command(&["HVALS", "h"]),
            command(&["HSCAN", "h", "0", "MATCH", &nearly]),
            command(&["HMGET", "h", "f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7"]),
            command(&["MGET", "big0", "big1", "big2", "big3", "big4", "big5", "big6", "big7"]),
            command(&["COPY", "h", "i"]),
            command(&["GETRANGE", "big0", "1", "-2"]),
            command(&["APPEND", "big0", &value]),
            command(&["SETRANGE", "big1", "100000", &value]),
            command(&["SET", "big2", &value, "GET", "KEEPTTL"]),
        ]) {
            let (bytes, name) = (request(words.clone()), words[0].clone());
            // As much as one read returns at a time.
            for piece in bytes.chunks(64 << 10) {
                arrive(&mut connection, piece);
                let longest = works(&mut connection, usize::MAX).await.into_iter().max().unwrap();
                // One pass over a value is one piece, and so is its reply.
                let has_none =
                    ["DEL", "COMMAND", "NOSUCHCOMMAND", "KEYS", "SCAN", "CONFIG"].contains(&&name[..]);
                let most = LONGEST + if has_none { 0 } else { 2 * VALUE };
                assert!(longest <= most, "a turn of {longest} bytes for {name}");
            }
            connection.outbox = Outbox::default();
            assert!(connection.inbox.arrived().is_empty(), "{name} is not done");
            yield_now().await;
        }
    });
}

/// Counts the round trips that pipelines of 64 requests wait for, one after another.
#[test]
fn pipelines_over_memory_nodes_wait_for_few_round_trips() {
    const KEYS: usize = 5000;
    const WIDTH: usize = 64;
    run(async {
        let (mut connection, _client) = remote_connection(GatewayOptions::default());
        let key = |number: usize| format!("key {}", number.wrapping_mul(2_654_435_761) % KEYS);
        for number in 0..KEYS {
            arrive(&mut connection, &request(["SET".to_owned(), format!("key {number}"), "v".to_owned()]));
            if number % WIDTH == 0 || number + 1 == KEYS {
                connection.do_requests().await.unwrap();
                connection.outbox = Outbox::default();
            }
        }
        let commands: [&[&str]; 3] = [&["GET"], &["SET", "w"], &["APPEND", "w"]];
        for (words, most) in commands.into_iter().zip([4, 20, 40]) {
            let mut waits = 0;
            for round in 0..20 {
                let pipeline = (0..WIDTH).flat_map(|number| {
                    let name = key(round * WIDTH + number);
                    request(
                        [words[0].to_owned(), name]
                            .into_iter()
                            .chain(words[1..].iter().map(|&w| w.to_owned())),
                    )
                });
                arrive(&mut connection, &pipeline.collect::<Vec<_>>());
                // The last poll waits for nothing.
                waits = waits.max(turns(&mut connection, usize::MAX).await - 1);
                assert!(!connection.outbox.bytes.contains(&b'-'));
                connection.outbox = Outbox::default();
            }
            println!("{} waits for {waits} round trips at most", words[0]);
            assert!(waits <= most, "64 times {} wait for {waits} round trips", words[0]);
        }
    });
}

/// Replies that wait for an earlier one, or for the client, take bounded memory.
#[test]
fn overlapping_requests_wait_while_the_client_reads_no_replies() {
    const REPLY: usize = 700_000;
    const SESSIONS: usize = 4;
    const REQUESTS: usize = 2000;
    run(async {
        let (mut connection, _client) =
            remote_connection(GatewayOptions { sessions_max: SESSIONS, ..GatewayOptions::default() });
        for key in 0..4 {
            arrive(&mut connection, &request(["SET".to_owned(), format!("k{key}"), "v".repeat(REPLY)]));
        }
        turns(&mut connection, usize::MAX).await;
        let lines = ["GET k0", "GET k1", "INCR n", "GET k2", "APPEND k3 v", "GET k3"];
        let asked =
            lines.map(|line| request(line.split(' ').map(str::to_owned))).concat().repeat(REQUESTS / 4);
        arrive(&mut connection, &asked);
        assert_eq!(turns(&mut connection, 5000).await, 5000, "the requests wait for the client");
        let held = connection.outbox.buffer_bytes();
        assert!(
            held <= UNSENT_MAX + SENT_AT_ONCE + (SESSIONS + 1) * (REPLY + 10_000),
            "{held} bytes of replies"
        );
    });
}

/// A connection that ends with requests in progress returns its sessions and the bytes that it holds.
#[test]
fn a_connection_that_ends_in_a_pipeline_holds_nothing() {
    run(async {
        for polls in 1..12 {
            let (mut connection, _client) = remote_connection(GatewayOptions::default());
            let worker = Rc::clone(&connection.worker);
            let sets = (0..64).flat_map(|key| {
                request(["HSET".to_owned(), format!("k{key}"), "f".to_owned(), "v".repeat(100)])
            });
            arrive(&mut connection, &sets.collect::<Vec<_>>());
            connection.count().unwrap();
            turns(&mut connection, polls).await;
            drop(connection);
            assert_eq!(worker.free_sessions(), (64, 63), "after {polls} polls");
            assert_eq!(worker.shared.held_bytes.load(Ordering::Relaxed), 0);
        }
    });
}
