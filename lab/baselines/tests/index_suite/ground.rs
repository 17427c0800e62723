//! Memory nodes in threads of this process, behind RDMA devices if there are two.

use crate::support::devices::{has_devices, on_device, through_device};
use crate::support::{Node, connect_as};
use darter_fabric::{Tcp, TcpOptions};
use darter_memnode::{MemNodeOptions, Region};
use std::cell::RefCell;
use std::collections::VecDeque;

pub(crate) type Ground = Tcp;

/// Maximum bytes of a region: a device pins all of them.
const REGION_BYTES_MAX: u64 = 64 << 20;
/// Sets of nodes of one test that serve at a time. Tests use them one after another.
const SETS: usize = 2;

thread_local! {
    static NODES: RefCell<VecDeque<Vec<Node>>> = const { RefCell::new(VecDeque::new()) };
}

/// Returns a connection to `nodes` memory nodes of `node_bytes` bytes, or fewer if not all can be
/// pinned. They serve until this thread has created two more sets, or ends.
pub(crate) fn ground(node_bytes: u64, nodes: usize) -> Ground {
    let (serves, reaches) = if has_devices() {
        (on_device(), through_device())
    } else {
        (MemNodeOptions::default(), TcpOptions::default())
    };
    NODES.with_borrow_mut(|sets| {
        sets.truncate(SETS - 1);
        let region = || Region::memory(node_bytes.min(REGION_BYTES_MAX)).unwrap();
        let made: Vec<Node> =
            (0..nodes).map(|_| Node::start(region(), "127.0.0.1:0", serves.clone())).collect();
        let fabric = connect_as(&made.iter().collect::<Vec<_>>(), reaches).unwrap();
        sets.push_front(made);
        fabric
    })
}
