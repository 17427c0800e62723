//! A memory node's log on disk, which keeps acknowledged writes through a power failure.

use crate::failure::Failure;
use darter::ByteSize;
use darter_fabric::files::Sharing;
use darter_memnode::{LogOptions, Region};
use std::path::PathBuf;

/// What part of a node's memory survives a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Durability {
    /// No guarantee: a power failure can lose any write
    #[value(name = "none")]
    Never,
    /// All acknowledged writes survive a power failure: replies wait for a log on disk
    Log,
}

/// A memory node's durability options.
#[derive(clap::Args)]
pub(crate) struct DurabilityArgs {
    /// What must be on disk before a reply is sent
    #[arg(help_heading = "Durability", long, value_enum, value_name = "HOW", default_value = "none")]
    durability: Durability,
    /// Directory of the log and of copies of the region; created if absent. A node restarted with
    /// the same directory and size serves the same memory
    #[arg(help_heading = "Durability", long = "log", value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Bytes of log after which the region is copied, at least 1 MiB; a restart replays about twice
    /// this amount
    #[arg(
        help_heading = "Durability",
        long,
        value_name = "SIZE",
        default_value = "256MiB",
        value_parser = checkpoint_bytes
    )]
    checkpoint_bytes: ByteSize,
    /// Size of each log file, at least 64 KiB
    #[arg(
        help_heading = "Durability",
        long,
        value_name = "SIZE",
        default_value = "64MiB",
        value_parser = segment_bytes
    )]
    segment_bytes: ByteSize,
    /// Bytes of checkpoints and log to read in a second, to find damage of the disk while the memory
    /// that they describe exists and can be written again; 0 for none
    #[arg(help_heading = "Durability", long, value_name = "SIZE", default_value = "4MiB")]
    scrub_rate: ByteSize,
}

fn checkpoint_bytes(text: &str) -> Result<ByteSize, String> {
    at_least(text, 1 << 20, "must be from 1 MiB to 1 TiB")
}

fn segment_bytes(text: &str) -> Result<ByteSize, String> {
    at_least(text, 64 << 10, "must be from 64 KiB to 1 TiB")
}

fn at_least(text: &str, least: u64, rule: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if (least..=1 << 40).contains(&size.0) { Ok(size) } else { Err(rule.to_owned()) }
}

impl DurabilityArgs {
    /// Checks that the options are consistent.
    ///
    /// # Errors
    /// Fails if they are not.
    pub(crate) fn check(&self, has_file: bool, has_device: bool) -> Result<(), Failure> {
        let wrong = match (self.durability, &self.directory) {
            (Durability::Never, Some(_)) => "--log needs --durability log",
            (Durability::Log, None) => "--durability log needs a directory for the log: --log DIR",
            (Durability::Log, _) if has_file => {
                "--durability log keeps the region in memory and in the log's directory: leave out --file, which the \
                 system would write back before the log"
            }
            (Durability::Log, _) if has_device => {
                "verbs over RDMA bypass the log: leave out --rdma or --durability log"
            }
            _ => return Ok(()),
        };
        Err(Failure::usage(wrong))
    }

    /// Returns whether `--durability log` is given.
    pub(crate) fn is_log(&self) -> bool {
        self.durability == Durability::Log
    }

    /// Attaches a log to a region if `--durability log` is given, that of a replica if `is_replica`;
    /// new files get the permissions in `sharing`.
    ///
    /// # Errors
    /// Fails if the log cannot be used.
    pub(crate) fn apply(
        &self,
        region: Region,
        sharing: Sharing,
        is_replica: bool,
    ) -> Result<Region, Failure> {
        let Some(directory) = &self.directory else { return Ok(region) };
        let options = LogOptions {
            segment_bytes: self.segment_bytes.0,
            checkpoint_bytes: self.checkpoint_bytes.0,
            scrub_rate: self.scrub_rate.0,
            sharing,
            ..LogOptions::default()
        };
        let logged = if is_replica { Region::logged_replica } else { Region::logged };
        logged(region, directory, options).map_err(Failure::failed)
    }
}
