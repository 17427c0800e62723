//! Commands that wait for elements: `BLPOP` and others, within one gateway and through several.

use crate::door::{Client, Door, Reply, bulks, error, has_transactions, request};
use crate::peers::Pool;
use crate::several_keys::two_doors;
use crate::transactions::transact;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Waits until this many clients of a gateway wait for elements.
pub fn until_waiting(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}\r\n");
    let is_so =
        |client: &mut Client| String::from_utf8(client.say("info clients").bytes()).unwrap().contains(&line);
    for _ in 0..6000 {
        if is_so(client) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{count} clients do not wait");
}

/// A client that has sent a request.
pub fn asking(door: &Door, line: &str) -> Client {
    let mut client = door.client();
    client.send(&request(&line.split(' ').collect::<Vec<_>>()));
    client
}

#[test]
fn elements_that_are_there_are_returned_at_once() {
    let door = Door::open();
    let mut client = door.client();
    client.say("rpush l a b c d e f");
    client.say("zadd z 1 m 2 n 3 o 4 p");
    assert_eq!(client.say("blpop none l 0"), bulks(&["l", "a"]));
    assert_eq!(client.say("brpop l none 0.5"), bulks(&["l", "f"]));
    assert_eq!(
        client.say("blmpop 0 2 none l right count 2"),
        Reply::Array(vec![Reply::bulk("l"), bulks(&["e", "d"])])
    );
    assert_eq!(client.say("blmove l l left right 0"), Reply::bulk("b"));
    if has_transactions() {
        assert_eq!(client.say("brpoplpush l m 0"), Reply::bulk("b"));
        assert_eq!(client.say("blpop m 0"), bulks(&["m", "b"]));
    }
    assert_eq!(client.say("bzpopmin none z 0"), bulks(&["z", "m", "1"]));
    assert_eq!(client.say("bzpopmax z 0"), bulks(&["z", "p", "4"]));
    let both = Reply::Array(vec![bulks(&["n", "2"]), bulks(&["o", "3"])]);
    assert_eq!(client.say("bzmpop 0 1 z min count 9"), Reply::Array(vec![Reply::bulk("z"), both]));
    for line in [
        "blpop l",
        "blpop l x",
        "blpop l -1",
        "brpop l inf",
        "blmpop 0 0 l left",
        "blmpop 0 1 l",
        "blmpop x 1 l left",
        "blmove l l left up 0",
        "brpoplpush l l -0.1",
        "bzpopmin z nan",
        "bzmpop 0 1 z up",
        "blpop z l",
        "bzpopmin z l z",
    ] {
        error(client.say(line));
    }
    client.say("zadd z 1 m");
    assert!(error(client.say("blpop z 0")).starts_with("WRONGTYPE"));
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    let door = Door::open();
    let mut client = door.client();
    for line in [
        "blpop a b 0.01",
        "blpop a b 5e-324",
        "blmpop 1e-300 1 a left",
        "brpop a 0.01",
        "blmpop 0.01 1 a left",
        "blmove a b left right 0.01",
        "brpoplpush a b 0.01",
        "bzpopmin a 0.01",
        "bzpopmax a b 0.01",
        "bzmpop 0.01 1 a min",
    ] {
        assert_eq!(client.say(line), Reply::Null, "{line}");
    }
    until_waiting(&mut client, 0);
    // No client waits within a transaction.
    if has_transactions() {
        let replies = transact(&mut client, &["blpop a 0", "blmove a b left left 0", "bzmpop 0 1 a min"]);
        assert_eq!(replies, Reply::Array(vec![Reply::Null; 3]));
        let script = "return redis.call('blmpop', 0, 1, 'a', 'left')";
        assert_eq!(client.ask(&["eval", script, "0"]), Reply::Null);
        assert!(
            error(client.ask(&["eval", "return redis.call('blpop', 'a', 0)", "0"])).contains("not allowed")
        );
    }
}

#[test]
fn everything_that_adds_elements_wakes_a_client() {
    let door = Door::open();
    let mut client = door.client();
    for (wait, add, expected) in [
        ("blpop l 0", &["rpush l a"][..], bulks(&["l", "a"])),
        ("brpop x l 0", &["lpush l a b"], bulks(&["l", "a"])),
        ("blpop l 0", &["rpush s a", "rename s l"], bulks(&["l", "a"])),
        ("blpop l 0", &["rpush s a", "copy s l"], bulks(&["l", "a"])),
        ("blpop l 0", &["rpush s a", "lmove s l left left"], bulks(&["l", "a"])),
        ("blpop l 0", &["rpush s a", "rpoplpush s l"], bulks(&["l", "a"])),
        ("blpop l 0", &["rpush s b a", "sort s alpha store l"], bulks(&["l", "a"])),
        ("blpop l 0", &["multi", "sadd s b a", "sort s alpha store l", "exec"], bulks(&["l", "a"])),
        ("bzpopmin z 0", &["sadd s m", "zunionstore z 1 s"], bulks(&["z", "m", "1"])),
        ("bzpopmin z 0", &["zadd s 2 m", "zrangestore z s 0 -1"], bulks(&["z", "m", "2"])),
        ("bzpopmin z 0", &["multi", "sadd s m", "zunionstore z 1 s", "exec"], bulks(&["z", "m", "1"])),
        ("blmove l m left left 0", &["rpush l a"], Reply::bulk("a")),
        (
            "blmpop 0 2 x l left count 5",
            &["rpush l a b"],
            Reply::Array(vec![Reply::bulk("l"), bulks(&["a", "b"])]),
        ),
        ("blpop l 0", &["eval redis.call('rpush','l','a') 0"], bulks(&["l", "a"])),
        ("blpop l 0", &["multi", "rpush l a", "exec"], bulks(&["l", "a"])),
        ("blpop l 0", &["multi", "rpush l a", "del l", "rpush l b", "exec"], bulks(&["l", "b"])),
        ("bzpopmin z 0", &["zadd z 2 n 1 m"], bulks(&["z", "m", "1"])),
        ("bzpopmax z 0", &["zincrby z 2 n"], bulks(&["z", "n", "2"])),
        (
            "bzmpop 0 1 z max",
            &["zadd s 1 m", "rename s z"],
            Reply::Array(vec![Reply::bulk("z"), Reply::Array(vec![bulks(&["m", "1"])])]),
        ),
    ] {
        if !has_transactions() && (wait.starts_with("blmove") || add.len() > 1 || add[0].starts_with("eval"))
        {
            continue;
        }
        client.say("flushall");
        let mut waiting = asking(&door, wait);
        until_waiting(&mut client, 1);
        for line in add {
            let reply = client.say(line);
            assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
        }
        assert_eq!(waiting.reply(), expected, "{wait} {add:?}");
        assert_eq!(waiting.say("ping"), Reply::Simple("PONG".to_owned()));
    }
}

#[test]
fn a_blocked_move_feeds_the_next_client() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    let mut last = asking(&door, "blpop c 0");
    let mut middle = asking(&door, "blmove b c left left 0");
    let mut first = asking(&door, "brpoplpush a b 0");
    until_waiting(&mut client, 3);
    client.say("rpush a x");
    assert_eq!(first.reply(), Reply::bulk("x"));
    assert_eq!(middle.reply(), Reply::bulk("x"));
    assert_eq!(last.reply(), bulks(&["c", "x"]));
    assert_eq!(client.say("exists a b c"), Reply::Integer(0));
}

#[test]
fn clients_are_served_in_the_order_in_which_they_came() {
    let door = Door::open();
    let mut client = door.client();
    let mut waiting = Vec::new();
    for number in 0..6 {
        waiting.push(asking(&door, if number % 2 == 0 { "blpop l other 0" } else { "brpop x l 0" }));
        until_waiting(&mut client, number + 1);
    }
    // One by one, and several at a time.
    client.say("rpush l 0");
    assert_eq!(waiting[0].reply(), bulks(&["l", "0"]));
    client.say("rpush l 1");
    assert_eq!(waiting[1].reply(), bulks(&["l", "1"]));
    client.say("rpush l 2 3 4 5");
    let mut served: Vec<Vec<u8>> =
        waiting[2..].iter_mut().map(|client| client.reply().array().pop().unwrap().bytes()).collect();
    served.sort();
    assert_eq!(served, [b"2", b"3", b"4", b"5"]);
    until_waiting(&mut client, 0);
}

#[test]
fn a_client_that_goes_lets_the_next_one_have_its_turn() {
    let door = Door::open();
    let mut client = door.client();
    let gone = asking(&door, "blpop l 0");
    until_waiting(&mut client, 1);
    let mut killed = asking(&door, "blpop l 0");
    until_waiting(&mut client, 2);
    let mut next = asking(&door, "blpop l 0");
    until_waiting(&mut client, 3);
    drop(gone);
    until_waiting(&mut client, 2);
    let ids = String::from_utf8(client.say("client list").bytes()).unwrap();
    let killed_id = ids.lines().find(|line| line.contains("cmd=blpop")).unwrap();
    let killed_id = killed_id.split(' ').next().unwrap().strip_prefix("id=").unwrap();
    assert_eq!(client.say(&format!("client kill id {killed_id}")), Reply::Integer(1));
    until_waiting(&mut client, 1);
    client.say("rpush l a");
    assert_eq!(next.reply(), bulks(&["l", "a"]));
    assert!(killed.try_reply().is_none());
    assert_eq!(client.say("llen l"), Reply::Integer(0));
}

#[test]
fn clients_can_be_unblocked() {
    let door = Door::open();
    let mut client = door.client();
    for (how, expected) in [
        ("", Reply::Null),
        (" timeout", Reply::Null),
        (" error", Reply::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".to_owned())),
    ] {
        let mut waiting = door.client();
        let Reply::Integer(id) = waiting.say("client id") else { panic!("no id") };
        assert_eq!(client.say(&format!("client unblock {id}{how}")), Reply::Integer(0));
        waiting.send(&request(&["blpop", "l", "0"]));
        until_waiting(&mut client, 1);
        assert_eq!(client.say(&format!("client unblock {id}{how}")), Reply::Integer(1));
        assert_eq!(waiting.reply(), expected);
        until_waiting(&mut client, 0);
        assert_eq!(client.say(&format!("client unblock {id}{how}")), Reply::Integer(0));
    }
    for line in ["client unblock", "client unblock x", "client unblock 1 foo", "client unblock 1 error x"] {
        error(client.say(line));
    }
}

#[test]
fn requests_after_a_blocked_one_wait_for_it() {
    let door = Door::open();
    let mut client = door.client();
    let mut waiting = door.client();
    let lines = ["set a 1", "blpop l 0", "incr a", "blpop m 0.01", "get a"];
    let bytes = lines.iter().flat_map(|line| request(&line.split(' ').collect::<Vec<_>>()));
    waiting.send(&bytes.collect::<Vec<u8>>());
    assert_eq!(waiting.reply(), Reply::Simple("OK".to_owned()));
    until_waiting(&mut client, 1);
    // More requests arrive during the wait.
    waiting.send(&request(&["echo", &"x".repeat(100_000)]));
    assert_eq!(client.say("get a"), Reply::bulk("1"));
    client.say("lpush l x");
    assert_eq!(waiting.reply(), bulks(&["l", "x"]));
    assert_eq!(waiting.reply(), Reply::Integer(2));
    assert_eq!(waiting.reply(), Reply::Null);
    assert_eq!(waiting.reply(), Reply::bulk("2"));
    assert!(waiting.reply() == Reply::bulk(&"x".repeat(100_000)));
}

#[test]
fn a_key_of_another_type_wakes_no_client() {
    let door = Door::open();
    let mut client = door.client();
    let mut waiting = asking(&door, "blpop l 0");
    until_waiting(&mut client, 1);
    client.say("set l x");
    client.say("zadd other 1 m");
    client.say("del l");
    until_waiting(&mut client, 1);
    client.say("zadd l 1 m");
    until_waiting(&mut client, 1);
    client.say("del l");
    client.say("rpush l a");
    assert_eq!(waiting.reply(), bulks(&["l", "a"]));
    if has_transactions() {
        client.say("set to x");
        let mut waiting = asking(&door, "blmove l to left left 0");
        until_waiting(&mut client, 1);
        client.say("rpush l a");
        assert!(error(waiting.reply()).starts_with("WRONGTYPE"));
        assert_eq!(client.say("llen l"), Reply::Integer(1));
    }
}

/// Workers of two gateways wait for jobs that come through both: each job arrives once.
#[test]
fn jobs_through_two_gateways_arrive_once() {
    const JOBS: usize = 1200;
    let doors = two_doors(&crate::door::store("mem:128M"));
    let (left, done) = (AtomicUsize::new(JOBS), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (door, left, done) = (&doors[thread % 2], &left, &done);
            scope.spawn(move || {
                let mut client = door.client();
                while left.load(Ordering::Acquire) > 0 {
                    let wait = if thread < 3 { "blpop jobs 0.05" } else { "brpop other jobs 0.05" };
                    if let Reply::Array(mut job) = client.say(wait) {
                        left.fetch_sub(1, Ordering::AcqRel);
                        done.lock().unwrap().push(job.pop().unwrap().bytes());
                    }
                }
            });
        }
        for (number, door) in doors.iter().enumerate() {
            scope.spawn(move || {
                let mut client = door.client();
                for job in (number..JOBS).step_by(2) {
                    client.say(&format!("rpush jobs {job}"));
                    if job % 100 < 2 {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    assert_eq!((done.len(), done.iter().collect::<BTreeSet<_>>().len()), (JOBS, JOBS));
}

#[test]
fn an_element_added_through_another_gateway_is_found() {
    let doors = two_doors(&crate::door::store("mem:64M"));
    let mut clients = doors.each_ref().map(Door::client);
    for (wait, add) in [("blpop l 0", "rpush l a"), ("bzpopmin z 0", "zadd z 1 a")] {
        let mut waiting = asking(&doors[0], wait);
        until_waiting(&mut clients[0], 1);
        clients[1].say(add);
        assert!(matches!(waiting.reply(), Reply::Array(found) if found[1] == Reply::bulk("a")));
    }
}

/// Gateways that are connected tell each other about new elements.
#[test]
fn a_connected_gateway_tells_of_new_elements() {
    let pool = Pool::new();
    let doors = pool.two_doors();
    let mut clients = doors.each_ref().map(Door::client);
    for round in 0..20 {
        let mut waiting = asking(&doors[round % 2], "blpop x l 0");
        until_waiting(&mut clients[round % 2], 1);
        clients[(round + 1) % 2].say(&format!("rpush l {round}"));
        assert_eq!(waiting.reply(), bulks(&["l", &round.to_string()]));
    }
    if has_transactions() {
        for add in [
            &["multi", "rpush l a", "exec"][..],
            &["eval redis.call('rpush','l','a') 0"],
            &["rpush s a", "lmove s l left left"],
        ] {
            let mut waiting = asking(&doors[0], "brpop l 0");
            until_waiting(&mut clients[0], 1);
            for line in add {
                clients[1].say(line);
            }
            assert_eq!(waiting.reply(), bulks(&["l", "a"]));
        }
    }
}
