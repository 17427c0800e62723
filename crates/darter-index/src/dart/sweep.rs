//! DART's part in a sweep: what dead clients left in the express skip table.

use super::operation::Operation;
use super::retired_log::LogWrites;
use super::{Dart, est};
use crate::Result;
use darter_fabric::{Fabric, OpKind};
use darter_pool::{Client, ReachableSet};

impl<F: Fabric> Dart<F> {
    /// Clears entries that name nodes outside `reachable`, and finishes incomplete splits, which
    /// makes their old segments unreachable.
    pub(super) async fn scrub_dead_entries(
        &self,
        client: &mut Client<F>,
        reachable: &ReachableSet,
    ) -> Result<()> {
        let mut operation = Operation::pin(&self.shared, client, OpKind::Maintain).await?;
        self.shared.refresh(&mut operation.client).await?;
        let version = self.shared.words.version;
        for table in operation.live_tables(&LogWrites::new()).await?.0 {
            let doomed = |addr| !reachable.contains(addr);
            est::scrub::scrub_everywhere(&mut operation.client, self.shared.express(&table), doomed).await?;
        }
        operation.client.post(|batch| _ = batch.faa(version, 1)).await?;
        operation.end_eras().await
    }
}
