//! The task that drives a thread's connections to memory nodes. Requests of all its clients are
//! sent together after each ready client has had its turn, and one check of the sockets delivers
//! all replies that have arrived.

use darter_fabric::ExternalDriver;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::error;

/// The interval between two checks for memory nodes that do not respond: a fraction of the time
/// after which a client tries another replica.
const LOOK: Duration = Duration::from_millis(50);

/// A thread's connections to memory nodes.
pub(super) struct FabricDriver {
    driver: AsyncFd<ExternalDriver>,
    look: Interval,
}

impl FabricDriver {
    /// Takes over the connections of the calling thread. Must be called in the thread's executor.
    pub(super) fn enter() -> io::Result<Self> {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // SAFETY: the driver has one file, which it opens when it is created and closes when it is
        // dropped.
        let driver = unsafe { AsyncFd::register(ExternalDriver::enter()?) }?;
        Ok(Self { driver, look })
    }

    /// Drives the connections forever.
    pub(super) async fn run(mut self) {
        let Err(failed) = std::future::poll_fn(|context| self.poll(context)).await;
        // From now on the fabric's own thread drives the posted requests.
        error!(error = %failed, "cannot watch the connections to memory nodes");
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<std::convert::Infallible, io::Error>> {
        self.driver.get_ref().wake_on_post(context.waker());
        self.driver.get_mut().send()?;
        while self.look.poll_tick(context).is_ready() {
            self.driver.get_mut().turn()?;
        }
        loop {
            let mut ready = ready!(self.driver.poll_read_ready_mut(context))?;
            if !ready.get_inner_mut().turn()? {
                ready.clear_ready();
            }
        }
    }
}
