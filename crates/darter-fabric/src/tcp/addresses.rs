//! The addresses of memory nodes: a memory group's are those of its replicas, `a:7000+b:7000`.

/// Returns whether an address is that of a group.
pub(super) fn is_group(address: &str) -> bool {
    address.contains('+')
}

/// Returns the addresses of a node's replicas; just the address itself for a node without replicas.
pub(super) fn replicas(address: &str) -> impl Iterator<Item = &str> {
    address.split('+')
}
