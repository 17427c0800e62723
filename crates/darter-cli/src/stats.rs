//! `stats`: counts, depth, node types, skip table and memory.

use crate::Answer;
use crate::failure::Failure;
use crate::pool::PoolArgs;
use comfy_table::{CellAlignment, Table, presets};
use darter::{PoolUsage, Stats};
use darter_gateway::json;
use serde_json::{Value, json};
use std::io::Write;

#[derive(clap::Args)]
pub(crate) struct StatsCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl StatsCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = self.pool.existing()?;
        let stats = store.stats()?;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", as_json(&stats, &store.notes()))?;
        } else {
            print(&mut out, &stats)?;
            for note in store.notes() {
                writeln!(out, "\nnote: {note}")?;
            }
        }
        out.flush()?;
        Ok(Answer::Done)
    }
}

/// Bytes as people read them.
pub(crate) fn bytes_text(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

fn as_json(stats: &Stats, notes: &[String]) -> Value {
    json!({
        "index": json::index(&stats.index),
        "pool": json::pool(&stats.pool),
        "cache_used_bytes": stats.cache_used_bytes,
        "prefix_list": stats.prefix_list,
        "notes": notes,
    })
}

/// A table with a header and numbers to the right.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn print(out: &mut impl Write, stats: &Stats) -> std::io::Result<()> {
    let index = &stats.index;
    let depth_mean = if index.keys == 0 {
        0.0
    } else {
        index.levels.iter().enumerate().map(|(depth, leaves)| depth as f64 * *leaves as f64).sum::<f64>()
            / index.keys as f64
    };
    writeln!(out, "keys          {}", index.keys)?;
    writeln!(out, "keys, values  {}", bytes_text(index.kv_bytes))?;
    writeln!(out, "index         {}", bytes_text(index.index_bytes))?;
    writeln!(out, "depth         {depth_mean:.2} inner nodes on average, {} at most", index.depth_max)?;
    writeln!(out, "prefix list   {:?}", stats.prefix_list)?;
    writeln!(out, "client cache  {}", bytes_text(stats.cache_used_bytes))?;
    if !index.nodes.is_empty() {
        let rows = index.nodes.iter().map(|node| {
            let mean = node.children as f64 / (node.count as f64).max(1.0);
            vec![node.name.to_owned(), node.count.to_string(), bytes_text(node.bytes), format!("{mean:.1}")]
        });
        writeln!(out, "\n{}", table(&["nodes", "count", "bytes", "children"], rows))?;
    }
    let levels: Vec<Vec<String>> = (index.levels.iter().enumerate())
        .filter(|(_, leaves)| **leaves > 0)
        .map(|(depth, leaves)| vec![depth.to_string(), leaves.to_string()])
        .collect();
    if !levels.is_empty() {
        writeln!(out, "\n{}", table(&["leaves below", "leaves"], levels))?;
    }
    if let Some(est) = &index.est {
        let used = est.entries as f64 * 100.0 / (est.slots as f64).max(1.0);
        writeln!(
            out,
            "\nskip table    {} entries in {} slots ({used:.0}%), {} segments, directory of {}, {}",
            est.entries,
            est.slots,
            est.segments,
            est.directory_entries,
            bytes_text(est.bytes)
        )?;
    }
    print_pool(out, &stats.pool)
}

/// The pool's part for people: how much of each node is taken, and by whom.
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
        let mut row = vec![node.node.to_string(), address, bytes_text(node.bytes), format!("{taken:.0}%")];
        row.extend(counts.map(|count| count.to_string()));
        row
    });
    let header =
        ["memory node", "address", "bytes", "taken", "blocks", "free", "mine", "others", "closed", "dead"];
    writeln!(out, "\n{}", table(&header, rows))?;
    let members = usage.members.iter().map(|member| {
        let who = if member.is_me { "this command" } else { "" };
        let numbers = [member.slot.into(), member.pid, member.epoch, member.nodes].map(|n| n.to_string());
        numbers.into_iter().chain([member.lease_left_ms.to_string(), who.to_owned()]).collect()
    });
    let header = ["member", "process", "epoch", "nodes it reaches", "lease left, ms", ""];
    writeln!(out, "\n{}", table(&header, members))
}
