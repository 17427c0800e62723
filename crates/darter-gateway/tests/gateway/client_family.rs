//! The `CLIENT` family, `MONITOR` and `LATENCY`.

use crate::door::{Client, Door, LONG, Redis, Reply, index, ok};
use crate::pubsub::transcript;
use darter::IndexKind;
use darter_gateway::GatewayOptions;
use std::time::{Duration, Instant};

#[test]
fn replies_are_left_out_as_redis_leaves_them_out() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let steps = [
        ">CLIENT REPLY OFF\r\nPING\r\nNOSUCH\r\nGET\r\nCLIENT REPLY ON\r\nPING one",
        ">CLIENT REPLY SKIP\r\nPING skipped\r\nPING two",
        ">CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING skipped\r\nPING three",
        ">CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nPING four",
        ">CLIENT REPLY OFF\r\nCLIENT REPLY SKIP\r\nPING\r\nCLIENT REPLY ON",
        ">CLIENT REPLY OFF\r\nSET k v\r\nMULTI\r\nGET k\r\nEXEC\r\nCLIENT REPLY ON\r\nGET k",
        ">CLIENT REPLY OFF\r\nSUBSCRIBE a\r\nUNSUBSCRIBE a\r\nCLIENT REPLY ON",
        ">CLIENT REPLY OFF\r\nPING\r\nRESET\r\nCLIENT REPLY",
        ">CLIENT REPLY maybe",
        "<CLIENT GETREDIR",
        "<CLIENT UNBLOCK 1000000",
        "<CLIENT UNBLOCK x",
        "<CLIENT UNBLOCK 1 maybe",
        "<CLIENT UNBLOCK",
        "<CLIENT PAUSE x",
        "<CLIENT PAUSE -1",
        "<CLIENT PAUSE 1 maybe",
        "<CLIENT PAUSE",
        "<CLIENT UNPAUSE x",
        "<CLIENT UNPAUSE",
        "<LATENCY",
        "<LATENCY LATEST",
        "<LATENCY HISTORY command",
        "<LATENCY GRAPH command",
        "<LATENCY DOCTOR",
        "<LATENCY RESET",
        "<LATENCY RESET a b",
        "<LATENCY HISTORY",
        "<LATENCY NOSUCH",
    ];
    for hello in ["HELLO 2", "HELLO 3"] {
        if index() == IndexKind::Dart {
            return;
        }
        let hello = [format!(">{hello}"), format!("<{hello}")];
        let steps: Vec<&str> = hello.iter().map(String::as_str).chain(steps).collect();
        let replies = [redis.address, door.address].map(|address| transcript(address, &steps));
        for (at, step) in steps.iter().enumerate().skip(2) {
            assert_eq!(replies[1][at], replies[0][at], "{}, {step}", steps[0]);
        }
    }
}

/// Returns the number of clients that wait in a command.
fn blocked(client: &mut Client) -> String {
    let info = String::from_utf8(client.say("info clients").bytes()).unwrap();
    info.lines().find_map(|line| line.strip_prefix("blocked_clients:")).unwrap().to_owned()
}

fn wait_for_blocked(client: &mut Client, count: &str) {
    let since = Instant::now();
    while blocked(client) != count {
        assert!(since.elapsed() < LONG, "not {count} clients are blocked");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_pause_delays_commands_that_write_until_it_ends() {
    let door = Door::open();
    let mut client = door.client();
    assert_eq!(client.say("client pause 1000000000 write"), ok());
    assert_eq!(client.say("get k"), Reply::Null);
    assert!(matches!(client.say("set k"), Reply::Error(_)));
    let mut writers: Vec<Client> = (0..3).map(|_| door.client()).collect();
    for (writer, line) in writers.iter_mut().zip(["SET k v\r\n", "PUBLISH c m\r\n", "DEL nothing\r\n"]) {
        writer.send(line.as_bytes());
    }
    wait_for_blocked(&mut client, "3");
    let list = String::from_utf8(client.say("client list").bytes()).unwrap();
    assert_eq!(list.matches(" flags=b ").count(), 3, "{list}");
    assert_eq!(client.say("client unblock 2"), Reply::Integer(0));
    assert_eq!(client.say("client unpause"), ok());
    let replies: Vec<Reply> = writers.iter_mut().map(Client::reply).collect();
    assert_eq!(replies, [ok(), Reply::Integer(0), Reply::Integer(0)]);
    assert_eq!(blocked(&mut client), "0");
    // A pause of all commands ends by itself.
    assert_eq!(client.say("client pause 20 all"), ok());
    let since = Instant::now();
    assert_eq!(client.say("get k"), Reply::bulk("v"));
    assert!(since.elapsed() >= Duration::from_millis(15));
}

#[test]
fn a_pause_delays_the_exec_of_a_transaction_that_writes() {
    if index() == IndexKind::Dart {
        return;
    }
    let door = Door::open();
    let (mut client, mut writer) = (door.client(), door.client());
    for words in ["multi", "set k v"] {
        writer.say(words);
    }
    assert_eq!(client.say("client pause 1000000000 write"), ok());
    for words in ["multi", "get k"] {
        client.say(words);
    }
    assert_eq!(client.say("exec"), Reply::Array(vec![Reply::Null]));
    writer.send(b"EXEC\r\n");
    wait_for_blocked(&mut client, "1");
    assert_eq!(client.say("client unpause"), ok());
    assert_eq!(writer.reply(), Reply::Array(vec![ok()]));
}

/// Returns what a monitor sees, without the times and ports.
fn seen(monitor: &mut Client) -> String {
    let Reply::Simple(line) = monitor.reply() else { panic!("not a line") };
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(time.parse::<f64>().unwrap() > 1e9);
    let (origin, command) = rest.split_once("] ").unwrap();
    let origin = origin.split(':').next().unwrap();
    format!("{origin}] {command}")
}

#[test]
fn monitors_see_what_monitors_of_redis_see() {
    let Some(redis) = Redis::start() else { return };
    if index() == IndexKind::Dart {
        return;
    }
    let door = Door::open();
    let lines = [
        "SET foo \"a \\\" \\\\ \\r\\n\\t\\x00\\xff\"",
        "GET foo",
        "NOSUCH",
        "GET",
        "AUTH secret",
        "HELLO 2 AUTH default secret",
        "CONFIG GET save",
        "MULTI",
        "SET foo bar",
        "INCR foo",
        "EXEC",
        "EVAL \"return redis.call('set', KEYS[1], ARGV[1])\" 1 k v",
        "CLIENT ID",
        "DEL foo",
    ];
    let all = [redis.address, door.address].map(|address| {
        let (mut monitor, mut client) = (Client::connect(address), Client::connect(address));
        assert_eq!(monitor.say("monitor"), ok());
        for line in lines {
            client.send(format!("{line}\r\n").as_bytes());
            client.reply();
        }
        client.say("echo end");
        let mut all = Vec::new();
        while all.last().is_none_or(|last: &String| !last.ends_with("\"end\"")) {
            all.push(seen(&mut monitor));
        }
        monitor.send(b"RESET\r\nPING\r\n");
        let mut last = monitor.reply();
        while last != Reply::Simple("PONG".to_owned()) {
            last = monitor.reply();
        }
        all
    });
    assert_eq!(all[1], all[0]);
}

#[test]
fn a_monitor_that_does_not_read_is_cut_off() {
    let door = Door::new(GatewayOptions { message_bytes_max: 1 << 20, ..GatewayOptions::default() });
    let (mut monitor, mut client) = (door.client(), door.client());
    assert_eq!(monitor.say("monitor"), ok());
    let text = "x".repeat(64 << 10);
    let mut sent = 0;
    let monitors = |client: &mut Client| {
        String::from_utf8(client.say("client list").bytes()).unwrap().contains(" flags=O ")
    };
    while monitors(&mut client) {
        assert!(sent < 10_000, "a monitor that does not read is not cut off");
        sent += 1;
        assert_eq!(client.ask(&["echo", &text]), Reply::bulk(&text));
    }
    assert!(monitor.rest().len() < sent * text.len());
}
