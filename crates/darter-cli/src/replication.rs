//! Options of a memory node that is a replica of a memory group.

use crate::arguments::{seconds, sized};
use crate::failure::Failure;
use darter::ByteSize;
use darter_fabric::PoolUrl;
use darter_fabric::wire::ClientTls;
use darter_group::Options;
use darter_memnode::{GroupOptions, Views};
use darter_views::ViewStore;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Default of `--suspect-after`, in seconds.
pub(crate) const SUSPECT_AFTER: &str = "1";

/// The group that a memory node belongs to, if any.
#[derive(clap::Args)]
pub(crate) struct ReplicaArgs {
    /// Serve the region as a group of memory nodes, each with a full copy: the addresses of all
    /// replicas, in the same order on each. Clients use the same addresses in the pool's URL. The
    /// first replica creates the group once it has reached the others
    #[arg(
        help_heading = "Replicas",
        long,
        value_name = "HOST:PORT+HOST:PORT",
        requires = "views",
        conflicts_with_all = ["file", "huge_pages", "device"],
        value_parser = replica_addresses
    )]
    replicas: Option<Replicas>,
    /// Number of replicas that hold the region; the others are spares, which are empty until they
    /// replace a lost replica [default: all]
    #[arg(help_heading = "Replicas", long, value_name = "N", requires = "replicas")]
    #[arg(value_parser = clap::value_parser!(u16).range(2..))]
    members: Option<u16>,
    /// Number of replicas that must have a write before it is acknowledged; with fewer the group
    /// waits for others to return. With --durability log, a write then survives the loss of one disk
    /// less than this [default: with --durability log and three replicas or more a majority of the
    /// members, else 1]
    #[arg(help_heading = "Replicas", long, value_name = "N", requires = "replicas")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    members_min: Option<u16>,
    /// Bytes of the newest records that are kept in memory, so that a replica that was away catches up
    /// without a copy of the region
    #[arg(
        help_heading = "Replicas",
        long,
        value_name = "SIZE",
        requires = "replicas",
        default_value = "64MiB"
    )]
    kept_records: ByteSize,
    /// Address of this node among the replicas [default: the address of --listen]
    #[arg(help_heading = "Replicas", long, value_name = "HOST:PORT", requires = "replicas")]
    replica: Option<String>,
    /// Number of the group in the pool, which identifies it in the store of views
    #[arg(help_heading = "Replicas", long, value_name = "N", default_value_t = 0, requires = "replicas")]
    group: u32,
    /// Store of views, which records the primary of each group: `etcd://HOST:PORT,…/PREFIX`,
    /// `consul://HOST:PORT/PREFIX`, `kubernetes://NAMESPACE/PREFIX` or, on one machine, `file:PATH`
    #[arg(help_heading = "Replicas", long, value_name = "URL", requires = "replicas")]
    views: Option<String>,
    /// Time in seconds after which the other replicas go on without a silent one, 0.05 to 3600;
    /// must be the same on all replicas
    #[arg(
        help_heading = "Replicas",
        long,
        value_name = "SECONDS",
        default_value = SUSPECT_AFTER,
        value_parser = patience
    )]
    suspect_after: Duration,
    /// Maximum rate at which a primary copies its region to a new replica, in bytes per second, at
    /// least 64 KiB [default: no limit]
    #[arg(help_heading = "Replicas", long, value_name = "SIZE", requires = "replicas", value_parser = copy_rate)]
    copy_rate: Option<ByteSize>,
    /// With TLS: trust the certificates of other replicas if signed by the CAs in this PEM file
    #[arg(help_heading = "Replicas", long, value_name = "FILE", requires = "replicas")]
    replica_tls_ca: Option<PathBuf>,
}

/// Addresses of replicas.
#[derive(Clone, Debug)]
struct Replicas(Vec<String>);

fn replica_addresses(text: &str) -> Result<Replicas, String> {
    let pool: PoolUrl =
        format!("tcp://{text}").parse().map_err(|error: darter::UrlError| error.to_string())?;
    let replicas: Vec<String> = text.split('+').map(str::to_owned).collect();
    if pool.nodes() != 1 || replicas.len() < 2 {
        return Err(
            "a group has two addresses or more; write for example `10.0.0.1:7000+10.0.0.2:7000`".to_owned()
        );
    }
    Ok(Replicas(replicas))
}

pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    let patience = seconds(text)?;
    if (0.05..=3600.0).contains(&patience.as_secs_f64()) {
        Ok(patience)
    } else {
        Err("must be from 0.05 seconds to an hour (3600)".to_owned())
    }
}

fn copy_rate(text: &str) -> Result<ByteSize, String> {
    sized(text, 64 << 10..=u64::MAX, "must be at least 64 KiB per second")
}

impl ReplicaArgs {
    /// Returns whether the node is a replica.
    pub(crate) fn is_replica(&self) -> bool {
        self.replicas.is_some()
    }

    /// Returns the group's options, if there is a group, whose replicas keep logs if `is_durable`.
    /// `tls` reads this node's credentials for other replicas.
    pub(crate) fn options(
        &self,
        listen: SocketAddr,
        is_durable: bool,
        tls: impl FnOnce(Option<&std::path::Path>) -> Result<Option<ClientTls>, Failure>,
    ) -> Result<Option<GroupOptions>, Failure> {
        let (Some(Replicas(replicas)), Some(views)) = (&self.replicas, &self.views) else { return Ok(None) };
        let own = self.replica.clone().unwrap_or_else(|| listen.to_string());
        let me = replicas.iter().position(|replica| *replica == own).ok_or_else(|| {
            Failure::usage(format_args!(
                "{own}: it is none of the replicas, {}; give this node's address among them with --replica",
                replicas.join(" ")
            ))
        })?;
        let mut store = ViewStore::open(views, self.group).map_err(Failure::usage)?;
        let views = Views::new(move |request| store.carry_out(request).map_err(|error| error.to_string()));
        let patience = self.suspect_after;
        if let Some(members) = self.members.filter(|&members| usize::from(members) > replicas.len()) {
            return Err(Failure::usage(format_args!(
                "--members {members}: must be at most the number of replicas, {}",
                replicas.len()
            )));
        }
        let members_max = self.members.map_or(usize::MAX, usize::from);
        let members = replicas.len().min(members_max);
        let members_min = match self.members_min {
            Some(least) if usize::from(least) > members => {
                return Err(Failure::usage(format_args!(
                    "--members-min {least}: must be at most the number of members, {members}"
                )));
            }
            Some(least) => least.into(),
            None if is_durable && members > 2 => members / 2 + 1,
            None => 1,
        };
        let kept_bytes_max = usize::try_from(self.kept_records.0).unwrap_or(usize::MAX);
        let copy_rate = self.copy_rate.map_or(u64::MAX, |rate| rate.0);
        let lease = patience * 3 / 5;
        let times = Options {
            lease,
            patience,
            members_max,
            members_min,
            copy_rate,
            kept_bytes_max,
            ..Options::default()
        };
        let tls = tls(self.replica_tls_ca.as_deref())?;
        Ok(Some(GroupOptions { replicas: replicas.clone(), me, views, times, tls }))
    }
}
