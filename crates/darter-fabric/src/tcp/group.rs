//! Which replica of a memory group serves.
//!
//! Replicas say in their welcome which view they go by and whether they serve in it. So a client asks
//! all of them at once, and takes the one that serves in the newest view that it has heard of; it
//! needs to know no store of views.

use super::addresses::replicas;
use super::connection::Connection;
use super::handshake::{Caller, greet};
use super::options::TcpOptions;
use crate::FabricError;
use crate::wire::{self, Welcome};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long one replica may take to greet before the others are asked again.
const GREETING: Duration = Duration::from_secs(1);
/// Between two rounds of asking.
const ROUND: Duration = Duration::from_millis(20);
/// How long a round waits at first for the others when one replica has answered. Each round waits
/// for twice as long, so that replicas far away are heard, too.
const OTHERS: Duration = Duration::from_millis(50);

/// Connects to the replica that serves, which must be found within this time.
///
/// # Errors
/// [`FabricError::Io`] if none serves, [`FabricError::Geometry`] if what answers is no group, or
/// does not accept the client, [`FabricError::Fenced`].
pub(super) fn connect(
    patience: Duration,
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
) -> Result<(Connection, Welcome), FabricError> {
    if options.device.is_some() {
        return Err(FabricError::geometry(format!(
            "{address}: a memory group cannot be reached through an RDMA device, whose verbs no memory node sees \
             and can send to its replicas; name it `tcp://…`"
        )));
    }
    let deadline = Instant::now() + patience;
    let (mut newest, mut others) = (0, OTHERS);
    loop {
        let round = ask_all((deadline, others), address, node, caller, options, &mut newest)?;
        if let Some(found) = round {
            return Ok(found);
        }
        others = (others * 2).min(GREETING);
        if Instant::now() + ROUND >= deadline {
            let none = io::Error::new(
                ErrorKind::TimedOut,
                "no replica says that it serves; if all of them have lost their memory, start them with new views, and \
                 make the pool again with `darter pool create`",
            );
            return Err(FabricError::io(Path::new(address), "find the replica that serves", none));
        }
        std::thread::sleep(ROUND);
    }
}

/// Asks all replicas. Returns the first that serves in the newest view of which any has told, and
/// does not wait for others then. When one has answered, it waits for so long at most for the
/// `others`: one that stands still must not keep the client from asking again.
fn ask_all(
    (deadline, others): (Instant, Duration),
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
    newest: &mut u64,
) -> Result<Option<(Connection, Welcome)>, FabricError> {
    let (sender, answers) = mpsc::channel();
    let patience = deadline.saturating_duration_since(Instant::now()).min(GREETING);
    for replica in replicas(address) {
        let (sender, replica, options) = (sender.clone(), replica.to_owned(), options.clone());
        let asks = move || drop(sender.send(greet(patience, &replica, node, caller, &options)));
        let spawned = std::thread::Builder::new().name("darter-connect".to_owned()).spawn(asks);
        spawned.map_err(|error| FabricError::io(Path::new(address), "start a thread to reach it", error))?;
    }
    drop(sender);
    let mut refusal = None;
    let mut found: Option<(Connection, Welcome)> = None;
    let mut until = Instant::now() + patience;
    while let Ok(answer) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
        match answer {
            Ok((_, welcome)) if welcome.flags & wire::IS_REPLICA == 0 => {
                return Err(FabricError::geometry(format!(
                    "{address}: a memory node that is no replica of a group answers there; name it alone, or start it \
                     with `--replicas`"
                )));
            }
            Ok((connection, welcome)) => {
                until = until.min(Instant::now() + others);
                *newest = (*newest).max(welcome.view);
                let serves = welcome.flags & wire::SERVES_GROUP != 0;
                if serves && welcome.view >= *newest {
                    found = Some((connection, welcome));
                    break;
                }
            }
            Err(error @ FabricError::Fenced) => return Err(error),
            Err(FabricError::Io(_)) => {}
            // Another replica may still let it in, unless all say the same.
            Err(error) => refusal = Some(error),
        }
    }
    match (found, refusal) {
        (Some(found), _) => Ok(Some(found)),
        (None, Some(error)) if *newest == 0 => Err(error),
        (None, _) => Ok(None),
    }
}
