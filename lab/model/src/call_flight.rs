//! A call on its way, and how its procedure runs: outside of time, so that it may wait for nobody.
//! One that does is given up.

use super::nic::Ps;
use darter_fabric::{CallFault, ProcedureError, Procedures};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// What becomes of a call.
pub(super) type CallResult = Result<Vec<u64>, CallFault>;

/// A call on its way.
#[derive(Debug)]
pub(super) struct CallFlight {
    pub task: u32,
    pub compute_node: u32,
    pub node: u8,
    pub request: Option<Request>,
    pub outcome: Option<CallResult>,
    /// When the answer is complete; `None` while it is not known.
    pub done_at: Option<Ps>,
    /// The future that waited is gone; counts it down at the endpoint.
    pub orphan: Option<Arc<AtomicUsize>>,
}

/// What a call brings to its node.
#[derive(Debug)]
pub(super) struct Request {
    pub procedures: Procedures,
    pub procedure: u64,
    pub words: Vec<u64>,
}

impl Request {
    /// Runs the procedure outside of time.
    pub(super) fn run(self) -> CallResult {
        let Self { procedures, procedure, words } = self;
        let mut running = pin!(procedures.run(procedure, words));
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        while woken.0.swap(false, Ordering::Relaxed) {
            if let Poll::Ready(outcome) = running.as_mut().poll(&mut Context::from_waker(&waker)) {
                return outcome;
            }
        }
        let message = "the procedure waits for another task; in the model it takes effect at one instant";
        Err(CallFault::Failed(ProcedureError::new(ProcedureError::FABRIC, message)))
    }
}

/// Whether a procedure was woken since it was last polled.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
