//! Every example of the library, over memory nodes.

use darter::Store;
use darter_memnode::{MemNode, MemNodeOptions, Region, Stop};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// Returns the example's program, and builds it unless `cargo test` has.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let program = profile.join("examples").join(name);
    if !program.exists() {
        let cargo = Command::new(env!("CARGO"))
            .args([
                "build",
                "--profile",
                "test",
                "--manifest-path",
                concat!(env!("CARGO_MANIFEST_DIR"), "/../darter/Cargo.toml"),
            ])
            .args(["--example", name])
            .status()
            .unwrap();
        assert!(cargo.success());
    }
    program
}

/// What each example prints when it has done its work.
const SAYS: [(&str, &str); 4] = [
    ("map", "flying = fish"),
    ("multi_get_and_scan", "10 keys in"),
    ("typed_values", "cents: 1000"),
    ("survive_kill", "all of them are there"),
];

fn runs(name: &str, pool: &str) {
    let output = Command::new(program(name)).env("DARTER_POOL", pool).output().unwrap();
    let says = SAYS.iter().find(|(known, _)| *known == name).unwrap().1;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{out}\n{err}", output.status);
    assert!(out.contains(says), "{name} said:\n{out}");
}

#[test]
fn all_of_them_over_memory_nodes() {
    for (name, _) in SAYS {
        let stop = Arc::new(Stop::default());
        let mut nodes = Vec::new();
        let mut addresses = Vec::new();
        for _ in 0..2 {
            let listen = "127.0.0.1:0".parse().unwrap();
            let region = Region::memory(64 << 20).unwrap();
            let node = MemNode::bind(listen, region, MemNodeOptions::default()).unwrap();
            addresses.push(node.address().unwrap().to_string());
            let stop = Arc::clone(&stop);
            nodes.push(std::thread::spawn(move || node.serve(&stop).unwrap()));
        }
        let pool = format!("tcp://{}", addresses.join(","));
        drop(Store::options().create(true).open(&pool).unwrap());
        runs(name, &pool);
        stop.ask();
        for node in nodes {
            assert!(node.join().unwrap().verbs > 0);
        }
    }
}
