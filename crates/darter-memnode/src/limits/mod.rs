//! Limits on the load of sessions and of tenants: groups of sessions that share tokens.
//!
//! A request over a limit waits at the node, and other sessions' requests do not. [`plan`] reads the
//! limits from a file, [`gate`] decides how long a connection waits.

mod bucket;
mod gate;
mod plan;

pub(crate) use gate::{Cost, Gate, Shown, TenantCounts, TenantId};
pub use plan::{Limits, LimitsError};
