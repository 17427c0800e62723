//! The commands that read and change a pool, and those that serve one.

use crate::{Answer, Failure};
use crate::{backup, check, delete, export, load, pairs, pool, scan, serve, shell, stats, tree, up};
use clap::Subcommand;

/// The commands that open a pool, with any index that the program knows: first the everyday
/// commands, then those for operators.
#[derive(Subcommand)]
pub enum StoreCommand {
    /// Store a value under a key
    Put(pairs::PutCommand),
    /// Print the value of a key; exit code 1 if the key is absent
    Get(pairs::GetCommand),
    /// Remove a key, or all keys of a range; exit code 1 if there are none
    Del(delete::DelCommand),
    /// Print the pairs of a key range, in key order
    Scan(scan::ScanCommand),
    /// Run commands on one pool, from a prompt or a script
    Shell(shell::ShellCommand),
    /// Store the pairs of a CSV, TSV or JSON Lines file
    Load(load::LoadCommand),
    /// Write pairs to a file for `import`
    Export(export::ExportCommand),
    /// Store the pairs of a file written by `export`, or the keys of Redis
    Import(load::ImportCommand),
    /// Write all pairs of a pool as of this moment to a folder of backups, or to standard output, while
    /// clients go on writing
    Backup(backup::BackupCommand),
    /// Store all pairs of a backup in an empty pool
    Restore(backup::RestoreCommand),
    /// Print the backups in a folder
    Backups(backup::BackupsCommand),
    /// Print the number of keys, depth, node types, skip table and memory use
    Stats(stats::StatsCommand),
    /// Draw the top levels of the tree
    Tree(tree::TreeCommand),
    /// Verify all invariants of the index and the pool and count leaked bytes; exit code 1 if an
    /// invariant is violated
    Check(check::CheckCommand),
    /// Run memory nodes on this machine with a pool on them, and optionally gateways, and print
    /// their URLs; stops on SIGTERM or Ctrl-C
    Up(up::UpCommand),
    /// Create, extend or describe a pool
    #[command(subcommand)]
    Pool(pool::commands::PoolCommand),
    /// Run a gateway, which serves a pool to Redis clients; stops on SIGTERM or Ctrl-C
    #[command(after_help = "\
Examples:
  darter serve --resp 127.0.0.1:6379 --http 9701 --pool file:/dev/shm/fruit.pool
  darter serve --resp 10.0.0.9:6379 --pool tcp://10.0.0.1:7000 --password-file password")]
    Serve(Box<serve::ServeCommand>),
}

impl StoreCommand {
    pub fn run(self) -> Result<Answer, Failure> {
        match self {
            Self::Put(command) => command.run(),
            Self::Get(command) => command.run(),
            Self::Del(command) => command.run(),
            Self::Scan(command) => command.run(),
            Self::Shell(command) => command.run(),
            Self::Load(command) => command.run(),
            Self::Export(command) => command.run(),
            Self::Import(command) => command.run(),
            Self::Backup(command) => command.run(),
            Self::Restore(command) => command.run(),
            Self::Backups(command) => command.run(),
            Self::Stats(command) => command.run(),
            Self::Tree(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Up(command) => command.run(),
            Self::Pool(command) => command.run(),
            Self::Serve(command) => command.run(),
        }
    }

    /// Returns whether the command serves until it is stopped. Servers print an address, and run
    /// without stdout too.
    pub fn is_server(&self) -> bool {
        matches!(self, Self::Up(_) | Self::Serve(_))
    }
}
