//! Views in real etcd: one server, one that requires a password, and three of which one at a time
//! is killed or stopped.

use crate::cluster::{Cluster, Program, assert_survives_strikes, patiently};
use crate::contract::{assert_has_one_winner, assert_keeps_views, set, view};
use darter_views::{StoreError, ViewStore};
use std::path::Path;
use std::process::Command;

/// Starts etcd, which every machine with `DARTER_TEST_ALL` must have.
pub(crate) fn start(servers: usize) -> Option<Cluster> {
    let url = Box::new(|hosts: &str| format!("etcd://{hosts}/darter"));
    let program = Program { name: "etcd", probe: "--version", ports: 2, arguments: Box::new(arguments), url };
    let cluster = Cluster::start(program, servers);
    assert!(cluster.is_some() || std::env::var_os("DARTER_TEST_ALL").is_none(), "etcd is not installed");
    cluster
}

fn arguments(cluster: &Cluster, at: usize, command: &mut Command) {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (client, peer) = (url(cluster.ports[at][0]), url(cluster.ports[at][1]));
    let all = cluster.ports.iter().enumerate().map(|(at, ports)| format!("s{at}={}", url(ports[1])));
    command
        .args(["--name", &format!("s{at}"), "--data-dir"])
        .arg(cluster.folder.path().join(format!("s{at}")))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &all.collect::<Vec<_>>().join(",")])
        .args(["--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error"]);
}

#[test]
fn etcd_keeps_views() {
    let Some(cluster) = start(1) else { return };
    let url = cluster.url();
    patiently(|| ViewStore::open(&url, 9).unwrap().view());
    assert_keeps_views(&url);
    assert_has_one_winner(&format!("{url}/contended?timeout-ms=10000"), 20);
    std::fs::write(cluster.folder.path().join("password"), "right\n").unwrap();
    with_a_password(&cluster, &cluster.folder.path().join("password"));
}

/// Turns passwords on, and checks that the right one is needed.
fn with_a_password(cluster: &Cluster, password: &Path) {
    let url = cluster.url();
    let post = |path: &str, body: &str| {
        ureq::post(&format!("http://{}/v3/auth/{path}", cluster.host(0))).send(body).unwrap();
    };
    post("user/add", r#"{"name":"root","password":"right"}"#);
    post("user/grant", r#"{"user":"root","role":"root"}"#);
    post("enable", "{}");
    let account = |file: &Path| format!("{url}?timeout-ms=10000&user=root&password-file={}", file.display());
    let mut store = ViewStore::open(&account(password), 0).unwrap();
    assert_eq!(store.view().unwrap(), Some(view(2, 8)));
    assert_eq!(set(&mut store, view(3, 7)).unwrap(), Some(view(3, 7)));
    let wrong = password.with_file_name("wrong");
    std::fs::write(&wrong, "wrong").unwrap();
    for url in [account(&wrong), format!("{url}?timeout-ms=10000")] {
        let error = ViewStore::open(&url, 0).unwrap().view().unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    }
}

#[test]
fn one_of_three_servers_at_a_time_is_killed_or_stopped() {
    let Some(mut cluster) = start(3) else { return };
    assert_survives_strikes(&mut cluster);
}
