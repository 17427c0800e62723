//! What runs as a daemon: memory nodes, which serve nothing but memory, and gateways, through which Redis's clients use a pool.

pub mod gateway;
pub mod memnode;
mod stop;

pub use stop::Stop;
