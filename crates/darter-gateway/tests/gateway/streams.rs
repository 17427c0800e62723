//! The entries of streams, as clients see them.

use crate::door::{Client, Door, Reply, error, has_transactions, request};
use crate::lists::integer;
use crate::transactions::transact;
use std::ops::RangeInclusive;

/// A reply with the entries of these ids, each with the field `f` and the value `v`.
fn entries(ids: &[&str]) -> Reply {
    let entry = |id: &&str| {
        Reply::Array(vec![Reply::bulk(id), Reply::Array(vec![Reply::bulk("f"), Reply::bulk("v")])])
    };
    Reply::Array(ids.iter().map(entry).collect())
}

/// The ids of a range.
pub fn ids(reply: Reply) -> Vec<String> {
    let id = |entry: Reply| String::from_utf8(entry.array().remove(0).bytes()).unwrap();
    reply.array().into_iter().map(id).collect()
}

/// The ids `1-0` and so on, from a number to another.
pub fn names(numbers: RangeInclusive<usize>) -> String {
    let names: Vec<String> = numbers.map(|number| format!("{number}-0")).collect();
    names.join(" ")
}

/// Adds entries with the ids `1-0` and so on.
fn add(client: &mut Client, key: &str, count: usize) {
    for number in 1..=count {
        let id = format!("{number}-0");
        assert_eq!(client.say(&format!("xadd {key} {id} f v")), Reply::bulk(&id));
    }
}

/// Returns a value of `XINFO STREAM`.
fn info(client: &mut Client, key: &str, name: &str) -> Reply {
    let info = client.say(&format!("xinfo stream {key}")).array();
    let at = info.iter().step_by(2).position(|other| *other == Reply::bulk(name)).unwrap();
    info[2 * at + 1].clone()
}

#[test]
fn ids_only_increase() {
    let door = Door::open();
    let mut client = door.client();
    for (id, expected) in [
        ("5-1", "5-1"),
        ("5-*", "5-2"),
        ("7", "7-0"),
        ("7-*", "7-1"),
        ("9-*", "9-0"),
        ("18446744073709551614-5", "18446744073709551614-5"),
    ] {
        assert_eq!(client.say(&format!("xadd s {id} f v")), Reply::bulk(expected));
    }
    for id in ["18446744073709551614-5", "5-*", "0-0", "0-1"] {
        assert!(error(client.say(&format!("xadd s {id} f v"))).contains("ID specified in XADD"), "{id}");
    }
    assert_eq!(client.say("xadd s * f v"), Reply::bulk("18446744073709551614-6"));
    assert_eq!(client.say("xlen s"), Reply::Integer(7));
    let id = ids(Reply::Array(vec![Reply::Array(vec![client.say("xadd t * f v")])])).remove(0);
    assert!(id.ends_with("-0") && id.len() > 10, "{id}");
    client.say("xadd t 18446744073709551615-18446744073709551615 f v");
    assert!(error(client.say("xadd t * f v")).contains("exhausted the last possible ID"));
    assert_eq!(client.say("xadd none nomkstream * f v"), Reply::Null);
    assert_eq!(client.say("exists none"), Reply::Integer(0));
    for line in
        ["xadd s", "xadd s *", "xadd s * f", "xadd s * f v g", "xadd s x f v", "xadd s maxlen x * f v"]
    {
        error(client.say(line));
    }
    client.say("set string x");
    assert!(error(client.say("xadd string * f v")).starts_with("WRONGTYPE"));
}

#[test]
fn ranges_have_inclusive_and_exclusive_bounds() {
    let door = Door::open();
    let mut client = door.client();
    // In the head, and in chunks too.
    for count in [5, if has_transactions() { 700 } else { 9 }] {
        client.say("flushall");
        add(&mut client, "s", count);
        let last = format!("{count}-0");
        assert_eq!(client.say("xlen s"), integer(count));
        assert_eq!(client.say("xrange s - + count 2"), entries(&["1-0", "2-0"]));
        assert_eq!(client.say("xrange s 2 4"), entries(&["2-0", "3-0", "4-0"]));
        assert_eq!(client.say("xrange s (2 (4-0"), entries(&["3-0"]));
        assert_eq!(client.say("xrevrange s 4 (2-0"), entries(&["4-0", "3-0"]));
        assert_eq!(client.say("xrevrange s + - count 1"), entries(&[&last]));
        assert_eq!(client.say("xrange s 4 2"), entries(&[]));
        assert_eq!(client.say("xrange s - + count 0"), Reply::Null);
        let all: Vec<String> = (1..=count).map(|number| format!("{number}-0")).collect();
        assert_eq!(ids(client.say("xrange s - +")), all);
        let mut backwards = ids(client.say("xrevrange s + -"));
        backwards.reverse();
        assert_eq!(backwards, all);
        for from in (0..count).step_by(17) {
            let part = ids(client.say(&format!("xrange s ({from}-0 {}-0", from + 40)));
            assert_eq!(part, all[from..count.min(from + 40)]);
            let part = ids(client.say(&format!("xrevrange s {}-0 ({from}-0 count 30", from + 40)));
            let end = count.min(from + 40);
            assert!(part.iter().rev().eq(&all[from.max(end.saturating_sub(30))..end]), "{from}");
        }
    }
    assert_eq!(client.say("xrange none - +"), entries(&[]));
    for line in
        ["xrange s - + count", "xrange s - + foo 1", "xrange s (- +", "xrange s - (0-0", "xrange s x +"]
    {
        error(client.say(line));
    }
}

#[test]
fn entries_are_trimmed_and_deleted() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    add(&mut client, "s", 500);
    assert_eq!(client.say("xtrim s maxlen 490"), Reply::Integer(10));
    assert_eq!(client.say("xtrim s maxlen ~ 489"), Reply::Integer(0));
    assert_eq!(client.say("xtrim s minid 21"), Reply::Integer(10));
    assert_eq!(info(&mut client, "s", "recorded-first-entry-id"), Reply::bulk("21-0"));
    let Reply::Integer(removed) = client.say("xtrim s maxlen ~ 200") else { panic!("no number") };
    assert!((100..=280).contains(&removed), "{removed}");
    assert_eq!(client.say("xlen s"), Reply::Integer(480 - removed));
    assert_eq!(client.say("xadd s maxlen 3 501-0 f v"), Reply::bulk("501-0"));
    assert_eq!(client.say("xrange s - +"), entries(&["499-0", "500-0", "501-0"]));
    assert_eq!(client.say("xadd s minid = 501 502-0 f v"), Reply::bulk("502-0"));
    assert_eq!(client.say("xrange s - +"), entries(&["501-0", "502-0"]));
    client.say("del s");
    add(&mut client, "s", 500);
    // In different chunks, twice, and some that do not exist.
    assert_eq!(client.say("xdel s 1-0 250-0 1-0 500-0 251-0 250-1 900-0"), Reply::Integer(4));
    assert_eq!(client.say("xlen s"), Reply::Integer(496));
    assert_eq!(info(&mut client, "s", "recorded-first-entry-id"), Reply::bulk("2-0"));
    assert_eq!(info(&mut client, "s", "max-deleted-entry-id"), Reply::bulk("500-0"));
    assert_eq!(info(&mut client, "s", "entries-added"), Reply::Integer(500));
    assert_eq!(client.say("xrange s 249 253"), entries(&["249-0", "252-0", "253-0"]));
    for from in (1..=500).step_by(50) {
        let names = names(from..=from + 49);
        assert!(matches!(client.say(&format!("xdel s {names}")), Reply::Integer(48..)));
    }
    assert_eq!(client.say("xlen s"), Reply::Integer(0));
    assert_eq!(client.say("type s"), Reply::Simple("stream".to_owned()));
    assert_eq!(info(&mut client, "s", "last-generated-id"), Reply::bulk("500-0"));
    assert_eq!(info(&mut client, "s", "radix-tree-keys"), Reply::Integer(0));
    error(client.say("xadd s 500-0 f v"));
    assert_eq!(client.say("xtrim s maxlen 0"), Reply::Integer(0));
    add(&mut client, "t", 300);
    assert_eq!(client.say("xtrim t maxlen 0"), Reply::Integer(300));
    assert_eq!(client.say("xinfo stream t full").array()[13], Reply::bulk("0-0"));
}

#[test]
fn the_last_id_can_be_set() {
    let door = Door::open();
    let mut client = door.client();
    assert_eq!(error(client.say("xsetid s 1-0")), "ERR no such key");
    client.say("xadd s 5-0 f v");
    assert!(error(client.say("xsetid s 4-0")).contains("smaller than the target stream top item"));
    assert_eq!(client.say("xsetid s 9-0 entriesadded 70 maxdeletedid 8-0"), Reply::Simple("OK".to_owned()));
    for (name, value) in [("last-generated-id", "9-0"), ("max-deleted-entry-id", "8-0")] {
        assert_eq!(info(&mut client, "s", name), Reply::bulk(value));
    }
    assert_eq!(info(&mut client, "s", "entries-added"), Reply::Integer(70));
    for line in [
        "xsetid s 9 entriesadded 0",
        "xsetid s 9 entriesadded -1",
        "xsetid s 9 maxdeletedid 9-1",
        "xsetid s 9 foo 1",
    ] {
        error(client.say(line));
    }
    if has_transactions() {
        add(&mut client, "t", 300);
        let names = names(200..=300);
        client.say(&format!("xdel t {names}"));
        assert!(error(client.say("xsetid t 198-0")).contains("top item"));
        assert_eq!(client.say("xsetid t 199-0"), Reply::Simple("OK".to_owned()));
        assert_eq!(client.say("xadd t 199-* f v"), Reply::bulk("199-1"));
        assert_eq!(client.say("xrevrange t + - count 2"), entries(&["199-1", "199-0"]));
    }
}

#[test]
fn reads_return_what_follows_an_id() {
    let door = Door::open();
    let mut client = door.client();
    add(&mut client, "s", 3);
    add(&mut client, "t", 2);
    let part = |key: &str, ids: &[&str]| Reply::Array(vec![Reply::bulk(key), entries(ids)]);
    assert_eq!(
        client.say("xread streams s none t 1 0 0"),
        Reply::Array(vec![part("s", &["2-0", "3-0"]), part("t", &["1-0", "2-0"])])
    );
    assert_eq!(client.say("xread count 1 streams s t 0 2"), Reply::Array(vec![part("s", &["1-0"])]));
    for line in ["xread streams s t 3 $", "xread block 1 streams s t $ 2-0", "xread streams none 0"] {
        assert_eq!(client.say(line), Reply::Null, "{line}");
    }
    for line in [
        "xread streams s",
        "xread streams s t 1",
        "xread count x streams s 0",
        "xread block -1 streams s 0",
        "xread block x streams s 0",
        "xread streams s >",
        "xread streams s x",
        "xread noack streams s 0",
        "xread group g c streams s 0",
        "xread foo streams s 0",
        "xread count 1 0",
    ] {
        error(client.say(line));
    }
    client.say("hello 3");
    assert_eq!(client.say("xread streams s t 2 9"), Reply::Map(vec![Reply::bulk("s"), entries(&["3-0"])]));
}

#[test]
fn streams_are_keys_like_others() {
    let door = Door::open();
    let mut client = door.client();
    let counts = if has_transactions() { &[3, 400][..] } else { &[] };
    for &count in counts {
        client.say("flushall");
        add(&mut client, "s", count);
        assert_eq!(client.say("object encoding s"), Reply::bulk("stream"));
        assert_eq!(client.say("scan 0 type stream").array()[1], Reply::Array(vec![Reply::bulk("s")]));
        let all = client.say("xrange s - +");
        assert_eq!(client.say("copy s t"), Reply::Integer(1));
        assert_eq!(client.say("rename s u"), Reply::Simple("OK".to_owned()));
        assert_eq!(client.say("exists s"), Reply::Integer(0));
        for key in ["t", "u"] {
            assert_eq!(client.say(&format!("xrange {key} - +")), all);
        }
        // The copies are independent.
        client.say("xtrim t maxlen 1");
        assert_eq!(client.say("xrange u - +"), all);
        assert_eq!(client.say("pexpire u 100000"), Reply::Integer(1));
        client.say(&format!("xadd u {}-0 f v", count + 1));
        assert!(matches!(client.say("pttl u"), Reply::Integer(1..)));
        assert_eq!(client.say("pexpire u 0"), Reply::Integer(1));
        assert_eq!(client.say("xlen u"), Reply::Integer(0));
        assert_eq!(client.say("xadd u 1-0 f v"), Reply::bulk("1-0"));
        assert_eq!(client.say("set t x"), Reply::Simple("OK".to_owned()));
        assert_eq!(client.say("del t u"), Reply::Integer(2));
        // An empty stream is a key.
        client.say("xadd s 1-0 f v");
        client.say("xdel s 1-0");
        assert_eq!(client.say("exists s"), Reply::Integer(1));
        assert!(error(client.say("lpush s x")).starts_with("WRONGTYPE"));
        assert!(error(client.say("get s")).starts_with("WRONGTYPE"));
        assert_eq!(client.say("rename s empty"), Reply::Simple("OK".to_owned()));
        assert!(error(client.say("xadd empty 1-0 f v")).contains("smaller"));
        assert!(matches!(client.say("memory usage empty"), Reply::Integer(1..)));
    }
}

#[test]
fn transactions_and_scripts_use_streams() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    let lines: Vec<String> = (1..=100).map(|number| format!("xadd s {number}-0 f v")).collect();
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    lines.extend([
        "xlen s",
        "xdel s 1-0 50-0 100-0",
        "xrange s - (4-0",
        "xread block 0 streams s 200",
        "xtrim s maxlen 2",
    ]);
    let replies = transact(&mut client, &lines).array();
    assert_eq!(replies[100], Reply::Integer(100));
    assert_eq!(replies[101], Reply::Integer(3));
    assert_eq!(replies[102], entries(&["2-0", "3-0"]));
    assert_eq!(replies[103..], [Reply::Null, Reply::Integer(95)]);
    assert_eq!(client.say("xrange s - +"), entries(&["98-0", "99-0"]));
    let script = "for i = 1, 60 do redis.call('xadd', KEYS[1], i .. '-0', 'f', 'v') end \
                  redis.call('xtrim', KEYS[1], 'minid', '59') return redis.call('xrange', KEYS[1], '-', '+')";
    assert_eq!(client.ask(&["eval", script, "1", "t"]), entries(&["59-0", "60-0"]));
    let script = "return redis.call('xread', 'block', '0', 'streams', 't', '99')";
    assert!(error(client.ask(&["eval", script, "0"])).contains("not allowed with BLOCK option from scripts"));
    // A watched stream that changes ends the transaction.
    let mut other = door.client();
    for change in ["xadd t * f v", "xdel t 59-0", "xsetid t 18446744073709551615"] {
        client.say("watch t");
        other.say(change);
        client.say("multi");
        client.say("ping");
        assert_eq!(client.say("exec"), Reply::Null, "{change}");
    }
}

/// A long entry is the only one in its record.
#[test]
fn entries_may_be_long() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    let long = "x".repeat(30_000);
    for number in 1..=9 {
        let value = if number % 3 == 0 { &long } else { "short" };
        client.say(&format!("xadd s {number}-0 f {value}"));
    }
    let found = client.say("xrange s - +").array();
    assert_eq!(found.len(), 9);
    assert_eq!(found[5].clone().array()[1].clone().array()[1], Reply::bulk(&long));
    assert_eq!(client.say("xdel s 3-0 6-0 9-0"), Reply::Integer(3));
    assert_eq!(ids(client.say("xrevrange s + -")), ["8-0", "7-0", "5-0", "4-0", "2-0", "1-0"]);
    let too_long = "x".repeat(40 << 20);
    client.send(&request(&["xadd", "s", "*", "f", &too_long]));
    assert!(matches!(client.reply(), Reply::Error(_)));
}
