//! Where the pools of a comparison are.

use std::fmt;
use std::str::FromStr;

/// Where each index of a comparison has its pool.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Memory of this process.
    Local,
    /// Memory nodes in processes of their own on this machine, over TCP.
    Tcp,
}

impl Place {
    /// Whether times are of a model's clock.
    pub fn is_modelled(&self) -> bool {
        false
    }

    /// Compute nodes at work, each with an index handle and a cache of its own.
    pub fn compute_nodes(&self) -> usize {
        1
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Tcp => f.write_str("tcp"),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "local" => Ok(Self::Local),
            "tcp" => Ok(Self::Tcp),
            _ => Err("choose local or tcp".to_owned()),
        }
    }
}
