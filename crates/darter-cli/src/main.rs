//! The program `darter`: parses arguments, calls the crates below, prints.
//!
//! Exit codes: 0, done; 1, a negative result (an absent key, a refused condition, a broken
//! invariant, bad lines) or the operation failed; 2, the command cannot be carried out as given
//! (arguments, pool name, no such pool or file); 130, ended by SIGINT, SIGTERM or
//! SIGHUP. Results go to stdout, everything else to stderr.

mod arguments;
mod bench;
mod check;
mod compare;
mod credentials;
mod delete;
mod durability;
mod envelope;
mod export;
mod failure;
mod index_server;
mod load;
mod logging;
mod memnode;
mod mutants;
mod named_table;
mod notation;
mod pairs;
mod pool;
mod range;
mod reference;
mod replication;
mod scan;
mod serve;
mod shell;
mod signals;
mod sim;
mod stats;
mod stdout;
mod stress;
mod tables;
mod tree;
mod up;

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;

/// An ordered key-value index in disaggregated memory.
///
/// Pools are named `mem:SIZE`, this process's memory, or `file:PATH`, a file shared by all
/// processes that open it (also in /dev/shm), or `tcp://HOST:PORT,HOST:PORT`, memory nodes started
/// by `darter memnode`, or `rdma://HOST:PORT?device=DEVICE`, nodes started with `--rdma` too, reached
/// through an RDMA device of this machine. `?size=8G` creates an absent file and means nothing for one that is there,
/// `nodes=N` splits the pool into several memory nodes.
#[derive(Parser)]
#[command(name = "darter", version, max_term_width = 110, styles = STYLES, after_help = "\
Examples:
  export DARTER_POOL='file:/dev/shm/fruit.pool?size=256M'
  darter put pear green && darter get pear
  darter shell

`darter COMMAND --help` has more. Exit codes: 0 done, 1 failed or absent, 2 wrong usage, 130 interrupted.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// How help and errors look on a terminal; plain elsewhere, and with `NO_COLOR`.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default())
    .error(AnsiColor::Red.on_default().bold());

/// The commands: first those of every day, then those of operators, of measurements and of checks.
#[derive(Subcommand)]
enum Command {
    /// Store a value under a key
    Put(pairs::PutCommand),
    /// Print a key's value; exit code 1 when the key is absent
    Get(pairs::GetCommand),
    /// Remove a key, or all keys of a range; exit code 1 when there is none
    Del(delete::DelCommand),
    /// Print the pairs of a key range, in order
    Scan(scan::ScanCommand),
    /// Type commands at a prompt, or run a script of them, over one pool
    Shell(shell::ShellCommand),
    /// Store the pairs of a CSV, TSV or JSON-lines file
    Load(load::LoadCommand),
    /// Write pairs to a file that `import` reads
    Export(export::ExportCommand),
    /// Store the pairs of a file that `export` has written
    Import(load::ImportCommand),
    /// Print counts, depth, node types, skip table and memory
    Stats(stats::StatsCommand),
    /// Draw the top of the tree
    Tree(tree::TreeCommand),
    /// Verify every invariant of index and pool and count leaked bytes; exit code 1 when an
    /// invariant is broken
    Check(check::CheckCommand),
    /// Run memory nodes on this machine with a pool over them, and gateways to it, and print their
    /// URLs, until SIGTERM or Ctrl-C
    Up(up::UpCommand),
    /// Make a pool of memory nodes, or describe one
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Serve memory to clients over TCP or RDMA, as one memory node of a pool, until SIGTERM
    Memnode(Box<memnode::MemNodeCommand>),
    /// Serve a pool to Redis's clients, as one of its gateways, until SIGTERM
    #[command(after_help = "\
Examples:
  darter serve --resp 127.0.0.1:6379 --http 9701 --pool file:/dev/shm/fruit.pool
  darter serve --resp 10.0.0.9:6379 --pool tcp://10.0.0.1:7000 --password-file password")]
    Serve(Box<serve::ServeCommand>),
    /// Run the YCSB workloads and report throughput, round trips, bytes and latency
    Bench(Box<bench::BenchCommand>),
    /// Run indexes side by side on the same operations, and report counts and times as tables, CSV,
    /// plots and a page
    Compare(Box<compare::CompareCommand>),
    /// Run figures and tables of the papers at a scale that this machine can hold, beside the
    /// numbers that their texts give
    Paper(compare::PaperCommand),
    /// Explore schedules of simulated clients, judge each, and replay what was found; exit code 1
    /// on a violation
    Sim(Box<sim::SimCommand>),
    /// Kill and pause processes that work on one pool file, and judge whether all they were told
    /// can be true; exit code 1 when it cannot
    Stress(Box<stress::StressCommand>),
    /// Print a script that completes this program's commands in a shell
    Completions(reference::CompletionsCommand),
    /// Print a manual page, or write all of them
    Man(reference::ManCommand),
    /// A worker of `bench --processes`
    #[command(name = bench::WORKER_COMMAND, hide = true)]
    BenchWorker(Box<bench::WorkerCommand>),
    /// A writer that `bench deaths` kills
    #[command(name = bench::VICTIM_COMMAND, hide = true)]
    BenchVictim(bench::VictimCommand),
    /// A worker of `stress`
    #[command(name = stress::WORKER_COMMAND, hide = true)]
    StressWorker(stress::WorkerCommand),
}

/// The result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Done; exit code 0.
    Done,
    /// Done, with a negative result; exit code 1. The command has printed why.
    No,
}

fn main() -> ExitCode {
    match run() {
        Ok(Answer::Done) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Err(failure) => failure.report(),
    }
}

fn run() -> Result<Answer, Failure> {
    signals::report_limits_of_files()?;
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => {
            stdout::fail_if_closed()?;
            help.print()?;
            stdout::finish()?;
            return Ok(Answer::Done);
        }
    };
    // Servers print an address, and serve without stdout too.
    if !matches!(command, Command::Up(_) | Command::Memnode(_) | Command::Serve(_)) {
        stdout::fail_if_closed()?;
    }
    let answer = perform(command)?;
    stdout::finish()?;
    Ok(answer)
}

fn perform(command: Command) -> Result<Answer, Failure> {
    match command {
        Command::Put(command) => command.run(),
        Command::Get(command) => command.run(),
        Command::Del(command) => command.run(),
        Command::Scan(command) => command.run(),
        Command::Shell(command) => command.run(),
        Command::Load(command) => command.run(),
        Command::Export(command) => command.run(),
        Command::Import(command) => command.run(),
        Command::Stats(command) => command.run(),
        Command::Tree(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Up(command) => command.run(),
        Command::Pool(command) => command.run(),
        Command::Memnode(command) => command.run(),
        Command::Serve(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Compare(command) => command.run(),
        Command::Paper(command) => command.run(),
        Command::Sim(command) => command.run(),
        Command::Stress(command) => command.run(),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
        Command::BenchWorker(command) => command.run(),
        Command::BenchVictim(command) => command.run(),
        Command::StressWorker(command) => command.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    /// Returns the text of a file of `deploy/`.
    fn deployed(name: &str) -> String {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Parses a daemon's command line.
    fn daemon(words: &[String]) -> Command {
        let arguments = Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        arguments.command
    }

    /// What a unit starts, with its settings.
    fn started_by(name: &str) -> Command {
        let (unit, settings) = (deployed(&format!("{name}.service")), deployed(&format!("{name}.env")));
        let settings: Vec<_> = settings
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| line.split_once('=').unwrap_or_else(|| panic!("{line}")))
            .collect();
        let mut command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap().to_owned();
        for (name, value) in settings {
            let variable = format!("${{{name}}}");
            assert!(command.contains(&variable), "{name} is set and not used");
            command = command.replace(&variable, value);
        }
        // What systemd fills in itself.
        let command = command.replace("%S", "/var/lib").replace("%d", "/run/credentials");
        assert!(!command.contains(['$', '%']), "{command}");
        daemon(&command.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_units_commands_are_ours() {
        assert!(matches!(started_by("darter-memnode"), Command::Memnode(_)));
        assert!(matches!(started_by("darter-gateway"), Command::Serve(_)));
    }

    #[test]
    fn the_containers_commands_are_ours() {
        let file = deployed("Containerfile");
        let words = |name| {
            let list = file.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            serde_json::from_str::<Vec<String>>(list).unwrap()
        };
        assert!(matches!(daemon(&[words("ENTRYPOINT "), words("CMD ")].concat()), Command::Memnode(_)));
        let gateway = file.lines().find_map(|line| line.strip_prefix("#     ")).unwrap();
        let gateway: Vec<_> = gateway.split(' ').map(str::to_owned).collect();
        assert!(matches!(daemon(&gateway), Command::Serve(_)));
    }
}
