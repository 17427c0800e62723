//! Every example of the library, on memory nodes.

use darter::Store;
use darter_memnode::{MemNode, MemNodeOptions, Region, Stop};
use std::sync::Arc;

#[path = "../../../darter/tests/it/example_runner.rs"]
mod example_runner;

/// The examples that take another pool.
const EXAMPLES: [&str; 4] = ["map", "multi_get_and_scan", "typed_values", "survive_kill"];

#[test]
fn all_of_them_over_memory_nodes() {
    for name in EXAMPLES {
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
        example_runner::runs(name, Some(&pool));
        stop.ask();
        for node in nodes {
            assert!(node.join().unwrap().verbs > 0);
        }
    }
}
