//! How a client connects to a memory node: to its one address, or to the replica of a group that
//! serves.

use super::addresses::is_group;
use super::connection::{Connection, PATIENCE};
use super::group;
use super::handshake::{Caller, greet};
use super::options::TcpOptions;
use crate::FabricError;
use crate::wire::{self, Welcome};
use std::time::Duration;

/// [`connect_within`] the usual [`PATIENCE`], or that of the options if it is less.
pub(super) fn connect(
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
) -> Result<(Connection, Welcome), FabricError> {
    connect_within(PATIENCE.min(options.patience), address, node, caller, options)
}

/// Connects to node `node` of a pool, waiting no longer than so for each of its addresses and for
/// the greeting; if it is a memory group, to the replica that serves, for which that is the time it
/// has to be found.
///
/// # Errors
/// [`FabricError::Io`] when another try may succeed, [`FabricError::Geometry`] and
/// [`FabricError::Fenced`] when not.
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
