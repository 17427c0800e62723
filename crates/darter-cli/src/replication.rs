//! How a memory node is one replica of a memory group.

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

/// How long replicas wait for each other unless they are told otherwise, in seconds.
pub(crate) const SUSPECT_AFTER: &str = "1";

/// The group that a memory node is a replica of, if it is.
#[derive(clap::Args)]
pub(crate) struct ReplicaArgs {
    /// Serve the region together with other memory nodes, each of which has all of it: all their
    /// addresses, in the same order at each of them. Clients name the pool by the same addresses.
    /// The first makes the group, once it has reached the others
    #[arg(
        help_heading = "Replicas",
        long,
        value_name = "HOST:PORT+HOST:PORT",
        requires = "views",
        conflicts_with_all = ["file", "huge_pages", "directory", "device"],
        value_parser = replica_addresses
    )]
    replicas: Option<Replicas>,
    /// How many of them have the region at a time; the others are spares, which have nothing until
    /// they take the place of one that is lost. By default all have it
    #[arg(help_heading = "Replicas", long, value_name = "N", requires = "replicas")]
    #[arg(value_parser = clap::value_parser!(u16).range(2..))]
    members: Option<u16>,
    /// Which of them this node is; without it the one that it listens at
    #[arg(help_heading = "Replicas", long, value_name = "HOST:PORT", requires = "replicas")]
    replica: Option<String>,
    /// The group's number in the pool, which names it in the store of views
    #[arg(help_heading = "Replicas", long, value_name = "N", default_value_t = 0, requires = "replicas")]
    group: u32,
    /// Where groups keep which replica serves: `etcd://HOST:PORT,…/PREFIX`, `consul://HOST:PORT/PREFIX`,
    /// `kubernetes://NAMESPACE/PREFIX` or, on one machine, `file:PATH`
    #[arg(help_heading = "Replicas", long, value_name = "URL", requires = "replicas")]
    views: Option<String>,
    /// Seconds that replicas wait for each other before they go on without, 0.05 or more; the same
    /// at all of them
    #[arg(
        help_heading = "Replicas",
        long,
        value_name = "SECONDS",
        default_value = SUSPECT_AFTER,
        value_parser = patience
    )]
    suspect_after: Duration,
    /// Bytes of its region that a primary sends to a new replica in a second, at most; without it as
    /// many as both can take
    #[arg(help_heading = "Replicas", long, value_name = "SIZE", requires = "replicas", value_parser = copy_rate)]
    copy_rate: Option<ByteSize>,
    /// With TLS: trust other replicas with certificates signed by this PEM file's
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
        return Err("a group has two addresses or more, as in `10.0.0.1:7000+10.0.0.2:7000`".to_owned());
    }
    Ok(Replicas(replicas))
}

pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    let patience = seconds(text)?;
    if (0.05..=3600.0).contains(&patience.as_secs_f64()) {
        Ok(patience)
    } else {
        Err("from 0.05 seconds to an hour".to_owned())
    }
}

fn copy_rate(text: &str) -> Result<ByteSize, String> {
    sized(text, 64 << 10..=u64::MAX, "a new replica needs 64K a second or more")
}

impl ReplicaArgs {
    /// The group's options, if there is a group. `tls` reads what this node shows others.
    pub(crate) fn options(
        &self,
        listen: SocketAddr,
        tls: impl FnOnce(Option<&std::path::Path>) -> Result<Option<ClientTls>, Failure>,
    ) -> Result<Option<GroupOptions>, Failure> {
        let (Some(Replicas(replicas)), Some(views)) = (&self.replicas, &self.views) else { return Ok(None) };
        let own = self.replica.clone().unwrap_or_else(|| listen.to_string());
        let me = replicas.iter().position(|replica| *replica == own).ok_or_else(|| {
            Failure::usage(format_args!(
                "{own}: it is none of the replicas, {}; say by --replica which one this node is",
                replicas.join(" ")
            ))
        })?;
        let mut store = ViewStore::open(views, self.group).map_err(Failure::usage)?;
        let views = Views::new(move |request| store.carry_out(request).map_err(|error| error.to_string()));
        let patience = self.suspect_after;
        if let Some(members) = self.members.filter(|&members| usize::from(members) > replicas.len()) {
            return Err(Failure::usage(format_args!(
                "--members {members}: there are {} replicas",
                replicas.len()
            )));
        }
        let members_max = self.members.map_or(usize::MAX, usize::from);
        let copy_rate = self.copy_rate.map_or(u64::MAX, |rate| rate.0);
        let times =
            Options { lease: patience * 3 / 5, patience, members_max, copy_rate, ..Options::default() };
        let tls = tls(self.replica_tls_ca.as_deref())?;
        Ok(Some(GroupOptions { replicas: replicas.clone(), me, views, times, tls }))
    }
}
