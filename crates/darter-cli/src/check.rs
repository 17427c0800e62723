//! `check`: verifies all invariants of the index and the pool, and counts leaked bytes.

use crate::Answer;
use crate::failure::Failure;
use crate::pool::PoolArgs;
use crate::signals::Interrupt;
use crate::tables::bytes_text;
use darter::Store;
use darter::report::Check;
use darter_gateway::json;
use std::io::Write;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter check
  darter check --repair --json")]
pub struct CheckCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    check: CheckArgs,
}

/// Options of a check.
#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// Return leaked bytes to the pool: adopt the blocks of dead processes and sweep them
    #[arg(long)]
    repair: bool,
    /// Print the result as a JSON object
    #[arg(long)]
    json: bool,
}

impl CheckCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        if self.check.repair {
            return self.check.run(&self.pool.to_repair()?);
        }
        self.pool.read(|store| self.check.run(store))
    }
}

impl CheckArgs {
    /// Checks an open pool. A signal ends the walk at once: a check holds no state, and the next
    /// repair finds what this one has not finished.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
        let (interrupt, repairs, shared) = (Interrupt::on_signals()?, self.repair, store.clone());
        let outcome = interrupt.or_result(move || if repairs { shared.repair() } else { shared.check() })?;
        let Some(outcome) = outcome else {
            return Err(Failure::Interrupted(if repairs {
                "interrupted; the pool is sound, and run `check --repair` again to return the rest".to_owned()
            } else {
                "interrupted; nothing was changed".to_owned()
            }));
        };
        let check = outcome?;
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
        let hint = if check.leaked_bytes > 0 && !self.repair {
            "; `check --repair` returns them to the pool"
        } else {
            ""
        };
        writeln!(out, "leaked        {} bytes{hint}", check.leaked_bytes)?;
        if self.repair {
            writeln!(out, "returned      {} bytes", check.repaired_bytes)?;
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
