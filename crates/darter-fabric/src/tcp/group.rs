//! Finds the replica of a memory group that serves.
//!
//! Replicas report in their welcome their current view and whether they serve in it. So a client
//! contacts all of them at once, and uses the one that serves in the newest view that any of them
//! reported; it needs no store of views.

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

/// Timeout of one replica's greeting, after which all are contacted again.
const GREETING: Duration = Duration::from_secs(1);
/// Interval between two rounds.
const ROUND: Duration = Duration::from_millis(20);
/// How long a round waits at first for the other replicas after one has replied. Each round waits
/// twice as long, so that replicas far away are included, too.
const OTHERS: Duration = Duration::from_millis(50);

/// Connects to the replica that serves. Fails if it is not found within this time.
///
/// # Errors
/// [`FabricError::Io`] if none serves, [`FabricError::Geometry`] if the addresses do not belong to
/// a group, or it does not accept the client, [`FabricError::Fenced`].
pub(super) fn connect(
    patience: Duration,
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
) -> Result<(Connection, Welcome), FabricError> {
    if options.device.is_some() {
        return Err(FabricError::geometry(format!(
            "{address}: a memory group cannot be reached through an RDMA device, whose verbs bypass the memory \
             node, which cannot send them to its replicas; name it `tcp://…`"
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
                "no replica reports that it serves; their logs say what they wait for; if all of them have lost their memory \
                 and their files, start them with new views, \
                 and create the pool again with `darter pool create`",
            );
            return Err(FabricError::io(Path::new(address), "find the replica that serves", none));
        }
        std::thread::sleep(ROUND);
    }
}

/// Contacts all replicas. Returns the first that serves in the newest view that any of them has
/// reported, without waiting for the others. After one has replied, it waits at most `others` for
/// the rest: a hanging replica must not keep the client from trying again.
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
                    "{address}: the memory node there is not a replica of a group; name it alone, or start it with \
                     `--replicas`"
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
            // Another replica may still accept it, unless all return this error.
            Err(error) => refusal = Some(error),
        }
    }
    match (found, refusal) {
        (Some(found), _) => Ok(Some(found)),
        (None, Some(error)) if *newest == 0 => Err(error),
        (None, _) => Ok(None),
    }
}
