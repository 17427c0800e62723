//! Connects a client to a memory node: to its only address, or to the serving replica of a group.

use super::addresses::is_group;
use super::connection::{Connection, PATIENCE};
use super::group;
use super::handshake::{Caller, greet};
use super::options::TcpOptions;
use crate::FabricError;
use crate::wire::{self, Welcome};
use std::time::Duration;

/// [`connect_within`] the usual [`PATIENCE`], or the options' patience if that is shorter.
pub(super) fn connect(
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
) -> Result<(Connection, Welcome), FabricError> {
    connect_within(PATIENCE.min(options.patience), address, node, caller, options)
}

/// Connects to node `node` of a pool, waiting at most `patience` for each of its addresses and for
/// the greeting. If it is a memory group, connects to the replica that serves, which must be found
/// within that time.
///
/// # Errors
/// [`FabricError::Io`] if another attempt may succeed, [`FabricError::Geometry`] and
/// [`FabricError::Fenced`] otherwise.
pub(super) fn connect_within(
    patience: Duration,
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
) -> Result<(Connection, Welcome), FabricError> {
    if is_group(address) {
        return group::connect(patience, address, node, caller, options);
    }
    let (connection, welcome) = greet(patience, address, node, caller, options)?;
    if welcome.flags & wire::IS_REPLICA != 0 {
        return Err(FabricError::geometry(format!(
            "{address}: it is one replica of a memory group; name all of them for one node, as in `{address}+HOST:PORT`"
        )));
    }
    Ok((connection, welcome))
}
