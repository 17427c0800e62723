//! DART's part in a sweep: what dead clients left in the express skip table.

use super::{Dart, est};
use crate::IndexError;
use darter_fabric::{Fabric, OpKind, mutant};
use darter_pool::{Client, ReachableSet};

impl<F: Fabric> Dart<F> {
    /// Clears entries that name nodes outside `reachable`, and finishes splits half done, which
    /// makes their old segments unreachable.
    pub(super) async fn scrub_dead_entries(
        &self,
        client: &mut Client<F>,
        reachable: &ReachableSet,
    ) -> Result<(), IndexError> {
        let mut client = client.pin(OpKind::Maintain).await?;
        self.shared.refresh(&mut client).await?;
        let version = self.shared.words.version;
        for table in self.live_tables(&mut client).await?.0 {
            let doomed = |addr| !reachable.contains(addr);
            est::scrub::scrub_everywhere(&mut client, self.express(&table), doomed).await?;
        }
        let mut batch = client.batch();
        batch.faa(version, 1);
        let done = client.submit(batch).await?;
        client.recycle(done);
        if mutant!("swept-nodes-stay-remembered") {
            return Ok(());
        }
        self.bump_retirements(&mut client).await
    }
}
