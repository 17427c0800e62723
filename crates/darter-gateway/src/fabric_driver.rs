//! The task of a thread that sees to its connections to memory nodes: requests of all its clients leave together, once each client
//! that was ready has had its turn, and one look hands out all answers that have come.

use darter_fabric::ExternalDriver;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::error;

/// Between two looks at which memory nodes are silent.
const LOOK: Duration = Duration::from_secs(1);

/// A thread's connections to memory nodes.
pub(super) struct FabricDriver {
    guest: AsyncFd<ExternalDriver>,
    look: Interval,
}

impl FabricDriver {
    /// Takes over those of the calling thread, whose executor it must be called in.
    pub(super) fn enter() -> io::Result<Self> {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // SAFETY: the guest has one file, which it opens when it is made and closes when it is dropped.
        let guest = unsafe { AsyncFd::register(ExternalDriver::enter()?) }?;
        Ok(Self { guest, look })
    }

    /// Sees to them for ever.
    pub(super) async fn run(mut self) {
        let Err(failed) = std::future::poll_fn(|context| self.poll(context)).await;
        // The fabric's own thread takes over what is posted from here on.
        error!(error = %failed, "connections to memory nodes cannot be watched");
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<std::convert::Infallible, io::Error>> {
        self.guest.get_ref().wake_on_post(context.waker());
        self.guest.get_mut().send()?;
        while self.look.poll_tick(context).is_ready() {
            self.guest.get_mut().turn()?;
        }
        loop {
            let mut ready = ready!(self.guest.poll_read_ready_mut(context))?;
            if !ready.get_inner_mut().turn()? {
                ready.clear_ready();
            }
        }
    }
}
