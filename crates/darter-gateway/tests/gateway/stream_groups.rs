//! Consumer groups of streams, as clients see them.

use crate::door::{Client, Door, Reply, error, has_transactions, ok};
use crate::streams::{ids, names};
use crate::transactions::transact;

fn text(reply: Reply) -> String {
    String::from_utf8(reply.bytes()).unwrap()
}

/// The ids that a read of one stream returns.
fn read(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Null => Vec::new(),
        reply => ids(reply.array().remove(0).array().remove(1)),
    }
}

/// The pending entries of a group: id, consumer, deliveries.
fn pending(client: &mut Client, key: &str) -> Vec<(String, String, i64)> {
    let entry = |entry: Reply| {
        let mut parts = entry.array().into_iter();
        let (id, consumer) = (text(parts.next().unwrap()), text(parts.next().unwrap()));
        let Some(Reply::Integer(deliveries)) = parts.nth(1) else { panic!("no deliveries") };
        (id, consumer, deliveries)
    };
    let reply = client.say(&format!("xpending {key} g - + 100000"));
    reply.array().into_iter().map(entry).collect()
}

/// A value of a description.
fn value(reply: Reply, name: &str) -> Reply {
    let described = reply.array();
    let at = described.iter().step_by(2).position(|other| *other == Reply::bulk(name)).unwrap();
    described[2 * at + 1].clone()
}

/// A gateway with a stream `s` of this many entries, and a group `g` that has read none.
fn with_entries(count: usize) -> Option<(Door, Client)> {
    if !has_transactions() {
        return None;
    }
    let door = Door::open();
    let mut client = door.client();
    assert_eq!(client.say("xgroup create s g 0 mkstream"), ok());
    for number in 1..=count {
        client.say(&format!("xadd s {number}-0 f v"));
    }
    Some((door, client))
}

#[test]
fn each_entry_is_delivered_to_one_consumer_until_it_is_acknowledged() {
    let Some((_door, mut client)) = with_entries(300) else { return };
    assert_eq!(read(client.say("xreadgroup group g a count 2 streams s >")), ["1-0", "2-0"]);
    assert_eq!(read(client.say("xreadgroup group g b count 1 streams s >")), ["3-0"]);
    assert_eq!(read(client.say("xreadgroup group g a streams s 0")), ["1-0", "2-0"]);
    assert_eq!(read(client.say("xreadgroup group g a streams s 1")), ["2-0"]);
    assert_eq!(read(client.say("xreadgroup group g c streams s 0")), [""; 0]);
    let of = |id: &str, consumer: &str, deliveries| (id.to_owned(), consumer.to_owned(), deliveries);
    assert_eq!(pending(&mut client, "s"), [of("1-0", "a", 2), of("2-0", "a", 3), of("3-0", "b", 1)]);
    assert_eq!(client.say("xack s g 1-0 9-0 1-0 3-0"), Reply::Integer(2));
    assert_eq!(client.say("xack s g 1-0"), Reply::Integer(0));
    assert_eq!(pending(&mut client, "s"), [of("2-0", "a", 3)]);
    // All others, which take several pages.
    let rest = read(client.say("xreadgroup group g b streams s >"));
    assert_eq!((rest.len(), &rest[0][..], &rest[296][..]), (297, "4-0", "300-0"));
    assert_eq!(client.say("xreadgroup group g b streams s >"), Reply::Null);
    let summary = client.say("xpending s g").array();
    assert_eq!(summary[..3], [Reply::Integer(298), Reply::bulk("2-0"), Reply::bulk("300-0")]);
    let both = [["a", "1"], ["b", "297"]].map(|pair| Reply::Array(pair.map(Reply::bulk).to_vec()));
    assert_eq!(summary[3], Reply::Array(both.to_vec()));
    assert_eq!(client.say("xpending s g - + 10 a").array().len(), 1);
    assert_eq!(client.say("xpending s g (4 6 10").array().len(), 2);
    assert_eq!(client.say("xpending s g idle 100000 - + 10"), Reply::Array(Vec::new()));
    let names = names(4..=300);
    assert_eq!(client.say(&format!("xack s g {names}")), Reply::Integer(297));
    assert_eq!(pending(&mut client, "s").len(), 1);
    // Without acknowledgement.
    client.say("xadd s 301-0 f v");
    assert_eq!(read(client.say("xreadgroup group g b noack streams s >")), ["301-0"]);
    assert_eq!(pending(&mut client, "s").len(), 1);
    // A deleted entry has no fields.
    client.say("xdel s 2-0");
    let history = client.say("xreadgroup group g a streams s 0").array().remove(0).array().remove(1);
    assert_eq!(history, Reply::Array(vec![Reply::Array(vec![Reply::bulk("2-0"), Reply::Null])]));
    assert_eq!(
        client.say("xpending s none"),
        Reply::Error("NOGROUP No such key 's' or consumer group 'none'".to_owned())
    );
    for line in [
        "xreadgroup group none c streams s >",
        "xreadgroup group g c streams none >",
        "xreadgroup group g c streams s $",
        "xreadgroup group g c streams s x",
        "xreadgroup group g c count 1 s >",
        "xreadgroup count 1 noack streams s >",
        "xack s g x",
        "xpending s g - +",
        "xpending s g idle 1 - +",
        "xpending s g - + x",
        "xpending s g (x + 1",
    ] {
        error(client.say(line));
    }
    client.say("set string x");
    for line in [
        "xack string g 1",
        "xpending string g",
        "xgroup create string g 0",
        "xreadgroup group g c streams string >",
    ] {
        assert!(error(client.say(line)).starts_with("WRONGTYPE"), "{line}");
    }
}

#[test]
fn groups_are_created_changed_and_removed() {
    let Some((_door, mut client)) = with_entries(5) else { return };
    assert!(error(client.say("xgroup create s g 0")).starts_with("BUSYGROUP"));
    assert!(error(client.say("xgroup create none g 0")).contains("requires the key to exist"));
    assert!(error(client.say("xgroup setid s none 0")).starts_with("NOGROUP"));
    assert_eq!(client.say("xgroup create s h $ entriesread 5"), ok());
    assert_eq!(client.say("xreadgroup group h a streams s >"), Reply::Null);
    assert_eq!(client.say("xgroup setid s h 3"), ok());
    assert_eq!(read(client.say("xreadgroup group h a streams s >")), ["4-0", "5-0"]);
    assert_eq!(client.say("xgroup createconsumer s h a"), Reply::Integer(0));
    assert_eq!(client.say("xgroup createconsumer s h b"), Reply::Integer(1));
    let groups = client.say("xinfo groups s").array();
    assert_eq!(groups.len(), 2);
    for (name, expected) in [
        ("name", Reply::bulk("h")),
        ("consumers", Reply::Integer(2)),
        ("pending", Reply::Integer(2)),
        ("last-delivered-id", Reply::bulk("5-0")),
        ("entries-read", Reply::Integer(5)),
        ("lag", Reply::Integer(0)),
    ] {
        assert_eq!(value(groups[1].clone(), name), expected, "{name}");
    }
    assert_eq!(value(groups[0].clone(), "lag"), Reply::Integer(5));
    let consumers = client.say("xinfo consumers s h").array();
    assert_eq!((consumers.len(), value(consumers[0].clone(), "pending")), (2, Reply::Integer(2)));
    let full = value(client.say("xinfo stream s full"), "groups").array();
    assert_eq!(value(full[1].clone(), "pending").array().len(), 2);
    assert_eq!(value(value(full[1].clone(), "consumers").array().remove(0), "pel-count"), Reply::Integer(2));
    // The group of the same id is another one.
    assert_eq!(client.say("xgroup delconsumer s h a"), Reply::Integer(2));
    assert_eq!(client.say("xgroup delconsumer s h a"), Reply::Integer(0));
    assert_eq!(client.say("xpending s h").array()[0], Reply::Integer(0));
    assert_eq!(client.say("xgroup destroy s h"), Reply::Integer(1));
    assert_eq!(client.say("xgroup destroy s h"), Reply::Integer(0));
    assert_eq!(client.say("xgroup create s h 0"), ok());
    assert_eq!(client.say("xinfo consumers s h"), Reply::Array(Vec::new()));
    for line in [
        "xgroup",
        "xgroup foo",
        "xgroup create s x",
        "xgroup create s x y",
        "xgroup create s x 0 foo",
        "xgroup create s x 0 entriesread -2",
        "xgroup setid s g",
        "xgroup setid s g 0 mkstream",
        "xgroup destroy s",
        "xgroup createconsumer s none c",
        "xgroup delconsumer none g c",
        "xinfo groups none",
        "xinfo consumers s none",
        "xinfo stream none",
    ] {
        error(client.say(line));
    }
}

#[test]
fn pending_entries_are_claimed() {
    let Some((_door, mut client)) = with_entries(10) else { return };
    client.say("xreadgroup group g a count 6 streams s >");
    let of = |id: &str, consumer: &str, deliveries| (id.to_owned(), consumer.to_owned(), deliveries);
    assert_eq!(ids(client.say("xclaim s g b 0 2-0 9-0 1-0")), ["2-0", "1-0"]);
    assert_eq!(client.say("xclaim s g b 100000 3-0"), Reply::Array(Vec::new()));
    assert_eq!(client.say("xclaim s g c 0 3-0 justid"), Reply::Array(vec![Reply::bulk("3-0")]));
    assert_eq!(ids(client.say("xclaim s g c 0 9-0 force retrycount 7")), ["9-0"]);
    assert_eq!(
        pending(&mut client, "s"),
        [
            of("1-0", "b", 2),
            of("2-0", "b", 2),
            of("3-0", "c", 1),
            of("4-0", "a", 1),
            of("5-0", "a", 1),
            of("6-0", "a", 1),
            of("9-0", "c", 7)
        ]
    );
    // A deleted entry is no longer pending.
    client.say("xdel s 4-0 5-0");
    assert_eq!(client.say("xclaim s g b 0 4-0"), Reply::Array(Vec::new()));
    assert_eq!(pending(&mut client, "s").len(), 6);
    assert_eq!(ids(client.say("xclaim s g b 0 6-0 idle 5000 lastid 8-0")), ["6-0"]);
    assert_eq!(client.say("xpending s g idle 4000 - + 9").array().len(), 1);
    assert_eq!(read(client.say("xreadgroup group g a streams s >")), ["9-0", "10-0"]);
    let claimed = client.say("xautoclaim s g d 4000 0 count 10").array();
    assert_eq!((claimed[0].clone(), ids(claimed[1].clone())), (Reply::bulk("0-0"), vec!["6-0".to_owned()]));
    assert_eq!(claimed[2], Reply::Array(vec![Reply::bulk("5-0")]));
    let claimed = client.say("xautoclaim s g e 0 2 count 2 justid").array();
    assert_eq!(claimed[0], Reply::bulk("6-0"));
    assert_eq!(claimed[1], Reply::Array(["2-0", "3-0"].map(Reply::bulk).to_vec()));
    assert_eq!(pending(&mut client, "s")[1], of("2-0", "e", 2));
    for line in [
        "xclaim s none b 0 1",
        "xclaim s g b x 1",
        "xclaim s g b 0 1 foo",
        "xclaim s g b 0 1 idle x",
        "xautoclaim s none b 0 0",
        "xautoclaim s g b 0 x",
        "xautoclaim s g b 0 0 count 0",
        "xautoclaim s g b 0 0 foo",
    ] {
        error(client.say(line));
    }
}

#[test]
fn groups_are_copied_and_removed_with_their_stream() {
    let Some((_door, mut client)) = with_entries(200) else { return };
    client.say("xreadgroup group g a count 150 streams s >");
    assert_eq!(client.say("copy s t"), Reply::Integer(1));
    assert_eq!(client.say("rename s u"), ok());
    for key in ["t", "u"] {
        assert_eq!(pending(&mut client, key).len(), 150);
        assert_eq!(read(client.say(&format!("xreadgroup group g b count 1 streams {key} >"))), ["151-0"]);
        assert_eq!(client.say(&format!("xack {key} g 7-0")), Reply::Integer(1));
    }
    assert_eq!(client.say("del t"), Reply::Integer(1));
    client.say("xadd t 1-0 f v");
    assert_eq!(client.say("xinfo groups t"), Reply::Array(Vec::new()));
    assert!(error(client.say("xack t g")).contains("arguments"));
    assert_eq!(client.say("xack t g 1-0"), Reply::Integer(0));
    assert_eq!(pending(&mut client, "u").len(), 150);
}

#[test]
fn transactions_and_scripts_use_groups() {
    let Some((_door, mut client)) = with_entries(5) else { return };
    let replies = transact(
        &mut client,
        &[
            "xreadgroup group g a count 2 streams s >",
            "xadd s 6-0 f v",
            "xreadgroup group g b block 0 streams s >",
            "xack s g 1-0 3-0",
            "xpending s g",
            "xreadgroup group g b block 0 streams s >",
        ],
    )
    .array();
    assert_eq!(read(replies[0].clone()), ["1-0", "2-0"]);
    assert_eq!(read(replies[2].clone()), ["3-0", "4-0", "5-0", "6-0"]);
    assert_eq!((&replies[3], &replies[4].clone().array()[0]), (&Reply::Integer(2), &Reply::Integer(4)));
    assert_eq!(replies[5], Reply::Null);
    let script = "redis.call('xgroup', 'create', 's', 'h', '4') \
                  local read = redis.call('xreadgroup', 'group', 'h', 'c', 'streams', 's', '>') \
                  redis.call('xack', 's', 'h', '5-0') return redis.call('xpending', 's', 'h')";
    assert_eq!(client.ask(&["eval", script, "1", "s"]).array()[..2], [Reply::Integer(1), Reply::bulk("6-0")]);
    // A stream that is named twice is read on.
    client.say("xgroup setid s g 0");
    let both = client.say("xreadgroup group g a count 2 streams s s > >").array();
    let both = both.into_iter().map(|part| ids(part.array().remove(1)));
    assert_eq!(both.collect::<Vec<_>>(), [["1-0", "2-0"], ["3-0", "4-0"]]);
}
