//! Commands about parts of a server that a gateway does not have, and settings: the replies are those
//! of a redis-server without replicas, modules and saved files.

use crate::door::{Client, Door, Redis, Reply, bulks, error, integer, ok};
use darter_gateway::GatewayOptions;
use std::time::Duration;

/// Requests whose replies are equal.
const ALIKE: &[&str] = &[
    "role",
    "role x",
    "replicaof no one",
    "slaveof NO ONE",
    "replicaof no",
    "wait 0 0",
    "wait 1 1",
    "wait x 0",
    "wait 1 x",
    "wait 1 -1",
    "wait 1",
    "module list",
    "module list x",
    "module nosuch",
    "lolwut version x",
    "lastsave x",
    "memory purge",
    "memory purge x",
    "memory doctor x",
    "memory stats x",
    "memory malloc-stats x",
    "memory usage",
    "memory nosuch",
    "config set",
    "config set slowlog-max-len",
    "config set slowlog-max-len 7 slowlog-log-slower-than",
    "config set slowlog-max-len x",
    "config set slowlog-max-len -1",
    "config set slowlog-log-slower-than -2",
    "config set nosuch 1",
    "config set maxmemory 0",
    "config set MaxMemory-Policy NoEviction",
    "config set slowlog-max-len 7 slowlog-max-len 8",
    "config set slowlog-max-len 9 nosuch 1",
    "config set slowlog-max-len 9 notify-keyspace-events q",
    "config get slowlog-max-len",
    "config set slowlog-max-len 9 slowlog-log-slower-than -1 notify-keyspace-events KEA",
    "config get slowlog-max-len",
    "config get slowlog-log-slower-than",
    "config get notify-keyspace-events",
];

#[test]
fn replies_are_those_of_a_server_without_these_parts() {
    let door = Door::open();
    let mut ours = door.client();
    let role = Reply::Array(vec![Reply::bulk("master"), Reply::Integer(0), Reply::Array(Vec::new())]);
    assert_eq!(ours.say("role"), role);
    assert!(error(ours.say("replicaof 127.0.0.1 1")).contains("cannot follow another server"));
    assert!(error(ours.say("module load x.so")).contains("no modules"));
    let lolwut = String::from_utf8(ours.say("lolwut").bytes()).unwrap();
    assert!(lolwut.starts_with("darter ") && lolwut.contains("Redis ver. 7.0"), "{lolwut}");
    let now = String::from_utf8(ours.say("time").array().remove(0).bytes()).unwrap().parse::<i64>().unwrap();
    let saved = integer(ours.say("lastsave"));
    assert!(saved <= now && saved > now - 600, "{saved} {now}");

    let Some(redis) = Redis::start() else { return };
    let mut theirs = Client::connect(redis.address);
    for line in ALIKE {
        assert_eq!(ours.say(line), theirs.say(line), "{line}");
    }
}

#[test]
fn memory_statistics_have_redis_names() {
    let door = Door::open();
    let mut client = door.client();
    for count in 0..100 {
        client.say(&format!("set key:{count} value"));
    }
    let stats = client.say("memory stats").array();
    let names = |stats: &[Reply]| stats.iter().step_by(2).cloned().collect::<Vec<_>>();
    let of = |name: &str| {
        let at = stats.iter().position(|part| *part == Reply::bulk(name)).unwrap();
        stats[at + 1].clone()
    };
    let [peak, total, overhead] =
        ["peak.allocated", "total.allocated", "overhead.total"].map(|name| integer(of(name)));
    assert!(peak >= total && total > 1 << 20 && overhead < total, "{peak} {total} {overhead}");
    assert_eq!(integer(of("dataset.bytes")), total - overhead);
    let percentage: f64 = String::from_utf8(of("peak.percentage").bytes()).unwrap().parse().unwrap();
    assert!(percentage > 0.0 && percentage <= 100.0, "{percentage}");
    assert!(client.say("memory doctor").bytes().starts_with(b"The keys are in the pool"));

    let Some(redis) = Redis::start() else { return };
    let theirs = Client::connect(redis.address).say("memory stats").array();
    let is_of_all = |name: &Reply| !String::from_utf8(name.clone().bytes()).unwrap().starts_with("db.");
    let theirs: Vec<_> = names(&theirs).into_iter().filter(is_of_all).collect();
    assert_eq!(names(&stats), theirs);
}

#[test]
fn the_slow_log_follows_its_settings() {
    let door = Door::new(GatewayOptions { slow: Duration::MAX, ..GatewayOptions::default() });
    let mut client = door.client();
    client.say("ping");
    assert_eq!(client.say("slowlog len"), Reply::Integer(0));
    assert_eq!(client.say("config set slowlog-log-slower-than 0"), ok());
    for _ in 0..5 {
        client.say("ping");
    }
    assert!(integer(client.say("slowlog len")) >= 5);
    assert_eq!(client.say("config set slowlog-max-len 2"), ok());
    client.say("ping");
    assert_eq!(client.say("slowlog len"), Reply::Integer(2));
    assert_eq!(client.say("config set slowlog-log-slower-than -1"), ok());
    client.say("slowlog reset");
    client.say("ping");
    assert_eq!(client.say("slowlog len"), Reply::Integer(0));
    assert_eq!(client.say("config get slowlog-log-slower-than"), bulks(&["slowlog-log-slower-than", "-1"]));
    // Of several settings all are set, or none.
    assert!(error(client.say("config set slowlog-max-len 3 port 1")).contains("command line"));
    assert_eq!(client.say("config get slowlog-max-len"), bulks(&["slowlog-max-len", "2"]));
    let port = client.say("config get port").array().remove(1);
    assert_eq!(client.ask(&[&b"config"[..], b"set", b"port", &port.bytes()]), ok());
}
