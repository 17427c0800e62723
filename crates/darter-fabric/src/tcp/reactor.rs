//! The thread that drives a fabric's common hub: for tasks of executors that know nothing of it.

use super::fabric::Shared;
use super::hub::{Driver, Hub};
use crate::{FabricError, executor};
use std::sync::Arc;
use std::sync::mpsc;

/// Makes a common hub, and starts its thread; it ends when the hub is closed.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Arc<Hub>, FabricError> {
    let failed =
        |what| FabricError::geometry(format!("cannot start the thread that receives answers: {what}"));
    let (tell, told) = mpsc::channel();
    let theirs = Arc::clone(shared);
    let drive = move || {
        let made = Hub::new(&theirs, Driver::Reactor);
        // Else the fabric would live as long as its thread, and the thread as long as the fabric.
        drop(theirs);
        let Ok(hub) = &made else {
            let _ = tell.send(made);
            return;
        };
        let hub = Arc::clone(hub);
        executor::adopt(Arc::clone(&hub) as Arc<dyn executor::Drive>);
        let _ = tell.send(made);
        executor::block_on(hub.closed());
    };
    let spawned = std::thread::Builder::new().name("darter-reactor".to_owned()).spawn(drive);
    spawned.map_err(|error| failed(error.to_string()))?;
    told.recv().map_err(|error| failed(error.to_string()))?
}
