//! An operation in progress: the state shared by an index's clients, and the client whose pin the
//! operation uses. The steps of all operations are its methods.

use darter_fabric::{Fabric, OpKind};
use darter_pool::{Client, Pinned, PoolError};

/// An operation of an index whose clients share `S`.
pub(crate) struct Operation<'a, S, F: Fabric> {
    pub(crate) shared: &'a S,
    pub(crate) client: Pinned<'a, F>,
}

impl<'a, S, F: Fabric> Operation<'a, S, F> {
    /// Begins an operation of this kind.
    ///
    /// # Errors
    /// As [`Client::pin`].
    pub(crate) async fn pin(
        shared: &'a S,
        client: &'a mut Client<F>,
        kind: OpKind,
    ) -> Result<Self, PoolError> {
        Ok(Self { shared, client: client.pin(kind).await? })
    }
}
