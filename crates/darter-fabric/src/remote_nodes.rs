//! Memory nodes as machines: they have addresses, can be absent, can return without their memory,
//! and can be added to a pool.

use crate::FabricError;

/// Memory nodes that have addresses.
pub trait RemoteNodes {
    /// Returns the address of a node, as in the pool's name.
    fn node_address(&self, node: u8) -> Option<String>;

    /// Connects to another node at an address; its number is the current count of nodes. All
    /// endpoints can use it afterwards.
    ///
    /// # Errors
    /// Fails if it cannot be reached, or is one of the other nodes.
    fn add_node(&self, node: u8, address: &str) -> Result<(), FabricError>;

    /// Removes the last node if it has this number: it turned out not to be part of the pool.
    fn forget_node(&self, node: u8);

    /// Returns a number that differs for the memory of every node, and for the memories of one node
    /// before and after a restart that lost its contents; `None` if nodes have no such numbers, or
    /// this one was never reached.
    fn node_id(&self, _node: u8) -> Option<u64> {
        None
    }

    /// Adds a node of the pool that cannot be reached now: the next one, or one that was named when
    /// the fabric was created. Verbs to it fail until a node with this id replies at its address.
    ///
    /// # Errors
    /// Fails if the node is already known, or nodes have no ids.
    fn expect_node(&self, node: u8, _expected: &ExpectedNode) -> Result<(), FabricError> {
        Err(FabricError::Unreachable { node })
    }

    /// From now on the node has left the pool: verbs to it fail, and it is not contacted again.
    /// Adds it if it is the next one.
    ///
    /// # Errors
    /// Fails if it is not known, and not the next one.
    fn retire_node(&self, node: u8, _expected: &ExpectedNode) -> Result<(), FabricError> {
        Err(FabricError::Unreachable { node })
    }

    /// Returns whether the last attempt to reach a node has failed. New objects should be placed on
    /// others.
    fn is_absent(&self, _node: u8) -> bool {
        false
    }

    /// Returns whether the last attempt to reach a node found memory other than the pool's: it was
    /// restarted without its contents. Such a node is absent.
    fn is_lost(&self, _node: u8) -> bool {
        false
    }

    /// Treats a node that was reached, but does not have the pool's memory, as a node that was
    /// never reached: [`crate::Fabric::node_bytes`] is 0 until [`RemoteNodes::expect_node`] is
    /// called.
    fn disown_node(&self, _node: u8) {}

    /// Returns the credentials for nodes that were read from files.
    #[cfg(feature = "tcp")]
    fn credentials(&self) -> Vec<crate::wire::Credential> {
        Vec::new()
    }

    /// Checks, without waiting, whether absent nodes can be reached again.
    fn search_absent(&self) {}
}

/// The entry of a pool's directory for a node that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedNode {
    /// Its address, as in the pool's name.
    pub address: String,
    /// Bytes of its region.
    pub bytes: u64,
    /// Its [`RemoteNodes::node_id`] when it became part of the pool.
    pub id: u64,
}
