//! The thread that drives a fabric's common hub, for tasks of executors that do not drive
//! connections.

use super::hub::{Driver, Hub};
use super::session::Session;
use crate::{FabricError, executor};
use std::sync::Arc;
use std::sync::mpsc;

/// Creates a common hub and starts its thread, which ends when the hub is closed.
pub(super) fn start(session: &Arc<Session>) -> Result<Arc<Hub>, FabricError> {
    let failed =
        |what| FabricError::geometry(format!("cannot start the thread that receives replies: {what}"));
    let (sender, receiver) = mpsc::channel();
    let session = Arc::clone(session);
    let drive = move || {
        let made = Hub::new(&session, Driver::Reactor);
        drop(session);
        let Ok(hub) = &made else {
            let _ = sender.send(made);
            return;
        };
        let hub = Arc::clone(hub);
        executor::adopt(Arc::clone(&hub) as Arc<dyn executor::Drive>);
        let _ = sender.send(made);
        executor::block_on(hub.closed());
    };
    let spawned = std::thread::Builder::new().name("darter-reactor".to_owned()).spawn(drive);
    spawned.map_err(|error| failed(error.to_string()))?;
    receiver.recv().map_err(|error| failed(error.to_string()))?
}
