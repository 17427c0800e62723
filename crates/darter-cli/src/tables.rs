//! Tables and sizes for people, for all commands that describe a pool.

use comfy_table::{CellAlignment, Table, presets};
use darter::report::PoolUsage;
use std::io::Write;

/// Returns `bytes` with a binary unit, such as `1.50 MiB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// Returns a table whose columns are right-aligned, except the first.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Describes the loss of a memory node that was restarted without its contents, and the remedy.
fn lost_text(node: u8, address: &str) -> String {
    format!(
        "memory node {node} ({address}) was restarted without its contents. Keys that do not need it are served, \
         and no new data is placed\non it; all others fail. To restore all keys, create a new, empty pool on the \
         same memory nodes, and restore\nthe last export: `darter pool create --overwrite` and `darter import`. \
         Gateways then serve the new pool, as do\nprograms that accept it (`StoreOptions::accept_new_pool`). Nodes with `--durability log`, \
         `--file` or replicas keep their contents.\nTo keep the other keys instead, see `darter export \
         --skip-unreachable` and `darter pool remove-node --lost`."
    )
}

/// Prints the use of each memory node and the members of the pool.
pub(crate) fn print_pool(out: &mut impl Write, usage: &PoolUsage) -> std::io::Result<()> {
    let (used, all) = (bytes_text(usage.used_bytes()), bytes_text(usage.bytes()));
    writeln!(
        out,
        "\npool          {used} of {all} in blocks of {} that are taken",
        bytes_text(usage.block_bytes)
    )?;
    let rows = usage.nodes.iter().map(|node| {
        let counts = [node.blocks, node.free, node.mine, node.others, node.closed, node.dead + node.sweeping];
        let taken = (node.blocks - node.free) as f64 * 100.0 / (node.blocks as f64).max(1.0);
        let address = node.address.clone().unwrap_or_default();
        let mut row = vec![node.node.to_string(), address, bytes_text(node.bytes)];
        if node.is_removed() {
            row.push("has left".to_owned());
        } else if node.is_absent {
            row.push(if node.is_lost { "lost" } else { "absent" }.to_owned());
        } else {
            row.push(format!("{taken:.0}%"));
            row.extend(counts.map(|count| count.to_string()));
            row.extend(node.is_leaving().then(|| "leaving".to_owned()));
        }
        row
    });
    let header =
        ["memory node", "address", "bytes", "taken", "blocks", "free", "mine", "others", "closed", "dead"];
    writeln!(out, "\n{}", table(&header, rows))?;
    for node in usage.nodes.iter().filter(|node| node.is_lost) {
        writeln!(out, "\n{}", lost_text(node.node, node.address.as_deref().unwrap_or_default()))?;
    }
    let replicas = usage.nodes.iter().flat_map(|node| {
        let newest =
            node.replicas.iter().filter_map(|replica| Some(replica.state?.record)).max().unwrap_or(0);
        node.replicas.iter().map(move |replica| {
            let mut row = vec![node.node.to_string(), replica.address.clone()];
            match &replica.state {
                None => row.push("does not reply".to_owned()),
                Some(state) => {
                    row.push(state.role.to_string());
                    let numbers =
                        [state.view, state.record, newest - state.record, state.held, state.log_bytes];
                    row.extend(numbers.map(|number| number.to_string()));
                }
            }
            row
        })
    });
    if usage.nodes.iter().any(|node| !node.replicas.is_empty()) {
        let header =
            ["memory node", "replica", "role", "view", "record", "behind", "replies held", "log, bytes"];
        writeln!(out, "\n{}", table(&header, replicas))?;
    }
    let members = usage.members.iter().map(|member| {
        let remarks = [(member.is_me, "this command"), (member.reads_only, "only reads")];
        let remarks: Vec<_> = remarks.iter().filter(|(is_so, _)| *is_so).map(|(_, remark)| *remark).collect();
        let numbers = [member.slot.into(), member.pid, member.epoch, member.nodes].map(|n| n.to_string());
        numbers.into_iter().chain([member.lease_left_ms.to_string(), remarks.join(", ")]).collect()
    });
    let header = ["member", "process", "epoch", "nodes it reaches", "lease left, ms", ""];
    writeln!(out, "\n{}", table(&header, members))
}
