//! Names of pools, as given on a command line: `mem:1G?nodes=3`, `file:/dev/shm/pool?size=8G`.
//!
//! ```text
//! mem:SIZE[?nodes=N]                          this process's memory, gone with it
//! file:PATH[?size=SIZE&nodes=N&sparse&mode=MODE&group=GROUP&durability=flush]
//!                                             a file mapped by every process that opens it
//! tcp://HOST:PORT[,HOST:PORT…][?durability=log]
//!                                             memory nodes, in the order of their indexes; [ADDR]:PORT for IPv6
//! tcp://HOST:PORT+HOST:PORT[,HOST:PORT+HOST:PORT…]
//!                                             memory groups, each with all its replicas
//! rdma://HOST:PORT[,HOST:PORT…]?device=DEVICE[:PORT[:GID]]
//!                                             the same, verbs through this machine's RDMA device
//! ```
//!
//! SIZE is the size of the whole pool, split evenly across its nodes. A path is taken literally up
//! to the first `?`; nothing is percent-decoded, so a path that contains `?` cannot be named. A new
//! file's disk space is reserved if the file system supports that; `sparse` does not reserve it,
//! `preallocate` writes it if the file system does not support reservation. Only its owner can
//! access a new file; `mode=0660` and `group=NAME` share it (`files/sharing.rs`). With
//! `durability=flush` a file lies in persistent memory, and acknowledged data was flushed. With
//! `durability=log` the replies of every node must contain only data that is on its disk. The
//! addresses of `rdma:` are those at which the nodes listen for TCP connections. `tcp:` and `rdma:`
//! need the feature `tcp`.

use crate::files::Sharing;
use crate::local::{FileOptions, Space};
#[cfg(feature = "tcp")]
use crate::rdma::{DeviceName, DeviceNameError};
use crate::{ByteSize, NODES_MAX, OFFSET_LIMIT, SUPERBLOCK_BYTES};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The provider of a pool. Has the providers that are compiled in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// Memory of this process.
    Memory,
    /// A file mapped by every process that opens it; also `/dev/shm` and DAX devices.
    File(PathBuf),
    /// Memory nodes reached over TCP, by address.
    #[cfg(feature = "tcp")]
    Tcp(Vec<String>),
    /// Memory nodes whose memory is reached through an RDMA device, and everything else over TCP.
    #[cfg(feature = "tcp")]
    Rdma {
        /// The addresses at which the nodes listen for TCP connections.
        addresses: Vec<String>,
        /// The device of this machine that verbs use.
        device: DeviceName,
    },
}

/// A parsed pool name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUrl {
    scheme: Scheme,
    size: Option<u64>,
    nodes: Option<u16>,
    space: Space,
    sharing: Sharing,
    is_durable: bool,
    is_flushed: bool,
}

/// The reason why a text is not the name of a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "pool `{text}`: {what}; for example `mem:1G?nodes=3`, `file:/dev/shm/pool?size=8G`, `tcp://host:7000` \
     or `rdma://host:7000?device=mlx5_0`"
)]
pub struct UrlError {
    text: String,
    what: String,
}

impl PoolUrl {
    /// Returns a pool in this process's memory: `bytes` in total, on one node.
    pub fn memory(bytes: u64) -> Self {
        Self { size: Some(bytes), ..Self::of(Scheme::Memory) }
    }

    /// Returns an existing pool in a file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::of(Scheme::File(path.into()))
    }

    /// Returns memory nodes at these addresses, `host:port` each.
    #[cfg(feature = "tcp")]
    pub fn tcp(addresses: Vec<String>) -> Self {
        Self::of(Scheme::Tcp(addresses))
    }

    /// Returns memory nodes at these addresses, `host:port` each, with verbs through an RDMA
    /// device.
    #[cfg(feature = "tcp")]
    pub fn rdma(addresses: Vec<String>, device: DeviceName) -> Self {
        Self::of(Scheme::Rdma { addresses, device })
    }

    fn of(scheme: Scheme) -> Self {
        let (space, sharing) = (Space::Reserved, Sharing::default());
        Self { scheme, size: None, nodes: None, space, sharing, is_durable: false, is_flushed: false }
    }

    /// Returns the same pool, to be created with `bytes` in total on `nodes` memory nodes.
    #[must_use]
    pub fn sized(mut self, bytes: u64, nodes: u16) -> Self {
        self.size = Some(bytes);
        self.nodes = Some(nodes);
        self
    }

    /// Returns its provider.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Returns the file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        if let Scheme::File(path) = &self.scheme { Some(path) } else { None }
    }

    /// Returns the addresses of its memory nodes, if it names any: `tcp:` and `rdma:`.
    pub fn addresses(&self) -> Option<&[String]> {
        match &self.scheme {
            #[cfg(feature = "tcp")]
            Scheme::Tcp(addresses) | Scheme::Rdma { addresses, .. } => Some(addresses),
            _ => None,
        }
    }

    /// Returns the RDMA device that verbs use, if it names one.
    #[cfg(feature = "tcp")]
    pub fn device(&self) -> Option<&DeviceName> {
        if let Scheme::Rdma { device, .. } = &self.scheme { Some(device) } else { None }
    }

    /// Returns the total size to create it with, if given.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Returns the number of memory nodes to create it with; 1 if not given.
    pub fn nodes(&self) -> usize {
        match &self.scheme {
            #[cfg(feature = "tcp")]
            Scheme::Tcp(addresses) | Scheme::Rdma { addresses, .. } => addresses.len(),
            Scheme::Memory | Scheme::File(_) => usize::from(self.nodes.unwrap_or(1)),
        }
    }

    /// Returns the bytes of each node's region to create it with: the size split evenly, rounded
    /// down to whole superblocks.
    pub fn node_bytes(&self) -> Option<u64> {
        self.size.map(|size| size / self.nodes().max(1) as u64 / SUPERBLOCK_BYTES * SUPERBLOCK_BYTES)
    }

    /// Returns whether every memory node must be durable: all that it has acknowledged is on its
    /// disk.
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Returns whether acknowledged data must have been flushed to persistent memory.
    pub fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    /// Returns how a new file gets its disk space.
    pub fn space(&self) -> Space {
        self.space
    }

    /// Returns the permissions of a new file.
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// Returns how to create the file of a new pool.
    pub fn file_options(&self) -> FileOptions {
        let (space, sharing, flush) = (self.space, self.sharing.clone(), self.is_flushed);
        FileOptions { overwrite: false, space, sharing, flush }
    }

    /// Parses one `name=value` of the query.
    fn apply(&mut self, pair: &str) -> Result<(), String> {
        let (name, value) = pair.split_once('=').map_or((pair, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("size", Some(value)) => {
                if self.size.is_some() {
                    return Err("its size is given twice".to_owned());
                }
                self.size = Some(value.parse::<ByteSize>().map_err(|error| error.to_string())?.0);
            }
            ("nodes", Some(value)) => {
                if self.nodes.is_some() {
                    return Err("`nodes` is given twice".to_owned());
                }
                let nodes = value.parse().ok().filter(|n| (1..=NODES_MAX).contains(&usize::from(*n)));
                self.nodes = Some(
                    nodes.ok_or_else(|| format!("`nodes={value}` is not a number from 1 to {NODES_MAX}"))?,
                );
            }
            ("preallocate" | "sparse", None) if self.space != Space::Reserved => {
                return Err("it can have at most one of `preallocate` and `sparse`".to_owned());
            }
            ("preallocate", None) => self.space = Space::Preallocated,
            ("sparse", None) => self.space = Space::Sparse,
            ("preallocate" | "sparse", Some(_)) => return Err(format!("`{name}` takes no value")),
            ("mode", Some(value)) if self.sharing.mode.is_none() => self.sharing.mode = Some(value.parse()?),
            ("group", Some(value)) if self.sharing.group.is_none() => {
                self.sharing.group = Some(value.parse()?);
            }
            ("mode" | "group", Some(_)) => return Err(format!("`{name}` is given twice")),
            ("durability", _) if self.is_durable || self.is_flushed => {
                return Err("`durability` is given twice".to_owned());
            }
            ("durability", Some("log")) => self.is_durable = true,
            ("durability", Some("flush")) => self.is_flushed = true,
            ("durability", _) => {
                return Err(
                    "there are `durability=log`, for memory nodes, and `durability=flush`, for files in persistent memory"
                        .to_owned(),
                );
            }
            ("device", _) => return Err("`device` is for `rdma://`".to_owned()),
            ("size" | "nodes", None) => return Err(format!("`{name}` lacks a value, as in `{name}=4`")),
            ("mode", None) => return Err("`mode` lacks a value, as in `mode=0660`".to_owned()),
            ("group", None) => return Err("`group` lacks a value, as in `group=darter`".to_owned()),
            _ => {
                return Err(format!(
                    "unknown option `{name}`; there are size, nodes, preallocate, sparse, mode, group and durability"
                ));
            }
        }
        Ok(())
    }

    /// Checks the conditions that can be checked before anything is opened.
    fn verified(self) -> Result<Self, String> {
        match (&self.scheme, self.size) {
            (scheme, _) if self.is_flushed && !matches!(scheme, Scheme::File(_)) => {
                return Err(
                    "`durability=flush` is for files in persistent memory; memory nodes have `durability=log`".to_owned()
                );
            }
            #[cfg(feature = "tcp")]
            (Scheme::Tcp(_), size)
                if size.is_some() || self.nodes.is_some() || self.space != Space::Reserved =>
            {
                return Err(
                    "memory nodes have the sizes they were started with: they take no option but `durability=log`"
                        .to_owned()
                );
            }
            (Scheme::File(_), _) if self.is_durable => {
                return Err(
                    "a file has no log, which only memory nodes have; in persistent memory use `durability=flush`, \
                     elsewhere serve the memory by `darter memnode --durability log --log DIR`, and name the \
                     pool `tcp://HOST:PORT?durability=log`"
                        .to_owned(),
                );
            }
            (Scheme::Memory, _) if self.is_durable => {
                return Err("memory of this process ends with it; only memory nodes are durable".to_owned());
            }
            (Scheme::Memory, None) => return Err("it lacks a size".to_owned()),
            (Scheme::Memory, _) if self.space != Space::Reserved || self.sharing.is_named() => {
                return Err("`preallocate`, `sparse`, `mode` and `group` are for files".to_owned());
            }
            (Scheme::File(_), None)
                if self.nodes.is_some() || self.space != Space::Reserved || self.sharing.is_named() =>
            {
                return Err(
                    "`nodes`, `preallocate`, `sparse`, `mode` and `group` are about a new file and need `size` as well"
                        .to_owned(),
                );
            }
            _ => {}
        }
        match self.node_bytes() {
            Some(0) => Err(format!("its size leaves less than {SUPERBLOCK_BYTES} bytes for a node")),
            Some(bytes) if bytes > OFFSET_LIMIT => {
                Err("a node can hold at most 1 TiB; use more nodes".to_owned())
            }
            _ => Ok(self),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        if let Some(meant) = meant(text) {
            return Err(format!("it does not begin with a kind of pool; did you mean `{meant}`?"));
        }
        let (scheme, rest) =
            text.split_once(':').ok_or("it does not begin with `mem:`, `file:`, `tcp://` or `rdma://`")?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = match scheme {
            "mem" if place.is_empty() => Self { size: None, ..Self::memory(0) },
            "mem" => Self::memory(place.parse::<ByteSize>().map_err(|error| error.to_string())?.0),
            "file" if place.is_empty() => return Err("it lacks a path".to_owned()),
            "file" => Self::file(place),
            #[cfg(feature = "tcp")]
            "tcp" => Self::tcp(addresses(place)?),
            #[cfg(feature = "tcp")]
            "rdma" if place.contains('+') => {
                return Err("a memory group has no `rdma://`: its replicas send each other the verbs that \
                     they execute, but not those of a device; name it `tcp://`"
                    .to_owned());
            }
            #[cfg(feature = "tcp")]
            "rdma" => return Ok(Self::rdma(addresses(place)?, device(query)?)),
            #[cfg(not(feature = "tcp"))]
            "tcp" | "rdma" => {
                return Err(
                    "this program was built without memory nodes over TCP and RDMA: switch on the feature `tcp`".to_owned()
                );
            }
            "model" => {
                return Err(
                    "a modelled cluster keeps nothing: it is for measurements, by `darter-lab compare --pool model:…`"
                        .to_owned(),
                );
            }
            _ => {
                return Err(format!(
                    "unknown kind `{scheme}:`; there are `mem:`, `file:`, `tcp://` and `rdma://`"
                ));
            }
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            url.apply(pair)?;
        }
        url.verified()
    }
}

/// Returns the name that was probably meant by a path, or by the address of a memory node.
fn meant(text: &str) -> Option<String> {
    if ["/", "./", "../"].iter().any(|start| text.starts_with(start)) {
        return Some(format!("file:{text}"));
    }
    let (host, port) = text.rsplit_once(':')?;
    let is_address = !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok();
    let kind = host.split(':').next().unwrap_or_default();
    let has_kind = ["mem", "file", "tcp", "rdma", "model"].contains(&kind);
    (is_address && !has_kind).then(|| format!("tcp://{text}"))
}

/// Parses `//host:port,host:port`.
#[cfg(feature = "tcp")]
fn addresses(place: &str) -> Result<Vec<String>, String> {
    let list = place.strip_prefix("//").ok_or("it lacks the `//` before `host:port`")?;
    if list.contains('@') {
        return Err("credentials do not belong in a name; give them by option or environment".to_owned());
    }
    let list: Vec<String> = list.trim_end_matches('/').split(',').map(str::to_owned).collect();
    if list.len() > NODES_MAX {
        return Err(format!("it names {} memory nodes; a pool has at most {NODES_MAX}", list.len()));
    }
    for address in list.iter().flat_map(|node| node.split('+')) {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let is_host =
            !host.is_empty() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
        if !is_host || port.parse::<u16>().is_err() {
            return Err(format!("`{address}` is not `host:port`; put IPv6 addresses in brackets"));
        }
    }
    Ok(list)
}

/// Parses `device=NAME`, the only option of `rdma:`.
#[cfg(feature = "tcp")]
fn device(query: &str) -> Result<DeviceName, String> {
    let mut pairs = query.split('&').filter(|pair| !pair.is_empty());
    let (Some(pair), None) = (pairs.next(), pairs.next()) else {
        return Err("it takes one option, `?device=DEVICE[:PORT[:GID]]`".to_owned());
    };
    let name = pair.strip_prefix("device=").ok_or_else(|| {
        format!("it takes no option `{pair}`, but `?device=DEVICE[:PORT[:GID]]`; nodes have their own sizes")
    })?;
    name.parse().map_err(|error: DeviceNameError| error.to_string())
}

impl FromStr for PoolUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text).map_err(|what| UrlError { text: text.to_owned(), what })
    }
}

impl fmt::Display for PoolUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = '?';
        let mut option = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let result = write!(f, "{separator}{text}");
            separator = '&';
            result
        };
        match (&self.scheme, self.size) {
            (Scheme::Memory, size) => write!(f, "mem:{}", ByteSize(size.unwrap_or(0)))?,
            #[cfg(feature = "tcp")]
            (Scheme::Tcp(addresses), _) => write!(f, "tcp://{}", addresses.join(","))?,
            #[cfg(feature = "tcp")]
            (Scheme::Rdma { addresses, device }, _) => {
                write!(f, "rdma://{}", addresses.join(","))?;
                option(f, format_args!("device={device}"))?;
            }
            (Scheme::File(path), size) => {
                write!(f, "file:{}", path.display())?;
                if let Some(size) = size {
                    option(f, format_args!("size={}", ByteSize(size)))?;
                }
            }
        }
        if let Some(nodes) = self.nodes {
            option(f, format_args!("nodes={nodes}"))?;
        }
        if self.is_durable {
            option(f, format_args!("durability=log"))?;
        }
        if self.is_flushed {
            option(f, format_args!("durability=flush"))?;
        }
        match self.space {
            Space::Reserved => {}
            Space::Preallocated => option(f, format_args!("preallocate"))?,
            Space::Sparse => option(f, format_args!("sparse"))?,
        }
        if let Some(mode) = self.sharing.mode {
            option(f, format_args!("mode={mode}"))?;
        }
        if let Some(group) = &self.sharing.group {
            option(f, format_args!("group={group}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TcpOptions;

    #[test]
    fn names_read_and_print() {
        for text in [
            "mem:1G",
            "mem:1G?nodes=3",
            "file:/dev/shm/pool",
            "file:relative/a b:c=d&e",
            "file:/p?size=8G",
            "file:/p?size=8G&nodes=256&preallocate",
            "file:/p?size=8G&sparse",
            "file:/p?size=8G&mode=0640",
            "file:/p?size=8G&sparse&mode=0660&group=darter-users",
            "file:/mnt/pmem/pool?durability=flush",
            "file:/mnt/pmem/pool?size=8G&durability=flush",
            "tcp://127.0.0.1:7000",
            "tcp://mn-0.rack:7000,mn-1.rack:7000,[::1]:7000",
            "tcp://10.0.0.1:7000+10.0.0.2:7000,[::1]:7000+[::2]:7000",
            "tcp://127.0.0.1:7000,[::1]:7000?durability=log",
            "rdma://10.0.0.1:7000?device=mlx5_0",
            "rdma://mn-0.rack:7000,[::1]:7000?device=mlx5_0:1:3",
        ] {
            let url: PoolUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), text);
        }
        let url: PoolUrl = "mem:?size=1GiB&nodes=3".parse().unwrap();
        assert_eq!(url.to_string(), "mem:1G?nodes=3");
        assert_eq!((url.scheme(), url.nodes(), url.size()), (&Scheme::Memory, 3, Some(1 << 30)));
        assert_eq!(url.node_bytes(), Some((1 << 30) / 3 / 4096 * 4096));
        let url: PoolUrl = "file:/dev/shm/pool".parse().unwrap();
        assert_eq!((url.path(), url.node_bytes()), (Some(Path::new("/dev/shm/pool")), None));
        let url: PoolUrl = "rdma://a:1,b:2?device=rxe0:1".parse().unwrap();
        let device = DeviceName { device: "rxe0".to_owned(), port: Some(1), gid: None };
        assert_eq!((url.nodes(), url.device()), (2, Some(&device)));
        assert_eq!(url.addresses(), Some(&["a:1".to_owned(), "b:2".to_owned()][..]));
        assert_eq!(TcpOptions::default().for_pool(&url).device, Some(device));
        let url: PoolUrl = "tcp://a:1".parse().unwrap();
        assert_eq!((url.addresses(), url.device()), (Some(&["a:1".to_owned()][..]), None));
        assert!(!TcpOptions::default().for_pool(&url).must_be_durable);
        let url: PoolUrl = "tcp://a:1?durability=log".parse().unwrap();
        assert!(TcpOptions::default().for_pool(&url).must_be_durable);
        assert_eq!(PoolUrl::file("/p").sized(2 << 30, 2).to_string(), "file:/p?size=2G&nodes=2");
    }

    #[test]
    fn nonsense_says_what_is_wrong_and_gives_an_example() {
        for (text, word) in [
            ("", "mem:"),
            ("/dev/shm/pool", "did you mean `file:/dev/shm/pool`?"),
            ("./pool?size=1G", "did you mean `file:./pool?size=1G`?"),
            ("10.0.0.1:7000", "did you mean `tcp://10.0.0.1:7000`?"),
            ("pool", "does not begin"),
            ("udp:host", "unknown kind"),
            ("tcp:host:1", "lacks the `//`"),
            ("tcp://", "not `host:port`"),
            ("tcp://host", "not `host:port`"),
            ("tcp://::1:7000", "brackets"),
            ("tcp://host:70000", "not `host:port`"),
            ("tcp://me:secret@host:7000", "credentials"),
            ("tcp://host:7000?size=1G", "no option but"),
            ("tcp://host:7000?durability=disk", "there are `durability=log`"),
            ("tcp://host:7000?durability", "there are `durability=log`"),
            (
                "file:/p?size=1G&durability=log",
                "elsewhere serve the memory by `darter memnode --durability log",
            ),
            ("file:/p?durability=flush&durability=flush", "given twice"),
            ("tcp://host:7000?durability=flush", "for files in persistent memory"),
            ("mem:1G?durability=flush", "for files in persistent memory"),
            ("mem:1G?durability=log", "ends with it"),
            ("tcp://host:7000?device=mlx5_0", "`device` is for `rdma://`"),
            ("rdma:host:1", "lacks the `//`"),
            ("rdma://host:7000", "one option, `?device="),
            ("rdma://host:7000?", "one option, `?device="),
            ("rdma://host:7000?device", "no option `device`"),
            ("rdma://host:7000?size=1G", "no option `size=1G`"),
            ("rdma://host:7000?device=mlx5_0&size=1G", "one option"),
            ("rdma://host:7000?device=", "lacks the name of a device"),
            ("rdma://host:7000?device=mlx5_0:0", "from 1 to 255"),
            ("rdma://host?device=mlx5_0", "not `host:port`"),
            ("mem:", "lacks a size"),
            ("mem:1Q", "unknown suffix"),
            ("mem:1G?size=2G", "twice"),
            ("mem:1G?nodes=0", "from 1 to 256"),
            ("mem:1G?nodes=257", "from 1 to 256"),
            ("mem:1G?nodes=99999999999", "from 1 to 256"),
            ("mem:1G?nodes", "lacks a value"),
            ("mem:1G?colour=red", "unknown option `colour`"),
            ("mem:1G?preallocate", "for files"),
            ("mem:4K?nodes=2", "4096"),
            ("mem:3T", "more nodes"),
            ("model:mn=2", "darter-lab compare"),
            ("file:", "lacks a path"),
            ("file:?size=1G", "lacks a path"),
            ("file:/p?nodes=2", "need `size`"),
            ("file:/p?mode=0660", "need `size`"),
            ("file:/p?group=1000", "need `size`"),
            ("mem:1G?group=1000", "for files"),
            ("file:/p?size=1G&mode=0755", "cannot be the mode"),
            ("file:/p?size=1G&mode=0060", "cannot be the mode"),
            ("file:/p?size=1G&mode=4660", "cannot be the mode"),
            ("file:/p?size=1G&mode=rw", "cannot be the mode"),
            ("file:/p?size=1G&mode", "as in `mode=0660`"),
            ("file:/p?size=1G&group=", "cannot be a group"),
            ("file:/p?size=1G&group=a&group=b", "given twice"),
            ("file:/p?size=1G&preallocate=yes", "no value"),
            ("file:/p?size=1G&preallocate&sparse", "at most"),
        ] {
            let error = text.parse::<PoolUrl>().unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("for example"), "{text}: {error}");
        }
    }
}
