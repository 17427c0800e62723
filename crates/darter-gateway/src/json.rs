//! Statistics of a pool and its index as JSON, for the status page and for the program's `--json`.

use darter::report::{IndexStats, PoolUsage};
use darter_fabric::ReplicaStatus;
use serde_json::{Value, json};

/// Returns the counts and sizes of an index.
pub fn index(stats: &IndexStats) -> Value {
    let nodes = stats.nodes.iter().map(|node| {
        json!({ "type": node.name, "count": node.count, "bytes": node.bytes, "children": node.children })
    });
    let est = stats.est.as_ref().map(|est| {
        json!({
            "prefix_list": est.prefix_list,
            "directory_entries": est.directory_entries,
            "segments": est.segments,
            "entries": est.entries,
            "slots": est.slots,
            "bytes": est.bytes,
        })
    });
    json!({
        "keys": stats.keys,
        "kv_bytes": stats.kv_bytes,
        "index_bytes": stats.index_bytes,
        "depth_max": stats.depth_max,
        "levels": stats.levels,
        "nodes": nodes.collect::<Vec<_>>(),
        "est": est,
    })
}

/// Returns the members of a pool and the usage of its memory.
pub fn pool(usage: &PoolUsage) -> Value {
    let replica = |replica: &ReplicaStatus| {
        let state = replica.state.as_ref();
        json!({
            "address": replica.address,
            "role": state.map(|state| state.role.to_string()),
            "view": state.map(|state| state.view),
            "record": state.map(|state| state.record),
            "held": state.map(|state| state.held),
            "log_bytes": state.map(|state| state.log_bytes),
        })
    };
    let nodes: Vec<Value> = usage
        .nodes
        .iter()
        .map(|node| {
            json!({
                "node": node.node,
                "address": node.address,
                "replicas": node.replicas.iter().map(replica).collect::<Vec<_>>(),
                "bytes": node.bytes,
                "is_absent": node.is_absent,
                "is_lost": node.is_lost,
                "is_leaving": node.is_leaving(),
                "is_removed": node.is_removed(),
                "blocks": node.blocks,
                "free": node.free,
                "mine": node.mine,
                "others": node.others,
                "closed": node.closed,
                "dead": node.dead,
                "sweeping": node.sweeping,
                "damaged": node.damaged,
            })
        })
        .collect();
    let members: Vec<Value> = usage
        .members
        .iter()
        .map(|member| {
            json!({
                "slot": member.slot,
                "pid": member.pid,
                "epoch": member.epoch,
                "lease_left_ms": member.lease_left_ms,
                "nodes": member.nodes,
                "reads_only": member.reads_only,
                "is_me": member.is_me,
            })
        })
        .collect();
    json!({
        "bytes": usage.bytes(),
        "used_bytes": usage.used_bytes(),
        "block_bytes": usage.block_bytes,
        "epoch": usage.epoch,
        "durability": usage.durability.name(),
        "nodes": nodes,
        "members": members,
    })
}
