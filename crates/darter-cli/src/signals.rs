//! Signals and a parent's end, as requests to stop.

use crate::failure::Failure;
use darter_memnode::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Read;
use std::sync::Arc;

/// What stops a daemon: signals, and on request the end of stdin.
pub(crate) fn asked_to_stop(until_stdin_closes: bool) -> Result<Arc<Stop>, Failure> {
    let stop = Arc::new(Stop::default());
    stop_on_signals(&stop)?;
    if until_stdin_closes {
        stop_when_stdin_closes(&stop)?;
    }
    Ok(stop)
}

/// Requests a stop at every SIGTERM and SIGINT.
fn stop_on_signals(stop: &Arc<Stop>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Failure::failed)?;
    let stop = Arc::clone(stop);
    in_a_thread("signals", move || signals.forever().for_each(|_| stop.ask()))
}

/// Requests a stop at the end of stdin: the process that held its other end is gone.
fn stop_when_stdin_closes(stop: &Arc<Stop>) -> Result<(), Failure> {
    let stop = Arc::clone(stop);
    in_a_thread("stdin", move || {
        let mut stdin = std::io::stdin().lock();
        while stdin.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        stop.ask();
    })
}

fn in_a_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(Failure::failed)?;
    Ok(())
}
