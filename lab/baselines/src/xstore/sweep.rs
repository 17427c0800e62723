//! The sweep of objects left by dead clients and servers: as in every index, with upkeep of the
//! server during it.
//!
//! A sweep waits for every member of the pool to pass an epoch. The server's process may do nothing
//! except serve calls, so it is called until the sweep is over.

use super::{XStore, wire};
use crate::compute_node::yield_now;
use darter_fabric::Fabric;
use darter_index::{OrderedIndex, Result, Swept};
use darter_pool::Client;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

impl<F: Fabric> XStore<F> {
    /// [`OrderedIndex::sweep_dead`].
    pub(super) async fn sweep_beside_server(&self, client: &mut Client<F>) -> Result<Swept> {
        let pool = client.pool().clone();
        let adoption = pool.adopt(client).await?;
        let walked = self.check(client).await?;
        if !walked.violations.is_empty() {
            return Ok(Swept::Refused(walked.violations));
        }
        let mut caller = pool.client()?;
        let upkeep = async {
            loop {
                // A failed server may succeed the next time, or another may take over. Without a
                // server the sweep waits for the last server's lease to end.
                let _ = self.call_all(&mut caller, wire::MAINTAIN).await;
                caller.pause().await;
                // Also yield if neither calls nor pauses are ever pending.
                yield_now().await;
            }
        };
        let mut upkeep = pin!(upkeep);
        let mut finish = pin!(pool.finish_adoption(client, adoption, &walked.reachable));
        let report: Result<_> = poll_fn(|context| {
            let _: Poll<Infallible> = upkeep.as_mut().poll(context);
            finish.as_mut().poll(context).map_err(Into::into)
        })
        .await;
        Ok(Swept::Done(report?))
    }
}
