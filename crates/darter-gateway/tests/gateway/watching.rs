//! Monitoring a gateway: its metrics, its slow log, the data of its status page, and the
//! permissions to see them.

use crate::door::{Client, Door, LONG, Reply, index, options};
use darter::IndexKind;
use darter_gateway::GatewayOptions;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Returns the response to a request with certain headers.
pub fn ask(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let _ = stream.write_all(format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

pub fn get(door: &Door, path: &str) -> String {
    ask(door.status.address(), path, "Host: 127.0.0.1\r\n")
}

/// Returns the JSON in a response.
pub fn json(answer: &str) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("application/json"), "{head}");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// Returns a metric's value, if it is there.
fn value(page: &str, metric: &str) -> Option<u64> {
    let line = page.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '))?;
    Some(line.parse::<f64>().unwrap() as u64)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Repeats a request until the response is as required.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let mut last = String::new();
    for _ in 0..6000 {
        match look() {
            Ok(found) => return found,
            Err(instead) => last = instead,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}; but {last}");
}

/// Starts a gateway that has executed some commands, by verbs, which are counted.
pub fn busy() -> (Door, Client) {
    let store = options().direct(false).open("mem:128M").unwrap();
    let door = Door::of(store, GatewayOptions { allow_flush: true, ..GatewayOptions::default() });
    let mut client = door.client();
    for number in 0..100 {
        client.say(&format!("SET fruit:{number:03} value-{number}"));
        client.say(&format!("GET fruit:{number:03}"));
    }
    client.say("RANGE - + LIMIT 10");
    client.say("INCR fruit:001");
    client.say("NOSUCH thing");
    (door, client)
}

#[test]
fn the_numbers_are_those_of_what_was_done() {
    let (door, _client) = busy();
    let page = until("the pool was surveyed and its traffic is counted", || {
        let page = get(&door, "/metrics");
        let trips = value(&page, "darter_gateway_round_trips_total{kind=\"get\"}");
        let is_there = trips >= Some(100) && value(&page, "darter_gateway_index_keys") >= Some(100);
        if is_there { Ok(page) } else { Err(page) }
    });
    assert!(page.contains("openmetrics-text") && page.ends_with("# EOF\n"), "{page}");
    let number = |metric: &str| {
        value(&page, &format!("darter_gateway_{metric}")).unwrap_or_else(|| panic!("{metric} in\n{page}"))
    };
    for (metric, expected) in [
        ("connections", 1),
        ("accepted_connections_total", 1),
        ("commands_total{family=\"string\",command=\"get\"}", 100),
        ("commands_total{family=\"string\",command=\"set\"}", 100),
        ("commands_total{family=\"ordered\",command=\"range\"}", 1),
        ("command_duration_seconds_count{family=\"ordered\"}", 1),
        ("command_duration_seconds_count{family=\"string\"}", 201),
        ("errors_total{cause=\"client\"}", 2),
        ("errors_total{cause=\"pool\"}", 0),
        ("operations_total{kind=\"get\"}", 100),
        ("operations_total{kind=\"update\"}", 1),
        ("pool_members", 1),
        ("draining", 0),
    ] {
        assert_eq!(number(metric), expected, "{metric} in\n{page}");
    }
    let of_the_index: &[&str] = match index() {
        IndexKind::Dart => &["index_nodes_bytes{type=\"N4\"}", "est_bytes", "sampled_searches_total"],
        _ => &["index_nodes_bytes{type=\"page\"}"],
    };
    let general = [
        "verbs_total{kind=\"insert\"}",
        "read_bytes_total{kind=\"get\"}",
        "written_bytes_total{kind=\"insert\"}",
        "pool_member_lease_left_seconds{member=\"0\",process=\"PROCESS\"}",
        "pool_epoch",
        "pool_blocks{node=\"0\",state=\"mine\"}",
    ];
    for metric in general.iter().chain(of_the_index) {
        let metric = metric.replace("PROCESS", &std::process::id().to_string());
        assert!(number(&metric) > 0, "{metric} in\n{page}");
    }
    for line in page.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(!name.ends_with("_ms") && !name.ends_with("_micros"), "{line}: time is in seconds");
    }
    assert!(get(&door, "/healthz").ends_with("serving\n"));
    assert!(get(&door, "/nowhere").starts_with("HTTP/1.1 404"));
}

#[test]
fn the_page_gets_the_data_it_shows() {
    let (door, mut client) = busy();
    let all = until("everything is known", || {
        let all = json(&get(&door, "/status.json"));
        let is_known =
            all["index"].is_object() && all["fabric"].as_array().is_some_and(|kinds| kinds.len() > 2);
        if is_known { Ok(all) } else { Err(all.to_string()) }
    });
    assert_eq!(all["commands"]["get"], 100);
    assert_eq!(all["errors"]["client"], 2);
    assert_eq!(all["pool"]["members"][0]["is_me"], true);
    assert!(all["pool"]["members"][0]["lease_left_ms"].is_i64());
    assert!(all["index"]["keys"].as_u64() >= Some(100), "{all}");
    assert_eq!(all["index_name"], index().name());
    assert_eq!(all["est"]["prefix_list"].as_array().unwrap().is_empty(), index() != IndexKind::Dart);
    let string =
        all["families"].as_array().unwrap().iter().find(|family| family["name"] == "string").unwrap();
    let buckets = string["buckets"].as_array().unwrap();
    assert_eq!(buckets.iter().map(|bucket| bucket[1].as_u64().unwrap()).sum::<u64>(), 201);
    assert!(buckets.last().unwrap()[0].is_null(), "the last bucket has no bound");
    client.say("GET fruit:001");
    assert_eq!(json(&get(&door, "/status.json"))["commands"]["get"], 101);

    let leaf = json(&get(&door, &format!("/tree.json?prefix={}", hex(b"\xffkfruit:007"))));
    assert_eq!(leaf["record"]["value"], hex(b"\0value-7"));
    assert_eq!(leaf["record"]["type"], "string");
    assert!(["leaf", "record"].map(Into::into).contains(&leaf["node"]["children"][0]["label"]), "{leaf}");
    assert_eq!(leaf["node"]["children"].as_array().unwrap().len(), 1, "{leaf}");
    let root = json(&get(&door, "/tree.json"));
    assert_eq!(root["node"]["prefix_bytes"], 0);
    for query in ["prefix=6", "prefix=zz", &format!("prefix={}", "00".repeat(3000))] {
        let refused = get(&door, &format!("/tree.json?{query}"));
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        assert!(json(&refused)["error"].is_string());
    }
}

#[test]
fn the_page_requires_permission_to_see_keys() {
    let open = Door::open();
    let address = open.status.address();
    for path in ["/", "/status.json", "/history.json", "/tree.json"] {
        assert!(ask(address, path, "Host: [::1]:9\r\n").starts_with("HTTP/1.1 200"), "{path}");
        let misled = ask(address, path, "Host: rebound.example:80\r\n");
        assert!(misled.starts_with("HTTP/1.1 403"), "{misled}");
    }
    assert!(ask(address, "/metrics", "Host: gateway.example\r\n").starts_with("HTTP/1.1 200"));

    let door = Door::new(GatewayOptions { password: "open:sesame".into(), ..GatewayOptions::default() });
    let address = door.status.address();
    for path in ["/", "/status.json", "/history.json", "/tree.json"] {
        for shown in ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic ZGVmYXVsdDp3cm9uZw==\r\n"]
        {
            let refused = ask(address, path, &format!("Host: h\r\n{shown}"));
            assert!(
                refused.starts_with("HTTP/1.1 401") && refused.contains("www-authenticate: Basic"),
                "{refused}"
            );
        }
        for shown in ["Bearer open:sesame", "Basic ZGVmYXVsdDpvcGVuOnNlc2FtZQ=="] {
            let let_in = ask(address, path, &format!("Host: h\r\nAuthorization: {shown}\r\n"));
            assert!(let_in.starts_with("HTTP/1.1 200"), "{let_in}");
        }
    }
    for path in ["/healthz", "/metrics"] {
        assert!(ask(address, path, "Host: h\r\n").starts_with("HTTP/1.1 200"), "{path}");
    }
}

#[test]
fn slow_commands_are_kept_without_passwords() {
    let options = GatewayOptions {
        password: "sesame".into(),
        slow: Duration::ZERO,
        slow_entries: 4,
        ..GatewayOptions::default()
    };
    let door = Door::new(options);
    let mut client = door.client();
    client.say("AUTH sesame");
    client.say("CLIENT SETNAME somebody");
    let log = client.say("SLOWLOG GET").array();
    let words = |entry: &Reply| -> Vec<Vec<u8>> {
        entry.clone().array()[3].clone().array().into_iter().map(Reply::bytes).collect()
    };
    assert_eq!(log.len(), 2);
    assert_eq!(words(&log[0]), [&b"CLIENT"[..], b"SETNAME", b"somebody"]);
    assert_eq!(words(&log[1]), [&b"AUTH"[..], b"(redacted)"]);
    let newest = log[0].clone().array();
    assert_eq!(newest.len(), 6);
    assert_eq!(newest[0], Reply::Integer(1));
    assert_eq!(newest[5], Reply::bulk("somebody"));
    let mut long: Vec<Vec<u8>> = vec![b"DEL".to_vec(), vec![b'x'; 200]];
    long.extend((0..38).map(|number| format!("key:{number}").into_bytes()));
    client.ask(&long);
    let entry = words(&client.say("SLOWLOG GET 1").array()[0]);
    assert_eq!(entry.len(), 32);
    assert_eq!(entry[1], [&[b'x'; 128][..], b"... (72 more bytes)"].concat());
    assert_eq!(entry[31], b"... (9 more arguments)");
    assert_eq!(client.say("SLOWLOG LEN"), Reply::Integer(4));
    assert_eq!(client.say("SLOWLOG GET -1").array().len(), 4);
    let count = "ERR count should be greater than or equal to -1";
    for wrong in ["SLOWLOG GET -2", "SLOWLOG GET x"] {
        assert_eq!(client.say(wrong), Reply::Error(count.to_owned()));
    }
    assert_eq!(
        client.say("SLOWLOG NOSUCH"),
        Reply::Error("ERR unknown subcommand 'NOSUCH'. Try SLOWLOG HELP.".to_owned())
    );
    assert_eq!(client.say("SLOWLOG RESET"), Reply::Simple("OK".to_owned()));
    assert_eq!(client.say("SLOWLOG LEN"), Reply::Integer(1), "except for the command that emptied it");
    let settings = client.say("CONFIG GET slowlog*").array();
    let (zero, four) = (Reply::bulk("0"), Reply::bulk("4"));
    assert_eq!(
        settings,
        [Reply::bulk("slowlog-log-slower-than"), zero, Reply::bulk("slowlog-max-len"), four]
    );
    let quick = Door::open();
    let mut client = quick.client();
    client.say("PING");
    assert_eq!(client.say("CONFIG GET slowlog-max-len").array()[1], Reply::bulk("128"));
}
