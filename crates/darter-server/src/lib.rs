//! What runs as a daemon: memory nodes, which serve nothing but memory, and gateways, through which Redis's clients use a pool.

mod counts;
mod exposition;
pub mod gateway;
mod http;
mod journal;
pub mod json;
pub mod memnode;
mod stop;

pub use http::{HttpPort, PortError};
pub use stop::Stop;
