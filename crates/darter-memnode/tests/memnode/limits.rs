//! Limits on the load of tenants: their requests wait, those of others do not, and nothing fails.

use crate::support::{Node, connect, get, until, value};
use darter_fabric::tcp::TcpEndpoint;
use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, block_on};
use darter_memnode::{Limits, MemNodeOptions, serve_metrics};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SLOW: &str = "[[tenant]]\nname = 'slow'\ntokens = ['tortoise']\nverbs_per_second = 1000\n";

/// Adds `count` to a word, by as many verbs.
fn add(endpoint: &mut TcpEndpoint, count: usize) -> Result<(), FabricError> {
    let mut batch = endpoint.batch();
    for _ in 0..count {
        batch.faa(GlobalAddr::new(0, 64), 1);
    }
    block_on(endpoint.submit(batch)).map(|done| endpoint.recycle(done))
}

fn limited(text: &str) -> (Node, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let limits = Some(Limits::from_file(file.path()).unwrap());
    (Node::small(MemNodeOptions { token: "hare".into(), limits, ..MemNodeOptions::default() }), file)
}

#[test]
fn a_tenant_over_its_limit_waits_and_others_do_not() {
    let (node, file) = limited(SLOW);
    let metrics = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let count = |metric: &str, tenant: &str| {
        value(
            &get(metrics.address(), "/metrics"),
            &format!("darter_memnode_tenant_{metric}{{tenant=\"{tenant}\"}}"),
        )
    };
    assert!(connect(&[&node], b"snail").is_err());
    let mut slow = connect(&[&node], b"tortoise").unwrap().endpoint().unwrap();
    let mut fast = connect(&[&node], b"hare").unwrap().endpoint().unwrap();
    until("the tenants are known", || get(metrics.address(), "/metrics").contains("tenant=\"slow\""));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| (0..20).for_each(|_| add(&mut slow, 100).unwrap()));
        until("requests wait", || count("delays_total", "slow") > 0);
        for _ in 0..100 {
            add(&mut fast, 200).unwrap();
        }
        waits.join().unwrap();
    });
    // A tenth of a second is free, and the last request does not wait for its own cost.
    assert!(began.elapsed() >= Duration::from_millis(1700), "{:?}", began.elapsed());
    assert_eq!((count("delays_total", "default"), count("verbs_total", "default")), (0, 20_000));
    assert_eq!((count("verbs_total", "slow"), count("connections", "slow")), (2000, 2));
    assert!(count("delay_seconds_total", "slow") >= 1);
    assert!(count("transferred_bytes_total", "slow") > 2000 * 16);
    // A bad file changes nothing, and a good one is in use at once.
    std::fs::write(file.path(), "tenant = 1").unwrap();
    until("the failure is counted", || {
        get(metrics.address(), "/metrics").contains("credential_failing{what=\"limits\"")
            && value(
                &get(metrics.address(), "/metrics"),
                &format!(
                    "darter_memnode_credential_failing{{what=\"limits\",files=\"{}\"}}",
                    file.path().display()
                ),
            ) == 1
    });
    connect(&[&node], b"tortoise").unwrap();
    std::fs::write(file.path(), SLOW.replace("1000", "1_000_000_000")).unwrap();
    connect(&[&node], b"tortoise").unwrap();
    let delays = count("delays_total", "slow");
    for _ in 0..20 {
        add(&mut slow, 1000).unwrap();
    }
    assert_eq!(count("delays_total", "slow"), delays);
    std::fs::write(file.path(), "").unwrap();
    assert!(connect(&[&node], b"tortoise").is_err(), "the tenant is gone");
    add(&mut slow, 1).unwrap();
}

#[test]
fn a_node_that_stops_executes_the_requests_that_wait() {
    let (mut node, _file) = limited(SLOW);
    let mut slow = connect(&[&node], b"tortoise").unwrap().endpoint().unwrap();
    let metrics = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    // Four seconds of the tenant's allowance.
    add(&mut slow, 4000).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| add(&mut slow, 4000));
        until("it waits", || {
            let page = get(metrics.address(), "/metrics");
            page.contains("tenant_delays_total{tenant=\"slow\"} 1\n")
        });
        node.end();
        waits.join().unwrap().unwrap();
    });
}
