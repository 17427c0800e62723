//! A call in flight, and the execution of its procedure: outside of time, so that it must not wait
//! for another task. A procedure that waits is abandoned.

use super::nic::Ps;
use darter_fabric::{CallFault, ProcedureError, Procedures};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// The result of a call.
pub(super) type CallResult = Result<Vec<u64>, CallFault>;

/// A call in flight.
#[derive(Debug)]
pub(super) struct CallFlight {
    pub task: u32,
    pub compute_node: u32,
    pub node: u8,
    pub request: Option<Request>,
    pub outcome: Option<CallResult>,
    /// When the reply is complete; `None` while it is not known.
    pub done_at: Option<Ps>,
    /// Set after the future that waited is dropped; the counter at the endpoint to decrement.
    pub orphan: Option<Arc<AtomicUsize>>,
}

/// The request that a call brings to its node.
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

/// Whether a procedure was woken since its last poll.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
