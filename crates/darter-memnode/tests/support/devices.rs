//! The two Soft-RoCE devices of `scripts/rdma-vm`: memory nodes use the second, clients the first.
//! Elsewhere the tests that need them are skipped.

use super::{Node, connect_as};
use darter_fabric::rdma::DeviceName;
use darter_fabric::{Tcp, TcpOptions};
use darter_memnode::{MemNodeOptions, Region};

/// Returns whether there are devices to test with; says so if there are none.
pub fn has_devices() -> bool {
    let has = std::env::var_os("RDMA_VM").is_some();
    if !has {
        println!("skipped: there are no RDMA devices; run it with `scripts/rdma-vm`");
    }
    has
}

pub fn device(name: &str) -> DeviceName {
    name.parse().unwrap()
}

/// Options of a node on the second device.
pub fn on_device() -> MemNodeOptions {
    MemNodeOptions { device: Some(device("rxe1")), ..MemNodeOptions::default() }
}

/// A node on the second device.
pub fn serving(bytes: u64) -> Node {
    Node::start(Region::memory(bytes).unwrap(), "127.0.0.1:0", on_device())
}

/// Options of a client on the first device.
pub fn through_device() -> TcpOptions {
    TcpOptions { device: Some(device("rxe0")), ..TcpOptions::default() }
}

/// A client on the first device.
pub fn reach(nodes: &[&Node]) -> Tcp {
    connect_as(nodes, through_device()).unwrap()
}

/// Returns a node with this number of bytes and a client of it; `None` if there are no devices.
pub fn over_devices(bytes: u64) -> Option<(Node, Tcp)> {
    has_devices().then(|| {
        let node = serving(bytes);
        let fabric = reach(&[&node]);
        (node, fabric)
    })
}
