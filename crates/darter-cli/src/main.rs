//! The program `darter`: parses arguments, runs a command, and prints the result.

use clap::{CommandFactory, Parser, Subcommand};
use darter_cli::{Answer, Failure, STYLES, StoreCommand, bench, memnode, reference};
use std::process::ExitCode;

/// An ordered key-value index in disaggregated memory.
///
/// A pool's URL is `mem:SIZE` (in this process's memory, gone when it ends), `file:PATH` (a file
/// shared by all processes that open it, also in /dev/shm), `tcp://HOST:PORT,HOST:PORT` (memory
/// nodes started by `darter memnode`) or `rdma://HOST:PORT?device=DEVICE` (memory nodes started
/// with `--rdma`, reached through an RDMA device of this machine). For a file, `?size=8G` creates
/// it if it is absent and has no effect otherwise; `nodes=N` splits the pool into N memory nodes.
///
/// A SIZE is in bytes; the suffixes K, M, G and T stand for KiB, MiB, GiB and TiB.
#[derive(Parser)]
#[command(name = "darter", version, max_term_width = 110, styles = STYLES, after_help = "\
Examples:
  export DARTER_POOL='file:/dev/shm/fruit.pool?size=256M'
  darter put pear green && darter get pear
  darter shell

See `darter COMMAND --help` for the options of a command.\nExit codes: 0 done, 1 failed or absent, 2 wrong usage, 130 interrupted.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The commands: first the everyday ones, then those for operators and for measurements.
#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Store(Box<StoreCommand>),
    /// Run a memory node, which serves memory to clients over TCP or RDMA; stops on SIGTERM or
    /// Ctrl-C
    Memnode(Box<memnode::MemNodeCommand>),
    /// Run YCSB workloads and report throughput, round trips, bytes and latency
    Bench(Box<bench::BenchCommand>),
    /// Print a shell script that completes this program's commands
    Completions(reference::CompletionsCommand),
    /// Print a manual page, or write all of them to a directory
    Man(reference::ManCommand),
    /// A worker of `bench --processes`
    #[command(name = bench::WORKER_COMMAND, hide = true)]
    BenchWorker(Box<bench::WorkerCommand>),
}

fn main() -> ExitCode {
    darter_cli::run(|Arguments { command }| !is_server(command), |Arguments { command }| perform(command))
}

/// Returns whether a command serves until it is stopped, and so runs without stdout too.
fn is_server(command: &Command) -> bool {
    match command {
        Command::Store(command) => command.is_server(),
        Command::Memnode(_) => true,
        _ => false,
    }
}

fn perform(command: Command) -> Result<Answer, Failure> {
    match command {
        Command::Store(command) => command.run(),
        Command::Memnode(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Completions(command) => command.run(Arguments::command()),
        Command::Man(command) => command.run(Arguments::command()),
        Command::BenchWorker(command) => command.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Returns the command that a unit starts, with its settings.
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
        // Variables that systemd replaces.
        let command = command.replace("%S", "/var/lib").replace("%d", "/run/credentials");
        assert!(!command.contains(['$', '%']), "{command}");
        daemon(&command.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn is_gateway(command: &Command) -> bool {
        matches!(command, Command::Store(command) if matches!(**command, StoreCommand::Serve(_)))
    }

    #[test]
    fn the_units_commands_are_ours() {
        assert!(matches!(started_by("darter-memnode"), Command::Memnode(_)));
        assert!(is_gateway(&started_by("darter-gateway")));
    }

    #[test]
    fn the_container_is_built_with_the_rust_that_the_workspace_needs() {
        let image = format!("/rust:{}-", env!("CARGO_PKG_RUST_VERSION"));
        assert!(deployed("Containerfile").contains(&image), "no image {image}");
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
        assert!(is_gateway(&daemon(&gateway)));
    }
}
