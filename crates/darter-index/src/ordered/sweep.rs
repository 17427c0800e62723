//! Freeing what dead clients left: two steps in the pool, with one step in the index between them.
//!
//! 1. The pool adopts the blocks of the dead clients, which can no longer store anything. A walk
//!    that starts after this reaches every live object.
//! 2. The index clears hints that name any other object, so that no hint leads to memory that is
//!    about to be freed ([`OrderedIndex::scrub_unreachable`]). This may complete a change that a
//!    dead client had begun, and so make more objects unreachable; in that case the index is walked
//!    once more.
//! 3. The pool frees what the last walk did not reach.
//!
//! If a walk finds a violation, objects that it did not reach may still be live, so nothing is
//! freed.

use super::OrderedIndex;
use crate::Result;
use darter_fabric::Fabric;
use darter_pool::{Client, SweepReport};

/// The result of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// A walk found these violations, so nothing was freed. They are described so that a person can
    /// act on them. The sweep can be retried.
    Refused(Vec<String>),
    /// The pool's report.
    Done(SweepReport),
}

/// Implements [`OrderedIndex::sweep_dead`].
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
