//! Keeps the users of a gateway equal to those of the pool: reads them when another gateway has
//! reported a change, and regularly, because a report may be lost. Ends the connections of users that
//! were removed, and of subscribers that may no longer hear their channels.

use super::acl::User;
use super::clients::{ClientInfo, ClientKind};
use super::clock::now_ms;
use super::fault::Fault;
use super::keyspace::Keyspace;
use super::state::GatewayState;
use super::worker::Worker;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// The interval between two readings.
const INTERVAL: Duration = Duration::from_secs(5);
/// The shortest pause between two readings.
const PAUSE: Duration = Duration::from_millis(20);

/// Reads the users of the pool. Ends the connections to which they matter, except that of the client
/// `own`. Returns whether that connection should end.
///
/// # Errors
/// The store's errors.
pub(super) async fn load(
    shared: &GatewayState,
    keys: &mut Keyspace,
    own: Option<u64>,
) -> Result<bool, Fault> {
    let mut ends_own = false;
    for (name, user) in shared.acl.load(keys.users().await?) {
        let is_of = |info: &ClientInfo| info.names().user == name;
        let ended = match &user {
            None => shared.clients.list(is_of),
            Some(user) => silenced(shared, user, shared.clients.list(is_of)),
        };
        for info in ended {
            if Some(info.id) == own {
                ends_own = true;
            } else {
                shared.clients.end(|other| other.id == info.id);
            }
        }
    }
    Ok(ends_own)
}

/// Returns the clients of a user that are subscribed to channels which it may not hear.
fn silenced(shared: &GatewayState, user: &User, clients: Vec<Arc<ClientInfo>>) -> Vec<Arc<ClientInfo>> {
    let mut subscribers: Vec<_> =
        clients.into_iter().filter(|info| info.kind() == ClientKind::Subscriber).collect();
    if !subscribers.is_empty() {
        let silenced = shared.pubsub.listeners(|channel, is_pattern| !user.hears(channel, is_pattern));
        subscribers.retain(|info| silenced.contains(&info.id));
    }
    subscribers
}

/// Follows the users of the pool until the task is aborted.
pub(super) async fn follow(worker: Rc<Worker>) {
    let mut fails = false;
    loop {
        let _ = tokio::time::timeout(INTERVAL, worker.shared.acl.news.notified()).await;
        let mut lease = worker.keyspace().await;
        lease.keys.now = now_ms();
        match load(&worker.shared, &mut lease.keys, None).await {
            Ok(_) if std::mem::take(&mut fails) => info!("the users of the pool can be read again"),
            Ok(_) => {}
            Err(fault) => {
                if !std::mem::replace(&mut fails, true) {
                    warn!(error = %fault.text(), "the users of the pool could not be read; trying again");
                }
            }
        }
        worker.give_keyspace(lease);
        tokio::time::sleep(PAUSE).await;
    }
}
