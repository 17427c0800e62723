//! One task's access to the memory nodes, through the hub of the thread that polls the task.

use super::batches::{Called, Done, Ticket};
use super::hub::{Driver, Hub, Request};
use super::links::Links;
use crate::executor::{Drive, adopt, is_driving};
use crate::spares::Spares;
use crate::{Batch, CallFault, Calling, Endpoint, FabricError, OpKind, Orphans, RemoteProcedures, VerbKind};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

thread_local! {
    /// This thread's own hubs, one per fabric.
    static HUBS: RefCell<Vec<Arc<Hub>>> = const { RefCell::new(Vec::new()) };
}

/// One task's access to the memory nodes.
#[derive(Debug)]
pub struct TcpEndpoint {
    links: Arc<Links>,
    /// The hub that it used last.
    hub: Option<Arc<Hub>>,
    orphans: Arc<TcpOrphans>,
    spares: Spares,
    /// The current operation has sent an atomic verb or a call, which may have been its effective
    /// step.
    has_changed: bool,
}

/// Batches of an endpoint that are in flight and whose futures were dropped.
#[derive(Debug)]
struct TcpOrphans {
    links: Arc<Links>,
    count: Arc<AtomicUsize>,
}

impl Orphans for TcpOrphans {
    fn in_flight(&self) -> usize {
        if self.count.load(Ordering::Acquire) > 0 {
            // On any hub: its thread may no longer run a loop.
            self.links.turn_all();
        }
        self.count.load(Ordering::Acquire)
    }
}

impl TcpEndpoint {
    pub(super) fn new(links: Arc<Links>) -> Self {
        let orphans = Arc::new(TcpOrphans { links: Arc::clone(&links), count: Arc::default() });
        let spares = match &links.session.adapter {
            Some(adapter) => Spares::borrowing(Arc::clone(&adapter.buffers)),
            None => Spares::default(),
        };
        Self { links, hub: None, orphans, spares, has_changed: false }
    }

    /// Handles the end of a batch. Returns its error as that of the whole operation: if the
    /// operation has changed something before, the error does not claim that nothing was sent.
    fn settle<T>(&mut self, atomics: Atomics, done: Result<T, FabricError>) -> Result<T, FabricError> {
        let done = match done {
            Err(error) => match error.unsent_to() {
                Some(node) if !self.has_changed && !atomics.are_elsewhere(node) => return Err(error),
                Some(_) if error.is_shut_out() => Err(FabricError::Fenced),
                Some(node) => Err(FabricError::Disconnected { node }),
                None => Err(error),
            },
            done => done,
        };
        self.has_changed |= atomics != Atomics::None;
        done
    }

    /// Posts a batch or a call on the hub to use in this thread, and stores that hub in `hub`.
    #[inline]
    fn post(&mut self, what: Request, waker: &Waker) -> Result<Ticket, FabricError> {
        crate::fork::check(self.links.session.forks)?;
        let hub = match self.hub.take() {
            Some(hub) if hub.is_mine() || (hub.is_common() && !is_driving()) => hub,
            _ if is_driving() => own_hub(&self.links)?,
            _ => self.links.common_hub()?,
        };
        Ok(self.hub.insert(hub).post(&self.links.session, what, waker))
    }
}

/// The nodes that a batch's CASes and FAAs go to. New objects become reachable only by these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Atomics {
    None,
    At(u8),
    Several,
}

impl Atomics {
    fn of(batch: &Batch) -> Self {
        let atomics = batch.verbs().iter().filter(|verb| matches!(verb.kind, VerbKind::Cas | VerbKind::Faa));
        atomics.fold(Self::None, |all, verb| match all {
            Self::None => Self::At(verb.addr.node()),
            Self::At(node) if node == verb.addr.node() => all,
            _ => Self::Several,
        })
    }

    /// Returns whether some go to other nodes than this one.
    fn are_elsewhere(self, node: u8) -> bool {
        self != Self::None && self != Self::At(node)
    }
}

/// Returns the calling thread's own hub.
#[cold]
fn own_hub(links: &Links) -> Result<Arc<Hub>, FabricError> {
    HUBS.with_borrow_mut(|hubs| {
        if let Some(hub) = hubs.iter().find(|hub| hub.session == links.session.number) {
            return Ok(Arc::clone(hub));
        }
        let hub = Hub::new(&links.session, Driver::Tasks)?;
        links.enlist(&hub);
        adopt(Arc::clone(&hub) as Arc<dyn Drive>);
        hubs.retain(|hub| !hub.is_closed());
        hubs.push(Arc::clone(&hub));
        Ok(hub)
    })
}

impl Endpoint for TcpEndpoint {
    #[inline]
    fn batch(&mut self) -> Batch {
        self.spares.batch()
    }

    #[inline]
    fn recycle(&mut self, batch: Batch) {
        self.spares.recycle(batch);
    }

    fn submit(&mut self, batch: Batch) -> impl Future<Output = Result<Batch, FabricError>> + Send {
        let atomics = Atomics::of(&batch);
        Submission { endpoint: self, state: TcpState::Unposted(Request::Batch(batch)), atomics }
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        Some(self)
    }

    #[inline]
    fn begin(&mut self, _kind: OpKind) {
        self.has_changed = false;
    }

    fn in_flight(&self) -> usize {
        self.orphans.in_flight()
    }

    fn orphans(&self) -> Option<Arc<dyn Orphans>> {
        Some(Arc::clone(&self.orphans) as Arc<dyn Orphans>)
    }
}

impl RemoteProcedures for TcpEndpoint {
    fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Calling<'_> {
        if self.links.session.adapter.is_some() {
            // The processor's and the device's atomics are not atomic with respect to each other.
            return Box::pin(std::future::ready(Err(CallFault::Unsupported.of(node, procedure))));
        }
        let called = Box::new(Called { node, procedure, words });
        let state = TcpState::Unposted(Request::Call(called));
        let mut submission = Submission { endpoint: self, state, atomics: Atomics::At(node) };
        let answer = |done: Done| done.called.map_or_else(Vec::new, |called| called.words);
        Box::pin(std::future::poll_fn(move |context| {
            submission.poll_done(context).map(|done| done.map(answer))
        }))
    }
}

enum TcpState {
    Unposted(Request),
    /// On the endpoint's hub.
    Posted(Ticket),
    Done,
}

/// The future of a batch, or the state of that of a call. Its first poll posts.
struct Submission<'e> {
    endpoint: &'e mut TcpEndpoint,
    state: TcpState,
    atomics: Atomics,
}

impl Submission<'_> {
    #[inline]
    fn poll_done(&mut self, context: &Context<'_>) -> Poll<Result<Done, FabricError>> {
        if let TcpState::Posted(ticket) = self.state {
            let Some(hub) = &self.endpoint.hub else { return Poll::Pending };
            let result = hub.poll(ticket, context);
            if result.is_ready() {
                self.state = TcpState::Done;
            }
            return result.map(|done| self.endpoint.settle(self.atomics, done));
        }
        match std::mem::replace(&mut self.state, TcpState::Done) {
            TcpState::Unposted(Request::Batch(batch)) if batch.is_empty() => {
                Poll::Ready(Ok(Done { batch, called: None }))
            }
            TcpState::Unposted(what) => {
                self.state = TcpState::Posted(self.endpoint.post(what, context.waker())?);
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    }
}

impl Future for Submission<'_> {
    type Output = Result<Batch, FabricError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_done(context).map(|done| done.map(|done| done.batch))
    }
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        if let (TcpState::Posted(ticket), Some(hub)) = (&self.state, &self.endpoint.hub) {
            hub.give_up(*ticket, &self.endpoint.orphans.count);
        }
    }
}
