//! Signals and a parent's end, as requests to stop.

use crate::failure::Failure;
use darter_server::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Read;
use std::sync::Arc;

/// Every SIGTERM and SIGINT asks to stop.
pub(crate) fn stop_on_signals(stop: &Arc<Stop>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Failure::failed)?;
    let stop = Arc::clone(stop);
    in_a_thread("signals", move || signals.forever().for_each(|_| stop.ask()))
}

/// The end of stdin asks to stop: whoever holds its other end is gone, however it went.
pub(crate) fn stop_when_stdin_closes(stop: &Arc<Stop>) -> Result<(), Failure> {
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
