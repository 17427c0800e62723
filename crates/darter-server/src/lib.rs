//! What runs as a daemon: memory nodes, which serve nothing but memory.

pub mod memnode;
