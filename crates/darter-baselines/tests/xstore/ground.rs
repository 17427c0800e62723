//! What the tests of every index run on here: memory of this process, with a server beside it.

use darter_baselines::XStoreService;
use darter_fabric::Local;

pub(crate) type Ground = Local;

/// Returns `nodes` regions of `node_bytes` bytes; calls of the first node reach its server.
pub(crate) fn ground(node_bytes: u64, nodes: usize) -> Ground {
    let memory = Local::memory(node_bytes, nodes).unwrap();
    memory.with_procedures(0, XStoreService::new(&memory).procedures()).unwrap()
}
