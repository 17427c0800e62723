//! The ground of the tests of every index: memory of this process, with a server for each node.

use darter_baselines::XStoreService;
use darter_fabric::Local;

pub(crate) type Ground = Local;

/// Returns `nodes` regions of `node_bytes` bytes; calls of each node reach its server.
pub(crate) fn ground(node_bytes: u64, nodes: usize) -> Ground {
    let memory = Local::memory(node_bytes, nodes).unwrap();
    (0..nodes as u8).fold(memory.clone(), |served, node| {
        served.with_procedures(node, XStoreService::new(&memory).procedures()).unwrap()
    })
}
