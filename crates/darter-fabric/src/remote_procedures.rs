//! Calls of procedures, for endpoints whose memory nodes run any.

use crate::FabricError;
use std::future::Future;
use std::pin::Pin;

/// A call in progress.
pub type Calling<'e> = Pin<Box<dyn Future<Output = Result<Vec<u64>, FabricError>> + Send + 'e>>;

/// An endpoint that can call procedures at memory nodes.
pub trait RemoteProcedures: Send {
    /// Calls a procedure, as [`crate::Endpoint::call`] does.
    ///
    /// # Errors
    /// [`FabricError::Call`] if the call was refused, the procedure failed, or its server ended;
    /// [`FabricError::Unreachable`] if nothing was sent; [`FabricError::Fenced`].
    fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Calling<'_>;
}
