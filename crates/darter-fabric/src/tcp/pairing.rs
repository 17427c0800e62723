//! Pairs a queue of this process's RDMA device with one of a memory node's, over their connection.

use super::batches::Ticket;
use super::connection::{Connection, PATIENCE, Sent};
use super::options::TcpOptions;
use crate::rdma::{CompletionQueue, Lane, Queue, Target};
use crate::wire::{self, Pairing, Refusal, RequestKind};
use crate::{FabricError, random_word};
use std::sync::Arc;
use std::time::Instant;

/// Makes the verbs of a connection to a node with a region of `bytes` bytes use the device whose
/// completions go to `completions`. Waits for the node as long as when connecting to it.
///
/// # Errors
/// [`FabricError::Unreachable`] if another attempt may succeed; otherwise the node's refusal or the
/// reason why the devices cannot be paired.
pub(super) fn pair(
    connection: &mut Connection,
    node: u8,
    bytes: u64,
    completions: &Arc<CompletionQueue>,
    options: &TcpOptions,
) -> Result<(), FabricError> {
    let (queue, target) = paired(connection, node, bytes, completions, options)?;
    // Unlike a counter, a random number is unique across hubs without shared state.
    connection.lane = Some(Lane::new(queue, target, random_word()));
    Ok(())
}

/// Returns a queue that is connected to one of the node's, and the target of its verbs. Fails as
/// [`pair`] does.
pub(super) fn paired(
    connection: &mut Connection,
    node: u8,
    bytes: u64,
    completions: &Arc<CompletionQueue>,
    options: &TcpOptions,
) -> Result<(Queue, Target), FabricError> {
    let queue = Queue::new(completions)?;
    let at = connection.begin_frame();
    connection.out.bytes.extend_from_slice(wire::as_bytes(&queue.pairing()));
    let id = connection.end_frame(at, RequestKind::Pair, 0);
    connection.sent.push_back(Sent { id, batch: Ticket::default(), first: 0, end: 0 });
    let replied =
        connection.wait_for(Instant::now() + PATIENCE.min(options.patience), Connection::next_reply);
    let Ok((_, refusal, range)) = replied else { return Err(FabricError::Unreachable { node }) };
    if refusal != Refusal::None {
        return Err(wire::error_of(refusal, node, &connection.text(range)));
    }
    let Some(theirs) = wire::head::<Pairing>(connection.payload(range)) else {
        return Err(FabricError::Unreachable { node });
    };
    queue.connect(&theirs, false)?;
    Ok((queue, Target { node, base: theirs.base, bytes, key: theirs.key }))
}
