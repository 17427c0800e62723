//! The data of the page, except the tree, as JSON. Counts are totals since the gateway started; the
//! page computes differences.

use super::pool_map;
use super::survey::SurveyResult;
use crate::json;
use crate::keyspace::place_in_index;
use crate::slow::{ARGUMENT_BYTES_MAX, SlowEntry};
use crate::state::GatewayState;
use crate::statistics::{FAMILIES, Sums};
use crate::table::{Command, TABLE};
use darter::OpKind;
use darter::engine::Engine;
use darter::report::PoolUsage;
use darter_fabric::Fabric as _;
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Most characters of a message.
const MESSAGE_CHARS_MAX: usize = 500;
/// Most messages.
const NOTES_MAX: usize = 16;
/// Most slow commands.
const SLOW_MAX: usize = 16;

/// Cuts a message to its maximum length.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

/// Returns the current data.
pub(super) fn overview(shared: &GatewayState, seen: &SurveyResult) -> Value {
    let (sums, store) = (shared.sums(), &shared.store);
    let samples = store.index().samples();
    // Permanent conditions, such as a file that is not on a durable medium, are notes. Temporary
    // ones are trouble.
    let notes = store.pool().fabric().notes();
    let troubles = store.notes().into_iter().filter(|note| !notes.contains(note));
    let troubles = troubles.chain(seen.trouble.clone());
    let texts = |all: &mut dyn Iterator<Item = String>| -> Vec<String> {
        all.take(NOTES_MAX).map(|text| cut(&text)).collect()
    };
    json!({
        "gateway": gateway(shared, &sums),
        "families": families(&sums),
        "commands": commands(&sums),
        "errors": shared.counts.errors().map(|(why, count)| (why.to_owned(), count.into())).collect::<Map<_, _>>(),
        "expired_keys": shared.counts.expired.load(Ordering::Relaxed),
        "fabric": fabric(&sums),
        "index_name": darter::engine::OrderedIndex::name(&*store.index()),
        "est": {
            "prefix_list": store.index().prefix_list(),
            "sampled_searches": samples.searches,
            "express_searches": samples.express,
        },
        "cache_bytes": darter::engine::OrderedIndex::cache_used_bytes(&*store.index()),
        "pool": seen.usage.as_ref().map(|(when, usage)| aged(pool(usage), *when)),
        "index": seen.index.as_ref().map(|(when, stats)| aged(json::index(stats), *when)),
        "counting_nodes": seen.counting,
        "troubles": texts(&mut { troubles }),
        "notes": texts(&mut notes.clone().into_iter()),
        "slow": slow(shared),
    })
}

/// Returns the members and nodes of the pool, each node with a map of its blocks.
fn pool(usage: &PoolUsage) -> Value {
    let mut pool = json::pool(usage);
    let maps = pool_map::maps(&usage.nodes);
    if let Some(nodes) = pool["nodes"].as_array_mut() {
        for (node, map) in nodes.iter_mut().zip(maps) {
            node["map"] = map;
        }
    }
    pool
}

/// Returns a result of the last survey, with its age.
fn aged(mut value: Value, when: Instant) -> Value {
    value["age_ms"] = json!(u64::try_from(when.elapsed().as_millis()).unwrap_or(u64::MAX));
    value
}

fn gateway(shared: &GatewayState, sums: &Sums) -> Value {
    let counts = &shared.counts;
    let [keys, expiring] = counts.keys();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "process": std::process::id(),
        "pool": shared.store.url().map(|url| cut(&url.to_string())),
        "threads": shared.threads.len(),
        "uptime_ms": shared.uptime_ms(),
        "is_shut_out": shared.store.is_shut_out(),
        "is_stopping": shared.is_stopping.load(Ordering::Relaxed),
        "connections": shared.clients.count(),
        "connections_max": shared.options.connections_max,
        "accepted": counts.accepted.load(Ordering::Relaxed),
        "refused": counts.refused.load(Ordering::Relaxed),
        "dropped": counts.dropped.load(Ordering::Relaxed),
        "waiting_bytes": shared.held_bytes.load(Ordering::Relaxed),
        "sessions": sums.sessions,
        "keys": keys,
        "expiring_keys": expiring,
    })
}

fn families(sums: &Sums) -> Vec<Value> {
    let all = FAMILIES.iter().zip(&sums.latencies).filter(|(_, seen)| seen.count() > 0);
    all.map(|(family, seen)| {
        json!({
            "name": family,
            "commands": seen.count(),
            "nanos": seen.sum,
            // The last bucket is unbounded.
            "buckets": seen.buckets.iter().map(|(bound, count)| json!([bound, count])).collect::<Vec<_>>(),
        })
    })
    .collect()
}

fn commands(sums: &Sums) -> Map<String, Value> {
    let done = TABLE.iter().zip(&sums.commands).filter(|(_, count)| **count > 0);
    done.map(|(command, count)| (command.name.to_owned(), json!(count))).collect()
}

fn fabric(sums: &Sums) -> Vec<Value> {
    let kinds = OpKind::ALL.into_iter().map(|kind| (kind, sums.fabric[kind]));
    kinds
        .filter(|(_, counts)| counts.ops > 0 || counts.round_trips > 0)
        .map(|(kind, counts)| {
            json!({
                "kind": kind.name(),
                "ops": counts.ops,
                "round_trips": counts.round_trips,
                "verbs": counts.verbs,
                "read_bytes": counts.read_bytes,
                "write_bytes": counts.write_bytes,
                "retries": counts.retries,
            })
        })
        .collect()
}

fn slow(shared: &GatewayState) -> Value {
    let entries = shared.slow.last(SLOW_MAX);
    let entries = entries.iter().map(|entry| {
        json!({
            "id": entry.id,
            "time": entry.time,
            "micros": entry.micros,
            "client": entry.client.address.to_string(),
            "client_name": cut(&entry.name),
            "arguments": arguments(entry),
            "arguments_all": entry.arguments_all,
        })
    });
    json!({
        "threshold_us": shared.slow.threshold(),
        "count": shared.counts.slow.load(Ordering::Relaxed),
        "last": entries.collect::<Vec<_>>(),
    })
}

/// Returns the arguments of a slow command. Keys have the prefix under which they are stored in the
/// index. If the slow log has cut an argument, only the part it has kept is returned.
fn arguments(entry: &SlowEntry) -> Vec<Value> {
    let command = entry.arguments.first().and_then(|name| Command::named(name));
    let mut left = MESSAGE_CHARS_MAX;
    let mut arguments = Vec::new();
    for (at, argument) in entry.arguments.iter().enumerate() {
        if left == 0 {
            arguments.push(json!({ "text": "…" }));
            break;
        }
        let text: String = argument.escape_ascii().map(char::from).take(left).collect();
        left -= text.len();
        let is_key = command.is_some_and(|command| command.has_key_at(at, entry.arguments_all));
        let kept = &argument[..argument.len().min(ARGUMENT_BYTES_MAX)];
        let prefix = is_key.then(|| super::tree::hex(&place_in_index(entry.database, kept), usize::MAX));
        arguments.push(json!({ "text": text, "prefix": prefix }));
    }
    arguments
}
