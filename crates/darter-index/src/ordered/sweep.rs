//! Giving back what dead clients left: the pool's two steps of a sweep, and the index's own between
//! them.
//!
//! 1. The pool adopts the blocks of the dead, who can store nothing more. A walk from here on
//!    reaches all that is alive.
//! 2. The index clears hints that name anything else, so that none leads to what is about to be
//!    freed ([`OrderedIndex::scrub_unreachable`]). That may finish what a dead client had begun,
//!    and so make more unreachable: walk once more.
//! 3. The pool frees what the last walk did not reach.
//!
//! What a walk that found something wrong did not reach may be alive: then nothing is freed.

use super::OrderedIndex;
use crate::Result;
use darter_fabric::Fabric;
use darter_pool::{Client, SweepReport};

/// What became of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// A walk found these violations, in words a person can act on, so nothing was freed. Another
    /// sweep can be tried.
    Refused(Vec<String>),
    /// The pool's report.
    Done(SweepReport),
}

/// What [`OrderedIndex::sweep_dead`] does.
pub(crate) async fn sweep_dead<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
) -> Result<Swept> {
    let pool = client.pool().clone();
    let adoption = pool.adopt(client).await?;
    let mut walked = index.check(client).await?;
    if walked.violations.is_empty() && index.scrub_unreachable(client, &walked.reachable).await? {
        walked = index.check(client).await?;
    }
    if !walked.violations.is_empty() {
        return Ok(Swept::Refused(walked.violations));
    }
    Ok(Swept::Done(pool.finish_adoption(client, adoption, &walked.reachable).await?))
}
