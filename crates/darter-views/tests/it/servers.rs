//! Mock servers: Consul and Kubernetes, which implement the few requests in use as documented; and
//! servers that reply incorrectly, too much, or not at all.

use crate::contract::{assert_has_one_winner, assert_keeps_views, set, view};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use darter_views::{StoreError, ViewStore};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A request as received by a server.
struct Request {
    method: String,
    path: String,
    query: String,
    /// Header names in lower case, with their values.
    headers: HashMap<String, String>,
    body: String,
}

type Respond = dyn Fn(&Request) -> (u16, String) + Send + Sync;

/// Starts a server and returns its address. It runs until the test ends.
fn serve(respond: Arc<Respond>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let respond = Arc::clone(&respond);
            std::thread::spawn(move || answer_all(stream.unwrap(), &*respond));
        }
    });
    address
}

fn answer_all(stream: TcpStream, respond: &Respond) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        let request = Request { method, path, query, headers, body: String::from_utf8(body).unwrap() };
        let (status, text) = respond(&request);
        write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len()).ok()?;
    }
}

fn consul() -> String {
    let keys = Mutex::new((HashMap::<String, (u64, String)>::new(), 10_u64));
    serve(Arc::new(move |request| {
        if request.headers.get("x-consul-token").is_none_or(|token| token != "secret") {
            return (403, "Permission denied".to_owned());
        }
        let key = request.path.strip_prefix("/v1/kv/").unwrap().to_owned();
        let (keys, counter) = &mut *keys.lock().unwrap();
        match request.method.as_str() {
            "GET" => {
                assert_eq!(request.query, "consistent");
                let Some((index, value)) = keys.get(&key) else { return (404, String::new()) };
                let pair =
                    json!([{ "Key": key, "ModifyIndex": index, "Value": BASE64_STANDARD.encode(value) }]);
                (200, pair.to_string())
            }
            "PUT" => {
                let expected: u64 = request.query.strip_prefix("cas=").unwrap().parse().unwrap();
                let is_so = keys.get(&key).map_or(0, |(index, _)| *index) == expected;
                if is_so {
                    *counter += 1;
                    keys.insert(key, (*counter, request.body.clone()));
                }
                (200, format!("{is_so}\n"))
            }
            other => panic!("{other}"),
        }
    }))
}

fn kubernetes() -> String {
    let maps = Mutex::new((HashMap::<String, Value>::new(), 100_u64));
    serve(Arc::new(move |request| {
        let failure = |code: u16, reason: &str| {
            let status = json!({ "kind": "Status", "code": code, "reason": reason, "details": { "kind": "configmaps" } });
            (code, status.to_string())
        };
        if request.headers.get("authorization").is_none_or(|token| token != "Bearer secret") {
            return failure(401, "Unauthorized");
        }
        let name = request.path.strip_prefix("/api/v1/namespaces/darter/configmaps").unwrap();
        let (maps, counter) = &mut *maps.lock().unwrap();
        *counter += 1;
        if request.method == "GET" {
            return maps
                .get(&name[1..])
                .map_or_else(|| failure(404, "NotFound"), |map| (200, map.to_string()));
        }
        let mut object: Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!((&object["apiVersion"], &object["kind"]), (&json!("v1"), &json!("ConfigMap")));
        let named = object["metadata"]["name"].as_str().unwrap().to_owned();
        let version = object["metadata"]["resourceVersion"].take();
        object["metadata"]["resourceVersion"] = json!(counter.to_string());
        match (request.method.as_str(), maps.get(&named)) {
            ("POST", Some(_)) => return failure(409, "AlreadyExists"),
            ("POST", None) => assert_eq!(name, ""),
            ("PUT", None) => return failure(404, "NotFound"),
            ("PUT", Some(held)) if held["metadata"]["resourceVersion"] != version => {
                return failure(409, "Conflict");
            }
            ("PUT", Some(_)) => assert_eq!(name[1..], named),
            other => panic!("{other:?}"),
        }
        maps.insert(named, object.clone());
        (200, object.to_string())
    }))
}

#[test]
fn consul_and_kubernetes_keep_views() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let options = format!("timeout-ms=10000&token-file={}", token.display());
    let (consul, kubernetes) = (consul(), kubernetes());
    assert_keeps_views(&format!("consul://{consul}/views?{options}"));
    assert_has_one_winner(&format!("consul://{consul}/contended?{options}"), 50);
    let url = |prefix: &str| format!("kubernetes://darter/{prefix}?server={kubernetes}&{options}");
    assert_keeps_views(&url("views"));
    assert_has_one_winner(&url("contended"), 50);
    // Kubernetes replaces its token while a store is open.
    let mut store = ViewStore::open(&url("views"), 0).unwrap();
    std::fs::write(&token, "old").unwrap();
    assert!(matches!(store.view(), Err(StoreError::Refused { .. })));
    std::fs::write(&token, "secret").unwrap();
    assert_eq!(store.view().unwrap(), Some(view(2, 8)));
}

#[test]
fn invalid_replies_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    let mut refused = 0;
    for (status, text) in [
        (200, String::new()),
        (200, "null".to_owned()),
        (200, "[]".to_owned()),
        (200, "[{}]".to_owned()),
        (200, r#"[{"ModifyIndex":7,"Value":"!"}]"#.to_owned()),
        (200, r#"{"kvs":[{"mod_revision":7}]}"#.to_owned()),
        (200, r#"{"kvs":[{"mod_revision":"7","value":"/w=="}]}"#.to_owned()),
        (200, r#"{"metadata":{"resourceVersion":"7"},"data":{"view":"{}"}}"#.to_owned()),
        (200, "[".repeat(100_000)),
        (200, "x".repeat(3 << 20)),
        (301, "moved".to_owned()),
        (404, "<html>".to_owned()),
        (403, "no".to_owned()),
    ] {
        let server = serve(Arc::new(move |_| (status, text.clone())));
        for url in [
            format!("etcd://{server}/views?timeout-ms=10000"),
            format!("consul://{server}/views?timeout-ms=10000"),
            format!("kubernetes://n/views?server={server}&timeout-ms=10000&token-file={}", token.display()),
        ] {
            // etcd omits empty fields, so a reply without pairs means an absent key.
            match ViewStore::open(&url, 0).unwrap().view() {
                Ok(None) => assert!(url.starts_with("etcd"), "{url}"),
                Ok(Some(view)) => panic!("{url}: {view:?}"),
                Err(StoreError::Refused { .. } | StoreError::Damaged { .. } | StoreError::Unreachable(_)) => {
                    refused += 1;
                }
                Err(error) => panic!("{url}: {error}"),
            }
        }
    }
    assert!(refused >= 34, "{refused}");
}

#[test]
fn a_server_that_fails_or_is_silent_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    let failing = serve(Arc::new(|_| (503, "no leader".to_owned())));
    // Accepts connections and never replies.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let good = consul();
    let options = format!("timeout-ms=1000&token-file={}", token.display());
    let url = format!("consul://{failing},{silent_address},{closed},{good}/views?{options}");
    let mut store = ViewStore::open(&url, 0).unwrap();
    assert_eq!(set(&mut store, view(1, 7)).unwrap(), Some(view(1, 7)));
    let url = format!("consul://{failing},{silent_address},{closed}/views?{options}");
    let error = ViewStore::open(&url, 0).unwrap().view().unwrap_err();
    let StoreError::Unreachable(why) = &error else { panic!("{error}") };
    assert!(why.contains("no leader") && why.contains(&silent_address.to_string()), "{why}");
}

/// The first server carries a change out without replying; then the second one gets it too.
#[test]
fn a_change_whose_answer_was_lost_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    let good = consul();
    let behind = good.clone();
    let lost_answers = Arc::new(AtomicU64::new(0));
    let lost = Arc::clone(&lost_answers);
    let losing = serve(Arc::new(move |request| {
        let address = format!("http://{behind}{}?{}", request.path, request.query);
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        if request.method == "GET" {
            let mut found = agent.get(&address).header("X-Consul-Token", "secret").call().unwrap();
            return (found.status().as_u16(), found.body_mut().read_to_string().unwrap());
        }
        let sent = agent.put(&address).header("X-Consul-Token", "secret").send(&request.body).unwrap();
        assert_eq!(sent.status(), 200);
        lost.fetch_add(1, Ordering::SeqCst);
        (503, "lost".to_owned())
    }));
    let options = format!("timeout-ms=10000&token-file={}", token.display());
    let mut store = ViewStore::open(&format!("consul://{losing},{good}/views?{options}"), 0).unwrap();
    assert_eq!(set(&mut store, view(1, 7)).unwrap(), Some(view(1, 7)));
    let mut store = ViewStore::open(&format!("consul://{losing},{good}/views?{options}"), 0).unwrap();
    assert_eq!(set(&mut store, view(2, 8)).unwrap(), Some(view(2, 8)));
    assert_eq!(lost_answers.load(Ordering::SeqCst), 2);
}
