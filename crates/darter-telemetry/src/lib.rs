//! Common parts of darter's daemons: counters with one writer, their exposition to Prometheus, the
//! HTTP port for operators, limits on log lines and open files, files with credentials, and
//! requests to stop or to reload. They do not depend on indexes or pools.

pub mod counters;
pub mod credentials;
pub mod descriptors;
pub mod exposition;
pub mod http;
pub mod log_limit;
pub mod openmetrics;
mod stop;

pub use http::{HttpPort, PortError};
pub use stop::Stop;
