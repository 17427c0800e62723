//! The program `darter-lab`: compares indexes, runs the papers' figures, checks correctness. It
//! also has the commands of `darter` that open a pool, for pools of every index.
//!
//! Exit codes are those of `darter`.

mod bench;
mod compare;
mod compared;
mod damages;
mod index_server;
mod memnode;
mod mutants;
mod sim;
mod stress;

use clap::{CommandFactory, Parser, Subcommand};
use darter_cli::{Answer, Failure, STYLES, StoreCommand, reference};
use std::process::ExitCode;

/// Comparisons and checks of darter.
///
/// Pools are named as for `darter`. Commands that open a pool know every index by the names of
/// `compare`.
#[derive(Parser)]
#[command(name = "darter-lab", version, max_term_width = 110, styles = STYLES, after_help = "\
Examples:
  darter-lab compare --indexes quiver,sherman --workloads c --records 100K
  darter-lab paper list
  darter-lab sim --runs 5000 --faults all

`darter-lab COMMAND --help` has more. Exit codes: 0 done, 1 failed or absent, 2 wrong usage, 130 interrupted.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The commands: first those of measurements, then those of checks, then those of `darter`.
#[derive(Subcommand)]
enum Command {
    /// Run the YCSB workloads on any index and report throughput, round trips, bytes and latency
    Bench(Box<bench::BenchCommand>),
    /// Run indexes side by side on the same operations, and report counts and times as tables, CSV,
    /// plots and a page
    Compare(Box<compare::CompareCommand>),
    /// Run figures and tables of the papers at a scale that fits this machine, next to the numbers
    /// that their texts give
    Paper(compare::PaperCommand),
    /// Explore schedules of simulated clients, check each, and replay findings; exit code 1 on a
    /// violation
    Sim(Box<sim::SimCommand>),
    /// Plant errors in a copy of the sources, and check that the explorer and the tests find them
    Mutants(mutants::MutantsCommand),
    /// Kill and pause processes that work on one pool file, and check whether their results are
    /// linearizable; exit code 1 if not
    Stress(Box<stress::StressCommand>),
    /// Damage pool files and logs at rest, and check that every answer is right or an error names
    /// the damage; exit code 1 if not
    Damages(Box<damages::DamagesCommand>),
    /// Serve memory to clients over TCP or RDMA, as one memory node of a pool, until SIGTERM; with
    /// an index's server if configured
    Memnode(Box<memnode::ServedMemNodeCommand>),
    #[command(flatten)]
    Store(Box<StoreCommand>),
    /// Print a script that completes this program's commands in a shell
    Completions(reference::CompletionsCommand),
    /// Print a manual page, or write all of them
    Man(reference::ManCommand),
    /// A worker of `bench --processes`
    #[command(name = darter_cli::bench::WORKER_COMMAND, hide = true)]
    BenchWorker(Box<bench::WorkerCommand>),
    /// A writer that `bench deaths` kills
    #[command(name = bench::VICTIM_COMMAND, hide = true)]
    BenchVictim(bench::VictimCommand),
    /// A worker of `bench stores`
    #[cfg(feature = "peers")]
    #[command(name = bench::STORE_WORKER_COMMAND, hide = true)]
    BenchStoreWorker(bench::StoreWorkerCommand),
    /// A process that fills or reads a pool of `damages`
    #[command(name = damages::CLIENT_COMMAND, hide = true)]
    DamagesClient(damages::ClientCommand),
    /// A worker of `stress`
    #[command(name = stress::WORKER_COMMAND, hide = true)]
    StressWorker(stress::WorkerCommand),
}

fn main() -> ExitCode {
    darter_cli::indexes::add("darter-lab", compared::others());
    darter_cli::run(|Arguments { command }| !is_server(command), |Arguments { command }| perform(command))
}

/// Returns whether a command serves until it is stopped; it then needs no stdout.
fn is_server(command: &Command) -> bool {
    match command {
        Command::Store(command) => command.is_server(),
        Command::Memnode(_) => true,
        _ => false,
    }
}

fn perform(command: Command) -> Result<Answer, Failure> {
    match command {
        Command::Bench(command) => command.run(),
        Command::Compare(command) => command.run(),
        Command::Paper(command) => command.run(),
        Command::Sim(command) => command.run(),
        Command::Mutants(command) => command.run(),
        Command::Stress(command) => command.run(),
        Command::Damages(command) => command.run(),
        Command::Memnode(command) => command.run(),
        Command::Store(command) => command.run(),
        Command::Completions(command) => command.run(Arguments::command()),
        Command::Man(command) => command.run(Arguments::command()),
        Command::BenchWorker(command) => command.run(),
        Command::BenchVictim(command) => command.run(),
        #[cfg(feature = "peers")]
        Command::BenchStoreWorker(command) => command.run(),
        Command::DamagesClient(command) => command.run(),
        Command::StressWorker(command) => command.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
