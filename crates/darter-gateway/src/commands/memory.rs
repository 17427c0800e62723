//! `MEMORY`: the bytes of a key in the pool, and the memory of the gateway's process.

use super::information::{buffer_bytes, process_bytes};
use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::number;

/// The reply of `MEMORY DOCTOR`.
const REPORT: &str = "The keys are in the pool: `darter inspect` and the status page describe it. \
     MEMORY STATS has the memory of this gateway.\n";

/// `MEMORY` and its subcommands.
pub(super) async fn memory(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let subcommand = args.get(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"usage", 3..) => return usage(call).await,
        (b"doctor", 2) => call.reply.verbatim("txt", REPORT.as_bytes()),
        (b"malloc-stats", 2) => call.reply.verbatim("txt", b"Stats not supported for the current allocator"),
        // The allocator returns free memory to the system by itself.
        (b"purge", 2) => call.reply.ok(),
        (b"stats", 2) => stats(call),
        (b"help", 2) => help(
            &mut call.reply,
            &[
                "MEMORY DOCTOR",
                "MEMORY MALLOC-STATS",
                "MEMORY PURGE",
                "MEMORY STATS",
                "MEMORY USAGE key [SAMPLES count]",
                "MEMORY HELP",
            ],
        ),
        (b"usage" | b"doctor" | b"malloc-stats" | b"purge" | b"stats" | b"help", _) => {
            return Err(wrong_arity(&format!("memory|{}", String::from_utf8_lossy(&subcommand))));
        }
        _ => return Err(unknown_subcommand("MEMORY", args.get(1))),
    }
    Ok(())
}

/// `MEMORY USAGE key [SAMPLES count]`.
async fn usage(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let mut options = args.from(3);
    while let Some(option) = options.next() {
        // All elements are counted, regardless of the number of samples.
        let samples = options.next().filter(|_| option.eq_ignore_ascii_case(b"samples")).ok_or(SYNTAX)?;
        if number::integer(samples).ok_or(NO_INTEGER)? < 0 {
            return Err(SYNTAX);
        }
    }
    match call.keys.usage(args.get(2)).await? {
        Some(bytes) => call.reply.count(bytes),
        None => call.reply.null(),
    }
    Ok(())
}

/// A value of `MEMORY STATS`.
enum Figure {
    Bytes(u64),
    Ratio(f64),
}

/// `MEMORY STATS`: the names and the order of Redis. The memory that the process occupies stands for
/// what Redis's allocator reports. Parts that a gateway does not have take 0 bytes.
fn stats(call: &mut Call<'_>) {
    use Figure::{Bytes, Ratio};
    let shared = call.shared;
    let (resident, peak) = process_bytes().unwrap_or_default();
    let clients = buffer_bytes(shared);
    #[cfg(feature = "scripts")]
    let scripts = shared.scripts.cache().size().1 as u64;
    #[cfg(not(feature = "scripts"))]
    let scripts = 0;
    let overhead = clients + scripts;
    let rest = resident.saturating_sub(overhead);
    let keys = shared.counts.keys()[0];
    let percent = |part: u64, all: u64| Ratio(if all == 0 { 0.0 } else { part as f64 / all as f64 * 100.0 });
    let figures = [
        ("peak.allocated", Bytes(peak)),
        ("total.allocated", Bytes(resident)),
        ("startup.allocated", Bytes(0)),
        ("replication.backlog", Bytes(0)),
        ("clients.slaves", Bytes(0)),
        ("clients.normal", Bytes(clients)),
        ("cluster.links", Bytes(0)),
        ("aof.buffer", Bytes(0)),
        ("lua.caches", Bytes(scripts)),
        ("functions.caches", Bytes(0)),
        ("overhead.total", Bytes(overhead)),
        ("keys.count", Bytes(keys)),
        ("keys.bytes-per-key", Bytes(rest.checked_div(keys).unwrap_or(0))),
        ("dataset.bytes", Bytes(rest)),
        ("dataset.percentage", percent(rest, resident)),
        ("peak.percentage", percent(resident, peak)),
        ("allocator.allocated", Bytes(resident)),
        ("allocator.active", Bytes(resident)),
        ("allocator.resident", Bytes(resident)),
        ("allocator-fragmentation.ratio", Ratio(1.0)),
        ("allocator-fragmentation.bytes", Bytes(0)),
        ("allocator-rss.ratio", Ratio(1.0)),
        ("allocator-rss.bytes", Bytes(0)),
        ("rss-overhead.ratio", Ratio(1.0)),
        ("rss-overhead.bytes", Bytes(0)),
        ("fragmentation", Ratio(1.0)),
        ("fragmentation.bytes", Bytes(0)),
    ];
    call.reply.map(figures.len());
    for (name, figure) in figures {
        call.reply.bulk(name.as_bytes());
        match figure {
            Bytes(bytes) => call.reply.integer(i64::try_from(bytes).unwrap_or(i64::MAX)),
            Ratio(ratio) => call.reply.double(ratio),
        }
    }
}
