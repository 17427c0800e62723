//! Executes the request of a client that waits for elements (`../waiting.rs`).

use super::Connection;
use crate::call::Call;
use crate::clients::WaitingClient;
use crate::clock::WallClock;
use crate::commands;
use crate::pipeline::Pipeline;
use crate::reply::Reply;
use crate::worker::{KeyspaceLease, Worker};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Instant;

impl Connection {
    /// Executes a request of a client that waits for elements, each time when the client is woken,
    /// until it is done. Returns when it ended.
    pub(super) async fn do_waiting<'w>(
        &mut self,
        worker: &'w Worker,
        pipeline: &Pipeline,
        number: usize,
        held: &mut Option<KeyspaceLease<'w>>,
    ) -> Instant {
        let info = Arc::clone(&self.client.info);
        let marked = worker.shared.clients.wait(&info, true);
        loop {
            // Others may use the session while this client waits.
            if let Some(lease) = held.take() {
                worker.give_keyspace(lease);
            }
            if self.wait(&marked).await.is_err() {
                (self.client.waiter, self.client.is_closing) = (None, true);
                return Instant::now();
            }
            let clock = WallClock::read();
            let began = clock.read_at;
            let lease = held.insert(worker.keyspace().await);
            lease.keys.now = clock.at(began);
            let args = pipeline.arguments(number, &self.parser, self.inbox.arrived());
            let reply = Reply::new(&mut self.outbox, self.client.is_resp3);
            let (keys, client) = (&mut lease.keys, &mut self.client);
            let mut call = Call { args, keys, reply, client, shared: &worker.shared };
            let command = commands::perform(&mut call).await;
            if !commands::has_to_wait(&self.client) {
                self.client.waiter = None;
                return worker.did(command, &args, began, &self.client.info);
            }
        }
    }

    /// Waits until the client's command must be tried again. Sends the replies to earlier requests,
    /// and receives further ones. Fails if the connection ends.
    async fn wait(&mut self, marked: &WaitingClient<'_>) -> io::Result<()> {
        let Some(mut waiter) = self.client.waiter.take() else { return Ok(()) };
        self.client.info.is_busy.store(false, Ordering::Release);
        let worker = Rc::clone(&self.worker);
        let mut unblocked = None;
        let ended = {
            let mut woken = pin!(waiter.woken(&worker.shared.peers));
            let mut unblock = pin!(marked.unblocked());
            poll_fn(|context| {
                self.send_messages(context)?;
                if let Poll::Ready(how) = unblock.as_mut().poll(context) {
                    unblocked = Some(how);
                    return Poll::Ready(Ok(()));
                }
                if woken.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Ok(()));
                }
                while let Poll::Ready(filled) = self.poll_fill(context) {
                    filled.and_then(|()| self.count())?;
                    if self.has_ended {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
                Poll::Pending
            })
            .await
        };
        self.client.info.is_busy.store(true, Ordering::Release);
        (waiter.goes_on, waiter.unblocked) = (false, unblocked);
        self.client.waiter = Some(waiter);
        ended
    }
}
