//! The status page: its headers, the history and the lists that it draws, the formats of its
//! metrics, and the page itself in a browser.

use crate::browser::Browser;
use crate::door::{Client, Door, index};
use crate::watching::{ask, busy, get, hex, json, until};
use darter::IndexKind;
use darter_gateway::GatewayOptions;
use serde_json::Value;
use std::time::Duration;

/// A key that would run a script, or break the page, if it were interpreted as markup.
const HOSTILE: &[u8] = b"fruit:<img/src=x/onerror=document.title='run'>\"&\\\x00\xff";

/// Options with which every command is slow.
fn all_slow() -> GatewayOptions {
    GatewayOptions { slow: Duration::ZERO, ..GatewayOptions::default() }
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

#[test]
fn the_page_loads_nothing_else_and_runs_only_its_own_script() {
    let door = Door::open();
    let answer = get(&door, "/");
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{name} in {head}"))
    };
    let policy = header("content-security-policy");
    let nonce = policy.split_once("script-src 'nonce-").unwrap().1.split('\'').next().unwrap();
    assert_eq!(nonce.len(), 32);
    let expected = [
        "default-src 'none'",
        &format!("script-src 'nonce-{nonce}'"),
        &format!("style-src 'nonce-{nonce}'"),
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ];
    assert_eq!(policy.split("; ").map(str::trim).collect::<Vec<_>>(), expected);
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("cache-control"), "no-store");
    assert_eq!(header("referrer-policy"), "no-referrer");
    assert_eq!(header("cross-origin-resource-policy"), "same-origin");
    assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2, "the style and the script");
    assert_eq!((page.matches("<script").count(), page.matches("<style").count()), (1, 1));
    assert!(!page.contains("NONCE-OF") && !page.contains("-OF-THE-PAGE"), "a placeholder is left");
    assert!(page.contains("function draw()") && page.contains("prefers-color-scheme: dark"));
    let other = get(&door, "/");
    assert!(!other.contains(nonce), "a nonce is used once");
}

#[test]
fn history_is_there_at_the_first_load() {
    // No page is open, and only the history is requested.
    let (door, _client) = busy();
    let total = |history: &Value, of: &str| -> u64 {
        let points = history["points"].as_array().unwrap().iter();
        points.flat_map(|point| numbers(&point[of])).sum()
    };
    let history = until("the last second is over", || {
        let history = json(&get(&door, "/history.json"));
        let is_whole = total(&history, "commands") == 202 && history["complete"].as_u64() >= Some(2);
        if is_whole { Ok(history) } else { Err(history.to_string()) }
    });
    assert_eq!((&history["step_seconds"], &history["points_max"]), (&1.into(), &300.into()));
    assert_eq!(total(&history, "commands"), total(&history, "latency"));
    assert_eq!(total(&history, "errors"), 2);
    assert_eq!(history["faults"], serde_json::json!(["client", "full", "pool"]));
    let (families, bounds) =
        (history["families"].as_array().unwrap().len(), history["bounds_nanos"].as_array().unwrap());
    assert!(families >= 7, "{history}");
    assert_eq!((&bounds[0], &bounds[1], bounds.last().unwrap()), (&1000.into(), &2000.into(), &Value::Null));
    let mut last = (0, 0);
    for point in history["points"].as_array().unwrap() {
        assert_eq!(numbers(&point["commands"]).len(), families);
        assert_eq!(numbers(&point["latency"]).len(), bounds.len());
        let now = (point["number"].as_u64().unwrap(), point["at_ms"].as_u64().unwrap());
        assert_eq!(now.0, last.0 + 1);
        assert!(now.1 > last.1 && now.1 - last.1 == point["span_ms"].as_u64().unwrap(), "{point}");
        last = now;
    }
    // A page that has some points gets the others.
    let complete = history["complete"].as_u64().unwrap();
    let rest = json(&get(&door, &format!("/history.json?after={}", complete - 1)));
    assert_eq!(rest["points"][0]["number"], complete);
    // Another gateway, or the same one after a restart, is another run.
    assert_eq!(rest["run"], history["run"]);
    assert_ne!(json(&get(&Door::open(), "/history.json"))["run"], history["run"]);
    // The same at a lower resolution; its point is not complete yet.
    let hour = json(&get(&door, "/history.json?step=10"));
    assert_eq!(total(&hour, "commands"), 202, "{hour}");
    for query in ["step=7", "step=", "after=x"] {
        let refused = get(&door, &format!("/history.json?{query}"));
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        assert!(json(&refused)["error"].is_string());
    }
}

#[test]
fn slow_commands_lead_to_their_keys() {
    let door = Door::new(all_slow());
    let mut client = door.client();
    client.ask(&[&b"MSET"[..], b"pear", b"green", HOSTILE, b"red"]);
    client.say("RANGE [a [z");
    client.ask(&[&b"DEL"[..], &[b'x'; 200][..]]);
    let slow = json(&get(&door, "/status.json"))["slow"]["last"].take();
    let prefixes = |entry: &Value| -> Vec<Option<String>> {
        let arguments = entry["arguments"].as_array().unwrap().iter();
        arguments.map(|argument| argument["prefix"].as_str().map(str::to_owned)).collect()
    };
    // The newest command is first. If the log has cut a key, the link is to its beginning.
    assert_eq!(prefixes(&slow[0]), [None, Some(hex(&[b"\xffk", &[b'x'; 128][..]].concat()))]);
    assert_eq!(prefixes(&slow[1]), [None, None, None], "bounds are not keys");
    let pear = Some(hex(b"\xffkpear"));
    assert_eq!(prefixes(&slow[2]), [None, pear, None, Some(hex(&[b"\xffk", HOSTILE].concat())), None]);
    assert_eq!(slow[2]["arguments"][3]["text"], HOSTILE.escape_ascii().to_string());
    for (argument, value) in [(1, "green"), (3, "red")] {
        let prefix = slow[2]["arguments"][argument]["prefix"].as_str().unwrap();
        let leaf = json(&get(&door, &format!("/tree.json?prefix={prefix}")));
        assert_eq!(leaf["record"]["value"], hex(&[b"\0", value.as_bytes()].concat()));
    }
    // Arguments of any length and number are shown in bounded space.
    let long = vec![vec![0xff; 500]; 40];
    client.ask(&[vec![b"DEL".to_vec()], long].concat());
    let entry = json(&get(&door, "/status.json"))["slow"]["last"][0].take();
    assert_eq!(entry["arguments_all"], 41);
    assert!(entry.to_string().len() < 4000, "{entry}");
}

#[test]
fn the_map_shows_who_holds_each_block() {
    let (door, _client) = busy();
    let pool = until("the pool was surveyed", || {
        let all = json(&get(&door, "/status.json"));
        if all["pool"]["nodes"][0]["mine"].as_u64() > Some(0) {
            Ok(all["pool"].clone())
        } else {
            Err(all.to_string())
        }
    });
    let me = &pool["members"][0]["slot"];
    for node in pool["nodes"].as_array().unwrap() {
        assert_eq!(node["map"]["cell_blocks"], 1);
        let runs = node["map"]["runs"].as_array().unwrap();
        let count = |holder: &Value| -> u64 {
            runs.iter().filter(|run| run[0] == *holder).map(|run| run[2].as_u64().unwrap()).sum()
        };
        assert_eq!(
            (count(me), count(&"free".into())),
            (node["mine"].as_u64().unwrap(), node["free"].as_u64().unwrap())
        );
        let all: u64 = runs.iter().map(|run| run[2].as_u64().unwrap()).sum();
        assert_eq!(all, node["blocks"].as_u64().unwrap());
        let kinds: Vec<_> = runs.iter().filter(|run| run[0] == *me).map(|run| &run[1]).collect();
        assert!(kinds.contains(&&"leaves".into()) && kinds.contains(&&"inner nodes".into()), "{node}");
    }
}

#[test]
fn harmless_notes_are_no_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file:{}?size=64M", folder.path().join("pool").display());
    let store = crate::door::store(&url);
    let notes = store.notes();
    let door = Door::of(store, GatewayOptions::default());
    let all = json(&get(&door, "/status.json"));
    assert_eq!(all["notes"], serde_json::json!(notes));
    assert_eq!(all["troubles"], serde_json::json!([]));
}

#[test]
fn metrics_come_in_the_format_that_is_accepted() {
    let (door, _client) = busy();
    let address = door.status.address();
    let scrape = |accept: &str| ask(address, "/metrics", &format!("Host: h\r\n{accept}"));
    let text = scrape("Accept: text/plain;version=0.0.4\r\n");
    assert!(text.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{text}");
    assert!(text.contains("# TYPE darter_gateway_commands_total counter\n"), "{text}");
    assert!(
        text.contains("\ndarter_gateway_commands_total{family=\"string\",command=\"get\"} 100\n"),
        "{text}"
    );
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    let prometheus =
        "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3\r\n";
    for accept in ["", "Accept: */*\r\n", prometheus] {
        let page = scrape(accept);
        let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
        assert!(page.contains(kind) && page.ends_with("# EOF\n"), "{page}");
        assert!(page.contains("# TYPE darter_gateway_commands counter\n"), "{page}");
    }
}

#[test]
fn bounds_of_metrics_are_round_numbers() {
    let (door, _client) = busy();
    let page = get(&door, "/metrics");
    let bounds: Vec<&str> = page
        .lines()
        .filter(|line| {
            line.starts_with("darter_gateway_command_duration_seconds_bucket{") && line.contains("\"string\"")
        })
        .map(|line| line.split("le=\"").nth(1).unwrap().split('"').next().unwrap())
        .collect();
    assert_eq!(bounds.len(), 22, "{page}");
    for bound in &bounds[..21] {
        let digits: String = bound.chars().filter(|sign| ('1'..='9').contains(sign)).collect();
        assert!(["1", "2", "5"].contains(&&*digits), "{bound}");
    }
    assert!(bounds.contains(&"0.001") && bounds.contains(&"0.5") && bounds[21] == "+Inf", "{bounds:?}");
}

/// Starts a gateway with some fruit, including a hostile key and a hostile client name.
fn orchard() -> (Door, Client) {
    let door = Door::new(all_slow());
    let mut client = door.client();
    for number in 0..300 {
        client.say(&format!("SET fruit:{number:03} value-{number}"));
        client.say(&format!("GET fruit:{number:03}"));
    }
    client.say("CLIENT SETNAME <b>me</b>");
    client.ask(&[&b"SET"[..], HOSTILE, b"<script>document.title='run'</script>"]);
    (door, client)
}

/// Opens the page, and waits until an expression is true in it.
fn browse(browser: &mut Browser, url: &str, expression: &str) {
    browser.open(url);
    let is_ready = "document.readyState === 'complete' && document.getElementById('tiles')";
    let guarded = format!("!!({is_ready} && ({expression}))");
    until(expression, || {
        let is_there = browser.eval(&guarded) == true;
        if is_there { Ok(()) } else { Err(browser.text("troubles")) }
    });
}

/// True after the survey of the pool, and everything else, has been drawn.
const DRAWN: &str = "at('nodes').innerText.includes('leaves') && at('tree').children.length > 1";

#[test]
fn the_page_shows_numbers_and_a_leaf_and_no_foreign_markup() {
    let (door, _client) = orchard();
    let Some(mut browser) = Browser::start() else { return };
    let root = format!("http://{}/", door.status.address());
    let leaf = format!("{DRAWN} && at('leaf')");
    browse(&mut browser, &format!("{root}#tree={}", hex(b"\xffkfruit:007")), &leaf);
    for (id, expected) in [
        ("families", "string 601"),
        ("fabric", "get 300"),
        ("nodes", if index() == IndexKind::Dart { "N4" } else { "page" }),
        ("members", "this gateway"),
        ("est", if index() == IndexKind::Dart { "%" } else { "cached" }),
        ("state", "serving"),
        ("leaf", "Redis key fruit:007 type string"),
        ("leaf", "value-7"),
        ("tree", "kfruit:007"),
        ("slow", "<b>me</b>"),
    ] {
        // Threads update the counts of operations periodically, not after each operation.
        until(&format!("{expected} in {id}"), || {
            let text = browser.text(id);
            if text.contains(expected) { Ok(()) } else { Err(text) }
        });
    }
    browse(&mut browser, &format!("{root}#tree={}", hex(&[b"\xffk", HOSTILE].concat())), &leaf);
    assert!(browser.text("leaf").contains("<script>document.title='run'</script>"));
    assert_eq!(browser.eval("document.title"), "darter gateway");
    assert_eq!(browser.eval("document.querySelectorAll('img, b b, #slow b, script:not([nonce])').length"), 0);
    // From the root, every node below is a link away.
    browse(&mut browser, &root, DRAWN);
    assert_eq!(browser.eval("!at('leaf') && !!document.querySelector('#tree a[href^=\"#tree=ff\"]')"), true);
    assert!(browser.problems.is_empty(), "{:?}", browser.problems);
}

#[test]
fn a_click_on_the_key_of_a_slow_command_shows_its_record() {
    let (door, mut client) = orchard();
    client.say("GET fruit:042");
    let Some(mut browser) = Browser::start() else { return };
    browse(&mut browser, &format!("http://{}/", door.status.address()), DRAWN);
    browser.eval(
        "[...document.querySelectorAll('#slow a')].find(link => link.innerText === 'fruit:042').click()",
    );
    until("the record is shown", || {
        let text = browser.text("leaf");
        if text.contains("fruit:042") && text.contains("value-42") { Ok(()) } else { Err(text) }
    });
    assert_eq!(browser.eval("location.hash"), format!("#tree={}", hex(b"\xffkfruit:042")));
    assert!(browser.problems.is_empty(), "{:?}", browser.problems);
}

#[test]
fn charts_have_their_history_at_the_first_load() {
    let (door, _client) = orchard();
    until("a second is over", || {
        let history = json(&get(&door, "/history.json"));
        if history["complete"].as_u64() >= Some(3) { Ok(()) } else { Err(history.to_string()) }
    });
    let Some(mut browser) = Browser::start() else { return };
    browse(&mut browser, &format!("http://{}/", door.status.address()), DRAWN);
    // The points that the page drew at once are older than the page.
    let drawn = browser.eval("view.points.filter(point => placeOf(point, view) >= 0).length");
    assert!(drawn.as_u64() >= Some(3), "{drawn}");
    let inked = "[...at('latency').querySelector('canvas').getContext('2d').getImageData(0, 0, 9999, 150).data]\
                 .filter((value, place) => place % 4 === 3 && value > 200).length";
    assert!(browser.eval(inked).as_u64() >= Some(100));
    // Another span is also drawn from the gateway's history.
    browser.eval("document.querySelectorAll('#ranges input')[1].click()");
    until("the hour is drawn", || {
        let sums = browser.eval("view.step === 10 ? sum(view.points.flatMap(point => point.commands)) : 0");
        if sums.as_u64() >= Some(602) { Ok(()) } else { Err(sums.to_string()) }
    });
    assert!(browser.problems.is_empty(), "{:?}", browser.problems);
}

#[test]
fn no_width_scrolls_sideways() {
    let (door, mut client) = orchard();
    // Words that cannot be wrapped, wherever clients can put some.
    client.say(&format!("CLIENT SETNAME {}", "n".repeat(300)));
    client.ask(&[&b"SET"[..], &[b'k'; 400][..], &[b'v'; 400]]);
    let Some(mut browser) = Browser::start() else { return };
    let url =
        format!("http://{}/#tree={}", door.status.address(), hex(&[b"\xffk", &[b'k'; 400][..]].concat()));
    for (width, is_dark) in [(320, false), (390, false), (390, true), (820, false), (820, true), (1440, true)]
    {
        browser.shape(width, is_dark);
        browse(&mut browser, &url, &format!("{DRAWN} && at('leaf')"));
        assert_eq!(
            browser.eval("[innerWidth, document.documentElement.scrollWidth]"),
            serde_json::json!([width, width])
        );
        let beyond = "[...document.querySelectorAll('body *')].filter(element => element.getBoundingClientRect().right > innerWidth + 1 \
                      && !element.closest('.unseen, [hidden]')).map(element => element.outerHTML.slice(0, 80))";
        assert_eq!(browser.eval(beyond), serde_json::json!([]), "at {width}");
        let card = browser.eval("getComputedStyle(document.querySelector('.card')).backgroundColor");
        assert_eq!(card == "rgb(255, 255, 255)", !is_dark, "{card}");
    }
    assert!(browser.problems.is_empty(), "{:?}", browser.problems);
}
