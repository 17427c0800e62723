//! Commands about the gateway and its commands.

#![allow(clippy::unnecessary_wraps)] // all commands have one shape, whether they can fail or not

use crate::call::{Call, unknown_subcommand, wrong_arity};
use crate::fault::Fault;
use crate::reply::Reply;
use crate::request::BULK_BYTES_MAX;
use crate::table::{Command, TABLE};
use crate::{REDIS_VERSION, glob};
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// `COMMAND` and its subcommands.
pub(super) fn command(call: &mut Call<'_>) -> Result<(), Fault> {
    let (args, reply) = (call.args, &mut call.reply);
    if args.len() == 1 {
        reply.array(TABLE.len());
        for command in TABLE {
            describe(reply, command);
        }
        return Ok(());
    }
    match &args.get(1).to_ascii_lowercase()[..] {
        b"count" if args.len() == 2 => reply.count(TABLE.len()),
        b"count" => return Err(wrong_arity("command|count")),
        b"info" if args.len() == 2 => {
            reply.array(TABLE.len());
            for command in TABLE {
                describe(reply, command);
            }
        }
        b"info" => {
            reply.array(args.len() - 2);
            for name in args.from(2) {
                match Command::named(name) {
                    Some(command) => describe(reply, command),
                    None => reply.null_array(),
                }
            }
        }
        b"docs" => {
            let all = args.len() == 2;
            let named: Vec<&Command> = args.from(2).filter_map(Command::named).collect();
            let commands = if all { TABLE.iter().collect() } else { named };
            reply.map(commands.len());
            for command in commands {
                document(reply, command);
            }
        }
        b"list" if args.len() == 2 => {
            reply.set(TABLE.len());
            for command in TABLE {
                reply.bulk(command.name.as_bytes());
            }
        }
        b"list" => return Err(wrong_arity("command|list")),
        b"help" => {
            let lines = [
                "COMMAND",
                "COMMAND COUNT",
                "COMMAND INFO [name...]",
                "COMMAND DOCS [name...]",
                "COMMAND LIST",
            ];
            reply.array(lines.len());
            for line in lines {
                reply.simple(line);
            }
        }
        _ => return Err(unknown_subcommand("COMMAND", args.get(1))),
    }
    Ok(())
}

/// Writes a command's description for `COMMAND INFO`.
fn describe(reply: &mut Reply<'_>, command: &Command) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity);
    reply.set(command.flags.len());
    for flag in command.flags {
        reply.simple(flag);
    }
    let (first, last, step) = command.keys;
    for place in [first, last, step] {
        reply.integer(place);
    }
    // Access categories; hints, key specifications, subcommands.
    reply.set(0);
    for _ in 0..3 {
        reply.array(0);
    }
}

/// Writes a command's documentation for `COMMAND DOCS`.
fn document(reply: &mut Reply<'_>, command: &Command) {
    reply.bulk(command.name.as_bytes());
    reply.map(3);
    for (what, text) in [("summary", command.summary), ("since", command.since), ("group", command.group)] {
        reply.bulk(what.as_bytes());
        reply.bulk(text.as_bytes());
    }
}

/// `CONFIG` and its subcommands.
pub(super) fn config(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    match &args.get(1).to_ascii_lowercase()[..] {
        b"get" if args.len() < 3 => Err(wrong_arity("config|get")),
        b"get" => {
            let options = &call.shared.options;
            let address = call.client.info.local;
            let settings = [
                ("appendonly", "no".to_owned()),
                ("bind", address.ip().to_string()),
                ("client-query-buffer-limit", options.input_bytes_max.to_string()),
                ("databases", "1".to_owned()),
                ("maxclients", options.connections_max.to_string()),
                ("maxmemory", "0".to_owned()),
                ("maxmemory-policy", "noeviction".to_owned()),
                ("port", address.port().to_string()),
                ("proto-max-bulk-len", BULK_BYTES_MAX.to_string()),
                ("save", String::new()),
                ("slowlog-log-slower-than", options.slow.as_micros().to_string()),
                ("slowlog-max-len", options.slow_entries.to_string()),
                ("timeout", "0".to_owned()),
            ];
            let asked: Vec<Vec<u8>> = args.from(2).map(<[u8]>::to_ascii_lowercase).collect();
            let is_asked = |name: &str| asked.iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
            let told: Vec<_> = settings.iter().filter(|(name, _)| is_asked(name)).collect();
            call.reply.map(told.len());
            for (name, value) in told {
                call.reply.bulk(name.as_bytes());
                call.reply.bulk(value.as_bytes());
            }
            Ok(())
        }
        b"set" | b"rewrite" | b"resetstat" => {
            Err(Fault::said("ERR a gateway is configured by its command line; start it with other options"))
        }
        b"help" => {
            call.reply.array(1);
            call.reply.simple("CONFIG GET pattern...");
            Ok(())
        }
        _ => Err(unknown_subcommand("CONFIG", args.get(1))),
    }
}

/// Returns the resident memory of this process, if the system reports it. Of a pool in a file or on
/// memory nodes it includes only what is cached here.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// `INFO [section…]`.
pub(super) fn info(call: &mut Call<'_>) -> Result<(), Fault> {
    let shared = call.shared;
    let counts = &shared.counts;
    let uptime = shared.since.elapsed().as_secs();
    let sections = [
        (
            "server",
            format!(
                "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\ndarter_version:{}\r\nprocess_id:{}\r\ntcp_port:{}\r\n\
                 uptime_in_seconds:{uptime}\r\nuptime_in_days:{}\r\nworker_threads:{}\r\n",
                env!("CARGO_PKG_VERSION"),
                std::process::id(),
                call.client.info.local.port(),
                uptime / 86_400,
                shared.options.threads,
            ),
        ),
        (
            "clients",
            format!(
                "connected_clients:{}\r\nmaxclients:{}\r\nblocked_clients:0\r\n",
                shared.clients.count(),
                shared.options.connections_max
            ),
        ),
        ("memory", {
            let used = resident_bytes()
                .map_or(String::new(), |bytes| format!("used_memory:{bytes}\r\nused_memory_rss:{bytes}\r\n"));
            format!("{used}maxmemory:0\r\nmaxmemory_policy:noeviction\r\n")
        }),
        (
            "stats",
            format!(
                "total_connections_received:{}\r\nrejected_connections:{}\r\ntotal_commands_processed:{}\r\nexpired_keys:{}\r\n\
                 total_error_replies:{}\r\n",
                counts.accepted.load(Ordering::Relaxed),
                counts.refused.load(Ordering::Relaxed),
                shared.sums().commands.iter().sum::<u64>(),
                counts.expired.load(Ordering::Relaxed),
                counts.errors().map(|(_, count)| count).sum::<u64>(),
            ),
        ),
        ("replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
        ("cluster", "cluster_enabled:0\r\n".to_owned()),
        ("keyspace", {
            let (keys, expiring) =
                (counts.keys.load(Ordering::Relaxed), counts.expiring.load(Ordering::Relaxed));
            if keys == 0 {
                String::new()
            } else {
                format!("db0:keys={keys},expires={expiring},avg_ttl=0\r\n")
            }
        }),
    ];
    let asked: Vec<Vec<u8>> = call.args.from(1).map(<[u8]>::to_ascii_lowercase).collect();
    let is_every = |section: &Vec<u8>| matches!(&section[..], b"all" | b"default" | b"everything");
    let has_all = asked.is_empty() || asked.iter().any(is_every);
    let mut text = String::new();
    for (name, body) in &sections {
        if has_all || asked.iter().any(|asked| asked == name.as_bytes()) {
            let mut title = (*name).to_owned();
            title[..1].make_ascii_uppercase();
            let separator = if text.is_empty() { "" } else { "\r\n" };
            let _ = write!(text, "{separator}# {title}\r\n{body}");
        }
    }
    call.reply.text(&text);
    Ok(())
}
