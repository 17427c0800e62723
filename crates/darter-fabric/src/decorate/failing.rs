//! Injects failures at chosen points: for crash sweeps, which count an operation's verbs and then
//! fail at each.
//!
//! If a verb fails, the verbs before it take effect, including those of the same batch, and none
//! after it: all other clients observe the same when a client dies between two verbs.

use super::{forward_endpoint, forward_fabric, forward_membership, forward_statistics};
use crate::local::Memory;
use crate::{Batch, Calling, Endpoint, Fabric, FabricError, RemoteProcedures};
use std::sync::{Arc, Mutex, PoisonError};

/// Where to fail. Verbs and batches are counted from 0 over all endpoints, starting when the plan
/// is set. A call counts as a batch of one verb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailPoint {
    /// Nowhere: only count.
    #[default]
    Never,
    /// Before this verb takes effect; earlier verbs of its batch do take effect.
    Verb(u64),
    /// Before any verb of this batch takes effect.
    Submit(u64),
    /// After all verbs of this batch have taken effect: the reply is lost.
    Reply(u64),
}

/// The plan that all endpoints of a [`Failing`] fabric share. Clones share it too.
#[derive(Clone, Debug, Default)]
pub struct FailPlan {
    state: Arc<Mutex<FailState>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct FailState {
    point: FailPoint,
    /// Whether everything after the point fails too, as for a dead client.
    for_good: bool,
    failed: bool,
    verbs: u64,
    submits: u64,
}

/// Fate of one batch.
enum Verdict {
    Pass,
    /// Only this number of verbs take effect.
    Cut(usize),
    /// All take effect, and the caller gets an error.
    LoseReply,
}

impl FailPlan {
    /// Fails once at `point`, then works again. Restarts the counts.
    pub fn fail_once(&self, point: FailPoint) {
        self.set(FailState { point, ..FailState::default() });
    }

    /// Fails at `point` and from then on. Restarts the counts.
    pub fn fail_from(&self, point: FailPoint) {
        self.set(FailState { point, for_good: true, ..FailState::default() });
    }

    /// Stops failing. Restarts the counts.
    pub fn heal(&self) {
        self.set(FailState::default());
    }

    /// Returns the number of verbs submitted since the plan was set.
    pub fn verbs(&self) -> u64 {
        self.with(|state| state.verbs)
    }

    /// Returns the number of batches submitted since the plan was set.
    pub fn submits(&self) -> u64 {
        self.with(|state| state.submits)
    }

    /// Returns whether the point was reached.
    pub fn has_failed(&self) -> bool {
        self.with(|state| state.failed)
    }

    fn set(&self, state: FailState) {
        self.with(|old| *old = state);
    }

    /// A panic elsewhere leaves these numbers consistent, so the poison is ignored.
    fn with<R>(&self, act: impl FnOnce(&mut FailState) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl FailState {
    /// Counts a batch of `len` verbs and decides its fate. Also returns the number of verbs before
    /// it.
    fn judge(&mut self, len: usize) -> (Verdict, u64) {
        let (verbs, submits) = (self.verbs, self.submits);
        self.verbs += len as u64;
        self.submits += 1;
        if self.failed {
            return (if self.for_good { Verdict::Cut(0) } else { Verdict::Pass }, verbs);
        }
        let verdict = match self.point {
            FailPoint::Verb(at) if at < self.verbs => Verdict::Cut((at - verbs) as usize),
            FailPoint::Submit(at) if at == submits => Verdict::Cut(0),
            FailPoint::Reply(at) if at == submits => Verdict::LoseReply,
            _ => return (Verdict::Pass, verbs),
        };
        self.failed = true;
        (verdict, verbs)
    }
}

/// A fabric that fails according to its plan. Identities and fencing never fail here.
#[derive(Clone, Debug)]
pub struct Failing<F> {
    inner: F,
    plan: FailPlan,
}

impl<F> Failing<F> {
    /// Wraps a fabric; nothing fails until the plan is set.
    pub fn new(inner: F) -> Self {
        Self { inner, plan: FailPlan::default() }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &FailPlan {
        &self.plan
    }

    /// Returns the wrapped fabric.
    pub fn inner(&self) -> &F {
        &self.inner
    }
}

forward_membership!(Failing);

impl<F: Fabric> Fabric for Failing<F> {
    type Endpoint = FailingEndpoint<F::Endpoint>;

    fn endpoint(&self) -> Result<Self::Endpoint, FabricError> {
        Ok(FailingEndpoint { inner: self.inner.endpoint()?, plan: self.plan.clone() })
    }

    forward_fabric!();
}

/// An endpoint that fails according to the plan of its fabric.
#[derive(Debug)]
pub struct FailingEndpoint<E> {
    inner: E,
    plan: FailPlan,
}

impl<E: Endpoint> Endpoint for FailingEndpoint<E> {
    forward_endpoint!();
    forward_statistics!();

    #[inline]
    fn memory(&self) -> Option<Memory<'_>> {
        self.inner.memory()
    }

    async fn submit(&mut self, mut batch: Batch) -> Result<Batch, FabricError> {
        let (verdict, before) = self.plan.with(|state| state.judge(batch.len()));
        match verdict {
            Verdict::Pass => self.inner.submit(batch).await,
            Verdict::Cut(landing) => {
                batch.truncate(landing);
                if !batch.is_empty() {
                    self.inner.submit(batch).await?;
                }
                Err(FabricError::Injected { verb: before + landing as u64 })
            }
            Verdict::LoseReply => {
                let verbs = batch.len() as u64;
                self.inner.submit(batch).await?;
                Err(FabricError::Injected { verb: before + verbs })
            }
        }
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        Some(self)
    }
}

impl<E: Endpoint> RemoteProcedures for FailingEndpoint<E> {
    fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Calling<'_> {
        Box::pin(async move {
            let (verdict, before) = self.plan.with(|state| state.judge(1));
            match verdict {
                Verdict::Pass => self.inner.call(node, procedure, words).await,
                Verdict::Cut(_) => Err(FabricError::Injected { verb: before }),
                Verdict::LoseReply => {
                    self.inner.call(node, procedure, words).await?;
                    Err(FabricError::Injected { verb: before + 1 })
                }
            }
        })
    }
}
