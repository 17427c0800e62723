//! Views in real Consul: one server that requires a token, and three of which one at a time is
//! killed or stopped.

use crate::cluster::{Arguments, Cluster, Program, assert_survives_strikes, patiently};
use crate::contract::{assert_has_one_winner, assert_keeps_views};
use darter_views::{StoreError, ViewStore};
use std::process::Command;

fn program(arguments: Arguments) -> Program {
    let url = Box::new(|hosts: &str| format!("consul://{hosts}/darter"));
    Program { name: "consul", probe: "version", ports: 3, arguments, url }
}

fn arguments(cluster: &Cluster, at: usize, command: &mut Command) {
    let [http, gossip, server] = cluster.ports[at][..] else { unreachable!("three ports") };
    let others = cluster.ports.iter().map(|ports| format!("-retry-join=127.0.0.1:{}", ports[1]));
    command
        .args([
            "agent",
            "-server",
            "-bind=127.0.0.1",
            "-client=127.0.0.1",
            "-dns-port=-1",
            "-serf-wan-port=-1",
        ])
        .args([format!("-node=s{at}"), format!("-bootstrap-expect={}", cluster.ports.len())])
        .arg(format!("-data-dir={}", cluster.folder.path().join(format!("s{at}")).display()))
        .args([
            format!("-http-port={http}"),
            format!("-serf-lan-port={gossip}"),
            format!("-server-port={server}"),
        ])
        .args(["-retry-interval=1s", "-log-level=warn", "-hcl=performance { raft_multiplier = 1 }"])
        .args(others);
}

/// Returns the arguments of a server that refuses clients without its token.
fn arguments_with_token(cluster: &Cluster, at: usize, command: &mut Command) {
    arguments(cluster, at, command);
    command.arg(r#"-hcl=acl { enabled = true default_policy = "deny" tokens { master = "secret" } }"#);
}

#[test]
fn consul_keeps_views() {
    let Some(cluster) = Cluster::start(program(Box::new(arguments_with_token)), 1) else { return };
    let token = |text: &str| {
        let file = cluster.folder.path().join(format!("token-{text}"));
        std::fs::write(&file, format!("{text}\n")).unwrap();
        format!("timeout-ms=10000&token-file={}", file.display())
    };
    let (url, right) = (cluster.url(), token("secret"));
    patiently(|| match ViewStore::open(&format!("{url}?{right}"), 9).unwrap().view() {
        // It knows no token before it is the leader.
        Err(StoreError::Refused { why, .. }) => Err(StoreError::Unreachable(why)),
        answer => answer,
    });
    assert_keeps_views(&format!("{url}?{right}"));
    assert_has_one_winner(&format!("{url}/contended?{right}"), 20);
    for url in [format!("{url}?{}", token("wrong")), url] {
        let error = ViewStore::open(&url, 0).unwrap().view().unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    }
}

#[test]
fn one_of_three_servers_at_a_time_is_killed_or_stopped() {
    let Some(mut cluster) = Cluster::start(program(Box::new(arguments)), 3) else { return };
    assert_survives_strikes(&mut cluster);
}
