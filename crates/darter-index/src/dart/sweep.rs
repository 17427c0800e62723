//! Giving back what dead clients left: the pool's two steps of a sweep, and the index's own between them.
//!
//! 1. The pool adopts the blocks of the dead, who can store nothing more. A walk from here on reaches all that is alive.
//! 2. Entries of the express skip table that name anything else are cleared, so that no hint leads to what is about to be
//!    freed. That finishes splits which a dead client had begun, and so makes segments unreachable: walk once more.
//! 3. The pool frees what the second walk did not reach.
//!
//! What a walk that found something wrong did not reach may be alive: then nothing is freed.

use super::{Dart, est};
use crate::{IndexError, OrderedIndex};
use darter_fabric::{Fabric, OpKind};
use darter_pool::{Client, ReachableSet, SweepReport};

/// What became of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// A walk found these violations, in words a person can act on, so nothing was freed. Another sweep can be tried.
    Refused(Vec<String>),
    /// The pool's report.
    Done(SweepReport),
}

impl<F: Fabric> Dart<F> {
    /// Frees what dead clients left behind. The client must not be pinned; other clients may be at work, and are waited
    /// for as [`darter_pool::Pool::finish_adoption`] says.
    ///
    /// # Errors
    /// When a walk cannot go on; those of pool and fabric. What was not freed is left to another sweep.
    pub async fn sweep_dead(&self, client: &mut Client<F>) -> Result<Swept, IndexError> {
        let pool = client.pool().clone();
        let adoption = pool.adopt(client).await?;
        let walked = self.check(client).await?;
        if !walked.violations.is_empty() {
            return Ok(Swept::Refused(walked.violations));
        }
        self.scrub_unreachable(client, &walked.reachable).await?;
        let walked = self.check(client).await?;
        if !walked.violations.is_empty() {
            return Ok(Swept::Refused(walked.violations));
        }
        Ok(Swept::Done(pool.finish_adoption(client, adoption, &walked.reachable).await?))
    }

    /// Clears what dead clients left in the express skip table: entries that name nodes outside `reachable`, and splits
    /// half done.
    async fn scrub_unreachable(
        &self,
        client: &mut Client<F>,
        reachable: &ReachableSet,
    ) -> Result<(), IndexError> {
        let mut client = client.pin(OpKind::Maintain).await?;
        self.shared.refresh(&mut client).await?;
        let (keys, version) = (self.shared.keys, self.shared.words.version);
        for table in self.live_tables(&mut client).await? {
            let doomed = |addr| !reachable.contains(addr);
            est::scrub::scrub_everywhere(&mut client, &table, &keys, version, doomed).await?;
        }
        let mut batch = client.batch();
        batch.faa(version, 1);
        let done = client.submit(batch).await?;
        client.recycle(done);
        Ok(())
    }
}
