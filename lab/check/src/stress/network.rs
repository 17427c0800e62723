//! A network for the run: a namespace with an address for each memory node and each worker, all
//! linked to one bridge, so that each link can be cut, slowed and healed.
//!
//! ```text
//! bridge 10.213.N.254 (the coordinator) ──┬── 10.213.N.1   memory node 0
//!                                         ├── 10.213.N.2   memory node 1 …
//!                                         └── 10.213.N.101 worker 0 …
//! ```
//!
//! A cut removes the link from the bridge: packets vanish, and neither end is notified. A slow link
//! passes one megabit per second. This needs the rights to create namespaces (root) and the program
//! `ip`; slow links need `tc`.

use super::StressError;
use std::ffi::OsStr;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The owner of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Node(u32),
    Worker(u32),
}

impl Place {
    /// Returns the last byte of its address.
    fn host(self) -> u8 {
        match self {
            Self::Node(at) => 1 + at.min(98) as u8,
            Self::Worker(slot) => 101 + slot.min(98) as u8,
        }
    }
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Whole,
    Slow,
    Cut,
}

/// The bridge and the namespaces, which are removed on drop.
#[derive(Debug)]
pub(super) struct Network {
    /// Prefix of the names of all its parts; its numbers keep runs apart.
    name: String,
    subnet: u8,
    places: Vec<Place>,
    has_bridge: bool,
}

impl Network {
    /// Creates the bridge, and a namespace for each place.
    pub(super) fn make(places: Vec<Place>) -> Result<Self, StressError> {
        let number = std::process::id();
        let name = format!("drt{}", number % 1_000_000);
        let mut network = Self { name, subnet: (number % 251) as u8, places: Vec::new(), has_bridge: false };
        let bridge = network.bridge();
        ip(["link", "add", &bridge, "type", "bridge"])?;
        network.has_bridge = true;
        let own = format!("10.213.{}.254/24", network.subnet);
        ip(["addr", "add", &own, "dev", &bridge])?;
        ip(["link", "set", &bridge, "up"])?;
        for place in places {
            let (space, link) = (network.space(place), network.link(place));
            ip(["netns", "add", &space])?;
            network.places.push(place);
            ip(["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &space])?;
            ip(["link", "set", &link, "master", &bridge, "up"])?;
            let address = format!("{}/24", network.address(place));
            ip(["-n", &space, "addr", "add", &address, "dev", "eth0"])?;
            ip(["-n", &space, "link", "set", "eth0", "up"])?;
            ip(["-n", &space, "link", "set", "lo", "up"])?;
        }
        Ok(network)
    }

    fn bridge(&self) -> String {
        format!("{}b", self.name)
    }

    fn space(&self, place: Place) -> String {
        format!("{}-{}", self.name, place.host())
    }

    fn link(&self, place: Place) -> String {
        format!("{}-{}", self.name, place.host())
    }

    /// Returns the address of a place.
    pub(super) fn address(&self, place: Place) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.subnet, place.host())
    }

    /// Returns the same command, run in a place's namespace.
    pub(super) fn inside(&self, place: Place, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.space(place)]).arg(command.get_program());
        inside.args(command.get_args());
        // Like the command that it wraps: a signal from the terminal is for the coordinator.
        inside.process_group(0);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// Cuts, slows or heals a link.
    pub(super) fn set(&self, place: Place, link: Link) -> Result<(), StressError> {
        let (name, bridge) = (self.link(place), self.bridge());
        match link {
            Link::Cut => ip(["link", "set", &name, "nomaster"]),
            Link::Slow => {
                let slow = ["rate", "1mbit", "burst", "16kbit", "latency", "200ms"];
                run("tc", ["qdisc", "replace", "dev", &name, "root", "tbf"].into_iter().chain(slow))
            }
            Link::Whole => {
                // There is no rule to remove unless the link was slow.
                let _ = run("tc", ["qdisc", "del", "dev", &name, "root"]);
                ip(["link", "set", &name, "master", &bridge])
            }
        }
    }

    /// Returns all places.
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The links are removed with their namespaces.
        for &place in &self.places {
            let _ = ip(["netns", "del", &self.space(place)]);
        }
        if self.has_bridge {
            let _ = ip(["link", "del", &self.bridge()]);
        }
    }
}

fn ip<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<(), StressError> {
    run("ip", arguments)
}

fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<(), StressError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let refused = |why: String| {
        StressError::Usage(format!(
            "a separate network needs `ip` and `tc` (iproute2) and the rights of root: `{program}`: {why}; or leave \
             --apart out"
        ))
    };
    let output = command.output().map_err(|error: io::Error| refused(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
