//! The address at which other gateways reach this one.

use darter::Store;
use darter::engine::Engine;
use darter_fabric::{Fabric, Provider};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Returns the address that a gateway announces, as `HOST:PORT`; `None` if no other process can open
/// its pool. `wanted` is the option, a host with or without a port.
pub(crate) fn announced(wanted: Option<&str>, bound: SocketAddr, store: &Store) -> Option<String> {
    let pool = store.pool();
    let fabric = pool.fabric();
    if matches!(fabric.inner(), Provider::Local(local) if local.path().is_none()) {
        return None;
    }
    Some(match wanted {
        Some(wanted) => with_port(wanted, bound.port()),
        None if !bound.ip().is_unspecified() => bound.to_string(),
        None => {
            let node = fabric.remote_nodes().node_address(0);
            let own = node.and_then(|node| address_towards(&node, bound.ip()));
            SocketAddr::new(own.unwrap_or_else(|| loopback(bound.ip())), bound.port()).to_string()
        }
    })
}

/// Adds a port to a host that has none.
fn with_port(wanted: &str, port: u16) -> String {
    match wanted.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) if wanted.contains(':') => wanted.to_owned(),
        Err(_) => format!("{wanted}:{port}"),
    }
}

/// Returns the address of this machine from which it reaches another one. Sends nothing.
fn address_towards(other: &str, bound: IpAddr) -> Option<IpAddr> {
    let any =
        if bound.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(other).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

fn loopback(bound: IpAddr) -> IpAddr {
    if bound.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_gets_the_port_unless_it_has_one() {
        for (wanted, expected) in [
            ("10.0.0.1", "10.0.0.1:6379"),
            ("10.0.0.1:7", "10.0.0.1:7"),
            ("::1", "[::1]:6379"),
            ("[::1]:7", "[::1]:7"),
            ("cache-1", "cache-1:6379"),
            ("cache-1:7", "cache-1:7"),
        ] {
            assert_eq!(with_port(wanted, 6379), expected);
        }
    }

    #[test]
    fn what_is_announced_can_be_reached() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file:{}/pool?size=16M", directory.path().display());
        let store = Store::open(&url).unwrap();
        let announced = |wanted, bound: &str| announced(wanted, bound.parse().unwrap(), &store);
        assert_eq!(announced(None, "127.0.0.1:7").unwrap(), "127.0.0.1:7");
        assert_eq!(announced(None, "0.0.0.0:7").unwrap(), "127.0.0.1:7");
        assert_eq!(announced(None, "[::]:7").unwrap(), "[::1]:7");
        assert_eq!(announced(Some("10.0.0.9"), "0.0.0.0:7").unwrap(), "10.0.0.9:7");
        let own = address_towards("127.0.0.1:9", Ipv4Addr::UNSPECIFIED.into());
        assert_eq!(own, Some(Ipv4Addr::LOCALHOST.into()));
        let alone = Store::open("mem:16M").unwrap();
        assert_eq!(super::announced(None, "127.0.0.1:7".parse().unwrap(), &alone), None);
    }
}
