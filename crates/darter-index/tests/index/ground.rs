//! The fabric that the tests of every index run on here: this process's memory.

use darter_fabric::Local;

pub(crate) type Ground = Local;

/// Returns `nodes` regions of `node_bytes` bytes.
pub(crate) fn ground(node_bytes: u64, nodes: usize) -> Ground {
    Local::memory_as_medium(node_bytes, nodes).unwrap()
}
