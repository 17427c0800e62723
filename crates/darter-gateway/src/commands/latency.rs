//! `LATENCY`: a gateway records no latency events, so the replies are those of Redis while its
//! latency monitor is disabled. `/metrics` and the status page have the latencies of commands.

#![allow(clippy::unnecessary_wraps)] // all commands have one signature, whether they can fail or not

use crate::call::{Call, help, shown, unknown_subcommand, wrong_arity};
use crate::fault::Fault;

/// The reply of `LATENCY DOCTOR`.
const DISABLED: &str = "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use \
     \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it. If we \
     weren't in a deep space mission I'd suggest to take a look at https://redis.io/topics/latency-monitor.\n";

/// `LATENCY` and its subcommands.
pub(super) fn latency(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"latest", 2) | (b"history", 3) => call.reply.array(0),
        (b"graph", 3) => {
            let event = shown(args.get(2), args.get(2).len());
            return Err(Fault::said(format!("ERR No samples available for event '{event}'")));
        }
        (b"doctor", 2) => call.reply.text(DISABLED),
        (b"reset", _) => call.reply.count(0),
        (b"histogram", _) => call.reply.map(0),
        (b"help", 2) => help(
            &mut call.reply,
            &[
                "LATENCY DOCTOR",
                "LATENCY GRAPH event",
                "LATENCY HISTOGRAM [command...]",
                "LATENCY HISTORY event",
                "LATENCY LATEST",
                "LATENCY RESET [event...]",
            ],
        ),
        (b"latest" | b"history" | b"graph" | b"doctor" | b"help", _) => {
            return Err(wrong_arity(&format!("latency|{}", String::from_utf8_lossy(&subcommand))));
        }
        _ => return Err(unknown_subcommand("LATENCY", args.get(1))),
    }
    Ok(())
}
