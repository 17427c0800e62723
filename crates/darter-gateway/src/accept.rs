//! The listening thread: accepts connections, distributes them among the serving threads, and ends
//! the gateway.

use super::error::{GatewayError, system};
use super::state::{GatewayState, LogLine};
use super::thread::{self, Accepted};
use darter_telemetry::Stop;
use darter_telemetry::credentials::CredentialWatch;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tracing::warn;

/// The interval between two checks whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// The interval between two checks whether other gateways can find this one.
const ANNOUNCE_CHECK: Duration = Duration::from_millis(1);
/// How long clients wait for that. A pool without space has no room for this gateway's record.
const ANNOUNCE_PATIENCE: Duration = Duration::from_secs(5);
/// The pause after the system refused to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Stack of a serving thread: a build without optimization puts the futures of all commands into
/// one frame.
const STACK_BYTES: usize = 8 << 20;

/// Serves until a stop is requested.
pub(super) fn run(
    listener: TcpListener,
    shared: &Arc<GatewayState>,
    stop: &Stop,
) -> Result<(), GatewayError> {
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        let mut threads = Vec::new();
        for number in 0..shared.options.threads.max(1) {
            let (sender, receiver) = mpsc::unbounded_channel();
            let shared = Arc::clone(shared);
            let thread = std::thread::Builder::new().name(format!("darter-gateway-{number}"));
            let thread = thread.stack_size(STACK_BYTES);
            let work = move || thread::serve(shared, receiver, number);
            threads.push(thread.spawn_scoped(scope, work).map_err(system("start a thread"))?);
            workers.push(sender);
        }
        let accepted = accept(listener, shared, &workers, stop);
        shared.is_stopping.store(true, Ordering::SeqCst);
        // Idle clients are disconnected now; requests in progress may finish.
        let end = Instant::now() + shared.options.drain;
        loop {
            let may_finish = Instant::now() < end && !stop.is_urgent();
            shared.clients.end(|info| !may_finish || !info.is_busy.load(Ordering::Acquire));
            if !may_finish || shared.clients.count() == 0 {
                shared.is_cut.store(shared.clients.count() > 0, Ordering::Release);
                break;
            }
            std::thread::sleep(STOP_CHECK / 10);
        }
        drop(workers);
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))?;
        shared.log().flush(Instant::now());
        accepted
    })
}

/// Accepts connections until a stop is requested, and gives them to the threads round-robin.
fn accept(
    listener: TcpListener,
    shared: &Arc<GatewayState>,
    workers: &[mpsc::UnboundedSender<Accepted>],
    stop: &Stop,
) -> Result<(), GatewayError> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(system("start an executor"))?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(system("wait for connections"))?;
        let mut next = workers.iter().cycle();
        // Until other gateways can find this one, its clients change nothing.
        let end = Instant::now() + ANNOUNCE_PATIENCE;
        while !shared.peers.is_announced() && Instant::now() < end && !stop.is_asked() {
            tokio::time::sleep(ANNOUNCE_CHECK).await;
        }
        let mut credentials = CredentialWatch::new(shared.credentials.clone());
        while !stop.is_asked() {
            credentials.tick(Instant::now(), stop);
            shared.log_membership();
            shared.clients.end_strangers(Instant::now());
            shared.log().tick(Instant::now());
            let Ok(accepted) = tokio::time::timeout(STOP_CHECK, listener.accept()).await else { continue };
            match accepted.and_then(|(socket, address)| Ok((socket.into_std()?, address))) {
                Ok((socket, address)) => {
                    if !shared.clients.make_room(shared.options.connections_max) {
                        refuse(&socket, shared);
                    } else if let Some(worker) = next.next()
                        && let Ok(local) = socket.local_addr()
                    {
                        shared.counts.accepted.fetch_add(1, Ordering::Relaxed);
                        let is_stranger = shared.has_strangers();
                        let client = shared.clients.admit(address, local, socket.as_raw_fd(), is_stranger);
                        // A thread ends only after this function has returned.
                        let _ = worker.send((socket, client));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if shared.may_log(LogLine::Accepting) {
                        warn!(%error, "cannot accept a connection; is the limit of open files too low?");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        Ok(())
    })
}

fn refuse(mut socket: &TcpStream, shared: &GatewayState) {
    shared.counts.refused.fetch_add(1, Ordering::Relaxed);
    if shared.may_log(LogLine::Refused) {
        warn!(
            connections = shared.options.connections_max,
            "connection refused: the limit of connections is reached"
        );
    }
    // A client that expects TLS would not understand the message, and a client that does not accept
    // it now is not waited for.
    if shared.options.tls.is_none() && socket.set_nonblocking(true).is_ok() {
        let _ = socket.write_all(b"-ERR max number of clients reached\r\n");
    }
}
