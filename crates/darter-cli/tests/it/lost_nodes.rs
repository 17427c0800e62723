//! Memory nodes that do not come back: an export of the other keys, and the pool without these nodes.

use crate::common::{darter, said};
use crate::daemon::Daemon;
use darter::Store;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

const KEYS: u32 = 2_000;

fn node() -> Daemon {
    Daemon::start(&["memnode", "--listen", "127.0.0.1:0", "--size", "32M"])
}

fn pool(arguments: &[&str], url: &str) -> Output {
    darter(&[&["pool"], arguments, &["--pool", url]].concat())
}

fn key(number: u32) -> String {
    format!("{}-{number:04}", ["apple", "pear", "plum-with-a-long-name", "quince"][number as usize % 4])
}

/// Values in pages, in leaves, and of many pages.
fn value(number: u32) -> String {
    format!("{number}").repeat([3, 200, 10_000][number as usize % 29 / 14])
}

fn text(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).unwrap()
}

/// The pairs of an export in a file.
fn exported(path: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().skip(2).filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once('\t').unwrap()).map(|(key, value)| (key.into(), value.into())).collect()
}

fn scanned(url: &str) -> BTreeMap<String, String> {
    let output = darter(&["scan", "--pool", url]);
    assert!(output.status.success(), "{}", said(&output));
    let pair =
        |line: &str| line.split_once('\t').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap();
    text(&output.stdout).lines().map(pair).collect()
}

fn put_all(url: &str) {
    let store = Store::open(url).unwrap();
    let session = store.session().unwrap();
    for number in 0..KEYS {
        session.put(key(number), value(number)).unwrap();
    }
}

/// Two memory nodes are lost, one after the other, and a client is killed with each. Then an export has
/// exactly the pairs that the pool has once it is whole.
#[test]
fn a_pool_goes_on_without_nodes_that_are_lost() {
    // Where the index has its nodes depends on the pool's secret.
    let has_lost_some = (0..30).any(|_| a_pool_goes_on_if_it_has_lost_some());
    assert!(has_lost_some, "each pool has lost all pairs, or none");
}

/// Returns false if a loss has taken all pairs or none.
fn a_pool_goes_on_if_it_has_lost_some() -> bool {
    let mut nodes: Vec<Daemon> = (0..3).map(|_| node()).collect();
    let addresses: Vec<&str> = nodes.iter().map(|node| &node.address[..]).collect();
    let url = format!("tcp://{}", addresses.join(","));
    let directory = tempfile::tempdir().unwrap();
    assert!(pool(&["create"], &url).status.success());
    let expected: BTreeMap<_, _> = (0..KEYS).map(|number| (key(number), value(number))).collect();
    for (number, lost) in [(1, "1"), (2, "2")] {
        put_all(&url);
        assert_eq!(scanned(&url), expected);
        let give_up = || pool(&["remove-node", lost, "--lost", "--yes"], &url);
        let refused = give_up();
        assert!(refused.status.code() == Some(1), "{}", said(&refused));
        assert!(said(&refused).contains("this memory node responds"), "{}", said(&refused));
        let mut gateway = Daemon::gateway(&url, "127.0.0.1:0");
        nodes[number].kill();
        let refused = give_up();
        assert!(refused.status.code() == Some(1), "{}", said(&refused));
        assert!(said(&refused).contains("other processes have the pool open: member "), "{}", said(&refused));
        gateway.kill();
        let path = directory.path().join(format!("rest-{lost}.tsv"));
        let export = darter(&["export", "--skip-unreachable", path.to_str().unwrap(), "--pool", &url]);
        assert!(export.status.success(), "{}", said(&export));
        let rest = exported(&path);
        if rest.is_empty() || rest.len() == expected.len() {
            return false;
        }
        assert!(rest.iter().all(|(key, value)| expected.get(key) == Some(value)), "a wrong value");
        let report = text(&export.stderr);
        assert!(report.contains("skipped: ") && report.contains("cannot be reached"), "{report}");
        let asked = pool(&["remove-node", lost, "--lost"], &url);
        assert!(asked.status.code() == Some(2) && said(&asked).contains("add --yes"), "{}", said(&asked));
        let given_up = give_up();
        assert!(given_up.status.success(), "{}", said(&given_up));
        assert!(text(&given_up.stdout).lines().all(|line| line.starts_with("gone: ")), "{}", said(&given_up));
        assert!(text(&given_up.stderr).contains("the pool is whole"), "{}", said(&given_up));
        assert_eq!(scanned(&url), rest);
        let check = darter(&["check", "--pool", &url]);
        assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
        let again = give_up();
        assert!(again.status.success() && again.stdout.is_empty(), "{}", said(&again));
    }
    put_all(&url);
    assert_eq!(scanned(&url), expected);
    let status = said(&pool(&["status"], &url));
    assert_eq!(status.matches("has left").count(), 2, "{status}");
    let export = darter(&["export", "--skip-unreachable", "--pool", &url]);
    assert!(export.status.success() && export.stderr.is_empty(), "{}", text(&export.stderr));
    nodes[0].kill();
    for command in [&["export", "--skip-unreachable"][..], &["pool", "remove-node", "3", "--lost", "--yes"]] {
        let failed = darter(&[command, &["--pool", &url]].concat());
        assert!(failed.status.code() == Some(1), "{}", said(&failed));
        assert!(said(&failed).contains("without memory node 0"), "{}", said(&failed));
    }
    true
}

#[test]
fn what_cannot_be_given_up_or_skipped_is_refused() {
    let node = node();
    let url = format!("tcp://{}", node.address);
    for (arguments, code, why) in [
        (&["remove-node", "0", "--lost", "--yes"][..], 1, "memory node 0 has the pool's members"),
        (&["remove-node", "1"], 2, "add --lost"),
        (&["remove-node", "--lost"], 2, "NODE"),
        (&["remove-node", "1", "--lost"], 2, "add --yes to give up without confirmation"),
    ] {
        let refused = pool(arguments, &url);
        assert!(refused.status.code() == Some(code) && said(&refused).contains(why), "{}", said(&refused));
    }
    assert!(pool(&["create", "--index", "dart"], &url).status.success());
    for (arguments, code, why) in [
        (&["--table", "redis:0"][..], 2, "cannot be used with"),
        (&["--format", "resp"], 2, "--all --skip-unreachable"),
        (&[], 1, "this index cannot be read around a lost memory node"),
    ] {
        let export = [&["export", "--skip-unreachable", "--pool", &url], arguments].concat();
        let refused = darter(&export);
        assert!(refused.status.code() == Some(code) && said(&refused).contains(why), "{}", said(&refused));
    }
}
