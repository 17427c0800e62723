//! Streams through several gateways: clients that wait for entries, consumers that compete, and a gateway
//! that is killed.

use crate::at_one_moment::meanwhile;
use crate::blocking::{asking, until_waiting};
use crate::door::{Door, Reply, has_transactions, request};
use crate::lists::integer;
use crate::peers::Pool;
use crate::several_keys::{kill_amid, pool_in_a_file, two_doors};
use crate::streams::ids;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The ids that a read of one stream returns.
fn read(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Null => Vec::new(),
        reply => ids(reply.array().remove(0).array().remove(1)),
    }
}

#[test]
fn new_entries_wake_all_readers_and_one_consumer_of_each_group() {
    let door = Door::open();
    let mut client = door.client();
    client.say("xadd s 1-0 f v");
    let mut readers = [(); 3].map(|()| asking(&door, "xread block 0 streams none s $ $"));
    let mut later = asking(&door, "xread block 0 streams s 2-0");
    until_waiting(&mut client, 4);
    if has_transactions() {
        client.say("xgroup create s g $");
        client.say("xgroup create s h $");
        let mut consumers = Vec::new();
        for (number, group) in ["g", "g", "h"].into_iter().enumerate() {
            consumers.push(asking(&door, &format!("xreadgroup group {group} {number} block 0 streams s >")));
            until_waiting(&mut client, 5 + number);
        }
        client.say("xadd s 2-0 f v");
        assert_eq!(read(consumers[0].reply()), ["2-0"]);
        assert_eq!(read(consumers[2].reply()), ["2-0"]);
        until_waiting(&mut client, 2);
        client.say("xadd s 3-0 f v");
        assert_eq!(read(consumers[1].reply()), ["3-0"]);
    } else {
        client.say("xadd s 2-0 f v");
        client.say("xadd s 3-0 f v");
    }
    for reader in &mut readers {
        assert_eq!(read(reader.reply())[0], "2-0");
    }
    assert_eq!(read(later.reply()), ["3-0"]);
    assert_eq!(client.say("xread block 10 streams s $"), Reply::Null);
    // A key of another type ends no wait.
    let mut reader = asking(&door, "xread block 0 streams t 0");
    until_waiting(&mut client, 1);
    client.say("rpush t x");
    client.say("del t");
    until_waiting(&mut client, 1);
    client.say("xadd t 5-0 f v");
    assert_eq!(read(reader.reply()), ["5-0"]);
}

#[test]
fn consumers_that_wait_learn_that_their_group_is_gone() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    for change in ["del s", "xgroup destroy s g", "set s x"] {
        client.say("del s");
        client.say("xgroup create s g $ mkstream");
        let mut consumer = asking(&door, "xreadgroup group g a block 0 streams s >");
        until_waiting(&mut client, 1);
        client.say(change);
        assert!(matches!(consumer.reply(), Reply::Error(_)), "{change}");
    }
}

#[test]
fn a_gateway_tells_others_of_new_entries() {
    let pool = Pool::new();
    let doors = pool.two_doors();
    let mut clients = doors.each_ref().map(Door::client);
    for round in 0..20 {
        let (own, other) = (round % 2, (round + 1) % 2);
        let mut reader = asking(&doors[own], "xread block 0 streams x s 0 $");
        until_waiting(&mut clients[own], 1);
        let added = clients[other].say("xadd s * f v").bytes();
        assert_eq!(read(reader.reply()), [String::from_utf8(added).unwrap()]);
    }
    if has_transactions() {
        clients[0].say("xgroup create s g $");
        let mut consumer = asking(&doors[0], "xreadgroup group g a block 0 streams s >");
        until_waiting(&mut clients[0], 1);
        clients[1].say("multi");
        clients[1].say("xadd s 18446744073709551615-1 f v");
        clients[1].say("exec");
        assert_eq!(read(consumer.reply()), ["18446744073709551615-1"]);
    }
}

/// Producers and consumers at two gateways: each entry is delivered once, and acknowledged once.
#[test]
fn each_entry_is_delivered_and_acknowledged_once() {
    const EACH: usize = 400;
    if !has_transactions() {
        return;
    }
    let doors = two_doors(&crate::door::store("mem:256M"));
    doors[0].client().say("xgroup create s g 0 mkstream");
    let (left, done, added) = (AtomicUsize::new(2 * EACH), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (door, left, done, added) = (&doors[thread % 2], &left, &done, &added);
            if thread < 2 {
                scope.spawn(move || {
                    let mut client = door.client();
                    for number in 0..EACH {
                        let id = client.say(&format!("xadd s * f {thread}:{number}")).bytes();
                        added.lock().unwrap().push(String::from_utf8(id).unwrap());
                    }
                });
            }
            scope.spawn(move || {
                let mut client = door.client();
                while left.load(Ordering::Acquire) > 0 {
                    let got = read(
                        client.say(&format!("xreadgroup group g {thread} count 3 block 20 streams s >")),
                    );
                    for id in got {
                        assert_eq!(client.say(&format!("xack s g {id}")), Reply::Integer(1));
                        left.fetch_sub(1, Ordering::AcqRel);
                        done.lock().unwrap().push(id);
                    }
                }
            });
        }
    });
    let (done, added) = (done.into_inner().unwrap(), added.into_inner().unwrap());
    let all: BTreeSet<_> = added.iter().collect();
    assert_eq!((done.len(), all.len()), (2 * EACH, 2 * EACH));
    assert_eq!(done.iter().collect::<BTreeSet<_>>(), all);
    let mut client = doors[1].client();
    assert_eq!(client.say("xpending s g").array()[0], Reply::Integer(0));
    assert_eq!(client.say("xlen s"), integer(2 * EACH));
    assert_eq!(ids(client.say("xrange s - +")).iter().collect::<BTreeSet<_>>(), all);
}

#[test]
fn streams_that_are_trimmed_and_renamed_keep_what_others_add() {
    if !has_transactions() {
        return;
    }
    let doors = two_doors(&crate::door::store("mem:128M"));
    let (renamed, added) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    let filling = ".".repeat(100);
    meanwhile(
        &doors,
        |client, _| {
            for _ in 0..20 {
                let id = client.say(&format!("xadd from * f {filling}")).bytes();
                added.lock().unwrap().insert(String::from_utf8(id).unwrap());
            }
        },
        |client| {
            let number = renamed.fetch_add(1, Ordering::Relaxed);
            client.say("xdel from 1-1");
            match client.say(&format!("rename from to:{number}")) {
                Reply::Error(text) => assert_eq!(text, "ERR no such key"),
                reply => assert_eq!(reply, Reply::Simple("OK".to_owned())),
            }
        },
    );
    let (mut client, mut found) = (doors[1].client(), Vec::new());
    for key in (0..renamed.into_inner()).map(|number| format!("to:{number}")).chain(["from".to_owned()]) {
        let own = ids(client.say(&format!("xrange {key} - +")));
        assert_eq!(client.say(&format!("xlen {key}")), integer(own.len()));
        found.extend(own);
    }
    // Streams of different names may have entries of the same id.
    assert!(found.len() >= added.lock().unwrap().len());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), added.into_inner().unwrap());
}

#[test]
fn a_killed_gateway_leaves_each_command_on_streams_whole_or_undone() {
    if !has_transactions() {
        return;
    }
    let (_directory, url, door) = pool_in_a_file();
    let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(7));
    let filling = ".".repeat(200);
    for _ in 0..4 {
        client.say("del s");
        client.say("xgroup create s g 0 mkstream");
        let acknowledged = kill_amid(&url, &mut dice, |number| match number % 3 {
            0 => request(&["xadd", "s", "maxlen", "1000000", &format!("{}-0", number + 1), "f", &filling]),
            1 => request(&["xreadgroup", "group", "g", "c", "streams", "s", ">"]),
            _ => request(&["xack", "s", "g", &format!("{}-0", number - 1)]),
        });
        let found = ids(client.say("xrange s - +"));
        let (added, length) = (acknowledged.div_ceil(3), found.len());
        // Replies of the dead gateway may be lost.
        assert!(length >= added, "{length} {added}");
        assert!(found.iter().enumerate().all(|(at, id)| *id == format!("{}-0", 3 * at + 1)));
        assert_eq!(client.say("xlen s"), integer(length));
        // What was not acknowledged is pending or was not delivered.
        let pending = client.say("xpending s g - + 1000").array().len();
        assert_eq!(client.say("xpending s g").array()[0], integer(pending));
        let rest = read(client.say("xreadgroup group g d streams s >"));
        assert!(pending + rest.len() <= 1, "{pending} {rest:?}");
        // The remains of the dead gateway block no client.
        assert!(matches!(client.say("xadd s * f v"), Reply::Bulk(_)));
    }
}
