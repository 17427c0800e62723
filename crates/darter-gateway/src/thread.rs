//! A serving thread: an executor with a task for each client, one that drives the connections to
//! memory nodes, one that updates the counts, and in the first thread one that removes expired
//! keys, one that reads the users, one that follows the clients that track keys, and one that finds the
//! other gateways.

use super::clients::ClientInfo;
use super::clock::now_ms;
use super::commands::{report_changes, report_expired};
use super::connection::Connection;
use super::error::{GatewayError, system};
use super::fabric_driver;
use super::keyspace::{Expiry, FORGOTTEN_MS, Stepped};
use super::pace::{ClockWatch, Pace};
use super::peers::Directory;
use super::state::{GatewayState, LogLine};
use super::tracking;
use super::turns::in_turns;
use super::users;
use super::worker::Worker;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet};
use tracing::{debug, info};

/// The interval between two updates of the published counts.
const ACCOUNTING_INTERVAL: Duration = Duration::from_millis(500);

/// A connection on its way to the thread that serves it.
pub(super) type Accepted = (TcpStream, Arc<ClientInfo>);

/// Serves the clients that a channel delivers, until the channel is closed and all clients have
/// gone.
pub(super) fn serve(
    shared: Arc<GatewayState>,
    mut given: mpsc::UnboundedReceiver<Accepted>,
    number: usize,
) -> Result<(), GatewayError> {
    let mut builder = Builder::new_current_thread();
    #[cfg(feature = "scripts")]
    builder.thread_name("darter-scripts").thread_stack_size(super::lua::STACK_BYTES);
    let runtime = builder.enable_io().enable_time().build();
    let runtime = runtime.map_err(system("start an executor"))?;
    let expires = number == 0 && shared.options.expires;
    let worker = Rc::new(Worker::new(shared, number));
    let tasks = LocalSet::new();
    let driver = {
        let _inside = runtime.enter();
        fabric_driver::FabricDriver::enter().map_err(system("wait for memory nodes"))?
    };
    tasks.block_on(&runtime, async {
        tokio::task::spawn_local(driver.run());
        tokio::task::spawn_local(account(Rc::clone(&worker)));
        if expires {
            spawn(&worker, expire(Rc::clone(&worker)));
        }
        if number == 0 {
            spawn(&worker, users::follow(Rc::clone(&worker)));
            tokio::task::spawn_local(tracking::follow(Rc::clone(&worker)));
        }
        let announced = worker.shared.options.announce.clone().filter(|_| number == 0);
        let directory = announced.map(|address| {
            let directory = Directory::new(Rc::clone(&worker), address);
            spawn(&worker, directory.run())
        });
        while let Some((socket, info)) = given.recv().await {
            admit(&worker, socket, &info);
        }
        if let Some(directory) = directory {
            directory.abort();
            let is_cut = worker.shared.is_cut.load(Ordering::Acquire);
            Directory::leave(&worker, is_cut).await;
        }
    });
    drop(tasks);
    // A script that cannot be stopped does not delay the end.
    runtime.shutdown_background();
    Ok(())
}

/// Starts a task that takes turns with the thread's other tasks.
fn spawn(worker: &Rc<Worker>, task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(in_turns(move |work| worker.has_worked(work), task))
}

/// Serves a client in its own task.
fn admit(worker: &Rc<Worker>, socket: TcpStream, info: &Arc<ClientInfo>) {
    let shared = &worker.shared;
    match Connection::new(socket, Rc::clone(worker), Arc::clone(info)) {
        Ok(connection) => {
            let task = spawn(worker, connection.run());
            shared.clients.enter(info.id, task.abort_handle());
            if shared.may_log(LogLine::Accepted) {
                info!(client = info.id, address = %info.address, "connection accepted");
            }
        }
        Err(error) => {
            shared.clients.leave(info.id);
            debug!(%error, "a connection could not be set up");
        }
    }
}

/// Updates the counts that the thread publishes, periodically.
async fn account(worker: Rc<Worker>) {
    loop {
        worker.account();
        worker.shared.waiting.forget(Instant::now());
        tokio::time::sleep(ACCOUNTING_INTERVAL).await;
    }
}

/// Walks over all records repeatedly and removes the expired ones.
async fn expire(worker: Rc<Worker>) {
    let counts = &worker.shared.counts;
    let (mut walk, mut pace, mut watch) = (Expiry::default(), Pace::default(), ClockWatch::default());
    let mut pause = pace.after(&Stepped::default(), 0);
    let mut fails = false;
    loop {
        tokio::time::sleep(pause).await;
        let mut held = worker.keyspace().await;
        loop {
            held.keys.now = now_ms();
            let long = Duration::from_millis(FORGOTTEN_MS);
            walk.trust_clock(watch.is_steady(held.keys.now, Instant::now(), long));
            held.keys.record_events(worker.shared.notifications.are_on());
            held.keys.begin_changes(worker.shared.are_changes_wanted());
            let step = walk.step(&mut held.keys).await;
            report_changes(&worker.shared, held.keys.take_changes(), None);
            match step {
                Ok(stepped) => {
                    report_expired(&worker.shared, &mut held.keys).await;
                    counts.expired.fetch_add(stepped.removed, Ordering::Relaxed);
                    for (database, census) in &stepped.counted {
                        counts.databases[usize::from(*database)].store(census);
                    }
                    if std::mem::take(&mut fails) {
                        info!("the walk that removes expired keys works again");
                    }
                    pause = pace.after(&stepped, held.keys.now);
                    if !stepped.goes_on {
                        break;
                    }
                }
                Err(fault) => {
                    worker.shared.note_of_walk(&fault, !fails);
                    fails = true;
                    pause = pace.after_failure();
                    break;
                }
            }
            tokio::task::yield_now().await;
        }
        worker.give_keyspace(held);
    }
}
