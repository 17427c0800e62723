//! `check`: every invariant of index and pool, and what is leaked.

use crate::Answer;
use crate::failure::Failure;
use crate::pool::PoolArgs;
use crate::tables::bytes_text;
use darter::Check;
use darter_gateway::json;
use std::io::Write;

#[derive(clap::Args)]
pub(crate) struct CheckCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Give leaked bytes back: adopt the blocks of dead processes and sweep them
    #[arg(long)]
    repair: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl CheckCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = self.pool.existing()?;
        let check = if self.repair { store.repair()? } else { store.check()? };
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", as_json(&check))?;
        } else {
            self.print(&mut out, &check)?;
        }
        out.flush()?;
        Ok(if check.is_sound() { Answer::Done } else { Answer::No })
    }

    fn print(&self, out: &mut impl Write, check: &Check) -> std::io::Result<()> {
        for violation in &check.violations {
            writeln!(out, "violation: {violation}")?;
        }
        for remark in &check.remarks {
            writeln!(out, "remark: {remark}")?;
        }
        writeln!(out, "violations    {}", check.violations.len())?;
        let hint =
            if check.leaked_bytes > 0 && !self.repair { "; `check --repair` gives them back" } else { "" };
        writeln!(out, "leaked        {} bytes{hint}", check.leaked_bytes)?;
        if self.repair {
            writeln!(out, "given back    {} bytes", check.repaired_bytes)?;
        }
        if check.unverified_bytes > 0 {
            let bytes = bytes_text(check.unverified_bytes);
            writeln!(out, "unverified    {bytes} in blocks of other live processes")?;
        }
        writeln!(out, "keys          {}", check.stats.keys)?;
        writeln!(out, "keys, values  {}", bytes_text(check.stats.kv_bytes))?;
        writeln!(out, "index         {}", bytes_text(check.stats.index_bytes))?;
        writeln!(out, "pool          {} in use", bytes_text(check.usage.used_bytes()))
    }
}

fn as_json(check: &Check) -> serde_json::Value {
    serde_json::json!({
        "sound": check.is_sound(),
        "violations": check.violations,
        "remarks": check.remarks,
        "leaked_bytes": check.leaked_bytes,
        "repaired_bytes": check.repaired_bytes,
        "unverified_bytes": check.unverified_bytes,
        "index": json::index(&check.stats),
        "pool": json::pool(&check.usage),
    })
}
