//! What a memory node keeps on disk so that nothing acknowledged is lost when the power fails.

use crate::failure::Failure;
use darter::ByteSize;
use darter_fabric::files::Sharing;
use darter_memnode::{LogOptions, Region};
use std::path::PathBuf;

/// What of a node's memory survives what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Durability {
    /// Nothing, but for what the system has written back of a file
    #[value(name = "none")]
    Never,
    /// Whatever was acknowledged, a power failure too: answers wait for a log on disk
    Log,
}

/// How a memory node is durable.
#[derive(clap::Args)]
pub(crate) struct DurabilityArgs {
    /// What must be on disk before an answer is sent
    #[arg(help_heading = "Durability", long, value_enum, value_name = "HOW", default_value = "none")]
    durability: Durability,
    /// Keep the log, and copies of the region, in this directory, made when absent; a node started
    /// with the same directory and size offers the same memory
    #[arg(help_heading = "Durability", long = "log", value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Bytes of the log after which the region is copied, 1M or more: about twice as many are
    /// replayed when the node starts
    #[arg(
        help_heading = "Durability",
        long,
        value_name = "SIZE",
        default_value = "256M",
        value_parser = checkpoint_bytes
    )]
    checkpoint_bytes: ByteSize,
    /// Bytes of each file of the log, 64K or more
    #[arg(
        help_heading = "Durability",
        long,
        value_name = "SIZE",
        default_value = "64M",
        value_parser = segment_bytes
    )]
    segment_bytes: ByteSize,
}

fn checkpoint_bytes(text: &str) -> Result<ByteSize, String> {
    at_least(text, 1 << 20, "checkpoints need 1M of the log or more between them")
}

fn segment_bytes(text: &str) -> Result<ByteSize, String> {
    at_least(text, 64 << 10, "a file of the log has 64K or more")
}

fn at_least(text: &str, least: u64, rule: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if (least..=1 << 40).contains(&size.0) { Ok(size) } else { Err(rule.to_owned()) }
}

impl DurabilityArgs {
    /// Checks that the arguments fit each other.
    ///
    /// # Errors
    /// Fails if they do not.
    pub(crate) fn check(&self, has_file: bool, has_device: bool) -> Result<(), Failure> {
        let wrong = match (self.durability, &self.directory) {
            (Durability::Never, Some(_)) => "--log needs --durability log beside it",
            (Durability::Log, None) => "--durability log needs a directory for the log: --log DIR",
            (Durability::Log, _) if has_file => {
                "--durability log keeps the region in memory and in the log's directory: leave out --file, which the \
                 system would write back before the log"
            }
            (Durability::Log, _) if has_device => {
                "verbs over RDMA pass the log by: leave out --rdma or --durability log"
            }
            _ => return Ok(()),
        };
        Err(Failure::usage(wrong))
    }

    /// Has a region keep a log, if the arguments say so; its new files are shared as `sharing` says.
    ///
    /// # Errors
    /// Fails if the log cannot be used.
    pub(crate) fn apply(&self, region: Region, sharing: Sharing) -> Result<Region, Failure> {
        let Some(directory) = &self.directory else { return Ok(region) };
        let options = LogOptions {
            segment_bytes: self.segment_bytes.0,
            checkpoint_bytes: self.checkpoint_bytes.0,
            sharing,
            ..LogOptions::default()
        };
        region.logged(directory, options).map_err(Failure::failed)
    }
}
