//! An operation in progress: the process's shared state of the index, and the pinned client. The
//! steps of all operations are its methods.

use super::est::table::Table;
use super::shared::Shared;
use crate::Result;
use arc_swap::Guard;
use darter_fabric::{Fabric, OpKind};
use darter_pool::{Client, Pinned};
use std::sync::Arc;

/// An operation on the index in progress.
pub(super) struct Operation<'a, F: Fabric> {
    pub(super) shared: &'a Shared,
    pub(super) client: Pinned<'a, F>,
    /// The express skip table from which it takes hints and to which it adds them.
    pub(super) table: Guard<Arc<Table>>,
    /// The era for which it caches nodes.
    pub(super) era: u64,
}

impl<'a, F: Fabric> Operation<'a, F> {
    /// Begins an operation with the table checked in its epoch or a later one.
    #[inline]
    pub(super) async fn begin(shared: &'a Shared, client: &'a mut Client<F>, kind: OpKind) -> Result<Self> {
        let mut client = client.pin(kind).await?;
        let table = shared.view(&mut client).await?;
        Ok(Self { shared, client, table, era: shared.log.era() })
    }

    /// Begins an operation that takes no hints: its table is the last one seen.
    pub(super) async fn pin(shared: &'a Shared, client: &'a mut Client<F>, kind: OpKind) -> Result<Self> {
        let client = client.pin(kind).await?;
        Ok(Self { shared, client, table: shared.table(), era: shared.log.era() })
    }
}
