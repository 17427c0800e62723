//! Requests other than verbs: claims, fences, persistence. The calling thread waits for each.

use super::addresses::is_group;
use super::batches::Ticket;
use super::connection::{Connection, Sent};
use super::handshake::Caller;
use super::reach::connect_within;
use super::session::{NodeInfo, Session};
use crate::FabricError;
use crate::wire::{self, Control, Refusal, RequestKind};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for a node if the caller must not be delayed.
pub(super) const CONTROL_PATIENCE: Duration = Duration::from_secs(1);
/// How long requests wait for a memory group if no replica serves.
const GROUP_PATIENCE: Duration = Duration::from_secs(10);
/// Interval between two attempts to reach such a group.
const AGAIN: Duration = Duration::from_millis(10);
/// How long a region may take to reach its medium.
const PERSIST_PATIENCE: Duration = Duration::from_secs(600);

/// One control connection for each node.
#[derive(Debug, Default)]
pub(super) struct ControlLinks(Mutex<Vec<ControlLink>>);

impl ControlLinks {
    fn lock(&self) -> MutexGuard<'_, Vec<ControlLink>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the connection to a node that is new in the pool: the last one.
    pub(super) fn put(&self, node: u8, connection: Connection) {
        let mut links = self.lock();
        links.resize_with(usize::from(node), ControlLink::default);
        links.push(ControlLink { connection: Some(connection), down_until: None });
    }

    /// Closes the connections to all but the first `nodes` nodes.
    pub(super) fn truncate(&self, nodes: usize) {
        self.lock().truncate(nodes);
    }

    /// Closes the connection to a node.
    pub(super) fn drop_link(&self, node: u8) {
        if let Some(link) = self.lock().get_mut(usize::from(node)) {
            *link = ControlLink::default();
        }
    }

    /// Sends one request and returns the reply.
    pub(super) fn request(
        &self,
        session: &Session,
        node: u8,
        kind: RequestKind,
        about: Control,
    ) -> Result<Refusal, FabricError> {
        let mut links = self.lock();
        let at = usize::from(node);
        let known = session.node(node).ok_or(FabricError::Disconnected { node })?;
        if links.len() <= at {
            links.resize_with(at + 1, ControlLink::default);
        }
        let link = &mut links[at];
        let is_group = is_group(&known.address);
        let deadline = Instant::now() + GROUP_PATIENCE;
        let (refusal, text) = loop {
            if let Some(reply) = link.connection.take().and_then(|old| link.exchange(old, kind, about)) {
                break reply;
            }
            // There is no connection, or it was lost after its last use: every request may be
            // repeated.
            let replied = link.reconnect(session, node, &known).and_then(|fresh| {
                link.exchange(fresh, kind, about).ok_or(FabricError::Disconnected { node })
            });
            match replied {
                Ok(reply) => break reply,
                // Another replica is taking over.
                Err(FabricError::Io(_) | FabricError::Disconnected { .. })
                    if is_group && Instant::now() < deadline =>
                {
                    link.down_until = None;
                    std::thread::sleep(AGAIN);
                }
                Err(error) => return Err(error),
            }
        };
        match refusal {
            Refusal::None | Refusal::Taken | Refusal::Stranger => Ok(refusal),
            other => Err(wire::error_of(other, node, &text)),
        }
    }
}

/// A node's connection for requests other than batches.
#[derive(Debug, Default)]
struct ControlLink {
    connection: Option<Connection>,
    /// The node could not be reached, and is not tried again before this time.
    down_until: Option<Instant>,
}

impl ControlLink {
    /// Connects again, unless that failed very recently: the caller has a lease to renew, and
    /// cannot wait for one node after the other.
    fn reconnect(
        &mut self,
        session: &Session,
        node: u8,
        known: &NodeInfo,
    ) -> Result<Connection, FabricError> {
        if self.down_until.is_some_and(|until| Instant::now() < until) {
            return Err(FabricError::Disconnected { node });
        }
        self.down_until = Some(Instant::now() + CONTROL_PATIENCE * 2);
        let (connection, welcome) = connect_within(
            CONTROL_PATIENCE,
            &known.address,
            node,
            Caller::of(session.number),
            &session.options,
        )?;
        if Some(welcome.boot_id) != known.boot_id {
            return Err(FabricError::Disconnected { node });
        }
        self.down_until = None;
        Ok(connection)
    }

    /// Sends a request and returns the reply. Keeps the connection if there is one.
    fn exchange(
        &mut self,
        mut connection: Connection,
        kind: RequestKind,
        about: Control,
    ) -> Option<(Refusal, String)> {
        let reply = exchange(&mut connection, kind, about).ok();
        if reply.is_some() {
            self.connection = Some(connection);
        }
        reply
    }
}

fn exchange(connection: &mut Connection, kind: RequestKind, about: Control) -> io::Result<(Refusal, String)> {
    let patience = if kind == RequestKind::Persist { PERSIST_PATIENCE } else { CONTROL_PATIENCE };
    let at = connection.begin_frame();
    connection.out.bytes.extend_from_slice(wire::as_bytes(&about));
    let id = connection.end_frame(at, kind, 0);
    connection.sent.push_back(Sent { id, batch: Ticket::default(), first: 0, end: 0 });
    connection.wait_for(Instant::now() + patience, |connection| {
        let Some((_, refusal, range)) = connection.next_reply()? else { return Ok(None) };
        Ok(Some((refusal, connection.text(range))))
    })
}
