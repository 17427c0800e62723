//! Names of RDMA devices, as given on a command line: `mlx5_0`, `mlx5_0:1:3`.

use std::fmt;
use std::str::FromStr;

/// Maximum bytes of a device's name in the kernel (`IB_DEVICE_NAME_MAX` includes the end).
const NAME_BYTES_MAX: usize = 63;

/// Names an RDMA device: `DEVICE[:PORT[:GID]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// The device, as `ibv_devices` lists it.
    pub device: String,
    /// The port of the device, counted from 1. `None`: port 1.
    pub port: Option<u8>,
    /// The index in the port's table of GIDs. `None`: the last one made from an IPv4 address, which
    /// is RoCE version 2 if the device has both versions; otherwise the first that is not empty.
    pub gid: Option<u8>,
}

/// Why a text does not name an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("RDMA device `{text}`: {what}; for example `mlx5_0`, or `mlx5_0:1:3` for port 1 and GID index 3")]
pub struct DeviceNameError {
    text: String,
    what: String,
}

impl DeviceName {
    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let device = parts.next().unwrap_or_default();
        let (port, gid) = (parts.next(), parts.next());
        if parts.next().is_some() {
            return Err("it has more parts than DEVICE:PORT:GID".to_owned());
        }
        // The name becomes part of paths in sysfs and of pools' URLs.
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if device.is_empty() {
            return Err("it lacks the name of a device; `ibv_devices` lists them".to_owned());
        }
        if device.starts_with('.') || device.len() > NAME_BYTES_MAX || !device.bytes().all(is_name) {
            return Err(format!("`{device}` is not the name of a device; `ibv_devices` lists them"));
        }
        let port = port.map(|port| {
            let number = port.parse().ok().filter(|number| *number > 0);
            number.ok_or_else(|| format!("its port `{port}` is not a number from 1 to 255"))
        });
        let gid = gid.map(|gid| {
            gid.parse().map_err(|_| format!("its GID index `{gid}` is not a number from 0 to 255"))
        });
        Ok(Self { device: device.to_owned(), port: port.transpose()?, gid: gid.transpose()? })
    }
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, DeviceNameError> {
        Self::parse(text).map_err(|what| DeviceNameError { text: text.to_owned(), what })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device)?;
        match (self.port, self.gid) {
            (None, None) => Ok(()),
            (Some(port), None) => write!(f, ":{port}"),
            // The index of a GID requires a port before it.
            (port, Some(gid)) => write!(f, ":{}:{gid}", port.unwrap_or(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_and_print() {
        for (text, port, gid) in
            [("mlx5_0", None, None), ("rxe-0.1:2", Some(2), None), ("mlx5_bond_0:1:3", Some(1), Some(3))]
        {
            let name: DeviceName = text.parse().unwrap();
            assert_eq!((name.port, name.gid), (port, gid), "{text}");
            assert_eq!(name.to_string(), text);
        }
        let name = DeviceName { device: "rxe0".to_owned(), port: None, gid: Some(0) };
        assert_eq!(name.to_string(), "rxe0:1:0");
    }

    #[test]
    fn nonsense_says_what_is_wrong_and_gives_an_example() {
        let long = "x".repeat(64);
        for (text, word) in [
            ("", "lacks the name"),
            (":1", "lacks the name"),
            ("../uverbs0", "not the name"),
            ("a b", "not the name"),
            ("mlx5_0&size=1G", "not the name"),
            (&long, "not the name"),
            ("mlx5_0:", "port ``"),
            ("mlx5_0:0", "from 1 to 255"),
            ("mlx5_0:256", "from 1 to 255"),
            ("mlx5_0:one:3", "port `one`"),
            ("mlx5_0:1:", "GID index ``"),
            ("mlx5_0:1:256", "from 0 to 255"),
            ("mlx5_0:1:3:4", "more parts"),
        ] {
            let error = text.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("`mlx5_0:1:3`"), "{text}: {error}");
        }
    }
}
