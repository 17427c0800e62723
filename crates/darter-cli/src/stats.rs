//! `stats`: prints the number of keys, depth, node types, skip table and memory use.

use crate::Answer;
use crate::failure::Failure;
use crate::pool::PoolArgs;
use crate::tables::{bytes_text, print_pool, table};
use darter::Store;
use darter::report::Stats;
use darter_fabric::counted;
use darter_gateway::json;
use serde_json::{Value, json};
use std::io::Write;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter stats
  darter stats --json | jq .index.keys")]
pub struct StatsCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    stats: StatsArgs,
}

/// Format of the output.
#[derive(clap::Args)]
pub(crate) struct StatsArgs {
    /// Print the result as a JSON object
    #[arg(long)]
    json: bool,
}

impl StatsCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        self.pool.read(|store| self.stats.run(store))
    }
}

impl StatsArgs {
    /// Prints the statistics of an open pool.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
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

fn as_json(stats: &Stats, notes: &[String]) -> Value {
    json!({
        "name": stats.name,
        "index": json::index(&stats.index),
        "pool": json::pool(&stats.pool),
        "cache_used_bytes": stats.cache_used_bytes,
        "prefix_list": stats.prefix_list,
        "notes": notes,
    })
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
    writeln!(out, "index         {}, {}", stats.name, bytes_text(index.index_bytes))?;
    writeln!(out, "depth         {depth_mean:.2} inner nodes on average, {} at most", index.depth_max)?;
    if index.est.is_some() {
        writeln!(out, "prefix list   {:?}", stats.prefix_list)?;
    }
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
            "\nskip table    {} in {} ({used:.0}%), {}, directory of {}, {}",
            counted(est.entries, "entry"),
            counted(est.slots, "slot"),
            counted(est.segments, "segment"),
            est.directory_entries,
            bytes_text(est.bytes)
        )?;
    }
    print_pool(out, &stats.pool)
}
